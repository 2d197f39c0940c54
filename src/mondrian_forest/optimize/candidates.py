"""Points that may be asked for: all of a finite space, a first design, neighbours of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from .space import Point, Space


class Pool:
    """Points that can be looked at one and all, and which of them have been taken."""

    def __init__(self, space: Space, points: list[Point]) -> None:
        units = space.to_units(points)
        # A point that is given twice counts once.
        self._place: dict[bytes, int] = {}
        kept: list[int] = []
        for number, key in enumerate(space.keys(units)):
            if key not in self._place:
                self._place[key] = len(kept)
                kept.append(number)
        self._points = [points[number] for number in kept]
        self.features = space.features(units[kept])
        self._is_left = np.ones(len(kept), dtype=bool)

    def __len__(self) -> int:
        return len(self._points)

    def point(self, place: int) -> Point:
        """Return a point by its place."""
        return dict(self._points[place])

    def restore(self) -> None:
        """Make every point available again."""
        self._is_left[:] = True

    def take(self, key: bytes) -> None:
        """Leave out the point with a key, if there is one."""
        if key in self._place:
            self._is_left[self._place[key]] = False

    def left(self, pending: Iterable[bytes]) -> NDArray[np.int64]:
        """Return the places of points that are neither taken nor pending."""
        is_left = self._is_left.copy()
        is_left[[self._place[key] for key in pending if key in self._place]] = False
        return np.flatnonzero(is_left)


class Design:
    """Points of a scrambled Sobol sequence, snapped to the space."""

    def __init__(self, space: Space, n_points: int, seed: int) -> None:
        # The balance of the sequence asks for a power of two; a prefix of it is what is used.
        sequence = qmc.Sobol(len(space), scramble=True, seed=np.random.default_rng([seed]))
        exponent = math.ceil(math.log2(max(n_points, 1)))
        self._units = space.snap(sequence.random_base2(exponent))

    def __getitem__(self, number: int) -> NDArray[np.float64]:
        return np.asarray(self._units[number])


def neighbours(
    units: list[NDArray[np.float64]],
    n: int,
    random: np.random.Generator,
    scales: tuple[float, ...],
) -> NDArray[np.float64]:
    """Return ``n`` rows near given ones: some coordinates moved, by one of the scales."""
    if not units:
        return np.empty((0, 0))
    chosen = np.array(units)[random.integers(len(units), size=n)]
    n_parameters = chosen.shape[1]
    steps = random.choice(scales, size=(n, 1)) * random.standard_normal(chosen.shape)
    moved = random.random(chosen.shape) < max(0.5, 1.0 / n_parameters)
    moved[np.arange(n), random.integers(n_parameters, size=n)] = True
    # A step takes a discrete parameter out of its cell only if the cell is small: some are drawn
    # anew, and so are those that have just become active.
    anew = random.random(chosen.shape) < 0.1
    drawn = random.random(chosen.shape)
    near = np.where(moved, np.where(anew, drawn, chosen + steps), chosen)
    return np.where(np.isnan(near), drawn, near)


def argmax(values: NDArray[np.float64], random: np.random.Generator) -> int:
    """Return the place of the largest value, one of them at random."""
    values = np.where(np.isnan(values), -np.inf, values)
    return int(random.choice(np.flatnonzero(values == values.max())))


def checked_candidates(space: Space, candidates: Mapping[str, Iterable[Any]]) -> list[Point]:
    """Return the points of a table; inactive parameters are left out of them."""
    if not isinstance(candidates, Mapping) or set(candidates) != set(space.names):
        raise ValueError(
            f"candidates must have a list of values for each parameter: {', '.join(space.names)}."
        )
    columns = {name: list(candidates[name]) for name in space.names}
    lengths = {len(column) for column in columns.values()}
    if lengths == {0} or len(lengths) > 1:
        raise ValueError(f"candidates must have lists of one length, got {sorted(lengths)}.")
    try:
        return space.points(columns)
    except ValueError as error:
        raise ValueError(f"in the candidates, {error}") from None
