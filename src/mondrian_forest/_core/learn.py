"""One tree with all that belongs to it, as it is sampled and as it learns more rows."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .extend import extend_tree
from .posterior import Hyperparameters, log_marginal_likelihood, renew_posterior, tally_labels
from .sample import link_rows, sample_tree
from .tree import (
    RowLists,
    RowOrder,
    Tree,
    allocate_tree,
    copy_depth_first,
    enlarge,
    parents_first,
    view,
)


class Settings(NamedTuple):
    """What all trees of a forest have in common."""

    min_samples_split: int
    lifetime: float
    posterior: int
    """``HIERARCHICAL`` or ``EMPIRICAL``."""


class Learner(NamedTuple):
    """A tree that can learn. Its arrays may have room for more nodes and rows than there are."""

    size: NDArray[np.int64]
    """Shape (1,): the number of nodes. In an array, so that the kernel that adds nodes counts
    them too, and an interrupt comes before both or after both."""
    tree: Tree
    rows: RowOrder | RowLists
    """Lists from the first time on that room is made for more rows."""

    @property
    def n_nodes(self) -> int:
        return int(self.size[0])

    @property
    def n_rows(self) -> int:
        return int(self.tree.n_samples[0])


def learn_batch(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    settings: Settings,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    scratch: NDArray[np.float32] | None = None,
) -> Learner:
    """Sample a tree on all rows (Alg. 1)."""
    tree, row_order = sample_tree(
        rows, settings.min_samples_split, settings.lifetime, random_state, scratch
    )
    tally_labels(tree.nodes, tree.tallies, labels, row_order.order, 0, tree.n_nodes)
    learner = Learner(np.array([tree.n_nodes]), tree, row_order)
    renew(learner, settings, hyperparameters)
    return learner


def learn_more(
    learner: Learner,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    begin: int,
    end: int,
    settings: Settings,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
) -> None:
    """Let the rows from ``begin`` to ``end`` join the tree (Alg. 3), which must have room."""
    extend_tree(
        rows,
        labels,
        begin,
        end,
        settings.min_samples_split,
        settings.lifetime,
        settings.posterior,
        hyperparameters,
        random_state,
        learner.tree,
        cast(RowLists, learner.rows).next,
        learner.size,
    )


def renew(learner: Learner, settings: Settings, hyperparameters: Hyperparameters) -> None:
    """Compute the label model of every node anew, for other hyperparameters."""
    nodes, _, tallies = in_use(learner).tree
    renew_posterior(
        nodes,
        tallies,
        settings.posterior,
        hyperparameters,
        parents_first(nodes, learner.tree.depth),
    )


def log_likelihood(learner: Learner, hyperparameters: Hyperparameters) -> float:
    """Return log p(labels | tree), under the hierarchical posterior."""
    nodes, _, tallies = in_use(learner).tree
    return log_marginal_likelihood(nodes, tallies, hyperparameters)


def in_use(learner: Learner) -> Learner:
    """Return views of what is in use, without the room for more."""
    return Learner(
        learner.size, view(learner.tree, learner.n_nodes), view(learner.rows, learner.n_rows)
    )


def has_room(learner: Learner, n_rows: int) -> bool:
    return isinstance(learner.rows, RowLists) and len(learner.rows.next) >= n_rows


def with_room(learner: Learner, n_rows: int) -> Learner:
    """Return a copy with room for ``n_rows`` rows, and for as many nodes as they may need."""
    used = in_use(learner)
    room = 2 * n_rows - 1  # a binary tree with one row in every leaf
    tree = allocate_tree(room, used.tree.boxes.shape[2])
    copy_depth_first(used.tree, tree)
    if isinstance(used.rows, RowOrder):
        lists = RowLists(np.empty(n_rows, dtype=np.int32))
        link_rows(tree.nodes, tree.tallies, used.rows.order, lists.next, 0, used.n_nodes)
    else:
        lists = enlarge(used.rows, n_rows)
    return Learner(used.size.copy(), tree, lists)


def without_rows(learner: Learner) -> Learner:
    """Return a copy of what prediction needs."""
    nodes, boxes, tallies = in_use(learner).tree
    return Learner(
        learner.size.copy(),
        Tree(nodes.copy(), boxes.copy(), tallies[:1].copy()),
        RowOrder(np.empty(0, dtype=np.int32)),
    )
