"""Dask collections as lists of partitions, each checked where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._forest.validation import refuse_what_is_no_number

try:
    import dask
    import dask.array
    import dask.dataframe
    from distributed import Client, KilledWorker, default_client, wait
    from distributed.comm.core import CommClosedError
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "This needs Dask: pip install 'mondrian-forest[dask]'.", name="dask"
    ) from None

__all__ = [
    "Client",
    "ClusterLost",
    "Table",
    "cluster_told",
    "dask",
    "find_client",
    "open_table",
    "wait",
]


class ClusterLost(RuntimeError):  # noqa: N818 - no defect of ours
    """The scheduler is gone, tasks were cancelled, or workers have too little memory."""


@contextmanager
def cluster_told(client: Client | None = None) -> Iterator[None]:
    """Turn the ways in which a cluster can be lost into one.

    Which error comes depends on the moment, so the client is asked whether it is still there.
    """
    try:
        yield
    except KilledWorker as error:
        raise ClusterLost(
            "A task ended several workers, as when they run out of memory: use more workers, "
            "smaller partitions or a smaller block_rows."
        ) from error
    except ClusterLost:
        raise
    except Exception as error:
        is_lost = isinstance(error, CancelledError | CommClosedError)
        if not is_lost and (client is None or client.status == "running"):
            raise  # what a task could not read, for example
        raise ClusterLost(
            f"The Dask cluster was lost, or the work was cancelled: {type(error).__name__}. "
            "Start a cluster and fit again."
        ) from error


def find_client(client: Client | None) -> Client:
    """Return the client to use."""
    if client is not None:
        return client
    try:
        return default_client()
    except ValueError:
        raise ValueError(
            "There is no Dask client: make one, as in Client('tcp://...') or Client(n_workers=2)."
        ) from None


class Table(NamedTuple):
    """A collection as pairs of partitions, not computed yet."""

    pairs: list[tuple[Any, Any]]
    """Features and labels of each partition; labels are None or a column's name, too."""
    names: list[str] | None


def open_table(X: Any, y: Any = None) -> Table:
    """Return the partitions of a Dask DataFrame or array, with labels beside it or in a column."""
    if isinstance(X, dask.dataframe.DataFrame):
        names = [str(name) for name in X.columns]
        parts = X.to_delayed()
        if isinstance(y, str):
            if y not in names:
                raise ValueError(f"There is no column {y!r}: there are {', '.join(names)}.")
            return Table([(part, y) for part in parts], [name for name in names if name != y])
    elif isinstance(X, dask.array.Array):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {X.ndim}.")
        names = None
        parts = X.rechunk({1: -1}).to_delayed().ravel().tolist()
    else:
        raise ValueError(
            f"X must be a Dask DataFrame or a Dask array, got {type(X).__name__}: use fit of the "
            "forest for what is in memory."
        )
    if y is None:
        return Table([(part, None) for part in parts], names)
    if isinstance(y, dask.dataframe.Series | dask.dataframe.DataFrame):
        label_parts = y.to_delayed()
    elif isinstance(y, dask.array.Array):
        label_parts = y.to_delayed().ravel().tolist()
    else:
        raise ValueError(
            "y must be a Dask series or array, or the name of a column of a Dask DataFrame, "
            f"got {type(y).__name__}."
        )
    if len(label_parts) != len(parts):
        raise ValueError(f"X has {len(parts)} partitions, and y {len(label_parts)}.")
    return Table(list(zip(parts, label_parts, strict=True)), names)


def plain(
    number: int, X: Any, y: Any, names: Sequence[str] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a partition as arrays of finite numbers; errors name its number."""
    if isinstance(y, str):
        X, y = X.drop(columns=y), X[y]
    where = f"Partition {number}"
    if names is not None and [str(name) for name in X.columns] != list(names):
        raise ValueError(
            f"{where} has the columns {', '.join(map(str, X.columns))}, "
            f"and others have {', '.join(names)}."
        )
    table = _numbers(f"{where} of X", X)
    labels = np.empty(len(table)) if y is None else _numbers(f"{where} of y", y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != len(table):
        raise ValueError(f"{where} has {len(table)} rows in X, and y has shape {labels.shape}.")
    return table, labels


def _numbers(where: str, data: Any) -> NDArray[np.float64]:
    dtypes = getattr(data, "dtypes", None)
    if dtypes is not None and not hasattr(dtypes, "items"):  # of a series
        dtypes = {data.name: dtypes}
    if dtypes is not None:
        for name, dtype in dtypes.items():
            if _numpy_dtype(dtype).kind not in "biuf":
                raise ValueError(f"{where} holds {dtype} in column {name!r}, which is no number.")
    refuse_what_is_no_number(where, data)
    try:
        array = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{where} holds values that are no numbers.") from None
    if not np.all(np.isfinite(array)):
        bad = ~np.isfinite(array)
        columns = ""
        if array.ndim == 2:
            named = list(getattr(data, "columns", range(array.shape[1])))
            columns = " in " + ", ".join(str(named[f]) for f in np.flatnonzero(bad.any(axis=0)))
        raise ValueError(f"{where} has NaN or infinite values{columns}.")
    return np.require(array, requirements=["C", "W"])


def _numpy_dtype(dtype: Any) -> Any:
    """Return the NumPy type of a column; of text and others, object."""
    try:
        return np.dtype(getattr(dtype, "numpy_dtype", dtype))
    except TypeError:
        return np.dtype(object)
