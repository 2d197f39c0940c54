"""``mondrian fit``: from a table to a model file."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from .common import (
    BatchRows,
    Delimiter,
    Jobs,
    Json,
    fail,
    faults_told,
    messages,
    progress_shown,
    show,
    split_names,
)


def fit(
    table: Annotated[Path, typer.Argument(help="CSV (also .csv.gz), Parquet or Arrow file.")],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file.")] = Path(
        "model.mf"
    ),
    columns: Annotated[
        str | None, typer.Option(help="Columns to learn from, with commas; default: all others.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out, with commas.")] = None,
    impute: Annotated[
        bool, typer.Option("--impute", help="Fill gaps with medians, now and at predictions.")
    ] = False,
    holdout: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of rows to evaluate on first.")
    ] = 0.0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read in batches and learn online.")
    ] = False,
    batch_rows: BatchRows = 100_000,
    trees: Annotated[int, typer.Option(min=1, help="Number of trees.")] = 50,
    min_samples_split: Annotated[
        int | None, typer.Option(min=2, help="Smaller nodes are not split.")
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's model: faster, often less accurate.")
    ] = False,
    rows: Annotated[
        bool, typer.Option(help="Keep the rows in the file, so that it can learn more.")
    ] = True,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.")] = 0,
    json: Json = False,
) -> None:
    """Fit a forest to a table and save it.

    Numbers are used as they are, dates become time, day of the year, day of the week and hour,
    texts become numbers by the labels that go with them. All of that is kept in the model file.

    With --holdout, some rows are predicted before they are learned, and the scores are printed.

    Example: mondrian fit houses.csv --target price --holdout 0.1 -o houses.mf
    """
    if not (output.parent.is_dir() and not output.is_dir()):
        fail(f"The model cannot be saved as {str(output)!r}: name a file in a folder.")
    with faults_told():
        from mondrian_forest import PAPER
        from mondrian_forest.tables import TableFile, TableForest
        from mondrian_forest.tables.learning import fit_batches

        file = TableFile(table, delimiter=delimiter)
        chosen = split_names(columns)
        if drop is not None:
            left_out = split_names(drop) or []
            for name in left_out:
                if name not in file.names:
                    fail(f"There is no column {name!r} to leave out.")
            kept = chosen if chosen is not None else file.names
            chosen = [name for name in kept if name not in (*left_out, target)]
        if chosen is not None:  # the others need not be read
            file = TableFile(table, delimiter=delimiter, columns=[*chosen, target])
        parameters: dict[str, Any] = {"n_estimators": trees, "n_jobs": jobs}
        if paper:
            parameters |= PAPER
        if min_samples_split is not None:
            parameters["min_samples_split"] = min_samples_split

        start = perf_counter()
        total = file.n_rows
        with progress_shown("Learning", total) as progress:
            result = fit_batches(
                file.batches(batch_rows) if stream else [file.read()],
                target,
                holdout=holdout,
                columns=chosen,
                impute=impute,
                random_state=seed,
                on_rows=lambda n_rows: progress.update(progress.task_ids[0], completed=n_rows),
                **parameters,
            )
            progress.update(progress.task_ids[0], description="Saving")
            result.model.save(output, rows=rows)
        model: TableForest = result.model
        found: dict[str, Any] = {
            "rows": model.forest.n_samples_seen_,
            "features": len(model.encoder.feature_names),
            "seconds": perf_counter() - start,
        }
        if result.scores is not None:
            found |= {"rows held out": result.n_held_out, **result.scores}
        show(found | {"model": str(output)}, json)
        if not json:
            messages().print(f"Next: mondrian predict {output} {table} --quantiles 0.05,0.5,0.95")
