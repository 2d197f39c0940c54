"""The top of a tree over rows that no process holds at once, grown in rounds.

Mondrian cuts depend on the rows only through boxes, and a box is known from those of its parts. So
each process routes its own rows and reports, for every block of the top, box, number of rows and
label moments; whoever joins the reports draws the next cuts. Blocks that are small enough are
*closed*: their rows come together in one process, which grows the subtree as always.

The random stream of a block is derived from the seed, the tree and the block's place in the tree,
so that a task that is repeated gives the same result, however rows are spread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel
from .posterior import merge_tallies, order_labels, tally_labels
from .rng import exponential
from .sample import sample_block, sample_cut, scratch_boxes, total_extent
from .tree import NO_CHILD, NODE, TALLY, Tree, copy_depth_first
from .vector import padded_width

WAITING, INNER, LEAF, CLOSED = range(4)
"""What a block of the top is: not decided yet, cut, a leaf of the tree, the root of a subtree."""


class Reports(NamedTuple):
    """What rows say about some blocks; those of different rows can be joined."""

    boxes: NDArray[np.float32]
    """Shape (n_blocks, 2, n_features)."""
    n_rows: NDArray[np.int64]
    mean: NDArray[np.float64]
    squared_deviation: NDArray[np.float64]

    def joined(self, other: Reports) -> Reports:
        """Return what both have to say."""
        count = self.n_rows + other.n_rows
        share = np.divide(other.n_rows, count, out=np.zeros(len(count)), where=count > 0)
        difference = other.mean - self.mean
        return Reports(
            np.stack(
                [
                    np.minimum(self.boxes[:, 0], other.boxes[:, 0]),
                    np.maximum(self.boxes[:, 1], other.boxes[:, 1]),
                ],
                axis=1,
            ),
            count,
            self.mean + share * difference,
            self.squared_deviation
            + other.squared_deviation
            + share * self.n_rows * difference * difference,
        )


def no_reports(n_blocks: int, n_features: int) -> Reports:
    """Return what no rows say."""
    boxes = np.empty((n_blocks, 2, n_features), np.float32)
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    return Reports(boxes, np.zeros(n_blocks, np.int64), np.zeros(n_blocks), np.zeros(n_blocks))


class Candidates(NamedTuple):
    """Cuts to choose from, shape (n_blocks, n_candidates), for some blocks of one tree."""

    place: NDArray[np.int32]
    """By block of the tree: its number here, -1 if it is not cut in this round."""
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    center: NDArray[np.float64]
    """By number here: the mean label, from which deviations are taken."""


class Left(NamedTuple):
    """What is on the left of each candidate; of different rows it adds up."""

    n_rows: NDArray[np.int64]
    deviation: NDArray[np.float64]

    def joined(self, other: Left) -> Left:
        """Return what both have on the left."""
        return Left(self.n_rows + other.n_rows, self.deviation + other.deviation)


class Cuts(NamedTuple):
    """The cuts of one round through the blocks of one tree, by block."""

    left: NDArray[np.int32]
    """The first of the two new blocks, ``NO_CHILD`` if there are none."""
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
    """Add what rows are on the left of the candidates of their blocks."""
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
    """Move the rows of blocks that are cut to the new blocks."""
    left, feature, threshold = cuts
    for i in range(len(rows)):
        block = blocks[i]
        if left[block] != NO_CHILD:
            is_right = rows[i, feature[block]] > threshold[block]
            blocks[i] = left[block] + np.int32(is_right)


@kernel
def report(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    blocks: NDArray[np.int32],
    first: int,
    reports: Reports,
) -> None:
    """Fill in what rows say about the blocks from ``first`` on; see ``no_reports``."""
    boxes, count, mean, squared_deviation = reports
    for i in range(len(rows)):
        block = blocks[i] - first
        if block < 0:
            continue
        for f in range(rows.shape[1]):
            value = rows[i, f]
            boxes[block, 0, f] = min(boxes[block, 0, f], value)
            boxes[block, 1, f] = max(boxes[block, 1, f], value)
        count[block] += 1
        deviation = labels[i] - mean[block]
        mean[block] += deviation / count[block]
        squared_deviation[block] += deviation * (labels[i] - mean[block])


class Top:
    """The top of one tree, as it grows.

    Parameters
    ----------
    seed : sequence of int
        Of the tree.
    n_features : int
    min_samples_split, lifetime, n_candidates
        As for ``sample_block``.
    most_rows : int
        Blocks with at most so many rows are closed.
    """

    def __init__(
        self,
        seed: tuple[int, ...],
        n_features: int,
        min_samples_split: int,
        lifetime: float,
        n_candidates: int,
        most_rows: int,
    ) -> None:
        self.seed = seed
        self.min_samples_split = min_samples_split
        self.lifetime = lifetime
        self.n_candidates = n_candidates
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

    def random_state(self, block: int) -> NDArray[np.uint64]:
        """Return the random stream of a block."""
        # Bits of the path, after a one: no two blocks share a number.
        place = int("1" + "".join(map(str, self.path[block])), 2)
        words = [place >> shift & 0xFFFFFFFF for shift in range(0, place.bit_length(), 32)]
        state = np.random.SeedSequence([*self.seed, *words]).generate_state(4, np.uint64)
        return state.astype(np.uint64)

    def draw(self, news: Reports) -> Candidates | None:
        """Take the reports on all blocks that wait, and draw cuts; None when all is decided."""
        first = len(self.reports.n_rows)
        pairs: list[tuple[Any, Any]] = list(zip(self.reports, news, strict=True))
        self.reports = Reports(*(np.concatenate(pair) for pair in pairs))
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
            self.reports.mean[self._cutting],
        )

    def cut(self, candidates: Candidates, found: Left | None) -> Cuts:
        """Make the best of the cuts that were drawn, in each block; without ``found``, the first.

        The new blocks wait then, from the old ``n_blocks`` on.
        """
        best = np.zeros(len(self._cutting), np.int64)
        if found is not None:
            n_right = self.reports.n_rows[self._cutting][:, None] - found.n_rows
            # The deviations of all rows of a block add up to zero, so that those on its left are
            # all that the sum of squares between its sides depends on.
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
        """Say what a block is; return cuts if it is to be cut."""
        count = int(self.reports.n_rows[block])
        extent = total_extent(self.reports.boxes, block) if count > 0 else 0.0
        if count < self.min_samples_split or extent == 0.0:
            self.kind[block] = LEAF
            return None
        if count <= self.most_rows:
            self.kind[block] = CLOSED
            return None
        state = self.random_state(block)
        time = self.start_time[block] + exponential(state, extent)
        if time >= self.lifetime:
            self.kind[block] = LEAF
            return None
        self.kind[block] = INNER
        self.split_time[block] = time
        return [
            sample_cut(state, self.reports.boxes, block, extent) for _ in range(self.n_candidates)
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

    def leaves_in_order(self) -> list[int]:
        """Return the blocks that are not cut, from left to right."""
        found, waiting = [], [0]
        while waiting:
            block = waiting.pop()
            if self.kind[block] == INNER:
                waiting += [self.left[block] + 1, self.left[block]]
            else:
                found.append(block)
        return found


class Subtree(NamedTuple):
    """A subtree of a closed block; its root is its first node."""

    tree: Tree
    row_numbers: NDArray[np.int32]


def grow_subtree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    row_numbers: NDArray[np.int32],
    start_time: float,
    min_samples_split: int,
    lifetime: float,
    n_candidates: int,
    random_state: NDArray[np.uint64],
) -> Subtree:
    """Grow the subtree of a closed block from all of its rows."""
    n_rows, n_features = rows.shape
    tree = Tree(
        np.empty(2 * n_rows - 1, NODE),
        np.empty((2 * n_rows - 1, 2, n_features), np.float32),
        np.empty(2 * n_rows - 1, TALLY),
    )
    moving = np.empty((n_rows, padded_width(n_features)), np.float32)
    moving[:, :n_features] = rows
    order = np.arange(n_rows, dtype=np.int32)
    size = sample_block(
        moving,
        order,
        labels if n_candidates > 1 else None,
        start_time,
        min_samples_split,
        n_candidates,
        lifetime,
        random_state,
        tree,
        0,
        1,
        scratch_boxes(n_features),
    )
    nodes, boxes, tallies = (array[:size].copy() for array in tree)
    ordered = np.empty(n_rows)
    order_labels(labels, order, ordered)
    tally_labels(nodes, tallies, ordered, 0, size)
    return Subtree(Tree(nodes, boxes, tallies), row_numbers[order])


def join(
    top: Top, subtrees: dict[int, Subtree], leaf_rows: dict[int, NDArray[np.int32]]
) -> tuple[Tree, NDArray[np.int32]]:
    """Return the whole tree, numbered as by a batch fit, and its rows in the order of its nodes.

    Without rows, ``leaf_rows`` is empty, and so are the row numbers of subtrees.
    """
    n_top = top.n_blocks
    size = n_top + sum(len(subtree.tree.nodes) - 1 for subtree in subtrees.values())
    n_features = top.reports.boxes.shape[2]
    tree = Tree(
        np.zeros(size, NODE), np.empty((size, 2, n_features), np.float32), np.zeros(size, TALLY)
    )
    nodes, boxes, tallies = tree
    nodes["left_child"][:n_top] = top.left
    nodes["split_feature"][:n_top] = top.feature
    nodes["threshold"][:n_top] = top.threshold
    nodes["split_time"][:n_top] = top.split_time
    boxes[:n_top] = top.reports.boxes
    tallies["n_samples"][:n_top] = top.reports.n_rows
    tallies["label_mean"][:n_top] = top.reports.mean
    tallies["squared_deviation"][:n_top] = top.reports.squared_deviation
    n_nodes, n_rows = n_top, 0
    order = []
    for block in top.leaves_in_order():
        if block in subtrees:
            (sub_nodes, sub_boxes, sub_tallies), row_numbers = subtrees[block]
            new = slice(n_nodes, n_nodes + len(sub_nodes) - 1)
            for target, source in ((nodes, sub_nodes), (boxes, sub_boxes), (tallies, sub_tallies)):
                target[block] = source[0]
                target[new] = source[1:]
            for part in (slice(block, block + 1), new):
                children = nodes["left_child"][part]
                children[children != NO_CHILD] += n_nodes - 1
                tallies["first_row"][part] += n_rows
            n_nodes = new.stop
        else:
            row_numbers = leaf_rows.get(block, np.empty(0, np.int32))
            tallies["first_row"][block] = n_rows
        order.append(row_numbers)
        n_rows += int(top.reports.n_rows[block])
    for block in range(n_top - 1, -1, -1):  # children stand behind their parents
        if top.kind[block] == INNER:
            merge_tallies(nodes, tallies, block)
            tallies["first_row"][block] = tallies["first_row"][top.left[block]]
    result = Tree(np.empty_like(nodes), np.empty_like(boxes), np.empty_like(tallies))
    copy_depth_first(tree, result)
    return result, np.concatenate(order)
