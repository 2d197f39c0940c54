"""Conformal calibration: prediction intervals that hold what they promise, whatever the model.

The forest's cdf at the label of a row that it has not learned, the PIT value, would be uniform if
the forest were right. On rows set aside it is what it is, and its empirical quantiles say which of
the forest's levels stand for which true probabilities. Every row keeps the shape of its own
distribution: only the levels are relabelled, the same way for all rows. If rows are exchangeable, a
new PIT value is equally likely to fall into each gap between those set aside, so that the intervals
between two of them have the coverage that their ranks say, on average over rows (distributional
conformal prediction: Chernozhukov, Wüthrich and Zhu, PNAS 2021).

Streams drift, and then nothing is exchangeable. There, the reference values are the latest ones,
and each level follows the stream: the rank that stands for it moves up when too few labels were
below and down when too many were (adaptive conformal inference: Gibbs and Candès, NeurIPS 2021).
That bounds the error of the long-run coverage for any sequence of rows.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ._forest.intake import check_data
from .distribution import PredictiveDistribution, checked_labels, checked_levels
from .forest import MondrianForestRegressor

_GRID = np.arange(1, 200) / 200
"""The levels that follow a stream: multiples of 0.005, those of the usual intervals among them."""
_WINDOW = 2000
"""Fewest reference values that are kept of a stream."""
_EDGE = 1e-12
"""Levels this close to 0 or 1 are taken for 0 or 1. A label that is far beyond all that the forest
expects has a cdf that differs from 1 by rounding errors; its distance is lost there."""
_FEWEST_IN_CELL = 25
"""Densities are histograms of PIT values; with fewer in a cell their noise alone would cost more
than 0.02 in log score."""
_N_QUANTILES = 100
"""Moments and scores of a calibrated distribution are averages over so many quantiles."""


class CalibratedDistribution:
    """Predictive distributions whose levels have been relabelled.

    :meth:`ConformalForest.predict_distribution` returns it. The guarantee is that of ``interval``;
    quantiles, cdf and density come from a smoothed version of the same relabelling. There are the
    methods of a :class:`PredictiveDistribution` but for ``sample`` and ``decompose``; mean,
    variance and CRPS are averages over 100 quantiles, which leave out the outermost tails.

    Parameters
    ----------
    distribution : PredictiveDistribution
        As the forest predicts it.
    reference : array-like of shape (n_reference,)
        PIT values of other rows.
    ranks : array-like of shape (199,), default=None
        Rank among the reference values, as a share of their number, that stands for the level
        k / 200. None: the level itself.
    """

    def __init__(
        self,
        distribution: PredictiveDistribution,
        reference: ArrayLike,
        ranks: ArrayLike | None = None,
    ) -> None:
        self._distribution = distribution
        self._reference = np.sort(np.asarray(reference, dtype=np.float64))
        self._ranks = _GRID if ranks is None else np.asarray(ranks, dtype=np.float64)
        if self._reference.ndim != 1 or not np.all(
            (self._reference >= 0.0) & (self._reference <= 1.0)
        ):
            raise ValueError("reference must be a list of numbers from 0 to 1.")
        if self._ranks.shape != _GRID.shape or not np.all(np.isfinite(self._ranks)):
            raise ValueError(f"ranks must be {len(_GRID)} finite numbers.")
        n_values = len(self._reference)
        n_cells = min(max((n_values + 1) // _FEWEST_IN_CELL, 1), len(_GRID) + 1)
        self._levels = np.linspace(0.0, 1.0, n_cells + 1)
        self._knots = np.interp(
            np.sort(self._rank_of(self._levels)),
            np.linspace(0.0, 1.0, n_values + 2),
            np.concatenate(([0.0], self._reference, [1.0])),
        )
        self._knots[0], self._knots[-1] = 0.0, 1.0

    def __len__(self) -> int:
        return len(self._distribution)

    def __repr__(self) -> str:
        return f"<CalibratedDistribution of {len(self)} rows>"

    def __getitem__(self, rows: Any) -> CalibratedDistribution:
        """Return the distributions of the selected rows."""
        return CalibratedDistribution(self._distribution[rows], self._reference, self._ranks)

    def interval(self, level: float = 0.9) -> NDArray[np.float64]:
        """Return the central prediction interval that holds a label with at least this probability.

        Its ends are the forest's quantiles at two reference values; between two of them, at the
        outer one. If there were too few to calibrate so high a level, the interval is infinite.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            Lower and upper end.
        """
        if not (isinstance(level, Real) and 0.0 <= level <= 1.0):
            raise ValueError(f"level must be a number from 0 to 1, got {level!r}.")
        ((lower, upper),) = self._ends(np.array([float(level)]))
        # A value of 1 as the lower end: the labels that made it so are above the last quantile.
        return self._distribution.quantile([min(lower, 1.0 - _EDGE), max(upper, _EDGE)])

    def covers(self, y: ArrayLike, levels: ArrayLike) -> NDArray[np.bool_]:
        """Return whether ``y[i]`` is in the intervals of row i, shape (n_rows, n_levels)."""
        values = _rounded(self._distribution.cdf(y))[:, None]
        lower, upper = self._ends(np.atleast_1d(np.asarray(levels, dtype=np.float64))).T
        return np.asarray((lower <= values) & (values <= upper))

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles, without the guarantee of ``interval``.

        Parameters
        ----------
        q : float or array-like of shape (k,)
            Levels between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows,) for a number, (n_rows, k) for k levels
        """
        own = np.interp(checked_levels(q), self._levels, self._knots)
        return self._distribution.quantile(_rounded(own))

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return P(label <= ``y[i]``), or P(label <= y) for a number, of row i, shape (n_rows,)."""
        return np.asarray(np.interp(self._distribution.cdf(y), self._knots, self._levels))

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        width = np.diff(self._knots)
        # A cell of no width has its mass in a point, most likely at infinity: there is no density.
        stretch = np.full(len(width), -np.inf)
        stretch[width > 0.0] = -np.log(len(width) * width[width > 0.0])
        cell = np.searchsorted(self._knots[1:-1], self._distribution.cdf(y))
        return np.asarray(self._distribution.logpdf(y) + stretch[cell])

    def pdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        return np.exp(self.logpdf(y))

    def mean(self) -> NDArray[np.float64]:
        """Return the predictive means, shape (n_rows,)."""
        middle, away = self._from_the_middle()
        return np.asarray(middle + away.mean(axis=1))

    def var(self) -> NDArray[np.float64]:
        """Return the predictive variances, shape (n_rows,)."""
        return np.asarray(self._from_the_middle()[1].var(axis=1))

    def std(self) -> NDArray[np.float64]:
        """Return the predictive standard deviations, shape (n_rows,)."""
        return np.sqrt(self.var())

    def crps(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the continuous ranked probability score of row i at ``y[i]``, or at y."""
        labels = checked_labels(y, len(self))
        levels, quantiles = self._midpoints()
        error = labels[:, None] - quantiles
        return np.asarray(2.0 * np.maximum(levels * error, (levels - 1.0) * error).mean(axis=1))

    def _rank_of(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        grid = np.concatenate(([0.0], _GRID, [1.0]))
        return np.interp(levels, grid, np.concatenate(([0.0], self._ranks, [1.0])))

    def _ends(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the forest's levels of the ends of intervals, shape (n_levels, 2)."""
        ends = np.stack([0.5 - 0.5 * levels, 0.5 + 0.5 * levels], axis=1)
        return np.sort(_outward(self._reference, self._rank_of(ends), is_lower=ends < 0.5))

    def _from_the_middle(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the middle quantile, and how far the others are from it.

        Where labels are large and close to each other, these differences are exact, and the mean of
        the quantiles is not.
        """
        quantiles = self._midpoints()[1]
        middle = quantiles[:, _N_QUANTILES // 2]
        return middle, quantiles - middle[:, None]

    def _midpoints(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return levels that represent equal shares, and the quantiles there."""
        levels = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        own = np.interp(levels, self._levels, self._knots)
        return levels, self._distribution.quantile(np.clip(own, _EDGE, 1.0 - _EDGE))


def _rounded(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take levels that are as good as 0 or 1 for that."""
    return np.where(levels < _EDGE, 0.0, np.where(levels > 1.0 - _EDGE, 1.0, levels))


def _outward(
    reference: NDArray[np.float64], ranks: NDArray[np.float64], is_lower: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the reference values (sorted) of these ranks; beyond the last ones, 0 and 1.

    Between two of them it is the outer one, so that intervals hold at least what they should.
    """
    n_gaps = len(reference) + 1
    place = np.round(ranks * n_gaps, 6)  # a few rounding errors off a whole number
    rank = np.where(is_lower, np.floor(place), np.ceil(place)).astype(np.int64)
    padded = np.concatenate(([0.0], reference, [1.0]))
    return np.asarray(padded[np.clip(rank, 0, n_gaps)])


class ConformalForest(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A forest whose prediction intervals are calibrated on rows that it has not learned.

    Either ``fit`` sets rows aside itself, or ``calibrate`` takes a forest that is fitted, and rows
    that it has not seen. If these rows, n of them, and new ones are exchangeable, the interval of
    level p holds a new label with a probability of at least p and at most p + 2 / (n + 1), on
    average over rows: marginally, not for every group of rows. The coverage that the rows set aside
    happen to give varies about that with standard deviation ``sqrt(p (1 - p) / n)``.

    ``partial_fit`` predicts rows before it learns them, and keeps the calibration current by the
    rule of adaptive conformal inference, which needs no exchangeability: over T rows of any stream,
    learned in calls of m, the share of labels below an end of an interval is off by at most
    ``(1 + step m) / (step T)`` if ``step m`` is below one, and ``2 m / T`` otherwise, for levels
    that are multiples of 0.01.

    Parameters
    ----------
    estimator : MondrianForestRegressor, default=None
        The forest. None: one with default parameters.
    calibration_share : float, default=0.2
        Share of the rows that ``fit`` sets aside.
    step : float, default=0.005
        How far the rank that stands for a level moves with each row of a stream, at most. Larger
        steps follow drift sooner, and make intervals more restless.
    random_state : int, RandomState instance or None, default=None
        Decides which rows are set aside.

    Attributes
    ----------
    forest_ : MondrianForestRegressor
        The fitted forest.
    reference_ : ndarray of shape (n_reference,)
        PIT values of the rows set aside; of a stream, the latest ones, as many or 2,000.
    ranks_ : ndarray of shape (199,)
        Rank among the reference values, as a share of their number, that stands for the level
        k / 200: the level itself until there is a stream.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mondrian_forest import ConformalForest
    >>> X, y = load_diabetes(return_X_y=True)
    >>> calibrated = ConformalForest(random_state=0).fit(X[:300], y[:300])
    >>> lower, upper = calibrated.predict_interval(X[300:], 0.8).T
    >>> bool(0.7 < ((lower <= y[300:]) & (y[300:] <= upper)).mean() < 0.95)
    True
    """

    forest_: MondrianForestRegressor
    reference_: NDArray[np.float64]
    ranks_: NDArray[np.float64]

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
        n_rows = np.shape(y)[0]
        if n_rows < 2:
            raise ValueError(f"ConformalForest needs at least 2 rows, got {n_rows}.")
        learned_X, kept_X, learned_y, kept_y = train_test_split(
            X,
            y,
            test_size=min(max(round(self.calibration_share * n_rows), 1), n_rows - 1),
            random_state=self.random_state,
        )
        forest = self._new_forest().fit(learned_X, learned_y)
        self.reference_ = _pit(forest, kept_X, kept_y)
        self.forest_, self.ranks_ = forest, _GRID
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
        self.reference_ = _pit(self.estimator, X, y)
        self.forest_, self.ranks_ = self.estimator, _GRID
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
            if hasattr(self.estimator, "n_samples_seen_"):
                raise ValueError("The estimator is fitted already: calibrate it before the stream.")
            self.forest_ = self._new_forest().partial_fit(X, y)
            self.reference_ = self.ranks_ = _GRID
            return self
        values = _pit(self.forest_, X, y)
        self.forest_.partial_fit(X, y)
        is_lower = _GRID < 0.5
        ends = _outward(np.sort(self.reference_), self.ranks_, is_lower)
        ascending = np.sort(values)
        below = np.where(
            is_lower,
            np.searchsorted(ascending, ends, side="left"),
            np.searchsorted(ascending, ends, side="right"),
        )
        # All rows of a call were predicted with the same ranks. More than one step for all of them
        # together would overshoot.
        move = min(self.step * len(values), 1.0) * (_GRID - below / len(values))
        n_kept = max(_WINDOW, len(self.reference_))
        self.reference_ = np.concatenate((self.reference_, values))[-n_kept:]
        self.ranks_ = self.ranks_ + move
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the mean of the label of each row, as the forest does."""
        check_is_fitted(self)
        return np.asarray(self.forest_.predict(X))

    def predict_distribution(self, X: ArrayLike) -> CalibratedDistribution:
        """Predict the calibrated distribution of the label of each row."""
        check_is_fitted(self)
        return CalibratedDistribution(
            self.forest_.predict_distribution(X), self.reference_, self.ranks_
        )

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Predict calibrated quantiles, shape (n_samples,) for a number, (n_samples, k) for k.

        The guarantee is that of ``predict_interval`` alone.
        """
        return self.predict_distribution(X).quantile(q)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """Predict the central interval that holds the label with at least probability ``level``.

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
    _, labels = check_data(forest, X, y)
    return _rounded(forest.predict_distribution(X).cdf(labels))
