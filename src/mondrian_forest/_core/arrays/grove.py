"""The trees of a forest in one set of arrays: room for them, copies, and what a file needs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .boxes import copy_box
from .contests import NO_CONTEST, Contests, allocate_contests, contests_of
from .kernel import borrowing_kernel, kernel
from .memory import IS_LAZY, empty
from .tree import NO_CHILD, NO_ROW, NODE, TALLY, Records, RowLists, RowOrder, Tree, copy_depth_first

_FEWEST_ROWS_FOR_SPARE_ROOM = 100_000  # below, whole huge pages would take more than there is
_SPARE_ROOM = 64
_MOST_ROWS = 2**30  # whose nodes can be numbered


class Grove(NamedTuple):
    """The trees of a forest, tree by tree along the first axis of each array.

    One set of arrays for all trees, so that a single row can join them, and be predicted, in one
    call of a kernel: a call for each tree would take longer than the work itself. Along the second
    axis there may be room for more nodes and rows than there are, which takes no memory.
    """

    sizes: NDArray[np.int64]
    """Number of nodes of each tree, with those that are free. The kernels that add nodes count them
    too, so that an interrupt comes before both or after both."""
    free_pairs: NDArray[np.int64]
    """The first free pair of each tree, or NO_CHILD."""
    nodes: Records
    boxes: NDArray[np.float32]
    tallies: Records
    row_numbers: NDArray[np.int32]
    """As ``RowOrder`` until there is more to learn, then as ``RowLists``."""
    contests: Contests
    is_linked: bool

    @property
    def n_trees(self) -> int:
        return len(self.sizes)

    @property
    def depth(self) -> int:
        """Number of edges between the root and the deepest leaf of any tree."""
        heights: list[int] = self.tallies["height"][:, 0].tolist()
        return max(heights)  # of a few, faster than NumPy's

    def n_rows(self, number: int) -> int:
        """Return how many rows a tree has learned."""
        return int(self.tallies["n_samples"][number, 0])

    def tree(self, number: int) -> Tree:
        """Return one tree, without the room for more."""
        size = self.sizes[number]
        return Tree(
            self.nodes[number, :size], self.boxes[number, :size], self.tallies[number, :size]
        )

    def room(self, number: int) -> Tree:
        """Return the arrays of one tree, with the room for more."""
        return Tree(self.nodes[number], self.boxes[number], self.tallies[number])

    def rows(self, number: int) -> RowOrder | RowLists:
        """Return which rows the nodes of a tree hold."""
        numbers = self.row_numbers[number, : self.n_rows(number)]
        return RowLists(numbers) if self.is_linked else RowOrder(numbers)

    def can_learn(self, n_rows: int, n_candidates: int) -> bool:
        """Return whether there is room for trees of this many rows, and for their contests.

        The kernels that add nodes use free places first, or ``compact`` makes room.
        """
        candidates = self.contests.candidates
        has_contests = n_candidates == 1 or (
            candidates.shape[2] == n_candidates + 1 and candidates.shape[1] >= n_rows
        )
        has_room = self.row_numbers.shape[1] >= n_rows and self.nodes.shape[1] >= 2 * n_rows - 1
        return self.is_linked and has_room and has_contests

    def has_free_places(self) -> bool:
        """Return whether the kernels that forget or resample have left gaps in the arrays."""
        is_whole = bool(np.all(self.free_pairs == NO_CHILD))
        return not (is_whole and bool(np.all(self.contests.counts[:, 1] == NO_CONTEST)))

    def contests_of(self, number: int) -> Contests:
        """Return the contests of one tree, with the room for more."""
        return Contests(*(array[number] for array in self.contests))


def allocate_grove(
    n_trees: int, n_rows: int, n_features: int, n_candidates: int = 1, *, is_linked: bool
) -> Grove:
    """Return trees of undefined content, with room for as many nodes as the rows may need."""
    n_nodes = 2 * n_rows - 1  # a binary tree with one row in every leaf
    return Grove(
        np.zeros(n_trees, dtype=np.int64),
        np.full(n_trees, NO_CHILD, dtype=np.int64),
        empty((n_trees, n_nodes), NODE),
        empty((n_trees, n_nodes, 2, n_features), np.float32),
        empty((n_trees, n_nodes), TALLY),
        empty((n_trees, n_rows), np.int32),
        allocate_contests(n_trees, n_rows, n_candidates),
        is_linked,
    )


def allocate_to_grow(n_trees: int, n_rows: int, n_features: int, n_candidates: int = 1) -> Grove:
    """Return trees that can learn more, with room for many times the rows where it costs nothing.

    Where trees outgrow their room, all are copied into memory that the process did not have before:
    in a stream of 1M rows, that took 2 of 10 seconds when room for twice the rows was asked for.
    """
    if IS_LAZY and n_rows >= _FEWEST_ROWS_FOR_SPARE_ROOM:
        with suppress(OSError, MemoryError):  # address space may be limited
            room = max(n_rows, min(_SPARE_ROOM * n_rows, _MOST_ROWS))
            return allocate_grove(n_trees, room, n_features, n_candidates, is_linked=True)
    return allocate_grove(n_trees, n_rows, n_features, n_candidates, is_linked=True)


@borrowing_kernel
def link_rows(
    nodes: Records,
    tallies: Records,
    row_order: NDArray[np.int32],
    next_row: NDArray[np.int32],
    start: int,
    stop: int,
) -> None:
    """Turn positions in ``row_order`` into lists, for the nodes from start to stop."""
    for node in range(start, stop):
        first = tallies[node].first_row
        tallies[node].first_row = NO_ROW
        if nodes[node].left_child == NO_CHILD:
            for i in range(first + tallies[node].n_samples - 1, first - 1, -1):
                next_row[row_order[i]] = tallies[node].first_row
                tallies[node].first_row = row_order[i]


def copy_tree(source: Grove, number: int, target: Grove) -> None:
    """Copy a tree into arrays that have room, its nodes numbered as by a batch fit."""
    counts = np.empty(2, np.int64)
    copy_depth_first(
        source.tree(number),
        source.contests_of(number),
        target.room(number),
        counts,
        target.contests_of(number),
    )
    target.sizes[number], target.free_pairs[number] = counts
    numbers = source.rows(number)[0]
    if source.is_linked == target.is_linked:
        target.row_numbers[number, : len(numbers)] = numbers
    else:
        nodes, _, tallies = target.tree(number)
        link_rows(nodes, tallies, numbers, target.row_numbers[number], 0, len(nodes))


def linked(grove: Grove) -> Grove:
    """Turn trees as sampled into trees that can learn more, in place if there is room."""
    for number in range(grove.n_trees):
        nodes, _, tallies = grove.tree(number)
        order = grove.rows(number)[0].copy()
        link_rows(nodes, tallies, order, grove.row_numbers[number], 0, len(nodes))
    return grove._replace(is_linked=True)


def allocate_for_copy(grove: Grove, n_rows: int) -> Tree:
    """Return the scratch space of ``compact`` for trees of so many rows."""
    n_nodes = 2 * n_rows - 1
    return Tree(
        empty((n_nodes,), NODE),
        empty((n_nodes, *grove.boxes.shape[2:]), np.float32),
        empty((n_nodes,), TALLY),
    )


@kernel
def compact(grove: Grove, number: int, scratch: Tree) -> None:
    """Give nodes the numbers of a batch fit, without free places between them.

    For trees without contests. All is done in one call, so that no interrupt comes in between.
    """
    sizes, free_pairs, nodes, boxes, tallies, _, contests, _ = grove
    counts = np.empty(2, np.int64)
    own = contests_of(contests, number)
    tree = Tree(nodes[number], boxes[number], tallies[number])
    copy_depth_first(tree, own, scratch, counts, own)
    for node in range(counts[0]):
        tree.nodes[node] = scratch.nodes[node]
        copy_box(scratch.boxes, node, tree.boxes, node)
        tree.tallies[node] = scratch.tallies[node]
    sizes[number], free_pairs[number] = counts[0], counts[1]


@kernel
def count_free_places(grove: Grove, number: int) -> int:
    """Return how many places of a tree's nodes are free."""
    n_free = 0
    left = grove.free_pairs[number]
    while left != NO_CHILD:
        n_free += 2
        left = np.int64(grove.tallies[number, left].first_row)
    return n_free


def trimmed(grove: Grove) -> Grove:
    """Return a copy without the room for more, and without free places.

    What is behind the end of a smaller tree is zero, so that equal forests have equal files.
    """
    grove = without_free_places(grove)
    size = int(grove.sizes.max())
    n_contests = grove.contests.counts[:, 0]

    def copied(array: NDArray[Any], ends: NDArray[np.int64], most: int) -> NDArray[Any]:
        length = min(most, array.shape[1])  # one, of tallies of the roots alone
        copy = empty((len(array), length, *array.shape[2:]), array.dtype)
        for number, end in enumerate(ends):
            copy[number, :end] = array[number, : min(end, length)]
            copy[number, end:] = np.zeros((), array.dtype)
        return copy

    return grove._replace(
        sizes=grove.sizes.copy(),
        free_pairs=grove.free_pairs.copy(),
        nodes=copied(grove.nodes, grove.sizes, size),
        boxes=copied(grove.boxes, grove.sizes, size),
        tallies=copied(grove.tallies, grove.sizes, size),
        row_numbers=grove.row_numbers[:, : grove.n_rows(0)].copy(),
        contests=Contests(
            grove.contests.counts.copy(),
            *(copied(array, n_contests, int(n_contests.max())) for array in grove.contests[1:]),
        ),
    )


def without_free_places(grove: Grove) -> Grove:
    """Return trees that are numbered as by a batch fit: a copy, if there are free places."""
    if not grove.has_free_places():
        return grove
    n_trees, n_rows = grove.row_numbers.shape
    n_candidates = max(grove.contests.candidates.shape[2] - 1, 1)
    copy = allocate_grove(
        n_trees, n_rows, grove.boxes.shape[3], n_candidates, is_linked=grove.is_linked
    )
    for number in range(n_trees):
        copy_tree(grove, number, copy)
    return copy


def without_rows(grove: Grove) -> Grove:
    """Return a copy of what prediction needs."""
    grove = without_free_places(grove)
    roots = grove.tallies[:, :1].copy()
    roots["contest"] = NO_CONTEST
    contests = allocate_contests(grove.n_trees, 0, 1)
    return trimmed(
        grove._replace(tallies=roots, row_numbers=grove.row_numbers[:, :0], contests=contests)
    )
