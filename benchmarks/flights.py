"""Quality on the paper's flight delays: RMSE, NLPD and coverage, rows in their given order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.metrics import LEVELS, calibration_table, rmse

from .table import Table

FEATURES = [
    "plane_age", "distance", "air_time", "dep_time", "arr_time", "day_of_week", "day_of_month",
    "month",
]  # fmt: skip


def load_flights(folder: Path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "us_flights_2008_jan_apr.parquet")
    X = np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(np.float64)
    return X, table["arr_delay"].to_numpy().astype(np.float64)


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    if data is None or not (Path(data) / "us_flights_2008_jan_apr.parquet").exists():
        print("flights: left out, the data is not at hand (--data or MONDRIAN_DATA)")
        return
    n_train, n_test, seeds = (5_000, 1_000, 2) if quick else (243_000, 34_700, 11)
    X, y = load_flights(Path(data))
    test = slice(n_train, n_train + n_test)
    quality = Table(
        f"Flight delays, {n_train:,} rows to train, the next {n_test:,} to test",
        ["random_state", "RMSE", "NLPD", "worst row's share of NLPD"],
        note="10 trees, the paper's hyperparameters, rows in the given order. The noise variance "
        "of the heuristic is a 2000th of the prior scale, about one square minute, so that a "
        "single late flight among punctual twins can cost thousands of nats.",
    )
    by_moments, by_quantiles = [], []
    figures = []
    for seed in range(seeds):
        forest = MondrianForestRegressor(10, n_jobs=2, random_state=seed)
        found = forest.fit(X[:n_train], y[:n_train]).predict_distribution(X[test])
        losses = -found.logpdf(y[test])
        error = rmse(y[test], found)
        figures.append((error, float(losses.mean())))
        quality.add(seed, f"{error:.2f}", f"{losses.mean():.3f}", f"{losses.max() / n_test:.3f}")
        by_moments.append(calibration_table(y[test], found, gaussian=True).difference)
        by_quantiles.append(calibration_table(y[test], found).difference)
    error, nlpd = np.median(figures, axis=0)
    quality.add("median", f"{error:.2f}", f"{nlpd:.3f}", "")
    yield quality

    coverage = Table(
        "Observed minus ideal coverage of central intervals, mean over seeds",
        ["intervals from", *(f"{level:.0%}" for level in LEVELS)],
    )
    for name, rows in (
        ("Gaussian quantiles of mean and variance, as in the paper", by_moments),
        ("the mixture's own quantiles", by_quantiles),
    ):
        coverage.add(name, *(f"{value:+.3f}" for value in np.mean(rows, axis=0)))
    yield coverage
