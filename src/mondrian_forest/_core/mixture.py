"""Density, distribution function, quantiles and CRPS of Gaussian mixtures, one mixture per row.

Every kernel takes the mixtures as the flat arrays of ``Mixture`` and fills one output. The loops
over components hold one exponential or error function each, which is where the time goes; where an
absolute error of 1e-12 will do, ``normal_at`` takes their place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel

_SQRT_HALF = math.sqrt(0.5)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)


_FARTHEST = 9.0
"""Standard deviations beyond which the normal distribution function is 0 or 1."""
_FEWEST_TAIL = 1e-4
"""Quantiles closer to 0 or 1 than this are searched for with exact tails."""
_STEPS = 256
_NODES = np.linspace(-_FARTHEST, _FARTHEST, int(2 * _FARTHEST * _STEPS) + 1)
_TABLE = np.array(
    [(0.5 * math.erfc(-z * _SQRT_HALF), _DENSITY_AT_ZERO * math.exp(-0.5 * z * z)) for z in _NODES]
)
"""Distribution function and density of the standard normal distribution, 74 KB."""


class Mixture(NamedTuple):
    """A Gaussian mixture for each row: row i has components ``offset[i]`` to ``offset[i + 1]``."""

    offset: NDArray[np.int64]
    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    scale: NDArray[np.float64]


@kernel
def log_density(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the log density of mixture i at ``y[i]``, by a running log-sum-exp."""
    for i in range(len(y)):
        largest = -np.inf
        total = 0.0
        for k in range(mixture.offset[i], mixture.offset[i + 1]):
            scale = mixture.scale[k]
            standard = (y[i] - mixture.location[k]) / scale
            term = math.log(mixture.weight[k] / scale) - 0.5 * standard * standard
            if term > largest:
                total = total * math.exp(largest - term) + 1.0
                largest = term
            elif term > -np.inf:
                total += math.exp(term - largest)
        if largest > -np.inf:
            largest += math.log(total) - _LOG_SQRT_TWO_PI
        out[i] = largest


@kernel
def lower_tail(mixture: Mixture, i: int, y: float, sign: float) -> float:
    """Return P(Y <= y) of mixture i for ``sign`` 1, P(Y > y) for ``sign`` -1.

    Each tail is summed by itself, so that neither is a difference from one.
    """
    total = 0.0
    for k in range(mixture.offset[i], mixture.offset[i + 1]):
        standard = (mixture.location[k] - y) / mixture.scale[k]
        total += mixture.weight[k] * math.erfc(sign * standard * _SQRT_HALF)
    return 0.5 * total


@kernel
def cumulative(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to P(Y <= y[i]) under mixture i."""
    for i in range(len(y)):
        out[i] = min(lower_tail(mixture, i, y[i], 1.0), 1.0)


@kernel
def normal_at(standard: float) -> tuple[float, float]:
    """Return distribution function and density of the standard normal distribution.

    A Taylor polynomial at the nearest node of a table; the absolute errors are below 1e-15 and
    1e-12. Both together take 4 to 7 ns, where the error function alone takes 20. There are no
    branches and no divisions, so that loops over this function can be vectorised.
    """
    standard = min(max(standard, -_FARTHEST), _FARTHEST)
    position = (standard + _FARTHEST) * _STEPS + 0.5
    node = np.int32(position if position == position else 0.0)  # any node will do for NaN
    z = node * (1.0 / _STEPS) - _FARTHEST
    d = standard - z
    # Derivatives of the density are Hermite polynomials times the density.
    second = (z * z - 1.0) * (1.0 / 2.0)
    third = z * (3.0 - z * z) * (1.0 / 6.0)
    density = _TABLE[node, 1]
    below = _TABLE[node, 0] + density * d * (
        1.0 + d * (z * (-1.0 / 2.0) + d * (second * (1.0 / 3.0) + d * (third * (1.0 / 4.0))))
    )
    return below, density * (1.0 + d * (-z + d * (second + d * third)))


@kernel
def _newton_quantile(
    weight: NDArray[np.float64],
    location: NDArray[np.float64],
    inverse_scale: NDArray[np.float64],
    level: float,
    start: float,
    low: float,
    high: float,
) -> float:
    """Solve P(Y <= y) = level between low and high by Newton's method; NaN if it takes too long.

    Steps that leave the bracket, or follow one that did not halve the error, are bisections.
    """
    y = start
    last_error = np.inf
    for _ in range(50):
        total = 0.0
        density = 0.0
        for k in range(len(weight)):
            below, at = normal_at((y - location[k]) * inverse_scale[k])
            total += weight[k] * below
            density += weight[k] * inverse_scale[k] * at
        error = total - level
        if abs(error) <= 5e-15:
            return y
        if error > 0.0:
            high = y
        else:
            low = y
        if high - low <= 4e-16 * abs(y):
            return y
        following = y - error / density if density > 0.0 else np.inf
        if not (low < following < high) or abs(error) > 0.5 * last_error:
            following = 0.5 * (low + high)
        last_error = abs(error)
        y = following
    return np.nan


@kernel
def _quantile(mixture: Mixture, i: int, level: float, low: float, high: float) -> float:
    """Solve P(Y <= y) = level between low and high, by the method of Chandrupatla (1997).

    Inverse quadratic interpolation where three points allow it, else bisection; it ends when the
    bracket is as narrow as double precision allows, whatever the shape of the mixture. The smaller
    tail is matched, so that extreme levels keep their digits.
    """
    sign = 1.0 if level <= 0.5 else -1.0
    tail = level if level <= 0.5 else 1.0 - level
    # a and b bracket the solution, b is the newest point, c the one before; g is the excess.
    a, b = low, high
    g_a = sign * (lower_tail(mixture, i, a, sign) - tail)
    g_b = sign * (lower_tail(mixture, i, b, sign) - tail)
    if g_a >= 0.0:
        return a
    if g_b <= 0.0:
        return b
    fraction = 0.5
    for _ in range(200):
        y = a + fraction * (b - a)
        g = sign * (lower_tail(mixture, i, y, sign) - tail)
        if (g > 0.0) == (g_a > 0.0):
            c, g_c = a, g_a
        else:
            c, g_c = b, g_b
            b, g_b = a, g_a
        a, g_a = y, g
        best = a if abs(g_a) < abs(g_b) else b
        width = abs(b - a)
        tolerance = 2e-16 * abs(best) + 5e-324
        if g_a == 0.0 or width <= 2.0 * tolerance:
            return best
        fraction = 0.5
        position = (a - b) / (c - b)
        share = (g_a - g_b) / (g_c - g_b)
        if share * share < position and (1.0 - share) * (1.0 - share) < 1.0 - position:
            fraction = (g_a / (g_b - g_a)) * (g_c / (g_b - g_c)) + ((c - a) / (b - a)) * (
                g_a / (g_c - g_a)
            ) * (g_b / (g_c - g_b))
        # Stay off the ends, so that the bracket shrinks from both sides.
        margin = tolerance / width
        fraction = min(max(fraction, margin), 1.0 - margin)
    return best


@kernel
def quantiles(
    mixture: Mixture,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i, q]`` to the quantile of mixture i at ``levels[q]``, which must be ascending.

    A quantile of a mixture lies between the smallest and the largest of its components'
    quantiles. Each search also starts from the previous result, so that quantiles never cross.
    """
    offset, all_weights, all_locations, all_scales = mixture
    inverse_scales = np.empty(64)
    for i in range(len(offset) - 1):
        first, stop = offset[i], offset[i + 1]
        weight = all_weights[first:stop]
        location = all_locations[first:stop]
        scale = all_scales[first:stop]
        if len(weight) > len(inverse_scales):
            inverse_scales = np.empty(2 * len(weight))
        inverse_scale = inverse_scales[: len(weight)]
        mean = 0.0
        spread = 0.0
        for k in range(len(weight)):
            inverse_scale[k] = 1.0 / scale[k]
            mean += weight[k] * location[k]
        for k in range(len(weight)):
            deviation = location[k] - mean
            spread += weight[k] * (scale[k] * scale[k] + deviation * deviation)
        spread = math.sqrt(spread)
        previous = -np.inf
        for q in range(len(levels)):
            standard = normal_quantiles[q]
            if math.isinf(standard):  # level 0 or 1
                out[i, q] = standard
                continue
            low = np.inf
            high = -np.inf
            for k in range(len(weight)):
                value = location[k] + standard * scale[k]
                low = min(low, value)
                high = max(high, value)
            low = max(low, previous)
            high = max(low, high)
            found = np.nan
            if _FEWEST_TAIL <= levels[q] <= 1.0 - _FEWEST_TAIL:
                start = min(max(mean + standard * spread, low), high)
                found = _newton_quantile(
                    weight, location, inverse_scale, levels[q], start, low, high
                )
            if math.isnan(found):
                found = _quantile(mixture, i, levels[q], low, high)
            previous = found
            out[i, q] = found


@kernel
def _expected_distance(location: float, scale: float) -> float:
    """Return E|Z| for Z ~ N(location, scale^2)."""
    below, at = normal_at(location / scale)
    return 2.0 * scale * at + location * (2.0 * below - 1.0)


@kernel
def crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the CRPS of mixture i at ``y[i]``, E|Y - y| - E|Y - Y'| / 2."""
    offset, weights, locations, scales = mixture
    for i in range(len(y)):
        first, stop = offset[i], offset[i + 1]
        to_label = 0.0
        pairs = 0.0
        for k in range(first, stop):
            weight, location, scale = weights[k], locations[k], scales[k]
            to_label += weight * _expected_distance(y[i] - location, scale)
            pairs += weight * weight * scale * _DENSITY_AT_ZERO * math.sqrt(2.0)
            within = 0.0
            for other in range(first, k):
                within += weights[other] * _expected_distance(
                    location - locations[other], math.hypot(scale, scales[other])
                )
            pairs += weight * within
        out[i] = to_label - pairs


@kernel
def draw(
    mixture: Mixture,
    uniform: NDArray[np.float64],
    normal: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Turn uniform and standard normal draws of shape (n_rows, size) into draws of the mixtures."""
    for i in range(len(out)):
        first = mixture.offset[i]
        cumulated = np.cumsum(mixture.weight[first : mixture.offset[i + 1]])
        for s in range(out.shape[1]):
            # Rounding can leave the total weight just below a draw.
            chosen = np.searchsorted(cumulated, uniform[i, s], side="right")
            k = first + min(chosen, len(cumulated) - 1)
            out[i, s] = mixture.location[k] + mixture.scale[k] * normal[i, s]
