"""What prediction reads of a forest, and the arrays that it fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.memory import empty
from ..arrays.tree import Records
from ..arrays.vector import padded_width
from ..labels.branching import allocate_branches
from ..labels.exits import ExitComponents, Exits, LabelScratch, Messages, Visits
from ..labels.model import LabelModel


class Ensemble(NamedTuple):
    """All that prediction needs of a forest; the first three are those of ``Grove``."""

    sizes: NDArray[np.int64]
    nodes: Records
    boxes: NDArray[np.float32]
    depth: int
    """Number of edges between the root and the deepest leaf of any tree."""
    model: LabelModel
    lifetime: float


class Walk(NamedTuple):
    """Rows on their way down a tree."""

    rows: NDArray[np.float32]
    """The rows in the order of the tree: those of a group are neighbours."""
    numbers: NDArray[np.int32]
    """Of these rows."""
    groups: NDArray[np.int64]
    """Groups that are still to be followed, the next one last. Columns: node, first row, end of
    rows, visit of the parent."""
    box: NDArray[np.float32]
    """That of the node that is looked at, shape (2, columns of rows); infinite in other columns."""
    outside: NDArray[np.int32]
    """Positions of the rows that are outside of this box."""
    staying: NDArray[np.float64]
    """By row number: the probability that it has not left the tree yet."""
    branching: NDArray[np.float64]
    """By row number: the probability that it branches off above the node that is looked at. Only
    for label models with which rows stop inside."""


class PredictionSpace(NamedTuple):
    """Arrays that are filled for one tree after the other."""

    walk: Walk
    visits: Visits
    exits: Exits
    scratch: LabelScratch
    components: ExitComponents
    sums: NDArray[np.float64]
    """By row number: sums over the exits of a row, one cache line for each."""


def allocate_space(ensemble: Ensemble, n_rows: int) -> PredictionSpace:
    """Return arrays that are large enough for ``n_rows`` rows in any of the trees.

    These are upper bounds: what is not written to takes no memory.
    """
    n_visits, n_exits = _most_visits_and_exits(ensemble, n_rows)

    def integers(length: int) -> NDArray[np.int32]:
        return empty((length,), np.int32)

    def floats(length: int) -> NDArray[np.float64]:
        return empty((length,), np.float64)

    exits = Exits(
        row=integers(n_exits),
        visit=integers(n_exits),
        weight=floats(n_exits),
        branch_off=floats(n_exits),
        distance=floats(n_exits),
    )
    return PredictionSpace(
        allocate_walk(ensemble, n_rows),
        Visits(integers(n_visits), integers(n_visits)),
        exits,
        LabelScratch(Messages(floats(n_visits), floats(n_visits)), allocate_branches()),
        ExitComponents(*(floats(n_exits) for _ in range(5))),
        sums=empty((n_rows, 6), np.float64),
    )


def allocate_walk(ensemble: Ensemble, n_rows: int) -> Walk:
    """Return arrays for the way of ``n_rows`` rows down any of the trees."""
    n_columns = padded_width(ensemble.boxes.shape[3])
    box = np.empty((2, n_columns), np.float32)
    box[0], box[1] = -np.inf, np.inf
    return Walk(
        rows=empty((n_rows, n_columns), np.float32),
        numbers=empty((n_rows,), np.int32),
        groups=empty((ensemble.depth + 2, 4), np.int64),
        box=box,
        outside=empty((n_rows + 1,), np.int32),
        staying=empty((n_rows,), np.float64),
        branching=empty((n_rows,), np.float64),
    )


def _most_visits_and_exits(ensemble: Ensemble, n_rows: int) -> tuple[int, int]:
    n_visits = min(ensemble.nodes.shape[1], n_rows * (ensemble.depth + 1))
    return n_visits, n_rows * (ensemble.depth + 2)


_spare: list[PredictionSpace] = []
"""Arrays for the next prediction of as many rows, of two predictions at most. New memory is slow at
first, and for a single row the allocations would take a quarter of the time."""


@contextmanager
def borrowed_space(ensemble: Ensemble, n_rows: int) -> Iterator[PredictionSpace]:
    """Lend arrays to a prediction: those of an earlier one if they are large enough."""
    try:
        space = _spare.pop()  # from now on no other thread has it
    except IndexError:
        space = allocate_space(ensemble, n_rows)
    n_visits, n_exits = _most_visits_and_exits(ensemble, n_rows)
    if (
        space.walk.rows.shape != (n_rows, padded_width(ensemble.boxes.shape[3]))
        or len(space.walk.groups) < ensemble.depth + 2
        or len(space.visits.node) < n_visits
        or len(space.exits.row) < n_exits
    ):
        space = allocate_space(ensemble, n_rows)
    yield space
    if len(_spare) < 2:
        _spare.append(space)
