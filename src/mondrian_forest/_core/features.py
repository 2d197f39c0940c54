"""What is done to every table that comes in: it is surveyed, warped, then scaled.

NumPy would need a dozen passes. For a single row, each of its calls costs more than letting the row
join a tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays.kernel import kernel
from .moments import SMALLEST, Moments, add_label

FARTHEST = 1e30
"""Scaled features are clipped to this. So float32 can hold them, and distances stay finite."""
_LARGEST = 1.7e308
"""Warped features are clipped to this, near the end of float64."""


@kernel
def is_finite(table: NDArray[np.float64]) -> bool:
    for i in range(table.shape[0]):
        for f in range(table.shape[1]):
            if not np.isfinite(table[i, f]):
                return False
    return True


@kernel
def survey_features(
    table: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> bool:
    """Widen ``low`` and ``high`` to the range of each column; return whether all is finite."""
    is_finite = True
    for i in range(table.shape[0]):
        for f in range(table.shape[1]):
            value = table[i, f]
            is_finite &= np.isfinite(value)
            low[f] = value if value < low[f] else low[f]
            high[f] = value if value > high[f] else high[f]
    return is_finite


@kernel
def survey_labels(labels: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return mean, squared deviation and largest absolute value of labels.

    The largest value is NaN if any label is NaN. The squared deviation is zero only if all labels
    are equal, even where it underflows. The moments are those of the differences from the first
    label: for labels that are large and close to each other, these are more precise than the mean.
    """
    first = labels[0] if len(labels) > 0 else 0.0
    of_differences = Moments(0, 0.0, 0.0)
    largest = 0.0
    is_constant = True
    for i in range(len(labels)):
        label = labels[i]
        is_constant &= label == first
        of_differences = add_label(of_differences, label - first)
        size = abs(label)
        if not size <= largest:  # true for NaN, too, which then stays
            largest = size if largest == largest else largest
    if is_constant and len(labels) > 0:
        return first, 0.0, largest
    _, mean, squared_deviation = of_differences
    return first + mean, max(squared_deviation, SMALLEST), largest


@kernel
def scale_rows(
    table: NDArray[np.float64],
    unit: float,
    shifted_low: NDArray[np.float64],
    width: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """Map each feature from its range to [0, 1], computed in double precision.

    ``unit`` multiplies all numbers. It is 1, or 0.5 if the width of a range would overflow.
    """
    for i in range(table.shape[0]):
        for f in range(table.shape[1]):
            scaled = (unit * table[i, f] - shifted_low[f]) / width[f]
            out[i, f] = np.float32(min(max(scaled, -FARTHEST), FARTHEST))


@kernel
def warp_rows(
    table: NDArray[np.float64],
    knots: NDArray[np.float64],
    places: NDArray[np.float64],
    counts: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Map each feature f by a piecewise linear function through (knots[f], places[f]).

    Feature f has ``counts[f]`` points. Beyond the first and the last point, the slope is that of
    the line through these two. Numbers are halved before they are subtracted, since the difference
    could be too large for float64.
    """
    for f in range(table.shape[1]):
        last = counts[f] - 1
        for i in range(table.shape[0]):
            value = table[i, f]
            left, right = 0, last
            if knots[f, 0] <= value <= knots[f, last]:
                while right - left > 1:
                    middle = (left + right) // 2
                    if knots[f, middle] <= value:
                        left = middle
                    else:
                        right = middle
            start = left if value <= knots[f, last] else last
            step = (0.5 * value - 0.5 * knots[f, start]) / (
                0.5 * knots[f, right] - 0.5 * knots[f, left]
            )
            half = 0.5 * places[f, start] + step * (0.5 * places[f, right] - 0.5 * places[f, left])
            out[i, f] = min(max(2.0 * half, -_LARGEST), _LARGEST)
