"""Prediction: rows are routed through each tree (Alg. 5), then the trees' mixtures are combined.

Rows travel in groups: a node's rows are neighbours, as in sampling, and the tree is walked depth
first, which is the order of its nodes in memory. So each node is read once for a block of rows,
and what belongs to the node alone, the message from above, is computed once. In a tree of 400,000
nodes this takes 15 ns for each row and node, where following rows one by one took 55 to 110, most
of it spent on cache misses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .components import Components, Exits, MessagesFromAbove, Visits, fill_components
from .kernel import kernel
from .memory import empty
from .mixture import Mixture
from .posterior import Hyperparameters
from .sample import partition
from .tree import NO_CHILD, Records, Tree
from .vector import padded_width

NEGLIGIBLE_WEIGHT = 1e-12
"""A row is not followed when no more than this weight is left, and lighter components are dropped.
So a tree of depth d loses at most (d + 2) times this, which bounds the error of its cdf."""


class Ensemble(NamedTuple):
    """All that prediction needs of a forest."""

    trees: list[Tree]
    depth: int
    """Number of edges between the root and the deepest leaf of any tree."""
    posterior: int
    """``HIERARCHICAL`` or ``EMPIRICAL``."""
    hyperparameters: Hyperparameters
    lifetime: float


class ForestMoments(NamedTuple):
    """Predictive mean of each row, and the parts of its variance beside the noise."""

    mean: NDArray[np.float64]
    posterior: NDArray[np.float64]
    """Uncertainty of the means at the places where the row may leave the tree."""
    branching: NDArray[np.float64]
    """Uncertainty about where the row branches off, and of the fresh branch."""
    between_trees: NDArray[np.float64]
    """Variance of the trees' predictive means."""


class Workspace(NamedTuple):
    """Arrays that routing and the label models fill, one tree after the other."""

    visits: Visits
    exits: Exits
    messages: MessagesFromAbove
    components: Components
    rows: NDArray[np.float32]
    """The rows in the order of the tree, with their numbers in ``row_order``."""
    row_order: NDArray[np.int32]
    staying: NDArray[np.float64]
    """By row number: the probability that it has not left the tree yet."""


def allocate_workspace(trees: list[Tree], depth: int, n_rows: int) -> Workspace:
    """Return arrays that are large enough for ``n_rows`` rows in any of the trees.

    These are upper bounds: what is not written to takes no memory.
    """
    n_visits = min(max(tree.n_nodes for tree in trees), n_rows * (depth + 1))
    n_exits = n_rows * (depth + 2)
    return Workspace(
        Visits(empty((n_visits,), np.int32), empty((n_visits,), np.int32)),
        Exits(
            row=empty((n_exits,), np.int32),
            visit=empty((n_exits,), np.int32),
            weight=empty((n_exits,), np.float64),
            branch_off=empty((n_exits,), np.float64),
            distance=empty((n_exits,), np.float64),
        ),
        MessagesFromAbove(empty((n_visits,), np.float64), empty((n_visits,), np.float64)),
        Components(
            empty((n_exits,), np.float64),
            empty((n_exits,), np.float64),
            empty((n_exits,), np.float64),
        ),
        rows=empty((n_rows, padded_width(trees[0].boxes.shape[2])), np.float32),
        row_order=empty((n_rows,), np.int32),
        staying=empty((n_rows,), np.float64),
    )


def route(tree: Tree, lifetime: float, rows: NDArray[np.float32], space: Workspace) -> Workspace:
    """Find the nodes that the rows pass through and the places where they leave the tree.

    Returns the part of ``space`` that belongs to them.
    """
    space.rows[:, : rows.shape[1]] = rows
    n_visits, n_exits = _route(
        tree,
        lifetime,
        space.rows,
        space.row_order,
        space.staying,
        space.visits,
        space.exits,
    )
    return Workspace(
        Visits._make(array[:n_visits] for array in space.visits),
        Exits._make(array[:n_exits] for array in space.exits),
        MessagesFromAbove._make(array[:n_visits] for array in space.messages),
        Components._make(array[:n_exits] for array in space.components),
        space.rows,
        space.row_order,
        space.staying,
    )


@kernel
def _route(
    tree: Tree,
    lifetime: float,
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    staying: NDArray[np.float64],
    visits: Visits,
    exits: Exits,
) -> tuple[int, int]:
    """Walk all rows down the tree (Alg. 5); return the number of visits and of exits.

    ``rows`` and ``row_order`` are permuted so that the rows of a node are neighbours;
    ``staying`` is p_NotSeparatedYet. With a finite lifetime nothing branches off after it.
    """
    nodes, boxes, _ = tree
    n_features = boxes.shape[2]
    for i in range(len(rows)):
        row_order[i] = i
        staying[i] = 1.0
    # Groups still to be followed, as in `sample_block`.
    waiting = np.empty((64, 4), dtype=np.int64)  # node, first row, end of rows, parent's visit
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = len(rows)
    waiting[0, 3] = -1
    n_waiting = 1
    n_visits = 0
    n_exits = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting, 0]
        start = waiting[n_waiting, 1]
        stop = waiting[n_waiting, 2]
        above = waiting[n_waiting, 3]
        parent_time = 0.0 if above < 0 else nodes[visits.node[above]].split_time
        duration = min(nodes[node].split_time, lifetime) - parent_time
        visits.node[n_visits] = node
        visits.parent[n_visits] = above
        i = start
        while i < stop:
            # Written out here, since as a function these loops may cost atomic reference counts of
            # their arrays, more than all the rest. Most rows are inside the box, which a test
            # without branches finds out.
            outside = False
            for f in range(n_features):
                outside |= (rows[i, f] < boxes[node, 0, f]) | (rows[i, f] > boxes[node, 1, f])
            if outside:
                distance = 0.0
                for f in range(n_features):
                    value = np.float64(rows[i, f])
                    low, high = np.float64(boxes[node, 0, f]), np.float64(boxes[node, 1, f])
                    distance += max(low - value, value - high, 0.0)
                number = row_order[i]
                branch_off = -math.expm1(-duration * distance)
                weight = staying[number] * branch_off
                staying[number] -= weight
                exits.row[n_exits] = number
                exits.visit[n_exits] = n_visits
                exits.weight[n_exits] = weight
                exits.branch_off[n_exits] = branch_off
                exits.distance[n_exits] = distance
                n_exits += weight > NEGLIGIBLE_WEIGHT
                if staying[number] <= NEGLIGIBLE_WEIGHT:
                    stop -= 1
                    for f in range(n_features):
                        rows[i, f] = rows[stop, f]
                    row_order[i] = row_order[stop]
                    continue
            i += 1
        if nodes[node].left_child == NO_CHILD:
            for i in range(start, stop):
                exits.row[n_exits] = row_order[i]
                exits.visit[n_exits] = n_visits
                exits.weight[n_exits] = staying[row_order[i]]
                exits.branch_off[n_exits] = 1.0
                exits.distance[n_exits] = 0.0
                n_exits += 1
        else:
            middle = partition(
                rows, row_order, start, stop, nodes[node].split_feature, nodes[node].threshold
            )
            if n_waiting + 2 > len(waiting):
                waiting = np.concatenate((waiting, np.empty_like(waiting)))
            for side in range(1, -1, -1):  # the left child ends on top and is followed first
                first = middle if side == 1 else start
                end = stop if side == 1 else middle
                if first < end:
                    waiting[n_waiting, 0] = nodes[node].left_child + side
                    waiting[n_waiting, 1] = first
                    waiting[n_waiting, 2] = end
                    waiting[n_waiting, 3] = n_visits
                    n_waiting += 1
        n_visits += 1
    return n_visits, n_exits


@kernel
def find_leaves(nodes: Records, rows: NDArray[np.float32], leaves: NDArray[np.int32]) -> None:
    """Set ``leaves[i]`` to the leaf whose block holds row i."""
    for i in range(len(rows)):
        node = np.int32(0)
        while nodes[node].left_child != NO_CHILD:
            goes_right = rows[i, nodes[node].split_feature] > nodes[node].threshold
            node = nodes[node].left_child + np.int32(goes_right)
        leaves[i] = node


def _tree_exits(
    ensemble: Ensemble, number: int, rows: NDArray[np.float32], space: Workspace
) -> tuple[Exits, Components]:
    """Return where the rows leave one tree, and the component of each exit."""
    tree = ensemble.trees[number]
    used = route(tree, ensemble.lifetime, rows, space)
    fill_components(
        tree.nodes,
        ensemble.posterior,
        ensemble.hyperparameters,
        ensemble.lifetime,
        used.visits,
        used.exits,
        used.messages,
        used.components,
    )
    return used.exits, used.components


@kernel
def _add_tree_moments(
    exits: Exits,
    components: Components,
    n_trees_before: int,
    sums: NDArray[np.float64],
    moments: ForestMoments,
) -> None:
    """Bring the running averages over trees from ``n_trees_before`` to one more.

    Means and variances are updated as in West (1979): no difference of large sums. ``sums`` is
    scratch space of shape (n_rows, 5), one cache line for each row.
    """
    sums[:] = 0.0
    for e in range(len(exits.row)):
        row = sums[exits.row[e]]  # weight, mean, spread, posterior, branching
        weight = exits.weight[e]
        row[0] += weight
        deviation = components.location[e] - row[1]
        row[1] += deviation * (weight / row[0])
        row[2] += weight * deviation * (components.location[e] - row[1])
        row[3] += weight * components.posterior_variance[e]
        row[4] += weight * components.branch_variance[e]
    share = 1.0 / (n_trees_before + 1.0)
    for i in range(len(sums)):
        total_weight, mean, spread, posterior, branching = sums[i]
        deviation = mean - moments.mean[i]
        moments.mean[i] += deviation * share
        moments.between_trees[i] += share * (
            deviation * (mean - moments.mean[i]) - moments.between_trees[i]
        )
        moments.posterior[i] += share * (posterior / total_weight - moments.posterior[i])
        moments.branching[i] += share * ((branching + spread) / total_weight - moments.branching[i])


def _no_moments(n_rows: int) -> ForestMoments:
    return ForestMoments(*(np.zeros(n_rows) for _ in ForestMoments._fields))


def predict_moments(ensemble: Ensemble, rows: NDArray[np.float32]) -> ForestMoments:
    """Return the predictive mean and the parts of the predictive variance of a block of rows."""
    moments = _no_moments(len(rows))
    space = allocate_workspace(ensemble.trees, ensemble.depth, len(rows))
    sums = np.empty((len(rows), 5))
    for number in range(len(ensemble.trees)):
        exits, components = _tree_exits(ensemble, number, rows, space)
        _add_tree_moments(exits, components, number, sums, moments)
    return moments


@kernel
def _count(exits: Exits, total_weight: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
    """Add up the weights of each row in one tree, and count its components over all trees."""
    total_weight[:] = 0.0
    for e in range(len(exits.row)):
        total_weight[exits.row[e]] += exits.weight[e]
        counts[exits.row[e]] += 1


@kernel
def _place(
    exits: Exits,
    components: Components,
    total_weight: NDArray[np.float64],
    noise_variance: float,
    n_trees: int,
    cursor: NDArray[np.int64],
    mixture: Mixture,
) -> None:
    """Write the components of one tree at ``cursor``; weights of a row add up to 1 / n_trees."""
    for e in range(len(exits.row)):
        row = exits.row[e]
        position = cursor[row]
        cursor[row] += 1
        mixture.weight[position] = exits.weight[e] / (total_weight[row] * n_trees)
        mixture.location[position] = components.location[e]
        mixture.scale[position] = math.sqrt(
            components.posterior_variance[e] + components.branch_variance[e] + noise_variance
        )


def predict_mixture(ensemble: Ensemble, rows: NDArray[np.float32]) -> tuple[ForestMoments, Mixture]:
    """Return moments as above, and each row's mixture: the trees' mixtures side by side."""
    n_rows = len(rows)
    n_trees = len(ensemble.trees)
    moments = _no_moments(n_rows)
    space = allocate_workspace(ensemble.trees, ensemble.depth, n_rows)
    sums = np.empty((n_rows, 5))
    counts = np.zeros(n_rows, dtype=np.int64)
    by_tree = []
    for number in range(n_trees):
        exits, components = _tree_exits(ensemble, number, rows, space)
        _add_tree_moments(exits, components, number, sums, moments)
        total_weight = np.empty(n_rows)
        _count(exits, total_weight, counts)
        by_tree.append(
            (
                Exits._make(array.copy() for array in exits),
                Components._make(array.copy() for array in components),
                total_weight,
            )
        )
    offset = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(counts, out=offset[1:])
    mixture = Mixture(offset, np.empty(offset[-1]), np.empty(offset[-1]), np.empty(offset[-1]))
    cursor = offset[:-1].copy()
    noise_variance = ensemble.hyperparameters.noise_variance
    for exits, components, total_weight in by_tree:
        _place(exits, components, total_weight, noise_variance, n_trees, cursor, mixture)
    return moments, mixture
