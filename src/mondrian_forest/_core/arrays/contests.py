"""The candidate cuts that nodes keep, so that a tree can learn and forget with the law of a batch.

A node is cut at the best of several candidates. If it keeps them, with the labels on the left of
each, a new row can be added to all of them, and the best one is found anew: see ``growth.contest``.

Nodes with few rows keep no candidates. They are sampled anew whenever a row joins or leaves them,
which is exact, too. So only about one node in ten has a contest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel import inner_kernel, kernel, wide
from .memory import empty

NO_CONTEST = -1
FEWEST_ROWS = 8
"""Nodes with fewer rows keep no candidates."""

CANDIDATE = np.dtype(
    (
        np.record,
        [
            ("feature", np.int16),
            ("threshold", np.float32),
            # Number of rows on the left, and the sum of their labels as ``BestCut`` scores them.
            ("n_left", np.int32),
            ("sum_left", np.float64),
        ],
    )
)
"""A contest is a row of k candidates and one more record. The ``sum_left`` of that last record is
the sum of all labels of the node. In a row that is free, its ``n_left`` is the next free row, or
NO_CONTEST. All of a contest is in one place: the way down a tree mostly waits for memory."""


class Contests(NamedTuple):
    """The contests of a tree, or of all trees with one more axis in front."""

    counts: NDArray[np.int64]
    """``[0]``: how many places have been in use. ``[1]``: the first free one, or NO_CONTEST."""
    candidates: NDArray[Any]
    """Of type ``CANDIDATE``, shape (n_places, n_candidates + 1)."""


def allocate_contests(n_trees: int, n_rows: int, n_candidates: int) -> Contests:
    """Return room for the contests of trees with so many rows; none for a single candidate."""
    n_places = n_rows if n_candidates > 1 and n_rows >= FEWEST_ROWS else 0
    counts = np.zeros((n_trees, 2), np.int64)
    counts[:, 1] = NO_CONTEST
    width = n_candidates + 1 if n_candidates > 1 else 0
    return Contests(counts, empty((n_trees, n_places, width), CANDIDATE))


NO_CONTESTS = Contests(*(array[0] for array in allocate_contests(1, 0, 1)))
"""Those of a tree without room for any."""


@kernel
def contests_of(contests: Contests, tree: int) -> Contests:
    """Return the contests of one tree."""
    counts, candidates = contests
    return Contests(counts[tree], candidates[tree])


@inner_kernel
def take_contest(contests: Contests) -> int:
    """Return a place for a contest, or NO_CONTEST if there is none left."""
    counts, candidates = contests
    place = wide(counts[1])
    if place != NO_CONTEST:
        counts[1] = candidates[place, candidates.shape[1] - 1].n_left
        return place
    place = wide(counts[0])
    if place == len(candidates):
        return NO_CONTEST
    counts[0] = place + 1
    return place


@inner_kernel
def give_back_contest(contests: Contests, place: int) -> None:
    """Let the place of a contest be used again; nothing of its rows stays behind."""
    counts, candidates = contests
    for c in range(candidates.shape[1]):
        candidate = candidates[place, c]
        candidate.feature = 0
        candidate.threshold = np.float32(0.0)
        candidate.n_left = 0
        candidate.sum_left = 0.0
    candidates[place, candidates.shape[1] - 1].n_left = counts[1]
    counts[1] = place


@inner_kernel
def copy_contest(source: Contests, place: int, target: Contests, to: int) -> None:
    """Copy one contest."""
    for c in range(source.candidates.shape[1]):
        target.candidates[to, c] = source.candidates[place, c]
