"""What a mean function adds: a forest around another regressor, and the regressor alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

from mondrian_forest import MondrianForestRegressor, metrics

from .quality.tables import find, split
from .speed import N_THREADS
from .table import Table

MOST_TRAIN_ROWS, MOST_TEST_ROWS = 6_000, 2_000
LEVEL = 0.9
PLAIN = "none"
RMSE, CRPS, TIMES = 0, 1, (4, 5)
"""Places among what is measured."""


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    tables = {name: load for name, load in find(data, quick).items() if "flights" not in name}
    found = {
        (name, kind): np.array(scores)
        for name, load in tables.items()
        for kind, scores in measured(name, load, quick).items()
    }
    names, kinds = (list(dict.fromkeys(pair)) for pair in zip(*found, strict=True))
    yield each_table(found, names, kinds)
    yield in_short(found, names, kinds)
    yield online(300 if quick else 20_000, quick)


def regressors() -> dict[str, Any]:
    """Return the mean functions by name; as an object, each is a regressor of its own, too."""
    found: dict[str, Any] = {
        PLAIN: None,
        "auto": "auto",
        "linear": "linear",
        "boosting": "boosting",
    }
    try:
        from catboost import CatBoostRegressor
    except ModuleNotFoundError:
        print("CatBoost is not installed: left out")
    else:
        found["CatBoost"] = CatBoostRegressor(
            verbose=0, random_seed=0, thread_count=N_THREADS, allow_writing_files=False
        )
    return found


def uses(kind: str) -> tuple[str, ...]:
    """Return the uses of a mean function that are compared."""
    return ("subtract",) if kind in (PLAIN, "auto") else ("subtract", "both", "feature")


def measured(name: str, load: Any, quick: bool) -> dict[str, list[float]]:
    """Return RMSE, CRPS, NLPD, coverage and seconds of fit and prediction, for each method."""
    rows = split(name, *load(), 0, quick)
    X, y = rows.X_train[:MOST_TRAIN_ROWS], rows.y_train[:MOST_TRAIN_ROWS]
    X_test, y_test = rows.X_test[:MOST_TEST_ROWS], rows.y_test[:MOST_TEST_ROWS]
    n_trees = 5 if quick else 50
    found: dict[str, list[float]] = {}
    asked = [(kind, use) for kind in regressors() for use in uses(kind)]
    for kind, use in asked:
        function = regressors()[kind]
        forest = MondrianForestRegressor(
            n_trees, mean_function=function, mean_use=use, n_jobs=N_THREADS, random_state=0
        )
        begin = perf_counter()
        forest.fit(X, y)
        fitted = perf_counter()
        distribution = forest.predict_distribution(X_test)
        mean = distribution.mean()
        end = perf_counter()
        low, high = distribution.interval(LEVEL).T
        found[kind if kind in (PLAIN, "auto") else f"{kind}, {use}"] = [
            float(np.sqrt(np.mean((mean - y_test) ** 2))),
            metrics.crps(y_test, distribution),
            metrics.nlpd(y_test, distribution),
            float(np.mean((low <= y_test) & (y_test <= high))),
            fitted - begin,
            end - fitted,
        ]
        alone = HistGradientBoostingRegressor(random_state=0) if kind == "boosting" else function
        if kind not in (PLAIN, "linear", "auto") and use == "subtract":
            begin = perf_counter()
            alone.fit(X, y)
            fitted = perf_counter()
            error = float(np.sqrt(np.mean((alone.predict(X_test) - y_test) ** 2)))
            seconds = [fitted - begin, perf_counter() - fitted]
            found[f"{kind} alone"] = [error, np.nan, np.nan, np.nan, *seconds]
    return found


def text(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def each_table(
    found: dict[tuple[str, str], np.ndarray], names: list[str], kinds: list[str]
) -> Table:
    table = Table(
        "Mean functions, table by table",
        ["table", *(f"{kind}: RMSE / CRPS" for kind in kinds)],
        note=f"One random split, up to {MOST_TRAIN_ROWS:,} rows to train and "
        f"{MOST_TEST_ROWS:,} to test, labels in units of their standard deviation. Forest: "
        "`MondrianForestRegressor(mean_function=..., mean_use=...)`. Alone: the regressor without "
        "a forest.",
    )
    for name in names:
        cells = [found[name, kind] for kind in kinds]
        table.add(
            name, *(" / ".join(filter(None, map(text, values[:2].tolist()))) for values in cells)
        )
    return table


def in_short(found: dict[tuple[str, str], np.ndarray], names: list[str], kinds: list[str]) -> Table:
    table = Table(
        "Mean functions, in short",
        [
            "method",
            "RMSE ratio",
            "CRPS ratio",
            "tables with CRPS worse by 2%",
            "mean NLPD",
            f"mean coverage of {LEVEL:.0%} intervals",
            "times the fit",
            "times the prediction",
        ],
        note="Of the same runs. Ratios to the forest without a mean function, the geometric means "
        "over the tables.",
    )
    plain = np.array([found[name, PLAIN] for name in names])
    for kind in kinds:
        values = np.array([found[name, kind] for name in names])
        ratios = [
            float(np.exp(np.mean(np.log(values[:, k] / plain[:, k])))) for k in (RMSE, CRPS, *TIMES)
        ]
        worse = int(np.sum(values[:, CRPS] > 1.02 * plain[:, CRPS]))
        has_distribution = not np.isnan(values[0, CRPS])
        table.add(
            kind,
            *map(text, ratios[:2]),
            worse if has_distribution else "",
            *(text(mean) for mean in values[:, 2:4].mean(axis=0).tolist()),
            f"{ratios[2]:.2f}",
            f"{ratios[3]:.2f}" if has_distribution else "",
        )
    return table


def online(n_rows: int, quick: bool) -> Table:
    """Learn Friedman's function in chunks: what a mean function costs, and what it gives."""
    table = Table(
        "Mean functions, online",
        ["mean function", "batch fit", "chunks of 100", "RMSE, batch", "RMSE, chunks"],
        note=f"Friedman's function with noise 1 and 10 features, {n_rows:,} rows in chunks of 100, "
        f"{MOST_TEST_ROWS:,} to test. Times are in units of a batch fit of all rows without a mean "
        "function. A forest with one is fitted again whenever its rows have doubled.",
    )
    X, y = make_friedman1(n_rows + MOST_TEST_ROWS, 10, noise=1.0, random_state=0)
    X_test, y_test = X[n_rows:], y[n_rows:]
    settings: dict[str, Any] = {"n_jobs": N_THREADS, "random_state": 0}
    n_trees = 5 if quick else 50

    def rmse(forest: MondrianForestRegressor) -> float:
        return float(np.sqrt(np.mean((forest.predict(X_test) - y_test) ** 2)))

    base = 0.0
    for kind in (None, "linear", "boosting", "auto"):
        batch = MondrianForestRegressor(n_trees, mean_function=kind, **settings)
        begin = perf_counter()
        batch.fit(X[:n_rows], y[:n_rows])
        at_once = perf_counter() - begin
        base = base or at_once
        forest = MondrianForestRegressor(n_trees, mean_function=kind, **settings)
        begin = perf_counter()
        for start in range(0, n_rows, 100):
            forest.partial_fit(X[start : start + 100], y[start : start + 100])
        seconds = perf_counter() - begin
        times = (f"{spent / base:.1f}" for spent in (at_once, seconds))
        table.add(kind or PLAIN, *times, rmse(batch), rmse(forest))
    return table
