"""Functions drawn from the posterior of a forest: a tree at random, then the means of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._core.arrays.tree import NO_CHILD, Tree
from .._core.labels import Empirical, Hierarchical, Pruned
from .._core.labels.pruned import PRIOR_COUNT, PRIOR_SHAPE
from .state import ForestState

Values = NDArray[np.float64]


def draw_values(state: ForestState, table: NDArray[Any], random: np.random.RandomState) -> Values:
    """Return the values at some rows of one function drawn from the posterior of one tree."""
    tree = state.grove.tree(random.randint(state.grove.n_trees))
    columns, offset = state.seen_by_trees(table)
    rows = state.scaling.apply(columns)
    values = _DRAWS[type(state.model)](state, tree, rows, random)
    return values if offset is None else values + offset


class _Exits(NamedTuple):
    """Where each row leaves a tree."""

    node: NDArray[np.int64]
    """The node above which the row branches off, or the leaf in which it ends."""
    parent: NDArray[np.int64]
    """The parent of that node; -1 for the root."""
    time: Values
    """When the row branches off; infinite if it ends in a leaf."""


def _find_exits(
    rows: NDArray[np.float32],
    lifetime: float,
    tree: Tree,
    is_end: NDArray[np.bool_],
    random: np.random.RandomState,
) -> _Exits:
    """Send the query rows down a tree, to the nodes marked by ``is_end`` at most.

    Each node has one exponential clock, shared by all rows that reach it.
    """
    clock = random.exponential(size=tree.n_nodes)
    n_rows = len(rows)
    node = np.zeros(n_rows, dtype=np.int64)
    parent = np.full(n_rows, -1)
    start = np.zeros(n_rows)
    time = np.full(n_rows, np.inf)
    walking = np.arange(n_rows)
    while len(walking):
        here = node[walking]
        x = rows[walking]
        outside = np.maximum(tree.lower[here] - x, 0.0) + np.maximum(x - tree.upper[here], 0.0)
        distance = outside.sum(axis=1, dtype=np.float64)
        with np.errstate(divide="ignore"):
            branch_time = start[walking] + clock[here] / distance
        branches = branch_time < np.minimum(tree.split_time[here], lifetime)
        time[walking[branches]] = branch_time[branches]
        goes_on = ~branches & ~is_end[here]
        walking, here, x = walking[goes_on], here[goes_on], x[goes_on]
        feature = tree.split_feature[here]
        is_right = x[np.arange(len(x)), feature] > tree.threshold[here]
        parent[walking] = here
        start[walking] = tree.split_time[here]
        node[walking] = tree.left_child[here] + is_right
    return _Exits(node, parent, time)


def _empirical_draw(
    state: ForestState, tree: Tree, rows: NDArray[np.float32], random: np.random.RandomState
) -> Values:
    exits = _find_exits(rows, state.growth.lifetime, tree, tree.left_child == NO_CHILD, random)
    deviation = random.standard_normal(tree.n_nodes) / np.sqrt(tree.nodes["precision"])
    return np.asarray((tree.nodes["location"] + deviation)[exits.node])


def _pruned_draw(
    state: ForestState, tree: Tree, rows: NDArray[np.float32], random: np.random.RandomState
) -> Values:
    """Draw a pruning of the tree, then the means of all nodes from their posterior."""
    is_end = random.uniform(size=tree.n_nodes) < expit(tree.nodes["share"])
    exits = _find_exits(rows, state.growth.lifetime, tree, is_end, random)
    n_samples = tree.nodes["n_samples"]
    scale = 1.0 / np.sqrt(tree.nodes["precision"] * (n_samples + PRIOR_COUNT + 1.0))
    means = tree.nodes["location"] + scale * random.standard_t(n_samples + 2.0 * PRIOR_SHAPE)
    return np.asarray(means[exits.node])


def _hierarchical_draw(
    state: ForestState, tree: Tree, rows: NDArray[np.float32], random: np.random.RandomState
) -> Values:
    """Draw the means of all nodes, then the means at the ends of the branches that leave them.

    Given the means of a node and its parent, the mean at a time between them is a Brownian bridge
    in the accumulated prior variance. From there on the new branch is independent of the tree.
    """
    exits = _find_exits(rows, state.growth.lifetime, tree, tree.left_child == NO_CHILD, random)
    model = state.model
    assert isinstance(model, Hierarchical)
    scale = model.prior_scale
    accumulated = scale * (1.0 - tree.nodes["share"])
    means = _draw_node_means(model, tree, accumulated, random)
    noise = random.standard_normal(tree.n_nodes)[exits.node]
    is_root = exits.parent < 0
    first = np.where(is_root, model.prior_mean, means[exits.parent])
    start = np.where(is_root, 0.5 * scale, accumulated[exits.parent])
    last, end = means[exits.node], accumulated[exits.node]
    is_leaf = np.isinf(exits.time)
    at = np.where(is_leaf, end, scale / (1.0 + np.exp(-model.prior_rate * exits.time)))
    share = np.divide(at - start, end - start, out=np.ones_like(at), where=end > start)
    variance = share * (end - at) + np.where(is_leaf, 0.0, scale - at)
    deviation = np.sqrt(np.maximum(variance, 0.0)) * noise
    return np.asarray(first + share * (last - first) + deviation)


def _draw_node_means(
    model: Hierarchical, tree: Tree, accumulated: Values, random: np.random.RandomState
) -> Values:
    """Draw the means of all nodes from their joint posterior, level by level from the root.

    ``accumulated`` is the prior variance accumulated by the time of each node.
    """
    evidence_variance = 1.0 / tree.nodes["precision"]
    means = np.empty(tree.n_nodes)
    level = np.zeros(1, dtype=np.int64)
    above, begin = np.full(1, model.prior_mean), np.full(1, 0.5 * model.prior_scale)
    while len(level):
        edge = accumulated[level] - begin
        total = edge + evidence_variance[level]
        location = tree.nodes["location"][level]
        mean = (above * evidence_variance[level] + location * edge) / total
        with np.errstate(over="ignore"):
            variance = edge * evidence_variance[level] / total
        # With labels of 1e100 the product overflows, though the variance itself is finite.
        variance = np.where(
            np.isfinite(variance), variance, edge * (evidence_variance[level] / total)
        )
        means[level] = mean + np.sqrt(variance) * random.standard_normal(len(level))
        inner = level[tree.left_child[level] != NO_CHILD]
        above, begin = np.repeat(means[inner], 2), np.repeat(accumulated[inner], 2)
        level = np.repeat(tree.left_child[inner].astype(np.int64), 2)
        level[1::2] += 1
    return means


_DRAWS: dict[type[Any], Callable[..., Values]] = {
    Empirical: _empirical_draw,
    Hierarchical: _hierarchical_draw,
    Pruned: _pruned_draw,
}
