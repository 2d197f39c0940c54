"""Polynomials that replace slow functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def power_series(function: Callable[[Vector], Vector], degree: int, end: float) -> Vector:
    """Return coefficients of a near-minimax polynomial for ``function`` on [0, end].

    A Taylor series would need three times as many terms for the same accuracy.
    """
    fitted = Chebyshev.interpolate(function, degree, domain=[0.0, end])
    return np.asarray(fitted.convert(kind=Polynomial, domain=[-1.0, 1.0]).coef, dtype=np.float64)
