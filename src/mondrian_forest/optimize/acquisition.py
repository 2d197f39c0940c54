"""Acquisition functions: how promising a point is, given the predictive distribution there.

Larger is better, and values are maximised. An optimiser that minimises changes the sign of the
values once, before the forest learns them.

Improvements are those of the predictive mixture, not of a Gaussian fitted to it. Each component,
Gaussian or Student-t, has a closed form. The improvement of the mixture is the weighted mean of the
improvements of its components.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, gammaln, log_ndtr, ndtr, stdtr
from sklearn.utils import check_random_state

from .._core.arrays.tree import NO_CHILD, Tree
from .._core.labels.posterior import EMPIRICAL, PRUNED
from .._core.labels.pruned import count_of
from .._forest.sharing import read
from ..distribution import PredictiveDistribution
from ..forest import MondrianForestRegressor

Values = NDArray[np.float64]

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_MANY_DEGREES = 1e5
"""With more degrees of freedom than this a Student-t component is treated as a Gaussian."""


class _View(NamedTuple):
    """What a draw from a tree needs of a fitted forest, for some query rows."""

    trees: list[Tree]
    rows: NDArray[np.float32]
    """The query rows in the coordinates of the trees."""
    trend: Values | None
    """The values of the linear trend at the query rows. None: the forest has no trend."""
    posterior: int
    lifetime: float
    prior_mean: float
    prior_scale: float
    prior_rate: float


def _view_of(forest: MondrianForestRegressor, X: Values) -> _View:
    """Return what a draw needs. Nothing else in ``optimize`` uses private members of a forest."""
    table = np.asarray(X, dtype=np.float64)
    return _View(
        forest.trees_,
        forest._scale(table),
        None if forest._trend is None else forest._trend.at(table),
        forest._settings.posterior,
        forest._settings.lifetime,
        forest.prior_mean_,
        forest.prior_scale_,
        forest.prior_rate_,
    )


def upper_confidence_bound(distribution: PredictiveDistribution, kappa: float = 1.0) -> Values:
    """Return the mean plus ``kappa`` standard deviations.

    Parameters
    ----------
    distribution : PredictiveDistribution
    kappa : float, default=1.0
        The paper uses 1.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    return distribution.mean() + kappa * distribution.std()


def expected_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the expectation of ``max(label - best, 0)``.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value so far.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    return np.exp(log_expected_improvement(distribution, best))


def log_expected_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the logarithm of the expected improvement.

    The logarithm still tells points apart where the improvement itself underflows to zero.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value so far.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    weight, mean, scale, df, offset = distribution.components()
    z = (mean - best) / scale
    log_h = _log_h(z)
    is_student = df < _MANY_DEGREES
    log_h[is_student] = _student_log_h(z[is_student], df[is_student])
    return _log_sum_by_row(np.log(weight) + np.log(scale) + log_h, offset)


def probability_of_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the probability that a label exceeds ``best``.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value so far.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    weight, mean, scale, df, offset = distribution.components()
    z = (mean - best) / scale
    log_above = log_ndtr(z)
    is_student = df < _MANY_DEGREES
    with np.errstate(divide="ignore"):
        log_above[is_student] = np.log(stdtr(df[is_student], z[is_student]))
    return np.exp(_log_sum_by_row(np.log(weight) + log_above, offset))


def thompson_sample(
    forest: MondrianForestRegressor, X: NDArray[np.float64], random_state: Any = None
) -> Values:
    """Draw a function from the posterior of a random tree, and return its values.

    Rows that leave the tree at the same node share their random numbers, so that near rows have
    near values. At a single row, the value is distributed as the predictive mixture of the tree
    without the noise of a label.

    Parameters
    ----------
    forest : MondrianForestRegressor
        A fitted forest.
    X : ndarray of shape (n_rows, n_features)
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    random = check_random_state(random_state)
    return read(forest, lambda unchanging: _draw(_view_of(unchanging, X), random))


def _log_h(z: Values) -> Values:
    """Return log(phi(z) + z Phi(z)), where h is the expected improvement of N(z, 1) on 0.

    Below -1 the two terms nearly cancel. There phi(z) is factored out, and the rest is 1 - t with t
    from the scaled complementary error function. Below -1000 this cancels, too, and two terms of
    the asymptotic series are exact to 2e-11.
    """
    log_density = -0.5 * z * z - _LOG_SQRT_2_PI
    result = np.empty_like(z)
    near = z > -1.0
    result[near] = np.log(np.exp(log_density[near]) + z[near] * ndtr(z[near]))
    far = z < -1000.0
    result[far] = log_density[far] - 2.0 * np.log(-z[far]) + np.log1p(-3.0 / (z[far] * z[far]))
    between = ~(near | far)
    x = z[between]
    t = math.sqrt(0.5 * math.pi) * -x * erfcx(-x / math.sqrt(2.0))
    result[between] = log_density[between] + np.log1p(-t)
    return result


def _student_log_h(z: Values, df: Values) -> Values:
    """Return the same for a Student-t: log(z F(z) + f(z) (df + z^2) / (df - 1)).

    The two terms cancel by a factor of at most z^2 or df. If both underflow, the density falls like
    an exponential function with the rate ``decay``, which gives the logarithm.
    """
    log_density = (
        gammaln(0.5 * df + 0.5)
        - gammaln(0.5 * df)
        - 0.5 * np.log(np.pi * df)
        - 0.5 * (df + 1.0) * np.log1p(z * z / df)
    )
    h = z * stdtr(df, z) + np.exp(log_density) * (df + z * z) / (df - 1.0)
    decay = (df + 1.0) * np.abs(z) / (df + z * z)
    with np.errstate(divide="ignore"):
        log_underflowed = log_density - 2.0 * np.log(decay)
        return np.asarray(np.where(h > 1e-280, np.log(np.maximum(h, 1e-300)), log_underflowed))


def _log_sum_by_row(terms: Values, offset: NDArray[np.int64]) -> Values:
    """Return log(sum(exp(terms))) of each row."""
    largest = np.maximum.reduceat(terms, offset[:-1])
    largest = np.where(np.isfinite(largest), largest, 0.0)
    shifted = np.exp(terms - np.repeat(largest, np.diff(offset)))
    with np.errstate(divide="ignore"):
        return largest + np.log(np.add.reduceat(shifted, offset[:-1]))


def _draw(view: _View, random: np.random.RandomState) -> Values:
    tree = view.trees[random.randint(len(view.trees))]
    if view.posterior == EMPIRICAL:
        values = _empirical_draw(view, tree, random)
    elif view.posterior == PRUNED:
        values = _pruned_draw(view, tree, random)
    else:
        values = _hierarchical_draw(view, tree, random)
    return values if view.trend is None else values + view.trend


class _Exits(NamedTuple):
    """Where each row leaves a tree."""

    node: NDArray[np.int64]
    """The node above which the row branches off, or the leaf in which it ends."""
    parent: NDArray[np.int64]
    """The parent of that node; -1 for the root."""
    time: Values
    """When the row branches off; infinite if it ends in a leaf."""


def _find_exits(
    view: _View, tree: Tree, is_end: NDArray[np.bool_], random: np.random.RandomState
) -> _Exits:
    """Send the query rows down a tree, to the nodes marked by ``is_end`` at most.

    Each node has one exponential clock, shared by all rows that reach it.
    """
    clock = random.exponential(size=tree.n_nodes)
    n_rows = len(view.rows)
    node = np.zeros(n_rows, dtype=np.int64)
    parent = np.full(n_rows, -1)
    start = np.zeros(n_rows)
    time = np.full(n_rows, np.inf)
    walking = np.arange(n_rows)
    while len(walking):
        here = node[walking]
        x = view.rows[walking]
        outside = np.maximum(tree.lower[here] - x, 0.0) + np.maximum(x - tree.upper[here], 0.0)
        distance = outside.sum(axis=1, dtype=np.float64)
        with np.errstate(divide="ignore"):
            branch_time = start[walking] + clock[here] / distance
        branches = branch_time < np.minimum(tree.split_time[here], view.lifetime)
        time[walking[branches]] = branch_time[branches]
        goes_on = ~branches & ~is_end[here]
        walking, here, x = walking[goes_on], here[goes_on], x[goes_on]
        feature = tree.split_feature[here]
        is_right = x[np.arange(len(x)), feature] > tree.threshold[here]
        parent[walking] = here
        start[walking] = tree.split_time[here]
        node[walking] = tree.left_child[here] + is_right
    return _Exits(node, parent, time)


def _empirical_draw(view: _View, tree: Tree, random: np.random.RandomState) -> Values:
    exits = _find_exits(view, tree, tree.left_child == NO_CHILD, random)
    deviation = random.standard_normal(tree.n_nodes) / np.sqrt(tree.nodes["precision"])
    return np.asarray((tree.nodes["location"] + deviation)[exits.node])


def _pruned_draw(view: _View, tree: Tree, random: np.random.RandomState) -> Values:
    """Draw a pruning of the tree, then the means of all nodes from their posterior."""
    is_end = random.uniform(size=tree.n_nodes) < expit(tree.nodes["share"])
    exits = _find_exits(view, tree, is_end, random)
    df = tree.nodes["degrees"].astype(np.float64)
    scale = 1.0 / np.sqrt(tree.nodes["precision"] * (count_of(df) + 1.0))
    means = tree.nodes["location"] + scale * random.standard_t(df)
    return np.asarray(means[exits.node])


def _hierarchical_draw(view: _View, tree: Tree, random: np.random.RandomState) -> Values:
    """Draw the means of all nodes, then the means at the ends of the branches that leave them.

    Given the means of a node and its parent, the mean at a time between them is a Brownian bridge
    in the accumulated prior variance. From there on the new branch is independent of the tree.
    """
    exits = _find_exits(view, tree, tree.left_child == NO_CHILD, random)
    scale = view.prior_scale
    accumulated = scale * (1.0 - tree.nodes["share"])
    means = _draw_node_means(view, tree, accumulated, random)
    noise = random.standard_normal(tree.n_nodes)[exits.node]
    is_root = exits.parent < 0
    first = np.where(is_root, view.prior_mean, means[exits.parent])
    start = np.where(is_root, 0.5 * scale, accumulated[exits.parent])
    last, end = means[exits.node], accumulated[exits.node]
    is_leaf = np.isinf(exits.time)
    at = np.where(is_leaf, end, scale / (1.0 + np.exp(-view.prior_rate * exits.time)))
    share = np.divide(at - start, end - start, out=np.ones_like(at), where=end > start)
    variance = share * (end - at) + np.where(is_leaf, 0.0, scale - at)
    deviation = np.sqrt(np.maximum(variance, 0.0)) * noise
    return np.asarray(first + share * (last - first) + deviation)


def _draw_node_means(
    view: _View, tree: Tree, accumulated: Values, random: np.random.RandomState
) -> Values:
    """Draw the means of all nodes from their joint posterior, level by level from the root.

    ``accumulated`` is the prior variance accumulated by the time of each node.
    """
    evidence_variance = 1.0 / tree.nodes["precision"]
    means = np.empty(tree.n_nodes)
    level = np.zeros(1, dtype=np.int64)
    above, begin = np.full(1, view.prior_mean), np.full(1, 0.5 * view.prior_scale)
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
