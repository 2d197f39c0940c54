"""Batch sampling of Mondrian trees (Alg. 1 and 2 of the paper).

A node owns a contiguous range of rows. Splitting a node partitions its range in place::

    rows    [.. a ..................... b ..)   node j
    rows    [.. a ....... m) [m ....... b ..)   left_child[j], left_child[j] + 1

Each tree has its own copy of the rows, so that a range is read front to back; following an index
into a shared table would miss the cache at every row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box, copy_box, total_extent
from ..arrays.kernel import inner_kernel, kernel, wide
from ..arrays.rng import exponential, uniform
from ..arrays.tree import NO_CHILD, Records, Tree
from ..arrays.vector import are_vectors, divide_vectors, padded_width, partition_vectors

MANY_FEATURES = 128
"""From more on, it is faster to search for the feature of a cut than to count up to it."""


class Cuts(NamedTuple):
    """Cuts that may be made through a node, in fours: the last ones may stand there for nothing."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    """As drawn; rounded down to single precision it separates the same rows."""
    sum_left: NDArray[np.float64]
    """Of the deviations of labels on the left."""
    n_left: NDArray[np.float64]
    side_ends: NDArray[np.float64]
    """By feature: length of all sides of the box up to this one."""
    deviation: NDArray[np.float64]
    """By position: label less that of the node's first row."""


class Scratch(NamedTuple):
    """What sampling works with besides its rows."""

    boxes: NDArray[np.float32]
    """That of ``divide``."""
    waiting: NDArray[np.int64]
    """Nodes still to be sampled; each has rows of its own, so there are never more than rows."""
    cuts: Cuts


@kernel
def sample_cut(
    random_state: NDArray[np.uint64],
    boxes: NDArray[np.float32],
    node: int,
    extent: float,
) -> tuple[int, np.float32]:
    """Draw feature and threshold of a cut through a node of positive extent (Alg. 2, lines 5, 6).

    The feature is drawn in proportion to its side, the threshold uniformly from its side, so that
    ``lower <= threshold < upper`` and neither side is empty.
    """
    position = uniform(random_state) * extent
    feature = 0
    for f in range(boxes.shape[2]):
        side = np.float64(boxes[node, 1, f]) - np.float64(boxes[node, 0, f])
        if side > 0.0:
            # Remembered in case rounding carries the position past the last side.
            feature = f
            if position < side:
                break
            position -= side
    return feature, uniform_between(random_state, boxes[node, 0, feature], boxes[node, 1, feature])


@kernel
def rounded_down(exact: float) -> np.float32:
    """Return the largest single precision number that is not above a double precision one."""
    rounded = np.float32(exact)
    if np.float64(rounded) > exact:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return rounded


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
        if draw < high:  # else the exact draw was rounded up, in double precision
            return draw


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
    boxes: NDArray[np.float32],
    left: int,
    scratch: NDArray[np.float32],
) -> int:
    """Partition rows as above, and fill in the boxes of the two sides.

    They are those of the nodes ``left`` and ``left + 1``; ``scratch`` has the shape
    (2, 2, columns of rows). The box of an empty side is undefined.
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


@kernel
def allocate_cuts(n_cuts: int, n_features: int, n_rows: int) -> Cuts:
    """Return the scratch space of ``choose_cut``; next to none if there is nothing to choose."""
    n_padded = (n_cuts + 3) // 4 * 4
    return Cuts(
        np.empty(n_padded, dtype=np.int64),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_features),
        np.empty(n_rows if n_cuts > 1 else 0),
    )


@kernel
def allocate_scratch(n_cuts: int, n_features: int, n_rows: int) -> Scratch:
    """Return the scratch space of ``sample_block`` for so many rows at most.

    It is allocated once for many blocks: for the ten rows of a leaf, eight allocations take as long
    as sampling them. And once a tree has begun to change, no allocation may fail.
    """
    boxes = np.empty((2, 2, padded_width(n_features)), dtype=np.float32)
    waiting = np.empty(n_rows + 1, dtype=np.int64)
    return Scratch(boxes, waiting, allocate_cuts(n_cuts, n_features, n_rows))


@kernel
def choose_cut(
    random_state: NDArray[np.uint64],
    boxes: NDArray[np.float32],
    node: int,
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64],
    start: int,
    stop: int,
    n_cuts: int,
    cuts: Cuts,
) -> tuple[int, np.float32]:
    """Draw several cuts and return the one that separates the labels best.

    That is the one with the largest sum of squares between its sides.
    """
    features, thresholds, sums, counts, side_ends, deviations = cuts
    _draw_cuts(random_state, boxes, node, n_cuts, features, thresholds, side_ends)
    origin = labels[row_order[start]]  # deviations keep their digits in the sums
    total = 0.0
    for i in range(start, stop):
        deviation = labels[row_order[i]] - origin
        deviations[i] = deviation
        total += deviation
    for c in range(len(features)):
        sums[c] = 0.0
        counts[c] = 0.0
    for first in range(start, stop, 256):  # rows that stay in the cache for all cuts
        end = min(first + 256, stop)
        for c in range(0, len(features), 4):
            _count_left(rows, deviations, first, end, features, thresholds, c, sums, counts)
    mean = total / (stop - start)
    best = 0
    most = -1.0
    for c in range(n_cuts):
        n_left = counts[c]
        between = sums[c] - n_left * mean
        between *= between / (n_left * (stop - start - n_left))
        if between > most:
            best, most = c, between
    return features[best], rounded_down(thresholds[best])


@kernel
def _count_left(
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
    """Add what four cuts leave on their left; their sums stay in registers, side by side.

    Whether a row is on the left is a number to multiply with, since a branch would be mispredicted
    half of the time: 1 ns for each row and cut, 6 ns with branches.
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
def _draw_cuts(
    random_state: NDArray[np.uint64],
    boxes: NDArray[np.float32],
    node: int,
    n_cuts: int,
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
            last = f  # in case rounding carries a position past the last side
    for c in range(n_cuts):
        position = uniform(random_state) * end
        feature = 0
        if n_features <= MANY_FEATURES:
            for f in range(n_features):  # counts the sides that end before it, in vector registers
                feature += side_ends[f] <= position
        else:  # finds the same by halving
            stop = n_features
            while feature < stop:
                middle = (feature + stop) // 2
                if side_ends[middle] <= position:
                    feature = middle + 1
                else:
                    stop = middle
        feature = min(feature, last)
        low, high = np.float64(boxes[node, 0, feature]), np.float64(boxes[node, 1, feature])
        threshold = high
        while threshold >= high:  # but for rounding, the first draw is below
            threshold = low + uniform(random_state) * (high - low)
        features[c] = feature
        thresholds[c] = threshold
    for c in range(n_cuts, len(features)):
        features[c], thresholds[c] = features[0], thresholds[0]


@kernel
def sample_block(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64] | None,
    start_time: float,
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    random_state: NDArray[np.uint64],
    tree: Tree,
    root: int,
    n_nodes: int,
    scratch: Scratch,
) -> int:
    """Sample the subtree of one block of rows from ``start_time`` on (Alg. 2, without recursion).

    The subtree's root is node ``root``, whose box is there already; its other nodes are appended
    behind the ``n_nodes`` that exist; returns their new number. ``rows``, which has
    ``padded_width`` columns, and ``row_order`` are permuted as ``RowOrder`` says. ``labels``, by
    row number, are there if a cut is to be chosen among several; None is a type, so that without
    them the code for this is not compiled, which takes seconds.
    """
    nodes, boxes, tallies = tree
    scratch_boxes, waiting, cuts = scratch
    n_nodes_before = n_nodes
    start = wide(0)
    stop = len(rows)
    _await_sampling(nodes, tallies, root, start, stop, start_time)
    waiting[0] = root
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        record = nodes[node]
        start = wide(tallies[node].first_row)
        stop = start + tallies[node].n_samples
        parent_time = record.split_time
        record.split_time = np.inf
        if stop - start < min_samples_split:
            continue
        extent = total_extent(boxes, node)
        if extent == 0.0:
            continue
        split_time = parent_time + exponential(random_state, extent)
        if split_time >= lifetime:
            continue
        if labels is None:  # noqa: SIM114 - a branch of its own, or Numba would compile all
            feature, threshold = sample_cut(random_state, boxes, node, extent)
        elif n_candidate_splits == 1 or stop - start == 2:  # all cuts do the same to two rows
            feature, threshold = sample_cut(random_state, boxes, node, extent)
        else:
            feature, threshold = choose_cut(
                random_state,
                boxes,
                node,
                rows,
                row_order,
                labels,
                start,
                stop,
                n_candidate_splits,
                cuts,
            )
        middle = divide(
            rows, row_order, start, stop, feature, threshold, boxes, n_nodes, scratch_boxes
        )
        record.left_child = n_nodes
        record.split_feature = feature
        record.threshold = threshold
        record.split_time = split_time
        _await_sampling(nodes, tallies, n_nodes, start, middle, split_time)
        _await_sampling(nodes, tallies, n_nodes + 1, middle, stop, split_time)
        waiting[n_waiting] = n_nodes + 1
        waiting[n_waiting + 1] = n_nodes  # on top, to be sampled first
        n_waiting += 2
        n_nodes += 2
    for node in range(n_nodes - 1, n_nodes_before - 1, -1):  # children before parents
        _set_height(nodes, tallies, node)
    _set_height(nodes, tallies, root)
    return n_nodes


@kernel
def sample_alone(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    labels: NDArray[np.float64] | None,
    start_time: float,
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    random_state: NDArray[np.uint64],
    tree: Tree,
) -> int:
    """Sample a block as ``sample_block`` does, as the whole of a tree whose root has its box."""
    return sample_block(
        rows,
        row_order,
        labels,
        start_time,
        min_samples_split,
        n_candidate_splits,
        lifetime,
        random_state,
        tree,
        0,
        1,
        allocate_scratch(n_candidate_splits, tree.boxes.shape[2], len(rows)),
    )


@inner_kernel
def _await_sampling(
    nodes: Records, tallies: Records, node: int, start: int, stop: int, parent_time: float
) -> None:
    """Make a leaf of a node that may be split; its own time is not known yet."""
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


@kernel
def _set_height(nodes: Records, tallies: Records, node: int) -> None:
    """Set the height of a node from those of its children."""
    left = nodes[node].left_child
    if left != NO_CHILD:
        tallies[node].height = 1 + max(tallies[left].height, tallies[left + 1].height)


def sample_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_order: NDArray[np.int32],
    scratch: NDArray[np.float32],
) -> int:
    """Sample a Mondrian tree on all ``rows`` (Alg. 1); return its number of nodes.

    Parameters
    ----------
    rows : array of shape (n_rows, n_features), C-contiguous float32, left untouched
    labels : array of shape (n_rows,), which matters only if a cut is chosen among several
    min_samples_split : int, at least 2
    n_candidate_splits : int, at least 1
    lifetime : float, positive, may be infinite
    random_state : uint64 array of shape (4,), advanced in place
    tree : arrays with room for 2 n_rows - 1 nodes, filled in
    row_order : array of shape (n_rows,), filled in
    scratch : array of shape (n_rows, padded_width(n_features)) whose content does not matter
    """
    scratch[:, : rows.shape[1]] = rows
    row_order[0], row_order[1:] = 0, 1
    np.cumsum(row_order, out=row_order)  # counts up, without another array as large
    bounding_box(scratch, 0, len(rows), tree.boxes, 0)
    return sample_alone(
        scratch,
        row_order,
        labels if n_candidate_splits > 1 else None,
        0.0,
        min_samples_split,
        n_candidate_splits,
        lifetime,
        random_state,
        tree,
    )
