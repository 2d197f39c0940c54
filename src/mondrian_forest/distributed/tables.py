"""A table in many files, learned by many processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..forest import MondrianForestRegressor
from ..tables import TableEncoder, TableFile, TableForest
from .collections import Client, dask
from .fit import fit


def fit_files(
    paths: Sequence[Path],
    target: str,
    *,
    columns: Sequence[str] | None = None,
    impute: bool = False,
    text: Sequence[str] = (),
    missing: Sequence[str] = (),
    delimiter: str | None = None,
    random_state: int = 0,
    client: Client | None = None,
    block_rows: int = 200_000,
    keep_rows: bool = True,
    progress: Callable[[str, int], None] | None = None,
    **parameters: Any,
) -> TableForest:
    """Fit to a table in several files; each file, and of Parquet each row group, is a partition.

    How columns become features is decided by the first rows of the first file.

    Parameters
    ----------
    paths : sequence of Path
        All processes must be able to read them.
    target, columns, impute, text, missing, random_state, **parameters
        As for ``TableForest.fit``.
    delimiter : str, default=None
        Of CSV files.
    client, block_rows, keep_rows, progress
        As for :func:`fit`.
    """
    wanted = None if columns is None else [*columns, target]
    first = TableFile(paths[0], delimiter=delimiter, columns=wanted)
    head = next(iter(first.batches()), None)
    if head is None:
        raise ValueError(f"{str(paths[0])!r} has no rows.")
    encoder, codes, _ = TableEncoder.learn(
        head,
        target,
        columns=columns,
        impute=impute,
        text=text,
        missing=missing,
        random_state=random_state,
    )
    description = encoder.to_json()
    rows, labels = [], []
    for path in paths:
        lengths = TableFile(path, delimiter=delimiter).row_groups
        for group, length in enumerate(lengths):
            # Rows that the codes of texts come from have codes that come from others of them.
            n_known = min(len(codes), length or len(codes)) if path == paths[0] else 0
            known, codes = codes[:n_known], codes[n_known:]
            part = dask.delayed(partial(_read, path, group, len(lengths), delimiter, description))(
                known
            )
            shape = (np.nan, len(encoder.feature_names))
            rows.append(dask.array.from_delayed(part[0], shape, np.float64))
            labels.append(dask.array.from_delayed(part[1], (np.nan,), np.float64))
    forest = fit(
        MondrianForestRegressor(random_state=random_state, **parameters),
        dask.array.concatenate(rows, allow_unknown_chunksizes=True),
        dask.array.concatenate(labels, allow_unknown_chunksizes=True),
        client=client,
        block_rows=block_rows,
        keep_rows=keep_rows,
        progress=progress,
    )
    return TableForest(forest, encoder)


def _read(
    path: Path,
    group: int,
    n_groups: int,
    delimiter: str | None,
    text: str,
    known: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    encoder = TableEncoder.from_json(text)
    wanted = [*(column.name for column in encoder.columns), encoder.target]
    file = TableFile(path, delimiter=delimiter, columns=wanted)
    table = file.read_group(group) if n_groups > 1 else file.read()
    X = encoder.features(table)
    X[: len(known)] = known
    return X, encoder.labels(table)
