"""Time a call several times, and say how far the times spread."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any


def time_call(function: Callable[[], Any], repeats: int) -> tuple[float, str, Any]:
    """Return the median time in seconds, the range as text, and the last result."""
    times = []
    result = None
    for _ in range(repeats):
        result = None  # give memory back before the next call
        start = perf_counter()
        result = function()
        times.append(perf_counter() - start)
    return median(times), f"{min(times):.3g} to {max(times):.3g}", result
