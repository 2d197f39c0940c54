"""Learning row by row, against river's and onelearn's forests and against a batch fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from mondrian_forest import MondrianForestRegressor

from .speed import N_THREADS, N_TREES, uniform_table
from .table import Table

CHUNK = 10_000


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    yield in_chunks(2_000 if quick else 1_000_000, 1_000 if quick else CHUNK)
    yield against_peers(quick)


def in_chunks(n_rows: int, chunk: int) -> Table:
    X, y = uniform_table(n_rows)
    table = Table(
        f"Learn {n_rows:,} rows online, {chunk:,} at a time",
        ["rows seen", "microseconds per row", "divided by log2(rows seen)"],
        note=f"{N_TREES} trees, 8 uniform features, {N_THREADS} threads; the last row is the whole "
        "stream, and how many times as long as a batch fit it took.",
    )
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0)
    forest.fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0)
    total, since, seen_since = 0.0, 0.0, 0
    marks = {n_rows // 100, n_rows // 30, n_rows // 10, n_rows // 3, n_rows}
    for start in range(0, n_rows, chunk):
        begin = perf_counter()
        forest.partial_fit(X[start : start + chunk], y[start : start + chunk])
        elapsed = perf_counter() - begin
        total, since, seen_since = total + elapsed, since + elapsed, seen_since + chunk
        seen = start + chunk
        if any(seen - chunk < mark <= seen for mark in marks):
            per_row = since / seen_since * 1e6
            table.add(f"{seen:,}", per_row, per_row / np.log2(seen))
            since, seen_since = 0.0, 0
    begin = perf_counter()
    MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0).fit(X, y)
    batch = perf_counter() - begin
    table.add("all", total / n_rows * 1e6, f"{total / batch:.2f} times a batch fit")
    return table


def against_peers(quick: bool) -> Table:
    n_rows, n_seen, n_single = (1_000, 500, 50) if quick else (200_000, 20_000, 1_000)
    X, y = uniform_table(n_rows)
    table = Table(
        "Learn online, against peers",
        ["method", "job", "microseconds per row", "times slower than ours"],
        note=f"{N_TREES} trees, 8 uniform features. onelearn takes no number of threads.",
    )

    def add(method: str, job: str, seconds: float, n: int, ours: float | None = None) -> float:
        per_row = seconds / n * 1e6
        table.add(method, job, per_row, 1.0 if ours is None else per_row / ours)
        return per_row

    chunks_job = f"chunks of 10,000 up to {n_rows:,}"
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0)
    begin = perf_counter()
    for start in range(0, n_rows, CHUNK):
        forest.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
    ours = add("MondrianForestRegressor", chunks_job, perf_counter() - begin, n_rows)
    try:
        peer = onelearn_forest()
        peer.partial_fit(X[:10], y[:10])
        begin = perf_counter()
        for start in range(0, n_rows, CHUNK):
            peer.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
        add("onelearn AMFRegressor", chunks_job, perf_counter() - begin, n_rows, ours)
    except ModuleNotFoundError:
        print("onelearn is not installed: left out")

    single_job = f"one row per call, at {n_seen:,} rows seen"
    forest = MondrianForestRegressor(N_TREES, random_state=0).fit(X[:n_seen], y[:n_seen])
    begin = perf_counter()
    for i in range(n_seen, n_seen + n_single):
        forest.partial_fit(X[i : i + 1], y[i : i + 1])
    single = add("MondrianForestRegressor", single_job, perf_counter() - begin, n_single)
    try:
        from river.forest import AMFRegressor
    except ModuleNotFoundError:
        print("river is not installed: left out")
        return table
    peer = AMFRegressor(n_estimators=N_TREES, seed=0)
    dicts = [dict(enumerate(row)) for row in X[: n_seen + n_single].tolist()]
    begin = perf_counter()
    for i in range(4_000 if not quick else 100):
        peer.learn_one(dicts[i], y[i])
    n_first = i + 1
    add("river AMFRegressor", f"up to {n_first:,} rows", perf_counter() - begin, n_first, ours)
    for i in range(n_first, n_seen):
        peer.learn_one(dicts[i], y[i])
    begin = perf_counter()
    for i in range(n_seen, n_seen + n_single):
        peer.learn_one(dicts[i], y[i])
    add("river AMFRegressor", single_job, perf_counter() - begin, n_single, single)
    return table


def onelearn_forest():
    """Return onelearn's forest, which needs a name that NumPy has moved."""
    import numpy.core.numeric
    from numpy.exceptions import ComplexWarning

    numpy.core.numeric.ComplexWarning = ComplexWarning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onelearn import AMFRegressor
    return AMFRegressor(n_estimators=N_TREES, random_state=0)
