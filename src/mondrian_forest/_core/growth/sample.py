"""Batch sampling of Mondrian trees (Alg. 1 and 2 of the paper).

A node owns a contiguous range of rows. Splitting a node partitions its range in place::

    rows    [.. a ..................... b ..)   node j
    rows    [.. a ....... m) [m ....... b ..)   left_child[j], left_child[j] + 1

Each tree has its own copy of the rows, so that a range is read from front to back. Following an
index into a shared table would miss the cache at every row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import Boxes, bounding_box, copy_box, total_extent
from ..arrays.kernel import inner_kernel, kernel, wide
from ..arrays.rng import exponential, uniform
from ..arrays.tree import NO_CHILD, Records, Tree
from ..arrays.vector import are_vectors, divide_vectors, padded_width, partition_vectors
from . import Growth

MANY_FEATURES = 128
"""With more features, a binary search for the feature of a cut is faster than counting sides."""


class CutScratch(NamedTuple):
    """What ``choose_cut`` works with: candidates come in fours, the last ones may be padding."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    """As drawn. Rounded down to single precision, a threshold separates the same rows."""
    sum_left: NDArray[np.float64]
    """The sum of ``deviation`` on the left."""
    n_left: NDArray[np.float64]
    side_ends: NDArray[np.float64]
    """By feature: the total length of the sides of the box up to this one."""
    deviation: NDArray[np.float64]
    """By position: the label minus the label of the node's first row."""


class Scratch(NamedTuple):
    """What ``sample_block`` works with besides its rows."""

    sides: NDArray[np.float32]
    """Scratch space of ``divide``: the boxes of the two sides of a cut."""
    waiting: NDArray[np.int64]
    """Nodes still to be sampled. Each has rows of its own, so there are never more than rows."""
    cuts: CutScratch


@kernel
def allocate_scratch(n_candidates: int, n_features: int, n_rows: int) -> Scratch:
    """Return the scratch space of ``sample_block`` for at most so many rows.

    It is allocated once for many blocks: for the ten rows of a leaf, eight allocations take as long
    as sampling. And once a tree has begun to change, no allocation may fail.
    """
    boxes = np.empty((2, 2, padded_width(n_features)), dtype=np.float32)
    waiting = np.empty(n_rows + 1, dtype=np.int64)
    return Scratch(boxes, waiting, allocate_cut_scratch(n_candidates, n_features, n_rows))


@kernel
def allocate_cut_scratch(n_candidates: int, n_features: int, n_rows: int) -> CutScratch:
    """Return the scratch space of ``choose_cut``; next to none if there is nothing to choose."""
    n_padded = (n_candidates + 3) // 4 * 4
    return CutScratch(
        np.empty(n_padded, dtype=np.int64),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_features),
        np.empty(n_rows if n_candidates > 1 else 0),
    )


def sample_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_order: NDArray[np.int32],
    scratch: NDArray[np.float32],
) -> int:
    """Sample a Mondrian tree on all ``rows`` (Alg. 1); return its number of nodes.

    Parameters
    ----------
    rows : array of shape (n_rows, n_features), C-contiguous float32, left untouched
    labels : array of shape (n_rows,), used only if there are several candidates for a cut
    growth : Growth
    random_state : uint64 array of shape (4,), advanced in place
    tree : arrays with room for 2 n_rows - 1 nodes, filled in
    row_order : array of shape (n_rows,), filled in
    scratch : array of shape (n_rows, padded_width(n_features)), overwritten
    """
    scratch[:, : rows.shape[1]] = rows
    row_order[0], row_order[1:] = 0, 1
    np.cumsum(row_order, out=row_order)  # np.arange would need another array as large
    bounding_box(scratch, 0, len(rows), tree.boxes, 0)
    labels_to_use = labels if growth.n_candidate_splits > 1 else None
    return sample_alone(scratch, row_order, labels_to_use, 0.0, growth, random_state, tree)


@kernel
def sample_alone(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64] | None,
    start_time: float,
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
) -> int:
    """Sample a block as a tree of its own, whose root has its box; return the number of nodes."""
    scratch = allocate_scratch(growth.n_candidate_splits, tree.boxes.shape[2], len(rows))
    return sample_block(
        rows, row_order, labels, start_time, growth, random_state, tree, 0, 1, scratch
    )


@kernel
def sample_block(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64] | None,
    start_time: float,
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
    root: int,
    n_nodes: int,
    scratch: Scratch,
) -> int:
    """Sample the subtree of a block of rows from ``start_time`` on (Alg. 2, without recursion).

    The root of the subtree is node ``root``, which has its box already. Other nodes are appended
    behind the ``n_nodes`` that exist; the new number of nodes is returned. ``rows``, with
    ``padded_width`` columns, and ``row_order`` are permuted as ``RowOrder`` says. ``labels``, by
    row number, are None unless there are several candidates for each cut: Numba then leaves out the
    code that chooses among them, which takes seconds to compile.
    """
    nodes, boxes, tallies = tree
    # Unpacked: an array taken out of a tuple costs an atomic reference count each time.
    sides, waiting, cuts = scratch
    n_candidates = growth.n_candidate_splits
    first_new = n_nodes
    _set_unsampled(nodes, tallies, root, wide(0), len(rows), start_time)
    waiting[0] = root
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        start = wide(tallies[node].first_row)
        stop = start + tallies[node].n_samples
        parent_time = nodes[node].split_time
        nodes[node].split_time = np.inf
        if stop - start < growth.min_samples_split:
            continue
        extent = total_extent(boxes, node)
        if extent == 0.0:
            continue
        time = parent_time + exponential(random_state, extent)
        if time >= growth.lifetime:
            continue
        if labels is None:  # noqa: SIM114 - a branch of its own, or Numba would compile all
            feature, threshold = sample_cut(random_state, boxes, node, extent)
        elif n_candidates == 1 or stop - start == 2:  # all cuts separate two rows equally
            feature, threshold = sample_cut(random_state, boxes, node, extent)
        else:
            feature, threshold = choose_cut(
                random_state, boxes, node, rows, row_order, labels, start, stop, n_candidates, cuts
            )
        middle = divide(rows, row_order, start, stop, feature, threshold, boxes, n_nodes, sides)
        _set_inner(nodes, node, n_nodes, feature, threshold, time)
        _set_unsampled(nodes, tallies, n_nodes, start, middle, time)
        _set_unsampled(nodes, tallies, n_nodes + 1, middle, stop, time)
        waiting[n_waiting] = n_nodes + 1
        waiting[n_waiting + 1] = n_nodes  # on top, to be sampled first
        n_waiting += 2
        n_nodes += 2
    _set_heights(nodes, tallies, first_new, n_nodes)
    _set_heights(nodes, tallies, root, root + 1)
    return n_nodes


@inner_kernel
def _set_unsampled(
    nodes: Records, tallies: Records, node: int, start: int, stop: int, parent_time: float
) -> None:
    """Make a leaf of a node that may still be split; until then, its time is its parent's."""
    record = nodes[node]
    record.left_child = NO_CHILD
    record.split_feature = -1
    record.threshold = np.float32(np.nan)
    record.split_time = parent_time
    tally = tallies[node]
    tally.first_row = start
    tally.n_samples = stop - start
    tally.height = 0
    tally.evidence_below = 0.0


@inner_kernel
def _set_inner(
    nodes: Records, node: int, left_child: int, feature: int, threshold: np.float32, time: float
) -> None:
    """Make an inner node of a leaf."""
    record = nodes[node]
    record.left_child = left_child
    record.split_feature = feature
    record.threshold = threshold
    record.split_time = time


@kernel
def _set_heights(nodes: Records, tallies: Records, start: int, stop: int) -> None:
    """Set the heights of the nodes from start to stop, which come before their children."""
    for node in range(stop - 1, start - 1, -1):
        left = nodes[node].left_child
        if left != NO_CHILD:
            tallies[node].height = 1 + max(tallies[left].height, tallies[left + 1].height)


@kernel
def sample_cut(
    random_state: NDArray[np.uint64], boxes: Boxes, node: int, extent: float
) -> tuple[int, np.float32]:
    """Draw feature and threshold of a cut through a node of positive extent (Alg. 2, lines 5, 6).

    The feature is drawn in proportion to its side, the threshold uniformly from its side, so that
    ``lower <= threshold < upper`` and neither child is empty.
    """
    position = uniform(random_state) * extent
    feature = 0
    for f in range(boxes.shape[2]):
        side = np.float64(boxes[node, 1, f]) - np.float64(boxes[node, 0, f])
        if side > 0.0:
            feature = f  # the last side is taken if rounding carries the position past its end
            if position < side:
                break
            position -= side
    return feature, uniform_between(random_state, boxes[node, 0, feature], boxes[node, 1, feature])


@kernel
def uniform_between(
    random_state: NDArray[np.uint64], low: np.float32, high: np.float32
) -> np.float32:
    """Draw uniformly from [low, high) and round down to single precision.

    Rounded down, the draw separates the same single precision numbers as the exact one.
    """
    while True:
        draw = rounded_down(
            np.float64(low) + uniform(random_state) * (np.float64(high) - np.float64(low))
        )
        if draw < high:  # not so if the sum was rounded up to ``high`` in double precision
            return draw


@kernel
def rounded_down(exact: float) -> np.float32:
    """Return the largest single precision number that is not above a double precision one."""
    rounded = np.float32(exact)
    if np.float64(rounded) > exact:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return rounded


@kernel
def choose_cut(
    random_state: NDArray[np.uint64],
    boxes: Boxes,
    node: int,
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64],
    start: int,
    stop: int,
    n_candidates: int,
    scratch: CutScratch,
) -> tuple[int, np.float32]:
    """Draw several cuts and return the one that separates the labels best.

    That is the cut with the largest sum of squares between its sides.
    """
    features, thresholds, sums, counts, side_ends, deviations = scratch
    _draw_cuts(random_state, boxes, node, n_candidates, features, thresholds, side_ends)
    origin = labels[row_order[start]]  # sums of deviations keep digits that sums of labels lose
    total = 0.0
    for i in range(start, stop):
        deviation = labels[row_order[i]] - origin
        deviations[i] = deviation
        total += deviation
    for c in range(len(features)):
        sums[c] = 0.0
        counts[c] = 0.0
    for first in range(start, stop, 256):  # rows that stay in the cache for all candidates
        end = min(first + 256, stop)
        for c in range(0, len(features), 4):
            _add_left(rows, deviations, first, end, features, thresholds, c, sums, counts)
    mean = total / (stop - start)
    best = 0
    most = -1.0
    for c in range(n_candidates):
        n_left = counts[c]
        between = sums[c] - n_left * mean
        between *= between / (n_left * (stop - start - n_left))
        if between > most:
            best, most = c, between
    return features[best], rounded_down(thresholds[best])


@kernel
def _draw_cuts(
    random_state: NDArray[np.uint64],
    boxes: Boxes,
    node: int,
    n_candidates: int,
    features: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    side_ends: NDArray[np.float64],
) -> None:
    """Draw cuts as ``sample_cut`` does, with less work for each."""
    n_features = len(side_ends)
    end = 0.0
    last = 0
    for f in range(n_features):
        side = np.float64(boxes[node, 1, f]) - np.float64(boxes[node, 0, f])
        end += side
        side_ends[f] = end
        if side > 0.0:
            last = f  # taken if rounding carries a position past the last side
    for c in range(n_candidates):
        feature = min(_side_at(side_ends, uniform(random_state) * end), last)
        low, high = (np.float64(boxes[node, 0, feature]), np.float64(boxes[node, 1, feature]))
        threshold = high
        while threshold >= high:  # only rounding asks for a second draw
            threshold = low + uniform(random_state) * (high - low)
        features[c] = feature
        thresholds[c] = threshold
    for c in range(n_candidates, len(features)):
        features[c], thresholds[c] = features[0], thresholds[0]


@inner_kernel
def _side_at(side_ends: NDArray[np.float64], position: float) -> int:
    """Return the number of sides that end at a position or before it."""
    n_features = len(side_ends)
    n_before = 0
    if n_features <= MANY_FEATURES:
        for f in range(n_features):  # in vector registers
            n_before += side_ends[f] <= position
        return n_before
    stop = n_features
    while n_before < stop:
        middle = (n_before + stop) // 2
        if side_ends[middle] <= position:
            n_before = middle + 1
        else:
            stop = middle
    return n_before


@kernel
def _add_left(
    rows: NDArray[np.float32],
    deviations: NDArray[np.float64],
    start: int,
    stop: int,
    features: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    c: int,
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add what rows are on the left of four candidates, whose sums stay in registers.

    Whether a row is on the left is a number to multiply with. A branch would be mispredicted half
    of the time: 1 ns for each row and candidate, 6 ns with branches.
    """
    feature0, feature1, feature2, feature3 = (
        features[c],
        features[c + 1],
        features[c + 2],
        features[c + 3],
    )
    threshold0, threshold1, threshold2, threshold3 = (
        thresholds[c],
        thresholds[c + 1],
        thresholds[c + 2],
        thresholds[c + 3],
    )
    sum0 = sum1 = sum2 = sum3 = 0.0
    n0 = n1 = n2 = n3 = 0.0
    for i in range(start, stop):
        deviation = deviations[i]
        is_left = np.float64(rows[i, feature0] <= threshold0)
        sum0 += deviation * is_left
        n0 += is_left
        is_left = np.float64(rows[i, feature1] <= threshold1)
        sum1 += deviation * is_left
        n1 += is_left
        is_left = np.float64(rows[i, feature2] <= threshold2)
        sum2 += deviation * is_left
        n2 += is_left
        is_left = np.float64(rows[i, feature3] <= threshold3)
        sum3 += deviation * is_left
        n3 += is_left
    sums[c] += sum0
    sums[c + 1] += sum1
    sums[c + 2] += sum2
    sums[c + 3] += sum3
    counts[c] += n0
    counts[c + 1] += n1
    counts[c + 2] += n2
    counts[c + 3] += n3


@kernel
def partition(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    start: int,
    stop: int,
    feature: int,
    threshold: np.float32,
) -> int:
    """Move rows with ``row[feature] <= threshold`` to the front; return where the others start."""
    n_columns = rows.shape[1]
    if are_vectors(n_columns):
        return partition_vectors(rows, row_order, start, stop, feature, threshold)
    front = start
    back = stop - 1
    while True:
        while front <= back and rows[front, feature] <= threshold:
            front += 1
        while front <= back and rows[back, feature] > threshold:
            back -= 1
        if front >= back:
            return front
        for f in range(n_columns):
            swapped = rows[front, f]
            rows[front, f] = rows[back, f]
            rows[back, f] = swapped
        swapped_number = row_order[front]
        row_order[front] = row_order[back]
        row_order[back] = swapped_number
        front += 1
        back -= 1


@kernel
def divide(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    start: int,
    stop: int,
    feature: int,
    threshold: np.float32,
    boxes: Boxes,
    left: int,
    scratch: NDArray[np.float32],
) -> int:
    """Partition rows as ``partition`` does, and set the boxes of the two sides.

    These are the boxes ``left`` and ``left + 1``. The box of an empty side is undefined.
    ``scratch`` has the shape (2, 2, columns of rows).
    """
    if are_vectors(rows.shape[1]):
        middle = divide_vectors(rows, row_order, start, stop, feature, threshold, scratch)
        copy_box(scratch, 0, boxes, left)
        copy_box(scratch, 1, boxes, left + 1)
        return middle
    middle = partition(rows, row_order, start, stop, feature, threshold)
    if start < middle:
        bounding_box(rows, start, middle, boxes, left)
    if middle < stop:
        bounding_box(rows, middle, stop, boxes, left + 1)
    return middle
