"""The points that may be asked for next, and the search for the best of them.

There are two kinds. ``ListedPoints`` holds all points of a small finite space, or those that the
user gave, and evaluates the acquisition at each of them. ``SampledPoints`` stands for a space that
is too large for that, and samples candidates. Both have the same methods: ``first`` and ``best``
return a point, ``take`` removes a point that was asked for, ``without`` returns a copy that lacks
further points, and ``restore`` makes all points available again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from .space import Point, Space

Constraint = Callable[[Point], Any]
Evaluate = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Takes features of shape (n_rows, n_features), returns the acquisition, shape (n_rows,)."""

MOST_LISTED = 20_000
"""Finite spaces up to this size are searched completely. In larger ones candidates are sampled."""

CELLS_PER_POINT = 10
"""``SampledPoints`` divides the range of each number into cells, at least this many for each point
that was asked for, and no two points share a cell. A forest is constant near a point that it knows,
so the search would return to the neighbourhood of the best point again and again."""

N_LOCAL = 5
"""Number of best points, and of best candidates, with a search in their neighbourhood."""

_LOCAL_SCALES = (0.2, 0.05, 0.01, 0.002)
"""Standard deviations of the steps to neighbours, as shares of the range of a parameter."""
_MOST_DRAWS = 100
"""How often random points are drawn if the constraint refuses many of them."""


class SpaceExhausted(RuntimeError):  # noqa: N818 - the end of a search is not an error
    """There is no point left to ask for."""


def is_allowed(constraint: Constraint | None, point: Point) -> bool:
    """Return whether a constraint allows a point."""
    if constraint is None:
        return True
    answer = np.asarray(constraint(dict(point)))
    return bool(answer.all()) if answer.dtype == bool else bool((answer >= 0).all())


class ListedPoints:
    """Points that are listed one by one, and which of them are still available."""

    def __init__(self, space: Space, points: list[Point]) -> None:
        self._space = space
        units = space.to_units(points)
        # A point that is listed twice counts once.
        self._index: dict[bytes, int] = {}
        kept: list[int] = []
        for row, key in enumerate(space.keys(units)):
            if key not in self._index:
                self._index[key] = len(kept)
                kept.append(row)
        self._points = [points[row] for row in kept]
        self._features = space.features(units[kept])
        self.is_available = np.ones(len(kept), dtype=bool)

    def restore(self) -> None:
        """Make every point available again."""
        self.is_available[:] = True

    def take(self, unit: NDArray[np.float64]) -> None:
        """Remove a point, if it is listed."""
        index = self._index.get(self._space.keys(unit[None])[0])
        if index is not None:
            self.is_available[index] = False

    def without(self, units: list[NDArray[np.float64]]) -> ListedPoints:
        """Return a copy that lacks further points."""
        other = copy.copy(self)
        other.is_available = self.is_available.copy()
        for unit in units:
            other.take(unit)
        return other

    def first(self, _number: int, random: np.random.Generator) -> Point:
        """Return a point for the time before the forest knows a value."""
        return dict(self._points[random.choice(self._available())])

    def best(
        self,
        evaluate: Evaluate,
        _near: list[NDArray[np.float64]],
        random: np.random.Generator,
    ) -> Point:
        """Return the point with the largest acquisition."""
        available = self._available()
        values = evaluate(self._features[available])
        return dict(self._points[available[random_argmax(values, random)]])

    def _available(self) -> NDArray[np.int64]:
        available = np.flatnonzero(self.is_available)
        if len(available) == 0:
            raise SpaceExhausted(
                f"all {len(self._points)} points have been asked for: there is nothing left to try."
            )
        return available


class SampledPoints:
    """Points of a space that is too large to list them.

    Parameters
    ----------
    space : Space
    constraint : callable or None
    n_candidates : int
        Number of points at which the first round of a search evaluates the acquisition.
    design : ndarray of shape (n_points, n_parameters)
        Unit rows of the points that are asked for first.
    """

    def __init__(
        self,
        space: Space,
        constraint: Constraint | None,
        n_candidates: int,
        design: NDArray[np.float64],
    ) -> None:
        self._space = space
        self._constraint = constraint
        self._n_candidates = n_candidates
        self._design = design
        self.restore()

    def restore(self) -> None:
        """Make every point available again."""
        self._asked: list[NDArray[np.float64]] = []
        self._n_cells = CELLS_PER_POINT
        self.taken: set[bytes] = set()

    def take(self, unit: NDArray[np.float64]) -> None:
        """Remove the cell of a point, after a refinement of the cells if there are too few."""
        self._asked.append(unit)
        if len(self._asked) * CELLS_PER_POINT > self._n_cells:
            self._n_cells *= 2
            self.taken = set(self._cells(np.array(self._asked)))
        else:
            self.taken.update(self._cells(unit[None]))

    def without(self, units: list[NDArray[np.float64]]) -> SampledPoints:
        """Return a copy that lacks the cells of further points."""
        other = copy.copy(self)
        if units:
            other.taken = self.taken | set(self._cells(np.array(units)))
        return other

    def first(self, number: int, random: np.random.Generator) -> Point:
        """Return a point for the time before the forest knows enough: of the design, or random."""
        unit = self._design[number] if number < len(self._design) else None
        if unit is None or not self._is_open(unit[None])[0]:
            unit = self._draw(1, random)[0]
        return self._space.from_unit(unit)

    def best(
        self,
        evaluate: Evaluate,
        near: list[NDArray[np.float64]],
        random: np.random.Generator,
    ) -> Point:
        """Return a point with a large acquisition.

        The first candidates are random points and neighbours of the unit rows ``near``, of which
        there must be one at least. Then the neighbourhood of the best candidates is searched, on
        finer and finer scales.
        """
        features = self._space.features
        half = max(1, self._n_candidates // 2)
        local = neighbours(near, half, random, _LOCAL_SCALES)
        units = np.concatenate([self._draw(half, random), self._open(local)])
        values = evaluate(features(units))
        for scale in _LOCAL_SCALES:
            top = np.argsort(-values, kind="stable")[:N_LOCAL]
            local = self._open(neighbours(list(units[top]), half // 8 + 1, random, (scale,)))
            units = np.concatenate([units[top], local])
            found = evaluate(features(local)) if len(local) else np.empty(0)
            values = np.concatenate([values[top], found])
        return self._space.from_unit(units[random_argmax(values, random)])

    def _draw(self, n: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Return unit rows of ``n`` random open points, or of fewer if they are hard to find."""
        found: list[NDArray[np.float64]] = []
        n_found = 0
        for _ in range(_MOST_DRAWS):
            units = self._open(random.random((n, len(self._space))))
            found.append(units)
            n_found += len(units)
            if n_found >= n:
                break
        if n_found == 0:
            raise SpaceExhausted(
                f"none of {n * _MOST_DRAWS} random points is allowed and new: the constraint "
                "allows hardly any point, or all have been asked for."
            )
        return np.concatenate(found)[:n]

    def _open(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the snapped rows that are open, one for each cell."""
        if len(units) == 0:
            return units
        units = self._space.snap(units)
        return units[self._is_open(units)]

    def _is_open(self, units: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rows may be asked for: the first of each cell, if it is free and allowed."""
        seen: set[bytes] = set()
        is_open = np.zeros(len(units), dtype=bool)
        for row, cell in enumerate(self._cells(units)):
            if cell in self.taken or cell in seen:
                continue
            seen.add(cell)
            is_open[row] = self._constraint is None or is_allowed(
                self._constraint, self._space.from_unit(units[row])
            )
        return is_open

    def _cells(self, units: NDArray[np.float64]) -> list[bytes]:
        return self._space.keys(units, self._n_cells)


def sobol_design(space: Space, n_points: int, seed: int) -> NDArray[np.float64]:
    """Return unit rows of a scrambled Sobol sequence, snapped to the space."""
    # The sequence is balanced for powers of two only. The rows in excess are left out.
    sequence = qmc.Sobol(len(space), scramble=True, seed=np.random.default_rng([seed]))
    exponent = math.ceil(math.log2(max(n_points, 1)))
    return space.snap(sequence.random_base2(exponent))[:n_points]


def neighbours(
    units: list[NDArray[np.float64]],
    n: int,
    random: np.random.Generator,
    scales: tuple[float, ...],
) -> NDArray[np.float64]:
    """Return ``n`` rows near given rows, with some coordinates moved by a step of random scale."""
    chosen = np.array(units)[random.integers(len(units), size=n)]
    n_parameters = chosen.shape[1]
    steps = random.choice(scales, size=(n, 1)) * random.standard_normal(chosen.shape)
    is_moved = random.random(chosen.shape) < max(0.5, 1.0 / n_parameters)
    is_moved[np.arange(n), random.integers(n_parameters, size=n)] = True
    # A step changes a discrete parameter only if its cells are small. So some coordinates are drawn
    # anew, and so are those of parameters that have just become active.
    is_redrawn = random.random(chosen.shape) < 0.1
    redrawn = random.random(chosen.shape)
    near = np.where(is_moved, np.where(is_redrawn, redrawn, chosen + steps), chosen)
    return np.where(np.isnan(near), redrawn, near)


def random_argmax(values: NDArray[np.float64], random: np.random.Generator) -> int:
    """Return the index of the largest value. Ties are broken at random, and NaN counts least."""
    values = np.where(np.isnan(values), -np.inf, values)
    return int(random.choice(np.flatnonzero(values == values.max())))


def checked_candidates(space: Space, candidates: Mapping[str, Iterable[Any]]) -> list[Point]:
    """Return the points of a table of candidates, without their inactive parameters."""
    if not isinstance(candidates, Mapping) or set(candidates) != set(space.names):
        raise ValueError(
            f"candidates must have a list of values for each parameter: {', '.join(space.names)}."
        )
    columns = {name: list(candidates[name]) for name in space.names}
    lengths = {len(column) for column in columns.values()}
    if lengths == {0} or len(lengths) > 1:
        raise ValueError(
            f"candidates must have non-empty lists of the same length, got {sorted(lengths)}."
        )
    try:
        return space.points(columns)
    except ValueError as error:
        raise ValueError(f"in the candidates, {error}") from None
