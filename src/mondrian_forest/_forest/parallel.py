"""Threads, or other processes, for parts of the work that do not depend on each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, effective_n_jobs

from .validation import check_n_jobs

FEWEST_ROWS_FOR_THREADS = 100
"""Fewer rows are learned, and predicted, faster than threads start."""
_N_CPUS = os.cpu_count() or 1

Run = Callable[..., Iterable[Any]]
"""Applies a function to each of a list, as ``map`` does."""


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that joblib's ``n_jobs`` stands for here."""
    check_n_jobs(n_jobs)
    return min(int(effective_n_jobs(n_jobs)), _N_CPUS)


def n_threads_for(n_rows: int, n_jobs: int | None) -> int:
    """Return the number of threads for so many rows."""
    return n_threads(n_jobs) if n_rows >= FEWEST_ROWS_FOR_THREADS else 1


def other_processes(n_jobs: int | None) -> Parallel | None:
    """Return how to use other processes, if joblib is configured to.

    As in ``with joblib.parallel_config("dask")``. Without that, threads are faster.
    """
    parallel = Parallel(n_jobs=n_jobs, prefer="threads")
    backend = parallel._backend  # noqa: SLF001 (joblib has no public name for it)
    return None if getattr(backend, "supports_sharedmem", False) else parallel


def in_threads(act: Callable[[int], None], n_parts: int, n_jobs: int | None) -> None:
    """Act on each number below ``n_parts``: of a tree, or of another part of the work."""
    with threads(min(n_threads(n_jobs), n_parts)) as run:
        for _ in run(act, range(n_parts)):
            pass


@contextmanager
def threads(n_threads: int) -> Iterator[Run]:
    """Give a ``map`` that uses so many threads; in the end all of them have stopped.

    They have also stopped after a second Ctrl-C, which ``ThreadPoolExecutor`` alone would not wait
    for. Threads must not go on with arrays that somebody changes next.
    """
    if n_threads == 1:
        yield map
        return
    executor = ThreadPoolExecutor(n_threads)

    def run(act: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
        try:
            return list(executor.map(act, *items))
        except RuntimeError as error:
            if "new thread" in str(error):
                raise MemoryError("There is no memory for another thread: use n_jobs=1.") from None
            raise

    try:
        yield run
    finally:
        while True:
            try:
                executor.shutdown(wait=True, cancel_futures=True)
                break
            except BaseException:  # the first interrupt is reported
                continue
