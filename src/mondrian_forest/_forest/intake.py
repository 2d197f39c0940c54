"""Data from users: checked, and as the kernels take it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import validate_data

from .._core.features import is_finite, survey_features, survey_labels
from .._core.moments import Moments
from .scaling import Range, blocks_of
from .validation import LARGEST_LABEL, check_rows_and_labels, refuse_what_is_no_number


class Survey(NamedTuple):
    """What one pass over rows and labels finds."""

    range: Range
    """Lowest and highest value of each feature, also among rows seen before."""
    moments: Moments
    """Of these labels."""
    is_sound: bool
    """Whether all is finite, and no label too large."""


def survey(table: NDArray[Any], labels: NDArray[np.float64], seen: Range | None) -> Survey:
    """Look over a table once; ``seen`` is the range of rows seen before."""
    if seen is None:
        low, high = np.full(table.shape[1], np.inf), np.full(table.shape[1], -np.inf)
    else:
        low, high = seen[0].copy(), seen[1].copy()
    all_finite = True
    for _, block in blocks_of(table):
        all_finite &= survey_features(block, low, high)
    mean, squared_deviation, largest = survey_labels(labels)
    moments = Moments(len(labels), mean, squared_deviation)
    return Survey((low, high), moments, all_finite and largest <= LARGEST_LABEL)


def label_moments(labels: NDArray[np.float64]) -> Moments:
    """Return count, mean and squared deviation of labels."""
    return Moments(len(labels), *survey_labels(labels)[:2])


def resolution_of(labels: NDArray[np.float64]) -> float:
    """Return the smallest difference of two labels, of some thousands of them."""
    values = np.unique(labels[:: max(-(-len(labels) // 10_000), 1)])
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


class _Untrained(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Takes note of number and names of features for scikit-learn while training data is checked.

    The forest itself stays as it is if a fit fails.
    """


_Untrained.__name__ = "MondrianForestRegressor"  # in messages


def check_training_data(
    X: ArrayLike, y: ArrayLike
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.object_] | None]:
    """Validate the rows and labels of a fit; return also the names of the features, if any."""
    noted = _Untrained()
    table, labels = check_rows_and_labels(noted, X, y, reset=True)
    return table, labels, getattr(noted, "feature_names_in_", None)


def check_table(
    forest: BaseEstimator, X: ArrayLike, n_features: int, *, has_names: bool
) -> NDArray[Any]:
    """Validate rows for prediction."""
    if _is_plain_table(X, n_features, has_names) and all(
        is_finite(block) for _, block in blocks_of(X)
    ):
        return X
    refuse_what_is_no_number("X", X)
    table: NDArray[Any] = validate_data(forest, X, dtype=[np.float64, np.float32], reset=False)
    return table


def plain_data(
    X: ArrayLike, y: ArrayLike, n_features: int, *, has_names: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return data that needs no more checks than ``survey`` makes on its way, else None."""
    if (
        _is_plain_table(X, n_features, has_names)
        and type(y) is np.ndarray
        and y.dtype == np.float64
        and y.shape == X.shape[:1]
        and y.flags.forc
        and y.flags.writeable  # else the kernels would be compiled once more
    ):
        return X, y
    return None


def _is_plain_table(
    X: ArrayLike, n_features: int, has_names: bool
) -> TypeGuard[NDArray[np.float64]]:
    """Whether a table is what the kernels take, if only its numbers are finite.

    The checks of scikit-learn take longer than the prediction of a row, or learning it.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == n_features
        and len(X) > 0
        and not has_names
    )
