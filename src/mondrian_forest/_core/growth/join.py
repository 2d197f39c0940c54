"""Rows join trees whose cuts look at the labels, with the law of a batch fit.

A group of rows goes down the tree together. At a node that keeps its candidate cuts, these are
redrawn as far as the box grows, the rows are counted, and the best candidate is found anew
(``contest``). While it is the cut in use, the group is divided by it and goes on. Otherwise both
children are sampled anew, once for the whole group. A node that keeps no candidates, such as a
leaf, is sampled anew on its rows and those of the group.

By induction each node has the law of a batch fit: its candidates are independent draws from its
box, and its children depend on their own rows alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box, excess_of_box, include_box
from ..arrays.contests import NO_CONTEST, contests_of
from ..arrays.grove import Grove
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, prefetch, wide
from ..arrays.tree import NO_CHILD, Tree
from ..arrays.vector import padded_width
from ..labels.model import LabelModel, set_all_nodes
from ..labels.tallies import merge_tallies
from . import Growth
from .contest import count_rows, decide, redraw_in_larger_box, shorten_time
from .cuts import best_cut
from .rebuild import (
    LivingTree,
    Workshop,
    allocate_workshop,
    gather_rows,
    rebuild_children,
    rebuild_node,
)
from .sample import partition


class Groups(NamedTuple):
    """Rows on their way down a tree, and the nodes that they have met."""

    rows: NDArray[np.float32]
    """Those of a group are neighbours."""
    numbers: NDArray[np.int32]
    """Their numbers."""
    waiting: NDArray[np.int64]
    """Groups that are still to be followed: their node, first row, end of rows, and parent."""
    box: NDArray[np.float32]
    """The box of the group that is looked at."""
    met: NDArray[np.int32]
    """Nodes to be set on the way back, parents before children."""


@kernel
def _allocate_groups(n_rows: int, n_features: int, most_met: int) -> Groups:
    return Groups(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        np.empty((n_rows + 1, 4), dtype=np.int64),
        np.empty((1, 2, n_features), dtype=np.float32),
        np.empty(most_met, dtype=np.int32),
    )


@kernel
def join_trees(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    end: int,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
) -> None:
    """Let the rows up to ``end`` join the trees from first to stop.

    There must be room; a tree that has these rows already is left as it is.
    """
    sizes, free_pairs, nodes, boxes, tallies, next_row, contests, _ = grove
    fewest = wide(end)
    highest = wide(0)
    largest = wide(0)
    for number in range(first, stop):
        fewest = min(fewest, wide(tallies[number, 0].n_samples))
        highest = max(highest, wide(tallies[number, 0].height))
        largest = max(largest, sizes[number])
    if fewest == end:
        return
    most_met = min((end - fewest) * (highest + 1), largest)
    groups = _allocate_groups(end - fewest, rows.shape[1], most_met)
    workshop = allocate_workshop(end, rows.shape[1], growth.n_candidate_splits)
    order = np.empty(2 * end, dtype=np.int32)
    counts = np.empty(2, dtype=np.int64)
    for number in range(first, stop):
        begin = wide(tallies[number, 0].n_samples)
        if begin < end:
            counts[0] = sizes[number]
            counts[1] = free_pairs[number]
            living = LivingTree(
                Tree(nodes[number], boxes[number], tallies[number]),
                counts,
                contests_of(contests, number),
                next_row[number],
                random_states[number],
                rows,
                labels,
                best_cut(growth, labels),
                growth,
                model,
            )
            join_tree(living, begin, end, groups, workshop, order)
            sizes[number] = counts[0]
            free_pairs[number] = counts[1]


@borrowing_kernel
def join_tree(
    living: LivingTree,
    begin: int,
    end: int,
    groups: Groups,
    workshop: Workshop,
    order: NDArray[np.int32],
) -> None:
    """Let the rows from ``begin`` to ``end`` join a tree."""
    tree, _, contests, _, _, _, _, _, _, model = living
    nodes, _, tallies = tree
    rows, numbers, waiting, _, met = groups
    _start_group(living.rows, begin, end, groups)
    n_waiting = 1
    n_met = 0
    has_new_times = False
    while n_waiting > 0:
        n_waiting -= 1
        node = wide(waiting[n_waiting, 0])
        start, stop = wide(waiting[n_waiting, 1]), wide(waiting[n_waiting, 2])
        above = wide(waiting[n_waiting, 3])
        start_time = 0.0 if above < 0 else nodes[above].split_time
        place = wide(tallies[node].contest)
        if place == NO_CONTEST:
            n_rows = gather_rows(living, workshop, node)
            n_rows = _add_group(groups, start, stop, workshop, n_rows)
            rebuild_node(living, workshop, node, n_rows, start_time)
            continue
        prefetch(contests.candidates, place)
        _prefetch_children(tree, wide(nodes[node].left_child))
        met[n_met] = node
        n_met += 1
        stay, is_later = _grow_node(living, groups, workshop, node, start, stop, start_time)
        has_new_times |= is_later
        if not stay:
            n_rows = gather_rows(living, workshop, node)
            n_rows = _add_group(groups, start, stop, workshop, n_rows)
            rebuild_children(living, workshop, node, n_rows)
            continue
        record = nodes[node]
        middle = partition(
            rows, numbers, start, stop, wide(record.split_feature), record.threshold
        )
        for side in range(1, -1, -1):
            first = middle if side == 1 else start
            last = stop if side == 1 else middle
            if first < last:
                child = wide(record.left_child) + side
                waiting[n_waiting, 0] = child
                waiting[n_waiting, 1] = first
                waiting[n_waiting, 2] = last
                waiting[n_waiting, 3] = node
                n_waiting += 1
    for i in range(n_met - 1, -1, -1):
        merge_tallies(nodes, tallies, met[i])
        model.set_node(nodes, tallies, wide(met[i]))
    if has_new_times and model.uses_times():
        n_nodes = list_parents_first(tree, workshop.waiting, order)
        set_all_nodes(model, nodes, tallies, order[:n_nodes])


@inner_kernel
def _start_group(all_rows: NDArray[np.float32], begin: int, end: int, groups: Groups) -> None:
    """Make one group of all rows that join; it meets the root."""
    rows, numbers, waiting, _, _ = groups
    for i in range(end - begin):
        for f in range(all_rows.shape[1]):
            rows[i, f] = all_rows[begin + i, f]
        numbers[i] = begin + i
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = end - begin
    waiting[0, 3] = -1


@inner_kernel
def _prefetch_children(tree: Tree, left: int) -> None:
    nodes, boxes, tallies = tree
    prefetch(nodes, left)
    prefetch(nodes, left + 1)
    prefetch(tallies, left)
    prefetch(tallies, left + 1)
    prefetch(boxes, left)
    prefetch(boxes, left + 1)


@inner_kernel
def _grow_node(
    living: LivingTree,
    groups: Groups,
    workshop: Workshop,
    node: int,
    start: int,
    stop: int,
    start_time: float,
) -> tuple[bool, bool]:
    """Let a group join the contest of a node; return whether its children stay.

    Return also whether times have changed.
    """
    tree, _, contests, _, random_state, _, _, rule, _, _ = living
    _, boxes, tallies = tree
    rows, numbers, _, box, _ = groups
    bounding_box(rows, start, stop, box, 0)
    excess = excess_of_box(boxes, node, box, 0)
    is_there, has_new_times = True, False
    if excess > 0.0:
        is_there = redraw_in_larger_box(random_state, tree, contests, node, box, excess)
        has_new_times = shorten_time(
            random_state, tree, node, start_time, excess, workshop.waiting
        )
        include_box(boxes, node, box, 0)
    place = wide(tallies[node].contest)
    count_rows(contests, place, rule, rows, numbers, start, stop, 1)
    n_rows = tallies[node].n_samples + stop - start
    return decide(tree, contests, node, n_rows, is_there), has_new_times


@inner_kernel
def _add_group(groups: Groups, start: int, stop: int, workshop: Workshop, n_rows: int) -> int:
    """Add the rows of a group to those in the workshop; return the number of all."""
    for i in range(start, stop):
        for f in range(groups.rows.shape[1]):
            workshop.rows[n_rows, f] = groups.rows[i, f]
        workshop.numbers[n_rows] = groups.numbers[i]
        n_rows += 1
    return n_rows


@borrowing_kernel
def list_parents_first(
    tree: Tree, waiting: NDArray[np.int32], order: NDArray[np.int32]
) -> int:
    """Set ``order`` to the nodes of a tree, parents before children; return their number."""
    nodes, _, _ = tree
    waiting[0] = 0
    n_waiting = 1
    n_found = wide(0)
    while n_waiting > 0:
        n_waiting -= 1
        node = wide(waiting[n_waiting])
        order[n_found] = node
        n_found += 1
        left = nodes[node].left_child
        if left != NO_CHILD:
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
    return n_found
