"""Fits on a Dask cluster: what they cost beside a local fit, and how that grows.

The table is generated partition by partition, on the workers: no process ever holds all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor

from .growth import memory
from .table import Table

N_FEATURES = 8
PART_ROWS = 500_000  # 36 MB
MEMORY = "2GB"


class Measured(NamedTuple):
    seconds: float
    rounds: int
    moved: float
    """Bytes that workers received from others."""
    peak: float
    """Of the worker that had most resident at any time, in bytes."""
    nodes: int


def part(number: int, n_rows: int) -> np.ndarray:
    """Return uniform features, and a label that depends on three of them, as the last column."""
    random = np.random.default_rng(number)
    X = random.random((n_rows, N_FEATURES))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * random.normal(size=n_rows)
    return np.column_stack([X, y])


def collections(n_rows: int, part_rows: int = PART_ROWS) -> tuple[Any, Any]:
    import dask.array as da
    from dask import delayed

    sizes = [part_rows] * (n_rows // part_rows) + [n_rows % part_rows] * (n_rows % part_rows > 0)
    parts = [
        da.from_delayed(delayed(part)(number, size), (size, N_FEATURES + 1), np.float64)
        for number, size in enumerate(sizes)
    ]
    table = da.concatenate(parts)
    return table[:, :N_FEATURES], table[:, N_FEATURES]


def forest(n_trees: int, min_samples_split: int) -> MondrianForestRegressor:
    settings = PAPER | {"min_samples_split": min_samples_split}
    return MondrianForestRegressor(n_trees, random_state=0, **settings)


@contextmanager
def cluster(n_workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=MEMORY,
            dashboard_address=None,
            host="127.0.0.1",
        ) as made,
        Client(made) as client,
    ):
        yield client


@contextmanager
def warm_cluster(n_workers: int) -> Iterator[Any]:
    """Yield the client of a cluster whose workers have compiled, and loaded, their code."""
    with cluster(n_workers) as client:
        measure(client, collections(3000), 1, 10, 500)
        yield client


def measure(
    client: Any, table: tuple[Any, Any], n_trees: int, min_samples_split: int, block_rows: int
) -> Measured:
    from mondrian_forest.distributed import fit

    moved = received(client)
    rounds: list[int] = []
    start = perf_counter()
    fitted = fit(
        forest(n_trees, min_samples_split).set_params(n_jobs=2),
        *table,
        client=client,
        block_rows=block_rows,
        keep_rows=False,
        progress=lambda what, count: rounds.append(count) if what == "rounds" else None,
    )
    seconds = perf_counter() - start
    peaks = client.run(memory, "VmHWM").values()
    nodes = sum(tree.n_nodes for tree in fitted.trees_)
    return Measured(seconds, max(rounds), received(client) - moved, max(peaks), nodes)


def received(client: Any) -> int:
    return sum(client.run(_received).values())


def _received(dask_worker: Any) -> int:
    return sum(int(entry["total"]) for entry in dask_worker.transfer_incoming_log)


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    if find_spec("distributed") is None:
        print("Dask is not installed: left out")
        return
    yield beside_local(20_000 if quick else 2_000_000)
    yield growth(quick)
    if not quick:
        yield large()


def beside_local(n_rows: int) -> Table:
    table = Table(
        f"A distributed fit beside a local one, {n_rows:,} rows",
        ["fit", "seconds", "times the local one"],
        note="8 features, 10 trees of the paper's model, two cores: two threads, or two workers of "
        f"one thread and {MEMORY} each. Rows are in the memory of the process, or of the workers. "
        "Medians of three, one and the other in turn.",
    )
    whole = np.concatenate(
        [part(k, min(PART_ROWS, n_rows)) for k in range(max(n_rows // PART_ROWS, 1))]
    )
    X, y = whole[:, :N_FEATURES].copy(), whole[:, N_FEATURES].copy()
    forest(1, 10).fit(X[:1000], y[:1000])
    times, distributed_times = [], []
    with warm_cluster(2) as client:
        loaded = client.persist(collections(n_rows))
        for _ in range(3):
            # Virtual machines give memory that is not in use back to their host: after a pause both
            # have to ask for it, as in a process that does one fit.
            sleep(5)
            start = perf_counter()
            forest(10, 10).set_params(n_jobs=2).fit(X, y)
            times.append(perf_counter() - start)
            sleep(5)
            distributed_times.append(measure(client, loaded, 10, 10, 200_000).seconds)
    local, distributed = float(np.median(times)), float(np.median(distributed_times))
    table.add("local", local, 1.0)
    table.add("Dask, two workers", distributed, distributed / local)
    return table


def growth(quick: bool) -> Table:
    table = Table(
        "Distributed fits: rounds, bytes moved, time",
        [
            "rows",
            "partitions",
            "trees",
            "workers",
            "rounds",
            "MB between workers",
            "largest peak of a worker, MB",
            "seconds",
        ],
        note="min_samples_split=100, block_rows=100,000 (1,000 in a quick run).",
    )
    unit = 5_000 if quick else 500_000
    cases = [  # rows, partitions, trees, workers
        (1, 1, 5, 2),
        (2, 2, 5, 2),
        (4, 4, 5, 2),
        (8, 8, 5, 2),
        (4, 4, 10, 2),
        (4, 4, 20, 2),
        (4, 4, 5, 1),
        (4, 40, 5, 2),
        (4, 160, 5, 2),
    ]
    for size, n_parts, n_trees, n_workers in cases[:2] if quick else cases:
        with warm_cluster(n_workers) as client:
            table_of_rows = collections(size * unit, size * unit // n_parts)
            found = measure(client, table_of_rows, n_trees, 100, 1_000 if quick else 100_000)
        table.add(
            f"{size * unit:,}",
            n_parts,
            n_trees,
            n_workers,
            found.rounds,
            f"{found.moved / 1e6:.0f}",
            f"{found.peak / 1e6:.0f}",
            f"{found.seconds:.1f}",
        )
    return table


def large(n_rows: int = 20_000_000) -> Table:
    table = Table(
        f"{n_rows:,} rows on two workers of {MEMORY}",
        [
            "trees",
            "nodes",
            "rounds",
            "MB between workers",
            "largest peak of a worker, MB",
            "seconds",
        ],
        note="min_samples_split=500, block_rows=200,000, rows are not kept.",
    )
    with warm_cluster(2) as client:
        found = measure(client, collections(n_rows), 5, 500, 200_000)
    table.add(
        5,
        f"{found.nodes:,}",
        found.rounds,
        f"{found.moved / 1e6:.0f}",
        f"{found.peak / 1e6:.0f}",
        f"{found.seconds:.0f}",
    )
    return table
