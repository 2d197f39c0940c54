"""Trees over rows that no process holds at once: the top of a tree grows in rounds.

Mondrian cuts depend on the rows only through boxes, and the box of all rows follows from the boxes
of some rows each. So each process reports the box and the label moments of its own rows, for every
block of the top. The reports are joined, and the next cuts are drawn. Blocks that are small enough
are *closed*: their rows come together in one process, which grows the subtree as in a batch fit.

The random stream of a block is derived from the seed of the tree and the block's place in the tree.
So a task that is repeated gives the same result, wherever the rows are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box, copy_box, include_row, join_boxes, total_extent
from ..arrays.contests import NO_CONTEST, NO_CONTESTS
from ..arrays.kernel import kernel
from ..arrays.rng import exponential
from ..arrays.tree import NO_CHILD, NODE, TALLY, Tree
from ..labels.tallies import merge_tallies, order_labels, tally_labels
from ..moments import MomentArrays, Moments, add_label, merge_arrays
from . import Growth
from .cuts import cut_rule, sample_cut
from .sample import sample_alone

WAITING, INNER, LEAF, CLOSED = range(4)
"""What a block of the top is: undecided, cut in two, a leaf of the tree, the root of a subtree."""


class Reports(NamedTuple):
    """Boxes and label moments of some blocks, as far as some of the rows determine them."""

    boxes: NDArray[np.float32]
    """Shape (n_blocks, 2, n_features)."""
    labels: MomentArrays
    """The moments of the labels in each block."""

    @property
    def n_rows(self) -> NDArray[np.int64]:
        return self.labels.n_samples

    def joined(self, other: Reports) -> Reports:
        """Return the reports on the same blocks by the rows of both."""
        low = np.minimum(self.boxes[:, 0], other.boxes[:, 0])
        high = np.maximum(self.boxes[:, 1], other.boxes[:, 1])
        return Reports(np.stack([low, high], axis=1), merge_arrays(self.labels, other.labels))

    def followed_by(self, others: Reports) -> Reports:
        """Return the reports on these blocks, then those on other blocks."""
        pairs: list[tuple[Any, Any]] = list(zip(self.labels, others.labels, strict=True))
        return Reports(
            np.concatenate((self.boxes, others.boxes)),
            MomentArrays(*(np.concatenate(pair) for pair in pairs)),
        )


def no_reports(n_blocks: int, n_features: int) -> Reports:
    """Return reports by no rows: boxes are inside out, counts are zero."""
    boxes = np.empty((n_blocks, 2, n_features), np.float32)
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    moments = MomentArrays(np.zeros(n_blocks, np.int64), np.zeros(n_blocks), np.zeros(n_blocks))
    return Reports(boxes, moments)


class Candidates(NamedTuple):
    """Cuts to choose from, for some blocks of one tree; shape (n_blocks, n_candidates)."""

    place: NDArray[np.int32]
    """By block of the tree: its number among these blocks, -1 if it is not cut in this round."""
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    center: NDArray[np.float64]
    """By number among these blocks: the mean label, from which deviations are taken."""


class Left(NamedTuple):
    """Rows and sums of deviations on the left of each candidate."""

    n_rows: NDArray[np.int64]
    deviation: NDArray[np.float64]

    def joined(self, other: Left) -> Left:
        """Return the same for the rows of both."""
        return Left(self.n_rows + other.n_rows, self.deviation + other.deviation)


class Cuts(NamedTuple):
    """The cuts that are made in one round, by block of one tree."""

    left: NDArray[np.int32]
    """The first of the two new blocks, ``NO_CHILD`` if the block is not cut."""
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]


@kernel
def look_left(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    blocks: NDArray[np.int32],
    candidates: Candidates,
    left: Left,
) -> None:
    """Add the rows that are on the left of the candidates of their blocks."""
    place, feature, threshold, center = candidates
    count, deviation = left
    for i in range(len(rows)):
        block = place[blocks[i]]
        if block < 0:
            continue
        for c in range(feature.shape[1]):
            if rows[i, feature[block, c]] <= threshold[block, c]:
                count[block, c] += 1
                deviation[block, c] += labels[i] - center[block]


@kernel
def follow_cuts(rows: NDArray[np.float32], cuts: Cuts, blocks: NDArray[np.int32]) -> None:
    """Give the rows of blocks that are cut the numbers of their new blocks."""
    left, feature, threshold = cuts
    for i in range(len(rows)):
        block = blocks[i]
        if left[block] != NO_CHILD:
            is_right = rows[i, feature[block]] > threshold[block]
            blocks[i] = left[block] + np.int32(is_right)


@kernel
def sort_by_block(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    blocks: NDArray[np.int32],
    place: NDArray[np.int64],
    sorted_rows: NDArray[np.float32],
    sorted_labels: NDArray[np.float64],
    numbers: NDArray[np.int32],
) -> None:
    """Copy rows, labels and row numbers so that those of a block are neighbours, in their order.

    ``place`` has the first place of each block, -1 for blocks that are left out. It is advanced.
    """
    for i in range(len(rows)):
        new = place[blocks[i]]
        if new >= 0:
            place[blocks[i]] = new + 1
            for f in range(rows.shape[1]):
                sorted_rows[new, f] = rows[i, f]
            sorted_labels[new] = labels[i]
            numbers[new] = i


@kernel
def report(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    blocks: NDArray[np.int32],
    first: int,
    reports: Reports,
) -> None:
    """Add rows to the reports on the blocks from ``first`` on, which ``no_reports`` has begun."""
    boxes, moments = reports
    count, mean, squared_deviation = moments
    for i in range(len(rows)):
        block = blocks[i] - first
        if block < 0:
            continue
        include_row(boxes, block, rows, i)
        before = Moments(count[block], mean[block], squared_deviation[block])
        count[block], mean[block], squared_deviation[block] = add_label(before, labels[i])


class Top:
    """The top of one tree, as it grows.

    Parameters
    ----------
    seed : tuple of int
        The seed of the tree.
    n_features : int
    growth : Growth
    most_rows : int
        Blocks with at most so many rows are closed.
    """

    def __init__(
        self,
        seed: tuple[int, ...],
        n_features: int,
        growth: Growth,
        most_rows: int,
    ) -> None:
        self.seed = seed
        self.growth = growth
        self.most_rows = most_rows
        self.kind = [WAITING]
        self.left = [NO_CHILD]
        self.feature = [-1]
        self.threshold = [np.float32(np.nan)]
        self.split_time = [np.inf]
        self.start_time = [0.0]
        self.path: list[tuple[int, ...]] = [()]
        self.reports = no_reports(0, n_features)
        self._cutting: list[int] = []

    @property
    def n_blocks(self) -> int:
        return len(self.kind)

    def blocks_of(self, kind: int) -> list[int]:
        """Return all blocks of one kind, from left to right; the kind is not ``INNER``."""
        found, waiting = [], [0]
        while waiting:
            block = waiting.pop()
            if self.kind[block] == INNER:
                waiting += [self.left[block] + 1, self.left[block]]
            elif self.kind[block] == kind:
                found.append(block)
        return found

    def random_state(self, block: int) -> NDArray[np.uint64]:
        """Return the random stream of a block."""
        # The bits of the path, after a one, so that no two blocks have the same number.
        place = int("1" + "".join(map(str, self.path[block])), 2)
        words = [place >> shift & 0xFFFFFFFF for shift in range(0, place.bit_length(), 32)]
        state = np.random.SeedSequence([*self.seed, *words]).generate_state(4, np.uint64)
        return state.astype(np.uint64)

    def draw(self, news: Reports) -> Candidates | None:
        """Take the reports on all undecided blocks and draw cuts; None if no block is to be cut."""
        first = len(self.reports.boxes)
        self.reports = self.reports.followed_by(news)
        drawn = [self._decide(block) for block in range(first, self.n_blocks)]
        found = [cuts for cuts in drawn if cuts is not None]
        if not found:
            return None
        self._cutting = [block + first for block, cuts in enumerate(drawn) if cuts is not None]
        place = np.full(self.n_blocks, -1, np.int32)
        place[self._cutting] = np.arange(len(found))
        return Candidates(
            place,
            np.array([[feature for feature, _ in cuts] for cuts in found], np.int32),
            np.array([[threshold for _, threshold in cuts] for cuts in found], np.float32),
            self.reports.labels.mean[self._cutting],
        )

    def cut(self, candidates: Candidates, found: Left | None) -> Cuts:
        """Make the best of the cuts that were drawn in each block; without ``found``, the first.

        The new blocks are undecided. They are numbered from the old ``n_blocks`` on.
        """
        best = np.zeros(len(self._cutting), np.int64)
        if found is not None:
            n_right = self.reports.n_rows[self._cutting][:, None] - found.n_rows
            # The deviations of all rows of a block add up to zero. So the sum of squares between
            # the two sides depends only on the deviations on the left.
            between = found.deviation**2 * (1.0 / found.n_rows + 1.0 / n_right)
            best = np.argmax(between, axis=1)
        n_before = self.n_blocks
        left = np.full(n_before, NO_CHILD, np.int32)
        for number, block in enumerate(self._cutting):
            left[block] = self.left[block] = self.n_blocks
            self.feature[block] = int(candidates.feature[number, best[number]])
            self.threshold[block] = candidates.threshold[number, best[number]]
            self._add_children(block)
        return Cuts(
            left,
            np.array(self.feature[:n_before], np.int32),
            np.array(self.threshold[:n_before], np.float32),
        )

    def _decide(self, block: int) -> list[tuple[int, np.float32]] | None:
        """Decide what a block is; return candidates if it is to be cut."""
        count = int(self.reports.n_rows[block])
        extent = total_extent(self.reports.boxes, block) if count > 0 else 0.0
        if count < self.growth.min_samples_split or extent == 0.0:
            self.kind[block] = LEAF
            return None
        if count <= self.most_rows:
            self.kind[block] = CLOSED
            return None
        state = self.random_state(block)
        time = self.start_time[block] + exponential(state, extent)
        if time >= self.growth.lifetime:
            self.kind[block] = LEAF
            return None
        self.kind[block] = INNER
        self.split_time[block] = time
        return [
            sample_cut(state, self.reports.boxes, block, extent)
            for _ in range(self.growth.n_candidate_splits)
        ]

    def _add_children(self, block: int) -> None:
        time = self.split_time[block]
        for side in range(2):
            self.kind.append(WAITING)
            self.left.append(NO_CHILD)
            self.feature.append(-1)
            self.threshold.append(np.float32(np.nan))
            self.split_time.append(np.inf)
            self.start_time.append(time)
            self.path.append((*self.path[block], side))


class Subtree(NamedTuple):
    """The subtree of a closed block as it is sent, in about a third of the bytes of a tree.

    Nodes are in depth-first order, left before right. The numbers of children, and the boxes and
    tallies of inner nodes, follow from this order and from the leaves. ``is_leaf`` has an entry for
    each node. The next three arrays have one for each inner node, the others one for each leaf.
    """

    is_leaf: NDArray[np.bool_]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    split_time: NDArray[np.float64]
    boxes: NDArray[np.float32]
    n_rows: NDArray[np.int32]
    label_mean: NDArray[np.float64]
    squared_deviation: NDArray[np.float64]


def grow_subtree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    start_time: float,
    growth: Growth,
    random_state: NDArray[np.uint64],
    room: Tree,
) -> tuple[Subtree, NDArray[np.int32]]:
    """Grow the subtree of a closed block from all of its rows; return it and the order of the rows.

    The rows have ``padded_width`` columns, and are permuted. ``room`` is scratch space.
    """
    order = np.arange(len(rows), dtype=np.int32)
    n_features = room.boxes.shape[2]
    bounding_box(rows, 0, len(rows), room.boxes, 0)
    rule = cut_rule(growth, labels)
    size = sample_alone(rows, order, rule, start_time, growth, random_state, room, NO_CONTESTS)
    ordered = np.empty(len(rows))
    order_labels(labels, order, ordered)
    tally_labels(room.nodes, room.tallies, ordered, 0, size)
    n_leaves = (size + 1) // 2
    n_inner = size - n_leaves
    subtree = Subtree(
        np.empty(size, np.bool_),
        np.empty(n_inner, np.int32),
        np.empty(n_inner, np.float32),
        np.empty(n_inner),
        np.empty((n_leaves, 2, n_features), np.float32),
        np.empty(n_leaves, np.int32),
        np.empty(n_leaves),
        np.empty(n_leaves),
    )
    _pack(room, subtree)
    return subtree, order


@kernel
def _pack(tree: Tree, subtree: Subtree) -> None:
    nodes, boxes, tallies = tree
    is_leaf, feature, threshold, split_time, leaf_boxes, n_rows, mean, squared_deviation = subtree
    waiting = np.empty(len(feature) + 2, np.int32)
    waiting[0] = 0
    n_waiting = 1
    n_inner = 0
    for number in range(len(is_leaf)):
        n_waiting -= 1
        node = waiting[n_waiting]
        left = nodes[node].left_child
        is_leaf[number] = left == NO_CHILD
        if left != NO_CHILD:
            feature[n_inner] = nodes[node].split_feature
            threshold[n_inner] = nodes[node].threshold
            split_time[n_inner] = nodes[node].split_time
            n_inner += 1
            waiting[n_waiting] = left + 1
            waiting[n_waiting + 1] = left
            n_waiting += 2
            continue
        leaf = number - n_inner
        copy_box(boxes, node, leaf_boxes, leaf)
        n_rows[leaf] = tallies[node].n_samples
        mean[leaf] = tallies[node].label_mean
        squared_deviation[leaf] = tallies[node].squared_deviation


@kernel
def _unpack(subtree: Subtree, root: int, first_node: int, first_row: int, tree: Tree) -> None:
    """Write a subtree into a tree: its root, then the others from ``first_node`` on.

    They are numbered as in a batch fit.
    """
    is_leaf, feature, threshold, split_time, leaf_boxes, n_rows, mean, squared_deviation = subtree
    nodes, boxes, tallies = tree
    waiting = np.empty(len(feature) + 2, np.int64)
    waiting[0] = root
    n_waiting = 1
    n_inner = 0
    n_nodes = first_node
    for number in range(len(is_leaf)):
        n_waiting -= 1
        j = waiting[n_waiting]
        node, tally = nodes[j], tallies[j]
        tally.first_row = first_row
        tally.log_gain = 0.0
        tally.contest = NO_CONTEST
        if not is_leaf[number]:
            node.left_child = n_nodes
            node.split_feature = feature[n_inner]
            node.threshold = threshold[n_inner]
            node.split_time = split_time[n_inner]
            n_inner += 1
            waiting[n_waiting] = n_nodes + 1
            waiting[n_waiting + 1] = n_nodes
            n_waiting += 2
            n_nodes += 2
            continue
        leaf = number - n_inner
        node.left_child = NO_CHILD
        node.split_feature = -1
        node.threshold = np.nan
        node.split_time = np.inf
        copy_box(leaf_boxes, leaf, boxes, j)
        tally.n_samples = n_rows[leaf]
        tally.height = 0
        tally.label_mean = mean[leaf]
        tally.squared_deviation = squared_deviation[leaf]
        first_row += n_rows[leaf]
    for place in range(n_nodes, first_node - 1, -1):  # children before parents
        j = place - 1 if place > first_node else root
        left = nodes[j].left_child
        if left != NO_CHILD:
            merge_tallies(nodes, tallies, j)
            join_boxes(boxes, left, boxes, j)


class Joining:
    """Writes a whole tree from its top and its subtrees, numbered as in a batch fit.

    In that order all nodes below a node are neighbours. So subtrees are written one after the
    other, from left to right, and only the next one needs to be at hand.

    Parameters
    ----------
    top : Top
    room : Tree
        Arrays with room for all nodes.
    order : ndarray of int32
        Is set to the row numbers of the tree in the order of its nodes. If rows are not kept, it is
        empty, and so are all arrays of row numbers.
    """

    def __init__(self, top: Top, room: Tree, order: NDArray[np.int32]) -> None:
        self.top, self.room, self.order = top, room, order
        self.n_nodes, self.n_rows = 1, 0
        # By block of the top: its number among all nodes, and its first row.
        self._place = np.zeros(top.n_blocks, np.int64)
        self._first_row = np.zeros(top.n_blocks, np.int64)
        self._waiting = [0]

    def add(
        self,
        subtrees: dict[int, tuple[Subtree, NDArray[np.int32]]],
        leaf_rows: dict[int, NDArray[np.int32]],
    ) -> None:
        """Write all that can be written with these subtrees of closed blocks and rows of leaves."""
        top, place = self.top, self._place
        while self._waiting:
            block = self._waiting[-1]
            if top.kind[block] == CLOSED and block not in subtrees:
                return
            self._waiting.pop()
            self._first_row[block] = self.n_rows
            if top.kind[block] == INNER:
                left = top.left[block]
                place[left : left + 2] = self.n_nodes, self.n_nodes + 1
                self.n_nodes += 2
                self._waiting += [left + 1, left]
                continue
            row_numbers = leaf_rows.get(block, self.order[:0])
            if top.kind[block] == CLOSED:
                subtree, row_numbers = subtrees[block]
                # For read-only arrays, kernels would be compiled once more.
                arrays: list[Any] = [np.require(array, requirements="W") for array in subtree]
                _unpack(Subtree(*arrays), place[block], self.n_nodes, self.n_rows, self.room)
                self.n_nodes += len(subtree.is_leaf) - 1
            self.order[self.n_rows : self.n_rows + len(row_numbers)] = row_numbers
            self.n_rows += int(top.reports.n_rows[block])

    def finish(self) -> int:
        """Write the nodes of the top, once all subtrees were added; return the number of nodes."""
        assert not self._waiting, "a subtree is missing, or came out of order"
        top = self.top
        nodes, boxes, tallies = self.room
        kind = np.array(top.kind)
        own = np.flatnonzero(kind != CLOSED)
        place = self._place[own]
        nodes[place] = np.zeros(1, NODE)[0]
        tallies[place] = np.zeros(1, TALLY)[0]
        left_children = self._place[np.array(top.left)[own]]
        nodes["left_child"][place] = np.where(kind[own] == INNER, left_children, NO_CHILD)
        nodes["split_feature"][place] = np.array(top.feature)[own]
        nodes["threshold"][place] = np.array(top.threshold)[own]
        nodes["split_time"][place] = np.array(top.split_time)[own]
        boxes[place] = top.reports.boxes[own]
        tallies["n_samples"][place] = top.reports.n_rows[own]
        tallies["first_row"][place] = self._first_row[own]
        tallies["contest"][place] = NO_CONTEST
        tallies["label_mean"][place] = top.reports.labels.mean[own]
        tallies["squared_deviation"][place] = top.reports.labels.squared_deviation[own]
        for block in own[::-1]:  # children before parents
            if top.kind[block] == INNER:
                merge_tallies(nodes, tallies, self._place[block])
        return self.n_nodes
