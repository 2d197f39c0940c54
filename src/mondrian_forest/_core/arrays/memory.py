"""Large arrays straight from the operating system.

The trees' arrays are asked for with room for the worst case, of which most is never used. The
system commits pages when they are first written to, so that room costs address space only. Memory
from ``malloc`` would not do: it keeps what is freed and hands it out again, committed as it is, and
over ten fits of 400,000 rows the process grew by half.
"""

from __future__ import annotations

import errno
import math
import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_FEWEST_BYTES = 2**20
_FEWEST_BYTES_FOR_HUGE_PAGES = 2**23
_HUGE_PAGE = 2**21
IS_LAZY = hasattr(mmap, "MAP_ANONYMOUS")
"""Whether room that is not in use takes no memory."""
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python does not name: address space beyond the memory at hand is fine."""


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of undefined content, as ``numpy.empty`` does.

    Where memory does not suffice, that is a ``MemoryError``, as with NumPy.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < _FEWEST_BYTES or not IS_LAZY:
        return np.empty(shape, dtype)
    try:
        pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"There is no memory for an array of {n_bytes:,} bytes.") from None
    if n_bytes >= _FEWEST_BYTES_FOR_HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        # Pages of 2 MB instead of 4 KB: first writes take a fifth of the time, as in NumPy.
        with suppress(OSError):  # advice, which not every system takes
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def release(array: NDArray[Any]) -> None:
    """Give back the memory of a part of an ``empty`` array that is not needed now.

    The first write commits a whole huge page. A fit of 100,000 rows, whose result has 62 MB, had a
    peak of 131 MB without this, and has one of 98 MB.
    """
    whole = array.base
    pages = getattr(getattr(whole, "base", None), "obj", None)  # of a memoryview
    if whole is None or not isinstance(pages, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    offset = _address(array) - _address(whole)
    start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < stop:
        pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
        if stop - start >= _HUGE_PAGE and hasattr(mmap, "MADV_NOHUGEPAGE"):
            # Else the system may fill it again, since it makes huge pages of small ones at leisure:
            # of 1M rows, a fit's peak was the result and 2.2 to 2.7 copies of the table, now 2.1.
            with suppress(OSError):  # advice, for which there are too many arrays
                pages.madvise(mmap.MADV_NOHUGEPAGE, start, stop - start)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def enlarge(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Return a copy with room for ``room`` entries along the first axis."""
    larger = empty((room, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
