"""Quantiles of mixtures: by Newton's method where it is fast, else by a search that cannot fail."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from .mixture import (
    Degrees,
    Mixture,
    SortedComponents,
    allocate_sorted,
    degrees_of,
    lower_tail,
    mean_location,
    mixture_at,
    sort_components,
)
from .student import density_at_zero

_FEWEST_TAIL = 1e-4
"""Quantiles whose level is closer to 0 or 1 are searched for with exact tails."""
_TOLERANCE = 1e-13
"""The error of the level of other quantiles."""
_MOST_ROUNDING = 10.0
"""If rounding a quantile to float64 changes its level by more tolerances than this, the quantile is
searched for among the numbers that float64 has."""
_EPSILON = 2.3e-16
"""A bit more than the relative distance between neighbours in float64."""
_MOST_STEPS = 2500
"""Bisection from one end of the float64 range to any number takes at most 2,200 steps."""
_MOST_NEWTON_STEPS = 50
_STEEPEST = 4.0
"""Bound of f' / 2 f, for a density f whose smallest scale is one."""


def quantiles(
    mixture: Mixture,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i, q]`` to the quantile of mixture i at ``levels[q]``, which must be ascending.

    ``normal_quantiles`` are those of the standard normal distribution at the same levels.
    """
    _quantiles(mixture, degrees_of(mixture), levels, normal_quantiles, out)


@kernel
def _quantiles(
    mixture: Mixture,
    all_degrees: Degrees,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Fill ``out`` with quantiles; none is less than that of the level before.

    Without this rule, rounding could make quantiles of close levels cross.
    """
    offset = mixture.offset
    components = allocate_sorted(offset, all_degrees)
    for i in range(len(offset) - 1):
        ends = sort_components(mixture, all_degrees, i, components)
        mean = mean_location(mixture, i)
        deviation = _deviation(mixture, i, mean)
        fewest = np.inf
        if all_degrees is not None:
            for k in range(offset[i], offset[i + 1]):
                fewest = min(fewest, all_degrees[k])
        previous = -np.inf
        for q in range(len(levels)):
            standard = normal_quantiles[q]
            if math.isinf(standard):  # level 0 or 1
                out[i, q] = standard
                continue
            low, high = _bracket(mixture, all_degrees, i, levels[q], standard, fewest)
            found = np.nan
            if _FEWEST_TAIL <= levels[q] <= 1.0 - _FEWEST_TAIL:
                start = min(max(mean + standard * deviation, low), high)
                found = newton_quantile(
                    components, all_degrees, ends, levels[q], start, low, high, _TOLERANCE
                )
            if math.isnan(found):
                low = max(low, previous)
                found = searched_quantile(mixture, all_degrees, i, levels[q], low, max(low, high))
            previous = max(found, previous)
            out[i, q] = previous


@kernel
def _deviation(mixture: Mixture, i: int, mean: float) -> float:
    """Return the standard deviation of mixture i, as if all components were Gaussian."""
    offset, weights, locations, scales, _ = mixture
    variance = 0.0
    for k in range(offset[i], offset[i + 1]):
        deviation = locations[k] - mean
        variance += weights[k] * (scales[k] * scales[k] + deviation * deviation)
    return math.sqrt(variance)


@kernel
def _bracket(
    mixture: Mixture, degrees: Degrees, i: int, level: float, standard: float, fewest: float
) -> tuple[float, float]:
    """Return two numbers between which the quantile of mixture i lies.

    It lies between the smallest and the largest quantile of the components, apart from rounding.
    The quantile of a t distribution lies between the normal one and a bound. ``standard`` is the
    standard normal quantile, ``fewest`` are the fewest degrees of any component.
    """
    offset, _, locations, scales, _ = mixture
    low = np.inf
    high = -np.inf
    for k in range(offset[i], offset[i + 1]):
        value = locations[k] + standard * scales[k]
        low = min(low, value)
        high = max(high, value)
    if degrees is not None:
        farthest = _largest_student(min(level, 1.0 - level), fewest)
        farthest = math.copysign(farthest, standard)
        for k in range(offset[i], offset[i + 1]):
            value = locations[k] + farthest * scales[k]
            low = min(low, value)
            high = max(high, value)
    return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)


@kernel
def _largest_student(tail: float, degrees: float) -> float:
    """Return a bound beyond which a t distribution of at least ``degrees`` has less than ``tail``.

    The density is less than a power of the argument, to which it tends at infinity. The bound is
    close for small tails and few degrees, and never less than the square root of the degrees.
    """
    degrees = min(degrees, 1e6)
    root = math.sqrt(degrees)
    return 1.001 * root * math.pow(density_at_zero(degrees) / (root * tail), 1.0 / degrees)


@kernel
def newton_quantile(
    components: SortedComponents,
    degrees: Degrees,
    ends: tuple[int, int, int],
    level: float,
    start: float,
    low: float,
    high: float,
    tolerance: float,
) -> float:
    """Return the quantile between low and high by Newton's method; NaN if it takes too long.

    A step that would leave the bracket, or follows a step that did not halve the error, is a
    bisection. The last step is not checked: it leaves at most e d f' / 2 f of an error e, where d
    is the step, and f' / f seldom exceeds a few times the inverse of the smallest scale.

    If the distribution function rises by more than the tolerance from one float64 to the next, the
    quantile is the first of these numbers at which the level is reached.
    """
    y = start
    last_error = np.inf
    sharpest = 0.0
    for k in range(ends[2]):
        sharpest = max(sharpest, components.inverse_scale[k])
    for _ in range(_MOST_NEWTON_STEPS):
        total, density = mixture_at(components, degrees, ends, y)
        error = total - level
        if abs(error) <= tolerance:
            return y
        if error > 0.0:
            high = y
        else:
            low = y
        middle = 0.5 * (low + high)
        if not low < middle < high:  # neighbours
            return high
        step = error / density if density > 0.0 else np.inf
        following = y - step
        if following == y:  # the step is lost to rounding
            following = np.nextafter(y, low if error > 0.0 else high)
        if not (low < following < high) or abs(error) > 0.5 * last_error:
            y = middle
        else:
            y = following
            is_close = abs(error * step) * sharpest * _STEEPEST <= tolerance
            if is_close and density * _EPSILON * abs(y) <= _MOST_ROUNDING * tolerance:
                return y
        last_error = abs(error)
    return np.nan


@kernel
def searched_quantile(
    mixture: Mixture, degrees: Degrees, i: int, level: float, low: float, high: float
) -> float:
    """Return the quantile between low and high, by the method of Chandrupatla (1997).

    It interpolates by an inverse parabola if three points allow it, and bisects otherwise. For any
    shape of the mixture it ends with two neighbours in float64. The upper one is the first number
    at which the level is reached. The smaller tail is matched, so that extreme levels keep their
    digits.
    """
    sign = 1.0 if level <= 0.5 else -1.0
    tail = level if level <= 0.5 else 1.0 - level
    # a and b bracket the solution, a is the newest point, c the one before; g is the tail's excess.
    a, b = low, high
    g_a = sign * (lower_tail(mixture, degrees, i, a, sign) - tail)
    g_b = sign * (lower_tail(mixture, degrees, i, b, sign) - tail)
    if g_a >= 0.0:
        return a
    if g_b <= 0.0:
        return b
    fraction = 0.5
    for _ in range(_MOST_STEPS):
        y = a + fraction * (b - a)
        if not min(a, b) < y < max(a, b):
            y = 0.5 * (a + b)
            if not min(a, b) < y < max(a, b):  # neighbours
                break
        g = sign * (lower_tail(mixture, degrees, i, y, sign) - tail)
        if g == 0.0:
            return y
        if (g > 0.0) == (g_a > 0.0):
            c, g_c = a, g_a
        else:
            c, g_c = b, g_b
            b, g_b = a, g_a
        a, g_a = y, g
        fraction = 0.5
        position = (a - b) / (c - b)
        share = (g_a - g_b) / (g_c - g_b)
        if share * share < position and (1.0 - share) * (1.0 - share) < 1.0 - position:
            fraction = (g_a / (g_b - g_a)) * (g_c / (g_b - g_c)) + ((c - a) / (b - a)) * (
                g_a / (g_c - g_a)
            ) * (g_b / (g_c - g_b))
        # Stay off the ends, so that the bracket shrinks from both sides.
        margin = _EPSILON * max(abs(a), abs(b)) / abs(b - a)
        fraction = min(max(fraction, margin), 1.0 - margin)
    return max(a, b)
