"""Fits on a Dask cluster: what they cost beside a local fit, and how that grows.

The table is generated partition by partition, on the workers: no process ever holds all of it.
"""

from __future__ import annotations

import math
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
TASK_SECONDS = 1.7e-3


class Measured(NamedTuple):
    seconds: float
    rounds: int
    moved: float
    """Bytes that workers received from others."""
    peak: float
    """Of the worker that had most resident at any time, in bytes."""
    nodes: int


class Case(NamedTuple):
    """What the costs of a fit depend on, beside the kind of data."""

    n_rows: int
    n_parts: int
    n_trees: int
    n_workers: int
    """Of one thread each."""
    block_rows: int

    def rounds(self) -> float:
        """Return how many rounds uniform rows take: blocks are cut at random, not in halves."""
        return 3.3 * math.log2(self.n_rows / self.block_rows)

    def trees_at_once(self) -> float:
        """Return how many trees' rows can be sorted in a fifth of 2 GB."""
        return min(max(0.2 * 2e9 // self.sorting(), 1), self.n_trees)

    def tasks(self) -> float:
        """Return the number of Dask's tasks."""
        reading = 6 * self.n_parts
        each_round = 2 * self.n_parts + self.n_parts / 7  # of eight reports one
        groups = 2 * self.n_workers / self.trees_at_once()
        each_tree = self.n_parts + self.n_parts * groups + groups
        return reading + self.rounds() * each_round + self.n_trees * each_tree

    def seconds(self) -> float:
        """Return the time, by constants that were set by hand to suit the runs of `growth`."""
        each_row = 1e-6 + self.n_trees * (16e-9 * self.rounds() + 0.28e-6)
        return 0.5 + self.n_rows * each_row / self.n_workers + TASK_SECONDS * self.tasks()

    def bytes_moved(self) -> float:
        """Return the bytes between workers, with single precision and one label for each row."""
        moved = self.n_trees * self.n_rows * (4 * N_FEATURES + 8)
        return moved * (1 - 1 / self.n_workers)

    def sorting(self) -> float:
        """Return the bytes for the rows of a tree on their way to their blocks, on each worker."""
        return 1.2 * (4 * N_FEATURES + 8) * self.n_rows / self.n_workers

    def peak(self) -> float:
        """Return the bytes that a worker needs: rows, their blocks in all trees, and sorting."""
        kept = (4 * N_FEATURES + 8 + 4 * self.n_trees) * self.n_rows / self.n_workers
        return 400e6 + kept + self.trees_at_once() * self.sorting()


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
        Client(made, direct_to_workers=True) as client,
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
    yield on_paper()


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
        note="min_samples_split=100, block_rows=100,000 (1,000 in a quick run). In brackets: by "
        "the cost model, whose constants were set to suit earlier runs of this table.",
    )
    unit = 5_000 if quick else 500_000
    block_rows = 1_000 if quick else 100_000
    cases = [
        Case(1 * unit, 1, 5, 2, block_rows),
        Case(2 * unit, 2, 5, 2, block_rows),
        Case(4 * unit, 4, 5, 2, block_rows),
        Case(8 * unit, 8, 5, 2, block_rows),
        Case(4 * unit, 4, 10, 2, block_rows),
        Case(4 * unit, 4, 20, 2, block_rows),
        Case(4 * unit, 4, 5, 1, block_rows),
        Case(4 * unit, 4, 5, 4, block_rows),
        Case(4 * unit, 40, 5, 2, block_rows),
        Case(4 * unit, 160, 5, 2, block_rows),
    ]
    for case in cases[:2] if quick else cases:
        with warm_cluster(case.n_workers) as client:
            rows = collections(case.n_rows, case.n_rows // case.n_parts)
            found = measure(client, rows, case.n_trees, 100, block_rows)
        table.add(
            f"{case.n_rows:,}", case.n_parts, case.n_trees, case.n_workers, *beside(found, case)
        )
    return table


def beside(found: Measured, case: Case) -> list[str]:
    """Return what was measured with what the model says in brackets."""
    return [
        f"{found.rounds} ({case.rounds():.0f})",
        f"{found.moved / 1e6:.0f} ({case.bytes_moved() / 1e6:.0f})",
        f"{found.peak / 1e6:.0f} ({case.peak() / 1e6:.0f})",
        f"{found.seconds:.1f} ({case.seconds():.1f})",
    ]


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
        note="min_samples_split=500, block_rows=200,000, rows are not kept. In brackets: by the "
        "cost model.",
    )
    case = Case(n_rows, n_rows // PART_ROWS, 5, 2, 200_000)
    with warm_cluster(2) as client:
        found = measure(client, collections(n_rows), case.n_trees, 500, case.block_rows)
    table.add(case.n_trees, f"{found.nodes:,}", *beside(found, case))
    return table


def on_paper() -> Table:
    table = Table(
        "Far more rows, by the cost model",
        ["rows", "workers", "rounds", "GB per worker", "TB between workers", "tasks", "hours"],
        note="10 trees, one partition for each worker, of one thread, block_rows=200,000. In "
        "brackets: hours without the time for tasks.",
    )
    for n_rows in (10**9, 10**11):
        for n_workers in (100, 1000):
            case = Case(n_rows, n_workers, 10, n_workers, 200_000)
            table.add(
                f"{n_rows:,}",
                f"{n_workers:,}",
                f"{case.rounds():.0f}",
                f"{case.peak() / 1e9:.1f}",
                f"{case.bytes_moved() / 1e12:.1f}",
                f"{case.tasks():,.0f}",
                f"{case.seconds() / 3600:.2f} "
                f"({(case.seconds() - TASK_SECONDS * case.tasks()) / 3600:.2f})",
            )
    return table
