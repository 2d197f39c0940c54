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
    errors_as_messages,
    fail,
    messages,
    progress_shown,
    refuse_to_overwrite,
    split_names,
    tell,
)


def predict(
    model: Annotated[Path, typer.Argument(help="Model file that mondrian fit has written.")],
    table: Annotated[Path, typer.Argument(help="CSV (also .csv.gz), Parquet or Arrow file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; by default CSV goes to the standard output."
        ),
    ] = None,
    quantiles: Annotated[
        str,
        typer.Option(help="Levels of quantiles, separated by commas, such as 0.05,0.5,0.95."),
    ] = "",
    std: Annotated[bool, typer.Option("--std", help="Append the standard deviation.")] = False,
    novelty: Annotated[
        bool,
        typer.Option(
            "--novelty",
            help="Append how unlike the training data each row is: almost 0 beside a training row, "
            "1 far from all of them.",
        ),
    ] = False,
    only: Annotated[
        bool, typer.Option("--only", help="Write the predictions without the table's columns.")
    ] = False,
    batch_rows: BatchRows = 20_000,  # 100,000 took twice the memory, and the same time
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
) -> None:
    """Append predictions to a table: the mean and, if asked for, std, quantiles and novelty.

    The table is read and written in batches, so it may be larger than memory. Columns are found by
    their names, in any order. Columns that the model does not know are copied to the output.

    Example: mondrian predict houses.mf new.csv --quantiles 0.05,0.5,0.95 -o out.parquet
    """
    levels = _levels(quantiles)
    refuse_to_overwrite((model, table), output)
    with errors_as_messages():
        with messages().status("Loading ..."):
            from mondrian_forest.tables import TableFile, TableForest, TableWriter
            from mondrian_forest.tables.model import predicted_names

        known = TableForest.load(model, mmap=True)
        known.forest.set_params(n_jobs=jobs)
        file = TableFile(table, delimiter=delimiter, verbatim=True)
        names = predicted_names(std, levels, novelty)
        taken = [name for name in names if name in file.names]
        if taken and not only:
            fail(f"The table already has a column {taken[0]!r}: rename it, or use --only.")
        with TableWriter(output) as writer, progress_shown("Predicting", file.n_rows) as progress:
            # The empty table at the end makes sure that the header is written.
            for batch in chain(file.batches(batch_rows), [file.empty()]):
                found = known.predict(
                    file.with_nulls(batch), std=std, quantiles=levels, novelty=novelty
                )
                columns = {} if only else dict(zip(batch.column_names, batch.columns, strict=True))
                writer.write({**columns, **found})
                progress.advance(progress.task_ids[0], len(batch))
        if output is not None:
            tell(f"Written: {output}")


def _levels(quantiles: str) -> list[float]:
    """Return the levels in a comma-separated text."""
    try:
        levels = [float(level) for level in split_names(quantiles) or []]
    except ValueError:
        levels = [-1.0]
    if not all(0.0 < level < 1.0 for level in levels):
        fail(f"--quantiles takes numbers between 0 and 1, got {quantiles!r}.", 2)
    return levels
