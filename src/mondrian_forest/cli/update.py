"""``mondrian update``: learn new rows."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from .common import BatchRows, Delimiter, Jobs, Json, faults_told, messages, progress_shown, show


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
    with faults_told():
        with messages().status("Loading ..."):
            from mondrian_forest.tables import TableFile, TableForest
            from mondrian_forest.tables.files import without_gaps_as_text

        known = TableForest.load(model)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, columns=known.columns, as_text=True)
        before = known.forest.n_samples_seen_
        start = perf_counter()
        with progress_shown("Learning", file.n_rows) as progress:
            for batch in file.batches(batch_rows):
                known.partial_fit(without_gaps_as_text(batch) if file.as_text else batch)
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
