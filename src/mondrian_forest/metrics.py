"""Scores of predictions with uncertainty, checks of their calibration, scorers for scikit-learn.

A prediction is a ``PredictiveDistribution`` or a ``CalibratedDistribution``. For models of other
packages it is a pair (mean, std), which stands for Gaussian distributions. Smaller is better for
``rmse``, ``nlpd``, ``crps`` and ``pinball_loss``.

A good prediction is calibrated and sharp. It is calibrated if its intervals contain as many labels
as they should (``calibration_table``, ``pit``). It is sharp if its intervals are narrow
(``sharpness``). ``crps`` and ``nlpd`` reward both.

``permutation_importance`` tells which features the predictions need.
"""

from __future__ import annotations

import math
from inspect import signature
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._forest.validation import (
    check_integer,
    check_level,
    check_levels,
    check_share,
    refuse_what_is_no_number,
)

LEVELS = tuple(round(0.1 * k, 1) for k in range(1, 10))
"""The levels of the central intervals in the paper's calibration tables: 10% to 90%."""
_QUANTILE_LEVELS = (np.arange(10) + 0.5) / 10
"""The quantiles from which a quick CRPS is computed. It is 1 to 3% larger than the exact one."""


class _Distribution(Protocol):
    """What the metrics need of predictive distributions, one for each row."""

    def __len__(self) -> int: ...
    def mean(self) -> NDArray[np.float64]: ...
    def std(self) -> NDArray[np.float64]: ...
    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]: ...
    def cdf(self, y: ArrayLike) -> NDArray[np.float64]: ...
    def crps(self, y: ArrayLike) -> NDArray[np.float64]: ...
    def quantile(self, q: ArrayLike) -> NDArray[np.float64]: ...


Prediction = _Distribution | tuple[ArrayLike, ArrayLike]


class CalibrationTable(NamedTuple):
    """How many labels are inside central prediction intervals.

    Attributes
    ----------
    level : ndarray of shape (n_levels,)
        Probability of the interval according to the prediction.
    observed : ndarray of shape (n_levels,)
        Share of the labels that are inside the interval.
    difference : ndarray of shape (n_levels,)
        Observed share minus level. It is negative if intervals are too narrow.
    """

    level: NDArray[np.float64]
    observed: NDArray[np.float64]
    difference: NDArray[np.float64]

    @property
    def worst(self) -> float:
        """The largest absolute difference."""
        return float(np.abs(self.difference).max())


class PermutationImportance(NamedTuple):
    """How much worse predictions get if the values of one feature are shuffled.

    Attributes
    ----------
    importances_mean : ndarray of shape (n_features,)
        Mean of ``importances`` over the repeats.
    importances_std : ndarray of shape (n_features,)
        Standard deviation of ``importances`` over the repeats.
    importances : ndarray of shape (n_features, n_repeats)
        How much the mean CRPS rises, in the unit of y.
    """

    importances_mean: NDArray[np.float64]
    importances_std: NDArray[np.float64]
    importances: NDArray[np.float64]


def rmse(y_true: ArrayLike, prediction: Prediction) -> float:
    """Return the root mean squared error of the predictive mean.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    """
    labels, distribution = checked(y_true, prediction)
    error = labels - distribution.mean()
    largest = float(np.abs(error).max())
    if largest == 0.0:
        return 0.0
    # The square of an error may be out of the range of float64.
    return largest * math.sqrt(np.mean((error / largest) ** 2))


def nlpd(y_true: ArrayLike, prediction: Prediction) -> float:
    """Return the mean negative log predictive density.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    """
    labels, distribution = checked(y_true, prediction)
    return -float(np.mean(distribution.logpdf(labels)))


def crps(y_true: ArrayLike, prediction: Prediction) -> float:
    """Return the mean continuous ranked probability score, in the unit of y.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    """
    labels, distribution = checked(y_true, prediction)
    return float(np.mean(distribution.crps(labels)))


def pinball_loss(y_true: ArrayLike, prediction: Prediction, q: float) -> float:
    """Return the mean pinball loss of the predictive quantile of level ``q``.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    q : float
        Level, above 0 and below 1.
    """
    labels, distribution = checked(y_true, prediction)
    check_share("q", q)
    error = labels - distribution.quantile(q)
    return float(np.mean(np.maximum(q * error, (q - 1.0) * error)))


def pit(
    y_true: ArrayLike, prediction: Prediction, *, gaussian: bool = False
) -> NDArray[np.float64]:
    """Return the probability integral transform (PIT) of each label: the predictive cdf there.

    If a prediction is calibrated, its PIT values are uniform between 0 and 1.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    gaussian : bool, default=False
        Whether to use the Gaussian with the predictive mean and variance instead of the
        prediction's own cdf, as the paper does.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    labels, distribution = checked(y_true, prediction)
    if gaussian:
        distribution = _Gaussian(distribution.mean(), distribution.std())
    values: NDArray[np.float64] = distribution.cdf(labels)
    return values


def calibration_table(
    y_true: ArrayLike,
    prediction: Prediction,
    levels: ArrayLike = LEVELS,
    *,
    gaussian: bool = False,
) -> CalibrationTable:
    """Compare the share of labels inside central prediction intervals with their level.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)
    levels : array-like of shape (n_levels,), default=0.1 to 0.9
        Probabilities of the intervals.
    gaussian : bool, default=False
        Whether to use the intervals of the Gaussian with the predictive mean and variance instead
        of the prediction's own intervals, as the paper's tables do.

    Returns
    -------
    CalibrationTable
    """
    level = np.atleast_1d(check_levels("levels", levels))
    if len(level) == 0:
        raise ValueError("levels must have at least one number.")
    labels, distribution = checked(y_true, prediction)
    if hasattr(distribution, "covers") and not gaussian:
        observed = distribution.covers(labels, level).mean(axis=0)
    else:
        # A label is inside the central interval if its PIT value is within level / 2 of 1/2.
        distance = np.sort(np.abs(pit(labels, distribution, gaussian=gaussian) - 0.5))
        observed = np.searchsorted(distance, 0.5 * level, side="right") / len(distance)
    return CalibrationTable(level, observed, observed - level)


def sharpness(prediction: Prediction, level: float = 0.9) -> float:
    """Return the mean width of the central prediction intervals.

    Parameters
    ----------
    prediction : PredictiveDistribution or pair (mean, std)
    level : float, default=0.9
        Probability of the intervals.
    """
    level = check_level("level", level)
    distribution = _as_distribution(prediction)
    if len(distribution) == 0:
        raise ValueError("There are no rows to score.")
    if hasattr(distribution, "interval"):
        ends = distribution.interval(level)
    else:
        ends = distribution.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return float(np.mean(ends[:, 1] - ends[:, 0]))


def summary(y_true: ArrayLike, prediction: Prediction) -> dict[str, float]:
    """Return all scores at once.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
    prediction : PredictiveDistribution or pair (mean, std)

    Returns
    -------
    dict
        ``rmse``, ``nlpd``, ``crps``, ``coverage_90`` (the share of labels inside 90% intervals),
        ``width_90`` (the mean width of these intervals) and ``worst_coverage_error`` (the largest
        absolute difference of coverage and level, over levels of 10% to 90%).

    Examples
    --------
    >>> import numpy as np
    >>> from mondrian_forest.metrics import summary
    >>> y = np.random.default_rng(0).normal(size=10_000)
    >>> scores = summary(y, (np.zeros(10_000), np.ones(10_000)))
    >>> {name: round(score, 2) for name, score in scores.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'rmse': 1.0, 'nlpd': 1.42, 'crps': 0.56, 'coverage_90': 0.9, 'width_90': 3.29,
     'worst_coverage_error': 0.01}
    """
    labels, distribution = checked(y_true, prediction)
    table = calibration_table(labels, distribution)
    return {
        "rmse": rmse(labels, distribution),
        "nlpd": nlpd(labels, distribution),
        "crps": crps(labels, distribution),
        "coverage_90": float(table.observed[-1]),
        "width_90": sharpness(distribution, 0.9),
        "worst_coverage_error": table.worst,
    }


def neg_nlpd(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Score an estimator by minus its NLPD, so that larger is better as scikit-learn expects.

    Parameters
    ----------
    estimator : estimator
        A fitted forest, a fitted pipeline or parameter search with a forest, or any regressor
        whose ``predict`` takes ``return_std``.
    X : array-like of shape (n_rows, n_features)
    y : array-like of shape (n_rows,)

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import cross_val_score
    >>> from mondrian_forest import MondrianForestRegressor
    >>> from mondrian_forest.metrics import neg_nlpd
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = MondrianForestRegressor(random_state=0)
    >>> bool((cross_val_score(forest, X, y, scoring=neg_nlpd) > -6).all())
    True
    """
    return -nlpd(y, predict_distribution(estimator, X))


def neg_crps(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Score an estimator by minus its CRPS, so that larger is better as scikit-learn expects.

    Parameters
    ----------
    estimator : estimator
        As for ``neg_nlpd``.
    X : array-like of shape (n_rows, n_features)
    y : array-like of shape (n_rows,)
    """
    return -crps(y, predict_distribution(estimator, X))


def predict_distribution(estimator: Any, X: ArrayLike) -> Prediction:
    """Return the predictive distribution of an estimator, pipeline or parameter search.

    Parameters
    ----------
    estimator : estimator
        As for ``neg_nlpd``.
    X : array-like of shape (n_rows, n_features)

    Returns
    -------
    PredictiveDistribution, or pair (mean, std) if the estimator has no predict_distribution
    """
    if hasattr(estimator, "predict_distribution"):
        return cast(_Distribution, estimator.predict_distribution(X))
    if hasattr(estimator, "best_estimator_"):
        return predict_distribution(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        return predict_distribution(
            estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X
        )
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    predict = getattr(estimator, "predict", None)
    if predict is None or "return_std" not in signature(predict).parameters:
        raise TypeError(
            f"{type(estimator).__name__} predicts no uncertainty: it has no predict_distribution, "
            "and its predict does not take return_std."
        )
    mean, std = predict(X, return_std=True)
    return mean, std


def permutation_importance(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    n_repeats: int = 5,
    max_rows: int = 1000,
    random_state: Any = None,
) -> PermutationImportance:
    """Return how much worse predictions get if the values of one feature are shuffled.

    The values of one column of X are shuffled among its rows. Its importance is how much the mean
    CRPS of the predictions rises.

    Pass rows that the estimator has not learned. On rows that it has learned, features seem
    important from which it has only learned noise. A feature that tells nothing about the label has
    an importance near 0, which may be negative by chance. Correlated features share their
    importance: if one of them is shuffled, the estimator still has the others.

    Parameters
    ----------
    estimator : estimator
        As for ``neg_nlpd``, or a ``TableForest``. In a pipeline, the columns are shuffled before
        its first step.
    X : array-like or table of shape (n_rows, n_features)
        An array, or a table of pandas, polars or arrow.
    y : array-like of shape (n_rows,)
    n_repeats : int, default=5
        How many times each column is shuffled.
    max_rows : int, default=1000
        If there are more rows, a random sample of this size is used.
    random_state : int, RandomState instance or None, default=None
        Pass an int for reproducible results.

    Returns
    -------
    PermutationImportance

    Notes
    -----
    The CRPS is computed from ten quantiles, which takes a quarter of the time of the exact one. The
    CRPS of a Gaussian with the same mean and variance would take half as long, but it does not see
    features that only change the shape of the distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from mondrian_forest import MondrianForestRegressor
    >>> from mondrian_forest.metrics import permutation_importance
    >>> X = np.random.default_rng(0).random((600, 3))
    >>> y = np.sin(6 * X[:, 0]) + X[:, 1]
    >>> forest = MondrianForestRegressor(random_state=0).fit(X[:400], y[:400])
    >>> found = permutation_importance(forest, X[400:], y[400:], random_state=0)
    >>> found.importances_mean > 0.01
    array([ True,  True, False])
    """
    check_integer("n_repeats", n_repeats, 1)
    check_integer("max_rows", max_rows, 2)
    table = X if hasattr(X, "shape") else np.asarray(X)
    if len(table.shape) != 2:
        raise ValueError(f"X must have rows and columns, got shape {table.shape}.")
    n_rows, n_features = table.shape
    labels = _numbers("y", y)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"y must have one value for each of the {n_rows} rows of X, got shape {labels.shape}."
        )
    random = check_random_state(random_state)
    if n_rows > max_rows:
        some = np.sort(random.choice(n_rows, max_rows, replace=False))
        table, labels = _rows_of(table, some), labels[some]
    orders = [random.permutation(len(labels)) for _ in range(n_repeats)]

    def score(rows: Any) -> float:
        return _quick_crps(labels, predict_distribution(estimator, rows))

    before = score(table)
    rises = np.array(
        [
            [score(_with_shuffled_column(table, column, order)) - before for order in orders]
            for column in range(n_features)
        ]
    )
    return PermutationImportance(rises.mean(axis=1), rises.std(axis=1), rises)


class _Gaussian:
    """Gaussian predictions, for models that predict mean and standard deviation only."""

    def __init__(self, mean: NDArray[np.float64], std: NDArray[np.float64]) -> None:
        self._mean = mean
        self._std = std

    def __len__(self) -> int:
        return len(self._mean)

    def mean(self) -> NDArray[np.float64]:
        return self._mean

    def std(self) -> NDArray[np.float64]:
        return self._std

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        z = self._standardised(y)
        return -0.5 * z * z - np.log(self._std) - 0.5 * math.log(2.0 * math.pi)

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(ndtr(self._standardised(y)))

    def crps(self, y: ArrayLike) -> NDArray[np.float64]:
        z = self._standardised(y)
        density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        score = z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi)
        return np.asarray(self._std * score)

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        deviations = np.multiply.outer(self._std, ndtri(np.asarray(q, dtype=np.float64)))
        return np.asarray((self._mean + deviations.T).T)

    def _standardised(self, y: ArrayLike) -> NDArray[np.float64]:
        return (np.asarray(y, dtype=np.float64) - self._mean) / self._std


def _as_distribution(prediction: Prediction) -> _Distribution:
    if not isinstance(prediction, tuple | list):
        if not hasattr(prediction, "quantile") or not hasattr(prediction, "logpdf"):
            raise TypeError(
                "prediction must be a PredictiveDistribution or a pair (mean, std), "
                f"got {type(prediction).__name__}."
            )
        return prediction
    if len(prediction) != 2:
        raise ValueError(f"prediction must be a pair (mean, std), got {len(prediction)} values.")
    mean, std = (_numbers("mean and std", part) for part in prediction)
    if mean.ndim != 1 or mean.shape != std.shape:
        raise ValueError(
            "mean and std must have one value for each row, "
            f"got shapes {mean.shape} and {std.shape}."
        )
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(std))):
        raise ValueError("mean and std must be finite.")
    if not np.all(std > 0.0):
        raise ValueError(
            f"std must be positive, got {std.min():g}: replace zeros by a small positive number."
        )
    return _Gaussian(mean, std)


def _quick_crps(y_true: ArrayLike, prediction: Prediction) -> float:
    """Return the mean CRPS, nearly: twice the pinball loss, on average over ten quantiles."""
    labels, distribution = checked(y_true, prediction)
    error = labels[:, None] - distribution.quantile(_QUANTILE_LEVELS)
    losses = np.maximum(_QUANTILE_LEVELS * error, (_QUANTILE_LEVELS - 1.0) * error)
    return 2.0 * float(np.mean(losses))


def _rows_of(table: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of an array, or of a table of pandas, polars or arrow."""
    if isinstance(table, np.ndarray) or not hasattr(table, "take"):
        return table[rows]  # arrays and polars
    return table.take(rows)


def _with_shuffled_column(table: Any, column: int, order: NDArray[np.int64]) -> Any:
    """Return a table in which row i of one column has the value of row ``order[i]``."""
    if hasattr(table, "set_column"):  # arrow
        values = table.column(column).take(order)
        return table.set_column(column, table.schema.field(column), values)
    if hasattr(table, "with_columns"):  # polars
        return table.with_columns(table.to_series(column)[order])
    shuffled = table.copy()
    if hasattr(table, "isetitem"):  # pandas
        shuffled.isetitem(column, table.iloc[order, column].array)
    else:
        shuffled[:, column] = table[order, column]
    return shuffled


def checked(y_true: ArrayLike, prediction: Prediction) -> tuple[NDArray[np.float64], _Distribution]:
    """Return the labels as an array and the prediction as a distribution of as many rows."""
    distribution = _as_distribution(prediction)
    labels = _numbers("y_true", y_true)
    if labels.shape != (len(distribution),):
        raise ValueError(
            f"y_true must have one value for each of the {len(distribution)} rows predicted, "
            f"got shape {labels.shape}."
        )
    if len(labels) == 0:
        raise ValueError("There are no rows to score.")
    if not np.all(np.isfinite(labels)):
        raise ValueError("y_true must be finite.")
    return labels, distribution


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return numbers as an array. A table of one column is accepted, too."""
    refuse_what_is_no_number(name, values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise ValueError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, one for each row.") from None
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
