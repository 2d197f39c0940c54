"""What it costs the default to learn row by row, in chunks, and to forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mondrian_forest import MondrianForestRegressor

from ..settings import ALONE
from ..speed import N_THREADS
from ..table import Table
from ..timing import spread
from .generated import drifting

N_TREES = 50
TURNS = 5
OURS = "`MondrianForestRegressor()`"
TOLERANT = "`MondrianForestRegressor(cut_tolerance=0.05)`"
N_TEST = 2_000
WITHOUT: dict[str, dict[str, Any]] = {
    "default": {},
    "with cut_tolerance=0.05": {"cut_tolerance": 0.05},
    "without learning the spread": {"spread": 1.0},
    "without learning feature weights": {"feature_weights": None},
    "with one candidate cut": {"n_candidate_splits": 1},
}


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    n_trees = 5 if quick else N_TREES
    yield single_rows(n_trees, *((300, 20) if quick else (20_000, 500)))
    yield in_chunks(n_trees, *((300, 50, 1) if quick else (20_000, 100, 3)))
    yield forgetting(n_trees, *((500, 50, 1) if quick else (100_000, 1_000, 3)))


def rows_of(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    stream = drifting(n_rows)[0]
    return stream.X, stream.y


def single_rows(n_trees: int, n_seen: int, n_single: int) -> Table:
    X, y = rows_of(n_seen + n_single)
    table = Table(
        f"One row per call, after {n_seen:,} rows",
        ["method", "job", "microseconds per row", "range of the turns", "times slower than ours"],
        note=f"Friedman's function of 10 features, {n_trees} trees, one thread. In turn: medians "
        f"of {TURNS} turns. `python -m benchmarks online` has the same for the paper's model.",
    )
    forest, tolerant = (
        MondrianForestRegressor(n_trees, random_state=0, cut_tolerance=tolerance, **ALONE)
        .fit(X[:n_seen], y[:n_seen])
        .partial_fit(X[:1], y[:1])
        .forget([n_seen])
        for tolerance in (0.0, 0.05)
    )

    def learn(rows: range, learner: MondrianForestRegressor = forest) -> None:
        for i in rows:
            learner.partial_fit(X[i : i + 1], y[i : i + 1])

    def forget(rows: range) -> None:
        for i in rows:
            forest.forget([i - n_seen])

    jobs: dict[tuple[str, str], Callable[[range], None]] = {
        (OURS, "learn"): learn,
        (OURS, "forget"): forget,
        (TOLERANT, "learn"): partial(learn, learner=tolerant),
    }
    try:
        from river.forest import AMFRegressor
    except ModuleNotFoundError:
        print("river is not installed: left out")
    else:
        peer = AMFRegressor(n_estimators=n_trees, seed=0)
        dicts, labels = [dict(enumerate(row)) for row in X.tolist()], y.tolist()
        for i in range(n_seen):
            peer.learn_one(dicts[i], labels[i])

        def learn_peer(rows: range) -> None:
            for i in rows:
                peer.learn_one(dicts[i], labels[i])

        jobs["river AMFRegressor", "learn"] = learn_peer
    n_turn = n_single // TURNS
    times: dict[tuple[str, str], list[float]] = {name: [] for name in jobs}
    for turn in range(TURNS):
        rows = range(n_seen + turn * n_turn, n_seen + (turn + 1) * n_turn)
        for name, job in jobs.items():
            begin = perf_counter()
            job(rows)
            times[name].append((perf_counter() - begin) / n_turn * 1e6)
    ours = float(np.median(times[OURS, "learn"]))
    for (method, what), found in times.items():
        middle = float(np.median(found))
        table.add(method, what, middle, spread(found), middle / ours)
    return table


def in_chunks(n_trees: int, n_rows: int, chunk: int, repeats: int) -> Table:
    n_test = min(N_TEST, n_rows)
    X, y = rows_of(n_rows + n_test)
    X_test, y_test = X[n_rows:], y[n_rows:]
    table = Table(
        f"Learn {n_rows:,} rows in chunks of {chunk}, and in one batch",
        [
            "forest",
            "in chunks, seconds",
            "in one batch, seconds",
            "times a batch fit",
            "RMSE in chunks",
            "RMSE in one batch",
        ],
        note=f"Friedman's function of 10 features, {n_trees} trees, {N_THREADS} threads, the best "
        f"of {repeats} runs in turn. The first line is the default; the others leave a part of "
        f"the work out. RMSE of {n_test:,} other rows, the mean of the runs.",
    )
    errors: dict[int, list[float]] = {}

    def seconds(options: dict[str, Any], size: int, n_rows: int, seed: int = 0) -> float:
        forest = MondrianForestRegressor(
            n_trees, n_jobs=N_THREADS, random_state=seed, **ALONE | options
        )
        begin = perf_counter()
        for start in range(0, n_rows, size):
            end = min(start + size, n_rows)
            forest.partial_fit(X[start:end], y[start:end])
        end_time = perf_counter()
        error = float(np.sqrt(np.mean((forest.predict(X_test) - y_test) ** 2)))
        errors.setdefault(size, []).append(error)
        return end_time - begin

    for name, options in WITHOUT.items():
        seconds(options, 50, 150)  # compiles, or loads compiled code
        times: dict[int, list[float]] = {chunk: [], n_rows: []}
        errors.clear()
        for seed in range(repeats):
            for size, found in times.items():
                found.append(seconds(options, size, n_rows, seed))
        online, batch = min(times[chunk]), min(times[n_rows])
        means = [f"{np.mean(errors[size]):.3f}" for size in times]
        table.add(name, online, batch, online / batch, *means)
    return table


def forgetting(n_trees: int, n_rows: int, n_lost: int, repeats: int) -> Table:
    """Forget some rows, learn others, and fit all that is left, in turn."""
    kinds = ("at random", "the oldest", "the latest")
    X, y = rows_of(n_rows + repeats * len(kinds) * n_lost)
    table = Table(
        f"Forget {n_lost:,} of {n_rows:,} rows",
        ["job", "seconds", "range", "times faster than a fit of the rest"],
        note=f"Friedman's function of 10 features, {n_trees} trees, {N_THREADS} threads, the best "
        f"of {repeats} runs in turn. The rows to forget are chosen at random, the oldest or the "
        "latest. As many rows are learned after each run.",
    )
    forest = MondrianForestRegressor(n_trees, n_jobs=N_THREADS, random_state=0, **ALONE)
    forest.fit(X[:n_rows], y[:n_rows])
    # The first row that is learned copies the arrays, so that there is room for more.
    forest.partial_fit(X[:1], y[:1]).forget([n_rows])
    random = np.random.default_rng(0)
    held = np.arange(n_rows)
    times: dict[str, list[float]] = {}

    def timed(job: str, function: Any, *arguments: Any) -> None:
        begin = perf_counter()
        function(*arguments)
        times.setdefault(job, []).append(perf_counter() - begin)

    n_learned = n_rows
    for _ in range(repeats):
        for kind in kinds:
            chosen = {
                "at random": random.choice(held, n_lost, replace=False),
                "the oldest": held[:n_lost],
                "the latest": held[-n_lost:],
            }[kind]
            timed(f"forget, {kind}", forest.forget, chosen)
            new = slice(n_learned, n_learned + n_lost)
            timed("learn as many", forest.partial_fit, X[new], y[new])
            # One number higher than the row, because of the row that was forgotten at first.
            learned = np.arange(new.start, new.stop) + 1
            held = np.concatenate([np.setdiff1d(held, chosen), learned])
            n_learned += n_lost
        other = MondrianForestRegressor(n_trees, n_jobs=N_THREADS, random_state=0, **ALONE)
        timed("fit the rest", other.fit, X[n_lost:n_rows], y[n_lost:n_rows])
    for job, found in times.items():
        table.add(job, min(found), spread(found), min(times["fit the rest"]) / min(found))
    return table
