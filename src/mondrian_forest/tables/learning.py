"""Fits a model to a table in batches, and evaluates it on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..metrics import summary
from ._arrow import pyarrow as pa
from .encoding import inferred_columns
from .errors import TableError
from .model import TableForest

_MOST_HELD_OUT = 20_000
"""More held-out rows would hardly change the scores, and all of them are kept in memory."""


class Learned(NamedTuple):
    """A fitted model, and its scores on rows that were held out."""

    model: TableForest
    scores: dict[str, float] | None
    n_held_out: int


def fit_batches(
    batches: Iterable[Any],
    target: str,
    *,
    holdout: float = 0.0,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    missing: Sequence[str] = (),
    random_state: int = 0,
    on_rows: Callable[[int], None] = lambda _: None,
    **parameters: Any,
) -> Learned:
    """Fit to the first batch, and learn the others online.

    With ``holdout``, a part of the rows is held out. After all other rows are learned, the held-out
    rows are predicted to score the model. Then they are learned, too.

    Parameters
    ----------
    batches : iterable of pyarrow.Table
    target : str
    holdout : float, default=0
        Fraction of the rows to hold out.
    columns, text, missing
        As for ``TableForest.fit``.
    random_state : int, default=0
    on_rows : callable
        Is called with the number of rows that have been read.
    **parameters
        Passed to ``TableForest.fit``.
    """
    model: TableForest | None = None
    held_out = _HeldOutRows(holdout, random_state)
    n_read = 0
    options: dict[str, Any] = {"columns": columns, "text": text, "missing": missing}
    for batch in batches:
        n_read += len(batch)
        # Text is read in the whole batch, before some of its rows are held out.
        if model is None:
            typed = pa.table(inferred_columns(batch, target, **options))
        else:
            typed = model.encoder.typed(batch)
        rows = held_out.divide(typed)
        if model is not None:
            model.partial_fit(rows)
        elif len(rows) > 0:
            model = TableForest.fit(
                rows, target, random_state=random_state, **options, **parameters
            )
        if model is not None:
            for rows in held_out.released():
                model.partial_fit(rows)
        on_rows(n_read)
    if n_read == 0:
        raise TableError("The table has no rows.")
    if model is None or (holdout > 0.0 and len(held_out) == 0):
        raise TableError(f"With {n_read} rows, too few are left to learn or to hold out.")
    scores = _score_and_learn(model, held_out.tables) if len(held_out) > 0 else None
    return Learned(model, scores, len(held_out))


class _HeldOutRows:
    """A random part of all rows, at most ``_MOST_HELD_OUT`` of them.

    Each row gets a random key from 0 to 1, and is held out while its key is less than the share. If
    there are too many rows, the share is halved. So old and new rows are always equally likely to
    be held out.
    """

    def __init__(self, share: float, random_state: int) -> None:
        self._share = share
        self._random = np.random.default_rng(random_state)
        self._parts: list[tuple[Any, NDArray[np.float64]]] = []

    def __len__(self) -> int:
        return sum(len(keys) for _, keys in self._parts)

    @property
    def tables(self) -> list[Any]:
        """The rows that are held out now."""
        return [rows for rows, _ in self._parts if len(rows) > 0]

    def divide(self, table: Any) -> Any:
        """Hold out some rows of a table, and return the others."""
        keys = self._random.random(len(table))
        held_out, others = _divided(table, keys < self._share)
        self._parts.append((held_out, keys[keys < self._share]))
        return others

    def released(self) -> Iterator[Any]:
        """Yield rows that are not held out any more, because there are too many."""
        while len(self) > _MOST_HELD_OUT:
            self._share *= 0.5
            for k, (rows, keys) in enumerate(self._parts):
                still_held_out, others = _divided(rows, keys < self._share)
                self._parts[k] = still_held_out, keys[keys < self._share]
                if len(others) > 0:
                    yield others


def _divided(table: Any, is_first: NDArray[np.bool_]) -> tuple[Any, Any]:
    return table.filter(pa.array(is_first)), table.filter(pa.array(~is_first))


def _score_and_learn(model: TableForest, tables: list[Any]) -> dict[str, float]:
    """Return the scores of a model on new rows, and then let it learn them."""
    X = np.concatenate([model.encoder.features(rows) for rows in tables])
    y = np.concatenate([model.encoder.labels(rows) for rows in tables])
    scores = summary(y, model.forest.predict_distribution(X))
    model.forest.partial_fit(X, y)
    return scores
