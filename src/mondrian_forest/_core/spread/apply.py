"""Stretching predictive distributions about their means."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..mixtures.mixture import Mixture
from ..mixtures.reduce import ForestMoments


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
    """

    balance: float
    deviation: NDArray[np.float64]
    factor: NDArray[np.float64]

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
        return self.balance == 1.0 and bool(np.all(self.factor == 1.0))


def constant_spread(factor: float) -> Spread:
    """Return the spread with the same factor for all rows and a balance of 1."""
    return Spread(1.0, np.ones(1), np.array([factor]))


def stretch(mixture: Mixture, moments: ForestMoments, spread: Spread) -> ForestMoments:
    """Stretch mixtures about their means, in place; return their new moments."""
    mean, posterior, branching, between_trees, noise = moments
    total = posterior + branching + between_trees + noise
    factor = spread.factor_at(np.sqrt(total))
    scaling = np.empty(len(mean))
    _stretch(mixture, mean, spread.balance, factor, scaling)
    within, between = scaling**2, (spread.balance * scaling) ** 2
    if spread.balance == 1.0:
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
            square *= all_degrees[k] / (all_degrees[k] - 2.0)
        within += weights[k] * square
        between += weights[k] * from_mean * from_mean
    return within, between


@kernel
def balanced_scaling(within: float, between: float, balance: float) -> float:
    """Return the factor of the scales with which a balance keeps the variance."""
    if balance == 1.0:
        return 1.0
    return math.sqrt((within + between) / (within + balance * balance * between))
