"""Density, distribution function, quantiles and CRPS of Gaussian mixtures, one mixture per row.

Every kernel takes the mixtures as the flat arrays of ``Mixture`` and fills one output. The loops
over components hold one exponential or error function each, which is where the time goes.
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
def density(mixture: Mixture, i: int, y: float) -> float:
    """Return the density of mixture i at y."""
    total = 0.0
    for k in range(mixture.offset[i], mixture.offset[i + 1]):
        scale = mixture.scale[k]
        standard = (y - mixture.location[k]) / scale
        total += mixture.weight[k] / scale * math.exp(-0.5 * standard * standard)
    return total * _DENSITY_AT_ZERO


@kernel
def cumulative(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to P(Y <= y[i]) under mixture i."""
    for i in range(len(y)):
        out[i] = min(lower_tail(mixture, i, y[i], 1.0), 1.0)


@kernel
def _quantile(
    mixture: Mixture, i: int, level: float, start: float, low: float, high: float, tolerance: float
) -> float:
    """Solve P(Y <= y) = level between low and high: Newton steps, bisection where they leave.

    The smaller tail is matched, so that extreme levels keep their digits.
    """
    sign = 1.0 if level <= 0.5 else -1.0
    tail = level if level <= 0.5 else 1.0 - level
    y = min(max(start, low), high)
    for _ in range(200):
        excess = sign * (lower_tail(mixture, i, y, sign) - tail)
        if excess == 0.0:
            return y
        if excess < 0.0:
            low = y
        else:
            high = y
        slope = density(mixture, i, y)
        step = y - excess / slope if slope > 0.0 else low - 1.0
        if not low < step < high:
            step = low + 0.5 * (high - low)
        if abs(step - y) <= tolerance:
            return step
        y = step
    return y


@kernel
def quantiles(
    mixture: Mixture,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i, q]`` to the quantile of mixture i at ``levels[q]``, which must be ascending.

    A quantile of a mixture lies between the smallest and the largest of its components'
    quantiles. Each search also starts from the previous result, so that quantiles never cross.
    """
    for i in range(len(mixture.offset) - 1):
        previous = -np.inf
        for q in range(len(levels)):
            standard = normal_quantiles[q]
            if math.isinf(standard):  # level 0 or 1
                out[i, q] = standard
                continue
            low = np.inf
            high = -np.inf
            for k in range(mixture.offset[i], mixture.offset[i + 1]):
                value = mixture.location[k] + standard * mixture.scale[k]
                low = min(low, value)
                high = max(high, value)
            low = max(low, previous)
            start = mean[i] + standard * std[i]
            tolerance = 1e-14 * std[i] + 4e-16 * abs(mean[i])
            previous = _quantile(mixture, i, levels[q], start, low, max(low, high), tolerance)
            out[i, q] = previous


@kernel
def _expected_distance(location: float, scale: float) -> float:
    """Return E|Z| for Z ~ N(location, scale^2)."""
    standard = location / scale
    return 2.0 * scale * _DENSITY_AT_ZERO * math.exp(
        -0.5 * standard * standard
    ) + location * math.erf(standard * _SQRT_HALF)


@kernel
def crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the CRPS of mixture i at ``y[i]``, E|Y - y| - E|Y - Y'| / 2."""
    for i in range(len(y)):
        first = mixture.offset[i]
        stop = mixture.offset[i + 1]
        to_label = 0.0
        pairs = 0.0
        for k in range(first, stop):
            weight = mixture.weight[k]
            location = mixture.location[k]
            scale = mixture.scale[k]
            to_label += weight * _expected_distance(y[i] - location, scale)
            pairs += weight * weight * scale * _DENSITY_AT_ZERO * math.sqrt(2.0)
            within = 0.0
            for other in range(first, k):
                within += mixture.weight[other] * _expected_distance(
                    location - mixture.location[other], math.hypot(scale, mixture.scale[other])
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
