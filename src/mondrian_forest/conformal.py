"""Conformal calibration: prediction intervals with guaranteed coverage, for any forest.

The PIT value of a row is the forest's cdf at its label. If the forest were calibrated, the PIT
values of held-out rows would be uniform. If they are not, their empirical quantiles tell which of
the forest's levels has which true probability. So the levels are relabelled, in the same way for
all rows, and every row keeps the shape of its own distribution. If rows are exchangeable, the PIT
value of a new row falls into each interval between two neighbouring held-out PIT values with equal
probability. Hence an interval between two of them has the coverage that their ranks say, on average
over rows (distributional conformal prediction: Chernozhukov, Wüthrich and Zhu, PNAS 2021).

The rows of a stream are not exchangeable if the stream drifts. There, the reference values are the
latest PIT values, and each level has a rank among them, which follows the stream. The rank moves up
if too few labels were below the quantile, and down if too many were (adaptive conformal inference:
Gibbs and Candès, NeurIPS 2021). This bounds the error of the long-run coverage for any stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ._forest.validation import (
    check_level,
    check_levels,
    check_rows_and_labels,
    check_share,
)
from .distribution import PredictiveDistribution, checked_labels
from .forest import MondrianForestRegressor

_GRID = np.arange(1, 200) / 200
"""The levels that follow a stream. They include the ends of all intervals of a whole percentage."""
_WINDOW = 2000
"""Number of reference values that a stream keeps, at least."""
_EDGE = 1e-12
"""Levels this close to 0 or 1 count as 0 or 1. If a label is far outside of the prediction, its cdf
differs from 0 or 1 by rounding errors only, and does not tell how far outside it is."""
_FEWEST_IN_CELL = 25
"""The density is a histogram with at least this number of PIT values in each cell. With fewer, the
noise of the histogram alone would cost more than 0.02 in log score."""
_N_QUANTILES = 100
"""Number of quantiles over which moments and scores are averaged."""


class CalibratedDistribution:
    """Predictive distributions with relabelled levels.

    :meth:`ConformalForest.predict_distribution` returns this object. The coverage of ``interval``
    is guaranteed. Quantiles, cdf and density come from a smoothed version of the same relabelling,
    without a guarantee. The methods are those of a :class:`PredictiveDistribution`, without
    ``sample``, ``components`` and ``decompose``. Mean, variance and CRPS are averages over 100
    quantiles, which leave out the outermost tails.

    Parameters
    ----------
    distribution : PredictiveDistribution
        The forest's prediction.
    reference : array-like of shape (n_reference,)
        PIT values of held-out rows.
    ranks : array-like of shape (199,), default=None
        The rank of the levels 1/200, 2/200, ... among the reference values, as a share of their
        number. None: each rank is the level itself.
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
        # Level self._levels[k] becomes the forest's own level self._knots[k], linear in between.
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
        """Return the central interval that contains the label with at least this probability.

        Its ends are the forest's quantiles at two reference values. If an end falls between two
        reference values, the outer one counts. If there are too few reference values for such a
        high level, the interval is infinite.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            Lower and upper end.
        """
        ((lower, upper),) = self._ends(np.array([check_level("level", level)]))
        # A lower end of 1 comes from labels above all quantiles below level 1. Keep them inside.
        return self._distribution.quantile([min(lower, 1.0 - _EDGE), max(upper, _EDGE)])

    def covers(self, y: ArrayLike, levels: ArrayLike) -> NDArray[np.bool_]:
        """Return whether ``y[i]`` is inside the intervals of row i, shape (n_rows, n_levels)."""
        values = _rounded(self._distribution.cdf(y))[:, None]
        lower, upper = self._ends(np.atleast_1d(np.asarray(levels, dtype=np.float64))).T
        return np.asarray((lower <= values) & (values <= upper))

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles, without the guarantee of ``interval``.

        Parameters
        ----------
        q : float or array-like of shape (k,)
            Levels from 0 to 1.

        Returns
        -------
        ndarray of shape (n_rows,) for a number, (n_rows, k) for k levels
        """
        own = np.interp(check_levels("q", q), self._levels, self._knots)
        return self._distribution.quantile(_rounded(own))

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return P(label <= ``y[i]``) of row i, or P(label <= y) of a number, shape (n_rows,)."""
        return np.asarray(np.interp(self._distribution.cdf(y), self._knots, self._levels))

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        width = np.diff(self._knots)
        # A cell without width has its mass in one point, which has no density.
        stretch = np.full(len(width), -np.inf)
        stretch[width > 0.0] = -np.log(len(width) * width[width > 0.0])
        cell = np.searchsorted(self._knots[1:-1], self._distribution.cdf(y))
        return np.asarray(self._distribution.logpdf(y) + stretch[cell])

    def pdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        return np.exp(self.logpdf(y))

    def mean(self) -> NDArray[np.float64]:
        """Return the predictive means, shape (n_rows,)."""
        middle, deviations = self._around_the_middle()
        return np.asarray(middle + deviations.mean(axis=1))

    def var(self) -> NDArray[np.float64]:
        """Return the predictive variances, shape (n_rows,)."""
        return np.asarray(self._around_the_middle()[1].var(axis=1))

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
        """Return the ranks of levels among the reference values, as shares of their number."""
        grid = np.concatenate(([0.0], _GRID, [1.0]))
        return np.interp(levels, grid, np.concatenate(([0.0], self._ranks, [1.0])))

    def _ends(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the levels at which the forest's quantiles are the ends, shape (n_levels, 2)."""
        ends = np.stack([0.5 - 0.5 * levels, 0.5 + 0.5 * levels], axis=1)
        return np.sort(_outward(self._reference, self._rank_of(ends), is_lower=ends < 0.5))

    def _around_the_middle(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the middle quantile, and the deviations of all quantiles from it.

        If labels are large and close to each other, the deviations are exact, while the sum of the
        quantiles would be rounded.
        """
        quantiles = self._midpoints()[1]
        middle = quantiles[:, _N_QUANTILES // 2]
        return middle, quantiles - middle[:, None]

    def _midpoints(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the midpoints of equally large ranges of levels, and the quantiles there."""
        levels = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        own = np.interp(levels, self._levels, self._knots)
        return levels, self._distribution.quantile(np.clip(own, _EDGE, 1.0 - _EDGE))


def _rounded(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return levels with those next to 0 or 1 rounded to 0 or 1."""
    return np.where(levels < _EDGE, 0.0, np.where(levels > 1.0 - _EDGE, 1.0, levels))


def _outward(
    reference: NDArray[np.float64], ranks: NDArray[np.float64], is_lower: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the reference values (sorted) of these ranks. Beyond the outermost, return 0 and 1.

    If a rank falls between two of them, the outer one counts, so that intervals contain at least as
    many labels as they should.
    """
    n_gaps = len(reference) + 1
    exact = np.round(ranks * n_gaps, 6)  # removes rounding errors from whole numbers
    rank = np.where(is_lower, np.floor(exact), np.ceil(exact)).astype(np.int64)
    padded = np.concatenate(([0.0], reference, [1.0]))
    return np.asarray(padded[np.clip(rank, 0, n_gaps)])


class ConformalForest(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A forest with prediction intervals that are calibrated on held-out rows.

    ``fit`` holds out rows itself. ``calibrate`` takes a fitted forest and rows that it has not
    learned. If the n held-out rows and new rows are exchangeable, the interval of level p contains
    a new label with a probability of at least p and at most p + 2 / (n + 1). This is an average
    over rows; it need not hold within a group of rows. The coverage varies with the choice of the
    held-out rows, with a standard deviation of ``sqrt(p (1 - p) / n)``.

    ``partial_fit`` predicts rows before it learns them, and keeps the calibration current by
    adaptive conformal inference. This needs no exchangeability. Let a stream have T rows, learned
    in calls of m rows. Then the share of labels below an end of an interval is off by at most
    ``(1 + step m) / (step T)`` if ``step m`` is below one, and by ``2 m / T`` otherwise. This holds
    for levels that are multiples of 0.01.

    Parameters
    ----------
    estimator : MondrianForestRegressor, default=None
        The forest. None: a forest with default parameters.
    calibration_share : float, default=0.2
        Share of the rows that ``fit`` holds out.
    step : float, default=0.005
        How far the rank of a level may move with each row of a stream. With larger steps intervals
        follow drift faster, but fluctuate more.
    random_state : int, RandomState instance or None, default=None
        Decides which rows are held out.

    Attributes
    ----------
    forest_ : MondrianForestRegressor
        The fitted forest.
    reference_ : ndarray of shape (n_reference,)
        PIT values of the held-out rows. In a stream these are the latest rows: as many as were held
        out, and at least 2,000.
    ranks_ : ndarray of shape (199,)
        The rank of the levels 1/200, 2/200, ... among the reference values, as a share of their
        number. Each rank is the level itself until ``partial_fit`` moves it.

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
        """Fit the forest to a part of the rows, and calibrate it on the held-out rest.

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
        train_X, held_out_X, train_y, held_out_y = train_test_split(
            X,
            y,
            test_size=min(max(round(self.calibration_share * n_rows), 1), n_rows - 1),
            random_state=self.random_state,
        )
        forest = self._new_forest().fit(train_X, train_y)
        self.reference_ = _pit(forest, held_out_X, held_out_y)
        self.forest_, self.ranks_ = forest, _GRID
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> ConformalForest:
        """Calibrate the estimator, a fitted forest, on rows that it has not learned.

        The forest is not copied: a later ``partial_fit`` changes it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        if self.estimator is None:
            raise ValueError(
                "calibrate needs a fitted forest: use ConformalForest(forest).calibrate(X, y)."
            )
        self._check_parameters()
        check_is_fitted(self.estimator)
        self.reference_ = _pit(self.estimator, X, y)
        self.forest_, self.ranks_ = self.estimator, _GRID
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> ConformalForest:
        """Update the calibration from new rows, then let the forest learn them.

        Without an earlier fit, the first call only learns its rows, and the calibration starts with
        the forest's own levels.

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
                raise ValueError(
                    "The estimator is already fitted: call calibrate before partial_fit."
                )
            self.forest_ = self._new_forest().partial_fit(X, y)
            self.reference_ = self.ranks_ = _GRID
            return self
        values = _pit(self.forest_, X, y)
        self.forest_.partial_fit(X, y)
        ranks = self._moved_ranks(values)
        n_kept = max(_WINDOW, len(self.reference_))
        self.reference_ = np.concatenate((self.reference_, values))[-n_kept:]
        self.ranks_ = ranks
        return self

    def _moved_ranks(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ranks after rows with these PIT values, by adaptive conformal inference."""
        is_lower = _GRID < 0.5
        ends = _outward(np.sort(self.reference_), self.ranks_, is_lower)
        ascending = np.sort(values)
        below = np.where(
            is_lower,
            np.searchsorted(ascending, ends, side="left"),
            np.searchsorted(ascending, ends, side="right"),
        )
        # All rows of a call have the same ranks, so a total gain above one would overshoot.
        move = min(self.step * len(values), 1.0) * (_GRID - below / len(values))
        return self.ranks_ + move

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the forest's predictive mean of each row."""
        check_is_fitted(self)
        return np.asarray(self.forest_.predict(X))

    def predict_distribution(self, X: ArrayLike) -> CalibratedDistribution:
        """Return the calibrated predictive distribution of each row."""
        check_is_fitted(self)
        return CalibratedDistribution(
            self.forest_.predict_distribution(X), self.reference_, self.ranks_
        )

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Return calibrated quantiles, shape (n_samples,) for a number, (n_samples, k) for k.

        Only ``predict_interval`` has a guarantee.
        """
        return self.predict_distribution(X).quantile(q)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """Return the central interval that contains the label with at least probability ``level``.

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
            check_share(name, getattr(self, name))
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
    """Return the PIT values of rows, which are checked as strictly as for a fit."""
    _, labels = check_rows_and_labels(forest, X, y, reset=False)
    return _rounded(forest.predict_distribution(X).cdf(labels))
