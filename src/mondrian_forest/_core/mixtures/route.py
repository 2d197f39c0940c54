"""The way down: rows go through a tree and leave it at several places (Alg. 5).

Rows travel in groups: a node's rows are neighbours, as in sampling, and the tree is walked depth
first, which is the order of its nodes in memory. So each node is read once for a block of rows, and
what belongs to the node alone, the message from above, is computed once. In a tree of 400,000 nodes
this takes 15 ns for each row and node. Following rows one by one took 55 to 110 ns, most of it
spent on cache misses.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import excess_of_row, find_outside
from ..arrays.kernel import borrowing_kernel, inner_kernel, prefetch, wide
from ..arrays.tree import NO_CHILD, Records
from ..growth.sample import partition
from ..labels.exits import Exits
from .ensemble import Ensemble, PredictionSpace, Walk

NEGLIGIBLE_WEIGHT = 1e-12
"""A row is not followed when no more than this weight is left, and lighter components are dropped.
So a tree of depth d loses at most (d + 2) times this, which bounds the error of its cdf."""

LIGHT = 1e-6
"""The same for label models with which rows stop inside. There, a row has a component at each node
of its path; most of them weigh next to nothing, and would take most of the time."""


@borrowing_kernel
def find_components(
    ensemble: Ensemble, number: int, rows: NDArray[np.float32], space: PredictionSpace
) -> int:
    """Find where rows leave a tree, and the components there; return the number of exits."""
    sizes, nodes, _, _, model, lifetime = ensemble
    _, visits, exits, scratch, components, _ = space
    n_visits, n_exits = route(ensemble, number, rows, space)
    tree = nodes[number, : sizes[number]]
    model.fill_components(tree, lifetime, visits, n_visits, exits, n_exits, scratch, components)
    return n_exits


@borrowing_kernel
def route(
    ensemble: Ensemble, number: int, rows: NDArray[np.float32], space: PredictionSpace
) -> tuple[int, int]:
    """Find the nodes that rows pass through and the places where they leave a tree.

    Return the number of visits and of exits. Nothing branches off after the lifetime.
    """
    _, all_nodes, all_boxes, _, model, lifetime = ensemble
    nodes, boxes = all_nodes[number], all_boxes[number]
    walk, visits, exits, _, _, _ = space
    visited, parents = visits
    moving, numbers, groups, _, _, _, _ = walk
    start_walk(rows, walk)
    n_groups = wide(1)
    n_visits = wide(0)
    n_exits = wide(0)
    while n_groups > 0:
        n_groups -= 1
        node = groups[n_groups, 0]
        start = groups[n_groups, 1]
        stop = groups[n_groups, 2]
        above = groups[n_groups, 3]
        record = nodes[node]
        _prefetch_children(nodes, boxes, record.left_child)
        visited[n_visits] = node
        parents[n_visits] = above
        parent_time = 0.0 if above < 0 else nodes[visited[above]].split_time
        duration = min(record.split_time, lifetime) - parent_time
        n_outside = find_outside_node(boxes, node, walk, start, stop)
        if model.stops_inside():
            _note_branching(boxes, node, walk, n_outside, duration)
            probability = model.stop_probability(record)
            stop, n_exits = _stop_inside(walk, start, stop, probability, exits, n_visits, n_exits)
        else:
            stop, n_exits = _branch_off(
                boxes, node, walk, n_outside, stop, duration, exits, n_visits, n_exits
            )
        if record.left_child == NO_CHILD:
            n_exits = _end_in_leaf(walk, start, stop, exits, n_visits, n_exits)
        else:
            feature = wide(record.split_feature)
            middle = partition(moving, numbers, start, stop, feature, record.threshold)
            n_groups = add_groups(
                groups, n_groups, record.left_child, start, middle, stop, n_visits
            )
        n_visits += 1
    return n_visits, n_exits


@inner_kernel
def start_walk(rows: NDArray[np.float32], walk: Walk) -> None:
    """Make one group of all rows, which meets the root."""
    moving, numbers, groups, box, _, staying, branching = walk
    for f in range(rows.shape[1], moving.shape[1]):
        # The space may come from a forest with more features: no row is outside in these columns.
        box[0, f] = -np.inf
        box[1, f] = np.inf
    for i in range(len(rows)):
        for f in range(rows.shape[1]):
            moving[i, f] = rows[i, f]
        numbers[i] = i
        staying[i] = 1.0
        branching[i] = 0.0
    groups[0, 0] = 0
    groups[0, 1] = 0
    groups[0, 2] = len(rows)
    groups[0, 3] = -1


@inner_kernel
def _prefetch_children(nodes: Records, boxes: NDArray[np.float32], left_child: int) -> None:
    """Ask for the next level, so that it arrives while this one is looked at."""
    if left_child != NO_CHILD:
        prefetch(nodes, left_child)
        prefetch(nodes, left_child + 1)
        prefetch(boxes, left_child)
        prefetch(boxes, left_child + 1)


@inner_kernel
def find_outside_node(
    boxes: NDArray[np.float32], node: int, walk: Walk, start: int, stop: int
) -> int:
    """Write down which rows are outside of a node's box; return their number."""
    moving, _, _, box, outside, _, _ = walk
    for f in range(boxes.shape[2]):
        box[0, f] = boxes[node, 0, f]
        box[1, f] = boxes[node, 1, f]
    return find_outside(moving, start, stop, box, outside)


@inner_kernel
def _branch_off(
    boxes: NDArray[np.float32],
    node: int,
    walk: Walk,
    n_outside: int,
    stop: int,
    duration: float,
    exits: Exits,
    n_visits: int,
    n_exits: int,
) -> tuple[int, int]:
    """Let rows outside of a node's box branch off above it; return end of rows and of exits.

    Rows of which next to nothing is left are dropped.
    """
    moving, numbers, _, _, outside, staying, _ = walk
    exit_row, exit_visit, exit_weight, exit_branch_off, exit_distance = exits
    # From the last row on: a row that is dropped is replaced by the last one, which is done.
    for k in range(n_outside - 1, -1, -1):
        i = wide(outside[k])
        number = numbers[i]
        distance = excess_of_row(boxes, node, moving, i)
        branch_off = -math.expm1(-duration * distance)
        weight = staying[number] * branch_off
        staying[number] -= weight
        exit_row[n_exits] = number
        exit_visit[n_exits] = n_visits
        exit_weight[n_exits] = weight
        exit_branch_off[n_exits] = branch_off
        exit_distance[n_exits] = distance
        n_exits += weight > NEGLIGIBLE_WEIGHT
        if staying[number] <= NEGLIGIBLE_WEIGHT:
            stop -= 1
            replace_row(moving, numbers, i, stop)
    return stop, n_exits


@inner_kernel
def _note_branching(
    boxes: NDArray[np.float32], node: int, walk: Walk, n_outside: int, duration: float
) -> None:
    """Note the weights with which rows outside of a node's box branch off above it.

    Such a row is like one that stops in the node: the place where it branches off has the labels of
    the node.
    """
    moving, numbers, _, _, outside, staying, branching = walk
    for k in range(n_outside):
        i = wide(outside[k])
        number = numbers[i]
        distance = excess_of_row(boxes, node, moving, i)
        weight = staying[number] * -math.expm1(-duration * distance)
        staying[number] -= weight
        branching[number] = weight


@inner_kernel
def _stop_inside(
    walk: Walk,
    start: int,
    stop: int,
    probability: float,
    exits: Exits,
    n_visits: int,
    n_exits: int,
) -> tuple[int, int]:
    """Let all rows of a node stop in it with some probability; return end of rows and of exits.

    Rows of which next to nothing is left are dropped.
    """
    moving, numbers, _, _, _, staying, branching = walk
    exit_row, exit_visit, exit_weight, _, _ = exits
    for i in range(stop - 1, start - 1, -1):
        number = numbers[i]
        weight = staying[number] * probability
        staying[number] -= weight
        weight += branching[number]
        branching[number] = 0.0
        exit_row[n_exits] = number
        exit_visit[n_exits] = n_visits
        exit_weight[n_exits] = weight
        n_exits += weight > LIGHT
        if staying[number] <= LIGHT:
            stop -= 1
            replace_row(moving, numbers, i, stop)
    return stop, n_exits


@inner_kernel
def replace_row(
    moving: NDArray[np.float32], numbers: NDArray[np.int32], i: int, other: int
) -> None:
    for f in range(moving.shape[1]):
        moving[i, f] = moving[other, f]
    numbers[i] = numbers[other]


@inner_kernel
def _end_in_leaf(
    walk: Walk, start: int, stop: int, exits: Exits, n_visits: int, n_exits: int
) -> int:
    """Let rows end in a leaf; return the number of exits."""
    _, numbers, _, _, _, staying, _ = walk
    exit_row, exit_visit, exit_weight, exit_branch_off, exit_distance = exits
    for i in range(start, stop):
        exit_row[n_exits] = numbers[i]
        exit_visit[n_exits] = n_visits
        exit_weight[n_exits] = staying[numbers[i]]
        exit_branch_off[n_exits] = 1.0
        exit_distance[n_exits] = 0.0
        n_exits += 1
    return n_exits


@inner_kernel
def add_groups(
    groups: NDArray[np.int64],
    n_groups: int,
    left_child: int,
    start: int,
    middle: int,
    stop: int,
    n_visits: int,
) -> int:
    """Add the groups of the two children, the left one on top; return the number of groups."""
    for side in range(1, -1, -1):
        first = middle if side == 1 else start
        end = stop if side == 1 else middle
        if first < end:
            groups[n_groups, 0] = left_child + side
            groups[n_groups, 1] = first
            groups[n_groups, 2] = end
            groups[n_groups, 3] = n_visits
            n_groups += 1
    return n_groups


@borrowing_kernel
def find_leaves(nodes: Records, rows: NDArray[np.float32], leaves: NDArray[np.int32]) -> None:
    """Set ``leaves[i]`` to the leaf whose block holds row i."""
    for i in range(len(rows)):
        node = np.int32(0)
        while nodes[node].left_child != NO_CHILD:
            goes_right = rows[i, nodes[node].split_feature] > nodes[node].threshold
            node = nodes[node].left_child + np.int32(goes_right)
        leaves[i] = node
