"""Streams: learning in chunks against a batch fit, drift, forgetting, and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..table import Table
from . import cost, drift, memory, online

PARTS = ("online", "cost", "drift", "memory")


def run(
    quick: bool, data: Path | None, parts: tuple[str, ...] = PARTS, cache: Path | None = None
) -> Iterator[Table]:
    """Yield the tables of some parts; ``cache`` is a folder for results of drift."""
    if "online" in parts:
        yield from online.run(quick, data)
    if "cost" in parts:
        yield from cost.run(quick, data)
    if "drift" in parts:
        yield from drift.run(quick, cache)
    if "memory" in parts:
        yield from memory.run(quick, data)
