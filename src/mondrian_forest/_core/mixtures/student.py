"""Student's t distribution, and the standard normal distribution as its limit.

``normal_at`` and ``student_at`` use tables and short series. Their distribution functions have
absolute errors below 3e-14. ``student_tail`` keeps the digits of the smallest tails.

The tail of a t distribution is half an incomplete beta function, I_r(v / 2, 1 / 2). For many
degrees there is the expansion of DiDonato and Morris (1992, Algorithm 708). For few degrees, a sum
of terms with the same sign leads to a beta function of many degrees.

=====  ==============================================================================
v      degrees of freedom
q      x^2 / v
L      log(1 + q), so that the density is proportional to exp(-L (v + 1) / 2)
r      1 / (1 + q)
T      v / 2 - 1 / 4; the tail is nearly that of a normal distribution at sqrt(2 T L)
=====  ==============================================================================
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import inner_kernel, kernel, reordering_kernel, wide
from .series import Vector, power_series

_SQRT_HALF = math.sqrt(0.5)
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)

_TABLE_END = 9.0
"""The table ends so many standard deviations from zero: beyond, the distribution function is 0 or 1
in float64."""
_STEPS = 256
_NODES = np.linspace(-_TABLE_END, _TABLE_END, int(2 * _TABLE_END * _STEPS) + 1)
_TABLE = np.array(
    [(0.5 * math.erfc(-z * _SQRT_HALF), _DENSITY_AT_ZERO * math.exp(-0.5 * z * z)) for z in _NODES]
)
"""Distribution function and density of the standard normal distribution, 74 KB."""

MANY_DEGREES = 24
"""From here on the expansion for many degrees holds. Below, there are tables for integers."""
MOST_DEGREES = 1e150
"""Stands for infinite degrees, so that products with zero are zero."""
_LONGEST_EXPANSION = 1.2
"""For larger L, the power series in r is shorter than the expansion."""
_EXACT_TERMS = 9


def _expansion_coefficients() -> NDArray[np.float64]:
    """Return the coefficients p_n of the expansion, those of DiDonato and Morris with b = 1/2."""
    p = [1.0]
    for n in range(1, _EXACT_TERMS + 1):
        total = sum(
            (0.5 * m - n) * p[n - m] / math.factorial(2 * m + 1) for m in range(1, n)
        )  # fmt: skip
        p.append(total / n - 0.5 / math.factorial(2 * n + 1))
    return np.array(p)


_EXPANSION = _expansion_coefficients()
_P1, _P2, _P3, _P4 = (float(p) for p in _EXPANSION[1:5])


def _integer_tail(x: NDArray[np.float64], degrees: int) -> NDArray[np.float64]:
    """Return P(T > x) for integer degrees, by a finite sum of sines and cosines."""
    angle = np.arctan(x / math.sqrt(degrees))
    square = np.cos(angle) ** 2
    odd = degrees % 2
    term = np.sin(angle) * (np.cos(angle) if odd else 1.0)
    total = angle.copy() if odd else np.zeros_like(x)
    for j in range(degrees // 2):
        total += term
        term = term * square * ((2 * j + 1 + odd) / (2 * j + 2 + odd))
    return 0.5 - total * (1.0 / math.pi if odd else 0.5)


_HALFWAY = 3.0
_CELLS = 64
_ORDER = 8


def _tail_polynomials() -> NDArray[np.float64]:
    """Return polynomials for P(T > x), x >= 0, for each integer number of degrees: 98 KB.

    The argument is s = x / (x + 3). For integer degrees, the tail is smooth in s up to s = 1, where
    x is infinite. The range of s has 64 cells. Each has a polynomial of order 8 through the
    Chebyshev nodes, whose argument goes from -1 to 1.
    """
    nodes = np.cos((np.arange(_ORDER) + 0.5) * np.pi / _ORDER)
    to_coefficients = np.linalg.inv(np.vander(nodes, increasing=True)).T
    s = (np.arange(_CELLS)[:, None] + 0.5 + 0.5 * nodes) / _CELLS
    x = _HALFWAY * s / (1.0 - s)
    table = np.zeros((MANY_DEGREES, _CELLS, _ORDER))
    for degrees in range(1, MANY_DEGREES):
        table[degrees] = _integer_tail(x, degrees) @ to_coefficients
    return table


_TAILS = _tail_polynomials()
_DENSITIES_AT_ZERO = np.array(
    [0.0]
    + [
        math.exp(math.lgamma(0.5 * v + 0.5) - math.lgamma(0.5 * v)) / math.sqrt(math.pi * v)
        for v in range(1, MANY_DEGREES)
    ]
)


_MOST_DECAY_RATIO = 31.0
"""For larger x^2 / v, nothing is left of the tail of 24 degrees or more."""


def _inverse_tangent_ratio(square: Vector) -> Vector:
    """Return artanh(s) / s, given the square of s."""
    s = np.sqrt(np.maximum(square, 1e-16))
    return np.asarray(np.arctanh(s) / s)


_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8, _L9 = (
    8.0 * float(coefficient) for coefficient in power_series(_inverse_tangent_ratio, 9, 0.17)
)


@kernel
def normal_at(standard: float) -> tuple[float, float]:
    """Return distribution function and density of the standard normal distribution.

    They are Taylor polynomials at the nearest node of a table, with absolute errors below 1e-15 and
    1e-12. Both together take 4 to 7 ns; the error function alone takes 20. There are no branches
    and no divisions, so that loops over this function can be vectorised.
    """
    standard = min(max(standard, -_TABLE_END), _TABLE_END)
    position = (standard + _TABLE_END) * _STEPS + 0.5
    node = np.int32(position if position == position else 0.0)  # any node will do for NaN
    z = node * (1.0 / _STEPS) - _TABLE_END
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
def _gamma_ratio(inverse_square: float) -> float:
    """Return Gamma(T + 3/4) / Gamma(T + 1/4) / sqrt(T), T >= 11.75, given 1 / T^2.

    The series of the ratio has only even powers (Tricomi and Erdelyi 1951). The error is 1e-15.
    """
    return 1.0 + inverse_square * (
        0.015625
        + inverse_square
        * (
            -0.0023193359375
            + inverse_square
            * (
                0.0012035369873046875
                + inverse_square * (-0.00129876285791397 + inverse_square * 0.00238555751275271)
            )
        )
    )


@kernel
def density_at_zero(degrees: float) -> float:
    """Return Gamma((v + 1) / 2) / (Gamma(v / 2) sqrt(pi v))."""
    if degrees < MANY_DEGREES and degrees == wide(degrees):
        return float(_DENSITIES_AT_ZERO[wide(degrees)])
    degrees = min(degrees, MOST_DEGREES)
    shifted = degrees
    factor = 1.0
    while shifted < MANY_DEGREES:  # Gamma(x + 1) = x Gamma(x)
        factor *= shifted / (shifted + 1.0)
        shifted += 2.0
    t = 0.5 * shifted - 0.25
    return factor * _gamma_ratio(1.0 / (t * t)) * math.sqrt(t / (math.pi * degrees))


@kernel
def log_decay(standard: float, degrees: float) -> float:
    """Return L = log(1 + x^2 / v)."""
    square = standard * standard / degrees
    if square > 1e16:  # or infinite, by overflow
        return 2.0 * math.log(abs(standard)) - math.log(degrees)
    return math.log1p(square)


@kernel
def _correction(u: float, decay: float, t: float, n_terms: int) -> float:
    """Return B in P(T > x) = P(N > w) + w phi(w) B / 2, where w^2 / 2 = u = T L.

    These are the terms of DiDonato and Morris without those of the normal tail. The latter add up
    to the inverse of the ratio of gamma functions, since both tails are 1/2 at zero.
    """
    inverse_square = 1.0 / (t * t)
    quarter = 0.25 * inverse_square
    term = 0.0
    total = 0.0
    power = 1.0
    index = 0.5
    for n in range(1, n_terms + 1):
        term = quarter * (index * (index + 1.0) * term + (u + index + 1.0) * power)
        total += _EXPANSION[n] * term
        power *= 0.25 * decay * decay
        index += 2.0
    return _gamma_ratio(inverse_square) * total


@kernel
def student_tail(standard: float, degrees: float) -> float:
    """Return P(T > x) of the t distribution. For x >= 0 it has 12 digits, however small it is."""
    degrees = min(degrees, MOST_DEGREES)
    decay = log_decay(standard, degrees)
    total = 0.0
    term = 1.0
    shifted = degrees
    if decay > _LONGEST_EXPANSION or degrees < MANY_DEGREES:
        away = -math.expm1(-decay)  # 1 - r
        term = (
            density_at_zero(degrees)
            * math.sqrt(away / degrees)
            * math.exp(-0.5 * degrees * decay)
        )  # fmt: skip
        # I_r(a, 1/2) is I_r(a + 1, 1/2) and one term.
        while shifted < MANY_DEGREES or (decay > _LONGEST_EXPANSION and term > 1e-17 * total):
            total += term
            term *= (1.0 - away) * (shifted + 1.0) / (shifted + 2.0)
            shifted += 2.0
    if decay <= _LONGEST_EXPANSION:
        t = 0.5 * shifted - 0.25
        u = t * decay
        root = math.sqrt(u)
        rest = (0.5 / math.sqrt(math.pi)) * root * math.exp(-u)
        total += 0.5 * math.erfc(root) + rest * _correction(u, decay, t, _EXACT_TERMS)
    elif decay != decay:
        return decay
    return total if standard >= 0.0 else 1.0 - total


@kernel
def student_log_density(standard: float, degrees: float) -> float:
    """Return the log density of the t distribution, minus the log density at zero."""
    degrees = min(degrees, MOST_DEGREES)
    return -0.5 * (degrees + 1.0) * log_decay(standard, degrees)


@kernel
def _few_at(size: float, degrees: int) -> tuple[float, float]:
    """Return P(T > x) and density at x >= 0 for integer degrees below ``MANY_DEGREES``."""
    inverse = 1.0 / (size + _HALFWAY)
    # Written as 1 - 3 / (x + 3), s is also right at infinity.
    position = (1.0 - _HALFWAY * inverse) * _CELLS
    cell = np.int32(min(position, _CELLS - 1.0) if position == position else 0.0)
    d = 2.0 * (position - cell) - 1.0
    tail = slope = _TAILS[degrees, cell, _ORDER - 1]
    for j in range(_ORDER - 2, 0, -1):
        tail = tail * d + _TAILS[degrees, cell, j]
        slope = slope * d + tail
    tail = tail * d + _TAILS[degrees, cell, 0]
    return tail, slope * (-2.0 * _CELLS * _HALFWAY) * inverse * inverse


@kernel
def _log1p(q: float) -> float:
    """Return log(1 + q) for q from 0 to 31, as products and sums that fit into vector registers.

    Two square roots make q small, then log((1 + s) / (1 - s)) = 2 artanh(s). The relative error is
    6e-15.
    """
    q = q / (1.0 + math.sqrt(1.0 + q))
    q = q / (1.0 + math.sqrt(1.0 + q))
    s = q / (2.0 + q)
    square = s * s
    fourth = square * square
    low = _L0 + _L1 * square + (_L2 + _L3 * square) * fourth
    middle = _L4 + _L5 * square + (_L6 + _L7 * square) * fourth
    high = _L8 + _L9 * square
    return s * (low + fourth * fourth * (middle + fourth * fourth * high))


@inner_kernel
def _many_at(standard: float, degrees: float) -> tuple[float, float]:
    """Return P(T > |x|) and density at x for at least ``MANY_DEGREES``."""
    degrees = min(degrees, MOST_DEGREES)
    inverse = 1.0 / degrees
    q = min(standard * standard * inverse, _MOST_DECAY_RATIO)
    decay = _log1p(q)
    w = min(math.sqrt((degrees - 0.5) * decay), _TABLE_END)
    u = 0.5 * w * w
    tail, at = normal_at(-w)
    quarter = 1.0 / ((degrees - 0.5) * (degrees - 0.5))
    ratio = _gamma_ratio(4.0 * quarter)
    r = 1.0 / (1.0 + q)
    density = at * ratio * math.sqrt((1.0 - 0.5 * inverse) * r * math.sqrt(r))
    # The first four terms of _correction.
    power = 0.25 * decay * decay
    first = quarter * (u + 1.5)
    second = quarter * (8.75 * first + (u + 3.5) * power)
    third = quarter * (24.75 * second + (u + 5.5) * power * power)
    fourth = quarter * (48.75 * third + (u + 7.5) * power * power * power)
    total = _P1 * first + _P2 * second + _P3 * third + _P4 * fourth
    return tail + 0.5 * w * at * ratio * total, density


@kernel
def _any_at(standard: float, degrees: float) -> tuple[float, float]:
    """Return P(T > |x|) and density at x."""
    density = density_at_zero(degrees) * math.exp(student_log_density(standard, degrees))
    return student_tail(abs(standard), degrees), density


@kernel
def student_at(standard: float, degrees: float) -> tuple[float, float]:
    """Return distribution function and density of the t distribution.

    The absolute errors are below 3e-14 and 1e-11. Degrees below 24 that are not integers take ten
    times as long as others.
    """
    if degrees >= MANY_DEGREES:
        tail, density = _many_at(standard, degrees)
    elif degrees == wide(degrees):
        tail, density = _few_at(abs(standard), wide(degrees))
    else:
        tail, density = _any_at(standard, degrees)
    return (tail if standard < 0.0 else 1.0 - tail), density


@kernel
def kind_of(degrees: float) -> int:
    """Return how a t distribution is computed: 0 for few degrees, 1 for many, 2 for others."""
    if degrees >= MANY_DEGREES:
        return 1
    return 0 if degrees == wide(degrees) else 2


@reordering_kernel
def students_at(
    weight: NDArray[np.float64],
    location: NDArray[np.float64],
    inverse_scale: NDArray[np.float64],
    degrees: NDArray[np.float64],
    ends: tuple[int, int, int],
    y: float,
) -> tuple[float, float]:
    """Return distribution function and density of a mixture, whose components are sorted by kind.

    Components of one kind are summed in vector registers. One of few degrees takes 10 ns and one of
    many takes 28 ns, where ``student_at`` takes 18 and 43 ns.
    """
    few, many, n = ends
    total = 0.0
    density = 0.0
    for k in range(few):
        standard = (y - location[k]) * inverse_scale[k]
        tail, at = _few_at(abs(standard), wide(degrees[k]))
        total += weight[k] * (tail if standard < 0.0 else 1.0 - tail)
        density += weight[k] * inverse_scale[k] * at
    for k in range(few, many):
        standard = (y - location[k]) * inverse_scale[k]
        tail, at = _many_at(standard, degrees[k])
        total += weight[k] * (tail if standard < 0.0 else 1.0 - tail)
        density += weight[k] * inverse_scale[k] * at
    for k in range(many, n):
        standard = (y - location[k]) * inverse_scale[k]
        tail, at = _any_at(standard, degrees[k])
        total += weight[k] * (tail if standard < 0.0 else 1.0 - tail)
        density += weight[k] * inverse_scale[k] * at
    return total, density
