"""A linear trend in the labels, fitted once and subtracted, so that a forest can extrapolate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST_RESIDUAL = 1e150
_SMALLEST_EIGENVALUE = 1e-10
"""Directions in which standardised features vary less, relative to the most, have no slope."""
_PENALTIES = np.geomspace(1e-12, 1e6, 73)
"""Of ridge regression, relative to the mean eigenvalue."""


class Trend(NamedTuple):
    """A linear function of the features."""

    level: float
    center: NDArray[np.float64]
    size: NDArray[np.float64]
    """Of each feature, halved, since the range of a float64 has no width in float64."""
    slope: NDArray[np.float64]
    """For each size."""

    def at(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return the values of the trend, shape (n_rows,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (0.5 * np.asarray(table, np.float64) - 0.5 * self.center) / self.size
            return np.asarray(self.level + scaled @ self.slope)

    def residuals(self, table: NDArray[Any], labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is left of the labels."""
        rest = labels - self.at(table)
        if not np.abs(rest).max() <= LARGEST_RESIDUAL:
            raise ValueError("X is too far from the rows of the fit for its linear trend.")
        return rest


def fit_trend(
    blocks: Iterable[tuple[slice, NDArray[np.float64]]],
    labels: NDArray[np.float64],
    is_used: NDArray[np.bool_],
    seen_range: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Trend:
    """Fit by ridge regression, block by block, to the rows that are used.

    The penalty is chosen by generalised cross-validation: with hardly more rows than features,
    least squares would explain any labels. Features that say the same share their slope.
    """
    low, high = seen_range
    center = 0.5 * low + 0.5 * high
    size = 0.5 * high - 0.5 * low
    size = np.where(size > 0.0, size, 1.0)
    n_rows = int(is_used.sum())
    n_features = len(center)
    level = float(labels[is_used].mean())
    sums, cross = np.zeros(n_features), np.zeros(n_features)
    gram = np.zeros((n_features, n_features))
    for rows, block in blocks:
        scaled = ((0.5 * block - 0.5 * center) / size)[is_used[rows]]
        sums += scaled.sum(axis=0)
        gram += scaled.T @ scaled
        cross += scaled.T @ (labels[rows][is_used[rows]] - level)
    gram -= np.outer(sums, sums / n_rows)
    deviation = np.sqrt(np.maximum(np.diag(gram), 0.0))
    deviation[deviation <= 1e-12 * np.sqrt(n_rows)] = np.inf  # constant: no slope
    values, vectors = np.linalg.eigh(gram / deviation[:, None] / deviation)
    is_kept = values > _SMALLEST_EIGENVALUE * max(values[-1], 1e-300)
    values, vectors = values[is_kept], vectors[:, is_kept]
    along = vectors.T @ (cross / deviation)
    total = float(((labels[is_used] - level) ** 2).sum())
    best, shares = np.inf, np.zeros(len(values))  # no slope at all
    for penalty in [*(_PENALTIES * max(values.mean(), 1e-300) if len(values) else ()), np.inf]:
        tried = 1.0 / (1.0 + penalty / values)
        rest = max(total - float((along**2 / values * tried * (2.0 - tried)).sum()), 0.0)
        score = rest / max(n_rows - 1.0 - float(tried.sum()), 1e-9) ** 2
        if score < best:
            best, shares = score, tried
    slope = (vectors @ (along / values * shares)) / deviation
    return Trend(level - float(slope @ (sums / n_rows)), center, size, slope)
