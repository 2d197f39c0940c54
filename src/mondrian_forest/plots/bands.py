"""Prediction bands: the predictive mean and prediction intervals over one feature."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from .._printable import as_label
from ..forest import MondrianForestRegressor
from ._display import COLOUR, Display, axes_to_draw_on

_N_POINTS = 500


class PredictionBandDisplay(Display):
    """Predictive mean and central prediction intervals over one feature.

    Create it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    feature_values : ndarray of shape (n_points,)
        Values of the feature, in ascending order.
    mean : ndarray of shape (n_points,)
        Predictive mean at each value.
    bands : dict of float to ndarray of shape (n_points, 2)
        For each level, the lower and upper end of the interval at each value.
    feature_name : str
        Label of the horizontal axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(
        self,
        feature_values: NDArray[np.float64],
        mean: NDArray[np.float64],
        bands: dict[float, NDArray[np.float64]],
        feature_name: str,
    ) -> None:
        self.feature_values = feature_values
        self.mean = mean
        self.bands = bands
        self.feature_name = feature_name

    @classmethod
    def from_estimator(
        cls,
        estimator: MondrianForestRegressor,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        feature: int | str = 0,
        levels: float | tuple[float, ...] = (0.5, 0.9),
        margin: float = 0.4,
        ax: Any = None,
    ) -> PredictionBandDisplay:
        """Draw the predictions of a fitted forest over one feature.

        All other features are held at their medians.

        Parameters
        ----------
        estimator : MondrianForestRegressor
            A fitted forest.
        X : array-like of shape (n_samples, n_features)
            Rows that determine the range of the feature and the medians of the other features.
        y : array-like of shape (n_samples,), default=None
            Labels of the rows. If given, the rows are drawn as points.
        feature : int or str, default=0
            Index of the feature, or its name in the table that the forest was fitted to.
        levels : float or tuple of float, default=(0.5, 0.9)
            Probabilities of the intervals.
        margin : float, default=0.4
            How far the plot extends beyond the range of the feature, as a fraction of the range.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PredictionBandDisplay

        Examples
        --------
        >>> from mondrian_forest import MondrianForestRegressor
        >>> from mondrian_forest.datasets import make_gap_wave
        >>> from mondrian_forest.plots import PredictionBandDisplay
        >>> X, y = make_gap_wave(random_state=0)
        >>> forest = MondrianForestRegressor(random_state=0).fit(X, y)
        >>> display = PredictionBandDisplay.from_estimator(forest, X, y)
        >>> display.ax_.get_xlabel()
        'feature 0'
        """
        if not hasattr(estimator, "predict_distribution"):
            raise TypeError(
                f"{type(estimator).__name__} has no predict_distribution: pass the forest itself "
                "and rows as it sees them, for example pipeline[-1] and pipeline[:-1].transform(X)."
            )
        table = validate_data(estimator, X, dtype=np.float64, reset=False)
        names = list(getattr(estimator, "feature_names_in_", range(table.shape[1])))
        index = _index_of(feature, names)
        if not 0 <= margin < np.inf:
            raise ValueError(f"margin must be a finite number of at least 0, got {margin!r}.")
        if y is not None and np.shape(y) != (len(table),):
            raise ValueError(f"y must have one value for each of the {len(table)} rows of X.")
        grid = _grid_along(table, index, margin)
        with warnings.catch_warnings():
            # The grid is an array even if the forest was fitted to a table with names.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            distribution = estimator.predict_distribution(grid)
        name = names[index]
        display = cls.from_predictions(
            grid[:, index],
            distribution,
            feature_name=f"feature {index}" if isinstance(name, int) else str(name),
            levels=levels,
            ax=ax,
        )
        if y is not None:
            display.ax_.plot(
                table[:, index], np.asarray(y), ".", color="black", markersize=3, label="data"
            )
            display.ax_.legend(loc="best", framealpha=0.8)
        return display

    @classmethod
    def from_predictions(
        cls,
        feature_values: ArrayLike,
        prediction: Any,
        *,
        feature_name: str = "feature",
        levels: float | tuple[float, ...] = (0.5, 0.9),
        ax: Any = None,
    ) -> PredictionBandDisplay:
        """Draw given predictions over the values of one feature.

        Parameters
        ----------
        feature_values : array-like of shape (n_points,)
            Value of the feature in each row, in ascending order.
        prediction : PredictiveDistribution
            Prediction for the same rows.
        feature_name : str, default="feature"
            Label of the horizontal axis.
        levels : float or tuple of float, default=(0.5, 0.9)
            Probabilities of the intervals.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PredictionBandDisplay
        """
        if not hasattr(prediction, "interval"):
            raise TypeError("prediction must be a PredictiveDistribution, which has intervals.")
        values = np.asarray(feature_values, dtype=np.float64)
        if values.shape != (len(prediction),) or not np.all(np.diff(values) >= 0):
            raise ValueError(
                f"feature_values must be {len(prediction)} ascending numbers, one for each row."
            )
        bands = {level: prediction.interval(level) for level in np.atleast_1d(levels).tolist()}
        return cls(values, prediction.mean(), bands, feature_name).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> PredictionBandDisplay:
        """Draw the mean and the bands.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PredictionBandDisplay
            This object.
        """
        ax = axes_to_draw_on(ax)
        heights = np.concatenate([self.mean, *(band.ravel() for band in self.bands.values())])
        is_finite = np.isfinite(heights)
        low, high = heights[is_finite].min(), heights[is_finite].max()
        height = high - low
        for number, level in enumerate(sorted(self.bands, reverse=True)):
            # Matplotlib cannot fill up to infinity: infinite ends are drawn far beyond the edge.
            lower, upper = np.clip(self.bands[level].T, low - 9 * height - 9, high + 9 * height + 9)
            ax.fill_between(
                self.feature_values,
                lower,
                upper,
                color=COLOUR,
                alpha=0.2 + 0.15 * number,
                linewidth=0,
                label=f"{level:.0%} interval",
            )
        ax.plot(self.feature_values, self.mean, color=COLOUR, label="mean")
        if not np.all(is_finite):
            margin = 0.2 * height or 1.0
            ax.set_ylim(low - margin, high + margin)
        ax.set_xlabel(as_label(self.feature_name))
        ax.set_ylabel("prediction")
        ax.legend(loc="best", framealpha=0.8)
        self._remember(ax)
        return self


def _index_of(feature: object, names: Sequence[object]) -> int:
    """Return the index of a feature that is given by its index or by its name."""
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, Integral) and not isinstance(feature, bool):
        index = int(feature)
        if 0 <= index < len(names):
            return index
    raise ValueError(f"feature must be one of {names}, got {feature!r}.")


def _grid_along(table: NDArray[np.float64], index: int, margin: float) -> NDArray[np.float64]:
    """Return rows with all features at their medians, except one that moves through its range."""
    low, high = table[:, index].min(), table[:, index].max()
    extra = margin * (high - low)
    grid = np.tile(np.median(table, axis=0), (_N_POINTS, 1))
    grid[:, index] = np.linspace(low - extra, high + extra, _N_POINTS)
    return grid
