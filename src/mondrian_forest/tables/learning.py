"""Fit to batches of a table, with an honest evaluation on rows that are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ..metrics import summary
from ._arrow import pyarrow as pa
from .files import TableError
from .model import TableForest

_MOST_HELD_OUT = 20_000
"""Rows to evaluate on, at most: more would not tell more, and they are kept in memory."""


class Learned(NamedTuple):
    """A fitted model and how good it was on rows that it did not know."""

    model: TableForest
    scores: dict[str, float] | None
    n_held_out: int


def fit_batches(
    batches: Iterable[Any],
    target: str,
    *,
    holdout: float = 0.0,
    random_state: int = 0,
    on_rows: Callable[[int], None] = lambda _: None,
    **parameters: Any,
) -> Learned:
    """Fit to the first batch and learn the others online.

    With ``holdout``, a share of all rows is predicted after the others are learned, then learned.

    Parameters
    ----------
    batches : iterable of pyarrow.Table
    target : str
    holdout : float, default=0
    random_state : int, default=0
    on_rows : callable
        Is told how many rows have been read.
    **parameters
        Of ``TableForest.fit``.
    """
    random = np.random.default_rng(random_state)
    model: TableForest | None = None
    held_out: list[Any] = []
    n_held_out = n_read = 0
    for batch in batches:
        n_read += len(batch)
        is_held = random.random(len(batch)) < holdout
        if n_held_out >= _MOST_HELD_OUT:
            is_held[:] = False
        n_held_out += int(is_held.sum())
        if is_held.any():
            held_out.append(batch.filter(pa.array(is_held)))
            batch = batch.filter(pa.array(~is_held))
        if len(batch) > 0:
            if model is None:
                model = TableForest.fit(batch, target, random_state=random_state, **parameters)
            else:
                model.partial_fit(batch)
        on_rows(n_read)
    if model is None:
        raise TableError("The table has no rows.")
    if n_held_out == 0:
        if holdout > 0.0:
            raise TableError(f"Of {n_read} rows, none is left to hold out: there are too few.")
        return Learned(model, None, 0)
    rows = pa.concat_tables(held_out)
    scores = summary(model.encoder.labels(rows), model.predict_distribution(rows))
    model.partial_fit(rows)
    return Learned(model, scores, n_held_out)
