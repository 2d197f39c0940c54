"""The size of the errors against the predicted standard deviation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import metrics
from .._forest.validation import check_integer
from ._display import COLOUR, Display, axes_to_draw_on

_MOST_POINTS = 5000


class ErrorDisplay(Display):
    """Size of the errors against the predicted standard deviation.

    The rows are sorted by predicted standard deviation and divided into groups of equal size. If
    the predicted standard deviations are right, each group's root mean squared error equals its
    mean standard deviation, and its dot lies on the diagonal. Create it with :meth:`from_estimator`
    or :meth:`from_predictions`.

    Parameters
    ----------
    std : ndarray of shape (n_rows,)
        Predicted standard deviations.
    error : ndarray of shape (n_rows,)
        Label minus predicted mean.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, std: NDArray[np.float64], error: NDArray[np.float64]) -> None:
        self.std = std
        self.error = error

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, n_groups: int = 20, ax: Any = None
    ) -> ErrorDisplay:
        """Draw the errors of a fitted estimator on held-out rows.

        Parameters
        ----------
        estimator : estimator
            As for :meth:`ReliabilityDisplay.from_estimator`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        n_groups : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ErrorDisplay
        """
        prediction = metrics.predict_distribution(estimator, X)
        return cls.from_predictions(y, prediction, n_groups=n_groups, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        prediction: metrics.Prediction,
        *,
        n_groups: int = 20,
        ax: Any = None,
    ) -> ErrorDisplay:
        """Draw the errors of a given prediction.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        prediction : PredictiveDistribution or pair (mean, std)
        n_groups : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ErrorDisplay
        """
        labels, distribution = metrics.checked(y_true, prediction)
        display = cls(distribution.std(), labels - distribution.mean())
        return display.plot(n_groups=n_groups, ax=ax)

    def plot(self, *, n_groups: int = 20, ax: Any = None) -> ErrorDisplay:
        """Draw absolute errors as points, and the root mean squared error of each group.

        Parameters
        ----------
        n_groups : int, default=20
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ErrorDisplay
            This object.
        """
        check_integer("n_groups", n_groups, 1)
        ax = axes_to_draw_on(ax, 5.5, 5.0)
        groups = np.array_split(np.argsort(self.std), min(n_groups, len(self.std)))
        predicted = [math.sqrt(np.mean(self.std[rows] ** 2)) for rows in groups]
        observed = [math.sqrt(np.mean(self.error[rows] ** 2)) for rows in groups]
        some = slice(None, None, -(-len(self.std) // _MOST_POINTS))
        ax.plot(
            self.std[some],
            np.abs(self.error[some]),
            ".",
            color="grey",
            alpha=0.25,
            markersize=3,
            label="absolute error of a row",
        )
        ax.plot(predicted, observed, "o", color=COLOUR, label="root mean squared error of a group")
        ends = np.array([min(predicted), max(predicted)])
        ax.plot(ends, ends, color="black", linestyle="--", linewidth=1, label="ideal")
        top = 1.1 * max(*observed, *predicted, float(np.quantile(np.abs(self.error), 0.98)))
        low, high = np.quantile(self.std, [0.001, 0.999])
        margin = 0.05 * (high - low) or 0.05 * high
        ax.set(xlim=(low - margin, high + margin), ylim=(0.0, top))
        ax.set(xlabel="predicted standard deviation", ylabel="error")
        ax.legend(loc="upper left", framealpha=0.8)
        self._remember(ax)
        return self
