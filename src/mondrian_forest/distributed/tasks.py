"""What workers do with their parts of the rows, task by task.

All tasks are pure: what is lost with a worker is computed again from what it was computed from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.grove import allocate_grove
from .._core.arrays.vector import padded_width
from .._core.features import survey_features, survey_labels
from .._core.growth import Growth
from .._core.growth.top import (
    Candidates,
    Cuts,
    Left,
    Reports,
    Subtree,
    follow_cuts,
    grow_subtree,
    look_left,
    no_reports,
    report,
    sort_by_block,
)
from .._core.moments import Moments
from .._forest.label_limits import LabelLimits
from .._forest.mean_function import MeanFunction, residuals
from .._forest.scaling import Scaling
from .collections import plain


class Part(NamedTuple):
    """The rows of a partition as the trees see them, on their worker."""

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    means: NDArray[np.float64]
    """What has been subtracted from the labels."""
    first: int
    """Number of its first row among all."""


class Known(NamedTuple):
    """What the mean function says of those rows of a partition to which it was fitted."""

    rows: NDArray[np.int64]
    means: NDArray[np.float64]
    """By the model that has not seen the label."""


NOTHING_KNOWN = Known(np.empty(0, np.int64), np.empty(0))
NO_LIMITS = LabelLimits()


class Survey(NamedTuple):
    """What one partition says about all rows."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sums: Moments
    lowest_label: float
    highest_label: float


def survey(
    number: int,
    X: Any,
    y: Any,
    names: Any,
    limits: LabelLimits = NO_LIMITS,
    function: MeanFunction | None = None,
    known: Known = NOTHING_KNOWN,
) -> Survey | None:
    """Return ranges and moments of what trees see of a partition; None if it is empty."""
    table, labels = plain(number, X, y, names)
    if len(table) == 0:
        return None
    if survey_labels(labels)[2] > 1e150:
        raise ValueError(f"Partition {number} of y exceeds 1e150 in size: rescale y.")
    columns, labels, _ = _seen_by_trees(table, labels, limits, function, known)
    low, high = np.full(columns.shape[1], np.inf), np.full(columns.shape[1], -np.inf)
    survey_features(columns, low, high)
    sums = Moments(len(labels), *survey_labels(labels)[:2])
    return Survey(low, high, sums, float(labels.min()), float(labels.max()))


def _seen_by_trees(
    table: NDArray[Any],
    labels: NDArray[np.float64],
    limits: LabelLimits,
    function: MeanFunction | None,
    known: Known,
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
    """Return columns and labels as trees see them, and what has been subtracted from the labels."""
    labels = limits.apply(labels)
    if function is None or len(table) == 0:
        return table, labels, np.zeros(len(labels))
    values = function.writeable().at(table)
    values[known.rows] = known.means
    offset = function.offset(values)
    return function.columns(table, values), residuals(labels, offset), offset


def pick(
    number: int, X: Any, y: Any, names: Any, chosen: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return some rows of a partition, with their labels."""
    if len(chosen) == 0:
        return np.empty((0, 0)), np.empty(0)
    table, labels = plain(number, X, y, names)
    return table[chosen], labels[chosen]


def scale(
    number: int,
    X: Any,
    y: Any,
    names: Any,
    held: NDArray[np.int64],
    first: int,
    scaling: Scaling,
    limits: LabelLimits,
    function: MeanFunction | None,
    known: Known,
) -> Part:
    """Return the rows of a partition as the trees see them, but for those that are held out."""
    table, labels = plain(number, X, y, names)
    columns, labels, means = _seen_by_trees(table, labels, limits, function, known)
    is_used = np.ones(len(table), bool)
    is_used[held] = False
    rows = np.empty((int(is_used.sum()), len(scaling.weights)), np.float32)
    if len(rows) > 0:
        scaling.writeable().apply(np.ascontiguousarray(columns[is_used]), rows)
    return Part(rows, labels[is_used], means[is_used], first)


def first_blocks(part: Part, n_trees: int) -> NDArray[np.int32]:
    """Return the block of each row in each tree at the beginning: the root."""
    return np.zeros((n_trees, len(part.rows)), np.int32)


def report_blocks(
    part: Part, blocks: NDArray[np.int32], asked: list[tuple[int, int, int]]
) -> list[Reports]:
    """Return box and label moments of blocks, as far as a part knows them."""
    found = []
    for number, first, n_blocks in asked:
        reports = no_reports(n_blocks, part.rows.shape[1])
        report(part.rows, part.labels, blocks[number], first, reports)
        found.append(reports)
    return found


def look_left_of_cuts(
    part: Part, blocks: NDArray[np.int32], asked: list[tuple[int, Candidates]]
) -> list[Left]:
    """Return what candidate cuts leave on their left, as far as a part knows."""
    found = []
    for number, candidates in asked:
        shape = candidates.feature.shape
        left = Left(np.zeros(shape, np.int64), np.zeros(shape))
        look_left(part.rows, part.labels, blocks[number], candidates, left)
        found.append(left)
    return found


def join(found: list[list[Any]]) -> list[Any]:
    """Join what partitions say about each tree, in their order."""
    joined = found[0]
    for more in found[1:]:
        joined = [one.joined(other) for one, other in zip(joined, more, strict=True)]
    return joined


def advance(part: Part, blocks: NDArray[np.int32], cuts: dict[int, Cuts]) -> NDArray[np.int32]:
    """Return the block of each row after cuts have been made."""
    moved = blocks.copy()
    for number, one in cuts.items():
        follow_cuts(part.rows, one, moved[number])
    return moved


class Piece(NamedTuple):
    """What one part has of a group of closed blocks, block by block."""

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    numbers: NDArray[np.int32]
    """Among all rows; empty if they are not kept."""
    counts: NDArray[np.int64]
    """Of rows, by block."""


def split(
    part: Part,
    blocks: NDArray[np.int32],
    number: int,
    groups: list[list[int]],
    keep_rows: bool,
) -> list[Piece]:
    """Return the rows of each group of closed blocks."""
    closed = np.concatenate([np.array(group, np.int64) for group in groups])
    n_blocks = max(int(blocks[number].max(initial=0)), int(closed.max())) + 1
    counts = np.bincount(blocks[number], minlength=n_blocks)
    ends = np.cumsum(counts[closed])
    place = np.full(n_blocks, -1, np.int64)
    place[closed] = ends - counts[closed]
    rows = np.empty((ends[-1], part.rows.shape[1]), np.float32)
    labels, numbers = np.empty(ends[-1]), np.empty(ends[-1], np.int32)
    sort_by_block(part.rows, part.labels, blocks[number], place, rows, labels, numbers)
    numbers += np.int32(part.first)
    found, start = [], 0
    for group in groups:
        stop = start + int(counts[group].sum())
        kept = numbers[start : stop if keep_rows else start]
        found.append(Piece(rows[start:stop], labels[start:stop], kept, counts[group]))
        start = stop
    return found


def grow_group(
    pieces: list[Piece], seeds: dict[int, tuple[float, NDArray[np.uint64]]], growth: Growth
) -> dict[int, tuple[Subtree, NDArray[np.int32]]]:
    """Return subtrees, and their rows in the order of their nodes, by their blocks."""
    counts = np.array([piece.counts for piece in pieces])  # by part and block
    n_features = pieces[0].rows.shape[1]
    most = int(counts.sum(axis=0).max())
    rows, labels = np.empty((most, padded_width(n_features)), np.float32), np.empty(most)
    room = allocate_grove(1, most, n_features, is_linked=False).room(0)
    ends = np.cumsum(counts, axis=1)
    found = {}
    for place, (block, (start_time, random_state)) in enumerate(seeds.items()):
        stops = ends[:, place].tolist()
        inside = [
            slice(stop - count, stop)
            for stop, count in zip(stops, counts[:, place].tolist(), strict=True)
        ]
        size = 0
        for piece, one in zip(pieces, inside, strict=True):
            new = slice(size, size + one.stop - one.start)
            rows[new, :n_features] = piece.rows[one]
            labels[new] = piece.labels[one]
            size = new.stop
        subtree, order = grow_subtree(
            rows[:size],
            labels[:size],
            start_time,
            growth,
            random_state.copy(),
            room,
        )
        numbers = np.concatenate(
            [piece.numbers[one] for piece, one in zip(pieces, inside, strict=True)]
        )
        found[block] = subtree, numbers[order] if len(numbers) > 0 else numbers
    return found


def rows_of(
    part: Part, blocks: NDArray[np.int32], number: int, wanted: list[int]
) -> list[NDArray[np.int32]]:
    """Return the numbers of the rows in some blocks."""
    return [
        (np.flatnonzero(blocks[number] == block) + part.first).astype(np.int32) for block in wanted
    ]
