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
from ..arrays.contests import NO_CONTEST, Contests
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, wide
from ..arrays.rng import exponential
from ..arrays.tree import NO_CHILD, Records, Tree
from ..arrays.vector import are_vectors, divide_vectors, padded_width, partition_vectors
from . import Growth
from .cuts import CutRule, CutScratch, allocate_cut_scratch, cut_rule


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


def sample_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_order: NDArray[np.int32],
    scratch: NDArray[np.float32],
    contests: Contests,
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
    contests : of this tree, filled in as far as there is room
    """
    scratch[:, : rows.shape[1]] = rows
    row_order[0], row_order[1:] = 0, 1
    np.cumsum(row_order, out=row_order)  # np.arange would need another array as large
    bounding_box(scratch, 0, len(rows), tree.boxes, 0)
    rule = cut_rule(growth, labels)
    return sample_alone(scratch, row_order, rule, 0.0, growth, random_state, tree, contests)


@kernel
def sample_alone(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    rule: CutRule,
    start_time: float,
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
    contests: Contests,
) -> int:
    """Sample a block as a tree of its own, whose root has its box; return the number of nodes."""
    scratch = allocate_scratch(growth.n_candidate_splits, tree.boxes.shape[2], len(rows))
    return sample_block(
        rows, row_order, rule, start_time, growth, random_state, tree, contests, 0, 1, scratch
    )


@borrowing_kernel
def sample_block(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    rule: CutRule,
    start_time: float,
    growth: Growth,
    random_state: NDArray[np.uint64],
    tree: Tree,
    contests: Contests,
    root: int,
    n_nodes: int,
    scratch: Scratch,
) -> int:
    """Sample the subtree of a block of rows from ``start_time`` on (Alg. 2, without recursion).

    The root of the subtree is node ``root``, which has its box already. Other nodes are appended
    behind the ``n_nodes`` that exist; the new number of nodes is returned. ``rows``, with
    ``padded_width`` columns, and ``row_order`` are permuted as ``RowOrder`` says. Nodes that keep
    their candidates find places in ``contests``, as long as there are any.
    """
    nodes, boxes, tallies = tree
    # Unpacked: an array taken out of a tuple costs an atomic reference count each time.
    sides, waiting, cuts = scratch
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
        feature, threshold, contest = rule.draw_cut(
            random_state, boxes, node, extent, rows, row_order, start, stop, contests, cuts
        )
        tallies[node].contest = contest
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
    tally.log_gain = 0.0
    tally.contest = NO_CONTEST


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


@borrowing_kernel
def _set_heights(nodes: Records, tallies: Records, start: int, stop: int) -> None:
    """Set the heights of the nodes from start to stop, which come before their children."""
    for node in range(stop - 1, start - 1, -1):
        left = nodes[node].left_child
        if left != NO_CHILD:
            tallies[node].height = 1 + max(tallies[left].height, tallies[left + 1].height)


@borrowing_kernel
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


@borrowing_kernel
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
