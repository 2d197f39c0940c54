"""``mondrian update``: learn new rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None  # type: ignore[assignment]

from .common import (
    BatchRows,
    Delimiter,
    Jobs,
    Json,
    fail,
    faults_told,
    messages,
    progress_shown,
    refuse_inputs,
    show,
)


def update(
    model: Annotated[Path, typer.Argument(help="A model file of mondrian fit.")],
    table: Annotated[Path, typer.Argument(help="New rows, with the target.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Another model file; default: the same.")
    ] = None,
    batch_rows: BatchRows = 100_000,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    json: Json = False,
) -> None:
    """Learn more rows, in place and in one step: a crash leaves the old model.

    Example: mondrian update houses.mf sold_this_week.csv
    """
    refuse_inputs(output, [table])
    with faults_told(), _alone(model if output is None else output):
        with messages().status("Loading ..."):
            from mondrian_forest.io.replace import check_replaceable
            from mondrian_forest.tables import TableFile, TableForest

        check_replaceable(output or model)
        known = TableForest.load(model)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, columns=known.columns)
        before = known.forest.n_samples_seen_
        start = perf_counter()
        with progress_shown("Learning", file.n_rows) as progress:
            for batch in file.batches(batch_rows):
                known.partial_fit(batch)
                progress.advance(progress.task_ids[0], len(batch))
            progress.update(progress.task_ids[0], description="Saving")
            known.save(output or model)
        n_rows = known.forest.n_samples_seen_
        found = {
            "rows learned": n_rows - before,
            "rows": n_rows,
            "seconds": perf_counter() - start,
            "model": str(output or model),
        }
        show(found, json)


@contextmanager
def _alone(model: Path) -> Iterator[None]:
    """Keep other updates away meanwhile: the one that ends last would undo the others."""
    if fcntl is None or not model.is_file():
        yield
        return
    with open(model, "rb") as file:
        is_free = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError:
            pass  # not every file system has locks
        # If another update has just ended, this is the lock of the file that it replaced.
        if not (is_free and os.path.samestat(os.fstat(file.fileno()), os.stat(model))):
            fail(f"{str(model)!r} is being updated by another process: wait until it has ended.")
        yield
