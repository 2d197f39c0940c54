"""Trials: points with their values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .space import Point


@dataclass(eq=False)  # comparing the arrays of two trials would fail
class Trial:
    """One point, and the value of the objective there.

    Attributes
    ----------
    number : int
        Trials are numbered from 0 on, in the order in which they were asked for.
    point : dict
        Names and values of the active parameters.
    value : float or None
        None while the trial is pending; NaN if it failed.
    """

    number: int
    point: Point
    value: float | None = None
    unit: NDArray[np.float64] = field(repr=False, default_factory=lambda: np.empty(0))

    @property
    def is_pending(self) -> bool:
        """Whether no value has been told yet."""
        return self.value is None

    @property
    def is_failed(self) -> bool:
        """Whether the evaluation failed."""
        return self.value is not None and math.isnan(self.value)


_LARGEST_VALUE = 1e100
"""A larger value counts as a failure, because a forest could not learn it."""


def checked_value(value: object) -> float:
    """Return the value of a trial as a float, which is NaN for a failure."""
    if value is None:
        return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.nan
    except (TypeError, ValueError):
        raise ValueError(
            f"a value must be a number, or None if the evaluation failed, got {value!r}."
        ) from None
    return number if abs(number) <= _LARGEST_VALUE else math.nan
