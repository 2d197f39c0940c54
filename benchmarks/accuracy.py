"""What the speed buys: accuracy and density on generated sets, against ExtraTrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.metrics import r2_score

from mondrian_forest import MondrianForestRegressor

from .settings import CHOSEN, DEFAULT, PAPER, PRUNED
from .table import Table

WEIGHTED = CHOSEN | {"feature_weights": "auto"}
SETTINGS = {
    "as in the paper": PAPER,
    "prior_rate=1": PAPER | {"prior_rate": 1.0},
    'hyperparameters="marginal_likelihood"': PAPER | {"hyperparameters": "marginal_likelihood"},
    'posterior="empirical"': PAPER | {"posterior": "empirical"},
    'posterior="pruned", min_samples_split=2': PRUNED,
    '... and n_candidate_splits="n_features"': CHOSEN,
    '... and feature_weights="auto"': WEIGHTED,
    '... and spread="auto", the default': DEFAULT,
}


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    n_rows = 500 if quick else 10_000
    table = Table(
        "Accuracy",
        ["features", "method", "R2", "mean log density", "coverage of 90% intervals"],
        note=f"scikit-learn's make_friedman1 with noise 1, {n_rows * 4 // 5:,} rows to train, "
        f"{n_rows // 5:,} to test; five features matter. 25 trees against 100 of ExtraTrees with "
        "min_samples_leaf=5.",
    )
    for n_features in (5, 10, 100):
        X, y = make_friedman1(n_rows, n_features, noise=1.0, random_state=0)
        n_train = n_rows * 4 // 5
        train, test = slice(0, n_train), slice(n_train, None)
        for name, setting in SETTINGS.items():
            forest = MondrianForestRegressor(25, **setting, n_jobs=2, random_state=0)
            found = forest.fit(X[train], y[train]).predict_distribution(X[test])
            low, high = found.interval(0.9).T
            table.add(
                n_features,
                f"MondrianForestRegressor, {name}",
                f"{r2_score(y[test], found.mean()):.3f}",
                f"{found.logpdf(y[test]).mean():.3f}",
                f"{np.mean((low <= y[test]) & (y[test] <= high)):.3f}",
            )
        peer = ExtraTreesRegressor(min_samples_leaf=5, n_jobs=2, random_state=0)
        score = peer.fit(X[train], y[train]).score(X[test], y[test])
        table.add(n_features, "ExtraTreesRegressor", f"{score:.3f}", "", "")
    yield table
    yield extrapolation(200 if quick else 2000)


def extrapolation(n_rows: int) -> Table:
    table = Table(
        "Extrapolation",
        ["trend", "rows", "R2", "mean log density", "coverage of 90% intervals"],
        note=f"y = 5 x1 + sin(9 x2) + noise of 0.1; {n_rows:,} rows to train with x1 from 0 to 1.",
    )
    random = np.random.default_rng(0)
    X, noise = random.random((2 * n_rows, 2)), 0.1 * random.normal(size=2 * n_rows)
    for trend in (None, "linear"):
        forest = MondrianForestRegressor(25, trend=trend, n_jobs=2, random_state=0)
        y = 5 * X[:, 0] + np.sin(9 * X[:, 1]) + noise
        forest.fit(X[:n_rows], y[:n_rows])
        for where, shift in (("x1 from 0 to 1", 0.0), ("x1 from 1 to 2", 1.0)):
            new = X[n_rows:] + np.array([shift, 0.0])
            label = y[n_rows:] + 5 * shift
            found = forest.predict_distribution(new)
            low, high = found.interval(0.9).T
            table.add(
                trend or "none",
                where,
                f"{r2_score(label, found.mean()):.3f}",
                f"{found.logpdf(label).mean():.3f}",
                f"{np.mean((low <= label) & (label <= high)):.3f}",
            )
    return table
