"""Whether arrays from a file make up a tree: what the kernels rely on without looking.

A kernel reads and writes where the arrays tell it to. Arrays that this package has made are right
by construction. Arrays from a file may be damaged, or made to do harm.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .boxes import Boxes, include_row, join_boxes
from .contests import NO_CONTEST, Contests
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
    "the candidate cuts of a node are wrong",
)
"""What ``find_fault`` finds, by number. The first means that nothing is wrong."""
NO_FAULT, NO_SUCH_CHILD, NOT_A_TREE, NO_SUCH_FEATURE, WRONG_VALUE, WRONG_TALLY = range(6)
WRONG_BOX, WRONG_ROW, LOOSE_BOX, WRONG_CONTEST = range(6, 10)


@kernel
def find_fault(
    nodes: Records,
    boxes: Boxes,
    tallies: Records,
    contests: Contests,
    row_numbers: NDArray[np.int32],
    rows: NDArray[np.float32],
    is_linked: bool,
    n_rows: int,
    reads_boxes: bool,
) -> int:
    """Return the number of the first fault of a tree.

    A tree that can learn has ``tallies`` for all nodes, ``row_numbers`` and ``rows``. A frozen tree
    has the tally of the root only, no rows and no contests. In files, no places of nodes and of
    contests are free. Boxes are checked if ``reads_boxes`` is true. What the label model says of
    the nodes is for ``labels.model.are_sound`` to check.
    """
    n_nodes = len(nodes)
    learns = len(tallies) == n_nodes and len(row_numbers) == n_rows
    if not learns and len(tallies) != 1:
        return WRONG_TALLY
    order = np.empty(n_nodes, dtype=np.int32)
    fault = _list_parents_first(nodes, order)
    if fault != NO_FAULT:
        return fault
    heights = np.zeros(n_nodes, dtype=np.int32)
    fault = _fault_of_nodes(nodes, order, boxes.shape[2], heights)
    if fault != NO_FAULT:
        return fault
    is_right = tallies[0].n_samples == n_rows and nodes[0].n_samples == n_rows
    if tallies[0].height != heights[0] or not is_right:
        return WRONG_TALLY
    if reads_boxes and not _are_boxes_cut(nodes, boxes):
        return WRONG_BOX
    if not _are_contests_right(nodes, boxes, tallies, contests, reads_boxes):
        return WRONG_CONTEST
    if not learns:
        return NO_FAULT if contests.counts[0] == 0 else WRONG_CONTEST
    if not _are_tallies_right(nodes, tallies, heights):
        return WRONG_TALLY
    if not _holds_every_row_once(nodes, tallies, row_numbers, is_linked):
        return WRONG_ROW
    if reads_boxes and not _are_boxes_tight(nodes, boxes, tallies, row_numbers, rows, is_linked):
        return LOOSE_BOX
    return NO_FAULT


@kernel
def _list_parents_first(nodes: Records, order: NDArray[np.int32]) -> int:
    """Set ``order`` to all nodes, parents before children; return a fault if that is impossible."""
    n_nodes = len(nodes)
    is_found = np.zeros(n_nodes, dtype=np.bool_)
    order[0] = 0
    is_found[0] = True
    n_found = 1
    for place in range(n_nodes):
        if place == n_found:
            return NOT_A_TREE
        left = nodes[order[place]].left_child
        if left == NO_CHILD:
            continue
        if left < 1 or left > n_nodes - 2:
            return NO_SUCH_CHILD
        if is_found[left] or is_found[left + 1]:
            return NOT_A_TREE
        is_found[left] = is_found[left + 1] = True
        order[n_found] = left
        order[n_found + 1] = left + 1
        n_found += 2
    return NO_FAULT


@kernel
def _fault_of_nodes(
    nodes: Records,
    order: NDArray[np.int32],
    n_features: int,
    heights: NDArray[np.int32],
) -> int:
    """Return the fault of the first node that has one; set ``heights``, which are zero at first."""
    for place in range(len(order) - 1, -1, -1):  # children before parents
        node = order[place]
        record = nodes[node]
        left = record.left_child
        if not (math.isfinite(record.location) and record.split_time >= 0.0):
            return WRONG_VALUE
        if record.n_samples < 1:
            return WRONG_TALLY
        if left == NO_CHILD:
            if record.split_time != np.inf:
                return WRONG_VALUE
            continue
        if record.n_samples != np.int64(nodes[left].n_samples) + nodes[left + 1].n_samples:
            return WRONG_TALLY
        heights[node] = 1 + max(heights[left], heights[left + 1])
        if not 0 <= record.split_feature < n_features:
            return NO_SUCH_FEATURE
        if not math.isfinite(record.threshold) or record.split_time == np.inf:
            return WRONG_VALUE
        for child in range(left, left + 2):
            if nodes[child].split_time < record.split_time:
                return WRONG_VALUE
    return NO_FAULT


@kernel
def _are_boxes_cut(nodes: Records, boxes: Boxes) -> bool:
    """Whether all boxes are finite, and each inner node's threshold is inside its box."""
    for node in range(len(nodes)):
        for f in range(boxes.shape[2]):
            lower, upper = boxes[node, 0, f], boxes[node, 1, f]
            if not (lower <= upper and math.isfinite(upper - lower)):
                return False
        if nodes[node].left_child == NO_CHILD:
            continue
        feature = nodes[node].split_feature
        if not boxes[node, 0, feature] <= nodes[node].threshold < boxes[node, 1, feature]:
            return False
    return True


@kernel
def _are_contests_right(
    nodes: Records, boxes: Boxes, tallies: Records, contests: Contests, reads_boxes: bool
) -> bool:
    """Whether each place of a contest belongs to one inner node, and all candidates cut its box.

    Sums on the left are not counted again, which would take as long as a fit. No kernel is led
    astray by wrong ones.
    """
    counts, candidates = contests
    n_places, width = counts[0], candidates.shape[1]
    if counts[1] != NO_CONTEST or not 0 <= n_places <= len(candidates):
        return False
    is_found = np.zeros(n_places, dtype=np.bool_)
    n_found = 0
    for node in range(len(tallies)):
        place = tallies[node].contest
        if place == NO_CONTEST:
            continue
        if place < 0 or place >= n_places or is_found[place]:
            return False
        if nodes[node].left_child == NO_CHILD or width < 3:
            return False
        is_found[place] = True
        n_found += 1
        n_samples = nodes[node].n_samples
        for c in range(width - 1):
            candidate = candidates[place, c]
            feature, threshold = candidate.feature, candidate.threshold
            if not 0 <= feature < boxes.shape[2] or not math.isfinite(threshold):
                return False
            if not 0 < candidate.n_left < n_samples or not math.isfinite(candidate.sum_left):
                return False
            if reads_boxes and not (boxes[node, 0, feature] <= threshold < boxes[node, 1, feature]):
                return False
        if not math.isfinite(candidates[place, width - 1].sum_left):
            return False
    return bool(n_found == n_places)


@kernel
def _are_tallies_right(nodes: Records, tallies: Records, heights: NDArray[np.int32]) -> bool:
    """Whether heights are those of the nodes, numbers of rows too, and moments are numbers."""
    for node in range(len(nodes)):
        tally = tallies[node]
        if tally.height != heights[node] or tally.n_samples != nodes[node].n_samples:
            return False
        if not (math.isfinite(tally.label_mean) and 0.0 <= tally.squared_deviation < np.inf):
            return False
        if not math.isfinite(tally.log_gain):
            return False
    return True


@kernel
def _holds_every_row_once(
    nodes: Records, tallies: Records, row_numbers: NDArray[np.int32], is_linked: bool
) -> bool:
    """Whether each row is in one leaf, given that the numbers of rows of the leaves add up."""
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
    boxes: Boxes,
    tallies: Records,
    row_numbers: NDArray[np.int32],
    rows: NDArray[np.float32],
    is_linked: bool,
) -> bool:
    """Whether the box of each leaf is that of its rows, and other boxes join their children's.

    A cut through a larger box can leave one side without rows. Learning would then make more nodes
    than there is room for. The boxes of children must be on the two sides of their parent's cut:
    forgetting looks for a row on its side.
    """
    n_features = boxes.shape[2]
    last_row = len(row_numbers) - 1
    expected = np.empty((1, 2, n_features), dtype=np.float32)
    for node in range(len(nodes)):
        left = nodes[node].left_child
        if left != NO_CHILD:
            join_boxes(boxes, left, expected, 0)
            feature, threshold = nodes[node].split_feature, nodes[node].threshold
            if not boxes[left, 1, feature] <= threshold < boxes[left + 1, 0, feature]:
                return False
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
