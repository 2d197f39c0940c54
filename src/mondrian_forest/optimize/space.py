"""Search spaces: parameters by name, and the conversion of points.

A point has three forms:

- *point*: a dict of name to value, with the active parameters only. This is what users see.
- *unit row*: an array with the unit of each parameter, a number in [0, 1], or NaN if the parameter
  is inactive.
- *features*: the columns that the forest sees. ``parameters`` tells why they look as they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .parameters import Parameter

Point = dict[str, Any]


class Space:
    """A search space: parameters by name.

    Parameters
    ----------
    parameters : mapping of str to Real, Integer, Categorical or Ordinal
        A condition may refer to any other parameter, but conditions must not form a circle.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise ValueError(
                "a space must be a dict of names to parameters, with at least one parameter, "
                f"got {parameters!r}."
            )
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Parameter):
                raise ValueError(
                    "a space must map names to Real, Integer, Categorical or Ordinal, "
                    f"got {name!r}: {parameter!r}."
                )
        self.parameters = dict(parameters)
        self.names = list(parameters)
        self._order = _parents_first(self.parameters)
        self._column = {name: column for column, name in enumerate(self.names)}
        # For each parameter and each parent: the indices of the parent's values that activate it.
        self._active_for = {
            name: {
                parent: [self._index(parent, value) for value in values]
                for parent, values in parameter.when.items()
            }
            for name, parameter in self.parameters.items()
        }

    def _index(self, name: str, value: Any) -> int:
        parameter = self.parameters[name]
        return int(parameter.unit_to_index(np.array([parameter.to_unit(value)]))[0])

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
        """Upper bound of the number of points; None for an infinite space.

        The bound is exact for a space without conditions.
        """
        total = 1
        for parameter in self.parameters.values():
            if parameter.n_values is None:
                return None
            total *= parameter.n_values
        return total

    def to_unit(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the unit row of a point. Raise a ValueError if the point is not in the space."""
        if not isinstance(point, Mapping):
            raise ValueError(f"a point must be a dict of names to values, got {point!r}.")
        unknown = [name for name in point if name not in self.parameters]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a parameter of the space: it has {', '.join(self.names)}."
            )
        unit = np.full(len(self.names), np.nan)
        for name in self._order:
            if name not in point:
                continue
            try:
                unit[self._column[name]] = self.parameters[name].to_unit(point[name])
            except ValueError as error:
                raise ValueError(f"{name} {error}.") from None
        self._check_activity(unit)
        return unit

    def _check_activity(self, unit: NDArray[np.float64]) -> None:
        """Raise a ValueError if an active parameter is missing, or an inactive one present."""
        is_active = ~np.isnan(self.snap(unit[None])[0])
        is_present = ~np.isnan(unit)
        for name, column in self._column.items():
            parameter = self.parameters[name]
            if parameter.is_optional or is_active[column] == is_present[column]:
                continue
            if is_active[column]:
                raise ValueError(f"the point lacks {name!r}.")
            raise ValueError(f"{name!r} is active only when {parameter.when!r}: leave it out.")

    def to_units(self, points: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """Return the unit rows of points that are known to be in the space."""
        units = np.full((len(points), len(self.names)), np.nan)
        for name, column in self._column.items():
            to_unit = self.parameters[name].to_unit
            units[:, column] = [
                to_unit(point[name]) if name in point else np.nan for point in points
            ]
        return units

    def from_unit(self, unit: NDArray[np.float64]) -> Point:
        """Return the point of a snapped unit row."""
        return {
            name: self.parameters[name].from_unit(float(unit[column]))
            for name, column in self._column.items()
            if not np.isnan(unit[column])
        }

    def snap(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the unit rows of the points at arbitrary rows of the unit cube.

        Discrete parameters get the exact unit of their value, and inactive ones get NaN.
        """
        snapped = np.clip(np.nan_to_num(units, nan=0.5), 0.0, 1.0)
        indices: dict[str, NDArray[np.int64]] = {}
        for name in self._order:
            column = snapped[:, self._column[name]]
            parameter = self.parameters[name]
            if parameter.n_values is not None:
                indices[name] = parameter.unit_to_index(column)
                column[:] = parameter.index_to_unit(indices[name])
            for parent, activating in self._active_for[name].items():
                is_inactive = ~np.isin(indices[parent], activating)
                column[is_inactive] = np.nan
                if parameter.n_values is not None:
                    indices[name][is_inactive] = -1
        return snapped

    def plain(self, point: Mapping[str, Any]) -> Point:
        """Return a point of the space with values that JSON can hold."""
        return {name: self.parameters[name].plain(value) for name, value in point.items()}

    def points(self, columns: Mapping[str, Sequence[Any]]) -> list[Point]:
        """Return the points of a table with one column for each parameter.

        Inactive parameters are left out of the points.
        """
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

    def all_units(self) -> NDArray[np.float64]:
        """Return the unit rows of all points of a finite space."""
        units = [
            parameter.index_to_unit(np.arange(parameter.n_values or 0, dtype=np.int64))
            for parameter in self.parameters.values()
        ]
        grid = np.stack(np.meshgrid(*units, indexing="ij"), axis=-1).reshape(-1, len(units))
        if not any(parameter.is_conditional for parameter in self.parameters.values()):
            return grid
        snapped = np.nan_to_num(self.snap(grid), nan=-1.0)
        distinct = np.unique(snapped, axis=0)
        distinct[distinct == -1.0] = np.nan
        return distinct

    def keys(self, units: NDArray[np.float64], n_cells: int | None = None) -> list[bytes]:
        """Return a dictionary key for each snapped unit row. Equal points have equal keys.

        With ``n_cells``, the range of each number is divided into this number of cells, and points
        in the same cells have equal keys.
        """
        table = np.nan_to_num(units, nan=-1.0)
        for name, parameter in self.parameters.items():
            column = table[:, self._column[name]]
            if parameter.n_values is not None:
                column[:] = np.where(column < 0.0, -1, parameter.unit_to_index(column))
            elif n_cells is not None:
                column[:] = np.floor(column * n_cells)
        return [row.tobytes() for row in np.ascontiguousarray(table)]

    def features(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns that a forest sees, shape (n_rows, n_features)."""
        return np.hstack(
            [
                parameter.features(units[:, self._column[name]])
                for name, parameter in self.parameters.items()
            ]
        )

    def feature_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the range of each feature. With it, a forest keeps the distances as they are."""
        return np.zeros(self.n_features), np.ones(self.n_features)

    def describe(self) -> dict[str, Any]:
        """Return what distinguishes this space from others, as plain data."""
        return {name: parameter.describe() for name, parameter in self.parameters.items()}


def _parents_first(parameters: Mapping[str, Parameter]) -> list[str]:
    """Return the names in an order in which every parameter follows those of its condition."""
    order: dict[str, None] = {}
    open_names: set[str] = set()
    stack = list(parameters)[::-1]
    while stack:
        name = stack[-1]
        if name in order:
            stack.pop()
        elif name in open_names:  # its parents are in the order by now
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
    for parent, values in parameters[name].when.items():
        if parent not in parameters:
            raise ValueError(
                f"the condition of {name!r} refers to {parent!r}, which is not in the space."
            )
        if parameters[parent].n_values is None:
            raise ValueError(
                f"the condition of {name!r} refers to {parent!r}, which is continuous: only a "
                "discrete parameter can be part of a condition."
            )
        for value in values:
            try:
                parameters[parent].to_unit(value)
            except ValueError as error:
                raise ValueError(f"in the condition of {name!r}, {parent} {error}.") from None
