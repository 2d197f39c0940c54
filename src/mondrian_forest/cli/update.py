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
    errors_as_messages,
    fail,
    messages,
    print_result,
    progress_shown,
    refuse_to_overwrite,
)


def update(
    model: Annotated[Path, typer.Argument(help="Model file that mondrian fit has written.")],
    table: Annotated[Path, typer.Argument(help="Table with the new rows and the target.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Model file to write; by default the old one is replaced."
        ),
    ] = None,
    batch_rows: BatchRows = 100_000,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    json: Json = False,
) -> None:
    """Learn more rows and replace the model file.

    The file is replaced in one step at the end. After a crash the old model is still there.

    Example: mondrian update houses.mf sold_this_week.csv
    """
    written = model if output is None else output
    refuse_to_overwrite([table], output)
    with errors_as_messages(), _locked(written):
        with messages().status("Loading ..."):
            from mondrian_forest.io.replace import check_replaceable
            from mondrian_forest.tables import TableFile, TableForest

        check_replaceable(written)
        known = TableForest.load(model)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, columns=known.columns)
        n_before = known.forest.n_samples_seen_
        start = perf_counter()
        with progress_shown("Learning", file.n_rows) as progress:
            for batch in file.batches(batch_rows):
                known.partial_fit(batch)
                progress.advance(progress.task_ids[0], len(batch))
            progress.update(progress.task_ids[0], description="Saving")
            known.save(written)
        n_rows = known.forest.n_samples_seen_
        result = {
            "rows learned": n_rows - n_before,
            "rows": n_rows,
            "seconds": perf_counter() - start,
            "model": str(written),
        }
        print_result(result, json)


@contextmanager
def _locked(model: Path) -> Iterator[None]:
    """Lock a model file against other updates: the last one to finish would undo the others."""
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
            pass  # some file systems have no locks
        # Another update may have replaced the file between opening and locking it. Then this lock
        # is on the old file.
        if not (is_free and os.path.samestat(os.fstat(file.fileno()), os.stat(model))):
            fail(f"{str(model)!r} is being updated by another process: wait until it has finished.")
        yield
