"""Fit and prediction against scikit-learn's forests, quantile-forest and LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest.datasets import fetch_us_flights_2008

from .table import Table
from .timing import spread, time_call, time_in_turn

N_TREES = 10
N_THREADS = 2
CALLS = 100
QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]
SETTING: dict[str, Any] = {"n_estimators": N_TREES, "n_jobs": N_THREADS, "random_state": 0}
MODEL = "The paper's model (`**PAPER`)"
OURS = "`MondrianForestRegressor(**PAPER)`"
AGAINST = f"{N_TREES} trees, {N_THREADS} threads, min_samples_split=10 against min_samples_leaf=5."


def uniform_table(n_rows: int, n_features: int = 8, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=n_rows)
    return X, y


def load_flights(data: Path | None):
    """Return rows and labels of the paper's flights, or None where they are not at hand."""
    try:
        return fetch_us_flights_2008(data_home=data, download_if_missing=False, return_X_y=True)
    except FileNotFoundError as error:
        print(f"Flights are left out: {error}")
        return None


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    n_rows, n_queries, repeats = (2_000, 500, 1) if quick else (1_000_000, 100_000, 5)
    X, y = uniform_table(n_rows)
    queries, _ = uniform_table(n_queries, seed=1)
    # Compile (or load from the cache) before anything is timed.
    small = MondrianForestRegressor(**PAPER, **SETTING).fit(X[:200], y[:200])
    small.predict(X[:150], return_std=True)
    small.predict_quantiles(X[:150], QUANTILES)

    table, forest, peer = compare_fits(f"Fit {n_rows:,} rows of 8 uniform features", X, y, repeats)
    yield table
    yield compare_predictions(forest, peer, X, y, queries, repeats)
    yield predict_one_row(X[:20_000], y[:20_000], queries, repeats)
    yield threads(X, y, queries, repeats)
    flights = load_flights(data)
    if flights is None:
        return
    X, y = flights
    if quick:
        X, y = X[:2_000], y[:2_000]
    table, _, _ = compare_fits(f"Fit {len(y):,} flights of 8 features", X, y, repeats)
    yield table


def compare_fits(title: str, X, y, repeats: int):
    """Return the table, our forest and ExtraTrees."""
    table = Table(
        title,
        ["method", "seconds", "range", "times slower than ours"],
        note=f"{AGAINST} Medians of {repeats} fits, for ExtraTrees of 2. RandomForest is fitted "
        "once.",
    )
    ours, times, forest = time_call(
        lambda: MondrianForestRegressor(**PAPER, **SETTING).fit(X, y), repeats
    )
    table.add(OURS, ours, times, 1.0)
    peers = [
        ("ExtraTreesRegressor", ExtraTreesRegressor(min_samples_leaf=5, **SETTING), 2),
        ("RandomForestRegressor", RandomForestRegressor(min_samples_leaf=5, **SETTING), 1),
    ]
    try:
        from lightgbm import LGBMRegressor

        gbm = LGBMRegressor(n_estimators=100, n_jobs=N_THREADS, verbose=-1)
        peers.append(("LightGBM, 100 rounds", gbm, repeats))
    except ModuleNotFoundError:
        print("lightgbm is not installed: left out")
    for name, peer, peer_repeats in peers:
        seconds, times, _ = time_call(lambda peer=peer: peer.fit(X, y), min(peer_repeats, repeats))
        table.add(name, seconds, times, seconds / ours)
    return table, forest, peers[0][1]


def compare_predictions(forest, extra_trees, X, y, queries, repeats: int) -> Table:
    table = Table(
        f"Predict {len(queries):,} rows with these forests",
        ["method", "what", "seconds", "range", "times slower than our mean and std"],
        note=f"Medians of {2 * repeats} calls in turn. By default, quantile-forest keeps one label "
        "for each leaf. The last line is with all labels, measured on a hundredth of the rows and "
        "scaled up.",
    )
    levels = f"{len(QUANTILES)} quantiles"
    calls = {
        (OURS, "mean and std"): lambda: forest.predict(queries, return_std=True),
        (OURS, levels): lambda: forest.predict_quantiles(queries, QUANTILES),
        ("ExtraTreesRegressor", "mean"): lambda: extra_trees.predict(queries),
    }
    full = None
    try:
        from quantile_forest import ExtraTreesQuantileRegressor
    except ModuleNotFoundError:
        print("quantile-forest is not installed: left out")
    else:
        setting = SETTING | {"min_samples_leaf": 5}
        default = ExtraTreesQuantileRegressor(**setting).fit(X, y)
        calls["ExtraTreesQuantileRegressor", f"{levels}, one label of each leaf"] = lambda: (
            default.predict(queries, quantiles=QUANTILES)
        )
        full = ExtraTreesQuantileRegressor(max_samples_leaf=None, **setting).fit(X, y)
    found = time_in_turn(calls, 2 * repeats)
    ours = median(found[OURS, "mean and std"])
    for (name, what), times in found.items():
        table.add(name, what, median(times), spread(times), median(times) / ours)
    if full is not None:
        share = max(len(queries) // 100, 1)
        seconds, _, _ = time_call(lambda: full.predict(queries[:share], quantiles=QUANTILES), 1)
        seconds *= len(queries) / share
        what = f"{levels}, all labels of each leaf"
        table.add("ExtraTreesQuantileRegressor", what, seconds, "", seconds / ours)
    return table


def predict_one_row(X, y, queries, repeats: int) -> Table:
    table = Table(
        f"Predict one row, after {len(y):,} rows",
        ["method", "what", "microseconds", "times slower than ours"],
        note=f"{N_TREES} trees, one thread, with the validation of the input. Medians of turns of "
        f"{CALLS} calls.",
    )
    setting = SETTING | {"n_jobs": 1}
    forest = MondrianForestRegressor(**PAPER, **setting).fit(X, y)
    peer = ExtraTreesRegressor(min_samples_leaf=5, **setting).fit(X, y)

    def repeat(predict: Callable[..., Any], **options: Any) -> None:
        for row in queries[:CALLS]:
            predict(row.reshape(1, -1), **options)

    calls = {
        (OURS, "mean and std"): lambda: repeat(forest.predict, return_std=True),
        ("ExtraTreesRegressor", "mean"): lambda: repeat(peer.predict),
    }
    found = time_in_turn(calls, 2 * repeats)
    ours = median(found[OURS, "mean and std"])
    for (name, what), times in found.items():
        table.add(name, what, median(times) / CALLS * 1e6, median(times) / ours)
    return table


def threads(X, y, queries, repeats: int) -> Table:
    table = Table(
        "One thread against two",
        ["job", "one thread, seconds", "two threads, seconds", "times faster"],
        note=f"{MODEL}. The best of {4 * repeats} calls in turn. In other calls, a fit waits for "
        "memory that the process has given back.",
    )
    forests = {
        n_jobs: MondrianForestRegressor(**PAPER, **SETTING | {"n_jobs": n_jobs})
        for n_jobs in (1, 2)
    }
    jobs = {
        f"fit {len(y):,} rows": lambda forest: forest.fit(X, y),
        f"predict mean and std of {len(queries):,} rows": lambda forest: forest.predict(
            queries, return_std=True
        ),
    }
    for name, job in jobs.items():
        found = time_in_turn(
            {
                n_jobs: lambda job=job, forest=forest: job(forest)
                for n_jobs, forest in forests.items()
            },
            4 * repeats,
        )
        one, two = min(found[1]), min(found[2])
        table.add(name, one, two, one / two)
    return table
