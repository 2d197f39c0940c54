"""Prediction on Dask collections, lazily, and learning from them partition by partition."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._progress import progress_bar
from ..forest import MondrianForestRegressor
from .collections import cluster_told, dask, open_table, plain


def predict(
    forest: MondrianForestRegressor, X: Any, *, std: bool = False, quantiles: ArrayLike = ()
) -> Any:
    """Predict the rows of a Dask collection, when the result is computed.

    A worker needs memory for the forest and a partition.

    Parameters
    ----------
    forest : MondrianForestRegressor
        Fitted.
    X : dask DataFrame or dask array
    std : bool, default=False
    quantiles : array-like of float
        Levels.

    Returns
    -------
    dask DataFrame or array
        With the columns ``prediction``, ``std`` and such as ``q0.05``.
    """
    check_is_fitted(forest)
    levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if not np.all((levels > 0.0) & (levels < 1.0)):
        raise ValueError(f"quantiles must be between 0 and 1, got {quantiles!r}.")
    columns = ["prediction", *(["std"] if std else []), *(f"q{level:g}" for level in levels)]
    open_table(X)  # refuses what is none
    light = copy.copy(forest).freeze().set_params(n_jobs=1)
    model = dask.delayed(light)  # one object in the graph, sent to a worker once
    if isinstance(X, dask.dataframe.DataFrame):
        meta = dict.fromkeys(columns, np.float64)
        return X.map_partitions(_predict_frame, model, levels, std, columns, meta=meta)
    rows = X.rechunk({1: -1})
    return rows.map_blocks(
        _predict_rows,
        model,
        levels,
        std,
        dtype=np.float64,
        chunks=(rows.chunks[0], (len(columns),)),
        meta=np.empty((0, 0)),
    )


def _predict_rows(
    X: Any, forest: MondrianForestRegressor, levels: NDArray[np.float64], std: bool
) -> NDArray[np.float64]:
    n_columns = 1 + std + len(levels)
    if len(X) == 0:
        return np.empty((0, n_columns))
    mean, deviation = forest.predict(X, return_std=True)
    found = [mean, *([deviation] if std else [])]
    if len(levels) > 0:
        found += list(forest.predict_quantiles(X, levels).T)
    return np.column_stack(found)


def _predict_frame(
    X: Any,
    forest: MondrianForestRegressor,
    levels: NDArray[np.float64],
    std: bool,
    columns: list[str],
) -> Any:
    return type(X)(_predict_rows(X, forest, levels, std), columns=columns, index=X.index)


def learn(
    forest: MondrianForestRegressor,
    data: Any,
    y: Any = None,
    *,
    progress: bool = True,
) -> MondrianForestRegressor:
    """Let a forest learn from a Dask collection, or from any iterator, a batch at a time.

    Parameters
    ----------
    forest : MondrianForestRegressor
        Learns in place, by ``partial_fit``.
    data : dask DataFrame or array, or iterable of pairs (X, y)
    y : dask Series or array, or the name of a column
    progress : bool, default=True
        Whether to show rows and rows per second (on a terminal, with tqdm installed).

    Returns
    -------
    MondrianForestRegressor
        The same.
    """
    batches: Iterable[Sequence[Any]]
    if isinstance(data, dask.dataframe.DataFrame | dask.array.Array):
        batches = _computed(data, y)
    else:
        batches = data
    bar = progress_bar(None, progress, "row")
    start, n_rows = perf_counter(), 0
    for X, labels in batches:
        if len(labels) == 0:
            continue
        forest.partial_fit(X, labels)
        n_rows += len(labels)
        bar.update(len(labels))
        bar.set_postfix_str(f"{n_rows / (perf_counter() - start):,.0f} rows/s", refresh=False)
    bar.close()
    if n_rows == 0:
        raise ValueError("There are no rows to learn.")
    return forest


def _computed(X: Any, y: Any) -> Iterable[tuple[Any, Any]]:
    """Yield the partitions one after the other; with names, as they have names."""
    table = open_table(X, y)
    for number, (part, labels) in enumerate(table.pairs):
        with cluster_told():
            rows, found = dask.compute(part, labels)
        values, checked = plain(number, rows, found, table.names)
        if table.names is not None:
            import pandas

            yield pandas.DataFrame(values, columns=table.names), checked
        else:
            yield values, checked
