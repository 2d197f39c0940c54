"""Fit to batches of a table, with an honest evaluation on rows that are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..metrics import summary
from ._arrow import pyarrow as pa
from .encode import typed_columns
from .model import TableForest
from .texts import TableError

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
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    missing: Sequence[str] = (),
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
    columns, text, missing
        As for ``TableForest.fit``.
    random_state : int, default=0
    on_rows : callable
        Is told how many rows have been read.
    **parameters
        Of ``TableForest.fit``.
    """
    random = np.random.default_rng(random_state)
    model: TableForest | None = None
    held: list[tuple[Any, NDArray[np.float64]]] = []
    share = holdout
    n_read = 0
    options: dict[str, Any] = {"columns": columns, "text": text, "missing": missing}
    for batch in batches:
        # All of its rows together tell what text stands for, before some are set aside.
        batch = (
            pa.table(typed_columns(batch, target, **options))
            if model is None
            else model.encoder.typed(batch)
        )
        n_read += len(batch)
        key = random.random(len(batch))
        kept, held_rows = _parted(batch, key >= share)
        held.append((held_rows, key[key < share]))
        if len(kept) > 0:
            if model is None:
                model = TableForest.fit(
                    kept, target, random_state=random_state, **options, **parameters
                )
            else:
                model.partial_fit(kept)
        # A smaller share of all rows, old and new, once there would be too many.
        while model is not None and sum(len(keys) for _, keys in held) > _MOST_HELD_OUT:
            share *= 0.5
            for place, (rows, keys) in enumerate(held):
                released, still_held = _parted(rows, keys >= share)
                if len(released) > 0:
                    model.partial_fit(released)
                held[place] = still_held, keys[keys < share]
        on_rows(n_read)
    if n_read == 0:
        raise TableError("The table has no rows.")
    n_held_out = sum(len(keys) for _, keys in held)
    if holdout > 0.0 and (model is None or n_held_out == 0):
        raise TableError(f"Of {n_read} rows, too few are left to learn or to hold out.")
    assert model is not None
    if n_held_out == 0:
        return Learned(model, None, 0)
    parts = [rows for rows, _ in held if len(rows) > 0]
    X = np.concatenate([model.encoder.features(rows) for rows in parts])
    y = np.concatenate([model.encoder.labels(rows) for rows in parts])
    scores = summary(y, model.forest.predict_distribution(X))
    model.forest.partial_fit(X, y)
    return Learned(model, scores, n_held_out)


def _parted(table: Any, is_kept: NDArray[np.bool_]) -> tuple[Any, Any]:
    return table.filter(pa.array(is_kept)), table.filter(pa.array(~is_kept))
