"""Predictive densities of single rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import metrics
from ._display import Display, axes_to_draw_on

_N_POINTS = 400
_MOST_ROWS_IN_LEGEND = 10


class DensityDisplay(Display):
    """Predictive densities of single rows.

    Create it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    values : ndarray of shape (n_points,)
        Values of y, in ascending order.
    densities : ndarray of shape (n_rows, n_points)
        Predictive density of each row at these values.
    y_true : ndarray of shape (n_rows,) or None
        Labels to mark.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(
        self,
        values: NDArray[np.float64],
        densities: NDArray[np.float64],
        y_true: NDArray[np.float64] | None = None,
    ) -> None:
        self.values = values
        self.densities = densities
        self.y_true = y_true

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike | None = None, *, ax: Any = None
    ) -> DensityDisplay:
        """Draw the predictive densities of a few rows.

        Parameters
        ----------
        estimator : estimator
            A fitted forest, or a pipeline that ends with one.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), default=None
            Labels to mark.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        DensityDisplay
        """
        return cls.from_predictions(metrics.predict_distribution(estimator, X), y, ax=ax)

    @classmethod
    def from_predictions(
        cls, prediction: Any, y_true: ArrayLike | None = None, *, ax: Any = None
    ) -> DensityDisplay:
        """Draw the densities of a given prediction.

        Parameters
        ----------
        prediction : PredictiveDistribution
        y_true : array-like of shape (n_rows,), default=None
            Labels to mark.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        DensityDisplay
        """
        if not hasattr(prediction, "pdf"):
            raise TypeError("prediction must be a PredictiveDistribution, which has densities.")
        labels = None if y_true is None else np.asarray(y_true, dtype=np.float64)
        if len(prediction) == 0:
            raise ValueError("There are no rows to draw.")
        if labels is not None and (
            labels.shape != (len(prediction),) or not np.all(np.isfinite(labels))
        ):
            raise ValueError(
                f"y_true must have one finite value for each of the {len(prediction)} rows."
            )
        ends = prediction.quantile([0.002, 0.998])
        low, high = ends[:, 0].min(), ends[:, 1].max()
        if labels is not None:
            low, high = min(low, labels.min()), max(high, labels.max())
        values = np.linspace(low, high, _N_POINTS)
        densities = [
            prediction[np.full(len(values), row)].pdf(values) for row in range(len(prediction))
        ]
        return cls(values, np.array(densities), labels).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> DensityDisplay:
        """Draw the densities, with the labels as dots on them.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        DensityDisplay
            This object.
        """
        ax = axes_to_draw_on(ax)
        for row, density in enumerate(self.densities):
            (line,) = ax.plot(self.values, density, label=f"row {row}")
            ax.fill_between(self.values, density, color=line.get_color(), alpha=0.1, linewidth=0)
            if self.y_true is not None:
                label = self.y_true[row]
                height = np.interp(label, self.values, density)
                ax.plot(
                    [label, label],
                    [0.0, height],
                    color=line.get_color(),
                    linestyle=":",
                    marker="o",
                    markevery=[1],
                    label="_its label",
                )
        ax.set(xlabel="y", ylabel="predictive density")
        ax.set_ylim(bottom=0.0)
        if len(self.densities) <= _MOST_ROWS_IN_LEGEND:
            ax.legend(
                loc="best",
                framealpha=0.8,
                title=None if self.y_true is None else "dots are the labels",
            )
        self._remember(ax)
        return self
