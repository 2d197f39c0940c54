"""The picture of a stream with a sudden change: errors, rows held and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .drift import FULL, QUICK
from .generated import drifting
from .methods import SETTINGS, SOKNL, WINDOW, Followed, followed, methods

ROLLING = 500
DRAWN = {
    "default": ("keeps all rows", "tab:blue"),
    f"default, latest {WINDOW:,} rows": (f"keeps the latest {WINDOW:,} rows", "tab:orange"),
    "default, forgets after a change": ("forgets after a change", "tab:green"),
    SOKNL: (SOKNL, "0.55"),
}


def draw(path: Path, quick: bool, cache: Path | None) -> None:
    import matplotlib.pyplot as plt

    sizes, width = (QUICK, 50) if quick else (FULL, ROLLING)
    stream = next(stream for stream in drifting(sizes.n_rows) if stream.name == "sudden")
    known = methods()
    figure, (top, middle, bottom) = plt.subplots(
        3,
        1,
        figsize=(9, 7.5),
        sharex=True,
        height_ratios=(3, 1.2, 1.2),
        layout="constrained",
    )
    for name, (label, colour) in DRAWN.items():
        if name not in known:
            continue
        result = followed(name, known[name], stream, sizes, cache)
        end = np.arange(width, len(result.errors) + 1) + sizes.first
        top.plot(end, rolling_error(result, width), color=colour, label=label)
        if name in SETTINGS:
            rows_seen, held, kept = result.held.T
            middle.plot(rows_seen, held / 1e3, color=colour)
            bottom.plot(rows_seen, kept / 1e6, color=colour)
        for found, _ in result.alarms:
            for axis in (top, middle, bottom):
                axis.axvline(found, color=colour, linestyle=":", linewidth=1.2)
    for change, _ in stream.changes:
        for axis in (top, middle, bottom):
            axis.axvline(change, color="black", linestyle="--", linewidth=0.8)
    top.axhline(1.0, color="black", linewidth=0.6)
    top.annotate("noise", (sizes.n_rows, 1.0), (0, -12), textcoords="offset points", ha="right")
    top.set_ylim(bottom=0.0)
    top.set_ylabel(f"RMSE of the last {width:,} rows")
    top.legend(loc="upper left")
    middle.set_ylabel("rows held, 1,000")
    bottom.set_ylabel("memory, MB")
    bottom.set_xlabel("rows seen (dashed: the change; dotted: where it is found)")
    for axis in (middle, bottom):
        axis.set_ylim(bottom=0.0)
    bottom.xaxis.set_major_formatter("{x:,.0f}")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"Saved {path}")


def rolling_error(result: Followed, width: int) -> np.ndarray:
    """Return the RMSE of all runs of so many rows."""
    sums = np.concatenate([[0.0], np.cumsum(result.errors**2)])
    return np.sqrt((sums[width:] - sums[:-width]) / width)
