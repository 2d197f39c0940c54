"""Test problems for optimisers: functions with a known maximum.

Each problem has a space, a function, the largest value, and the points that have this value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mondrian_forest.optimize import Real


@dataclass(frozen=True)
class Problem:
    """A function to maximise over a box.

    Attributes
    ----------
    name : str
    space : dict of str to Real
    function : callable
        Takes an array of shape (n_points, n_parameters), returns (n_points,).
    optimum : float
        The largest value.
    optimizers : ndarray of shape (n_optima, n_parameters)
        The points that have the largest value.
    """

    name: str
    space: dict[str, Real]
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    optimum: float
    optimizers: NDArray[np.float64]

    def __call__(self, point: dict[str, Any]) -> float:
        """Return the value at one point."""
        row = [[point[name] for name in self.space]]
        return float(self.function(np.array(row, dtype=np.float64))[0])


def _branin(x: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = x[:, 0], x[:, 1]
    parabola = second - 5.1 / (4 * math.pi**2) * first**2 + 5 / math.pi * first - 6
    return -(parabola**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(first) + 10)


_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_SCALES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(x: NDArray[np.float64]) -> NDArray[np.float64]:
    squares = (x[:, None, :] - _HARTMANN_CENTRES) ** 2
    bumps = np.exp(-np.einsum("ijk,jk->ij", squares, _HARTMANN_SCALES))
    return np.asarray(bumps @ _HARTMANN_WEIGHTS)


branin = Problem(
    "Branin",
    {"x1": Real(-5.0, 10.0), "x2": Real(0.0, 15.0)},
    _branin,
    -0.39788735772973816,
    np.array([[-math.pi, 12.275], [math.pi, 2.275], [9.42478, 2.475]]),
)
"""Branin's function of two variables with the opposite sign. It has three maxima."""

hartmann6 = Problem(
    "Hartmann",
    {f"x{k}": Real(0.0, 1.0) for k in range(1, 7)},
    _hartmann,
    3.32236801141551,
    np.array([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]]),
)
"""Hartmann's function of six variables with the opposite sign. It has six local maxima."""
