"""The history of an optimisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._display import COLOUR, SECOND_COLOUR, Display, axes_to_draw_on


class ConvergenceDisplay(Display):
    """Values of the trials of an optimisation, and the best value so far.

    Create it with :meth:`from_result`, or with ``result.plot()``.

    Parameters
    ----------
    values : ndarray of shape (n_trials,)
        Value of each trial. NaN marks a failed trial.
    best_so_far : ndarray of shape (n_trials,)
        Best value up to and including each trial.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, values: NDArray[np.float64], best_so_far: NDArray[np.float64]) -> None:
        self.values = values
        self.best_so_far = best_so_far

    @classmethod
    def from_result(cls, result: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw the history of a result.

        Parameters
        ----------
        result : OptimizationResult
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ConvergenceDisplay
        """
        return cls(result.values, result.best_so_far()).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw the values of the trials, the best so far, and a cross for each failed trial.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        ConvergenceDisplay
            This object.
        """
        ax = axes_to_draw_on(ax)
        trials = np.arange(1, len(self.values) + 1)
        ax.plot(trials, self.values, ".", color=COLOUR, alpha=0.5, label="trial")
        ax.step(trials, self.best_so_far, where="post", color=SECOND_COLOUR, label="best so far")
        failed = trials[np.isnan(self.values)]
        if len(failed):
            height = np.full(len(failed), 0.02)
            ax.plot(
                failed, height, "x", color="0.4", label="failed", transform=ax.get_xaxis_transform()
            )
        ax.set(xlabel="trials", ylabel="value")
        ax.legend()
        self._remember(ax)
        return self
