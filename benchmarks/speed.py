"""Fit and prediction against scikit-learn's forests, quantile-forest and LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from mondrian_forest import MondrianForestRegressor

from .table import Table
from .timing import time_call, time_in_turn

N_TREES = 10
N_THREADS = 2
QUANTILES = [0.1, 0.5, 0.9]


def uniform_table(n_rows: int, n_features: int = 8, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=n_rows)
    return X, y


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    n_rows, n_queries, repeats = (2_000, 500, 1) if quick else (1_000_000, 100_000, 3)
    X, y = uniform_table(n_rows)
    queries, _ = uniform_table(n_queries, seed=1)
    setting = {"n_estimators": N_TREES, "n_jobs": N_THREADS, "random_state": 0}
    # Compile (or load from the cache) before anything is timed.
    MondrianForestRegressor(**setting).fit(X[:100], y[:100]).predict(X[:10], return_std=True)

    fits = Table(
        f"Fit {n_rows:,} rows of 8 uniform features",
        ["method", "seconds", "range", "times slower than ours"],
        note=f"{N_TREES} trees, {N_THREADS} threads, min_samples_split=10 against "
        "min_samples_leaf=5. Medians; RandomForest and ExtraTrees are fitted fewer times.",
    )
    forest = MondrianForestRegressor(**setting)
    ours, spread, _ = time_call(lambda: forest.fit(X, y), repeats)
    fits.add("MondrianForestRegressor", ours, spread, 1.0)
    peers = [
        ("ExtraTreesRegressor", ExtraTreesRegressor(min_samples_leaf=5, **setting), repeats - 1),
        ("RandomForestRegressor", RandomForestRegressor(min_samples_leaf=5, **setting), 1),
    ]
    try:
        from lightgbm import LGBMRegressor

        gbm = LGBMRegressor(n_estimators=100, n_jobs=N_THREADS, verbose=-1)
        peers.append(("LightGBM, 100 rounds", gbm, repeats))
    except ModuleNotFoundError:
        print("lightgbm is not installed: left out")
    for name, peer, peer_repeats in peers:
        seconds, spread, _ = time_call(lambda peer=peer: peer.fit(X, y), max(peer_repeats, 1))
        fits.add(name, seconds, spread, seconds / ours)
    yield fits

    predictions = Table(
        f"Predict {n_queries:,} rows with these forests",
        ["method", "what", "seconds", "range", "times slower than our mean and std"],
        note="Medians of calls in turn.",
    )
    calls = {
        ("MondrianForestRegressor", "mean and std"): lambda: forest.predict(
            queries, return_std=True
        ),
        ("MondrianForestRegressor", "3 quantiles"): lambda: forest.predict_quantiles(
            queries, QUANTILES
        ),
        ("ExtraTreesRegressor", "mean"): lambda: peers[0][1].predict(queries),
    }
    try:
        from quantile_forest import ExtraTreesQuantileRegressor

        quantile_peer = ExtraTreesQuantileRegressor(min_samples_leaf=5, **setting).fit(X, y)
        calls["ExtraTreesQuantileRegressor", "3 quantiles"] = lambda: quantile_peer.predict(
            queries, quantiles=QUANTILES
        )
    except ModuleNotFoundError:
        print("quantile-forest is not installed: left out")
    found = time_in_turn(calls, 3 * repeats)
    ours = found["MondrianForestRegressor", "mean and std"][0]
    for (name, what), (seconds, spread) in found.items():
        predictions.add(name, what, seconds, spread, seconds / ours)
    yield predictions
