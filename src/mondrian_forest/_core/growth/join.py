"""Rows join trees whose cuts look at the labels, with the law of a batch fit.

A group of rows goes down the tree together. At a node that keeps its candidate cuts, these are
redrawn as far as the box grows, the rows are counted, and the best candidate is found anew
(``contest``). If the children are on its two sides, the group is divided by it and goes on. If not,
both children are sampled anew, once for the whole group. A node that keeps no candidates is sampled
anew on its rows and those of the group, unless it is a leaf that is sure to stay one.

By induction each node has the law of a batch fit: its candidates are independent draws from its
box, and its children depend on their own rows alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import (
    bounding_box,
    excess_of_box,
    excess_of_row,
    include_box,
    include_row,
    total_extent,
)
from ..arrays.contests import NO_CONTEST, contests_of
from ..arrays.grove import Grove
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, prefetch, wide
from ..arrays.tree import NO_CHILD, Tree
from ..arrays.vector import padded_width
from ..labels.model import LabelModel
from ..labels.tallies import add_row, merge_tallies
from . import Growth
from .contest import Moves, count_rows, decide, redraw_in_larger_box, shorten_time
from .cuts import best_cut
from .rebuild import (
    LivingTree,
    Workshop,
    allocate_workshop,
    gather_rows,
    rebuild_children,
    rebuild_node,
    set_again,
)
from .sample import partition


class Groups(NamedTuple):
    """Rows on their way down a tree, and the nodes that they have met."""

    rows: NDArray[np.float32]
    """Those of a group are neighbours."""
    numbers: NDArray[np.int32]
    """Their numbers."""
    waiting: NDArray[np.int64]
    """Groups that are still to be followed: their node, first row, end of rows, parent, and whether
    the time of a node above has changed."""
    box: NDArray[np.float32]
    """The box of the group that is looked at."""
    met: NDArray[np.int32]
    """Nodes to be set on the way back, parents before children."""
    is_moved: NDArray[np.bool_]
    """By node in ``met``: whether its time has changed, while no time above it has."""


@kernel
def _allocate_groups(n_rows: int, n_features: int, most_met: int) -> Groups:
    return Groups(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        np.empty((n_rows + 1, 5), dtype=np.int64),
        np.empty((1, 2, n_features), dtype=np.float32),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met, dtype=np.bool_),
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
    is_done: NDArray[np.bool_],
) -> None:
    """Let the rows up to ``end`` join the trees from first to stop.

    There must be room. Trees that are done, as ``is_done`` says afterwards, are left as they are.
    """
    sizes, free_pairs, nodes, boxes, tallies, next_row, contests, _ = grove
    fewest = wide(end)
    highest = wide(0)
    largest = wide(0)
    for number in range(first, stop):
        if is_done[number] or tallies[number, 0].n_samples == end:
            is_done[number] = True
            continue
        fewest = min(fewest, wide(tallies[number, 0].n_samples))
        highest = max(highest, wide(tallies[number, 0].height))
        largest = max(largest, sizes[number])
    if fewest == end:
        return
    most_met = min((end - fewest) * (highest + 1), largest)
    groups = _allocate_groups(end - fewest, rows.shape[1], most_met)
    workshop = allocate_workshop(end, rows.shape[1], growth.n_candidate_splits)
    counts = np.empty(2, dtype=np.int64)
    for number in range(first, stop):
        begin = wide(tallies[number, 0].n_samples)
        if not is_done[number]:
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
            join_tree(living, begin, end, groups, workshop)
            sizes[number] = counts[0]
            free_pairs[number] = counts[1]
            is_done[number] = True


@borrowing_kernel
def join_tree(living: LivingTree, begin: int, end: int, groups: Groups, workshop: Workshop) -> None:
    """Let the rows from ``begin`` to ``end`` join a tree."""
    tree, _, contests, _, _, _, _, _, _, model = living
    nodes, _, tallies = tree
    _, _, waiting, _, met, is_moved = groups
    _start_group(living.rows, begin, end, groups)
    n_waiting = 1
    n_met = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = wide(waiting[n_waiting, 0])
        start, stop = wide(waiting[n_waiting, 1]), wide(waiting[n_waiting, 2])
        above = wide(waiting[n_waiting, 3])
        is_above_moved = waiting[n_waiting, 4] == 1
        start_time = 0.0 if above < 0 else nodes[above].split_time
        place = wide(tallies[node].contest)
        if place == NO_CONTEST:
            if _stays_leaf(living, groups, node, start, stop):
                _fill_up(living, groups, node, start, stop)
            else:
                n_rows = gather_rows(living, workshop, node)
                n_rows = _add_group(groups, start, stop, workshop, n_rows)
                rebuild_node(living, workshop, node, n_rows, start_time)
            continue
        prefetch(contests.candidates, place)
        _prefetch_children(tree, wide(nodes[node].left_child))
        stay, has_moved = _grow_node(living, groups, workshop, node, start, stop, start_time)
        met[n_met] = node
        is_moved[n_met] = has_moved and not is_above_moved
        n_met += 1
        if stay:
            is_above_moved |= has_moved
            n_waiting = _pass_on(living, groups, node, start, stop, is_above_moved, n_waiting)
        else:
            n_rows = gather_rows(living, workshop, node)
            n_rows = _add_group(groups, start, stop, workshop, n_rows)
            rebuild_children(living, workshop, node, n_rows)
    for i in range(n_met - 1, -1, -1):
        node = wide(met[i])
        merge_tallies(nodes, tallies, node)
        if is_moved[i] and model.uses_times():
            set_again(living, workshop, node)
        else:
            model.set_node(nodes, tallies, node)


@inner_kernel
def _start_group(all_rows: NDArray[np.float32], begin: int, end: int, groups: Groups) -> None:
    """Make one group of all rows that join; it meets the root."""
    rows, numbers, waiting, _, _, _ = groups
    for i in range(end - begin):
        for f in range(all_rows.shape[1]):
            rows[i, f] = all_rows[begin + i, f]
        numbers[i] = begin + i
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = end - begin
    waiting[0, 3] = -1
    waiting[0, 4] = 0


@inner_kernel
def _pass_on(
    living: LivingTree,
    groups: Groups,
    node: int,
    start: int,
    stop: int,
    is_moved: bool,
    n_waiting: int,
) -> int:
    """Divide a group by the cut of a node; return how many groups are waiting then."""
    record = living.tree.nodes[node]
    rows, numbers, waiting, _, _, _ = groups
    feature, left = wide(record.split_feature), wide(record.left_child)
    middle = partition(rows, numbers, start, stop, feature, record.threshold)
    for side in range(1, -1, -1):
        first = middle if side == 1 else start
        last = stop if side == 1 else middle
        if first < last:
            waiting[n_waiting, 0] = left + side
            waiting[n_waiting, 1] = first
            waiting[n_waiting, 2] = last
            waiting[n_waiting, 3] = node
            waiting[n_waiting, 4] = is_moved
            n_waiting += 1
    return n_waiting


@inner_kernel
def _stays_leaf(living: LivingTree, groups: Groups, node: int, start: int, stop: int) -> bool:
    """Return whether a node is a leaf with a group, too: few rows, or equal ones."""
    nodes, boxes, tallies = living.tree
    if nodes[node].left_child != NO_CHILD:
        return False
    if tallies[node].n_samples + stop - start < living.growth.min_samples_split:
        return True
    excess = total_extent(boxes, node)
    for i in range(start, stop):
        excess += excess_of_row(boxes, node, groups.rows, i)
    return excess == 0.0


@inner_kernel
def _fill_up(living: LivingTree, groups: Groups, node: int, start: int, stop: int) -> None:
    """Let a group join a leaf."""
    tree, _, _, next_row, _, _, labels, _, _, model = living
    nodes, boxes, tallies = tree
    for i in range(start, stop):
        row = wide(groups.numbers[i])
        add_row(tallies, node, next_row, row, labels[row])
        include_row(boxes, node, groups.rows, i)
    model.set_node(nodes, tallies, node)


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

    Return also whether its time has changed.
    """
    tree, _, contests, _, random_state, _, _, rule, growth, _ = living
    _, boxes, tallies = tree
    rows, numbers, _, box, _, _ = groups
    bounding_box(rows, start, stop, box, 0)
    excess = excess_of_box(boxes, node, box, 0)
    has_moved = False
    if excess > 0.0:
        redraw_in_larger_box(random_state, tree, contests, node, box, excess)
        moves = Moves(workshop.waiting, workshop.times)
        has_moved = shorten_time(random_state, tree, node, start_time, excess, moves)
        include_box(boxes, node, box, 0)
    place = wide(tallies[node].contest)
    count_rows(contests, place, rule, rows, numbers, start, stop, 1)
    n_rows = tallies[node].n_samples + stop - start
    return decide(tree, contests, node, n_rows, growth.tolerance), has_moved


@inner_kernel
def _add_group(groups: Groups, start: int, stop: int, workshop: Workshop, n_rows: int) -> int:
    """Add the rows of a group to those in the workshop; return the number of all."""
    for i in range(start, stop):
        for f in range(groups.rows.shape[1]):
            workshop.rows[n_rows, f] = groups.rows[i, f]
        workshop.numbers[n_rows] = groups.numbers[i]
        n_rows += 1
    return n_rows
