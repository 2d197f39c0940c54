"""``mondrian fit``: fit a forest to a table and save it in a model file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
    check_can_save,
    errors_as_messages,
    fail,
    messages,
    print_result,
    progress_shown,
    refuse_to_overwrite,
    split_names,
    tell,
)

if TYPE_CHECKING:
    from mondrian_forest.tables import TableFile
    from mondrian_forest.tables.learning import Learned


_Table = Annotated[
    str,
    typer.Argument(
        help="CSV (also .csv.gz), Parquet or Arrow file, or a pattern such as 'data/*.parquet'."
    ),
]
_Target = Annotated[str, typer.Option("--target", "-t", help="Column to predict.")]
_OutputPath = Annotated[Path, typer.Option("--output", "-o", help="Where to save the model file.")]
_Columns = Annotated[
    str | None,
    typer.Option(help="Columns to learn from, separated by commas; by default all others."),
]
_Drop = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas.")]
_Impute = Annotated[
    bool,
    typer.Option(
        "--impute", help="Fill missing values with medians, in this table and in later ones."
    ),
]
_Missing = Annotated[
    list[str] | None,
    typer.Option(help="Text that marks a missing value, such as '?'. May be given several times."),
]
_Text = Annotated[
    str | None,
    typer.Option(
        help="Columns to treat as text although they look like numbers, separated by commas."
    ),
]
_Holdout = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.9, help="Fraction of the rows to evaluate on before they are learned."
    ),
]
_Stream = Annotated[
    bool, typer.Option("--stream", help="Read the table in batches and learn online.")
]
_Trees = Annotated[int, typer.Option(min=1, help="Number of trees.")]
_MinSamplesSplit = Annotated[
    int | None, typer.Option(min=2, help="Do not split nodes with fewer rows than this.")
]
_Paper = Annotated[
    bool, typer.Option("--paper", help="Use the paper's model: faster, but often less accurate.")
]
_MEAN_FUNCTIONS = ("auto", "none", "linear", "boosting")
_MeanFunction = Annotated[
    str | None,
    typer.Option(
        help="A model that the forest is put around: 'linear' (ridge regression, goes on beyond "
        "the data), 'boosting' (gradient boosting), 'none', or by default 'auto' (what held-out "
        "rows say). With --paper the default is 'none'."
    ),
]
_Rows = Annotated[
    bool, typer.Option(help="Keep the rows in the model file, so that it can learn more.")
]
_Workers = Annotated[
    int | None, typer.Option(min=1, help="Fit with this number of Dask worker processes.")
]
_Dask = Annotated[
    str | None, typer.Option(help="Fit on a Dask cluster, such as tcp://10.0.0.1:8786.")
]
_Seed = Annotated[int, typer.Option(min=0, max=2**31, help="Random seed.")]


def fit(
    table: _Table,
    target: _Target,
    output: _OutputPath = Path("model.mf"),
    columns: _Columns = None,
    drop: _Drop = None,
    impute: _Impute = False,
    missing: _Missing = None,
    text: _Text = None,
    holdout: _Holdout = 0.0,
    stream: _Stream = False,
    batch_rows: BatchRows = 100_000,
    trees: _Trees = 50,
    min_samples_split: _MinSamplesSplit = None,
    paper: _Paper = False,
    mean_function: _MeanFunction = None,
    rows: _Rows = True,
    workers: _Workers = None,
    dask: _Dask = None,
    delimiter: Delimiter = None,
    jobs: Jobs = -1,
    seed: _Seed = 0,
    json: Json = False,
) -> None:
    """Fit a forest to a table and save it in a model file.

    Numbers are used as they are. A date becomes time, day of the year, day of the week and hour.
    Text becomes a number: the mean label of the rows with this text. The model file keeps all of
    this and reads later tables in the same way.

    If most values of a column are numbers or dates and some are not, the command stops and shows
    the first one that is not. Then --missing '?' treats such values as missing, and --text NAME
    treats the column as text.

    With --holdout, some rows are predicted before they are learned, and the scores are printed.

    Example: mondrian fit houses.csv --target price --holdout 0.1 -o houses.mf
    """
    if (workers or dask) and (holdout or stream or (workers and dask)):
        fail("--workers and --dask cannot be combined with each other, --holdout or --stream.", 2)
    if mean_function not in (None, *_MEAN_FUNCTIONS):
        known = ", ".join(_MEAN_FUNCTIONS)
        fail(f"--mean-function must be one of {known}, got {mean_function!r}.", 2)
    check_can_save("model", output)
    source = _Source(table, delimiter, batch_rows if stream else None)
    choice = _ColumnChoice(target, split_names(columns), split_names(drop))
    reading = {"text": split_names(text) or [], "missing": missing or [], "impute": impute}
    forest = _ForestOptions(trees, min_samples_split, paper, mean_function, jobs, seed)
    with errors_as_messages():
        files, chosen = _open_files(source, choice, output)
        options = {"columns": chosen, **reading, **forest.parameters()}
        task = _Task(target, options, output, rows)
        start = perf_counter()
        if workers or dask:
            learned = _fit_on_cluster(_Cluster(workers, dask), source, files, task)
        else:
            learned = _fit_here(source, files, holdout, task)
        _print_summary(learned, output, perf_counter() - start, json)


@dataclass(frozen=True)
class _Source:
    """Where the rows come from."""

    pattern: str
    delimiter: str | None
    batch_rows: int | None
    """None: read the whole table at once."""


@dataclass(frozen=True)
class _ColumnChoice:
    """Which columns are learned from."""

    target: str
    columns: list[str] | None
    """None: all columns."""
    drop: list[str] | None

    def among(self, names: list[str]) -> list[str] | None:
        """Return the columns to learn from; None means all except the target."""
        if self.drop is None:
            return None if self.columns is None else list(dict.fromkeys(self.columns))
        unknown = set(self.drop).difference(names)
        if unknown:
            fail(f"There is no column {min(unknown)!r} to drop.")
        dropped = {*self.drop, self.target}
        chosen = names if self.columns is None else dict.fromkeys(self.columns)
        return [name for name in chosen if name not in dropped]


@dataclass(frozen=True)
class _ForestOptions:
    """Parameters of the forest."""

    trees: int
    min_samples_split: int | None
    paper: bool
    mean_function: str | None
    jobs: int
    seed: int

    def parameters(self) -> dict[str, Any]:
        """Return parameters of ``MondrianForestRegressor``."""
        from mondrian_forest import PAPER

        parameters: dict[str, Any] = {
            "n_estimators": self.trees,
            "n_jobs": self.jobs,
            "random_state": self.seed,
        }
        if self.paper:
            parameters |= PAPER
        if self.mean_function is not None:
            is_none = self.mean_function == "none"
            parameters["mean_function"] = None if is_none else self.mean_function
        if self.min_samples_split is not None:
            parameters["min_samples_split"] = self.min_samples_split
        return parameters


@dataclass(frozen=True)
class _Cluster:
    """Dask processes: a number of local workers, or the address of a scheduler."""

    workers: int | None
    address: str | None


@dataclass(frozen=True)
class _Task:
    """What to learn, and where to save the model."""

    target: str
    options: dict[str, Any]
    """Options of ``fit_batches`` and of ``fit_files``, which take the same."""
    output: Path
    keeps_rows: bool


def _open_files(
    source: _Source, choice: _ColumnChoice, output: Path
) -> tuple[list[TableFile], list[str] | None]:
    """Return the files that match the pattern, and the columns to learn from.

    Columns that are not needed will not be read.
    """
    with messages().status("Loading ..."):
        import mondrian_forest.tables.learning  # noqa: F401 (needed later, and slow to import)
        from mondrian_forest.io.replace import check_replaceable
        from mondrian_forest.tables import TableFile
        from mondrian_forest.tables.files import find_files

    check_replaceable(output)
    paths = find_files(source.pattern)
    refuse_to_overwrite(paths, output)
    chosen = choice.among(TableFile(paths[0], delimiter=source.delimiter).names)
    needed = None if chosen is None else [*chosen, choice.target]
    files = [TableFile(path, delimiter=source.delimiter, columns=needed) for path in paths]
    return files, chosen


def _fit_here(source: _Source, files: list[TableFile], holdout: float, task: _Task) -> Learned:
    """Fit in this process, and save the model."""
    from mondrian_forest.tables.learning import fit_batches

    counts = [file.n_rows for file in files]
    total = None if None in counts else sum(count or 0 for count in counts)
    with progress_shown("Learning", total) as progress:
        bar = progress.task_ids[0]
        learned = fit_batches(
            _tables(source, files),
            task.target,
            holdout=holdout,
            on_rows=lambda n_rows: progress.update(bar, completed=n_rows),
            **task.options,
        )
        progress.update(bar, description="Saving")
        learned.model.save(task.output, rows=task.keeps_rows)
    return learned


def _tables(source: _Source, files: list[TableFile]) -> Iterable[Any]:
    """Return the tables to learn, one after the other: batches, or one table of all rows."""
    from mondrian_forest.tables.files import concatenated

    if source.batch_rows is None:
        return [concatenated([file.read() for file in files])]
    batch_rows = source.batch_rows
    return chain.from_iterable(file.batches(batch_rows) for file in files)


def _fit_on_cluster(
    cluster: _Cluster, source: _Source, files: list[TableFile], task: _Task
) -> Learned:
    """Fit with Dask processes, and save the model."""
    from mondrian_forest.distributed.collections import ClusterLost
    from mondrian_forest.distributed.tables import fit_files
    from mondrian_forest.tables.learning import Learned

    with messages().status("Starting processes ...") as status, _connect(cluster) as client:
        try:
            model = fit_files(
                [file.path.resolve() for file in files],
                task.target,
                delimiter=source.delimiter,
                keep_rows=task.keeps_rows,
                client=client,
                progress=lambda what, count: status.update(f"Learning: {count:,} {what}"),
                **task.options,
            )
        except ClusterLost as error:
            fail(str(error))
    model.save(task.output, rows=task.keeps_rows)
    return Learned(model, None, 0)


def _connect(cluster: _Cluster) -> Any:
    """Return a Dask client that is connected to the cluster."""
    from mondrian_forest.distributed.collections import Client

    try:
        if cluster.address is not None:
            return Client(cluster.address, timeout=10)
        return Client(
            n_workers=cluster.workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            direct_to_workers=True,
        )
    except (OSError, TimeoutError, ValueError) as error:
        if cluster.address is not None:
            fail(f"There is no Dask scheduler at {cluster.address!r}.")
        fail(f"The Dask worker processes could not be started: {error}.")


def _print_summary(learned: Learned, output: Path, seconds: float, as_json: bool) -> None:
    model = learned.model
    result: dict[str, Any] = {
        "rows": model.forest.n_samples_seen_,
        "features": len(model.encoder.feature_names),
        "seconds": seconds,
    }
    if learned.scores is not None:
        result |= {"rows held out": learned.n_held_out, **learned.scores}
    print_result(result | {"model": str(output)}, as_json)
    if not as_json:
        tell(f"Next: mondrian predict {output} NEW.csv --quantiles 0.05,0.5,0.95")
