"""Parameters: the dimensions of a search space.

Each value of a parameter has a *unit*, a number in [0, 1]. A discrete parameter has one unit for
each of its values, so that the conversion to a unit and back is exact. NaN stands for an inactive
parameter.

A forest sees *features*, which are computed from the units. The chance that a tree cuts between two
rows grows with their L1 distance. So the features are laid out such that these distances have a
meaning:

- A number, an integer or a rank has one column: its unit, on a linear or logarithmic scale.
- A category has one column for each choice, with 1/2 in the column of its choice and 0 elsewhere.
  So any two choices have the distance 1, and no choice lies between others.
- A category of more than 256 choices has eight groups of 32 columns. A choice has 1/16 in one
  column of each group, and no two choices have the same columns. Most pairs share no column and
  have the distance 1. Each shared column reduces it by 1/8. The time of a prediction grows with the
  number of columns: with a column for each of thousands of choices it would take minutes.
- A number with the unit u that may be inactive has two columns, (u/2, (1 - u)/2), or (0, 0) if it
  is inactive. Two values have the same distance as in one column. An inactive number has the
  distance 1/2 from every value. An inactive category has zeros in all columns.
"""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._forest.validation import check_flag, is_integer, is_number

Condition = Mapping[str, Any]

_PLAIN = (str, bool, int, float, type(None))

MOST_COLUMNS = 256
"""The choices of a larger category share this number of columns."""
_N_GROUPS = 8
_BITS = 5
"""A group has 2**5 columns, so that eight groups suffice for 2**40 choices."""
_LARGEST_INTEGER = 2**52
"""Up to this size, float64 holds all integers and the halves between them."""


class Parameter(ABC):
    """One dimension of a search space.

    Parameters
    ----------
    when : mapping, default=None
        The condition under which the parameter is active: names of other parameters, and the value
        or list of values that each must have. None: always.
    """

    n_values: int | None
    """Number of values of a discrete parameter; None for a continuous one."""

    is_optional: bool
    """Whether a point may lack this parameter for other reasons than its condition."""

    def __init__(self, when: Condition | None) -> None:
        if when is not None and not (isinstance(when, Mapping) and when):
            raise ValueError(f"when must map names of parameters to values, got {when!r}.")
        self.is_optional = False
        self.when = {
            name: list(values) if isinstance(values, list | tuple | set | frozenset) else [values]
            for name, values in (when or {}).items()
        }

    @property
    def is_conditional(self) -> bool:
        """Whether this parameter is inactive in some points."""
        return bool(self.when) or self.is_optional

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """Return the unit of a value. Raise a ValueError if the value is not allowed."""

    def to_units(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the units of many values."""
        return np.array([self.to_unit(value) for value in values], dtype=np.float64)

    @abstractmethod
    def from_unit(self, unit: float) -> Any:
        """Return the value of a unit."""

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Return an allowed value as str, bool, int, float or None."""

    def unit_to_index(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices, from 0 on, of the values of a discrete parameter."""
        raise NotImplementedError

    def index_to_unit(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the units of the values of a discrete parameter; undoes ``unit_to_index``."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Number of columns that a forest sees."""
        return 2 if self.is_conditional else 1

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns that a forest sees, shape (n_rows, n_features)."""
        if not self.is_conditional:
            return units[:, None]
        return np.nan_to_num(0.5 * np.column_stack([units, 1.0 - units]), nan=0.0)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what distinguishes this parameter from others, as plain data."""


class _Number(Parameter):
    """What real and integer parameters share: two ends and a scale."""

    def __init__(self, low: Any, high: Any, log: bool, when: Condition | None) -> None:
        super().__init__(when)
        if not low < high:
            raise ValueError(f"low must be less than high, got {low!r} and {high!r}.")
        self.low, self.high, self.log = low, high, check_flag("log", log)
        if log and low <= 0:
            raise ValueError(f"low must be positive on a log scale, got {low!r}.")

    def __repr__(self) -> str:
        log = ", log=True" if self.log else ""
        when = f", when={self.when!r}" if self.when else ""
        return f"{type(self).__name__}({self.low!r}, {self.high!r}{log}{when})"

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "low": self.low,
            "high": self.high,
            "log": self.log,
            "when": self.when,
        }


class Real(_Number):
    """A number between two ends, both included.

    Parameters
    ----------
    low, high : float
    log : bool, default=False
        Whether the scale is logarithmic. If it is, both ends must be positive.
    when : mapping, default=None
        The condition under which the parameter is active: names of other parameters, and the value
        or list of values that each must have. None: always.

    Examples
    --------
    >>> from mondrian_forest.optimize import Real
    >>> rate = Real(1e-4, 1.0, log=True)
    >>> rate.to_unit(0.01)
    0.5
    """

    n_values = None

    def __init__(
        self, low: float, high: float, *, log: bool = False, when: Condition | None = None
    ) -> None:
        for name, value in (("low", low), ("high", high)):
            if not is_number(value):
                raise ValueError(f"{name} must be a finite number, got {reprlib.repr(value)}.")
        super().__init__(float(low), float(high), log, when)
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"high - low must be finite, got {low!r} and {high!r}.")

    def to_unit(self, value: Any) -> float:
        if not is_number(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be a number from {self.low!r} to {self.high!r}, got {value!r}")
        low, high = self._scaled(self.low), self._scaled(self.high)
        return min(max((self._scaled(float(value)) - low) / (high - low), 0.0), 1.0)

    def from_unit(self, unit: float) -> float:
        # The ends must be exact. A logarithm and back would round them.
        if unit <= 0.0 or unit >= 1.0:
            return float(self.low if unit <= 0.0 else self.high)
        low, high = self._scaled(self.low), self._scaled(self.high)
        scaled = low + unit * (high - low)
        return float(min(max(math.exp(scaled) if self.log else scaled, self.low), self.high))

    def plain(self, value: Any) -> float:
        return float(value)


class Integer(_Number):
    """An integer between two ends, both included.

    Parameters
    ----------
    low, high : int
    log : bool, default=False
        Whether the scale is logarithmic. If it is, both ends must be positive.
    when : mapping, default=None
        The condition under which the parameter is active: names of other parameters, and the value
        or list of values that each must have. None: always.
    """

    def __init__(
        self, low: int, high: int, *, log: bool = False, when: Condition | None = None
    ) -> None:
        for name, value in (("low", low), ("high", high)):
            if not is_integer(value):
                raise ValueError(f"{name} must be an integer, got {value!r}.")
        low, high = int(low), int(high)
        if max(high - low, abs(low), abs(high)) >= _LARGEST_INTEGER:
            raise ValueError("low, high and high - low must be less than 2**52 in size.")
        super().__init__(low, high, log, when)
        self.n_values = high - low + 1

    def to_unit(self, value: Any) -> float:
        if not is_integer(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be an integer from {self.low} to {self.high}, got {value!r}")
        return float(self.index_to_unit(np.array([int(value) - self.low]))[0])

    def from_unit(self, unit: float) -> int:
        return int(self.low + self.unit_to_index(np.array([unit]))[0])

    def plain(self, value: Any) -> int:
        return int(value)

    def unit_to_index(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        start, end = self._ends()
        scaled = start + units * (end - start)
        offsets = (np.exp(scaled) if self.log else scaled) + 0.5 - self.low
        return np.asarray(np.clip(np.floor(offsets), 0, self.high - self.low), dtype=np.int64)

    def index_to_unit(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        start, end = self._ends()
        values = (self.low + indices).astype(np.float64)
        return np.asarray(((np.log(values) if self.log else values) - start) / (end - start))

    def _ends(self) -> tuple[float, float]:
        """Return the scaled ends of the unit interval.

        Each integer k has the cell from k - 1/2 to k + 1/2, and all cells together make up the unit
        interval. On a linear scale they have the same size.
        """
        return self._scaled(self.low - 0.5), self._scaled(self.high + 0.5)


class _Choice(Parameter):
    """What categories and ranks share: a list of values."""

    def __init__(self, values: Sequence[Any], when: Condition | None) -> None:
        super().__init__(when)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"the values must be a list, got {reprlib.repr(values)}.")
        if len(values) < 1:
            raise ValueError("there must be at least one value.")
        for value in values:
            if not isinstance(value, _PLAIN) or (isinstance(value, float) and math.isnan(value)):
                raise ValueError(
                    f"values must be texts, numbers, True, False or None, got {value!r}: give each "
                    "object a name, and look it up in the objective."
                )
        self.values = list(values)
        self._index = {_lookup_key(value): index for index, value in enumerate(self.values)}
        if len(self._index) < len(self.values):
            raise ValueError(f"the values must differ, got {reprlib.repr(list(values))}.")
        self.n_values = len(self.values)

    def __repr__(self) -> str:
        when = f", when={self.when!r}" if self.when else ""
        return f"{type(self).__name__}({self.values!r}{when})"

    def to_unit(self, value: Any) -> float:
        index = self._index.get(_lookup_key(value))
        if index is None:
            raise ValueError(f"must be one of {reprlib.repr(self.values)}, got {value!r}")
        return (index + 0.5) / len(self.values)

    def from_unit(self, unit: float) -> Any:
        return self.values[int(self.unit_to_index(np.array([unit]))[0])]

    def plain(self, value: Any) -> Any:
        return self.values[self._index[_lookup_key(value)]]

    def unit_to_index(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.minimum((units * len(self.values)).astype(np.int64), len(self.values) - 1)

    def index_to_unit(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        return (indices + 0.5) / len(self.values)

    def describe(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "values": self.values, "when": self.when}


class Ordinal(_Choice):
    """One of a list of values with a meaningful order.

    Parameters
    ----------
    values : list of str, int, float, bool or None
        The values in their order.
    when : mapping, default=None
        The condition under which the parameter is active: names of other parameters, and the value
        or list of values that each must have. None: always.
    """

    def __init__(self, values: Sequence[Any], *, when: Condition | None = None) -> None:
        super().__init__(values, when)


class Categorical(_Choice):
    """One of a list of values without an order.

    Parameters
    ----------
    values : list of str, int, float, bool or None
    when : mapping, default=None
        The condition under which the parameter is active: names of other parameters, and the value
        or list of values that each must have. None: always.
    """

    def __init__(self, values: Sequence[Any], *, when: Condition | None = None) -> None:
        super().__init__(values, when)

    @property
    def n_features(self) -> int:
        """Number of columns that a forest sees."""
        return min(len(self.values), MOST_COLUMNS)

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns that a forest sees, shape (n_rows, n_features)."""
        columns = np.zeros((len(units), self.n_features))
        active = np.flatnonzero(~np.isnan(units))
        indices = self.unit_to_index(units[active])
        if len(self.values) <= MOST_COLUMNS:
            columns[active, indices] = 0.5
        else:
            columns[active[:, None], _shared_columns(indices)] = 0.5 / _N_GROUPS
        return columns


def _shared_columns(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of choices, one in each group, shape (n_choices, n_groups).

    The index of a choice is scrambled to an integer of 40 bits, and each group uses five of them.
    Every step can be inverted (the factors are odd), so that no two choices have the same columns.
    """
    n_bits = _N_GROUPS * _BITS
    mask = np.uint64(2**n_bits - 1)
    code = indices.astype(np.uint64)
    for factor in (0x9E3779B97F, 0xC2B2AE3D27):
        code = (code * np.uint64(factor)) & mask
        code ^= code >> np.uint64(n_bits // 2)
    groups = np.arange(_N_GROUPS, dtype=np.uint64)
    within = (code[:, None] >> (groups * np.uint64(_BITS))) & np.uint64(2**_BITS - 1)
    return (groups * np.uint64(2**_BITS) + within).astype(np.int64)


def _lookup_key(value: Any) -> Any:
    """Return a dictionary key for a value. 1 and 1.0 have the same key, but True has another."""
    if isinstance(value, np.generic):
        value = value.item()
    return (isinstance(value, bool), value) if isinstance(value, _PLAIN) else None
