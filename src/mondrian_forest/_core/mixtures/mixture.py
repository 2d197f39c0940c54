"""Density, distribution function, quantiles and CRPS of mixtures, one mixture per row.

Every kernel takes the mixtures as the flat arrays of ``Mixture`` and fills one output. The loops
over components hold one exponential or error function each, which is where the time goes; where an
absolute error of 1e-12 will do, ``normal_at`` and ``students_at`` take their place.

Kernels that take degrees of freedom get None for Gaussian mixtures: Numba drops the branches that
None excludes, and neither their time nor that of compiling what is in them is spent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel, reordering_kernel
from .student import (
    MOST_DEGREES,
    density_at_zero,
    kind_of,
    log_decay,
    normal_at,
    student_log_density,
    student_tail,
    students_at,
)

_SQRT_HALF = math.sqrt(0.5)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
_ALL_GAUSSIAN = np.empty(0)

_FEWEST_TAIL = 1e-4
"""Quantiles closer to 0 or 1 than this are searched for with exact tails."""

_TOLERANCE = 1e-13
"""Of other quantiles, as an error of their level."""
_MOST_ROUNDING = 10.0
"""Where rounding a quantile to float64 changes its level by more tolerances than this, the quantile
is searched for among the numbers that float64 has."""
_EPSILON = 2.3e-16
"""A bit more than the distance from one to the next number, and hence for any number."""
_MOST_STEPS = 2500
"""Bisection from one end of the float64 range to any number takes 2,200 steps at most."""
_STEEPEST = 4.0
"""Bound of f' / 2 f, for a density f, where the smallest scale is one."""


class Mixture(NamedTuple):
    """A mixture for each row: row i has components ``offset[i]`` to ``offset[i + 1]``.

    Components are t distributions, Gaussian ones where ``degrees`` is infinite. An empty array of
    degrees says that all are Gaussian.
    """

    offset: NDArray[np.int64]
    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    scale: NDArray[np.float64]
    degrees: NDArray[np.float64] = _ALL_GAUSSIAN


Degrees = NDArray[np.float64] | None


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

    Each tail is summed by itself, so that neither is a difference from one.
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

    It would be 9 ns if sums had to be taken in order, which keeps them out of vector registers.
    """
    total = 0.0
    density = 0.0
    for k in range(end):
        below, at = normal_at((y - location[k]) * inverse_scale[k])
        total += weight[k] * below
        density += weight[k] * inverse_scale[k] * at
    return total, density


class Sorted(NamedTuple):
    """The components of one mixture, sorted by how they are computed, with room for more.

    First those of few degrees, then those of many, then others: see ``students_at``.
    """

    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    inverse_scale: NDArray[np.float64]
    degrees: NDArray[np.float64]
    """Nothing, for Gaussians."""


@kernel
def allocate_sorted(offset: NDArray[np.int64], degrees: Degrees) -> Sorted:
    """Return room for the largest of some mixtures."""
    room = 0
    for i in range(len(offset) - 1):
        room = max(room, offset[i + 1] - offset[i])
    n_degrees = 0 if degrees is None else room
    return Sorted(np.empty(room), np.empty(room), np.empty(room), np.empty(n_degrees))


@kernel
def sort_components(
    mixture: Mixture, degrees: Degrees, i: int, out: Sorted
) -> tuple[int, int, int]:
    """Copy the components of mixture i; return where those of each kind end."""
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
    components: Sorted, degrees: Degrees, ends: tuple[int, int, int], y: float
) -> tuple[float, float]:
    """Return distribution function and density of a mixture."""
    weight, location, inverse_scale, sorted_degrees = components
    if degrees is None:
        return _gaussians_at(weight, location, inverse_scale, ends[2], y)
    return students_at(weight, location, inverse_scale, sorted_degrees, ends, y)


@kernel
def _newton_quantile(
    components: Sorted,
    degrees: Degrees,
    ends: tuple[int, int, int],
    level: float,
    start: float,
    low: float,
    high: float,
    tolerance: float,
) -> float:
    """Return the quantile between low and high by Newton's method; NaN if it takes too long.

    Steps that leave the bracket, or follow one that did not halve the error, are bisections. The
    last step is not checked: what it leaves of an error e is at most e d f' / 2 f, where d is the
    step, and f' / f seldom exceeds a few times the inverse of the smallest scale.

    Where the distribution function rises by more than the tolerance from one float64 to the next,
    the quantile is the first of these numbers at which the level is reached.
    """
    y = start
    last_error = np.inf
    sharpest = 0.0
    for k in range(ends[2]):
        sharpest = max(sharpest, components.inverse_scale[k])
    for _ in range(50):
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
        if following == y:  # a step that rounding takes back
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
def _quantile(
    mixture: Mixture, degrees: Degrees, i: int, level: float, low: float, high: float
) -> float:
    """Return the quantile between low and high, by the method of Chandrupatla (1997).

    Inverse quadratic interpolation where three points allow it, else bisection. It ends with two
    neighbours in float64, whatever the shape of the mixture; the upper one is the first number at
    which the level is reached. The smaller tail is matched, so that extreme levels keep their
    digits.
    """
    sign = 1.0 if level <= 0.5 else -1.0
    tail = level if level <= 0.5 else 1.0 - level
    # a and b bracket the solution, b is the newest point, c the one before; g is the excess.
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


@kernel
def _largest_student(tail: float, degrees: float) -> float:
    """Return a number beyond which a t distribution of at least ``degrees`` has less than tail.

    The density is less than its limit at infinity, a power of the argument. The bound is close
    for small tails and few degrees, and never less than the square root of the degrees.
    """
    degrees = min(degrees, 1e6)
    root = math.sqrt(degrees)
    return 1.001 * root * math.pow(density_at_zero(degrees) / (root * tail), 1.0 / degrees)


@kernel
def _mean_location(mixture: Mixture, i: int) -> float:
    """Return the mean of the locations of mixture i.

    It is a sum of differences: where locations are large and close to each other, the rounding
    error of a sum of locations can exceed their distances, and the scales.
    """
    offset, weights, locations, _, _ = mixture
    first = float(locations[offset[i]])
    away = 0.0
    for k in range(offset[i] + 1, offset[i + 1]):
        away += weights[k] * (locations[k] - first)
    return first + away


def quantiles(
    mixture: Mixture,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i, q]`` to the quantile of mixture i at ``levels[q]``, which must be ascending."""
    _quantiles(mixture, degrees_of(mixture), levels, normal_quantiles, out)


@kernel
def _quantiles(
    mixture: Mixture,
    all_degrees: Degrees,
    levels: NDArray[np.float64],
    normal_quantiles: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Fill ``out`` with quantiles.

    A quantile of a mixture lies between the smallest and the largest of its components'
    quantiles, but for rounding; those of t distributions lie between the normal one and a bound.
    None is less than that of the level before, which rounding could else bring about.
    """
    offset, weights, locations, scales, _ = mixture
    components = allocate_sorted(offset, all_degrees)
    for i in range(len(offset) - 1):
        first, stop = offset[i], offset[i + 1]
        ends = sort_components(mixture, all_degrees, i, components)
        mean = _mean_location(mixture, i)
        spread = 0.0
        for k in range(first, stop):
            deviation = locations[k] - mean
            spread += weights[k] * (scales[k] * scales[k] + deviation * deviation)
        spread = math.sqrt(spread)
        fewest = np.inf
        if all_degrees is not None:
            for k in range(first, stop):
                fewest = min(fewest, all_degrees[k])
        previous = -np.inf
        for q in range(len(levels)):
            standard = normal_quantiles[q]
            if math.isinf(standard):  # level 0 or 1
                out[i, q] = standard
                continue
            low = np.inf
            high = -np.inf
            for k in range(first, stop):
                value = locations[k] + standard * scales[k]
                low = min(low, value)
                high = max(high, value)
            if all_degrees is not None:
                farthest = _largest_student(min(levels[q], 1.0 - levels[q]), fewest)
                farthest = math.copysign(farthest, standard)
                for k in range(first, stop):
                    value = locations[k] + farthest * scales[k]
                    low = min(low, value)
                    high = max(high, value)
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
            found = np.nan
            if _FEWEST_TAIL <= levels[q] <= 1.0 - _FEWEST_TAIL:
                start = min(max(mean + standard * spread, low), high)
                found = _newton_quantile(
                    components, all_degrees, ends, levels[q], start, low, high, _TOLERANCE
                )
            if math.isnan(found):
                low = max(low, previous)
                found = _quantile(mixture, all_degrees, i, levels[q], low, max(low, high))
            previous = max(found, previous)
            out[i, q] = previous


@kernel
def _expected_distance(location: float, scale: float) -> float:
    """Return E|Z| for Z ~ N(location, scale^2)."""
    below, at = normal_at(location / scale)
    return 2.0 * scale * at + location * (2.0 * below - 1.0)


_LOBATTO = np.array(
    # Node, weights in the rules of 13, 7 and 4 points (Gander and Gautschi 2000).
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
"""The ends are nodes, so that no step of the distribution function is overlooked."""
_POINTS = len(_QUADRATURE)
_LEAST_ROOM = 1e-12
"""How close to the ends of (-1, 1) the integral goes."""
_MOST_PIECES = 256
_CRPS_TOLERANCE = 2e-6
"""Of the estimated error relative to the CRPS. Similar components need 50 to 100 values of F and
the error is 1e-7; many narrow modes need hundreds, and the error is seldom above 1e-5."""


@kernel
def _squared_tails(
    components: Sorted,
    ends: tuple[int, int, int],
    spread: float,
    begin: float,
    end: float,
    below: NDArray[np.float64],
) -> tuple[float, float, float]:
    """Integrate F^2 below zero, (1 - F)^2 above, over a piece of (-1, 1).

    Return the integral, its error and where to cut the piece. The variable is s in
    z = spread * s / (1 - abs(s)), in which heavy tails are smooth up to their end.
    """
    half = 0.5 * (end - begin)
    for p in range(_POINTS):
        s = 0.5 * (begin + end) + half * _QUADRATURE[p, 0]
        point = spread * s / max(1.0 - abs(s), _LEAST_ROOM)
        below[p], _ = mixture_at(components, components.degrees, ends, point)
    fine = 0.0
    coarse = 0.0
    coarsest = 0.0
    for p in range(_POINTS):
        s = 0.5 * (begin + end) + half * _QUADRATURE[p, 0]
        # Zero is an end of the pieces on both sides of it.
        tail = below[p] if begin < 0.0 else 1.0 - below[p]
        room = 1.0 - abs(s)
        below[p] = tail * tail * spread / (room * room) if room > _LEAST_ROOM else 0.0
        fine += _QUADRATURE[p, 1] * below[p]
        coarse += _QUADRATURE[p, 2] * below[p]
        coarsest += _QUADRATURE[p, 3] * below[p]
    variation = 0.0
    for p in range(_POINTS):
        variation += _QUADRATURE[p, 1] * abs(below[p] - 0.5 * fine)
    error = 0.0
    if variation > 0.0:
        # The finest rule is better by far than the second, unless these are both bad. They can
        # agree by chance, hence the third.
        second = abs(fine - coarse) / variation
        third = abs(coarse - coarsest) / variation
        error = variation * max(second * math.sqrt(second), third * third * third)
    # A step of F lies in a gap between two points, which is far narrower than half of the piece.
    cut = 0.5 * (begin + end)
    total = 0.0
    largest = 0.0
    steepest = 0
    for p in range(1, _POINTS):
        rise = abs(below[p] - below[p - 1])
        total += rise
        if rise > largest:
            largest = rise
            steepest = p
    if largest > 0.5 * total:
        cut += 0.5 * half * (_QUADRATURE[steepest, 0] + _QUADRATURE[steepest - 1, 0])
    return half * fine, half * error, cut


@kernel
def _least_crps(
    components: Sorted,
    ends: tuple[int, int, int],
    spread: float,
    tolerance: float,
    pieces: NDArray[np.float64],
) -> float:
    """Return the CRPS at zero, by adaptive quadrature: the worst piece is halved."""
    below = np.empty(_POINTS)
    n_pieces = 4
    for piece in range(n_pieces):
        pieces[piece, 0] = 0.5 * piece - 1.0
        pieces[piece, 1] = 0.5 * piece - 0.5
    fresh = 0
    while True:
        for piece in range(fresh, n_pieces):
            begin, end = pieces[piece, 0], pieces[piece, 1]
            value, error, cut = _squared_tails(components, ends, spread, begin, end, below)
            pieces[piece, 2], pieces[piece, 3], pieces[piece, 4] = value, error, cut
        total = 0.0
        total_error = 0.0
        worst = 0
        for piece in range(n_pieces):
            total += pieces[piece, 2]
            total_error += pieces[piece, 3]
            if pieces[piece, 3] > pieces[worst, 3]:
                worst = piece
        if not total_error > tolerance * total or n_pieces == len(pieces):
            return total
        # The two parts go to the end, and the last piece to the place of the one that was cut.
        begin, end, cut = pieces[worst, 0], pieces[worst, 1], pieces[worst, 4]
        fresh = n_pieces - 1
        for column in range(pieces.shape[1]):
            pieces[worst, column] = pieces[fresh, column]
        pieces[fresh, 0], pieces[fresh, 1] = begin, cut
        pieces[n_pieces, 0], pieces[n_pieces, 1] = cut, end
        n_pieces += 1


@kernel
def _student_distance(standard: float, degrees: float) -> float:
    """Return E|T - x| - E|T|; it is finite for one degree or less, too."""
    tail = student_tail(abs(standard), degrees)
    most = min(degrees, MOST_DEGREES)
    excess = 0.5 * (most - 1.0)
    decay = log_decay(standard, most)
    # (1 - (1 + x^2 / v)^(-excess)) / (v - 1), whose limit at one degree is a logarithm.
    moved = decay if excess == 0.0 else -math.expm1(-excess * decay) / excess
    return abs(standard) * (1.0 - 2.0 * tail) - density_at_zero(degrees) * most * moved


@kernel
def _student_crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the CRPS of mixture i at ``y[i]``.

    It is the CRPS at a center of the mixture, by quadrature, and how much farther all components
    are from the label than from the center, for which there is a closed form. There is none for
    the distance of two t distributions.

    The integral is over the distance from the center, which keeps its digits where the mixture is
    narrow and far from zero.
    """
    pieces = np.empty((_MOST_PIECES, 5))
    offset, weights, locations, scales, all_degrees = mixture
    components = allocate_sorted(offset, all_degrees)
    for i in range(len(y)):
        ends = sort_components(mixture, all_degrees, i, components)
        low, high = np.inf, -np.inf
        for k in range(offset[i], offset[i + 1]):
            low = min(low, locations[k])
            high = max(high, locations[k])
        mean = min(max(_mean_location(mixture, i), low), high)
        # Any center will do, but the CRPS is least at the median, and nothing cancels there.
        center = _newton_quantile(components, all_degrees, ends, 0.5, mean, low, high, 0.01)
        if math.isnan(center):
            center = _quantile(mixture, all_degrees, i, 0.5, low, high)
        spread = 0.0
        farther = 0.0
        for k in range(offset[i], offset[i + 1]):
            location, scale, degrees = locations[k], scales[k], all_degrees[k]
            spread += weights[k] * (scale + abs(location - center))
            farther += (
                weights[k]
                * scale
                * (
                    _student_distance((y[i] - location) / scale, degrees)
                    - _student_distance((center - location) / scale, degrees)
                )
            )
        for k in range(ends[2]):
            components.location[k] -= center
        least = _least_crps(components, ends, spread, _CRPS_TOLERANCE, pieces)
        out[i] = max(least + farther, 0.0)  # which rounding could make negative


def crps(mixture: Mixture, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Set ``out[i]`` to the CRPS of mixture i at ``y[i]``."""
    if len(mixture.degrees) > 0:
        _student_crps(mixture, y, out)
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
        out[i] = max(to_label - pairs, 0.0)  # which rounding could make negative


@kernel
def choose(mixture: Mixture, uniform: NDArray[np.float64], chosen: NDArray[np.int64]) -> None:
    """Set ``chosen[i, s]`` to the number of the component of mixture i at level ``uniform[i, s]``.

    These are places in the arrays of ``mixture``.
    """
    for i in range(len(chosen)):
        first = mixture.offset[i]
        cumulated = np.cumsum(mixture.weight[first : mixture.offset[i + 1]])
        for s in range(chosen.shape[1]):
            # Rounding can leave the total weight just below a draw.
            place = np.searchsorted(cumulated, uniform[i, s], side="right")
            chosen[i, s] = first + min(place, len(cumulated) - 1)
