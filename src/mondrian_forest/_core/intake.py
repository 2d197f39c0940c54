"""What is done to every table that comes in: looked over once, then scaled.

NumPy would do this in a dozen passes; for a single row, each of its calls costs more than letting
the row join a tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel

FARTHEST = 1e30
"""Scaled features are clipped to this, so that float32 holds them and distances stay finite."""


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
    """Stretch ``low`` and ``high`` to the range of each column; return whether all is finite."""
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
    """Return mean, sum of squared deviations from it, and largest size (NaN if any label is NaN).

    What underflows is not to be taken for no spread at all: the sum is zero only where all labels
    are equal.
    """
    mean = 0.0
    squared_deviation = 0.0
    largest = 0.0
    is_constant = True
    for i in range(len(labels)):
        label = labels[i]
        is_constant &= label == labels[0]
        deviation = label - mean
        mean += deviation / (i + 1)
        squared_deviation += deviation * (label - mean)
        size = abs(label)
        if not size <= largest:  # also where the label is NaN, which then stays
            largest = size if largest == largest else largest
    if is_constant and len(labels) > 0:
        return labels[0], 0.0, largest
    return mean, max(squared_deviation, 5e-324), largest


@kernel
def scale_rows(
    table: NDArray[np.float64],
    unit: float,
    shifted_low: NDArray[np.float64],
    width: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """Map each feature from its range to [0, 1], in double precision; store in single."""
    for i in range(table.shape[0]):
        for f in range(table.shape[1]):
            scaled = (unit * table[i, f] - shifted_low[f]) / width[f]
            out[i, f] = np.float32(min(max(scaled, -FARTHEST), FARTHEST))
