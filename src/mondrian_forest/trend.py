"""A linear trend in the labels, fitted once and subtracted, so that a forest can extrapolate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SMALLEST_EIGENVALUE = 1e-10
"""Directions in which standardised features vary less, relative to the most, have no slope."""


class Trend(NamedTuple):
    """A linear function of the features; ``slope`` is about ``center``."""

    level: float
    center: NDArray[np.float64]
    slope: NDArray[np.float64]

    def at(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return the values of the trend, shape (n_rows,)."""
        return np.asarray(self.level + (table - self.center) @ self.slope)


def fit_trend(
    blocks: Iterable[tuple[slice, NDArray[np.float64]]],
    labels: NDArray[np.float64],
    center: NDArray[np.float64],
    width: NDArray[np.float64],
) -> Trend:
    """Fit by least squares, block by block; features that say the same share their slope.

    ``center`` and ``width`` are rough places and sizes of the features.
    """
    n_features = len(center)
    level = float(labels.mean())
    sums = np.zeros(n_features)
    gram = np.zeros((n_features, n_features))
    cross = np.zeros(n_features)
    for rows, block in blocks:
        scaled = (block - center) / width
        sums += scaled.sum(axis=0)
        gram += scaled.T @ scaled
        cross += scaled.T @ (labels[rows] - level)
    mean = sums / len(labels)
    gram -= np.outer(sums, mean)
    values, vectors = np.linalg.eigh(gram)
    is_used = values > _SMALLEST_EIGENVALUE * max(values[-1], 0.0)
    used = vectors[:, is_used]
    slope = used @ ((used.T @ cross) / values[is_used]) / width
    return Trend(level, center + mean * width, slope)
