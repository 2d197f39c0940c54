"""``mondrian fit``: from a table to a model file."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

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
    refuse_inputs,
    show,
    split_names,
    tell,
)

if TYPE_CHECKING:
    from mondrian_forest.tables import TableForest


def fit(
    table: Annotated[
        str, typer.Argument(help="CSV (also .csv.gz), Parquet or Arrow file, or 'data/*.parquet'.")
    ],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file.")] = Path(
        "model.mf"
    ),
    columns: Annotated[
        str | None, typer.Option(help="Columns to learn from, with commas; default: all others.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out, with commas.")] = None,
    impute: Annotated[
        bool,
        typer.Option("--impute", help="Fill missing values with medians, now and at predictions."),
    ] = False,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="What stands for a missing value, as '?'; may be given several times."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Columns that are text though they look like numbers, with commas."),
    ] = None,
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
    workers: Annotated[
        int | None, typer.Option(min=1, help="Fit with so many processes of Dask.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Fit on a Dask cluster, as in tcp://10.0.0.1:8786.")
    ] = None,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.")] = 0,
    json: Json = False,
) -> None:
    """Fit a forest to a table and save it.

    Numbers are used as they are, dates become time, day of the year, day of the week and hour,
    texts become numbers by the labels that go with them. All of that is kept in the model file.

    A column that is almost numbers or dates is refused, and the first cell that is none is named.
    --missing '?' takes such cells for missing values, --text NAME takes the column for text.

    With --holdout, some rows are predicted before they are learned, and the scores are printed.

    Example: mondrian fit houses.csv --target price --holdout 0.1 -o houses.mf
    """
    if (workers or dask) and (holdout or stream or (workers and dask)):
        fail("--workers or --dask go without each other, --holdout and --stream.", 2)
    if not (output.parent.is_dir() and not output.is_dir()):
        fail(f"The model cannot be saved as {str(output)!r}: name a file in a folder.")
    with faults_told():
        with messages().status("Loading ..."):
            from mondrian_forest import PAPER
            from mondrian_forest.io.replace import check_replaceable
            from mondrian_forest.tables import TableFile
            from mondrian_forest.tables.files import concatenated, find_files
            from mondrian_forest.tables.learning import Learned, fit_batches

        check_replaceable(output)
        paths = find_files(table)
        refuse_inputs(output, paths)
        file = TableFile(paths[0], delimiter=delimiter)
        chosen = _chosen(file.names, target, split_names(columns), split_names(drop))
        # Columns that are left out need not be read.
        read = None if chosen is None else [*chosen, target]
        files = [TableFile(path, delimiter=delimiter, columns=read) for path in paths]
        parameters: dict[str, Any] = {"n_estimators": trees, "n_jobs": jobs}
        if paper:
            parameters |= PAPER
        if min_samples_split is not None:
            parameters["min_samples_split"] = min_samples_split

        start = perf_counter()
        counts = [file.n_rows for file in files]
        total = None if None in counts else sum(count or 0 for count in counts)
        shared: dict[str, Any] = {
            "columns": chosen,
            "impute": impute,
            "text": split_names(text) or [],
            "missing": missing or [],
            "random_state": seed,
        }
        result: Learned | None = None
        if workers or dask:
            model = _fit_elsewhere(
                paths,
                target,
                workers,
                dask,
                keep_rows=rows,
                delimiter=delimiter,
                **shared,
                **parameters,
            )
            model.save(output, rows=rows)
        else:
            with progress_shown("Learning", total) as progress:
                task = progress.task_ids[0]
                result = fit_batches(
                    chain.from_iterable(file.batches(batch_rows) for file in files)
                    if stream
                    else [concatenated([file.read() for file in files])],
                    target,
                    holdout=holdout,
                    on_rows=lambda n_rows: progress.update(task, completed=n_rows),
                    **shared,
                    **parameters,
                )
                progress.update(task, description="Saving")
                result.model.save(output, rows=rows)
            model = result.model
        found: dict[str, Any] = {
            "rows": model.forest.n_samples_seen_,
            "features": len(model.encoder.feature_names),
            "seconds": perf_counter() - start,
        }
        if result is not None and result.scores is not None:
            found |= {"rows held out": result.n_held_out, **result.scores}
        show(found | {"model": str(output)}, json)
        if not json:
            tell(f"Next: mondrian predict {output} NEW.csv --quantiles 0.05,0.5,0.95")


def _chosen(
    known: list[str], target: str, columns: list[str] | None, drop: list[str] | None
) -> list[str] | None:
    """Return the columns to learn from; None are all others than the target."""
    if columns is not None:
        columns = list(dict.fromkeys(columns))
    if drop is None:
        return columns
    unknown = set(drop).difference(known)
    if unknown:
        fail(f"There is no column {min(unknown)!r} to leave out.")
    left_out = {*drop, target}
    return [name for name in (known if columns is None else columns) if name not in left_out]


def _fit_elsewhere(
    paths: list[Path], target: str, workers: int | None, address: str | None, **options: Any
) -> TableForest:
    """Fit on processes of Dask, here or elsewhere."""
    from mondrian_forest.distributed.collections import Client, ClusterLost
    from mondrian_forest.distributed.tables import fit_files

    console = messages()
    with console.status("Starting processes ...") as status:
        here = {
            "n_workers": workers,
            "threads_per_worker": 1,
            "host": "127.0.0.1",
            "dashboard_address": None,
            "direct_to_workers": True,
        }
        try:
            client = Client(address, timeout=10) if address else Client(**here)
        except (OSError, TimeoutError, ValueError) as error:
            if address is None:
                fail(f"The processes of Dask cannot be started: {error}.")
            fail(f"There is no Dask scheduler at {address!r}.")
        with client:
            try:
                return fit_files(
                    [path.resolve() for path in paths],
                    target,
                    client=client,
                    progress=lambda what, count: status.update(f"Learning: {count:,} {what}"),
                    **options,
                )
            except ClusterLost as error:
                fail(str(error))
