"""Trials: points and their values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .space import Point


@dataclass(eq=False)  # a trial equals itself alone, and arrays do not compare
class Trial:
    """One point and what became of it.

    Attributes
    ----------
    number : int
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
        """Whether there will never be a value."""
        return self.value is not None and math.isnan(self.value)


_LARGEST_VALUE = 1e100
"""What is larger, infinity included, counts as a failure: no forest could learn it."""


def checked_value(value: object) -> float:
    """Return a number, NaN for what is a failure."""
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
