"""One tree with all that belongs to it, as it is sampled and as it learns more rows."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .extend import extend_tree
from .posterior import (
    Evidence,
    Hyperparameters,
    LabelMoments,
    fill_evidence,
    label_moments,
    log_marginal_likelihood,
    upward_pass,
)
from .sample import link_rows, sample_tree
from .tree import RowLists, RowOrder, Tree, enlarge, parents_first, view


class Settings(NamedTuple):
    """What all trees of a forest have in common."""

    min_samples_split: int
    lifetime: float
    has_evidence: bool
    """Whether the label model is the hierarchical one, which needs more than moments."""


class Learner(NamedTuple):
    """A tree that can learn. Its arrays may have room for more nodes and rows than there are."""

    n_nodes: int
    tree: Tree
    rows: RowOrder | RowLists
    """Lists from the first time on that room is made for more rows."""
    moments: LabelMoments
    evidence: Evidence
    """Empty where the label model does without."""


def no_evidence() -> Evidence:
    return Evidence(np.empty(0), np.empty(0), np.empty(0))


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
    moments = label_moments(tree, labels, row_order)
    evidence = (
        upward_pass(tree, moments, hyperparameters) if settings.has_evidence else no_evidence()
    )
    return Learner(tree.n_nodes, tree, row_order, moments, evidence)


def learn_more(
    learner: Learner,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    begin: int,
    end: int,
    settings: Settings,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
) -> Learner:
    """Let the rows from ``begin`` to ``end`` join the tree one by one (Alg. 3)."""
    n_nodes = extend_tree(
        rows,
        labels,
        begin,
        end,
        settings.min_samples_split,
        settings.lifetime,
        hyperparameters,
        random_state,
        learner.tree,
        cast(RowLists, learner.rows),
        learner.moments,
        learner.evidence,
        learner.n_nodes,
    )
    return learner._replace(n_nodes=n_nodes)


def renew_evidence(learner: Learner, hyperparameters: Hyperparameters) -> None:
    """Compute all evidence anew, for other hyperparameters."""
    tree = in_use(learner).tree
    fill_evidence(tree, learner.moments, hyperparameters, parents_first(tree), learner.evidence)


def log_likelihood(learner: Learner, hyperparameters: Hyperparameters) -> float:
    """Return log p(labels | tree)."""
    return log_marginal_likelihood(
        in_use(learner).tree, learner.moments, hyperparameters, learner.evidence
    )


def in_use(learner: Learner) -> Learner:
    """Return views of what is in use, without the room for more."""
    n_nodes = learner.n_nodes
    tree = view(learner.tree, n_nodes)
    n_rows = int(tree.n_samples[0])
    rows = learner.rows
    return Learner(
        n_nodes,
        tree,
        type(rows)(rows[0][:n_nodes], rows[1][:n_rows]),
        view(learner.moments, n_nodes),
        view(learner.evidence, n_nodes),
    )


def with_room(learner: Learner, n_rows: int) -> Learner:
    """Return the learner with room for ``n_rows`` rows, and for as many nodes as they may need."""
    n_nodes = 2 * n_rows - 1  # a binary tree with one row in every leaf
    used = in_use(learner)
    lists = used.rows
    if isinstance(lists, RowOrder):
        first, order = lists
        lists = RowLists(first.copy(), np.empty_like(order))
        link_rows(used.tree, order, lists, 0, used.n_nodes)
    return Learner(
        used.n_nodes,
        enlarge(used.tree, n_nodes),
        RowLists(*enlarge(lists[:1], n_nodes), *enlarge(lists[1:], n_rows)),
        enlarge(used.moments, n_nodes),
        enlarge(used.evidence, n_nodes) if len(used.evidence.mean) > 0 else used.evidence,
    )
