"""How time and memory of a fit grow with the number of rows, each size in a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mondrian_forest import MondrianForestRegressor
from mondrian_forest._forest.sharing import state_of

from .speed import MODEL
from .table import Table

CHILD = """
import json, sys
from time import perf_counter
from benchmarks.growth import kept_bytes, memory
from benchmarks.speed import uniform_table
from mondrian_forest import PAPER, MondrianForestRegressor

n_rows = int(sys.argv[1])
forest = MondrianForestRegressor(10, n_jobs=2, random_state=0, **PAPER)
forest.fit(*uniform_table(100)).predict(uniform_table(100)[0])
X, y = uniform_table(n_rows)
before = memory("VmRSS")
times = []
for _ in range(2):
    forest = MondrianForestRegressor(10, n_jobs=2, random_state=0, **PAPER)
    start = perf_counter()
    forest.fit(X, y)
    times.append(perf_counter() - start)
peak = memory("VmHWM")
nodes = sum(tree.n_nodes for tree in forest.trees_)
result = {"seconds": min(times), "above": peak - before, "nodes": nodes}
result["learning"] = kept_bytes(forest)
result["frozen"] = (forest.freeze(), kept_bytes(forest))[1]
print(json.dumps(result))
"""


def memory(kind: str) -> int:
    """Return a line of the process's status in bytes: VmRSS is resident, VmHWM its peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(kind))


def kept_bytes(forest: MondrianForestRegressor) -> int:
    """Return the size of all arrays in use, without the room to grow."""
    trees = sum(array.nbytes for tree in forest.trees_ for array in tree)
    numbers = sum(
        state_of(forest).grove.rows(k)[0].nbytes for k in range(state_of(forest).grove.n_trees)
    )
    rows, labels = (
        state_of(forest).rows[: forest.n_samples_seen_],
        state_of(forest).labels[: forest.n_samples_seen_],
    )
    return trees + numbers + rows.nbytes + labels.nbytes


SAMPLING = """
import json, os, sys, tempfile
from hashlib import sha256
from time import perf_counter

n_rows, how = int(sys.argv[1]), sys.argv[2]
if how == "scalars":  # compiled for this run, since the cache would not notice the difference
    folder = tempfile.TemporaryDirectory()
    os.environ["NUMBA_CACHE_DIR"] = folder.name
import numpy as np
from benchmarks.speed import uniform_table
from mondrian_forest._core.arrays import vector
from mondrian_forest._core.arrays.contests import NO_CONTESTS
from mondrian_forest._core.arrays.grove import allocate_grove
from mondrian_forest._core.growth.learn import scratch_like
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.sample import sample_tree

if how == "scalars":
    vector.WIDEST = 0
X, y = uniform_table(n_rows)
rows = X.astype(np.float32)
grove = allocate_grove(1, *rows.shape, is_linked=False)
scratch = scratch_like(rows)
times = []
for _ in range(8):
    (state,) = random_states(np.random.SeedSequence(0), 1)
    start = perf_counter()
    grove.sizes[0] = sample_tree(
        rows, y, Growth(10, 1, np.inf), state, grove.room(0), grove.row_numbers[0], scratch,
        NO_CONTESTS,
    )
    times.append(perf_counter() - start)
tree = grove.tree(0)
levels = tree.n_samples[tree.left_child >= 0].sum() / n_rows
digest = sha256(tree.threshold.tobytes()).hexdigest()
print(json.dumps({"seconds": min(times), "levels": float(levels), "tree": digest}))
"""


def run_child(code: str, *arguments: str) -> dict:
    """Run code in a process of its own; return the JSON that it prints."""
    child = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(child.stdout)


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    yield growth(quick)
    yield sampling(2_000 if quick else 1_000_000)


def sampling(n_rows: int) -> Table:
    """Compare whole rows in vector registers with the loops of the first version."""
    table = Table(
        f"Sample a tree on {n_rows:,} rows, for each row and level",
        ["loops", "seconds", "levels", "ns for each row and level"],
        note="8 uniform features, one thread, the best of 8 runs, each in a new process. The trees "
        "are the same. Scalars: the loops of the first version, which are still used for rows of "
        "more than 16 features.",
    )
    trees = set()
    for how in ("scalars", "vectors"):
        found = run_child(SAMPLING, str(n_rows), how)
        trees.add(found["tree"])
        per_step = found["seconds"] / (n_rows * found["levels"]) * 1e9
        table.add(how, found["seconds"], found["levels"], per_step)
    if len(trees) > 1:
        raise RuntimeError("vectors and scalars give different trees")
    return table


def growth(quick: bool) -> Table:
    sizes = [1_000, 2_000] if quick else [100_000, 300_000, 1_000_000, 3_000_000, 5_000_000]
    table = Table(
        "Growth of a fit",
        [
            "rows",
            "seconds",
            "ns per row, tree and log2(rows)",
            "peak above the input, GB",
            "peak above the result, copies of the rows",
            "nodes per row and tree",
            "bytes per node, rows included",
            "bytes per node after freeze()",
        ],
        note=f"{MODEL}, 8 uniform features, 10 trees, 2 threads, the better of two fits. If time "
        "grows like n log n, the third column does not grow. Copies of the rows are in single "
        "precision. Each thread works on a copy of its own.",
    )
    for n_rows in sizes:
        found = run_child(CHILD, str(n_rows))
        table.add(
            f"{n_rows:,}",
            found["seconds"],
            found["seconds"] * 1e9 / (n_rows * 10 * math.log2(n_rows)),
            found["above"] / 1e9,
            (found["above"] - found["learning"]) / (n_rows * 8 * 4),
            found["nodes"] / n_rows / 10,
            found["learning"] / found["nodes"],
            found["frozen"] / found["nodes"],
        )
    return table
