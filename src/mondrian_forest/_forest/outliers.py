"""What keeps single extreme values from ruling a forest: a warp of the features, limits of labels.

A range from minimum to maximum is what one value says. With one outlier, all other rows share a
thousandth of it, where cuts hardly ever fall. So the default maps each feature through quantiles.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.features import warp_rows

LEVELS = np.array([0.01, *(step / 20 for step in range(1, 20)), 0.99])
"""Of the quantiles. What is outside of them has no say in the map."""
MOST_ROWS = 10_000
"""From so many rows quantiles are found, at most."""
FEWEST_LABELS = 100
"""With fewer labels, nobody knows which one is extreme."""
LABEL_LEVEL = 0.99
LABEL_FACTOR = 20.0
"""A label is extreme if it is so many times as far from the median as 99% of the others. Of a
million values of a Gaussian or of an exponential distribution, none is; of a log-normal one with a
standard deviation of 2, 70 are."""


class Warp(NamedTuple):
    """A map of features to coordinates: straight lines through some points, for each feature.

    It is half the share of rows below a value, half the value itself. The outermost points are the
    1% and the 99% quantile, and have the coordinates 0 and 1. Beyond them the map goes on at the
    mean slope, so that distances from the data keep their meaning.
    """

    knots: NDArray[np.float64]
    """Shape (n_features, n_knots): values, ascending."""
    places: NDArray[np.float64]
    """The coordinates that belong to them."""
    counts: NDArray[np.int64]
    """How many points each feature has; what is beyond does not count."""

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
    """Return the map for a table, or for a sample of its rows."""
    n_features = table.shape[1]
    knots = np.zeros((n_features, len(LEVELS)))
    places = np.zeros((n_features, len(LEVELS)))
    counts = np.zeros(n_features, np.int64)
    ordered = np.sort(table, axis=0)
    chosen = np.ceil(LEVELS * len(ordered)).astype(np.int64) - 1
    for f in range(n_features):
        values = 2.0 * (0.5 * ordered[chosen, f].astype(np.float64))  # no half may underflow
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


def _one_unit(usual: float, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ends of a unit for a feature that nearly always has the same value.

    It is as long as most of the others are away: that of a rare flag is its height.
    """
    others = values[values != usual].astype(np.float64)
    with np.errstate(over="ignore"):
        unit = float(np.median(np.abs(others - usual))) if len(others) > 0 else 1.0
    unit = min(max(unit, 4.0 * float(np.spacing(abs(usual))), 1e-300), 1e307)
    return np.array([usual, usual + unit] if usual < 1e308 else [usual - unit, usual])


class LabelLimits(NamedTuple):
    """Labels are learned as the nearest number between these two."""

    low: float = -math.inf
    high: float = math.inf

    def apply(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the labels as they are learned: the same array, if none is extreme."""
        if len(labels) > 0 and not (self.low <= labels.min() and labels.max() <= self.high):
            return np.clip(labels, self.low, self.high)
        return labels


def warn_of_limits(limits: LabelLimits, *, stacklevel: int) -> None:
    """Say that labels are not learned as they are."""
    warnings.warn(
        f"Some labels lie outside [{limits.low:.6g}, {limits.high:.6g}], more than "
        f"{LABEL_FACTOR:g} times as far from the median as 99% of all labels. Each is learned as "
        "the nearest end of that interval; use robust=False to learn labels as they are.",
        stacklevel=stacklevel,
    )


def learn_limits(labels: NDArray[np.float64]) -> LabelLimits:
    """Return the limits beyond which a label is extreme."""
    if len(labels) < FEWEST_LABELS:
        return LabelLimits()
    middle = float(np.median(labels))
    distance = np.abs(labels - middle)
    distance = distance[distance > 0.0]  # many labels may be equal, zero for example
    if len(distance) < FEWEST_LABELS:
        return LabelLimits()
    most = LABEL_FACTOR * float(np.quantile(distance, LABEL_LEVEL, method="lower"))
    return LabelLimits(middle - most, middle + most)
