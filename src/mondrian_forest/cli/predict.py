"""``mondrian predict``: append predictions to a table."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from .common import (
    BatchRows,
    Delimiter,
    Jobs,
    fail,
    faults_told,
    messages,
    progress_shown,
    refuse_inputs,
    split_names,
    tell,
)


def predict(
    model: Annotated[Path, typer.Argument(help="A model file of mondrian fit.")],
    table: Annotated[Path, typer.Argument(help="CSV (also .csv.gz), Parquet or Arrow file.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write; without it, CSV to standard output."),
    ] = None,
    quantiles: Annotated[
        str, typer.Option(help="Levels of quantiles, with commas, as in 0.05,0.5,0.95.")
    ] = "",
    std: Annotated[bool, typer.Option("--std", help="Also the standard deviation.")] = False,
    only: Annotated[
        bool, typer.Option("--only", help="Write the predictions without the table's columns.")
    ] = False,
    batch_rows: BatchRows = 20_000,  # 100,000 took twice the memory, and as long
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
) -> None:
    """Append columns to a table: prediction, and on request std, q0.05 and the like.

    The table is read and written in batches, so that it may be larger than memory. Columns are
    found by their names, in any order; those that the model does not know are passed on.

    Example: mondrian predict houses.mf new.csv --quantiles 0.05,0.5,0.95 -o out.parquet
    """
    try:
        levels = [float(level) for level in split_names(quantiles) or []]
    except ValueError:
        levels = [-1.0]
    if not all(0.0 < level < 1.0 for level in levels):
        fail(f"--quantiles takes numbers between 0 and 1, got {quantiles!r}.", 2)
    refuse_inputs(output, (model, table))
    with faults_told():
        with messages().status("Loading ..."):
            from mondrian_forest.tables import TableFile, TableForest, TableWriter
            from mondrian_forest.tables.files import with_missing_values
            from mondrian_forest.tables.model import quantile_name

        known = TableForest.load(model, mmap=True)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, verbatim=True)
        new = ("prediction", *(["std"] if std else []), *map(quantile_name, levels))
        taken = [name for name in new if name in file.names]
        if taken and not only:
            fail(f"The table has a column {taken[0]!r} already: rename it, or use --only.")
        with TableWriter(output) as writer, progress_shown("Predicting", file.n_rows) as progress:
            for batch in chain(file.batches(batch_rows), [file.empty()]):  # if only for the header
                rows = with_missing_values(batch) if file.is_csv else batch
                found = known.predict(rows, std=std, quantiles=levels)
                columns = {} if only else dict(zip(batch.column_names, batch.columns, strict=True))
                writer.write({**columns, **found})
                progress.advance(progress.task_ids[0], len(batch))
        if output is not None:
            tell(f"Written: {output}")
