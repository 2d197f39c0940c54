"""When a row branches off an edge: how much prior variance has accumulated by then.

This is the numerical part of the components of ``Hierarchical``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import borrowing_kernel
from ..mixtures.series import power_series

_SERIES = power_series(lambda y: 1.0 / (1.0 - y), 13, 0.5)
_SQUARED_SERIES = power_series(lambda y: 1.0 / (1.0 - y) ** 2, 13, 0.5)

BLOCK = 16
"""How many rows are looked at together."""


class Branches(NamedTuple):
    """A block of rows that branch off on some edge; see ``branch_variance_moments``."""

    start_share: NDArray[np.float64]
    rate_ratio: NDArray[np.float64]
    progress: NDArray[np.float64]
    branch_off: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    exit: NDArray[np.int64]
    """The exit of each row."""
    edges: NDArray[np.float64]
    """Of shape (3, BLOCK): variance of the edge, precision below it, slope of the location."""
    scratch: NDArray[np.float64]
    """Of shape (9, BLOCK)."""


def allocate_branches() -> Branches:
    """Return a block; in places without a row, all that is computed is finite."""
    rows = _aligned_rows(18)
    share, ratio, progress, branch_off, mean, variance = rows[:6]
    rows[:6] = 0.5
    return Branches(
        share,
        ratio,
        progress,
        branch_off,
        mean,
        variance,
        exit=np.empty(BLOCK, np.int64),
        edges=rows[6:9],
        scratch=rows[9:],
    )


def _aligned_rows(n_rows: int) -> NDArray[np.float64]:
    """Return an array of shape (n_rows, BLOCK) whose rows start at cache lines.

    Otherwise the components of a prediction take up to a third longer.
    """
    n_bytes = 8 * BLOCK * n_rows
    memory = np.empty(n_bytes + 63, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n_bytes].view(np.float64).reshape(n_rows, BLOCK)


@borrowing_kernel
def branch_variance_moments(branches: Branches) -> None:
    """Set mean and variance of the prior variance that is accumulated until a row branches off.

    The branch time t is exponential with rate eta, truncated to the edge from time p to time j.
    In units of gamma_1 the variance accumulated since p is, with c = sigmoid(-gamma_2 p)
    (``start_share``) and s = 1 - exp(-gamma_2 (t - p)),

        x = c - sigmoid(-gamma_2 t) = c (1 - c) s / (1 - c s),

    where c <= 1/2 and s <= 1. So x is a polynomial in s, and its square another one, with a
    relative error of 4e-11 and 8e-10 (``_SERIES``, ``_SQUARED_SERIES``), and the
    moments of s obey a two-term recursion (integrate by parts; a = eta / gamma_2 is
    ``rate_ratio``, S = 1 - exp(-gamma_2 (j - p)) is ``progress``, q is the probability
    ``branch_off`` that t falls on the edge at all):

        (a + k) E[s^k] = k E[s^(k-1)] - a (1 - q) / q S^k.

    A Gauss-Legendre rule on the probability scale needs a logarithm and an exponential per node,
    and at leaves, where the integrand has an algebraic singularity, it converges slowly: the mean
    is off by up to 0.9 % with 8 nodes and by 0.06 % with 32.

    A block of branches at a time, in vector registers: 18 ns for each, 57 ns one by one. For this
    LLVM must see that the rows of ``scratch`` do not overlap.
    """
    start_shares, rate_ratios, progresses, branch_offs, means, variances, _, _, scratch = branches
    for j in range(BLOCK):
        rate_ratio, progress, branch_off = rate_ratios[j], progresses[j], branch_offs[j]
        boundary = rate_ratio * (1.0 - branch_off) / branch_off
        scratch[0, j] = start_shares[j]
        scratch[1, j] = rate_ratio
        scratch[2, j] = progress
        scratch[3, j] = boundary
        scratch[4, j] = progress  # S^(k+1)
        scratch[5, j] = (1.0 - boundary * progress) / (rate_ratio + 1.0)  # E[s^(k+1)]
        scratch[6, j] = 1.0  # c^k
        scratch[7, j] = 0.0  # E[s / (1 - c s)]
        scratch[8, j] = 0.0  # E[(s / (1 - c s))^2]
    for k in range(len(_SERIES)):
        coefficient, squared_coefficient = _SERIES[k], _SQUARED_SERIES[k]
        order = np.float64(k + 2)
        for j in range(BLOCK):
            share_power = scratch[6, j]
            moment = scratch[5, j]
            scratch[7, j] += coefficient * share_power * moment
            progress_power = scratch[4, j] * scratch[2, j]
            scratch[4, j] = progress_power
            # Divisions stay off the chain from one moment to the next.
            inverse = 1.0 / (scratch[1, j] + order)
            moment = moment * (order * inverse) - (scratch[3, j] * progress_power) * inverse
            scratch[5, j] = moment
            scratch[8, j] += squared_coefficient * share_power * moment
            scratch[6, j] = share_power * scratch[0, j]
    for j in range(BLOCK):
        start_share, rate_ratio, progress, boundary = (
            scratch[0, j],
            scratch[1, j],
            scratch[2, j],
            scratch[3, j],
        )
        first, second = scratch[7, j], scratch[8, j]
        if branch_offs[j] + progress <= 0.01:
            # Where both S and q are small, the recursion loses digits upwards. Downwards it damps
            # the error of a crude start by 1e-9; moment is E[(s / S)^k], and the sums are Horner's.
            ratio = start_share * progress
            first = second = 0.0
            moment = 1.0 / 7.0  # k = 6, s uniform
            for k in range(6, 1, -1):
                first = first * ratio + moment
                second = second * ratio + (k - 1) * moment
                moment = progress * ((rate_ratio + k) * moment + boundary) * (1.0 / k)
            first = progress * (first * ratio + moment)
            second *= progress * progress
        factor = start_share * (1.0 - start_share)
        largest = factor * progress / (1.0 - start_share * progress)
        # Within the bounds of any variable from 0 to `largest`: else rounding could give a
        # component less variance than a leaf has, or a negative one.
        mean = min(factor * first, largest)
        variance = min(factor * factor * second - mean * mean, mean * (largest - mean))
        means[j] = mean
        variances[j] = max(variance, 0.0)
