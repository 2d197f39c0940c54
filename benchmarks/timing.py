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
    return median(times), spread(times), result


def spread(times: list[float]) -> str:
    return f"{min(times):.3g} to {max(times):.3g}"


def time_in_turn(calls: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, list[float]]:
    """Time several calls in turn, so that a slow minute of the machine meets all of them."""
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = perf_counter()
            call()
            times[name].append(perf_counter() - start)
    return times
