"""Search spaces: parameters, their map to the unit cube, and what a forest sees of them.

Three forms of a point:

- *point*: a dict of name to value, with the active parameters only; what users see;
- *unit row*: one number in [0, 1] for each parameter, NaN where it is inactive; discrete parameters
  have one such number for each of their values, so that the way there and back is exact;
- *features*: what the forest sees. Its trees cut boxes, and the chance of a cut between two rows is
  their L1 distance, so features are laid out such that distances mean the right thing:

  - a number, integer or rank is one column, its place on its (linear or logarithmic) scale;
  - a category is one column for each choice, 1/2 where it is chosen and 0 elsewhere: any two
    choices are at distance 1, and no choice lies between others;
  - a category of more than 256 choices is eight groups of 32 columns. Each choice has 1/16 in one
    column of each group. No two choices have the same columns; most pairs share none, and are at
    distance 1; each column that two choices share brings them nearer by 1/8. The time of a
    prediction grows with the columns, and one for each choice would take minutes for thousands;
  - a number u that may be inactive is two columns, (u/2, (1 - u)/2), and (0, 0) where it is
    inactive: two values are as far apart as in one column, and an inactive one is at distance 1/2
    from every value, above or below none of them. An inactive category has zeros throughout.
"""

from __future__ import annotations

import math
import reprlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral as AnyInteger
from numbers import Real as AnyNumber
from typing import Any

import numpy as np
from numpy.typing import NDArray

Point = dict[str, Any]
Condition = Mapping[str, Any]

_PLAIN = (str, bool, int, float, type(None))

MOST_COLUMNS = 256
"""A category of more choices than this shares columns among them."""
_N_GROUPS = 8
_BITS = 5
"""A group has 2**5 columns: eight groups have room for 2**40 choices."""


class Parameter(ABC):
    """One dimension of a search space.

    Parameters
    ----------
    when : mapping, default=None
        Names of other parameters and the value, or list of values, that each must have for this
        parameter to be active.
    """

    n_values: int | None
    """Number of values; None where they are a continuum."""

    is_optional: bool
    """Whether points that are told may lack it for reasons of their own."""

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
        """Whether there are points in which this parameter is inactive."""
        return bool(self.when) or self.is_optional

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """Return the place of a value in [0, 1], or raise ValueError for what is no value."""

    def to_units(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the places of many values."""
        return np.array([self.to_unit(value) for value in values], dtype=np.float64)

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Return a value that passed ``to_unit`` as text, bool, int, float or None."""

    @abstractmethod
    def from_unit(self, unit: float) -> Any:
        """Return the value at a place in [0, 1]."""

    def numbers(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return which values are at given places, numbered from 0; for discrete ones."""
        raise NotImplementedError

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the place of each value by its number; the inverse of ``numbers``."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Number of columns that a forest sees."""
        return 2 if self.is_conditional else 1

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a forest sees of places, of shape (n_rows, n_features)."""
        if not self.is_conditional:
            return units[:, None]
        return np.nan_to_num(0.5 * np.column_stack([units, 1.0 - units]), nan=0.0)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what tells this parameter from others, as plain data."""


class _Number(Parameter):
    """What real and integer parameters share: two ends and a scale."""

    def __init__(self, low: Any, high: Any, log: bool, when: Condition | None) -> None:
        super().__init__(when)
        if not low < high:
            raise ValueError(f"low must be less than high, got {low!r} and {high!r}.")
        if not isinstance(log, bool):
            raise ValueError(f"log must be True or False, got {log!r}.")
        if log and low <= 0:
            raise ValueError(f"low must be positive on a log scale, got {low!r}.")
        self.low, self.high, self.log = low, high, log

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
    """A number between two ends, both possible.

    Parameters
    ----------
    low, high : float
    log : bool, default=False
        Whether the scale is logarithmic; both ends are positive then.
    when : mapping, default=None
        Names of other parameters and the value, or list of values, that each must have for this
        parameter to be active.

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
            if not _is_number(value) or not abs(value) <= sys.float_info.max:
                raise ValueError(f"{name} must be a finite number, got {reprlib.repr(value)}.")
        super().__init__(float(low), float(high), log, when)
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"high - low must be finite, got {low!r} and {high!r}.")

    def to_unit(self, value: Any) -> float:
        if not _is_number(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be a number from {self.low!r} to {self.high!r}, got {value!r}")
        low, high = self._scaled(self.low), self._scaled(self.high)
        return min(max((self._scaled(float(value)) - low) / (high - low), 0.0), 1.0)

    def plain(self, value: Any) -> float:
        return float(value)

    def from_unit(self, unit: float) -> float:
        if unit <= 0.0 or unit >= 1.0:  # exact, which a logarithm and back need not be
            return float(self.low if unit <= 0.0 else self.high)
        low, high = self._scaled(self.low), self._scaled(self.high)
        place = low + unit * (high - low)
        return float(min(max(math.exp(place) if self.log else place, self.low), self.high))


class Integer(_Number):
    """A whole number between two ends, both possible.

    Parameters
    ----------
    low, high : int
    log : bool, default=False
        Whether the scale is logarithmic; both ends are positive then.
    when : mapping, default=None
        Names of other parameters and the value, or list of values, that each must have for this
        parameter to be active.
    """

    def __init__(
        self, low: int, high: int, *, log: bool = False, when: Condition | None = None
    ) -> None:
        for name, value in (("low", low), ("high", high)):
            if not _is_integer(value):
                raise ValueError(f"{name} must be an integer, got {value!r}.")
        if int(high) - int(low) >= 2**52 or max(abs(int(low)), abs(int(high))) >= 2**52:
            raise ValueError("low, high and high - low must be less than 2**52 in size.")
        super().__init__(int(low), int(high), log, when)
        self.n_values = self.high - self.low + 1

    def to_unit(self, value: Any) -> float:
        if not _is_integer(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be an integer from {self.low} to {self.high}, got {value!r}")
        return float(self.places(np.array([int(value) - self.low]))[0])

    def plain(self, value: Any) -> int:
        return int(value)

    def from_unit(self, unit: float) -> int:
        return int(self.low + self.numbers(np.array([unit]))[0])

    def numbers(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        low, high = self._ends()
        scaled = low + units * (high - low)
        offsets = (np.exp(scaled) if self.log else scaled) + 0.5 - self.low
        return np.asarray(np.clip(np.floor(offsets), 0, self.high - self.low), dtype=np.int64)

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        low, high = self._ends()
        values = (self.low + numbers).astype(np.float64)
        return np.asarray(((np.log(values) if self.log else values) - low) / (high - low))

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the cells of all numbers; on a linear scale cells have one size."""
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
                    f"values must be texts, numbers, True, False or None, got {value!r}; name the "
                    "objects, and look them up in the objective."
                )
        self.values = list(values)
        self._place = {_identity(value): number for number, value in enumerate(self.values)}
        if len(self._place) < len(self.values):
            raise ValueError(f"the values must differ, got {reprlib.repr(list(values))}.")
        self.n_values = len(self.values)

    def __repr__(self) -> str:
        when = f", when={self.when!r}" if self.when else ""
        return f"{type(self).__name__}({self.values!r}{when})"

    def to_unit(self, value: Any) -> float:
        number = self._place.get(_identity(value))
        if number is None:
            raise ValueError(f"must be one of {reprlib.repr(self.values)}, got {value!r}")
        return (number + 0.5) / len(self.values)

    def plain(self, value: Any) -> Any:
        return self.values[self._place[_identity(value)]]

    def from_unit(self, unit: float) -> Any:
        return self.values[int(self.numbers(np.array([unit]))[0])]

    def numbers(self, units: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.minimum((units * len(self.values)).astype(np.int64), len(self.values) - 1)

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        return (numbers + 0.5) / len(self.values)

    def describe(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "values": self.values, "when": self.when}


class Ordinal(_Choice):
    """One of a list of values whose order means something.

    Parameters
    ----------
    values : list of str, int, float, bool or None
        From one end to the other.
    when : mapping, default=None
        Names of other parameters and the value, or list of values, that each must have for this
        parameter to be active.
    """

    def __init__(self, values: Sequence[Any], *, when: Condition | None = None) -> None:
        super().__init__(values, when)


class Categorical(_Choice):
    """One of a list of values without an order.

    Parameters
    ----------
    values : list of str, int, float, bool or None
    when : mapping, default=None
        Names of other parameters and the value, or list of values, that each must have for this
        parameter to be active.
    """

    def __init__(self, values: Sequence[Any], *, when: Condition | None = None) -> None:
        super().__init__(values, when)

    @property
    def n_features(self) -> int:
        """Number of columns that a forest sees."""
        return min(len(self.values), MOST_COLUMNS)

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a forest sees of places, of shape (n_rows, n_features)."""
        columns = np.zeros((len(units), self.n_features))
        active = np.flatnonzero(~np.isnan(units))
        numbers = self.numbers(units[active])
        if len(self.values) <= MOST_COLUMNS:
            columns[active, numbers] = 0.5
        else:
            columns[active[:, None], _shared_columns(numbers)] = 0.5 / _N_GROUPS
        return columns


def _shared_columns(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a column in each group for choices by number, of shape (n_numbers, n_groups).

    The number is scrambled to an integer of 40 bits, of which each group takes five. Each step can
    be undone (the factors are odd), so that no two choices have the same columns.
    """
    n_bits = _N_GROUPS * _BITS
    mask = np.uint64(2**n_bits - 1)
    code = numbers.astype(np.uint64)
    for factor in (0x9E3779B97F, 0xC2B2AE3D27):
        code = (code * np.uint64(factor)) & mask
        code ^= code >> np.uint64(n_bits // 2)
    groups = np.arange(_N_GROUPS, dtype=np.uint64)
    within = (code[:, None] >> (groups * np.uint64(_BITS))) & np.uint64(2**_BITS - 1)
    return (groups * np.uint64(2**_BITS) + within).astype(np.int64)


class Space:
    """A search space: parameters by name.

    Parameters
    ----------
    parameters : mapping of str to Real, Integer, Categorical or Ordinal
        Conditions may refer to parameters before or after; they must not run in a circle.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise ValueError(
                f"a space must be a dict of names to parameters, with one at least, "
                f"got {parameters!r}."
            )
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Parameter):
                raise ValueError(
                    f"a space must map names to Real, Integer, Categorical or Ordinal, "
                    f"got {name!r}: {parameter!r}."
                )
        self.parameters = dict(parameters)
        self.names = list(parameters)
        self._order = _parents_first(self.parameters)
        self._column = {name: number for number, name in enumerate(self.names)}
        # By name and by name of a parent: numbers of the parent's values that make it active.
        self._allowed = {
            name: {
                parent: [self._number(parent, value) for value in values]
                for parent, values in parameter.when.items()
            }
            for name, parameter in self.parameters.items()
        }

    def _number(self, name: str, value: Any) -> int:
        parameter = self.parameters[name]
        return int(parameter.numbers(np.array([parameter.to_unit(value)]))[0])

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Space({self.parameters!r})"

    @property
    def n_features(self) -> int:
        """Number of columns that a forest sees."""
        return sum(parameter.n_features for parameter in self.parameters.values())

    @property
    def n_points(self) -> int | None:
        """An upper bound on the number of points; None where it is not finite.

        It is exact unless there are conditions, which leave fewer.
        """
        total = 1
        for parameter in self.parameters.values():
            if parameter.n_values is None:
                return None
            total *= parameter.n_values
        return total

    def snap(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return unit rows of points near given rows: discrete values exact, NaN if inactive."""
        snapped = np.clip(np.nan_to_num(units, nan=0.5), 0.0, 1.0)
        numbers: dict[str, NDArray[np.int64]] = {}
        for name in self._order:
            column = snapped[:, self._column[name]]
            parameter = self.parameters[name]
            if parameter.n_values is not None:
                numbers[name] = parameter.numbers(column)
                column[:] = parameter.places(numbers[name])
            for parent, allowed in self._allowed[name].items():
                inactive = ~np.isin(numbers[parent], allowed)
                column[inactive] = np.nan
                if parameter.n_values is not None:
                    numbers[name][inactive] = -1
        return snapped

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a forest sees of unit rows, of shape (n_rows, n_features)."""
        return np.hstack(
            [
                parameter.features(units[:, self._column[name]])
                for name, parameter in self.parameters.items()
            ]
        )

    def feature_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends that each feature can have: boxes and distances keep their meaning."""
        return np.zeros(self.n_features), np.ones(self.n_features)

    def to_unit(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the unit row of a point, or raise ValueError for what is no point."""
        if not isinstance(point, Mapping):
            raise ValueError(f"a point must be a dict of names to values, got {point!r}.")
        unknown = [name for name in point if name not in self.parameters]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no parameter of the space: it has {', '.join(self.names)}."
            )
        unit = np.full(len(self.names), np.nan)
        for name in self._order:
            if name not in point:
                continue
            try:
                unit[self._column[name]] = self.parameters[name].to_unit(point[name])
            except ValueError as error:
                raise ValueError(f"{name} {error}.") from None
        snapped = self.snap(unit[None])[0]
        for name in self.names:
            column = self._column[name]
            if self.parameters[name].is_optional:
                continue
            if np.isnan(unit[column]) and not np.isnan(snapped[column]):
                raise ValueError(f"the point lacks {name!r}.")
            if not np.isnan(unit[column]) and np.isnan(snapped[column]):
                raise ValueError(
                    f"{name!r} is active only when {self.parameters[name].when!r}: leave it out."
                )
        return unit

    def plain(self, point: Mapping[str, Any]) -> Point:
        """Return a sound point with values that JSON can hold."""
        return {name: self.parameters[name].plain(value) for name, value in point.items()}

    def to_units(self, points: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """Return the unit rows of many points that are known to be sound."""
        units = np.full((len(points), len(self.names)), np.nan)
        for name, column in self._column.items():
            to_unit = self.parameters[name].to_unit
            units[:, column] = [
                to_unit(point[name]) if name in point else np.nan for point in points
            ]
        return units

    def points(self, columns: Mapping[str, Sequence[Any]]) -> list[Point]:
        """Return the points of a table with a column for each parameter, active ones only."""
        units = np.empty((len(columns[self.names[0]]), len(self.names)))
        for name, column in self._column.items():
            try:
                units[:, column] = self.parameters[name].to_units(columns[name])
            except ValueError as error:
                raise ValueError(f"{name} {error}.") from None
        is_active = ~np.isnan(self.snap(units))
        plain = {
            name: [value.item() if isinstance(value, np.generic) else value for value in values]
            for name, values in columns.items()
        }
        return [
            {name: plain[name][row] for name, column in self._column.items() if active[column]}
            for row, active in enumerate(is_active)
        ]

    def keys(self, units: NDArray[np.float64], n_cells: int | None = None) -> list[bytes]:
        """Return a key for each snapped unit row: equal for equal points.

        With ``n_cells``, numbers are equal if they are in the same of so many cells of their range.
        """
        table = np.nan_to_num(units, nan=-1.0)
        for name, parameter in self.parameters.items():
            column = table[:, self._column[name]]
            if parameter.n_values is not None:
                column[:] = np.where(column < 0.0, -1, parameter.numbers(column))
            elif n_cells is not None:
                column[:] = np.floor(column * n_cells)
        return [row.tobytes() for row in np.ascontiguousarray(table)]

    def from_unit(self, unit: NDArray[np.float64]) -> Point:
        """Return the point of a snapped unit row."""
        return {
            name: self.parameters[name].from_unit(float(unit[column]))
            for name, column in self._column.items()
            if not np.isnan(unit[column])
        }

    def all_units(self) -> NDArray[np.float64]:
        """Return the unit rows of all points of a finite space."""
        places = [
            parameter.places(np.arange(parameter.n_values or 0, dtype=np.int64))
            for parameter in self.parameters.values()
        ]
        grid = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
        if not any(parameter.is_conditional for parameter in self.parameters.values()):
            return grid
        snapped = np.nan_to_num(self.snap(grid), nan=-1.0)
        distinct = np.unique(snapped, axis=0)
        distinct[distinct == -1.0] = np.nan
        return distinct

    def describe(self) -> dict[str, Any]:
        """Return what tells this space from others, as plain data."""
        return {name: parameter.describe() for name, parameter in self.parameters.items()}


def _parents_first(parameters: Mapping[str, Parameter]) -> list[str]:
    """Return the names such that each comes after those that its condition refers to."""
    order: dict[str, None] = {}
    open_names: set[str] = set()
    stack = list(parameters)[::-1]
    while stack:
        name = stack[-1]
        if name in order:
            stack.pop()
        elif name in open_names:  # its parents are in order by now
            order[stack.pop()] = None
        else:
            open_names.add(name)
            _check_condition(name, parameters)
            parents = list(parameters[name].when)
            for parent in parents:
                if parent in open_names and parent not in order:
                    raise ValueError(f"the condition of {parent!r} refers to itself in a circle.")
            stack.extend(parents[::-1])
    return list(order)


def _check_condition(name: str, parameters: Mapping[str, Parameter]) -> None:
    for parent, allowed in parameters[name].when.items():
        if parent not in parameters:
            raise ValueError(f"the condition of {name!r} refers to {parent!r}, which is absent.")
        if parameters[parent].n_values is None:
            raise ValueError(
                f"the condition of {name!r} refers to {parent!r}, a continuum: only discrete "
                "parameters can decide."
            )
        for value in allowed:
            try:
                parameters[parent].to_unit(value)
            except ValueError as error:
                raise ValueError(f"in the condition of {name!r}, {parent} {error}.") from None


def _identity(value: Any) -> Any:
    """Return a key that tells True from 1, and 1 from 1.0 only where the user does."""
    if isinstance(value, np.generic):
        value = value.item()
    return (isinstance(value, bool), value) if isinstance(value, _PLAIN) else None


def _is_number(value: object) -> bool:
    return isinstance(value, AnyNumber) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, AnyInteger) and not isinstance(value, bool)
