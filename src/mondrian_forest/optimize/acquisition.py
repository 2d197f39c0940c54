"""Acquisition functions: how promising a point is, given the predictive distribution there.

Larger is better, and values are maximised. An optimiser that minimises changes the sign of the
values once, before the forest learns them.

Improvements are those of the predictive mixture, not of a Gaussian fitted to it. Each component,
Gaussian or Student-t, has a closed form. The improvement of the mixture is the weighted mean of the
improvements of its components.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, gammaln, log_ndtr, ndtr, stdtr
from sklearn.utils import check_random_state

from .._forest.draw import draw_values
from .._forest.sharing import read
from ..distribution import PredictiveDistribution
from ..forest import MondrianForestRegressor

Values = NDArray[np.float64]

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_MANY_DEGREES = 1e5
"""With more degrees of freedom than this a Student-t component is treated as a Gaussian."""


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
    table = np.asarray(X, dtype=np.float64)
    return read(forest, lambda state: draw_values(state, table, random))


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
