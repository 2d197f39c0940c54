"""Workers that run out of memory: Dask restarts or pauses them, over and over, without an error."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any, NoReturn

from .collections import Client, ClusterLost, wait

_LEAST_BYTES = 300e6
"""A worker that has loaded this package and fits 2,000 rows takes 350 MB, and idles at 65 MB."""
_ALL_TABLES = 400e6
"""The same of the cost model in docs/distributed.md, with partitions on their way."""
_MOST_RESTARTS = 3
"""For lack of memory, in one fit, or as many as there are workers."""
_LONGEST_PAUSE = 20.0
"""Seconds. A paused worker goes on when Dask has moved enough to disk, which takes a while."""
_POLL = 1.0
"""Seconds between two looks at the workers; a step that is done earlier is not looked at."""
_BUSY = ("executing", "flight", "long-running")


def bytes_of_row(n_features: int) -> int:
    """Return what a scaled row takes with its label."""
    return 4 * n_features + 8


class Watch:
    """Waits for futures of one fit, and raises ``ClusterLost`` if the workers' memory is too small.

    Dask restarts a worker that exceeds 95% of its memory limit, and pauses one that exceeds 80%. If
    the work itself does not fit, neither helps: tasks are repeated, or never begin.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.n_restarts_before = self._n_restarts()
        self.stuck_since: float | None = None
        self.most_workers, self.limit = 0, math.inf
        self._workers()
        self.needed: float = _ALL_TABLES
        """Bytes on each worker, as far as they are known."""

    def refuse_small_workers(self) -> None:
        """Raise ``ClusterLost`` if a worker cannot even hold the program."""
        if self.limit < _LEAST_BYTES:
            raise ClusterLost(
                f"A worker has a memory limit of {_named(self.limit)}, and a fit needs at least "
                f"{_named(self.needed)} on each: give workers more memory (memory_limit)."
            )

    def refuse_too_many_rows(self, n_rows: int, n_features: int, n_trees: int) -> None:
        """Raise ``ClusterLost`` if workers cannot hold the rows, and their block in each tree.

        Less than that could work only by moving all of it to disk and back in every round.
        """
        self._workers()
        share = n_rows / max(self.most_workers, 1)
        staying = _LEAST_BYTES + (bytes_of_row(n_features) + 4 * n_trees) * share
        self.needed = _ALL_TABLES + (2.2 * bytes_of_row(n_features) + 4 * n_trees) * share
        if staying > self.limit:
            raise ClusterLost(
                f"{n_rows:,} rows and {n_trees} trees need about {_named(self.needed)} on each of "
                f"{self.most_workers} workers, whose memory limit is {_named(self.limit)}: use "
                "workers with more memory, more workers or fewer trees."
            )

    def until_done(self, futures: list[Any]) -> None:
        """Return when all are done; what went wrong with one shows when it is fetched."""
        self.stuck_since = None
        while True:
            try:
                wait(futures, timeout=_POLL)
                return
            except TimeoutError:
                self._check(futures)

    def _check(self, futures: list[Any]) -> None:
        workers = self._workers()
        n_restarts = self._n_restarts() - self.n_restarts_before
        if n_restarts > max(_MOST_RESTARTS, self.most_workers):
            self._give_up(futures, f"{n_restarts} restarts")
        n_paused = sum(worker["status"] == "paused" for worker in workers)
        if n_paused == 0 or any(_is_busy(worker) for worker in workers):
            self.stuck_since = None
        elif self.stuck_since is None:
            self.stuck_since = monotonic()
        elif monotonic() - self.stuck_since > _LONGEST_PAUSE:
            self._give_up(futures, f"{n_paused} of {len(workers)} are paused")

    def _give_up(self, futures: list[Any], what: str) -> NoReturn:
        self.client.cancel(futures)  # else workers would go on while the error is looked at
        raise ClusterLost(
            f"Workers ran out of memory ({what}): their limit is {_named(self.limit)}, and this "
            f"fit needs about {_named(self.needed)} on each; use workers with more memory, more "
            "workers, fewer trees or smaller partitions."
        )

    def _workers(self) -> list[dict[str, Any]]:
        """Return the workers of the moment: one that is being restarted is not among them."""
        workers = list(self.client.scheduler_info(n_workers=-1)["workers"].values())
        self.most_workers = max(self.most_workers, len(workers))
        limits = [float(worker["memory_limit"] or math.inf) for worker in workers]
        self.limit = min([self.limit, *limits])
        return workers

    def _n_restarts(self) -> int:
        return len(self.client.get_events("worker-restart-memory"))


def _is_busy(worker: dict[str, Any]) -> bool:
    counts = worker["metrics"].get("task_counts", {})
    return any(counts.get(state, 0) > 0 for state in _BUSY)


def _named(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:,.1f} GB"
