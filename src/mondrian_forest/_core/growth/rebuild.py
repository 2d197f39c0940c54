"""Subtrees that are sampled anew in place: their rows are gathered, and their nodes used again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box, copy_box
from ..arrays.contests import NO_CONTEST, Contests, give_back_contest
from ..arrays.grove import link_rows
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, prefetch, wide
from ..arrays.tree import NO_CHILD, NO_ROW, NODE, TALLY, Tree, give_back_pair, take_pair
from ..arrays.vector import padded_width
from ..labels.model import LabelModel, set_all_nodes
from ..labels.tallies import order_labels, tally_labels
from . import Growth
from .sample import Scratch, allocate_scratch, divide, sample_block


class LivingTree(NamedTuple):
    """A tree that learns and forgets, and all that this takes."""

    tree: Tree
    """Its arrays, with room for more nodes."""
    counts: NDArray[np.int64]
    """Number of nodes and first free pair, as ``take_pair`` has them."""
    contests: Contests
    next_row: NDArray[np.int32]
    """The next row of the same leaf, as in ``RowLists``."""
    random_state: NDArray[np.uint64]
    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    rule: Any
    """Of type ``CutRule``: ``BestCut`` where nodes may have contests."""
    growth: Growth
    model: LabelModel


class Workshop(NamedTuple):
    """Where subtrees are sampled. It is allocated before a tree changes, and once for all trees."""

    rows: NDArray[np.float32]
    """The rows of the subtree."""
    numbers: NDArray[np.int32]
    """Their numbers."""
    ordered: NDArray[np.float64]
    """Their labels."""
    tree: Tree
    """The new subtree, before it takes the place of the old one."""
    place: NDArray[np.int32]
    """By node of the new subtree: its number in the tree."""
    waiting: NDArray[np.int32]
    """Nodes that are still to be visited."""
    times: NDArray[np.float64]
    """Times that they are to have."""
    order: NDArray[np.int32]
    """Nodes, parents before children."""
    scratch: Scratch


@kernel
def allocate_workshop(n_rows: int, n_features: int, n_candidates: int) -> Workshop:
    """Return room for subtrees of up to so many rows."""
    n_nodes = 2 * n_rows
    return Workshop(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        np.empty(n_rows),
        Tree(
            np.empty(n_nodes, dtype=NODE),
            np.empty((n_nodes, 2, n_features), dtype=np.float32),
            np.empty(n_nodes, dtype=TALLY),
        ),
        np.empty(n_nodes, dtype=np.int32),
        np.empty(n_rows + 2, dtype=np.int32),
        np.empty(n_rows + 2),
        np.empty(n_nodes, dtype=np.int32),
        allocate_scratch(n_candidates, n_features, n_rows),
    )


@borrowing_kernel
def rebuild_node(
    living: LivingTree, workshop: Workshop, node: int, n_rows: int, start_time: float
) -> None:
    """Sample a node and all below it anew, on the rows that are in the workshop."""
    tree, _, contests, _, _, _, _, _, _, _ = living
    _, boxes, tallies = tree
    clear_below(living, workshop, node)
    if tallies[node].contest != NO_CONTEST:
        give_back_contest(contests, tallies[node].contest)
    bounding_box(workshop.rows, 0, n_rows, boxes, node)
    _sample_in_place(living, workshop, wide(0), n_rows, node, start_time)


@borrowing_kernel
def rebuild_children(living: LivingTree, workshop: Workshop, node: int, n_rows: int) -> None:
    """Sample both children of a node anew, on the rows that are in the workshop.

    The node has its new cut already, and keeps its contest.
    """
    tree, counts, _, _, _, _, _, _, _, _ = living
    nodes, boxes, tallies = tree
    rows, numbers, _, _, _, _, _, _, scratch = workshop
    clear_below(living, workshop, node)
    record = nodes[node]
    left = take_pair(tallies, counts)
    feature = wide(record.split_feature)
    middle = divide(rows, numbers, 0, n_rows, feature, record.threshold, boxes, left, scratch.sides)
    record.left_child = left
    for side in range(2):
        start = middle if side == 1 else wide(0)
        stop = n_rows if side == 1 else middle
        _sample_in_place(living, workshop, start, stop, left + side, record.split_time)


@borrowing_kernel
def gather_rows(living: LivingTree, workshop: Workshop, node: int) -> int:
    """Copy the rows of a subtree into the workshop; return their number."""
    tree, _, _, next_row, _, all_rows, labels, _, _, _ = living
    nodes, _, tallies = tree
    rows, numbers, _, _, _, waiting, _, _, _ = workshop
    waiting[0] = node
    n_waiting = 1
    n_rows = wide(0)
    while n_waiting > 0:
        n_waiting -= 1
        here = wide(waiting[n_waiting])
        left = nodes[here].left_child
        if left != NO_CHILD:
            prefetch(nodes, left)
            prefetch(tallies, left)
            prefetch(nodes, left + 1)
            prefetch(tallies, left + 1)
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
            continue
        row = tallies[here].first_row
        while row != NO_ROW:
            numbers[n_rows] = row
            n_rows += 1
            prefetch(all_rows, row)
            prefetch(labels, row)
            row = next_row[row]
    for i in range(n_rows):
        row = wide(numbers[i])
        for f in range(all_rows.shape[1]):
            rows[i, f] = all_rows[row, f]
    return n_rows


@borrowing_kernel
def clear_below(living: LivingTree, workshop: Workshop, node: int) -> None:
    """Give back all nodes below a node, and their contests; the node becomes a leaf."""
    tree, counts, contests, _, _, _, _, _, _, _ = living
    nodes, _, tallies = tree
    waiting = workshop.waiting
    n_waiting = 0
    if nodes[node].left_child != NO_CHILD:
        waiting[0] = nodes[node].left_child
        n_waiting = 1
        nodes[node].left_child = NO_CHILD
    while n_waiting > 0:
        n_waiting -= 1
        left = wide(waiting[n_waiting])
        for child in range(left, left + 2):
            below = nodes[child].left_child
            if below != NO_CHILD:
                prefetch(nodes, below)
                prefetch(nodes, below + 1)
                prefetch(tallies, below)
                prefetch(tallies, below + 1)
                waiting[n_waiting] = below
                n_waiting += 1
            if tallies[child].contest != NO_CONTEST:
                give_back_contest(contests, tallies[child].contest)
        give_back_pair(tree, counts, left)


@inner_kernel
def _sample_in_place(
    living: LivingTree, workshop: Workshop, start: int, stop: int, root: int, start_time: float
) -> None:
    """Sample some rows of the workshop; the result takes the place of a node, which has its box."""
    tree, counts, contests, next_row, random_state, _, labels, rule, growth, model = living
    all_nodes, all_boxes, all_tallies = tree
    all_rows, all_numbers, ordered, new, place, _, _, _, scratch = workshop
    nodes, boxes, tallies = new
    rows, numbers = all_rows[start:stop], all_numbers[start:stop]
    copy_box(all_boxes, root, boxes, 0)
    size = sample_block(
        rows, numbers, rule, start_time, growth, random_state, new, contests, wide(0), wide(1),
        scratch,
    )  # fmt: skip
    order_labels(labels, numbers, ordered)
    tally_labels(nodes, tallies, ordered, 0, size)
    link_rows(nodes, tallies, numbers, next_row, 0, size)
    for node in range(size - 1, -1, -1):
        model.set_time(nodes, node)
        model.set_node(nodes, tallies, node)
    place[0] = root
    for node in range(size):
        left = nodes[node].left_child
        if left != NO_CHILD:
            pair = take_pair(all_tallies, counts)
            place[left] = pair
            place[left + 1] = pair + 1
            nodes[node].left_child = pair
        all_nodes[place[node]] = nodes[node]
        copy_box(boxes, node, all_boxes, place[node])
        all_tallies[place[node]] = tallies[node]


@borrowing_kernel
def set_again(living: LivingTree, workshop: Workshop, node: int) -> None:
    """Set what the label model says of a node and of all below it, whose times have changed."""
    tree, _, _, _, _, _, _, _, _, model = living
    nodes, _, tallies = tree
    waiting, order = workshop.waiting, workshop.order
    waiting[0] = node
    n_waiting = 1
    n_found = wide(0)
    while n_waiting > 0:
        n_waiting -= 1
        here = wide(waiting[n_waiting])
        order[n_found] = here
        n_found += 1
        left = nodes[here].left_child
        if left != NO_CHILD:
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
    set_all_nodes(model, nodes, tallies, order[:n_found])
