"""Conformal calibration: prediction intervals that hold what they promise, whatever the model.

The forest's cdf at the label of a row that it has not learned, the PIT value, would be uniform if
the forest were right. On rows set aside it is what it is, and its empirical quantiles say which of
the forest's levels stand for which true probabilities::

    the forest's quantile of level knots[k]   is the calibrated quantile of level   k / n_cells

Every row keeps the shape of its own distribution: only the levels are relabelled, the same way for
all rows. If rows are exchangeable, a new PIT value is equally likely to fall into each gap between
those set aside, so that calibrated intervals have the stated coverage exactly, on average over rows
(distributional conformal prediction: Chernozhukov, Wüthrich and Zhu, PNAS 2021).

Streams drift, and then nothing is exchangeable. There, each knot follows the stream: it moves up a
little when it was exceeded and down when not, in proportion to its level (adaptive conformal
inference: Gibbs and Candès, NeurIPS 2021). That bounds the error of the long-run coverage for any
sequence of rows.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from .distribution import PredictiveDistribution, checked_labels, checked_levels
from .forest import MondrianForestRegressor

_MOST_CELLS = 200
"""Calibrated levels are multiples of 0.005, those of the usual intervals among them."""
_LEAST, _MOST = 5e-324, 1.0 - 2.0**-53
"""Ends of the levels that have finite quantiles. A label far beyond all that the forest expects has
a cdf that rounds to 1; it is still above the last of these quantiles."""
_N_QUANTILES = 100
"""Moments and scores of a calibrated distribution are averages over so many quantiles."""


class CalibratedDistribution:
    """Predictive distributions whose levels have been relabelled.

    :meth:`ConformalForest.predict_distribution` returns it. It has the methods of a
    :class:`PredictiveDistribution` but for ``sample`` and ``decompose``; mean, variance and CRPS
    are averages over 100 quantiles.

    Parameters
    ----------
    distribution : PredictiveDistribution
        As the forest predicts it.
    knots : array-like of shape (n_cells - 1,)
        Level of the forest's quantile that is the calibrated quantile of level k / n_cells.
    """

    def __init__(self, distribution: PredictiveDistribution, knots: ArrayLike) -> None:
        self._distribution = distribution
        # Those that follow a stream may leave the unit interval, and overtake each other.
        inner = np.sort(np.clip(np.asarray(knots, dtype=np.float64), 0.0, 1.0))
        if inner.ndim != 1 or not np.all(np.isfinite(inner)):
            raise ValueError("knots must be a list of finite numbers.")
        self._knots = np.concatenate(([0.0], inner, [1.0]))
        self._levels = np.linspace(0.0, 1.0, len(self._knots))

    def __len__(self) -> int:
        return len(self._distribution)

    def __repr__(self) -> str:
        return f"<CalibratedDistribution of {len(self)} rows>"

    def __getitem__(self, rows: Any) -> CalibratedDistribution:
        """Return the distributions of the selected rows."""
        return CalibratedDistribution(self._distribution[rows], self._knots[1:-1])

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles; between calibrated levels they are interpolated.

        Parameters
        ----------
        q : float or array-like of shape (k,)
            Levels between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows,) for a number, (n_rows, k) for k levels
        """
        levels = checked_levels(q)
        own = np.clip(np.interp(levels, self._levels, self._knots), _LEAST, _MOST)
        own = np.where((levels == 0.0) | (levels == 1.0), levels, own)
        return self._distribution.quantile(own)

    def interval(self, level: float = 0.9) -> NDArray[np.float64]:
        """Return the central prediction interval that holds a label with at least this probability.

        Its ends are calibrated quantiles; between two of them, the outer one. If there were too few
        rows to calibrate so high a level, the interval is infinite.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            Lower and upper end.
        """
        if not (isinstance(level, Real) and 0.0 <= level <= 1.0):
            raise ValueError(f"level must be a number from 0 to 1, got {level!r}.")
        n_cells = len(self._knots) - 1
        beyond = round(n_cells * (0.5 - 0.5 * float(level)), 6)  # a few rounding errors off
        lower = self._knots[int(np.floor(beyond))]
        upper = self._knots[int(np.ceil(n_cells - beyond))]
        return self._distribution.quantile([min(lower, _MOST), max(upper, _LEAST)])

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return P(label <= ``y[i]``), or P(label <= y) for a number, of row i, shape (n_rows,)."""
        return np.asarray(np.interp(self._distribution.cdf(y), self._knots, self._levels))

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        cell = np.searchsorted(self._knots[1:-1], self._distribution.cdf(y))
        with np.errstate(divide="ignore"):
            stretch = -np.log(np.diff(self._knots)) - np.log(len(self._knots) - 1)
        return np.asarray(self._distribution.logpdf(y) + stretch[cell])

    def pdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        return np.exp(self.logpdf(y))

    def mean(self) -> NDArray[np.float64]:
        """Return the predictive means, shape (n_rows,)."""
        return np.asarray(self._midpoints()[1].mean(axis=1))

    def var(self) -> NDArray[np.float64]:
        """Return the predictive variances, shape (n_rows,)."""
        return np.asarray(self._midpoints()[1].var(axis=1))

    def std(self) -> NDArray[np.float64]:
        """Return the predictive standard deviations, shape (n_rows,)."""
        return np.sqrt(self.var())

    def crps(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the continuous ranked probability score of row i at ``y[i]``, or at y."""
        labels = checked_labels(y, len(self))
        levels, quantiles = self._midpoints()
        error = labels[:, None] - quantiles
        return np.asarray(2.0 * np.maximum(levels * error, (levels - 1.0) * error).mean(axis=1))

    def _midpoints(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return levels that represent equal shares, and the quantiles there."""
        levels = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        return levels, self.quantile(levels)


class ConformalForest(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A forest whose prediction intervals are calibrated on rows that it has not learned.

    Either ``fit`` sets rows aside itself, or ``calibrate`` takes a forest that is fitted, and rows
    that it has not seen. Then, if these rows and new ones are exchangeable, the interval of level p
    holds a new label with probability p on average over rows: marginally, not for every group of
    rows. With n rows set aside, the coverage that they give varies about p with standard deviation
    ``sqrt(p (1 - p) / n)``.

    ``partial_fit`` predicts rows before it learns them, and keeps the calibration current by the
    rule of adaptive conformal inference, which needs no exchangeability: over T rows of any stream,
    learned in calls of m, the coverage of each end is off by at most ``(1 + step m) / (step T)``,
    if ``step m`` is below one.

    Parameters
    ----------
    estimator : MondrianForestRegressor, default=None
        The forest. None: one with default parameters.
    calibration_share : float, default=0.2
        Share of the rows that ``fit`` sets aside.
    step : float, default=0.005
        How far a knot moves with each row of a stream, at most. Larger steps follow drift sooner,
        and make intervals more restless.
    random_state : int, RandomState instance or None, default=None
        Decides which rows are set aside.

    Attributes
    ----------
    forest_ : MondrianForestRegressor
        The fitted forest.
    knots_ : ndarray of shape (n_cells - 1,)
        Level of the forest's quantile that is the calibrated quantile of level k / n_cells; there
        are 200 cells, or one more than rows set aside if these are fewer.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mondrian_forest import ConformalForest
    >>> X, y = load_diabetes(return_X_y=True)
    >>> calibrated = ConformalForest(random_state=0).fit(X[:300], y[:300])
    >>> lower, upper = calibrated.predict_interval(X[300:], 0.8).T
    >>> bool(0.7 < ((lower <= y[300:]) & (y[300:] <= upper)).mean() < 0.9)
    True
    """

    forest_: MondrianForestRegressor
    knots_: NDArray[np.float64]

    def __init__(
        self,
        estimator: MondrianForestRegressor | None = None,
        *,
        calibration_share: float = 0.2,
        step: float = 0.005,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.calibration_share = calibration_share
        self.step = step
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> ConformalForest:
        """Fit the forest to a part of the rows, and calibrate it on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        self._check_parameters()
        if y is None:
            raise ValueError("ConformalForest requires y to be passed, but the target y is None.")
        check_consistent_length(X, y)
        learned, kept = self._set_aside(_num_samples(X))
        forest = self._new_forest().fit(_safe_indexing(X, learned), _safe_indexing(y, learned))
        knots = _calibrated_knots(forest, _safe_indexing(X, kept), _safe_indexing(y, kept))
        self.forest_, self.knots_ = forest, knots
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> ConformalForest:
        """Calibrate the estimator, which is fitted, on rows that it has not learned.

        It is not copied: ``partial_fit`` lets this very forest learn more.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        if self.estimator is None:
            raise ValueError("calibrate needs a fitted forest: ConformalForest(forest).calibrate.")
        self._check_parameters()
        check_is_fitted(self.estimator)
        self.knots_ = _calibrated_knots(self.estimator, X, y)
        self.forest_ = self.estimator
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> ConformalForest:
        """Follow a stream: compare labels with their predictions first, then learn them.

        The first rows of a stream, if there was no fit, are learned only; the calibration then
        starts from the forest's own levels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        self._check_parameters()
        if not hasattr(self, "forest_"):
            self.forest_ = self._new_forest().partial_fit(X, y)
            self.knots_ = np.arange(1, _MOST_CELLS) / _MOST_CELLS
            return self
        values = np.sort(_pit(self.forest_, X, y))
        self.forest_.partial_fit(X, y)
        levels = np.arange(1, len(self.knots_) + 1) / (len(self.knots_) + 1)
        # All rows of a call were predicted with the same knots, so that is what they say about. A
        # step of one for all of them together puts right what was found; more would overshoot.
        found = np.searchsorted(values, self.knots_, side="right") / len(values)
        self.knots_ = self.knots_ + min(self.step * len(values), 1.0) * (levels - found)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the mean of the label of each row, as the forest does."""
        check_is_fitted(self)
        return np.asarray(self.forest_.predict(X))

    def predict_distribution(self, X: ArrayLike) -> CalibratedDistribution:
        """Predict the calibrated distribution of the label of each row."""
        check_is_fitted(self)
        return CalibratedDistribution(self.forest_.predict_distribution(X), self.knots_)

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Predict calibrated quantiles, shape (n_samples,) for a number, (n_samples, k) for k."""
        return self.predict_distribution(X).quantile(q)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """Predict the central interval that holds the label with probability ``level``.

        See :meth:`CalibratedDistribution.interval`.
        """
        return self.predict_distribution(X).interval(level)

    def _new_forest(self) -> MondrianForestRegressor:
        if self.estimator is None:
            return MondrianForestRegressor(random_state=self.random_state)
        forest: MondrianForestRegressor = clone(self.estimator)
        return forest

    def _check_parameters(self) -> None:
        for name in ("calibration_share", "step"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
                raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}.")
        if self.estimator is not None and not isinstance(self.estimator, MondrianForestRegressor):
            raise TypeError(
                f"estimator must be a MondrianForestRegressor, got {type(self.estimator).__name__}."
            )

    def _set_aside(self, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the rows to learn, and to calibrate with."""
        if n_rows < 2:
            raise ValueError(
                f"ConformalForest needs at least 2 rows to set some aside, got {n_rows}."
            )
        n_kept = min(max(round(self.calibration_share * n_rows), 1), n_rows - 1)
        order = check_random_state(self.random_state).permutation(n_rows)
        return np.sort(order[n_kept:]), np.sort(order[:n_kept])

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        check_is_fitted(self)
        return int(self.forest_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features, when X has names that are all strings."""
        check_is_fitted(self)
        names: NDArray[Any] = self.forest_.feature_names_in_
        return names


def _pit(forest: MondrianForestRegressor, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Return the forest's cdf at labels that are checked as for a fit."""
    _, labels = forest._check_data(X, y, reset=False)
    return forest.predict_distribution(X).cdf(labels)


def _calibrated_knots(
    forest: MondrianForestRegressor, X: ArrayLike, y: ArrayLike
) -> NDArray[np.float64]:
    values = np.sort(_pit(forest, X, y))
    n_gaps = len(values) + 1
    n_cells = min(n_gaps, _MOST_CELLS)
    cell = np.arange(1, n_cells)
    # Outward where a level is between two values, so that intervals hold at least what they should.
    rank = np.where(2 * cell < n_cells, cell * n_gaps // n_cells, -(-cell * n_gaps // n_cells))
    return np.asarray(values[rank - 1])
