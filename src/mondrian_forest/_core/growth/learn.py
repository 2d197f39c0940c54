"""All trees of a forest with what belongs to them, as they are sampled and as they learn more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.contests import Contests
from ..arrays.grove import Grove, allocate_grove
from ..arrays.memory import empty, release
from ..arrays.tree import Tree, level_by_level, parents_first
from ..arrays.vector import padded_width
from ..labels.hierarchical import Hierarchical, log_marginal_likelihood
from ..labels.model import LabelModel, set_all_nodes
from ..labels.tallies import order_labels, tally_labels
from . import Growth
from .sample import sample_tree


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
        grove.contests_of(number),
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
    contests: Contests
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
    n_rows, n_features = rows.shape
    grove = allocate_grove(1, n_rows, n_features, growth.n_candidate_splits, is_linked=False)
    learn_batch(grove, 0, rows, labels, growth, model, state)
    nodes, boxes, tallies = (array.copy() for array in grove.tree(0))
    counts, *others = grove.contests_of(0)
    contests = Contests(counts, *(array[: counts[0]].copy() for array in others))
    return LearnedTree(Tree(nodes, boxes, tallies), grove.row_numbers[0].copy(), contests, state)


def put(grove: Grove, number: int, learned: LearnedTree) -> None:
    """Take in a tree from another process."""
    size = len(learned.tree.nodes)
    grove.sizes[number] = size
    for array, content in zip((grove.nodes, grove.boxes, grove.tallies), learned.tree, strict=True):
        array[number, :size] = content
    grove.row_numbers[number, : len(learned.row_order)] = learned.row_order
    for array, content in zip(grove.contests_of(number), learned.contests, strict=True):
        array[: len(content)] = content


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
