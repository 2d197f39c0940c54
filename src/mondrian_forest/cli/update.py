"""``mondrian update``: learn new rows, and forget old ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    tell,
)

if TYPE_CHECKING:
    from mondrian_forest.tables import TableForest

FORGETTING = ("oldest", "random", "change")


_Forget = Annotated[
    str | None,
    typer.Option(
        help="Rows to forget, as numbers and ranges such as '3,40-59', in the order in which they "
        "were learned; the first one is row 1."
    ),
]
_MaxRows = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="The most rows that the model keeps, from the next rows learned on; 0: keep all.",
    ),
]
_Forgetting = Annotated[
    str | None,
    typer.Option(
        help="What is forgotten from now on: 'oldest', 'random' (keep a uniform sample), or "
        "'change' (also all that is older than a change of the data)."
    ),
]
_CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Save the model, and say so, after at least this many rows, at the end of a batch "
        "(see --batch-rows).",
    ),
]
_SkipRows = Annotated[
    int,
    typer.Option(
        min=0, help="Leave out the first rows of the table, which a checkpoint has learned."
    ),
]


def update(
    model: Annotated[Path, typer.Argument(help="Model file that mondrian fit has written.")],
    table: Annotated[
        Path | None, typer.Argument(help="Table with the new rows and the target, if any.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Model file to write; by default the old one is replaced."
        ),
    ] = None,
    forget: _Forget = None,
    max_rows: _MaxRows = None,
    forgetting: _Forgetting = None,
    checkpoint_every: _CheckpointEvery = None,
    skip_rows: _SkipRows = 0,
    batch_rows: BatchRows = 100_000,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    json: Json = False,
) -> None:
    """Forget rows, learn more rows, and replace the model file.

    The file is replaced in one step at the end, and at checkpoints. After a crash the model is
    there as it was saved last.

    Example: mondrian update houses.mf sold_this_week.csv
    """
    if table is None and forget is None and max_rows is None and forgetting is None:
        fail("There is nothing to do: give a table with new rows, or rows to --forget.", 2)
    written = model if output is None else output
    if table is not None:
        refuse_to_overwrite([table], output)
    with errors_as_messages(), _locked(written):
        with messages().status("Loading ..."):
            from mondrian_forest.io.replace import check_replaceable
            from mondrian_forest.tables import TableForest

        check_replaceable(written)
        known = TableForest.load(model)
        known.forest.set_params(n_jobs=jobs, **_settings(max_rows, forgetting))
        n_seen, n_held, start = known.forest.n_samples_seen_, known.forest.n_rows_, perf_counter()
        if forget is not None:
            known.forget(_row_numbers(forget, n_seen))
        if table is not None:
            rows = _Rows(table, delimiter, batch_rows, skip_rows)
            _learn(known, rows, written, checkpoint_every)
        known.save(written)
        n_learned = known.forest.n_samples_seen_ - n_seen
        result = {
            "rows learned": n_learned,
            "rows forgotten": n_held + n_learned - known.forest.n_rows_,
            "rows": known.forest.n_rows_,
            "seconds": perf_counter() - start,
            "model": str(written),
        }
        print_result(result, json)


class _Rows(NamedTuple):
    """Which rows of which table are learned, and how many at a time."""

    table: Path
    delimiter: str | None
    batch_rows: int
    n_skipped: int


def _learn(known: TableForest, rows: _Rows, written: Path, checkpoint_every: int | None) -> None:
    """Learn the rows of a table, and save the model at checkpoints."""
    from mondrian_forest.tables import TableFile

    file = TableFile(rows.table, delimiter=rows.delimiter, columns=known.columns)
    n_read = n_saved = 0
    with progress_shown("Learning", file.n_rows) as progress:
        for batch in file.batches(rows.batch_rows):
            new = batch.slice(max(rows.n_skipped - n_read, 0))
            n_read += len(batch)
            if len(new) > 0:
                known.partial_fit(new)
            progress.advance(progress.task_ids[0], len(batch))
            n_new = n_read - max(n_saved, rows.n_skipped)
            if checkpoint_every is not None and n_new >= checkpoint_every:
                known.save(written)
                n_saved = n_read
                tell(
                    f"Saved after row {n_read:,}. To go on from there, update {str(written)!r} "
                    f"with --skip-rows {n_read}."
                )
        progress.update(progress.task_ids[0], description="Saving")
    if n_read < rows.n_skipped:
        fail(f"{str(rows.table)!r} has {n_read:,} rows: --skip-rows leaves none of them.")


def _settings(max_rows: int | None, forgetting: str | None) -> dict[str, Any]:
    """Return the parameters of the forest that change."""
    settings: dict[str, Any] = {}
    if max_rows is not None:
        settings["max_rows"] = max_rows or None
    if forgetting is not None:
        if forgetting not in FORGETTING:
            fail(f"--forgetting must be oldest, random or change, got {forgetting!r}.", 2)
        settings["forgetting"] = forgetting
    return settings


def _row_numbers(text: str, n_seen: int) -> list[int]:
    """Return the numbers, from 0 on, of rows that a user counts from 1 on."""
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part)
        if found is None:
            fail(f"--forget takes numbers and ranges such as '3,40-59', got {part!r}.", 2)
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if not 1 <= first <= last <= n_seen:
            fail(f"--forget {part.strip()}: the model has learned rows 1 to {n_seen:,}.")
        numbers.extend(range(first - 1, last))
    return numbers


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
