"""The continuous ranked probability score (CRPS) of mixtures.

Gaussian mixtures have a closed form. Mixtures of t distributions need one integral: there is no
closed form for the expected distance of two t distributions.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import inner_kernel, kernel
from ..arrays.tree import Records
from .mixture import (
    Mixture,
    SortedComponents,
    allocate_sorted,
    mean_location,
    mixture_at,
    sort_components,
)
from .quantiles import newton_quantile, searched_quantile
from .student import MOST_DEGREES, density_at_zero, log_decay, normal_at, student_tail

_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
_CRPS_AT_ZERO = 1.0 / math.sqrt(math.pi)
"""What is subtracted from the expected distance of a normal number to get its CRPS."""

_LOBATTO = np.array(
    # Node, then its weights in the rules of 13, 7 and 4 points (Gander and Gautschi 2000).
    [
        (1.0, 0.0158271919734802, 77 / 1470, 1 / 6),
        (0.942882415695480, 0.0942738402188500, 0.0, 0.0),
        (math.sqrt(2 / 3), 0.155071987336585, 432 / 1470, 0.0),
        (0.641853342345781, 0.188821573960182, 0.0, 0.0),
        (math.sqrt(1 / 5), 0.199773405226859, 625 / 1470, 5 / 6),
        (0.236383199662150, 0.224926465333340, 0.0, 0.0),
        (0.0, 0.242611071901408, 672 / 1470, 0.0),
    ]
)
_QUADRATURE = np.vstack([_LOBATTO * [-1.0, 1.0, 1.0, 1.0], _LOBATTO[-2::-1]])
"""The ends of a piece are nodes, so that no step of the distribution function is overlooked."""
_POINTS = len(_QUADRATURE)
_LEAST_ROOM = 1e-12
"""How close to the ends of (-1, 1) the integral goes."""
_MOST_PIECES = 256
_TOLERANCE = 2e-6
"""The estimated error, relative to the CRPS. Similar components need 50 to 100 values of F, and the
error is 1e-7. Many narrow modes need hundreds, and the error is seldom above 1e-5."""

_PIECE = np.dtype(
    (
        np.record,
        [
            ("begin", np.float64),
            ("end", np.float64),
            ("integral", np.float64),
            ("error", np.float64),
            ("cut", np.float64),
        ],
    )
)
"""A piece of the integral: its ends, its value, the estimated error, and where to cut it in two."""


def crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the CRPS of mixture i at ``y[i]``."""
    if len(mixture.degrees) > 0:
        _student_crps(mixture, y, np.empty(_MOST_PIECES, _PIECE), out)
    else:
        _gaussian_crps(mixture, y, out)


@kernel
def _gaussian_crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Fill ``out`` with the CRPS, E|Y - y| - E|Y - Y'| / 2."""
    offset, weights, locations, scales, _ = mixture
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
        out[i] = max(to_label - pairs, 0.0)  # rounding could make it negative


@kernel
def _expected_distance(location: float, scale: float) -> float:
    """Return E|Z| for Z ~ N(location, scale^2)."""
    below, at = normal_at(location / scale)
    return 2.0 * scale * at + location * (2.0 * below - 1.0)


@kernel
def _student_crps(
    mixture: Mixture, y: NDArray[np.float64], pieces: Records, out: NDArray[np.float64]
) -> None:
    """Fill ``out`` with the CRPS; ``pieces`` is scratch space.

    The CRPS at the label is the CRPS at a centre of the mixture, by quadrature, plus how much
    farther all components are from the label than from the centre, in closed form.

    The variable of the integral is the distance from the centre. It keeps its digits if the mixture
    is narrow and far from zero.
    """
    offset, weights, locations, scales, all_degrees = mixture
    components = allocate_sorted(offset, all_degrees)
    for i in range(len(y)):
        ends = sort_components(mixture, all_degrees, i, components)
        low, high = np.inf, -np.inf
        for k in range(offset[i], offset[i + 1]):
            low = min(low, locations[k])
            high = max(high, locations[k])
        mean = min(max(mean_location(mixture, i), low), high)
        # Any centre would do. At the median the CRPS is least, so that nothing cancels.
        centre = newton_quantile(components, all_degrees, ends, 0.5, mean, low, high, 0.01)
        if math.isnan(centre):
            centre = searched_quantile(mixture, all_degrees, i, 0.5, low, high)
        width = 0.0
        farther = 0.0
        for k in range(offset[i], offset[i + 1]):
            location, scale, degrees = locations[k], scales[k], all_degrees[k]
            width += weights[k] * (scale + abs(location - centre))
            farther += (
                weights[k]
                * scale
                * (
                    _student_distance((y[i] - location) / scale, degrees)
                    - _student_distance((centre - location) / scale, degrees)
                )
            )
        for k in range(ends[2]):
            components.location[k] -= centre
        out[i] = max(_crps_at_zero(components, ends, width, pieces) + farther, 0.0)


@kernel
def _student_distance(standard: float, degrees: float) -> float:
    """Return E|T - x| - E|T|, which is finite even for one degree or less."""
    tail = student_tail(abs(standard), degrees)
    most = min(degrees, MOST_DEGREES)
    excess = 0.5 * (most - 1.0)
    decay = log_decay(standard, most)
    # (1 - (1 + x^2 / v)^(-excess)) / (v - 1), whose limit at one degree is a logarithm.
    moved = decay if excess == 0.0 else -math.expm1(-excess * decay) / excess
    return abs(standard) * (1.0 - 2.0 * tail) - density_at_zero(degrees) * most * moved


@kernel
def _crps_at_zero(
    components: SortedComponents, ends: tuple[int, int, int], width: float, pieces: Records
) -> float:
    """Return the CRPS at zero by adaptive quadrature: the piece with the largest error is cut."""
    values = np.empty(_POINTS)
    n_pieces = 4
    for p in range(n_pieces):
        pieces[p].begin = 0.5 * p - 1.0
        pieces[p].end = 0.5 * p - 0.5
    fresh = 0
    while True:
        for p in range(fresh, n_pieces):
            _integrate(components, ends, width, pieces, p, values)
        total = 0.0
        total_error = 0.0
        worst = 0
        for p in range(n_pieces):
            total += pieces[p].integral
            total_error += pieces[p].error
            if pieces[p].error > pieces[worst].error:
                worst = p
        if not total_error > _TOLERANCE * total or n_pieces == len(pieces):
            return total
        # The last piece takes the place of the one that is cut, and the two parts go to the end.
        begin, end, cut = pieces[worst].begin, pieces[worst].end, pieces[worst].cut
        fresh = n_pieces - 1
        pieces[worst] = pieces[fresh]
        pieces[fresh].begin, pieces[fresh].end = begin, cut
        pieces[n_pieces].begin, pieces[n_pieces].end = cut, end
        n_pieces += 1


@kernel
def _integrate(
    components: SortedComponents,
    ends: tuple[int, int, int],
    width: float,
    pieces: Records,
    p: int,
    values: NDArray[np.float64],
) -> None:
    """Integrate F^2 below zero, (1 - F)^2 above, over piece ``p``; ``values`` is scratch space.

    The variable is s in z = width * s / (1 - abs(s)), from -1 to 1. In it heavy tails are smooth up
    to their ends.
    """
    begin, end = pieces[p].begin, pieces[p].end
    half = 0.5 * (end - begin)
    for j in range(_POINTS):
        s = 0.5 * (begin + end) + half * _QUADRATURE[j, 0]
        point = width * s / max(1.0 - abs(s), _LEAST_ROOM)
        values[j], _ = mixture_at(components, components.degrees, ends, point)
    fine = 0.0
    coarse = 0.0
    coarsest = 0.0
    for j in range(_POINTS):
        s = 0.5 * (begin + end) + half * _QUADRATURE[j, 0]
        # No piece has zero inside: zero is an end of the pieces on both sides of it.
        tail = values[j] if begin < 0.0 else 1.0 - values[j]
        room = 1.0 - abs(s)
        values[j] = tail * tail * width / (room * room) if room > _LEAST_ROOM else 0.0
        fine += _QUADRATURE[j, 1] * values[j]
        coarse += _QUADRATURE[j, 2] * values[j]
        coarsest += _QUADRATURE[j, 3] * values[j]
    pieces[p].integral = half * fine
    pieces[p].error = half * _error(values, fine, coarse, coarsest)
    pieces[p].cut = 0.5 * (begin + end) + half * _best_cut(values)


@kernel
def _error(values: NDArray[np.float64], fine: float, coarse: float, coarsest: float) -> float:
    """Estimate the error of the finest of three rules, on a piece from -1 to 1.

    The finest rule is far better than the second, unless both are bad. They can agree by chance,
    which is why there is a third.
    """
    variation = 0.0
    for j in range(_POINTS):
        variation += _QUADRATURE[j, 1] * abs(values[j] - 0.5 * fine)
    if not variation > 0.0:
        return 0.0
    second = abs(fine - coarse) / variation
    third = abs(coarse - coarsest) / variation
    return variation * max(second * math.sqrt(second), third * third * third)


@kernel
def _best_cut(values: NDArray[np.float64]) -> float:
    """Return the place where a piece from -1 to 1 is best cut.

    That is a step of F, if there is one: it lies between two nodes, whose distance is far less than
    half of the piece. Otherwise it is the middle.
    """
    total = 0.0
    largest = 0.0
    steepest = 0
    for j in range(1, _POINTS):
        rise = abs(values[j] - values[j - 1])
        total += rise
        if rise > largest:
            largest = rise
            steepest = j
    if largest > 0.5 * total:
        return float(0.5 * (_QUADRATURE[steepest, 0] + _QUADRATURE[steepest - 1, 0]))
    return 0.0


@inner_kernel
def crps_of_normal(standard: float) -> float:
    """Return the CRPS of the standard normal distribution."""
    below, density = normal_at(standard)
    return standard * (2.0 * below - 1.0) + 2.0 * density - _CRPS_AT_ZERO


@kernel
def crps_of_normals(
    error: NDArray[np.float64],
    deviation: NDArray[np.float64],
    factors: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i, f]`` to the CRPS of a normal distribution whose deviation is times a factor."""
    for i in range(len(error)):
        for f in range(len(factors)):
            width = factors[f] * deviation[i]
            out[i, f] = width * crps_of_normal(error[i] / width)
