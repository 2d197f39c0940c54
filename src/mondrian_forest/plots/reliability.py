"""The reliability diagram: how often prediction intervals contain the label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import metrics
from .._printable import as_label
from ._display import Display, axes_to_draw_on


class ReliabilityDisplay(Display):
    """Reliability diagram: how often central prediction intervals contain the label.

    Intervals are too narrow where the curve is below the diagonal, and too wide where it is above.
    Create it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    tables : dict of str to CalibrationTable
        One curve for each entry. The keys are the names in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, tables: dict[str, metrics.CalibrationTable]) -> None:
        self.tables = tables

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None
    ) -> ReliabilityDisplay:
        """Draw the diagram of a fitted estimator on held-out rows.

        Parameters
        ----------
        estimator : estimator
            A forest, a pipeline that ends with one, or another regressor with uncertainty; see
            :func:`mondrian_forest.metrics.neg_nlpd`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ReliabilityDisplay
        """
        return cls.from_predictions(y, metrics.predict_distribution(estimator, X), ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        predictions: metrics.Prediction | dict[str, metrics.Prediction],
        *,
        ax: Any = None,
    ) -> ReliabilityDisplay:
        """Draw the diagram of given predictions.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        predictions : PredictiveDistribution, pair (mean, std), or dict of these by name
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ReliabilityDisplay
        """
        if not isinstance(predictions, dict):
            predictions = {"prediction": predictions}
        levels = np.linspace(0.0, 1.0, 101)
        display = cls(
            {
                name: metrics.calibration_table(y_true, prediction, levels)
                for name, prediction in predictions.items()
            }
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ReliabilityDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ReliabilityDisplay
            This object.
        """
        ax = axes_to_draw_on(ax, 5.0, 5.0)
        ax.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1, label="ideal")
        for name, table in self.tables.items():
            ax.plot(table.level, table.observed, label=as_label(name))
        ax.set(
            xlabel="probability of the interval",
            ylabel="share of labels inside",
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )
        ax.text(0.04, 0.94, "too wide", color="grey", transform=ax.transAxes)
        ax.text(0.96, 0.04, "too narrow", color="grey", ha="right", transform=ax.transAxes)
        ax.legend(loc="lower right", bbox_to_anchor=(0.98, 0.1), framealpha=0.8)
        self._remember(ax)
        return self
