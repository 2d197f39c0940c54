"""Mixtures, one for each row: density, distribution function, choice of components.

Every kernel takes the mixtures as the flat arrays of ``Mixture`` and fills one output. Most of the
time goes into the exponential or error function of each component. Where an absolute error of 1e-12
is enough, ``normal_at`` and ``students_at`` take their place.

Kernels that take degrees of freedom get None for Gaussian mixtures. Numba then drops all branches
for t distributions: they take no time to run, and none to compile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel, reordering_kernel
from .student import (
    density_at_zero,
    kind_of,
    normal_at,
    student_log_density,
    student_tail,
    students_at,
)

_SQRT_HALF = math.sqrt(0.5)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_ALL_GAUSSIAN = np.empty(0)


class Mixture(NamedTuple):
    """A mixture for each row: row i has components ``offset[i]`` to ``offset[i + 1]``.

    Components are t distributions; those with infinite ``degrees`` are Gaussian. If all are
    Gaussian, ``degrees`` is empty.
    """

    offset: NDArray[np.int64]
    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    scale: NDArray[np.float64]
    degrees: NDArray[np.float64] = _ALL_GAUSSIAN


Degrees = NDArray[np.float64] | None
"""Degrees of freedom of components, None if all are Gaussian."""


def degrees_of(mixture: Mixture) -> Degrees:
    return mixture.degrees if len(mixture.degrees) > 0 else None


def log_density(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the log density of mixture i at ``y[i]``."""
    _log_density(mixture, degrees_of(mixture), y, out)


@kernel
def _log_density(
    mixture: Mixture, degrees: Degrees, y: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Fill ``out`` with log densities, by a running log-sum-exp."""
    for i in range(len(y)):
        largest = -np.inf
        total = 0.0
        for k in range(mixture.offset[i], mixture.offset[i + 1]):
            scale = mixture.scale[k]
            standard = (y[i] - mixture.location[k]) / scale
            if degrees is None:
                term = math.log(mixture.weight[k] / scale) - 0.5 * standard * standard
            else:
                at_zero = mixture.weight[k] * density_at_zero(degrees[k]) * _SQRT_TWO_PI
                term = math.log(at_zero / scale) + student_log_density(standard, degrees[k])
            if term > largest:
                total = total * math.exp(largest - term) + 1.0
                largest = term
            elif term > -np.inf:
                total += math.exp(term - largest)
        if largest > -np.inf:
            largest += math.log(total) - _LOG_SQRT_TWO_PI
        out[i] = largest


@kernel
def lower_tail(mixture: Mixture, degrees: Degrees, i: int, y: float, sign: float) -> float:
    """Return P(Y <= y) of mixture i for ``sign`` 1, P(Y > y) for ``sign`` -1.

    Each tail is summed by itself. As one minus the other, a small tail would lose its digits.
    """
    total = 0.0
    for k in range(mixture.offset[i], mixture.offset[i + 1]):
        standard = (mixture.location[k] - y) / mixture.scale[k]
        if degrees is None:
            total += mixture.weight[k] * math.erfc(sign * standard * _SQRT_HALF)
        else:
            total += 2.0 * mixture.weight[k] * student_tail(sign * standard, degrees[k])
    return 0.5 * total


def cumulative(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to P(Y <= y[i]) under mixture i."""
    _cumulative(mixture, degrees_of(mixture), y, out)


@kernel
def _cumulative(
    mixture: Mixture, degrees: Degrees, y: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    for i in range(len(y)):
        out[i] = min(lower_tail(mixture, degrees, i, y[i], 1.0), 1.0)


@reordering_kernel
def _gaussians_at(
    weight: NDArray[np.float64],
    location: NDArray[np.float64],
    inverse_scale: NDArray[np.float64],
    end: int,
    y: float,
) -> tuple[float, float]:
    """Return distribution function and density of a Gaussian mixture: 4 ns for each component.

    If sums had to be taken in order, they would not fit vector registers, and it would take 9 ns.
    """
    total = 0.0
    density = 0.0
    for k in range(end):
        below, at = normal_at((y - location[k]) * inverse_scale[k])
        total += weight[k] * below
        density += weight[k] * inverse_scale[k] * at
    return total, density


class SortedComponents(NamedTuple):
    """The components of one mixture, sorted by how they are computed, with room for more.

    Those of few degrees come first, then those of many, then others: see ``students_at``.
    """

    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    inverse_scale: NDArray[np.float64]
    degrees: NDArray[np.float64]
    """Empty if all components are Gaussian."""


@kernel
def allocate_sorted(offset: NDArray[np.int64], degrees: Degrees) -> SortedComponents:
    """Return arrays that have room for the largest of some mixtures."""
    room = 0
    for i in range(len(offset) - 1):
        room = max(room, offset[i + 1] - offset[i])
    n_degrees = 0 if degrees is None else room
    return SortedComponents(np.empty(room), np.empty(room), np.empty(room), np.empty(n_degrees))


@kernel
def sort_components(
    mixture: Mixture, degrees: Degrees, i: int, out: SortedComponents
) -> tuple[int, int, int]:
    """Copy the components of mixture i, sorted by kind; return where each kind ends."""
    offset, weights, locations, scales, _ = mixture
    out_weight, out_location, out_inverse, out_degrees = out
    few = many = n = 0
    for kind in range(1 if degrees is None else 3):
        for k in range(offset[i], offset[i + 1]):
            if degrees is not None and kind_of(degrees[k]) != kind:
                continue
            out_weight[n] = weights[k]
            out_location[n] = locations[k]
            out_inverse[n] = 1.0 / scales[k]
            if degrees is not None:
                out_degrees[n] = degrees[k]
            n += 1
        if kind == 0:
            few = n
        if kind <= 1:
            many = n
    return few, many, n


@kernel
def mixture_at(
    components: SortedComponents, degrees: Degrees, ends: tuple[int, int, int], y: float
) -> tuple[float, float]:
    """Return distribution function and density of a mixture at ``y``."""
    weight, location, inverse_scale, sorted_degrees = components
    if degrees is None:
        return _gaussians_at(weight, location, inverse_scale, ends[2], y)
    return students_at(weight, location, inverse_scale, sorted_degrees, ends, y)


@kernel
def mean_location(mixture: Mixture, i: int) -> float:
    """Return the mean of the locations of mixture i.

    It is computed from differences: if locations are large and close to each other, a sum of
    locations can have a rounding error that exceeds their distances, and the scales.
    """
    offset, weights, locations, _, _ = mixture
    first = float(locations[offset[i]])
    away = 0.0
    for k in range(offset[i] + 1, offset[i + 1]):
        away += weights[k] * (locations[k] - first)
    return first + away


@kernel
def choose(mixture: Mixture, uniform: NDArray[np.float64], chosen: NDArray[np.int64]) -> None:
    """Choose components of each mixture by their weights.

    ``chosen[i, s]`` is set to the component of mixture i at which the cumulated weights exceed
    ``uniform[i, s]``, as a place in the arrays of ``mixture``.
    """
    for i in range(len(chosen)):
        first = mixture.offset[i]
        cumulated = np.cumsum(mixture.weight[first : mixture.offset[i + 1]])
        for s in range(chosen.shape[1]):
            # Rounding can leave the total weight just below a draw.
            place = np.searchsorted(cumulated, uniform[i, s], side="right")
            chosen[i, s] = first + min(place, len(cumulated) - 1)
