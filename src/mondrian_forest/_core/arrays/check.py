"""Whether arrays from outside are a tree: what the kernels rely on, without looking.

A kernel reads and writes where the arrays tell it to. Arrays that this package has made are right
by construction; those from a file may be damaged, or made to do harm.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .boxes import include_row, join_boxes
from .kernel import AHEAD, kernel, prefetch
from .tree import NO_CHILD, NO_ROW, Records

FAULTS = (
    "",
    "a node has a child that does not exist",
    "a node is not reached from the root, or twice",
    "a node is split by a feature that does not exist",
    "a value of a node is out of its range",
    "the height or the number of rows of a node is wrong",
    "a box is empty or not finite",
    "a row is in no leaf, or in two",
    "a box is not that of the rows in it",
)
"""What ``find_fault`` finds, by number; nothing is 0."""
_LOST, _UNREACHED, _FEATURE, WRONG_VALUE, _TALLY, _BOX, _ROW, _LOOSE = range(1, 9)


@kernel
def find_fault(
    nodes: Records,
    boxes: NDArray[np.float32],
    tallies: Records,
    row_numbers: NDArray[np.int32],
    rows: NDArray[np.float32],
    is_linked: bool,
    n_rows: int,
    reads_boxes: bool,
) -> int:
    """Return the number of the first fault of a tree.

    ``tallies``, ``row_numbers`` and ``rows`` are those of a tree that learns, or, of a frozen one,
    the tally of the root and nothing. Boxes are not looked at without ``reads_boxes``. What the
    label model says of the nodes is for ``labels.model.are_sound`` to check.
    """
    n_nodes = len(nodes)
    learns = len(tallies) == n_nodes and len(row_numbers) == n_rows
    if not learns and len(tallies) != 1:
        return _TALLY
    order = np.empty(n_nodes, dtype=np.int32)  # parents first
    is_found = np.zeros(n_nodes, dtype=np.bool_)
    order[0] = 0
    is_found[0] = True
    n_found = 1
    for place in range(n_nodes):
        if place == n_found:
            return _UNREACHED
        left = nodes[order[place]].left_child
        if left == NO_CHILD:
            continue
        if left < 1 or left > n_nodes - 2:
            return _LOST
        if is_found[left] or is_found[left + 1]:
            return _UNREACHED
        is_found[left] = is_found[left + 1] = True
        order[n_found] = left
        order[n_found + 1] = left + 1
        n_found += 2
    heights = np.zeros(n_nodes, dtype=np.int32)
    for place in range(n_nodes - 1, -1, -1):
        node = order[place]
        record = nodes[node]
        left = record.left_child
        if not (math.isfinite(record.location) and record.split_time >= 0.0):
            return WRONG_VALUE
        if left == NO_CHILD:
            if record.split_time != np.inf:
                return WRONG_VALUE
            continue
        heights[node] = 1 + max(heights[left], heights[left + 1])
        if not 0 <= record.split_feature < boxes.shape[2]:
            return _FEATURE
        if not math.isfinite(record.threshold) or record.split_time == np.inf:
            return WRONG_VALUE
        for child in range(left, left + 2):
            if nodes[child].split_time < record.split_time:
                return WRONG_VALUE
    if tallies[0].height != heights[0] or tallies[0].n_samples != n_rows:
        return _TALLY
    if reads_boxes:
        for node in range(n_nodes):
            for f in range(boxes.shape[2]):
                lower, upper = boxes[node, 0, f], boxes[node, 1, f]
                if not (lower <= upper and math.isfinite(upper - lower)):
                    return _BOX
            feature = nodes[node].split_feature
            if nodes[node].left_child != NO_CHILD and not (
                boxes[node, 0, feature] <= nodes[node].threshold < boxes[node, 1, feature]
            ):
                return _BOX
    if learns:
        for node in range(n_nodes):
            tally = tallies[node]
            left = nodes[node].left_child
            if tally.height != heights[node] or tally.n_samples < 1:
                return _TALLY
            if not (math.isfinite(tally.label_mean) and 0.0 <= tally.squared_deviation < np.inf):
                return _TALLY
            if not math.isfinite(tally.evidence_below):
                return _TALLY
            if left != NO_CHILD:
                of_children = np.int64(tallies[left].n_samples) + tallies[left + 1].n_samples
                if tally.n_samples != of_children:
                    return _TALLY
        if not _holds_every_row_once(nodes, tallies, row_numbers, is_linked):
            return _ROW
        if reads_boxes and not _are_boxes_tight(
            nodes, boxes, tallies, row_numbers, rows, is_linked
        ):
            return _LOOSE
    return 0


@kernel
def _holds_every_row_once(
    nodes: Records, tallies: Records, row_numbers: NDArray[np.int32], is_linked: bool
) -> bool:
    """Whether the leaves divide the rows among them; their numbers of rows add up to all."""
    n_rows = len(row_numbers)
    is_found = np.zeros(n_rows, dtype=np.bool_)
    for node in range(len(nodes)):
        first = tallies[node].first_row
        n_samples = tallies[node].n_samples
        is_leaf = nodes[node].left_child == NO_CHILD
        if is_linked and not is_leaf:
            if first != NO_ROW:
                return False
            continue
        if not is_linked and (first < 0 or np.int64(first) + n_samples > n_rows):
            return False
        if not is_leaf:
            left = nodes[node].left_child
            if tallies[left].first_row != first:
                return False
            if tallies[left + 1].first_row != first + tallies[left].n_samples:
                return False
            continue
        number = first
        for i in range(n_samples):
            if not is_linked:
                number = row_numbers[first + i]
            if number < 0 or number >= n_rows or is_found[number]:
                return False
            is_found[number] = True
            if is_linked:
                number = row_numbers[number]
        if is_linked and number != NO_ROW:
            return False
    return True


@kernel
def _are_boxes_tight(
    nodes: Records,
    boxes: NDArray[np.float32],
    tallies: Records,
    row_numbers: NDArray[np.int32],
    rows: NDArray[np.float32],
    is_linked: bool,
) -> bool:
    """Whether the box of each leaf is that of its rows, and others are those of their children.

    A cut through a larger box can leave no row on one side, so that learning would make more nodes
    than there is room for.
    """
    n_features = boxes.shape[2]
    last_row = len(row_numbers) - 1
    expected = np.empty((1, 2, n_features), dtype=np.float32)
    for node in range(len(nodes)):
        left = nodes[node].left_child
        if left != NO_CHILD:
            join_boxes(boxes, left, expected, 0)
        else:
            first = tallies[node].first_row
            number = first
            for f in range(n_features):
                expected[0, 0, f] = np.inf
                expected[0, 1, f] = -np.inf
            for i in range(first, first + tallies[node].n_samples):
                if not is_linked:
                    prefetch(rows, row_numbers[min(i + AHEAD, last_row)])
                    number = row_numbers[i]
                include_row(expected, 0, rows, number)
                if is_linked:
                    number = row_numbers[number]
        is_tight = True
        for f in range(n_features):
            is_tight &= boxes[node, 0, f] == expected[0, 0, f]
            is_tight &= boxes[node, 1, f] == expected[0, 1, f]
        if not is_tight:
            return False
    return True
