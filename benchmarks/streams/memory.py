"""Memory of forests that learn and forget for ever, and of what a node takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._forest.sharing import state_of

from ..growth import run_child
from ..settings import ALONE
from ..speed import N_THREADS, uniform_table
from ..table import Table

CHUNK = 10_000
CHILD = """
import json, sys
from time import perf_counter
from benchmarks.growth import memory
from benchmarks.speed import uniform_table
from benchmarks.streams.memory import bytes_learning
from mondrian_forest import MondrianForestRegressor

options, n_rows, chunk, n_marks = json.loads(sys.argv[1])
forest = MondrianForestRegressor(n_jobs=2, random_state=0, **{"mean_function": None} | options)
found, begin = [], perf_counter()
for start in range(0, n_rows, chunk):
    forest.partial_fit(*uniform_table(chunk, seed=start))
    end = start + chunk
    if end % (n_rows // n_marks) < chunk:
        kept = sum(bytes_learning(forest).values())
        seconds = perf_counter() - begin
        found.append((end, forest.n_rows_, memory("VmRSS"), memory("VmHWM"), kept, seconds))
print(json.dumps(found))
"""


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    n_trees = 10
    paper = PAPER | {"max_rows": 400 if quick else 200_000, "n_estimators": n_trees}
    default = {"max_rows": 200 if quick else 20_000, "n_estimators": n_trees}
    yield for_ever("The paper's model", paper, *((2_000, 200) if quick else (10_000_000, CHUNK)))
    yield for_ever("The default", default, *((1_000, 100) if quick else (300_000, 1_000)))
    yield per_node(500 if quick else 20_000)


def for_ever(name: str, options: dict[str, Any], n_rows: int, chunk: int) -> Table:
    table = Table(
        f"{name} learns {n_rows:,} rows and keeps {options['max_rows']:,}",
        [
            "rows seen",
            "rows held",
            "resident, MB",
            "peak, MB",
            "arrays, with free places, MB",
            "microseconds per row since the last line",
        ],
        note=f"{options['n_estimators']} trees, 8 uniform features, chunks of {chunk:,}, "
        f"{N_THREADS} threads, in a process of its own, which has Python, NumPy and the compiled "
        "kernels in its resident memory, too.",
    )
    last_rows, last_seconds = 0, 0.0
    for seen, held, resident, peak, kept, seconds in run_child(
        CHILD, json.dumps([options, n_rows, chunk, 10])
    ):
        per_row = (seconds - last_seconds) / (seen - last_rows) * 1e6
        table.add(f"{seen:,}", f"{held:,}", resident / 1e6, peak / 1e6, kept / 1e6, per_row)
        last_rows, last_seconds = seen, seconds
    return table


def bytes_learning(forest: MondrianForestRegressor) -> dict[str, int]:
    """Return the bytes of all arrays in use while a forest learns, without the room to grow."""
    state = state_of(forest)
    grove = state.grove
    n_nodes = int(grove.sizes.sum())
    candidates = grove.contests.candidates
    n_rows = sum(grove.n_rows(k) for k in range(grove.n_trees))
    return {
        "structure and prediction": n_nodes * grove.nodes.itemsize,
        "boxes": n_nodes * int(grove.boxes[0, 0].nbytes),
        "for learning": n_nodes * grove.tallies.itemsize,
        "candidate cuts": int(grove.contests.counts[:, 0].sum())
        * candidates.shape[-1]
        * candidates.itemsize,
        "rows": n_rows * grove.row_numbers.itemsize
        + state.rows[: state.n_rows].nbytes
        + state.labels[: state.n_rows].nbytes,
    }


def per_node(n_rows: int) -> Table:
    table: Table | None = None
    for name, options in {"default": {}, "paper's model": PAPER}.items():
        for n_features in (8, 90):
            X, y = uniform_table(n_rows, n_features)
            forest = MondrianForestRegressor(
                10, n_jobs=N_THREADS, random_state=0, **ALONE | options
            )
            forest.fit(X, y).partial_fit(X[:1], y[:1])
            n_nodes = sum(tree.n_nodes for tree in forest.trees_)
            parts = bytes_learning(forest)
            if table is None:
                table = Table(
                    f"Bytes per node while learning, {n_rows:,} rows",
                    ["model", "features", *parts, "all", "nodes per row and tree"],
                    note="10 trees, uniform features. Rows are stored once for all trees, and "
                    "their bytes are divided by the number of all nodes.",
                )
            table.add(
                name,
                n_features,
                *(n_bytes / n_nodes for n_bytes in parts.values()),
                sum(parts.values()) / n_nodes,
                n_nodes / n_rows / 10,
            )
    assert table is not None
    return table
