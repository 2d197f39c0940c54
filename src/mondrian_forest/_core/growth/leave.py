"""Rows leave trees, with the law of a batch fit on the rows that stay.

First the rows are taken out of their leaves, and the boxes above shrink. Then the nodes that have
lost rows are looked at.

With a single candidate for each cut, as in the paper, a cut that has no rows on one side any more
disappears, and the other child takes the place of its parent. Nothing is drawn: a Mondrian tree
restricted to a part of its rows is a Mondrian tree of that part. With several candidates, a node's
contest goes back to the smaller box (``contest``). Where another cut wins, both children are
sampled anew, and so is a node that keeps no candidates.

Finally, rows are renumbered without holes: those with the highest numbers take the free ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import copy_box, include_row, join_boxes, total_extent
from ..arrays.contests import FEWEST_ROWS, NO_CONTEST, contests_of
from ..arrays.grove import Grove
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, wide
from ..arrays.tree import NO_CHILD, NO_ROW, Tree, give_back_pair
from ..arrays.vector import padded_width
from ..labels.model import LabelModel
from ..labels.tallies import add_row, merge_tallies
from . import Growth
from .contest import (
    Moves,
    count_redrawn,
    count_rows,
    decide,
    lengthen_time,
    redraw_in_smaller_box,
)
from .cuts import CutRule, cut_rule
from .rebuild import (
    LivingTree,
    Workshop,
    allocate_workshop,
    clear_below,
    gather_rows,
    rebuild_children,
    rebuild_node,
    set_again,
)
from .sample import partition


class Leaving(NamedTuple):
    """Rows that leave, and how the others are numbered then."""

    numbers: NDArray[np.int32]
    """The rows that leave."""
    is_leaving: NDArray[np.bool_]
    """By row, whether it leaves."""
    moved: NDArray[np.int32]
    """Rows that stay and get other numbers: the highest ones, in ascending order."""
    to: NDArray[np.int32]
    """Their new numbers."""
    is_done: NDArray[np.bool_]
    """By tree, whether they have left it. Such trees stay as they are."""


def leaving_of(numbers: NDArray[np.int64], n_rows: int, n_trees: int) -> Leaving:
    """Return what it means that some of the rows leave."""
    numbers = np.unique(numbers)
    is_leaving = np.zeros(n_rows, dtype=np.bool_)
    is_leaving[numbers] = True
    n_after = n_rows - len(numbers)
    free = numbers[numbers < n_after]
    moved = n_after + np.flatnonzero(~is_leaving[n_after:])
    return Leaving(
        numbers.astype(np.int32),
        is_leaving,
        moved.astype(np.int32),
        free.astype(np.int32),
        np.zeros(n_trees, dtype=np.bool_),
    )


class Losses(NamedTuple):
    """The nodes that lose rows, parents before children, left subtrees before right ones."""

    rows: NDArray[np.float32]
    """The rows that leave; those of a node are neighbours."""
    numbers: NDArray[np.int32]
    waiting: NDArray[np.int64]
    """Nodes that are still to be visited: their number, first row, end of rows, and parent."""
    node: NDArray[np.int32]
    start: NDArray[np.int32]
    stop: NDArray[np.int32]
    above: NDArray[np.int32]
    """The place of the parent among these nodes."""
    n_below: NDArray[np.int32]
    """How many of the nodes that follow are in the subtree of this one, with itself."""
    extent: NDArray[np.float64]
    """The extent of the box before."""
    has_moved: NDArray[np.bool_]
    """Whether the time of the node, or of one above it, has changed."""
    kept: NDArray[np.int32]
    """The places of those whose children are to be summed up."""
    is_renumbered: NDArray[np.bool_]
    """By place in ``Leaving.moved``, whether the row has its new number in the tree."""


@kernel
def _allocate_losses(n_rows: int, n_features: int, most_met: int, n_moved: int) -> Losses:
    return Losses(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        np.empty((n_rows + 1, 4), dtype=np.int64),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met, dtype=np.int32),
        np.empty(most_met),
        np.empty(most_met, dtype=np.bool_),
        np.empty(most_met, dtype=np.int32),
        np.empty(n_moved, dtype=np.bool_),
    )


def leave_trees(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    leaving: Leaving,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
) -> None:
    """Let rows leave the trees from first to stop; one row at least must stay."""
    if len(leaving.numbers) == 0:
        leaving.is_done[first:stop] = True
        return
    rule = cut_rule(growth, labels)
    leave = _leave_chosen_cuts if growth.n_candidate_splits > 1 else _leave_any_cuts
    leave(grove, first, stop, rows, labels, leaving, rule, growth, model, random_states)


@kernel
def _leave_any_cuts(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    leaving: Leaving,
    rule: CutRule,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
) -> None:
    losses, workshop = _allocate(grove, first, stop, rows, leaving, growth)
    counts = np.empty(2, dtype=np.int64)
    for number in range(first, stop):
        if not leaving.is_done[number]:
            living = _living(
                grove, number, rows, labels, counts, rule, growth, model, random_states
            )
            n_met = _take_out(living, leaving, losses)
            _close_gaps(living, losses, n_met, workshop)
            _renumber(living, leaving, losses)
            grove.sizes[number] = counts[0]
            grove.free_pairs[number] = counts[1]
            leaving.is_done[number] = True


@kernel
def _leave_chosen_cuts(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    leaving: Leaving,
    rule: CutRule,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
) -> None:
    losses, workshop = _allocate(grove, first, stop, rows, leaving, growth)
    counts = np.empty(2, dtype=np.int64)
    for number in range(first, stop):
        if not leaving.is_done[number]:
            living = _living(
                grove, number, rows, labels, counts, rule, growth, model, random_states
            )
            n_met = _take_out(living, leaving, losses)
            _shrink_boxes(living, losses, n_met)
            _decide_again(living, losses, n_met, workshop)
            _renumber(living, leaving, losses)
            grove.sizes[number] = counts[0]
            grove.free_pairs[number] = counts[1]
            leaving.is_done[number] = True


@kernel
def _allocate(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    leaving: Leaving,
    growth: Growth,
) -> tuple[Losses, Workshop]:
    highest = wide(0)
    largest = wide(0)
    for number in range(first, stop):
        highest = max(highest, wide(grove.tallies[number, 0].height))
        largest = max(largest, grove.sizes[number])
    n_rows, n_features = len(leaving.is_leaving), rows.shape[1]
    most_met = min(len(leaving.numbers) * (highest + 1), largest)
    return (
        _allocate_losses(len(leaving.numbers), n_features, most_met, len(leaving.moved)),
        allocate_workshop(n_rows, n_features, growth.n_candidate_splits),
    )


@kernel
def _living(
    grove: Grove,
    number: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    counts: NDArray[np.int64],
    rule: CutRule,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
) -> LivingTree:
    counts[0] = grove.sizes[number]
    counts[1] = grove.free_pairs[number]
    return LivingTree(
        Tree(grove.nodes[number], grove.boxes[number], grove.tallies[number]),
        counts,
        contests_of(grove.contests, number),
        grove.row_numbers[number],
        random_states[number],
        rows,
        labels,
        rule,
        growth,
        model,
    )


@borrowing_kernel
def _take_out(living: LivingTree, leaving: Leaving, losses: Losses) -> int:
    """Take the rows out of their leaves; return how many nodes lose rows."""
    tree, _, _, _, _, all_rows, _, _, _, _ = living
    nodes, boxes, _ = tree
    rows, numbers, waiting, met, starts, stops, aboves, n_below, extents, _, _, _ = losses
    n_rows = len(leaving.numbers)
    for i in range(n_rows):
        numbers[i] = leaving.numbers[i]
        for f in range(all_rows.shape[1]):
            rows[i, f] = all_rows[numbers[i], f]
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = n_rows
    waiting[0, 3] = -1
    n_waiting = 1
    n_met = wide(0)
    while n_waiting > 0:
        n_waiting -= 1
        node = wide(waiting[n_waiting, 0])
        start, stop = wide(waiting[n_waiting, 1]), wide(waiting[n_waiting, 2])
        met[n_met] = node
        starts[n_met] = start
        stops[n_met] = stop
        aboves[n_met] = waiting[n_waiting, 3]
        n_below[n_met] = 1
        extents[n_met] = total_extent(boxes, node)
        record = nodes[node]
        if record.left_child == NO_CHILD:
            _leave_leaf(living, leaving.is_leaving, node)
        else:
            feature = wide(record.split_feature)
            middle = partition(rows, numbers, start, stop, feature, record.threshold)
            for side in range(1, -1, -1):
                first = middle if side == 1 else start
                last = stop if side == 1 else middle
                if first < last:
                    waiting[n_waiting, 0] = wide(record.left_child) + side
                    waiting[n_waiting, 1] = first
                    waiting[n_waiting, 2] = last
                    waiting[n_waiting, 3] = n_met
                    n_waiting += 1
        n_met += 1
    for e in range(n_met - 1, 0, -1):
        n_below[aboves[e]] += n_below[e]
    return n_met


@borrowing_kernel
def _leave_leaf(living: LivingTree, is_leaving: NDArray[np.bool_], node: int) -> None:
    """Set list, tally and box of a leaf from the rows that stay in it."""
    tree, _, _, next_row, _, _, _, _, _, _ = living
    _, _, tallies = tree
    row = tallies[node].first_row
    stays = wide(NO_ROW)
    while row != NO_ROW:  # a list of those that stay, in the opposite order
        following = next_row[row]
        if is_leaving[row]:
            next_row[row] = NO_ROW
        else:
            next_row[row] = stays
            stays = wide(row)
        row = following
    _fill_leaf(living, node, stays)


@borrowing_kernel
def _fill_leaf(living: LivingTree, node: int, first_row: int) -> None:
    """Let the rows of a list be those of a leaf."""
    tree, _, _, next_row, _, all_rows, labels, _, _, _ = living
    _, boxes, tallies = tree
    tally = tallies[node]
    tally.n_samples = 0
    tally.first_row = NO_ROW
    tally.height = 0
    tally.label_mean = 0.0
    tally.squared_deviation = 0.0
    for f in range(boxes.shape[2]):
        boxes[node, 0, f] = np.inf
        boxes[node, 1, f] = -np.inf
    row = first_row
    while row != NO_ROW:
        following = wide(next_row[row])
        add_row(tallies, node, next_row, row, labels[row])
        include_row(boxes, node, all_rows, row)
        row = following


@borrowing_kernel
def _shrink_boxes(living: LivingTree, losses: Losses, n_met: int) -> None:
    """Set boxes and numbers of rows of inner nodes, from those of their children."""
    nodes, boxes, tallies = living.tree
    for e in range(n_met - 1, -1, -1):
        node = wide(losses.node[e])
        left = wide(nodes[node].left_child)
        if left == NO_CHILD:
            continue
        tallies[node].n_samples = tallies[left].n_samples + tallies[left + 1].n_samples
        join_boxes(boxes, left, boxes, node)  # the box of no rows is empty, and adds nothing


@borrowing_kernel
def _decide_again(living: LivingTree, losses: Losses, n_met: int, workshop: Workshop) -> None:
    """Let the contests of all nodes that lose rows be decided anew, from the root down."""
    tree, _, _, _, _, _, _, _, growth, model = living
    nodes, boxes, tallies = tree
    n_kept = wide(0)
    e = wide(0)
    while e < n_met:
        node = wide(losses.node[e])
        above = wide(losses.above[e])
        n_below = wide(losses.n_below[e])
        if nodes[node].left_child == NO_CHILD:  # stays a leaf, and has its rows already
            model.set_node(nodes, tallies, node)
            e += 1
            continue
        n_rows = wide(tallies[node].n_samples)
        has_contest = tallies[node].contest != NO_CONTEST
        too_few = n_rows < max(FEWEST_ROWS, growth.min_samples_split)
        if not has_contest or too_few or total_extent(boxes, node) == 0.0:
            start_time = 0.0 if above < 0 else nodes[losses.node[above]].split_time
            gather_rows(living, workshop, node)
            rebuild_node(living, workshop, node, n_rows, start_time)
            e += n_below
            continue
        stay, has_moved = _shrink_node(living, losses, workshop, e, node, n_rows)
        losses.has_moved[e] = has_moved or (above >= 0 and losses.has_moved[above])
        if not stay:
            gather_rows(living, workshop, node)
            rebuild_children(living, workshop, node, n_rows)
        losses.kept[n_kept] = e
        n_kept += 1
        e += 1 if stay else n_below
    for i in range(n_kept - 1, -1, -1):
        e = wide(losses.kept[i])
        node = wide(losses.node[e])
        above = wide(losses.above[e])
        merge_tallies(nodes, tallies, node)
        is_first = losses.has_moved[e] and not (above >= 0 and losses.has_moved[above])
        if is_first and model.uses_times():
            set_again(living, workshop, node)
        else:
            model.set_node(nodes, tallies, node)


@borrowing_kernel
def _shrink_node(
    living: LivingTree, losses: Losses, workshop: Workshop, e: int, node: int, n_rows: int
) -> tuple[bool, bool]:
    """Let rows leave the contest of a node; return whether its children stay.

    Return also whether its time has changed.
    """
    tree, _, contests, _, random_state, _, _, rule, growth, _ = living
    _, boxes, tallies = tree
    place = wide(tallies[node].contest)
    start, stop = wide(losses.start[e]), wide(losses.stop[e])
    count_rows(contests, place, rule, losses.rows, losses.numbers, start, stop, -1)
    extent = total_extent(boxes, node)
    has_moved = False
    if extent < losses.extent[e]:
        moves = Moves(workshop.waiting, workshop.times)
        has_moved = lengthen_time(random_state, tree, node, losses.extent[e], extent, moves)
    # Also where the extent is the same: what a short side loses may be lost in rounding.
    if redraw_in_smaller_box(random_state, tree, contests, node, extent) > 0:
        gather_rows(living, workshop, node)
        count_redrawn(contests, place, rule, workshop.rows, workshop.numbers, n_rows)
    return decide(tree, contests, node, n_rows, growth.tolerance), has_moved


@borrowing_kernel
def _close_gaps(living: LivingTree, losses: Losses, n_met: int, workshop: Workshop) -> None:
    """Remove cuts that separate nothing any more, and those of nodes with too few rows."""
    tree, _, _, next_row, _, _, _, _, growth, model = living
    nodes, boxes, tallies = tree
    for e in range(n_met - 1, -1, -1):  # children before parents
        node = wide(losses.node[e])
        left = wide(nodes[node].left_child)
        if left != NO_CHILD:
            n_left, n_right = tallies[left].n_samples, tallies[left + 1].n_samples
            if n_left == 0 or n_right == 0:
                _replace_by_child(living, workshop, node, left + 1 if n_left == 0 else left)
            elif n_left + n_right < growth.min_samples_split:
                n_rows = gather_rows(living, workshop, node)
                clear_below(living, workshop, node)
                record = nodes[node]
                record.split_feature = -1
                record.threshold = np.float32(np.nan)
                record.split_time = np.inf
                first = wide(NO_ROW)
                for i in range(n_rows):
                    next_row[workshop.numbers[i]] = first
                    first = wide(workshop.numbers[i])
                _fill_leaf(living, node, first)
                model.set_time(nodes, node)
            else:
                merge_tallies(nodes, tallies, node)
                join_boxes(boxes, left, boxes, node)
        if tallies[node].n_samples > 0:
            model.set_node(nodes, tallies, node)


@inner_kernel
def _replace_by_child(living: LivingTree, workshop: Workshop, node: int, child: int) -> None:
    """Let a child take the place of its parent; its sibling has no rows any more."""
    tree, counts, _, _, _, _, _, _, _, _ = living
    nodes, boxes, tallies = tree
    left = wide(nodes[node].left_child)
    sibling = 2 * left + 1 - child
    clear_below(living, workshop, sibling)
    nodes[node] = nodes[child]
    copy_box(boxes, child, boxes, node)
    tallies[node] = tallies[child]
    give_back_pair(tree, counts, left)


@borrowing_kernel
def _renumber(living: LivingTree, leaving: Leaving, losses: Losses) -> None:
    """Give rows with the highest numbers those that are free.

    All rows of a leaf are renumbered together: it may have many, if they are equal.
    """
    tree, _, _, next_row, _, rows, _, _, _, _ = living
    nodes, _, tallies = tree
    moved, to = leaving.moved, leaving.to
    is_renumbered = losses.is_renumbered
    n_after = len(leaving.is_leaving) - len(leaving.numbers)
    for i in range(len(moved)):
        is_renumbered[i] = False
    for i in range(len(moved)):
        if is_renumbered[i]:
            continue
        node = wide(0)
        while nodes[node].left_child != NO_CHILD:
            record = nodes[node]
            goes_right = rows[moved[i], record.split_feature] > record.threshold
            node = wide(record.left_child) + goes_right
        row = wide(tallies[node].first_row)
        before = wide(NO_ROW)
        while row != NO_ROW:
            following = wide(next_row[row])
            number = row
            if row >= n_after:
                place = _place_of(moved, row)
                is_renumbered[place] = True
                number = wide(to[place])
                next_row[row] = NO_ROW
                next_row[number] = following
            if before == NO_ROW:
                tallies[node].first_row = number
            else:
                next_row[before] = number
            before = number
            row = following


@inner_kernel
def _place_of(ascending: NDArray[np.int32], row: int) -> int:
    """Return where a number stands."""
    low, high = wide(0), wide(len(ascending))
    while high - low > 1:
        middle = (low + high) // 2
        if ascending[middle] <= row:
            low = middle
        else:
            high = middle
    return low
