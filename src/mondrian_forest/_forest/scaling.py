"""How features become coordinates: a map to [0, 1], then a weight for each feature.

The paper maps each feature by its minimum and maximum. Then one outlier decides: all other rows
share a thousandth of the range, where cuts hardly ever fall. So the default maps each feature
through quantiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._core.arrays.memory import empty
from .._core.features import scale_rows, warp_rows

LEVELS = np.array([0.01, *(step / 20 for step in range(1, 20)), 0.99])
"""Levels of the quantiles. Values outside of them do not affect the map."""
MOST_ROWS = 10_000
"""The quantiles are computed from at most this many rows."""
WIDEST = 2.0
"""How many times the known range new rows may span before the map is learned again. A warp is also
learned again if they span less than half of it."""
_BLOCK = 65536

Range = tuple[NDArray[np.float64], NDArray[np.float64]]


def blocks_of(table: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield a table in blocks of the one type and layout that kernels are compiled for."""
    if len(table) == 1 and table.dtype == np.float64 and table.flags.carray:
        yield slice(0, 1), table  # a single row must not wait for what follows
        return
    for rows in slices(len(table), _BLOCK):
        yield rows, np.require(table[rows], np.float64, ["C", "W"])


def slices(length: int, step: int) -> list[slice]:
    """Return consecutive slices of at most ``step`` that cover ``length``."""
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


@dataclass(frozen=True, eq=False)
class Scaling:
    """The map from features to the coordinates that the trees see.

    A feature is mapped to [0, 1], by a warp or by the straight line from its range, and then
    multiplied by its weight. Values outside of the range are mapped to coordinates outside of
    [0, 1]. The arithmetic is in float64; coordinates are stored as float32.
    """

    range: Range
    """Lower and upper ends of what is mapped to [0, 1]."""
    weights: NDArray[np.float64]
    """The rate at which each feature is cut; their mean is 1."""
    warp: Warp | None = None

    @cached_property
    def line(self) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Unit, start and width of each feature's line, as ``scale_rows`` takes them."""
        low, high = self.range
        if self.warp is not None:
            low, high = np.zeros(len(self.weights)), np.ones(len(self.weights))
        # Halving keeps the difference of two numbers near the end of the float64 range finite.
        with np.errstate(over="ignore"):
            unit = 1.0 if np.all(np.isfinite(high - low)) else 0.5
        width = unit * high - unit * low
        width = np.where(width == 0.0, unit * unit_of_constant(low), width)
        with np.errstate(divide="ignore", over="ignore"):
            width /= self.weights  # a feature of weight zero is everywhere at zero
        return unit, unit * low, width

    def writeable(self) -> Scaling:
        """Return the same scaling in arrays that can be written to.

        Arrays that come over a network cannot, and kernels would be compiled once more for them.
        """

        def own(array: NDArray[Any]) -> NDArray[Any]:
            return np.require(array, requirements="W")

        low, high = self.range
        warp = None if self.warp is None else Warp(*map(own, self.warp))
        return Scaling((own(low), own(high)), own(self.weights), warp)

    @property
    def _finite_width(self) -> NDArray[np.float64]:
        width = self.line[2]
        return np.where(np.isinf(width), 0.0, width)

    def apply(
        self, table: NDArray[Any], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the coordinates of rows, in ``out`` if it is given."""
        scaled = empty(table.shape, np.float32) if out is None else out
        for rows, block in blocks_of(table):
            warped = block if self.warp is None else self.warp.apply(block)
            scale_rows(warped, *self.line, scaled[rows])
        return scaled

    def invert(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features of coordinates; those of weight zero are at their low end."""
        unit, shifted_low, _ = self.line
        plain = (rows * self._finite_width + shifted_low) / unit
        return np.asarray(plain if self.warp is None else self.warp.invert(plain))

    def in_units_of_range(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return rows in units of each feature's range, before weights."""
        if self.warp is not None:
            return self.warp.apply(table)
        low, high = self.range
        # Halved: the range of a float64 has no width in float64.
        size = 0.5 * high - 0.5 * low
        with np.errstate(over="ignore"):
            return np.asarray((0.5 * table - 0.5 * low) / np.where(size > 0.0, size, 1.0))

    def is_outgrown(self, seen: Range) -> bool:
        """Return whether rows span so much more than the range that it should be found again."""
        if self.warp is not None:
            return False
        (low, high), (seen_low, seen_high) = self.range, seen
        with np.errstate(over="ignore"):
            is_wide = 0.5 * seen_high - 0.5 * seen_low > WIDEST * (0.5 * high - 0.5 * low)
        return bool(np.any(is_wide & (self.weights > 0.0)))

    def widened(
        self, seen: Range, rows: NDArray[np.float32], n_rows: int
    ) -> tuple[Scaling, NDArray[np.float32]]:
        """Return the scaling with another range, and the coordinates of the first ``n_rows``."""
        new = replace(self, range=seen)
        unit, shifted_low, _ = self.line
        new_unit, new_shifted_low, new_width = new.line
        moved = empty(rows.shape, np.float32)
        width = self._finite_width
        for block in slices(n_rows, _BLOCK):
            half = (rows[block] * width + shifted_low) * (0.5 / unit)
            moved[block] = (half - new_shifted_low * (0.5 / new_unit)) / (
                new_width * (0.5 / new_unit)
            )
        return new, moved

    def rewarped(
        self, rows: NDArray[np.float32], n_rows: int
    ) -> tuple[Scaling, NDArray[np.float32]] | None:
        """Learn the warp again if the bulk of the rows spans much more, or less, than it did.

        Returns None if it does not.
        """
        if self.warp is None:
            return None
        width = self._finite_width
        some = rows[: n_rows : -(-n_rows // MOST_ROWS)] * width
        margin = len(some) // 100
        low, high = np.sort(some, axis=0)[[margin, -1 - margin]]
        span = high - low  # it was 1, or 0 for a constant feature
        if not np.any((span > WIDEST) | ((span > 0.0) & (span < 1.0 / WIDEST))):
            return None
        warp = learn_warp(self.warp.invert(some))
        new = Scaling(warp.ends, self.weights, warp)
        moved = empty(rows.shape, np.float32)
        for block in slices(n_rows, _BLOCK):
            known = self.warp.invert(rows[block] * width)
            scale_rows(warp.apply(known), *new.line, moved[block])
        return new, moved


def learn_scaling(
    table: NDArray[Any],
    seen: Range,
    feature_range: tuple[ArrayLike, ArrayLike] | None,
    n_features: int,
    *,
    robust: bool,
) -> Scaling:
    """Return the scaling with equal weights, by a warp or by a straight line.

    ``table`` are rows from which a warp is learned, and ``seen`` is the range of all rows. A given
    range is that of the first ``n_features`` columns; a mean function may be one column more.
    """
    weights = np.ones(len(seen[0]))
    if robust and feature_range is None:
        warp = learn_warp(table)
        return Scaling(warp.ends, weights, warp)
    if feature_range is None:
        return Scaling(seen, weights)
    given = _given_range(feature_range, n_features)
    low, high = (np.append(end, known[n_features:]) for end, known in zip(given, seen, strict=True))
    return Scaling((low, high), weights)


def _given_range(feature_range: Any, n_features: int) -> Range:
    try:
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), n_features).copy()
            for end in feature_range
        )
    except (TypeError, ValueError, OverflowError):
        low = high = np.zeros(0)
    if low.size == 0 or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise ValueError(
            "feature_range must be a pair (low, high) of finite numbers or of arrays of "
            f"{n_features} numbers, one for each feature, with low < high, "
            f"got {feature_range!r}."
        )
    return low, high


class Warp(NamedTuple):
    """A map of features to coordinates: straight lines through some points, for each feature.

    A coordinate is the mean of two numbers: the share of rows below the value, and the value
    itself on a straight line. The outermost points are the 1% and the 99% quantile, at the
    coordinates 0 and 1. Beyond them the map goes on at the mean slope, so that distances from the
    data keep their meaning.
    """

    knots: NDArray[np.float64]
    """Shape (n_features, n_knots): values, ascending."""
    places: NDArray[np.float64]
    """The coordinates that belong to them."""
    counts: NDArray[np.int64]
    """How many points each feature has; later columns are unused."""

    def apply(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return the coordinates of rows."""
        out = np.empty(table.shape)
        plain = np.require(table, np.float64, ["C", "W"])
        warp_rows(plain, self.knots, self.places, self.counts, out)
        return out

    def invert(self, coordinates: NDArray[Any]) -> NDArray[np.float64]:
        """Return the rows that have these coordinates."""
        out = np.empty(coordinates.shape)
        plain = np.require(coordinates, np.float64, ["C", "W"])
        warp_rows(plain, self.places, self.knots, self.counts, out)
        return out

    @property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values with the coordinates 0 and 1."""
        features = np.arange(len(self.counts))
        return self.knots[:, 0].copy(), self.knots[features, self.counts - 1]


def learn_warp(table: NDArray[Any]) -> Warp:
    """Return the map for a table, or for a sample of its rows.

    Each knot is a quarter of the way from a quantile to the next value, so that no row's own value
    is kept in the map: the map stays when rows are forgotten.
    """
    n_features = table.shape[1]
    knots = np.zeros((n_features, len(LEVELS)))
    places = np.zeros((n_features, len(LEVELS)))
    counts = np.zeros(n_features, np.int64)
    ordered = np.sort(table, axis=0)
    chosen = np.ceil(LEVELS * len(ordered)).astype(np.int64) - 1
    following = np.where(chosen + 1 < len(ordered), chosen + 1, np.maximum(chosen - 1, 0))
    for f in range(n_features):
        half, other = 0.5 * ordered[chosen, f].astype(np.float64), 0.5 * ordered[following, f]
        values = 2.0 * (half + 0.25 * (other - half))  # no half may underflow
        found, first = np.unique(values, return_index=True)
        last = np.append(first[1:], len(values)) - 1
        if 0.5 * found[-1] - 0.5 * found[0] > 0.0:
            level = 0.5 * (LEVELS[first] + LEVELS[last])
            share = (level - level[0]) / (level[-1] - level[0])
            line = (0.5 * found - 0.5 * found[0]) / (0.5 * found[-1] - 0.5 * found[0])
            place = 0.5 * share + 0.5 * line
        else:
            found = _one_unit(found[0], ordered[:, f])
            place = np.array([0.0, 1.0])
        counts[f] = len(found)
        knots[f, : counts[f]], places[f, : counts[f]] = found, place
    return Warp(knots, places, counts)


def unit_of_constant(value: ArrayLike) -> NDArray[np.float64]:
    """Return the unit of a feature that always has the same value: its size, and 1 for zero.

    Then it does not matter in which unit the feature is measured.
    """
    size = np.abs(value)
    return np.where(size > 0.0, size, 1.0)


def _one_unit(usual: float, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ends of the unit of a feature that nearly always has the same value.

    Its length is the median distance of the other values from the usual one. For a rare flag that
    is the height of the flag. If there are no other values, see ``unit_of_constant``.
    """
    others = values[values != usual].astype(np.float64)
    unit = float(unit_of_constant(usual))
    if len(others) > 0:
        with np.errstate(over="ignore"):
            unit = float(np.median(np.abs(others - usual)))
    unit = min(max(unit, 4.0 * float(np.spacing(abs(usual))), 1e-300), 1e307)
    return np.array([usual, usual + unit] if usual < 1e308 else [usual - unit, usual])
