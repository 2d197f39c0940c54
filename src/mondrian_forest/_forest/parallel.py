"""Threads for parts of the work that do not depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

Run = Callable[..., Iterable[Any]]
"""Applies a function to each of a list, as ``map`` does."""


@contextmanager
def threads(n_threads: int) -> Iterator[Run]:
    """Give a ``map`` that uses so many threads; in the end all of them have stopped.

    Also after a second Ctrl-C, which ``ThreadPoolExecutor`` would not wait for: threads must not
    go on with arrays that somebody changes next.
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
