"""What the speed buys: accuracy and density on generated sets, against ExtraTrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.metrics import r2_score

from mondrian_forest import HierarchicalPosterior, MondrianForestRegressor

from .settings import ALONE, CHOSEN, PAPER, PRUNED
from .speed import load_flights
from .table import Table

WEIGHTED = CHOSEN | {"feature_weights": "auto"}
SETTINGS = {
    "`**PAPER`": PAPER,
    "`**PAPER`, HierarchicalPosterior(prior_rate=1)": PAPER
    | {"posterior": HierarchicalPosterior(prior_rate=1.0)},
    '`**PAPER`, HierarchicalPosterior(hyperparameters="marginal_likelihood")': PAPER
    | {"posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood")},
    '`**PAPER`, posterior="empirical"': PAPER | {"posterior": "empirical"},
    '`**PAPER`, posterior="pruned", min_samples_split=2': PRUNED,
    '... and n_candidate_splits="n_features"': CHOSEN,
    '... and feature_weights="auto"': WEIGHTED,
    '... and spread="auto": the default without a mean function': ALONE,
}


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    n_rows = 500 if quick else 10_000
    table = Table(
        "Accuracy",
        ["features", "method", "R2", "mean log density", "coverage of 90% intervals"],
        note="scikit-learn's make_friedman1 with noise 1, of whose features five matter. "
        f"{n_rows * 4 // 5:,} rows to train, {n_rows // 5:,} to test. 25 trees against 100 of "
        'ExtraTrees with min_samples_leaf=5. A line with "... and" adds to the line above.',
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
                name,
                f"{r2_score(y[test], found.mean()):.3f}",
                f"{found.logpdf(y[test]).mean():.3f}",
                f"{np.mean((low <= y[test]) & (y[test] <= high)):.3f}",
            )
        peer = ExtraTreesRegressor(min_samples_leaf=5, n_jobs=2, random_state=0)
        score = peer.fit(X[train], y[train]).score(X[test], y[test])
        table.add(n_features, "ExtraTreesRegressor", f"{score:.3f}", "", "")
    yield table
    yield extrapolation(200 if quick else 2000)
    yield smallest_nodes((300, 600) if quick else (5_000, 20_000, 60_000, 200_000), data)


def smallest_nodes(sizes: tuple[int, ...], data: Path | None) -> Table:
    """Compare values of min_samples_split: why "auto" is what it is."""
    n_test = sizes[0] // 2
    table = Table(
        "Smallest nodes that are split",
        ["data", "rows", *(f"{score}, {n}" for n in (2, 5, 10) for score in ("RMSE", "NLPD"))],
        note="The default with 25 trees, and with min_samples_split of 2, 5 and 10. friedman1 has "
        f"8 features. {n_test:,} rows to test. Scores are in standard deviations of the labels.",
    )
    tables = {
        f"friedman1, noise {noise:g}": make_friedman1(
            max(sizes) + n_test, 8, noise=noise, random_state=0
        )
        for noise in (0.0, 1.0, 5.0)
    }
    flights = load_flights(data)
    if flights is not None:
        X, y = flights
        order = np.random.default_rng(1).permutation(len(y))[: max(sizes) + n_test]
        tables["flights of 2008"] = X[order], y[order]
    for name, (X, y) in tables.items():
        y = y / y.std()
        for n_rows in sizes:
            train = slice(n_test, n_test + n_rows)
            scores = []
            for smallest in (2, 5, 10):
                forest = MondrianForestRegressor(
                    25, min_samples_split=smallest, n_jobs=2, random_state=0, **ALONE
                )
                found = forest.fit(X[train], y[train]).predict_distribution(X[:n_test])
                error = np.sqrt(np.mean((found.mean() - y[:n_test]) ** 2))
                scores += [f"{error:.4f}", f"{-found.logpdf(y[:n_test]).mean():.3f}"]
            table.add(name, f"{n_rows:,}", *scores)
    return table


def extrapolation(n_rows: int) -> Table:
    table = Table(
        "Extrapolation",
        ["mean function", "rows", "R2", "mean log density", "coverage of 90% intervals"],
        note="The default with 25 trees. y = 5 x1 + sin(9 x2) + noise of 0.1. "
        f"{n_rows:,} rows to train with x1 from 0 to 1.",
    )
    random = np.random.default_rng(0)
    X, noise = random.random((2 * n_rows, 2)), 0.1 * random.normal(size=2 * n_rows)
    for kind in (None, "linear"):
        forest = MondrianForestRegressor(25, mean_function=kind, n_jobs=2, random_state=0)
        y = 5 * X[:, 0] + np.sin(9 * X[:, 1]) + noise
        forest.fit(X[:n_rows], y[:n_rows])
        for where, shift in (("x1 from 0 to 1", 0.0), ("x1 from 1 to 2", 1.0)):
            new = X[n_rows:] + np.array([shift, 0.0])
            label = y[n_rows:] + 5 * shift
            found = forest.predict_distribution(new)
            low, high = found.interval(0.9).T
            table.add(
                kind or "none",
                where,
                f"{r2_score(label, found.mean()):.3f}",
                f"{found.logpdf(label).mean():.3f}",
                f"{np.mean((low <= label) & (label <= high)):.3f}",
            )
    return table
