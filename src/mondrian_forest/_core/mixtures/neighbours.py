"""The training rows that a row is compared with: how many they are, and some of their labels.

A row that goes down a tree may branch off above any node whose box it is outside of (Alg. 5). There
it is compared with all rows of that node. The novelty of a row in a tree is the mean share of these
rows in all rows, and the novelty in a forest is the mean over its trees. Next to a training row it
is about 1 / n, though not below ``LEAST_SHARE``, and far from all data it is 1. Label models have
no part in it.

The labels near a row are a sample of the labels of these nodes. For this sample, a row goes no
further down than to the last node with enough rows. Or it stops where the label model lets it stop,
which is far up if the labels say nothing about the cuts. If a row leaves the tree at a node with
probability w, the share w of its sample comes from that node, spread evenly over the leaves below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import excess_of_row
from ..arrays.grove import Grove
from ..arrays.kernel import borrowing_kernel, inner_kernel, wide
from ..arrays.tree import NO_CHILD, NO_ROW, TALLY, Records
from ..growth.sample import partition
from .ensemble import Ensemble, Walk, allocate_walk
from .route import find_outside_node, replace_row, start_walk

LEAST_SHARE = 1e-4
"""Smaller shares of the rows count as this one, so that rows need not be followed to the leaves."""
FEWEST_LABELS = 20
"""Labels are those of nodes with at least so many rows."""
_ENOUGH_LABELS = 800
"""A sample has so many labels, from all trees, unless that takes too many from each."""
_MOST_STEPS = 64
"""Of the rows of a leaf in a tree that learns, only the newest ones are looked at, so many."""
_GOLDEN = 0.6180339887498949
_SCATTER = 997.6180339887498949
_LIGHT = 1e-6
"""A row is not followed when no more than this weight is left."""


class LabelMemory(NamedTuple):
    """Where the labels of the nodes are: in the order of each tree, or by the numbers of rows."""

    ordered: NDArray[np.float64]
    """By tree: the labels of a node are neighbours. Empty if there are row numbers."""
    labels: NDArray[np.float64]
    """By row."""
    row_numbers: NDArray[np.int32]
    """By tree, as in ``Grove``."""
    tallies: Records
    is_linked: bool


NO_LABELS = LabelMemory(
    np.empty((0, 0)), np.empty(0), np.empty((0, 0), np.int32), np.empty((0, 0), TALLY), False
)


def label_memory(grove: Grove, labels: NDArray[np.float64]) -> LabelMemory:
    """Return where to find the labels of a forest that can learn."""
    return LabelMemory(np.empty((0, 0)), labels, grove.row_numbers, grove.tallies, grove.is_linked)


def order_labels(ensemble: Ensemble, memory: LabelMemory) -> NDArray[np.float64]:
    """Return all labels in the order of each tree."""
    ordered = np.empty((len(ensemble.sizes), int(ensemble.nodes[0, 0]["n_samples"])))
    waiting = np.empty(ensemble.depth + 2, np.int64)
    for number in range(len(ordered)):
        _order_tree(ensemble.nodes, memory, number, waiting, ordered)
    return ordered


class Neighbours(NamedTuple):
    """What is found about each row of a block."""

    novelty: NDArray[np.float64]
    labels: NDArray[np.float64]
    """By row: the labels near it, ascending; of no length if they were not asked for."""


def find_neighbours(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    memory: LabelMemory | None = None,
    n_threads: int = 1,
    run: Callable[..., Iterable[None]] = map,
    *,
    is_pruned: bool = False,
) -> Neighbours:
    """Find novelty of a block of rows, and the labels near them if there is a memory of labels.

    ``run`` is as in ``predict_moments``. With ``is_pruned``, rows stop where the label model lets
    them stop; then the novelty has no meaning.
    """
    n_trees = len(ensemble.sizes)
    n_labels = 0 if memory is None else min(-(-_ENOUGH_LABELS // n_trees), FEWEST_LABELS)
    places = NO_LABELS if memory is None else memory
    found = Neighbours(np.zeros(len(rows)), np.empty((len(rows), n_trees * n_labels)))

    def find(part: tuple[int, int]) -> None:
        first, stop = part
        walk = allocate_walk(ensemble, stop - first)
        groups = np.empty((ensemble.depth + 2, 5), np.int64)
        labels, taken = found.labels[first:stop], np.empty(stop - first, np.int64)
        phase = np.empty(stop - first)
        set_phases(rows[first:stop], phase)
        sample = _Sample(places, n_labels, is_pruned, phase, taken, labels)
        for tree in range(n_trees):
            _visit_tree(
                ensemble, tree, rows[first:stop], walk, groups, found.novelty[first:stop], sample
            )
        labels.sort(axis=1)

    ends = [len(rows) * part // n_threads for part in range(n_threads + 1)]
    for _ in run(find, list(pairwise(ends))):
        pass
    found.novelty[:] /= n_trees
    np.minimum(found.novelty, 1.0, out=found.novelty)
    return found


class _Sample(NamedTuple):
    """The labels that are taken for each row."""

    memory: LabelMemory
    n_each: int
    """So many are taken from each tree."""
    is_pruned: bool
    """Whether rows stop at nodes as the label model has it, or at the last one with enough rows."""
    phase: NDArray[np.float64]
    """By row, from 0 to 1: which labels are taken from a node. Other rows take others, so that
    errors of sampling differ from row to row."""
    taken: NDArray[np.int64]
    """How many each row has from the tree that is looked at."""
    labels: NDArray[np.float64]
    """By row, tree after tree."""


@borrowing_kernel
def set_phases(rows: NDArray[np.float32], phase: NDArray[np.float64]) -> None:
    """Set what looks like a random number from 0 to 1, and is always the same for a row."""
    for i in range(len(rows)):
        total = 0.0
        for f in range(rows.shape[1]):
            total = (total + np.float64(rows[i, f])) * _SCATTER
            total -= np.floor(total)  # not math.floor, which returns an integer and may overflow
        phase[i] = total


@borrowing_kernel
def _visit_tree(
    ensemble: Ensemble,
    tree: int,
    rows: NDArray[np.float32],
    walk: Walk,
    groups: NDArray[np.int64],
    novelty: NDArray[np.float64],
    sample: _Sample,
) -> None:
    """Add the novelty of each row in one tree, and take its labels.

    ``groups`` are groups of rows that are still to be followed. Columns: node, first row, end of
    rows, parent node, place of the node's first label in the order of the tree.
    """
    _, all_nodes, all_boxes, _, model, lifetime = ensemble
    nodes, boxes = all_nodes[tree], all_boxes[tree]
    moving, numbers, _, _, _, staying, _ = walk
    start_walk(rows, walk)
    for i in range(len(rows)):
        sample.taken[i] = 0
    groups[0, 0] = groups[0, 1] = groups[0, 4] = 0
    groups[0, 2] = len(rows)
    groups[0, 3] = -1
    n_groups = wide(1)
    while n_groups > 0:
        n_groups -= 1
        node = groups[n_groups, 0]
        start = groups[n_groups, 1]
        stop = groups[n_groups, 2]
        above = groups[n_groups, 3]
        offset = groups[n_groups, 4]
        record = nodes[node]
        parent_time = 0.0 if above < 0 else nodes[above].split_time
        duration = min(record.split_time, lifetime) - parent_time
        n_outside = find_outside_node(boxes, node, walk, start, stop)
        for k in range(n_outside - 1, -1, -1):
            # From the last row on: a row that is dropped is replaced by the last one, which is
            # done.
            i = wide(walk.outside[k])
            distance = excess_of_row(boxes, node, moving, i)
            weight = staying[numbers[i]] * -math.expm1(-duration * distance)
            _leave(nodes, tree, node, offset, numbers[i], weight, walk, novelty, sample)
            if staying[numbers[i]] == 0.0:
                stop -= 1
                replace_row(moving, numbers, i, stop)
        if sample.is_pruned and record.left_child != NO_CHILD:
            stopping = model.stop_probability(record)
            for i in range(stop - 1, start - 1, -1):
                weight = staying[numbers[i]] * stopping
                _leave(nodes, tree, node, offset, numbers[i], weight, walk, novelty, sample)
                if staying[numbers[i]] == 0.0:
                    stop -= 1
                    replace_row(moving, numbers, i, stop)
        is_light = record.n_samples <= LEAST_SHARE * nodes[0].n_samples
        is_done = record.n_samples < FEWEST_LABELS and not sample.is_pruned
        if record.left_child == NO_CHILD or (is_light and (is_done or sample.n_each == 0)):
            for i in range(start, stop):
                _leave(nodes, tree, node, offset, numbers[i], 1.0, walk, novelty, sample)
            continue
        feature = wide(record.split_feature)
        middle = partition(moving, numbers, start, stop, feature, record.threshold)
        for side in range(1, -1, -1):
            child = record.left_child + side
            first = middle if side == 1 else start
            end = stop if side == 1 else middle
            if first == end:
                continue
            if nodes[child].n_samples < FEWEST_LABELS and not sample.is_pruned:
                for i in range(first, end):
                    _take(nodes, tree, node, offset, numbers[i], 1.0, sample)
            groups[n_groups, 0] = child
            groups[n_groups, 1] = first
            groups[n_groups, 2] = end
            groups[n_groups, 3] = node
            groups[n_groups, 4] = offset + side * nodes[record.left_child].n_samples
            n_groups += 1


@inner_kernel
def _leave(
    nodes: Records,
    tree: int,
    node: int,
    offset: int,
    number: int,
    weight: float,
    walk: Walk,
    novelty: NDArray[np.float64],
    sample: _Sample,
) -> None:
    """Let a row leave the tree at a node with a probability, or with all that is left of it."""
    staying = walk.staying
    if staying[number] - weight <= _LIGHT:
        weight = staying[number]
    staying[number] -= weight
    novelty[number] += weight * max(nodes[node].n_samples / nodes[0].n_samples, LEAST_SHARE)
    _take(nodes, tree, node, offset, number, 1.0 - staying[number], sample)


@inner_kernel
def _take(
    nodes: Records,
    tree: int,
    node: int,
    offset: int,
    number: int,
    left: float,
    sample: _Sample,
) -> None:
    """Give a row labels of a node until it has a share ``left`` of those from this tree."""
    before = sample.taken[number]
    n_more = wide(left * sample.n_each + 0.5) - before
    n_samples = wide(nodes[node].n_samples)
    phase = sample.phase[number] + tree * _GOLDEN
    phase -= np.floor(phase)
    for i in range(n_more):
        rank = min(max(wide((i + phase) * n_samples / n_more), 0), n_samples - 1)
        label = _label_at(nodes, sample.memory, tree, node, offset, rank)
        sample.labels[number, tree * sample.n_each + before + i] = label
        sample.taken[number] += 1


@inner_kernel
def _label_at(
    nodes: Records, memory: LabelMemory, tree: int, node: int, offset: int, rank: int
) -> float:
    """Return a label of a node, by its rank in the order of the tree."""
    if len(memory.ordered) > 0:
        return np.float64(memory.ordered[tree, offset + rank])
    if not memory.is_linked:
        return np.float64(memory.labels[memory.row_numbers[tree, offset + rank]])
    while nodes[node].left_child != NO_CHILD:
        node = wide(nodes[node].left_child)
        if rank >= nodes[node].n_samples:
            rank -= nodes[node].n_samples
            node += 1
    row = memory.tallies[tree, node].first_row
    n_samples = wide(nodes[node].n_samples)
    n_steps = rank if n_samples <= _MOST_STEPS else rank * _MOST_STEPS // n_samples
    for _ in range(n_steps):
        row = memory.row_numbers[tree, row]
    return np.float64(memory.labels[row])


@borrowing_kernel
def _order_tree(
    nodes: Records,
    memory: LabelMemory,
    tree: int,
    waiting: NDArray[np.int64],
    ordered: NDArray[np.float64],
) -> None:
    """Write down the labels of one tree in its order."""
    if len(memory.ordered) > 0 or not memory.is_linked:
        for i in range(ordered.shape[1]):
            ordered[tree, i] = _label_at(nodes[tree], memory, tree, 0, 0, i)
        return
    waiting[0] = 0
    n_waiting = wide(1)
    n_done = wide(0)
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        left = nodes[tree, node].left_child
        if left != NO_CHILD:
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
            continue
        row = memory.tallies[tree, node].first_row
        while row != NO_ROW:
            ordered[tree, n_done] = memory.labels[row]
            n_done += 1
            row = memory.row_numbers[tree, row]
