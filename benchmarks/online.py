"""Learning row by row, against river's and onelearn's forests and against a batch fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._forest.sharing import state_of

from .growth import run_child
from .speed import MODEL, N_THREADS, N_TREES, OURS, uniform_table
from .table import Table

CHUNK = 10_000
SINGLE_TURNS = 10


MEMORY = """
import json, sys
import numpy as np
from benchmarks.growth import kept_bytes, memory
from benchmarks.speed import uniform_table
from mondrian_forest import PAPER, MondrianForestRegressor

n_rows = int(sys.argv[1])
X, y = uniform_table(n_rows)
forest = MondrianForestRegressor(10, n_jobs=2, random_state=0, **PAPER)
scale = 1.0
found = []
n_chunk = n_rows // 20
for rebuild in range(11):
    # Ten times as wide as all before: the forest rescales, and samples all trees anew.
    start, stop = (0, n_chunk * 10) if rebuild == 0 else (stop, stop + n_chunk)
    forest.partial_fit(scale * X[start:stop], y[start:stop])
    scale *= 10.0
    found.append((stop, memory("VmRSS"), kept_bytes(forest)))
nodes = sum(tree.n_nodes for tree in forest.trees_)
again = []
for rebuild in range(11):
    forest.fit(X, y)
    again.append(memory("VmRSS"))
print(json.dumps({"stream": found, "nodes": nodes, "again": again}))
"""


WHOLE = """
import json, sys
from time import perf_counter
from benchmarks.speed import uniform_table
from mondrian_forest import PAPER, MondrianForestRegressor

n_rows, chunk = int(sys.argv[1]), int(sys.argv[2])
X, y = uniform_table(n_rows)
forest = MondrianForestRegressor(10, n_jobs=2, random_state=0, **PAPER)
forest.fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
forest = MondrianForestRegressor(10, n_jobs=2, random_state=0, **PAPER)
begin = perf_counter()
for start in range(0, n_rows, chunk):
    forest.partial_fit(X[start : start + chunk], y[start : start + chunk])
print(json.dumps({"seconds": perf_counter() - begin}))
"""


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    forest, table = in_chunks(3_000 if quick else 3_000_000, 1_000 if quick else CHUNK)
    yield table
    yield against_batch(2_000 if quick else 1_000_000, 1_000 if quick else CHUNK)
    yield bytes_kept(forest)
    yield against_peers(quick)
    yield memory_over_rebuilds(2_000 if quick else 400_000)


def memory_over_rebuilds(n_rows: int) -> Table:
    table = Table(
        "Memory over ten rebuilds",
        ["job", "rows", "resident after the first, MB", "after the tenth, MB", "arrays kept, MB"],
        note=f"{MODEL}, {N_TREES} trees, 8 uniform features, {N_THREADS} threads. Every chunk of "
        "the stream exceeds the known range tenfold, so that all trees are sampled again. The fit "
        "is repeated on the same rows.",
    )
    found = run_child(MEMORY, str(n_rows))
    first, last = found["stream"][1], found["stream"][-1]
    table.add(
        "widen the range",
        f"{first[0]:,} to {last[0]:,}",
        *(n_bytes / 1e6 for n_bytes in (first[1], last[1], last[2])),
    )
    table.add("fit again", f"{n_rows:,}", found["again"][1] / 1e6, found["again"][-1] / 1e6, "")
    return table


def bytes_kept(forest: MondrianForestRegressor) -> Table:
    """Count what a forest holds for each node and each row, without the room to grow."""
    table = Table("Memory of a forest that learns, 8 features", ["for each", "bytes"])
    trees = forest.trees_
    n_bytes = sum(array.nbytes for tree in trees for array in tree)
    table.add("node", n_bytes / sum(tree.n_nodes for tree in trees))
    n_rows = forest.n_samples_seen_
    stored = state_of(forest).rows[:n_rows].nbytes + state_of(forest).labels[:n_rows].nbytes
    table.add("row, stored once for all trees", stored / n_rows)
    table.add(
        "row and tree, its place in a leaf", state_of(forest).grove.rows(0)[0].nbytes / n_rows
    )
    return table


def in_chunks(n_rows: int, chunk: int) -> tuple[MondrianForestRegressor, Table]:
    X, y = uniform_table(n_rows)
    table = Table(
        f"Learn {n_rows:,} rows online, {chunk:,} at a time",
        ["rows seen", "microseconds per row", "more for each doubling of the rows seen"],
        note=f"{MODEL}, {N_TREES} trees, 8 uniform features, {N_THREADS} threads, the better of "
        "two runs of each chunk. If the cost grows like the logarithm, the last column stays the "
        "same. It is larger once the trees, 61 MB each at a million rows, no longer fit into the "
        "cache.",
    )
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0, **PAPER)
    forest.fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
    starts = range(0, n_rows, chunk)
    best = np.full(len(starts), np.inf)
    for _ in range(2):  # memory that the process has never had is slow to come
        forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0, **PAPER)
        times = []
        for start in starts:
            begin = perf_counter()
            forest.partial_fit(X[start : start + chunk], y[start : start + chunk])
            times.append(perf_counter() - begin)
        best = np.minimum(best, times)
    since = 0
    earlier: tuple[float, float] | None = None
    for mark in (1, 3, 10, 30, 100, 300):  # chunks
        if mark <= len(starts):
            per_row = best[since:mark].sum() / ((mark - since) * chunk) * 1e6
            doublings = np.log2((since + mark) / 2)
            slope = (per_row - earlier[0]) / (doublings - earlier[1]) if earlier else ""
            table.add(f"{since * chunk:,} to {mark * chunk:,}", per_row, slope)
            since, earlier = mark, (per_row, doublings)
    return forest, table


def against_batch(n_rows: int, chunk: int, repeats: int = 5) -> Table:
    """Compare a whole stream with a batch fit, each in a process of its own, in turn.

    In one process the second job would get the memory that the first one gave back, which is faster
    than memory that the system has to find; a fit gains most by it.
    """
    jobs = {f"{chunk:,} rows at a time": chunk, "all rows at once": n_rows}
    times: dict[str, list[float]] = {job: [] for job in jobs}
    for _ in range(repeats):
        for job, size in jobs.items():
            times[job].append(run_child(WHOLE, str(n_rows), str(size))["seconds"])
    ratios = np.divide(*times.values())
    table = Table(
        f"Learn {n_rows:,} rows online and in batch",
        ["job", "seconds", "from", "to", "times a batch fit"],
        note=f"{MODEL}, {N_TREES} trees, 8 uniform features, {N_THREADS} threads. Medians and "
        f"ranges of {repeats} runs in turn, each in a new process.",
    )
    for job, ratio in zip(jobs, (np.median(ratios), 1.0), strict=True):
        table.add(job, np.median(times[job]), min(times[job]), max(times[job]), ratio)
    return table


def against_peers(quick: bool) -> Table:
    n_rows, n_seen, n_single = (1_000, 500, 50) if quick else (200_000, 20_000, 1_000)
    X, y = uniform_table(n_rows)
    table = Table(
        "Learn online, against peers",
        ["method", "job", "microseconds per row", "times slower than ours"],
        note=f"{N_TREES} trees, 8 uniform features. The number of threads of onelearn cannot be "
        f"set. In turn: medians of {SINGLE_TURNS} turns.",
    )

    def add(method: str, job: str, seconds: float, n: int, ours: float | None = None) -> float:
        per_row = seconds / n * 1e6
        table.add(method, job, per_row, 1.0 if ours is None else per_row / ours)
        return per_row

    chunks_job = f"chunks of 10,000 up to {n_rows:,}"
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0, **PAPER)
    begin = perf_counter()
    for start in range(0, n_rows, CHUNK):
        forest.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
    ours = add(OURS, chunks_job, perf_counter() - begin, n_rows)
    try:
        peer = onelearn_forest()
        peer.partial_fit(X[:10], y[:10])
        begin = perf_counter()
        for start in range(0, n_rows, CHUNK):
            peer.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK])
        add("onelearn AMFRegressor", chunks_job, perf_counter() - begin, n_rows, ours)
    except ModuleNotFoundError:
        print("onelearn is not installed: left out")

    single_job = f"one row per call, at {n_seen:,} rows seen, in turn"
    forest = MondrianForestRegressor(N_TREES, random_state=0, **PAPER).fit(X[:n_seen], y[:n_seen])

    def learn_singly(rows: range) -> float:
        begin = perf_counter()
        for i in rows:
            forest.partial_fit(X[i : i + 1], y[i : i + 1])
        return perf_counter() - begin

    try:
        from river.forest import AMFRegressor
    except ModuleNotFoundError:
        print("river is not installed: left out")
        single_rows = range(n_seen, n_seen + n_single)
        add(OURS, single_job, learn_singly(single_rows), n_single)
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
    times = []
    n_turn = n_single // SINGLE_TURNS
    for turn in range(SINGLE_TURNS):
        rows = range(n_seen + turn * n_turn, n_seen + (turn + 1) * n_turn)
        own = learn_singly(rows)
        begin = perf_counter()
        for i in rows:
            peer.learn_one(dicts[i], y[i])
        times.append((own, perf_counter() - begin))
    own, others = np.median(times, axis=0)
    single = add(OURS, single_job, own, n_turn)
    add("river AMFRegressor", single_job, others, n_turn, single)
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
