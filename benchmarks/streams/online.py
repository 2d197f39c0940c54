"""Whether a forest that learns in chunks is as good as a batch fit of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor

from ..quality.tables import find
from ..settings import ALONE
from ..table import Table

TABLES = ("kin8nm", "sulfur", "elevators", "house_8L", "bike")
MOST_ROWS = 6_000
SMALLER = ("kin8nm", 3_100)
N_SPLITS = 3
TEST_SHARE = 0.1


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    chunk, n_trees, n_splits = (20, 5, 1) if quick else (100, 50, N_SPLITS)
    table = Table(
        f"Learn in chunks of {chunk}, against a batch fit of the same rows",
        [
            "table",
            "rows",
            "RMSE ratio",
            "NLPD difference",
            "RMSE ratio of two batch fits",
            "NLPD difference of two batch fits",
            "paper's model: RMSE ratio",
            "paper's model: NLPD difference",
        ],
        note=f"`MondrianForestRegressor(mean_function=None)` with {n_trees} trees. In chunks / in "
        "batch: ratio of the RMSEs, difference of the mean negative log densities, median (and "
        f"range) of {n_splits} random splits with {TEST_SHARE:.0%} of the rows to test. Two batch "
        "fits differ only in their random numbers: this is what chance does.",
    )
    for name, load in tables(quick, data):
        X, y = load()
        for most in (MOST_ROWS, *([SMALLER[1]] if name == SMALLER[0] else [])):
            found = [compared(X, y, most, seed, chunk, n_trees) for seed in range(n_splits)]
            figures = np.transpose([figures for _, figures in found])
            table.add(
                name,
                f"{found[0][0]:,}",
                *(
                    text(values, "{:+.3f}") if k % 2 else text(np.exp(values), "{:.3f}")
                    for k, values in enumerate(figures)
                ),
            )
    yield table


def text(values: np.ndarray, form: str) -> str:
    """Return median and range."""
    numbers = [form.format(number) for number in (np.median(values), values.min(), values.max())]
    return "{} ({} to {})".format(*numbers)


def tables(quick: bool, data: Path | None) -> list[tuple[str, Callable[[], Any]]]:
    return [(name, load) for name, load in find(data, quick).items() if quick or name in TABLES]


def compared(
    X: np.ndarray, y: np.ndarray, most: int, seed: int, chunk: int, n_trees: int
) -> tuple[int, list[float]]:
    """Return the number of rows, and log ratios and differences for the three comparisons."""
    order = np.random.default_rng(seed).permutation(len(y))
    n_test = round(TEST_SHARE * len(y))
    test, train = order[:n_test], order[n_test:][:most]

    def scores(options: dict[str, Any], size: int, random_state: int) -> tuple[float, float]:
        forest = MondrianForestRegressor(
            n_trees, n_jobs=2, random_state=random_state, **ALONE | options
        )
        for start in range(0, len(train), size):
            rows = train[start : start + size]
            forest.partial_fit(X[rows], y[rows])
        found = forest.predict_distribution(X[test])
        log_error = 0.5 * np.log(np.mean((found.mean() - y[test]) ** 2))
        return float(log_error), float(-found.logpdf(y[test]).mean())

    batch = scores({}, len(train), seed)
    paper = scores(PAPER, len(train), seed)
    pairs = (
        (scores({}, chunk, seed), batch),
        (scores({}, len(train), seed + 100), batch),
        (scores(PAPER, chunk, seed), paper),
    )
    return len(train), [one - other for pair in pairs for one, other in zip(*pair, strict=True)]
