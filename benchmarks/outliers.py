"""What single extreme values do to a forest, what the remedy costs, and how wide a table may be."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from mondrian_forest import MondrianForestRegressor

from .quality.scores import rounding_step, score
from .quality.tables import FLIGHT_TABLES, Split, find, split
from .settings import ALONE
from .table import Table

MOST_TRAIN_ROWS = 1500
N_SPLITS = 2


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    yield extreme_values(300 if quick else 5000)
    yield real_tables(quick, data)
    yield wide_tables((20, 40) if quick else (500, 1000, 2000, 10_000))


def problem(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 4))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=n_rows)


def extreme_values(n_rows: int) -> Table:
    table = Table(
        "One extreme value",
        ["rows", "default", "default in chunks of 100", "robust=False", "RandomForest"],
        note=f"RMSE; {n_rows:,} rows with 4 features in [0, 1], of which 3 matter, and noise of "
        "standard deviation 0.1; 2,000 rows to test, none of them extreme.",
    )
    X, y = problem(n_rows, 0)
    X_test, y_test = problem(2000, 1)

    def error(model: MondrianForestRegressor | RandomForestRegressor) -> str:
        return f"{np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)):.3f}"

    def changed(array: np.ndarray, place: int | tuple[int, int], value: float) -> np.ndarray:
        copy = array.copy()
        copy[place] = value
        return copy

    for name, rows, labels in (
        ("as they are", X, y),
        ("one feature of one row is 1,000", changed(X, (7, 0), 1e3), y),
        ("all features of one row are 1,000", changed(X, 7, 1e3), y),
        ("one label is 1,000,000", X, changed(y, 7, 1e6)),
        ("one label is -50", X, changed(y, 7, -50.0)),
    ):
        stream = MondrianForestRegressor(n_jobs=2, random_state=0, **ALONE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of labels that are drawn in
            for start in range(0, n_rows, 100):
                stream.partial_fit(rows[start : start + 100], labels[start : start + 100])
            table.add(
                name,
                error(MondrianForestRegressor(n_jobs=2, random_state=0, **ALONE).fit(rows, labels)),
                error(stream),
                error(
                    MondrianForestRegressor(robust=False, n_jobs=2, random_state=0, **ALONE).fit(
                        rows, labels
                    )
                ),
                error(RandomForestRegressor(n_jobs=2, random_state=0).fit(rows, labels)),
            )
    return table


def real_tables(quick: bool, data: Path | None) -> Table:
    table = Table(
        "Features through quantiles, on real tables",
        ["table", "RMSE", "CRPS", "NLPD", "coverage error", "with robust=False"],
        note=f"The default against robust=False, {N_SPLITS} splits, at most {MOST_TRAIN_ROWS:,} "
        "rows to train: ratios of RMSE and CRPS, difference of NLPD, and the worst errors in "
        "coverage. The last row has geometric means of ratios, and means.",
    )
    results = []
    for name, load in find(data, quick).items():
        if name in FLIGHT_TABLES:
            continue
        X, y = load()
        found = []
        for seed in range(N_SPLITS):
            rows = split(name, X, y, seed, quick)
            default, plain = (_scores(rows, robust, seed) for robust in (True, False))
            found.append(
                [
                    np.log(default["rmse"] / plain["rmse"]),
                    np.log(default["crps"] / plain["crps"]),
                    default["nlpd"] - plain["nlpd"],
                    default["coverage_error"],
                    plain["coverage_error"],
                ]
            )
        results.append(np.mean(found, axis=0))
        _add(table, name, results[-1])
    _add(table, "all", np.mean(results, axis=0))
    return table


def _scores(rows: Split, robust: bool, seed: int) -> dict[str, float]:
    few = slice(0, MOST_TRAIN_ROWS)
    forest = MondrianForestRegressor(robust=robust, n_jobs=2, random_state=seed, **ALONE)
    prediction = forest.fit(rows.X_train[few], rows.y_train[few]).predict_distribution(rows.X_test)
    return score(prediction, rows.y_test, rounding_step(rows.y_train[few]))


def _add(table: Table, name: str, found: np.ndarray) -> None:
    ratios, rest = np.exp(found[:2]), found[2:]
    table.add(name, *(f"{value:.3f}" for value in (*ratios, *rest)))


def wide_tables(widths: tuple[int, ...]) -> Table:
    table = Table(
        "Many features",
        ["features", "seconds", "milliseconds for each feature"],
        note="Fits of the default to 20 rows of uniform features. The last column stays the same "
        "where time grows in proportion to the features.",
    )
    generator = np.random.default_rng(0)
    forest = MondrianForestRegressor(n_jobs=2, random_state=0, **ALONE)
    forest.fit(generator.random((20, 18)), generator.random(20))  # compiles
    for n_features in widths:
        X, y = generator.random((20, n_features)), generator.random(20)
        start = perf_counter()
        forest.fit(X, y)
        seconds = perf_counter() - start
        table.add(f"{n_features:,}", f"{seconds:.2f}", f"{1000 * seconds / n_features:.2f}")
    return table
