"""Pictures of predictions, as scikit-learn displays. Matplotlib is imported when one is drawn."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from .forest import MondrianForestRegressor

_COLOUR = "#2f6f9f"


class PredictionBandDisplay:
    """Predictive mean and central prediction intervals over one feature.

    Create it with :meth:`from_estimator`.

    Parameters
    ----------
    feature_values : ndarray of shape (n_points,)
        Values of the feature, ascending.
    mean : ndarray of shape (n_points,)
    bands : dict of float to ndarray of shape (n_points, 2)
        Lower and upper end of the interval for each level.
    feature_name : str

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

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
        """Draw the prediction of a fitted forest over one feature; the others stay at their median.

        Parameters
        ----------
        estimator : MondrianForestRegressor
            A fitted forest.
        X : array-like of shape (n_samples, n_features)
            Rows that set the range of the feature and the medians of the others.
        y : array-like of shape (n_samples,), default=None
            Labels, to draw the rows as points.
        feature : int or str, default=0
            Number of the feature, or its name in the table that the forest was fitted to.
        levels : float or tuple of float, default=(0.5, 0.9)
            Probabilities of the intervals.
        margin : float, default=0.4
            How far to go beyond the range of the feature, as a share of it.
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        if isinstance(feature, str) and feature in names:
            feature = names.index(feature)
        if (
            not isinstance(feature, Integral)
            or isinstance(feature, bool)
            or not 0 <= feature < table.shape[1]
        ):
            raise ValueError(f"feature must be one of {names}, got {feature!r}.")
        if not 0 <= margin < np.inf:
            raise ValueError(f"margin must be a number from 0 on, got {margin!r}.")
        if y is not None and np.shape(y) != (len(table),):
            raise ValueError(f"y must have one value for each of the {len(table)} rows of X.")
        low, high = table[:, feature].min(), table[:, feature].max()
        values = np.linspace(low - margin * (high - low), high + margin * (high - low), 500)
        grid = np.tile(np.median(table, axis=0), (len(values), 1))
        grid[:, feature] = values
        with warnings.catch_warnings():
            # The grid is an array whatever kind of table the forest was fitted on.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            distribution = estimator.predict_distribution(grid)
        display = cls(
            values,
            distribution.mean(),
            {level: distribution.interval(level) for level in np.atleast_1d(levels).tolist()},
            f"feature {feature}" if isinstance(names[feature], int) else str(names[feature]),
        )
        display.plot(ax=ax)
        if y is not None:
            display.ax_.plot(
                table[:, feature], np.asarray(y), ".", color="black", markersize=3, label="data"
            )
            display.ax_.legend(loc="best", framealpha=0.8)
        return display

    def plot(self, *, ax: Any = None) -> PredictionBandDisplay:
        """Draw mean and bands.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        PredictionBandDisplay
            This object.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ModuleNotFoundError:
                raise ModuleNotFoundError(
                    "Plots need matplotlib: pip install 'mondrian-forest[plot]'."
                ) from None
            _, ax = plt.subplots(figsize=(8.0, 4.5), layout="constrained")
        for number, level in enumerate(sorted(self.bands, reverse=True)):
            lower, upper = self.bands[level].T
            ax.fill_between(
                self.feature_values,
                lower,
                upper,
                color=_COLOUR,
                alpha=0.2 + 0.15 * number,
                linewidth=0,
                label=f"{level:.0%} interval",
            )
        ax.plot(self.feature_values, self.mean, color=_COLOUR, label="mean")
        ax.set_xlabel(self.feature_name)
        ax.set_ylabel("prediction")
        ax.legend(loc="best", framealpha=0.8)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self
