"""The forests of the paper's comparison, all asked for a mean and a standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from mondrian_forest import PAPER, MondrianForestRegressor

N_THREADS = 2
SMALLEST_STD = 1e-3
"""Where all trees agree; no row of the full-size tables comes near it."""


def forest(name: str, n_trees: int, seed: int) -> Any:
    """Return an unfitted forest with the settings of the paper's section 4."""
    shared: dict[str, Any] = {"n_estimators": n_trees, "n_jobs": N_THREADS, "random_state": seed}
    match name:
        case "MF":
            return MondrianForestRegressor(**PAPER, **shared)
        case "MF, empirical":
            return MondrianForestRegressor(**PAPER | {"posterior": "empirical"}, **shared)
        case "RF":
            return RandomForestRegressor(min_samples_leaf=5, **shared)
        case "ERT":
            return ExtraTreesRegressor(min_samples_leaf=5, **shared)
    raise ValueError(f"no forest has the name {name!r}")


def predict(fitted: Any, X: np.ndarray) -> Any:
    """Return a predictive distribution, or mean and spread of the trees for other forests.

    The Gaussian with the mean and the variance of the predictions of the trees is what the paper
    takes for forests that predict no uncertainty (Hutter 2009, section 11.1.3).
    """
    if hasattr(fitted, "predict_distribution"):
        return fitted.predict_distribution(X)
    X = np.asarray(X, dtype=np.float32)
    trees = np.stack([tree.predict(X) for tree in fitted.estimators_])
    return trees.mean(axis=0), np.maximum(trees.std(axis=0), SMALLEST_STD)


def moments(prediction: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of a prediction."""
    return prediction if isinstance(prediction, tuple) else (prediction.mean(), prediction.std())
