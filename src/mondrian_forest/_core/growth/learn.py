"""All trees of a forest with what belongs to them, as they are sampled and as they learn more."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.memory import IS_LAZY, empty, release
from ..arrays.tree import (
    NODE,
    TALLY,
    Records,
    RowLists,
    RowOrder,
    Tree,
    copy_depth_first,
    level_by_level,
    parents_first,
)
from ..arrays.vector import padded_width
from ..labels.hierarchical import Hierarchical, log_marginal_likelihood
from ..labels.model import LabelModel, set_all_nodes
from ..labels.tallies import order_labels, tally_labels
from .extend import extend_trees
from .sample import Growth, link_rows, sample_tree

MOST_CANDIDATES = 2**15
"""Cuts to choose from; more make no difference."""

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
    """Number of nodes of each tree. The kernels that add nodes count them too, so that an interrupt
    comes before both or after both."""
    nodes: Records
    boxes: NDArray[np.float32]
    tallies: Records
    row_numbers: NDArray[np.int32]
    """As ``RowOrder`` until there is more to learn, then as ``RowLists``."""
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

    def has_room(self, n_rows: int) -> bool:
        return self.is_linked and self.row_numbers.shape[1] >= n_rows


def allocate_grove(n_trees: int, n_rows: int, n_features: int, *, is_linked: bool) -> Grove:
    """Return trees of undefined content, with room for as many nodes as the rows may need."""
    n_nodes = 2 * n_rows - 1  # a binary tree with one row in every leaf
    return Grove(
        np.zeros(n_trees, dtype=np.int64),
        empty((n_trees, n_nodes), NODE),
        empty((n_trees, n_nodes, 2, n_features), np.float32),
        empty((n_trees, n_nodes), TALLY),
        empty((n_trees, n_rows), np.int32),
        is_linked,
    )


def allocate_to_grow(n_trees: int, n_rows: int, n_features: int) -> Grove:
    """Return trees that can learn more, with room for many times the rows where it costs nothing.

    Where trees outgrow their room, all are copied into memory that the process did not have before:
    in a stream of 1M rows, that took 2 of 10 seconds when room for twice the rows was asked for.
    """
    if IS_LAZY and n_rows >= _FEWEST_ROWS_FOR_SPARE_ROOM:
        with suppress(OSError, MemoryError):  # address space may be limited
            room = max(n_rows, min(_SPARE_ROOM * n_rows, _MOST_ROWS))
            return allocate_grove(n_trees, room, n_features, is_linked=True)
    return allocate_grove(n_trees, n_rows, n_features, is_linked=True)


def scratch_like(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the array in which ``learn_batch`` permutes the rows."""
    return empty((len(rows), padded_width(rows.shape[1])), np.float32)


def learn_batch(
    grove: Grove,
    number: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    growth: Growth,
    model: LabelModel,
    random_state: NDArray[np.uint64],
    scratch: NDArray[np.float32] | None = None,
) -> None:
    """Sample one tree on all rows (Alg. 1)."""
    if scratch is None:
        scratch = scratch_like(rows)
    room = grove.room(number)
    order = grove.row_numbers[number, : len(rows)]
    grove.sizes[number] = sample_tree(
        rows,
        labels,
        growth,
        random_state,
        room,
        order,
        scratch,
    )
    for array in room:
        release(array[grove.sizes[number] :])
    nodes, _, tallies = grove.tree(number)
    ordered = scratch.ravel()[: 2 * len(rows)].view(np.float64)  # there are two columns or more
    order_labels(labels, order, ordered)
    tally_labels(nodes, tallies, ordered, 0, len(nodes))
    renew(grove, number, model)


class LearnedTree(NamedTuple):
    """One tree on its own, as another process returns it."""

    tree: Tree
    row_order: NDArray[np.int32]
    random_state: NDArray[np.uint64]


def learn_alone(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    growth: Growth,
    model: LabelModel,
    random_state: NDArray[np.uint64],
) -> LearnedTree:
    """Sample one tree as ``learn_batch`` does, without changing anything."""
    rows = np.require(rows, requirements="W")  # as the kernels are compiled for: maps are read-only
    labels = np.require(labels, requirements="W")
    state = random_state.copy()
    grove = allocate_grove(1, *rows.shape, is_linked=False)
    learn_batch(grove, 0, rows, labels, growth, model, state)
    nodes, boxes, tallies = (array.copy() for array in grove.tree(0))
    return LearnedTree(Tree(nodes, boxes, tallies), grove.row_numbers[0].copy(), state)


def put(grove: Grove, number: int, learned: LearnedTree) -> None:
    """Take in a tree from another process."""
    size = len(learned.tree.nodes)
    grove.sizes[number] = size
    for array, content in zip((grove.nodes, grove.boxes, grove.tallies), learned.tree, strict=True):
        array[number, :size] = content
    grove.row_numbers[number, : len(learned.row_order)] = learned.row_order


def learn_more(
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
    """Let the rows up to ``end`` join the trees from first to stop (Alg. 3).

    There must be room; a tree that has them already is left as it is.
    """
    extend_trees(
        rows,
        labels,
        end,
        growth.min_samples_split,
        growth.n_candidate_splits,
        growth.lifetime,
        model,
        random_states,
        grove.nodes,
        grove.boxes,
        grove.tallies,
        grove.row_numbers,
        grove.sizes,
        first,
        stop,
    )


def renew(grove: Grove, number: int, model: LabelModel) -> None:
    """Set what a label model says of each node of a tree, for other hyperparameters."""
    tree = grove.tree(number)
    is_in_order = not grove.is_linked
    order = parents_first(tree.nodes, tree.depth) if is_in_order else level_by_level(tree.nodes)
    set_all_nodes(model, tree.nodes, tree.tallies, order)


def log_likelihood(grove: Grove, number: int, model: Hierarchical) -> float:
    """Return log p(labels | tree)."""
    nodes, _, tallies = grove.tree(number)
    return log_marginal_likelihood(model, nodes, tallies)


def copy_tree(source: Grove, number: int, target: Grove) -> None:
    """Copy a tree into arrays that have room, its nodes numbered as by a batch fit."""
    copied = Tree(target.nodes[number], target.boxes[number], target.tallies[number])
    copy_depth_first(source.tree(number), copied)
    target.sizes[number] = source.sizes[number]
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


def trimmed(grove: Grove) -> Grove:
    """Return a copy without the room for more.

    What is behind the end of a smaller tree is zero, so that equal forests have equal files.
    """
    size = int(grove.sizes.max())

    def copied(array: NDArray[Any]) -> NDArray[Any]:
        length = min(size, array.shape[1])  # one, of tallies of the roots alone
        copy = empty((len(array), length, *array.shape[2:]), array.dtype)
        for number, end in enumerate(grove.sizes):
            copy[number, :end] = array[number, : min(end, length)]
            copy[number, end:] = np.zeros((), array.dtype)
        return copy

    return grove._replace(
        sizes=grove.sizes.copy(),
        nodes=copied(grove.nodes),
        boxes=copied(grove.boxes),
        tallies=copied(grove.tallies),
        row_numbers=grove.row_numbers[:, : grove.n_rows(0)].copy(),
    )


def without_rows(grove: Grove) -> Grove:
    """Return a copy of what prediction needs."""
    roots = grove.tallies[:, :1].copy()
    return trimmed(grove._replace(tallies=roots, row_numbers=grove.row_numbers[:, :0]))
