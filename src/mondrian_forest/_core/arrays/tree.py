"""The arrays that make up one Mondrian tree.

A node has an entry in three arrays: what prediction reads in every node that it passes, the node's
box, and what only learning needs. The fields of an entry are neighbours in memory. So a row on its
way down waits for a few cache lines at each node, and not for one line for each field.

Children are neighbours: the right child of node j is ``left_child[j] + 1``. The root is node 0. A
batch fit numbers nodes depth first, children after their parent. Online learning adds and removes
pairs of children anywhere, until ``copy_depth_first`` restores the order of a batch fit. Pairs that
are free form a list: the left one has the number of the next free pair as its ``first_row``. All
their nodes look like leaves without rows. Arrays may have room for more nodes than there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .boxes import copy_box
from .contests import NO_CONTEST, Contests, copy_contest, take_contest
from .kernel import AHEAD, inner_kernel, kernel, prefetch, wide

MOST_FEATURES = 2**15 - 1
NO_CHILD = -1
NO_ROW = -1

Records = NDArray[Any]

NODE = np.dtype(
    (
        np.record,
        [
            ("left_child", np.int32),
            ("split_feature", np.int16),
            ("threshold", np.float32),
            ("split_time", np.float64),
            # What the label model sets, see `labels`.
            ("share", np.float64),
            ("location", np.float64),
            ("precision", np.float64),
            ("n_samples", np.int32),
        ],
    )
)
TALLY = np.dtype(
    (
        np.record,
        [
            ("n_samples", np.int32),
            ("first_row", np.int32),
            ("height", np.int32),
            ("label_mean", np.float64),
            ("squared_deviation", np.float64),
            ("log_gain", np.float64),
            # The place of the node's candidate cuts, see `contests`.
            ("contest", np.int32),
        ],
    )
)


class Tree(NamedTuple):
    """A Mondrian tree; see the notation table of ``_core``.

    Per node: 46 bytes, 8 bytes for each feature, and 40 bytes that prediction does without.
    """

    nodes: Records
    """Of type ``NODE``: the structure of the tree, and what the label model says of each node."""
    boxes: NDArray[np.float32]
    """Shape (n_nodes, 2, n_features): the smallest box around the rows in each node."""
    tallies: Records
    """Of type ``TALLY``. A frozen tree, which cannot learn, has only that of the root."""

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @property
    def left_child(self) -> NDArray[np.int32]:
        return self.nodes["left_child"]

    @property
    def split_feature(self) -> NDArray[np.int16]:
        return self.nodes["split_feature"]

    @property
    def threshold(self) -> NDArray[np.float32]:
        return self.nodes["threshold"]

    @property
    def split_time(self) -> NDArray[np.float64]:
        return self.nodes["split_time"]

    @property
    def lower(self) -> NDArray[np.float32]:
        return self.boxes[:, 0]

    @property
    def upper(self) -> NDArray[np.float32]:
        return self.boxes[:, 1]

    @property
    def n_samples(self) -> NDArray[np.int32]:
        """Number of training rows in each node."""
        return self.tallies["n_samples"]

    @property
    def height(self) -> NDArray[np.int32]:
        """Number of edges between each node and the deepest leaf below it."""
        return self.tallies["height"]

    @property
    def depth(self) -> int:
        """Number of edges between the root and the deepest leaf."""
        return int(self.height[0])


class RowOrder(NamedTuple):
    """Which rows each node holds after sampling: the row numbers of a node are neighbours.

    Node j holds ``order[first_row[j] : first_row[j] + n_samples[j]]``.
    """

    order: NDArray[np.int32]


class RowLists(NamedTuple):
    """Which rows each leaf holds in a tree that learns online: a linked list for each leaf.

    It starts at the leaf's ``first_row``. Other nodes have ``NO_ROW`` there.
    """

    next: NDArray[np.int32]
    """By row: the next row of the same leaf, ``NO_ROW`` at the end."""


@inner_kernel
def take_pair(tallies: Records, counts: NDArray[np.int64]) -> int:
    """Return the left one of two neighbours that no other node has as its children.

    ``counts`` are the number of nodes and the first pair that is free, or NO_CHILD.
    """
    left = wide(counts[1])
    if left != NO_CHILD:
        counts[1] = tallies[left].first_row
        return left
    left = wide(counts[0])
    counts[0] = left + 2
    return left


@inner_kernel
def give_back_pair(tree: Tree, counts: NDArray[np.int64], left: int) -> None:
    """Let a pair of children be used again; nothing of their rows stays behind."""
    nodes, boxes, tallies = tree
    for node in range(left, left + 2):
        record, tally = nodes[node], tallies[node]
        record.left_child = NO_CHILD
        record.split_feature = -1
        record.threshold = np.float32(0.0)
        record.split_time = 0.0
        record.share = 0.0
        record.location = 0.0
        record.precision = 1.0
        record.n_samples = 0
        tally.n_samples = 0
        tally.first_row = NO_ROW
        tally.height = 0
        tally.label_mean = 0.0
        tally.squared_deviation = 0.0
        tally.log_gain = 0.0
        tally.contest = NO_CONTEST
        for f in range(boxes.shape[2]):
            boxes[node, 0, f] = boxes[node, 1, f] = np.float32(0.0)
    tallies[left].first_row = counts[1]
    counts[1] = left


@kernel
def copy_depth_first(
    tree: Tree, contests: Contests, out: Tree, counts: NDArray[np.int64], new_contests: Contests
) -> None:
    """Copy a tree into arrays with enough room, without free places.

    Its nodes are numbered as by a batch fit, and its contests in the same order. ``counts`` are
    those of ``take_pair`` for the copy.
    """
    nodes, boxes, tallies = tree
    new_nodes, new_boxes, new_tallies = out
    # Old and new number of each node whose subtree is still to be copied.
    waiting = np.empty((tallies[0].height + 2, 2), dtype=np.int32)
    waiting[0, 0] = waiting[0, 1] = 0
    new_nodes[0] = nodes[0]
    copy_box(boxes, 0, new_boxes, 0)
    new_tallies[0] = tallies[0]
    new_contests.counts[0] = 0
    new_contests.counts[1] = NO_CONTEST
    n_waiting = 1
    n_copied = 1
    while n_waiting > 0:
        n_waiting -= 1
        old, new = waiting[n_waiting, 0], waiting[n_waiting, 1]
        if tallies[old].contest != NO_CONTEST:
            place = take_contest(new_contests)
            new_tallies[new].contest = place
            if place != NO_CONTEST:
                copy_contest(contests, tallies[old].contest, new_contests, place)
        left = nodes[old].left_child
        if left == NO_CHILD:
            continue
        new_nodes[new].left_child = n_copied
        for side in range(1, -1, -1):  # the left child ends on top and is copied first
            new_nodes[n_copied + side] = nodes[left + side]
            copy_box(boxes, left + side, new_boxes, n_copied + side)
            new_tallies[n_copied + side] = tallies[left + side]
            waiting[n_waiting, 0] = left + side
            waiting[n_waiting, 1] = n_copied + side
            n_waiting += 1
        n_copied += 2
    counts[0] = n_copied
    counts[1] = NO_CHILD


def level_by_level(nodes: Records) -> NDArray[np.int32]:
    """Return all node numbers, each parent before its children, one level after the other.

    The nodes of a level can be prefetched, which ``parents_first`` cannot do. That is faster if
    nodes have no order in memory.
    """
    order = np.empty(len(nodes), dtype=np.int32)
    return order[: _level_by_level(nodes, order)]


def parents_first(nodes: Records, height: int) -> NDArray[np.int32]:
    """Return all node numbers, each parent before its children, depth first."""
    order = np.empty(len(nodes), dtype=np.int32)
    return order[: _parents_first(nodes, height, order)]


@kernel
def _level_by_level(nodes: Records, order: NDArray[np.int32]) -> int:
    order[0] = 0
    n_found = 1
    i = 0
    while i < n_found:
        prefetch(nodes, order[min(i + AHEAD, n_found - 1)])
        left = nodes[order[i]].left_child
        if left != NO_CHILD:
            order[n_found] = left
            order[n_found + 1] = left + 1
            n_found += 2
        i += 1
    return n_found


@kernel
def _parents_first(nodes: Records, height: int, order: NDArray[np.int32]) -> int:
    waiting = np.empty(height + 2, dtype=np.int32)
    waiting[0] = 0
    n_waiting = 1
    n_found = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        order[n_found] = node
        n_found += 1
        left = nodes[node].left_child
        if left != NO_CHILD:
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
    return n_found
