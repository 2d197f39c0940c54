"""The competitors. Each is fitted with its package's defaults, but for what stands here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mondrian_forest
from mondrian_forest import HierarchicalPosterior, MondrianForestRegressor

from ..settings import CHOSEN, DEFAULT, PAPER, PRUNED
from .elsewhere import REQUIREMENTS, Elsewhere, environment
from .scores import Gaussian, Prediction, Quantiles

# Settings of MondrianForestRegressor by name. The first of OURS is the one that is ranked and held
# against the targets; ABLATION is compared with it.
OURS: dict[str, dict[str, Any]] = {"default": DEFAULT}
ABLATION: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "paper + marginal likelihood": PAPER
    | {"posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood")},
    "paper + spread": PAPER | {"spread": "auto"},
    "pruned": PRUNED,
    "pruned + chosen cuts": CHOSEN,
    "without chosen cuts": {"n_candidate_splits": 1},
    "without feature weights": {"feature_weights": None},
    "without spread": {"spread": 1.0},
    "without a mean function": {"mean_function": None},
    "around a line": {"mean_function": "linear"},
    "around boosting": {"mean_function": "boosting", "mean_use": "both"},
    "with 25 trees": {"n_estimators": 25},
    "with min_samples_split=5": {"min_samples_split": 5},
    "with min_samples_split=10": {"min_samples_split": 10},
}

POINT = "CatBoost-point"
"""Made for the mean alone. As a distribution, a normal one with the deviation of its residuals."""
PLAIN = "Mondrian-without a mean function"
N_THREADS = 2
MOST_GP_ROWS = 1_500
# Of quantile-forest too: its 50 trees hold about 50 labels for a row, too few for a density from
# 99 levels (NLPD on kin8nm 1.39 instead of 1.06, on skillcraft 1.62 instead of 1.29; only on
# rounded labels more levels are better, on wine -0.84 instead of -0.42). The CRPS is the same.
LEVELS = np.arange(1, 20) / 20

Predict = Callable[[np.ndarray], Prediction]


@dataclass(frozen=True)
class Method:
    name: str
    fit: Callable[..., Predict]
    package: str
    settings: dict[str, Any] = field(default_factory=dict)
    most_rows: float = np.inf
    is_ranked: bool = True

    @property
    def is_elsewhere(self) -> bool:
        """Whether it lives in an environment of its own."""
        return self.package in REQUIREMENTS

    @property
    def origin(self) -> str:
        """Which code it is: results of other code are not taken from the cache."""
        if self.is_elsewhere:
            return " ".join(REQUIREMENTS[self.package])
        if self.package == "mondrian-forest":
            return fingerprint()
        return f"{self.package} {version(self.package)}"


@cache
def fingerprint() -> str:
    """Return a digest of our own source, which changes without its version."""
    digest = sha256()
    folder = Path(mondrian_forest.__file__).parent
    patterns = ("_core/**/*.py", "_forest/**/*.py", "forest.py", "distribution.py")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(path.read_bytes())
    return f"mondrian-forest {digest.hexdigest()[:16]}"


def peers(quick: bool, environments: Path | None = None) -> list[Method]:
    """Return the other packages' methods, without those that are not installed.

    ``environments`` is the folder for peers that need an environment of their own.
    """
    trees = {"n_estimators": 10 if quick else 50}
    boosted = {"iterations": 20} if quick else {}
    found = [
        Method("RandomForest", fit_random_forest, "scikit-learn", trees),
        Method("ExtraTrees", fit_extra_trees, "scikit-learn", trees),
        Method("quantile-forest", fit_quantile_forest, "quantile-forest", trees),
        Method("NGBoost", fit_ngboost, "ngboost", {"n_estimators": 30 if quick else 500}),
        Method("LightGBM", fit_lightgbm, "lightgbm", {"n_estimators": 20 if quick else 100}),
        Method("CatBoost", fit_catboost, "catboost", boosted),
        Method("CatBoost-quantiles", fit_catboost_quantiles, "catboost", boosted),
        Method(POINT, fit_catboost_point, "catboost", boosted, is_ranked=False),
        Method("GP", fit_gp, "scikit-learn", most_rows=MOST_GP_ROWS, is_ranked=False),
    ]
    absent = {
        method.package
        for method in found
        if method.package != "scikit-learn" and find_spec(method.package.replace("-", "_")) is None
    }
    for package in sorted(absent):
        print(f"{package} is left out: it is not installed (pip install {package}).")
    found = [method for method in found if method.package not in absent]
    if environments is not None:
        for name, title in (("pgbm", "PGBM"), ("stochtree", "BART"), ("treeffuser", "Treeffuser")):
            python = environment(name, environments)
            if python is not None:
                settings = {"name": name, "python": str(python)}
                found.append(Method(title, Elsewhere, name, settings))
    return found


def ours(quick: bool, variants: dict[str, dict[str, Any]]) -> list[Method]:
    trees = {"n_estimators": 10 if quick else 50}
    return [
        Method(f"Mondrian-{name}", fit_mondrian, "mondrian-forest", {**trees, **settings})
        for name, settings in variants.items()
    ]


def fit_mondrian(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    forest = MondrianForestRegressor(n_jobs=N_THREADS, random_state=seed, **settings)
    return forest.fit(X, y).predict_distribution


def fit_random_forest(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    forest = RandomForestRegressor(n_jobs=N_THREADS, random_state=seed, **settings).fit(X, y)
    return lambda rows: over_trees(forest, rows)


def fit_extra_trees(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    forest = ExtraTreesRegressor(n_jobs=N_THREADS, random_state=seed, **settings).fit(X, y)
    return lambda rows: over_trees(forest, rows)


def over_trees(forest: Any, X: np.ndarray) -> Prediction:
    """Return the Gaussian with the mean and the variance of the trees, as in the paper."""
    rows = X.astype(np.float32)
    by_tree = Parallel(n_jobs=N_THREADS, require="sharedmem")(
        delayed(tree.predict)(rows, check_input=False) for tree in forest.estimators_
    )
    return Gaussian(np.mean(by_tree, axis=0), np.std(by_tree, axis=0))


def fit_quantile_forest(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    from quantile_forest import RandomForestQuantileRegressor

    forest = RandomForestQuantileRegressor(n_jobs=N_THREADS, random_state=seed, **settings)
    forest.fit(X, y)
    return lambda rows: Quantiles(LEVELS, forest.predict(rows, quantiles=LEVELS.tolist()))


def fit_ngboost(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False, **settings).fit(X, y)

    def predict(rows: np.ndarray) -> Prediction:
        params = model.pred_dist(rows).params
        return Gaussian(params["loc"], params["scale"])

    return predict


def fit_lightgbm(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    from lightgbm import Booster, Dataset, train

    # Two levels at a time, each on one thread. Two threads for each level wait for each other in a
    # loop: on a busy machine 20 rounds of 300 rows then take 9 s instead of 0.03 s.
    settings = {**settings, "objective": "quantile", "num_threads": 1, "verbosity": -1}
    n_rounds = settings.pop("n_estimators")

    def fit_level(level: float) -> Booster:
        params = {**settings, "alpha": level, "seed": seed}
        return train(params, Dataset(X, y), n_rounds)

    boosters = Parallel(n_jobs=N_THREADS, require="sharedmem")(
        delayed(fit_level)(float(level)) for level in LEVELS
    )

    def predict(rows: np.ndarray) -> Prediction:
        columns = Parallel(n_jobs=N_THREADS, require="sharedmem")(
            delayed(booster.predict)(rows) for booster in boosters
        )
        return Quantiles(LEVELS, np.column_stack(columns))

    return predict


def catboost(loss: str, seed: int, **settings: Any) -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        loss_function=loss,
        random_seed=seed,
        thread_count=N_THREADS,
        verbose=0,
        allow_writing_files=False,
        **settings,
    )


def fit_catboost(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    model = catboost("RMSEWithUncertainty", seed, **settings).fit(X, y)

    def predict(rows: np.ndarray) -> Prediction:
        mean, variance = model.predict(rows).T
        return Gaussian(mean, np.sqrt(variance))

    return predict


def fit_catboost_quantiles(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    levels = ",".join(f"{level:.2f}" for level in LEVELS)
    model = catboost(f"MultiQuantile:alpha={levels}", seed, **settings).fit(X, y)
    return lambda rows: Quantiles(LEVELS, model.predict(rows))


def fit_catboost_point(X: np.ndarray, y: np.ndarray, seed: int, **settings: Any) -> Predict:
    model = catboost("RMSE", seed, **settings).fit(X, y)
    std = float(np.std(y - model.predict(X)))

    def predict(rows: np.ndarray) -> Prediction:
        return Gaussian(model.predict(rows), np.full(len(rows), std))

    return predict


def fit_gp(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, random_state=seed)
    model = make_pipeline(StandardScaler(), process)
    with warnings.catch_warnings():
        # Length scales of features that do not matter end at their bounds.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return lambda rows: Gaussian(*model.predict(rows, return_std=True))
