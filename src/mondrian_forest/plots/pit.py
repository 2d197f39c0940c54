"""The PIT histogram: where the labels fall in their predictive distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from .. import metrics
from .._forest.validation import check_integer
from ._display import COLOUR, Display, axes_to_draw_on


class PITDisplay(Display):
    """Histogram of PIT values: the predictive cdf at each label.

    The histogram of a calibrated prediction is flat. A hill means that the distributions are too
    wide, a bowl that they are too narrow, and a slope that the predictions are too low or too high.
    Create it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        PIT values.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values = values

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, n_bins: int = 20, ax: Any = None
    ) -> PITDisplay:
        """Draw the histogram of a fitted estimator on held-out rows.

        Parameters
        ----------
        estimator : estimator
            As for :meth:`ReliabilityDisplay.from_estimator`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PITDisplay
        """
        prediction = metrics.predict_distribution(estimator, X)
        return cls.from_predictions(y, prediction, n_bins=n_bins, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        prediction: metrics.Prediction,
        *,
        n_bins: int = 20,
        ax: Any = None,
    ) -> PITDisplay:
        """Draw the histogram of a given prediction.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        prediction : PredictiveDistribution or pair (mean, std)
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PITDisplay
        """
        return cls(metrics.pit(y_true, prediction)).plot(n_bins=n_bins, ax=ax)

    def plot(self, *, n_bins: int = 20, ax: Any = None) -> PITDisplay:
        """Draw the histogram, with the range that holds 95% of the bars under calibration.

        Parameters
        ----------
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PITDisplay
            This object.
        """
        check_integer("n_bins", n_bins, 1)
        ax = axes_to_draw_on(ax, 6.0, 4.0)
        counts, edges = np.histogram(self.values, n_bins, (0.0, 1.0))
        share = n_bins / len(self.values)
        ax.bar(edges[:-1], counts * share, np.diff(edges), align="edge", color=COLOUR, alpha=0.7)
        low, high = binom.ppf([0.025, 0.975], len(self.values), 1.0 / n_bins) * share
        ax.axhspan(low, high, color="grey", alpha=0.3, label="calibrated, 95% of bars")
        ax.axhline(1.0, color="grey", linestyle="--", linewidth=1)
        ax.set(xlabel="predictive cdf at the label", ylabel="density", xlim=(0, 1))
        ax.legend(loc="best", framealpha=0.8)
        self._remember(ax)
        return self
