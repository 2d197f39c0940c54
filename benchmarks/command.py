"""Time and memory of the ``mondrian`` command on tables of different lengths."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from .table import Table

PART_ROWS = 500_000
COMMAND = [sys.executable, "-c", "from mondrian_forest.cli import main; main()"]


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    if find_spec("typer") is None or find_spec("pyarrow") is None:
        print("typer or pyarrow is not installed: left out")
        return
    table = Table(
        "The command on long tables",
        ["command", "rows", "file, MB", "seconds", "rows per second", "peak memory, MB"],
        note="The default with 10 trees and min_samples_split=10, learned from 20,000 rows of 5 "
        "columns. Predictions with `--std --quantiles 0.05,0.95`.",
    )
    lengths = [2_000, 4_000] if quick else [1_000_000, 10_000_000]
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.mf"
        write(folder / "train.parquet", 20_000)
        fit = ("fit", folder / "train.parquet", "--target", "y", "-o", model)
        measure(*fit, "--trees", 10, "--min-samples-split", 10)
        for ending in ("parquet", "csv"):
            for n_rows in lengths:
                source, found = folder / f"new.{ending}", folder / f"out.{ending}"
                write(source, n_rows)
                wanted = ("--std", "--quantiles", "0.05,0.95", "-o", found)
                seconds, peak = measure("predict", model, source, *wanted)
                table.add(
                    f"predict, {ending}",
                    f"{n_rows:,}",
                    f"{source.stat().st_size / 1e6:.1f}",
                    seconds,
                    f"{n_rows / seconds:,.0f}",
                    f"{peak / 1e6:.0f}",
                )
    yield table


def write(path: Path, n_rows: int) -> None:
    """Write a table of generated rows, part by part."""
    import pyarrow as pa

    from mondrian_forest.tables import TableWriter

    with TableWriter(path) as writer:
        for number, first in enumerate(range(0, n_rows, PART_ROWS)):
            random = np.random.default_rng(number)
            X = random.random((min(PART_ROWS, n_rows - first), 4))
            y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * random.normal(size=len(X))
            columns = {f"x{k}": pa.array(column) for k, column in enumerate(X.T)}
            writer.write({**columns, "y": pa.array(y)})


def measure(*arguments: object) -> tuple[float, int]:
    """Return seconds and largest resident memory, in bytes, of a command."""
    start = perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], **quiet)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"mondrian {arguments[0]} ended with code {process.returncode}")
    return perf_counter() - start, usage.ru_maxrss * 1024
