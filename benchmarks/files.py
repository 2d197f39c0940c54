"""Model files: size, and time to write and to open them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from mondrian_forest import PAPER, MondrianForestRegressor

from .growth import kept_bytes
from .speed import MODEL, N_THREADS, N_TREES, uniform_table
from .table import Table


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    X, y = uniform_table(2_000 if quick else 250_000)
    forest = MondrianForestRegressor(N_TREES, n_jobs=N_THREADS, random_state=0, **PAPER).fit(X, y)
    n_nodes = sum(tree.n_nodes for tree in forest.trees_)
    table = Table(
        f"Model files of {n_nodes:,} nodes",
        [
            "content",
            "file, MB",
            "times the arrays in memory",
            "save, seconds",
            "load, seconds",
            "load with mmap=True, seconds",
        ],
        note=f"{MODEL}, {N_TREES} trees, {len(y):,} rows of 8 features. The best of three.",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mf"
        for content, rows in (("all that learning needs", True), ("prediction only", False)):
            save, load, load_mapped = (
                min(_time(act) for _ in range(3))
                for act in (
                    lambda rows=rows: forest.save(path, rows=rows),
                    lambda: MondrianForestRegressor.load(path),
                    lambda: MondrianForestRegressor.load(path, mmap=True),
                )
            )
            size = path.stat().st_size
            in_memory = kept_bytes(MondrianForestRegressor.load(path))
            table.add(content, size / 1e6, f"{size / in_memory:.3f}", save, load, load_mapped)
    yield table


def _time(act) -> float:
    begin = perf_counter()
    act()
    return perf_counter() - begin
