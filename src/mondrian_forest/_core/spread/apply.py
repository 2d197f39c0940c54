"""Stretching predictive distributions about their means."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..mixtures.mixture import Mixture
from ..mixtures.reduce import ForestMoments
from .blend import Blend

LEVELS = np.linspace(0.0, 1.0, 101)
"""Levels of the quantiles of the novelty."""
_LEAST_USUAL = 1e-3
"""A smaller novelty is never strange."""
_USUAL, _FAR = 98, 3.0
"""Distributions become wider from this quantile of the held-out rows on, in percent. They have the
width of all labels where the novelty is so many times as large."""
_WIDE = 95
"""Distributions that are wider than that of all labels become narrower from this quantile on, and
have its width at the one above. What falls on the way out of the data should fall early. On twelve
tables, a start at 99% let the mean width of rows that leave the data fall by up to 40%, and a start
at 90% cost density: these are held-out rows too."""
_TILT = 0.02
"""The logarithm of the width gains so much from the most familiar of the held-out rows to the
strangest. So no two rows have the same width, unless they are equally strange too."""


class Surroundings(NamedTuple):
    """What novelty says about widths: how rows of the data differ, and where the data end.

    Attributes
    ----------
    novelty : ndarray of shape (101,)
        The novelty of held-out rows: its quantiles from 0 to 100%.
    far_deviation : float
        The standard deviation of all labels, which is that of every row far from the data.
    """

    novelty: NDArray[np.float64]
    far_deviation: float

    def rank(self, novelty: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of held-out rows that are more familiar; of equal ones, half count."""
        known = np.concatenate(([0.0], self.novelty))
        below = np.searchsorted(known, novelty, side="left")
        above = np.searchsorted(known, novelty, side="right")
        place = np.interp(novelty, known, np.arange(len(known)))
        place = np.where(above > below, 0.5 * (below + above - 1), place)
        return np.asarray(place / (len(known) - 1))

    def width_at(
        self, usual: NDArray[np.float64], novelty: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the standard deviations that are forecast.

        ``usual`` is what is forecast without looking at the novelty, at a row or at the next place
        in the range of the data. So where all features that move are outside of their range, the
        width depends on the novelty alone, which never falls there.
        """
        log_usual = np.log(usual) + _TILT * (self.rank(novelty) - 1.0)
        more = math.log(self.far_deviation) - log_usual
        narrow, wide = self.strangeness(novelty)
        return np.exp(log_usual + np.where(more < 0.0, wide, narrow) * more)

    def strangeness(
        self, novelty: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return 0 for rows like the held-out ones and 1 for rows that are far from the data.

        The first array is for narrow distributions, and the second for wide ones, see ``_WIDE``.
        """
        usual = max(float(self.novelty[_USUAL]), _LEAST_USUAL)
        wide = max(float(self.novelty[_WIDE]), _LEAST_USUAL)
        narrow = _rise(novelty, usual, _FAR * usual)
        return narrow, np.maximum(narrow, _rise(novelty, wide, max(usual, 1.001 * wide)))


def _rise(novelty: NDArray[np.float64], start: float, end: float) -> NDArray[np.float64]:
    """Return what rises from 0 to 1 with the logarithm of the novelty, between start and end."""
    end = min(end, 1.0)
    if start >= end:
        return np.asarray(novelty >= 1.0, np.float64)
    rising = np.log(np.maximum(novelty, start) / start) / math.log(end / start)
    # The last hundredth is for rows that are farther still: they are not all the same.
    return np.asarray(np.minimum(rising, 1.0) * (0.99 + 0.01 * novelty))


class Spread(NamedTuple):
    """How predictive distributions are stretched about their means.

    Attributes
    ----------
    balance : float
        Multiplies the distances between components, relative to their scales. Standard deviations
        do not depend on it.
    deviation : ndarray of shape (n_knots,)
        Standard deviations that the trees predict, ascending.
    factor : ndarray of shape (n_knots,)
        What these standard deviations are multiplied by; ``factor_at`` gives the factors of others.
    surroundings : Surroundings or None
        None where no row has been held out: then widths do not depend on the novelty.
    blend : Blend or None
        How the labels near a row are mixed in; None if they are not.
    """

    balance: float
    deviation: NDArray[np.float64]
    factor: NDArray[np.float64]
    surroundings: Surroundings | None = None
    blend: Blend | None = None

    def factor_at(self, deviation: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factors of predictions with these standard deviations.

        Between two knots the factor is a power of the standard deviation. Beyond the first and the
        last knot it is constant.
        """
        if len(self.factor) == 1:
            return np.full(len(deviation), self.factor[0])
        return np.exp(np.interp(np.log(deviation), np.log(self.deviation), np.log(self.factor)))

    def changes_nothing(self) -> bool:
        """Return whether distributions stay as they are."""
        is_plain = self.balance == 1.0 and self.surroundings is None and self.blend is None
        return is_plain and bool(np.all(self.factor == 1.0))


def constant_spread(factor: float) -> Spread:
    """Return the spread with the same factor for all rows and a balance of 1."""
    return Spread(1.0, np.ones(1), np.array([factor]))


def stretch(
    mixture: Mixture, moments: ForestMoments, balance: float, factor: NDArray[np.float64]
) -> ForestMoments:
    """Stretch mixtures about their means, in place; return their new moments."""
    mean, posterior, branching, between_trees, noise = moments
    total = posterior + branching + between_trees + noise
    scaling = np.empty(len(mean))
    _stretch(mixture, mean, balance, factor, scaling)
    within, between = scaling**2, (balance * scaling) ** 2
    if balance == 1.0:
        branching = between * branching
    else:
        # Part of the branching variance lies within components and part between them. The total is
        # known and so are the other parts: branching is what remains.
        known = within * (posterior + noise) + between * between_trees
        branching = np.maximum(factor**2 * total - known, 0.0)
    return ForestMoments(
        mean, within * posterior, branching, between * between_trees, within * noise
    )


@kernel
def _stretch(
    mixture: Mixture,
    mean: NDArray[np.float64],
    balance: float,
    factor: NDArray[np.float64],
    scaling: NDArray[np.float64],
) -> None:
    """Stretch each mixture; set ``scaling`` to what its scales are multiplied by."""
    offset, _, locations, scales, _ = mixture
    for i in range(len(mean)):
        within, between = variances(mixture, i, mean[i])
        scaling[i] = factor[i] * balanced_scaling(within, between, balance)
        for k in range(offset[i], offset[i + 1]):
            locations[k] = mean[i] + balance * scaling[i] * (locations[k] - mean[i])
            scales[k] *= scaling[i]


@kernel
def variances(mixture: Mixture, i: int, mean: float) -> tuple[float, float]:
    """Return the variance within the components of mixture i, and between them."""
    offset, weights, locations, scales, all_degrees = mixture
    within = between = 0.0
    for k in range(offset[i], offset[i + 1]):
        from_mean = locations[k] - mean
        square = scales[k] * scales[k]
        if len(all_degrees) > 0:
            square *= 1.0 + 2.0 / (all_degrees[k] - 2.0)  # 1 for infinite degrees
        within += weights[k] * square
        between += weights[k] * from_mean * from_mean
    return within, between


@kernel
def balanced_scaling(within: float, between: float, balance: float) -> float:
    """Return the factor of the scales with which a balance keeps the variance."""
    if balance == 1.0:
        return 1.0
    return math.sqrt((within + between) / (within + balance * balance * between))
