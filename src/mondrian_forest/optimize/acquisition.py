"""How much a point is worth trying, from the predictive distribution there: larger is better.

Objectives are maximised; an optimiser that minimises changes the sign of the values, once.
Improvements are those of the mixture itself: each component, Gaussian or Student-t, has a closed
form, and the mixture's is their weighted mean. No Gaussian is fitted to the whole.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, gammaln, log_ndtr, ndtr, stdtr
from sklearn.utils import check_random_state

from .._core.arrays.tree import NO_CHILD, Tree
from .._core.labels import Empirical, Hierarchical, Pruned
from .._core.labels.pruned import count_of
from .._forest.sharing import read
from .._forest.state import ForestState
from ..distribution import PredictiveDistribution
from ..forest import MondrianForestRegressor

Values = NDArray[np.float64]

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_MANY_DEGREES = 1e5
"""From here on a Student-t component counts as Gaussian."""


def upper_confidence_bound(distribution: PredictiveDistribution, kappa: float = 1.0) -> Values:
    """Return mean plus ``kappa`` standard deviations; the paper takes 1.

    Parameters
    ----------
    distribution : PredictiveDistribution
    kappa : float, default=1.0

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    return distribution.mean() + kappa * distribution.std()


def expected_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the mean of what a label exceeds ``best`` by, or zero.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value seen.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    return np.exp(log_expected_improvement(distribution, best))


def log_expected_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the logarithm of the expected improvement, which tells tiny ones apart.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value seen.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    weight, mean, scale, df, offsets = distribution.components()
    z = (mean - best) / scale
    log_h = _log_h(z)  # of a Gaussian; for many degrees a Student-t is hardly different
    few = df < _MANY_DEGREES
    log_h[few] = _student_log_h(z[few], df[few])
    return _log_sum_by_row(np.log(weight) + np.log(scale) + log_h, offsets)


def probability_of_improvement(distribution: PredictiveDistribution, best: float) -> Values:
    """Return the probability that a label exceeds ``best``.

    Parameters
    ----------
    distribution : PredictiveDistribution
    best : float
        The largest value seen.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    weight, mean, scale, df, offsets = distribution.components()
    z = (mean - best) / scale
    log_above = log_ndtr(z)
    few = df < _MANY_DEGREES
    with np.errstate(divide="ignore"):
        log_above[few] = np.log(stdtr(df[few], z[few]))
    return np.exp(_log_sum_by_row(np.log(weight) + log_above, offsets))


def thompson_sample(
    forest: MondrianForestRegressor, X: NDArray[np.float64], random_state: Any = None
) -> Values:
    """Return the values of one function drawn from the posterior of one tree, drawn at random.

    The draw is a function: rows that leave the tree at the same node share what is random there,
    so that near rows have near values. Its value at any one row has the law of the predictive
    mixture of the tree, without the noise of a label.

    Parameters
    ----------
    forest : MondrianForestRegressor
        Fitted.
    X : ndarray of shape (n_rows, n_features)
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    return read(forest, lambda state: _drawn(state, X, check_random_state(random_state)))


def _drawn(state: ForestState, X: Values, random: np.random.RandomState) -> Values:
    tree = state.grove.tree(random.randint(state.grove.n_trees))
    rows = state.scaling.apply(np.asarray(X, dtype=np.float64))
    lifetime, model = state.growth.lifetime, state.model
    if isinstance(model, Empirical):
        values = _empirical_draw(tree, rows, lifetime, random)
    elif isinstance(model, Pruned):
        values = _pruned_draw(tree, rows, lifetime, random)
    else:
        values = _hierarchical_draw(state, tree, rows, random)
    return values if state.trend is None else values + state.trend.at(np.asarray(X))


def _log_h(z: Values) -> Values:
    """Return log(phi(z) + z Phi(z)): of the improvement on 0 of a Gaussian N(z, 1).

    Below -1 the two terms nearly cancel: phi(z) is factored out, and what remains is 1 - t with t
    from the scaled complementary error function. Below -1000 that cancels too, and two terms of the
    asymptotic series are exact to 2e-11.
    """
    density = -0.5 * z * z - _LOG_SQRT_2_PI
    result = np.empty_like(z)
    near = z > -1.0
    result[near] = np.log(np.exp(density[near]) + z[near] * ndtr(z[near]))
    far = z < -1000.0
    result[far] = density[far] - 2.0 * np.log(-z[far]) + np.log1p(-3.0 / (z[far] * z[far]))
    between = ~(near | far)
    x = z[between]
    lost = math.sqrt(0.5 * math.pi) * -x * erfcx(-x / math.sqrt(2.0))
    result[between] = density[between] + np.log1p(-lost)
    return result


def _student_log_h(z: Values, df: Values) -> Values:
    """Return the same for a Student-t: log(z F(z) + f(z) (df + z^2) / (df - 1)).

    The terms cancel by a factor of z^2 or df at most, unless they vanish: there the density falls
    like an exponential function, whose rate is ``decay``.
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
        vanishing = log_density - 2.0 * np.log(decay)
        return np.asarray(np.where(h > 1e-280, np.log(np.maximum(h, 1e-300)), vanishing))


def _log_sum_by_row(terms: Values, offsets: NDArray[np.int64]) -> Values:
    """Return the logarithms of the sums of exponentials of each row's terms."""
    largest = np.maximum.reduceat(terms, offsets[:-1])
    largest = np.where(np.isfinite(largest), largest, 0.0)
    shifted = np.exp(terms - np.repeat(largest, np.diff(offsets)))
    with np.errstate(divide="ignore"):
        return largest + np.log(np.add.reduceat(shifted, offsets[:-1]))


class _Exits(NamedTuple):
    """Where rows leave a tree."""

    node: NDArray[np.int64]
    """The node above which they branch off, or the leaf in which they end."""
    parent: NDArray[np.int64]
    time: Values
    """When they branch off; infinite where they end in the leaf."""


def _leave(
    tree: Tree,
    rows: NDArray[np.float32],
    lifetime: float,
    random: np.random.RandomState,
    is_end: NDArray[np.bool_] | None = None,
) -> _Exits:
    """Send rows down a tree; all that pass a node meet the same exponential clock there.

    Nobody passes the nodes marked by ``is_end``.
    """
    if is_end is None:
        is_end = tree.left_child == NO_CHILD
    clock = random.exponential(size=tree.n_nodes)
    node = np.zeros(len(rows), dtype=np.int64)
    parent = np.full(len(rows), -1)
    start = np.zeros(len(rows))
    time = np.full(len(rows), np.inf)
    walking = np.arange(len(rows))
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
    tree: Tree, rows: NDArray[np.float32], lifetime: float, random: np.random.RandomState
) -> Values:
    exits = _leave(tree, rows, lifetime, random)
    deviation = random.standard_normal(tree.n_nodes) / np.sqrt(tree.nodes["precision"])
    return np.asarray((tree.nodes["location"] + deviation)[exits.node])


def _pruned_draw(
    tree: Tree, rows: NDArray[np.float32], lifetime: float, random: np.random.RandomState
) -> Values:
    """Draw a pruned tree, and the means of all nodes from their posterior."""
    is_end = random.uniform(size=tree.n_nodes) < expit(tree.nodes["share"])
    exits = _leave(tree, rows, lifetime, random, is_end)
    df = tree.nodes["degrees"].astype(np.float64)
    scale = 1.0 / np.sqrt(tree.nodes["precision"] * (count_of(df) + 1.0))
    means = tree.nodes["location"] + scale * random.standard_t(df)
    return np.asarray(means[exits.node])


def _hierarchical_draw(
    state: ForestState,
    tree: Tree,
    rows: NDArray[np.float32],
    random: np.random.RandomState,
) -> Values:
    """Draw the means of all nodes from their joint posterior, then the branches that leave them."""
    exits = _leave(tree, rows, state.growth.lifetime, random)
    model = state.model
    assert isinstance(model, Hierarchical)
    scale = model.prior_scale
    accumulated = scale * (1.0 - tree.nodes["share"])
    evidence_variance = 1.0 / tree.nodes["precision"]
    means = np.empty(tree.n_nodes)
    level = np.zeros(1, dtype=np.int64)
    above, begin = np.full(1, model.prior_mean), np.full(1, 0.5 * scale)
    while len(level):
        edge = accumulated[level] - begin
        total = edge + evidence_variance[level]
        location = tree.nodes["location"][level]
        mean = (above * evidence_variance[level] + location * edge) / total
        with np.errstate(over="ignore"):  # with labels of 1e100, though the variance is a number
            variance = edge * evidence_variance[level] / total
        variance = np.where(
            np.isfinite(variance), variance, edge * (evidence_variance[level] / total)
        )
        means[level] = mean + np.sqrt(variance) * random.standard_normal(len(level))
        inner = level[tree.left_child[level] != NO_CHILD]
        above, begin = np.repeat(means[inner], 2), np.repeat(accumulated[inner], 2)
        level = np.repeat(tree.left_child[inner].astype(np.int64), 2)
        level[1::2] += 1
    branch = random.standard_normal(tree.n_nodes)[exits.node]
    is_root = exits.parent < 0
    first = np.where(is_root, model.prior_mean, means[exits.parent])
    start = np.where(is_root, 0.5 * scale, accumulated[exits.parent])
    last, end = means[exits.node], accumulated[exits.node]
    at = np.where(np.isinf(exits.time), end, scale / (1.0 + np.exp(-model.prior_rate * exits.time)))
    share = np.divide(at - start, end - start, out=np.ones_like(at), where=end > start)
    variance = share * (end - at) + np.where(np.isinf(exits.time), 0.0, scale - at)
    deviation = np.sqrt(np.maximum(variance, 0.0)) * branch
    return np.asarray(first + share * (last - first) + deviation)
