"""Streams that change: errors, coverage and rows held, and when the change is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..table import Table
from .generated import Stream, drifting, steady
from .methods import LEVEL, SETTINGS, Followed, Sizes, follow_forest, followed, methods

FULL = Sizes(n_rows=20_000, first=500, chunk=100, n_trees=50)
QUICK = Sizes(n_rows=400, first=100, chunk=50, n_trees=5)
STEADY = Sizes(n_rows=30_000, first=500, chunk=100, n_trees=10)
N_STEADY_SEEDS = 3
SLOW = ("river ARFRegressor", "river AMFRegressor")
OF_SLOW = ("no change", "sudden")
"""The streams that slow methods follow, which takes minutes for each."""
SHARE_PER_WINDOW = 20
"""Coverage is counted in so many windows of a stream, of 1,000 rows each in the full one."""


def run(quick: bool, cache: Path | None = None) -> Iterator[Table]:
    sizes = QUICK if quick else FULL
    streams = drifting(sizes.n_rows)
    if quick:
        streams = streams[:2]
    known = methods()
    found = {
        (stream.name, name): followed(name, method, stream, sizes, cache)
        for stream in streams
        for name, method in known.items()
        if name not in SLOW or stream.name in OF_SLOW
    }
    yield errors(streams, found, sizes)
    yield changes(streams, found)
    yield false_alarms(quick, cache)


def errors(streams: list[Stream], found: dict[tuple[str, str], Followed], sizes: Sizes) -> Table:
    n_window = sizes.n_rows // SHARE_PER_WINDOW
    table = Table(
        f"Streams of {sizes.n_rows:,} rows that change",
        [
            "change",
            "method",
            "RMSE",
            "RMSE, second half",
            "RMSE, last quarter",
            "coverage while settled",
            "least coverage",
            "rows held at the end",
            "seconds",
        ],
        note="Friedman's function of 10 features with noise 1, which is the best RMSE. After a "
        "change, the first five features have exchanged their parts with the last five: at half "
        "of the stream (sudden), row by row with a growing probability from 2/5 to 3/5 of it "
        "(gradual), or to and fro at each quarter (recurring). "
        f"Ours: {sizes.n_trees} trees, a first fit on {sizes.first} rows, then chunks of "
        f"{sizes.chunk} that are predicted before they are learned. Peers predict and learn "
        f"row by row: river's forests have {sizes.n_trees} trees, CapyMOA's twice as many, "
        f"with intervals by AdaPI. Coverage of {LEVEL:.0%} intervals is counted for each "
        f"{n_window:,} rows, the first ones left out. Settled: before a change, or "
        f"{streams[0].recovery:,} rows after its end. The seconds are of single runs.",
    )
    for stream in streams:
        for (name, method), result in found.items():
            if name != stream.name:
                continue
            squares = result.errors**2
            table.add(
                name,
                method,
                *(
                    f"{np.sqrt(squares[max(begin - sizes.first, 0) :].mean()):.3f}"
                    for begin in (0, sizes.n_rows // 2, 3 * sizes.n_rows // 4)
                ),
                *coverages(stream, result, sizes.first, n_window),
                f"{result.held[-1, 1]:,}" if len(result.held) else "",
                result.seconds,
            )
    return table


def coverages(stream: Stream, result: Followed, first: int, n_window: int) -> tuple[str, str]:
    """Return the range of coverages in settled windows, and the least of all windows."""
    if not len(result.inside):
        return "", ""
    settled, all_found = [], []
    for begin in range(first + -first % n_window, len(stream.y), n_window):
        end = begin + n_window
        coverage = result.inside[begin - first : end - first].mean()
        all_found.append(coverage)
        if stream.is_settled(begin, end):
            settled.append(coverage)
    ends = f"{min(settled):.3f} to {max(settled):.3f}" if settled else ""
    return ends, f"{min(all_found):.3f}"


def changes(streams: list[Stream], found: dict[tuple[str, str], Followed]) -> Table:
    table = Table(
        "Changes that are found",
        [
            "change",
            "method",
            "begin",
            "found after so many rows",
            "found at",
            "more alarms while it lasts",
            "false alarms",
        ],
        note=f"A change lasts until {streams[0].recovery:,} rows after its end. All "
        "other alarms are false. Found at: where the forest says that the change was, by its first "
        "alarm.",
    )
    for stream in streams:
        for (name, method), result in found.items():
            if name == stream.name and "change" in method:
                delays, places, n_more, n_false = sorted_alarms(stream, result.alarms)
                begins = ", ".join(f"{begin:,}" for begin, _ in stream.changes) or "none"
                table.add(name, method, begins, delays, places, n_more, n_false)
    return table


def sorted_alarms(stream: Stream, alarms: np.ndarray) -> tuple[str, str, int, int]:
    """Return delays and places of the first alarm of each change, and how many others there are."""
    delays, places, n_true = [], [], 0
    for k, (begin, last) in enumerate(stream.changes):
        end = last + stream.recovery
        if k + 1 < len(stream.changes):
            end = min(end, stream.changes[k + 1][0])
        of_change = [alarm for alarm in alarms.tolist() if begin < alarm[0] <= end]
        n_true += len(of_change)
        delays.append(f"{of_change[0][0] - begin:,}" if of_change else "never")
        places.append(f"{of_change[0][1]:,}" if of_change else "-")
    n_found = sum(delay != "never" for delay in delays)
    return ", ".join(delays), ", ".join(places), n_true - n_found, len(alarms) - n_true


def false_alarms(quick: bool, cache: Path | None) -> Table:
    sizes, n_seeds = (QUICK, 1) if quick else (STEADY, N_STEADY_SEEDS)
    table = Table(
        "False alarms",
        ["stream", "model", "streams", "rows in all", "false alarms", "rows held at the ends"],
        note=f"Streams without a change, in chunks of {sizes.chunk} after a first fit on "
        f"{sizes.first} rows; {sizes.n_trees} trees.",
    )
    results: dict[tuple[str, str], list[Followed]] = {}
    names = [name for name in SETTINGS if "change" in name]
    for seed in range(n_seeds):
        for stream in steady(sizes.n_rows, seed):
            for name in names:
                result = followed(
                    f"{name} seed {seed}",
                    lambda *given, name=name: follow_forest(SETTINGS[name], *given),
                    stream,
                    sizes,
                    cache,
                )
                results.setdefault((stream.name, name), []).append(result)
    for (stream_name, name), of_seeds in results.items():
        table.add(
            stream_name,
            name,
            n_seeds,
            f"{n_seeds * sizes.n_rows:,}",
            sum(len(result.alarms) for result in of_seeds),
            ", ".join(f"{result.held[-1, 1]:,}" for result in of_seeds),
        )
    return table
