"""The protocol that Tables 1 and 2 share: splits of the flights, and methods fitted to them."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mondrian_forest.datasets import fetch_us_flights_2008
from mondrian_forest.metrics import calibration_table, crps, nlpd, rmse

from .methods import forest, predict

CONFIGURATION = tomllib.loads((Path(__file__).parent / "flights.toml").read_text())
FORESTS = ["MF", "MF, empirical", "RF", "ERT"]


@dataclass(frozen=True)
class Split:
    """Rows to train on and the rows that follow them, to test on."""

    name: str
    order: str
    train: int
    test: int
    paper: str | None = None


def splits(quick: bool) -> list[Split]:
    """Return the splits of the protocol."""
    return [Split(**item) for item in _setting(quick)["splits"]]


def n_runs(quick: bool) -> int:
    """Return how often every method is fitted."""
    return int(_setting(quick)["runs"])


def _setting(quick: bool) -> dict[str, Any]:
    return CONFIGURATION | (CONFIGURATION["quick"] if quick else {})


@cache
def _flights(data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    X, y = fetch_us_flights_2008(data_home=data, return_X_y=True)
    return X.astype(np.float32), y


def rows(split: Split, seed: int, data: Path | None) -> tuple[np.ndarray, ...]:
    """Return training rows and labels, test rows and labels; each seed shuffles anew."""
    X, y = _flights(data)
    taken: Any = slice(None)
    if split.order == "shuffled":
        taken = np.random.default_rng(seed).permutation(len(y))[: split.train + split.test]
    X, y = X[taken], y[taken]
    end = split.train + split.test
    return X[: split.train], y[: split.train], X[split.train : end], y[split.train : end]


@cache
def evaluate_forest(method: str, split: Split, seed: int, data: Path | None) -> dict[str, Any]:
    """Return the figures of one forest on one split, measured once in a process."""
    return evaluate(forest(method, CONFIGURATION["trees"], seed), split, seed, data)


def evaluate(estimator: Any, split: Split, seed: int, data: Path | None) -> dict[str, Any]:
    """Fit, predict, and return scores, observed minus ideal coverage, and seconds."""
    X_train, y_train, X_test, y_test = rows(split, seed, data)
    start = time.perf_counter()
    estimator.fit(X_train, y_train)
    fitted = time.perf_counter()
    prediction = predict(estimator, X_test)
    done = time.perf_counter()
    return {
        "seed": seed,
        "rmse": rmse(y_test, prediction),
        "nlpd": nlpd(y_test, prediction),
        "crps": crps(y_test, prediction),
        "gaussian coverage": list(calibration_table(y_test, prediction, gaussian=True).difference),
        "own coverage": list(calibration_table(y_test, prediction).difference),
        "fit seconds": fitted - start,
        "predict seconds": done - fitted,
    }


def compile_kernels() -> None:
    """Fit and ask a small forest, so that no time in the tables is that of a compiler."""
    generator = np.random.default_rng(0)
    X, y = generator.random((200, 8), dtype=np.float32), generator.random(200)
    for method in ("MF", "MF, empirical"):
        found = predict(forest(method, 2, 0).fit(X, y), X)
        crps(y, found)
