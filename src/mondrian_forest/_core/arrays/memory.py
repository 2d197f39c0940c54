"""Large arrays straight from the operating system.

The arrays of trees have room for the worst case, and most of it is never used. The system commits
a page when it is first written to, so that unused room costs only address space. ``malloc`` is no
alternative: it keeps freed memory and hands it out again, still committed. Over ten fits of 400,000
rows the process grew by half.
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
"""Whether unused room takes no memory."""
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python does not name: arrays may be larger than the memory at hand."""


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of undefined content, as ``numpy.empty`` does.

    Raise ``MemoryError`` if there is not enough memory, as NumPy does.
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
        # With pages of 2 MB instead of 4 KB, first writes take a fifth of the time. NumPy does the
        # same.
        with suppress(OSError):  # not every system takes this advice
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def release(array: NDArray[Any]) -> None:
    """Return to the system the memory of a part of an ``empty`` array that is not needed now.

    The first write commits a whole huge page. A fit of 100,000 rows, whose result has 62 MB, has a
    peak of 98 MB, and of 131 MB without this function.
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
            # Otherwise the system may commit the memory again, since it joins small pages to huge
            # ones in the background. The peak of a fit of 1M rows was the result and 2.2 to 2.7
            # copies of the table; it is 2.1 copies now.
            with suppress(OSError):  # the system limits how many arrays can have such advice
                pages.madvise(mmap.MADV_NOHUGEPAGE, start, stop - start)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def enlarge(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Return a copy with room for ``room`` entries along the first axis."""
    larger = empty((room, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
