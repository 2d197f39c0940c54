"""The partition of one tree over two features."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from .._forest.partition import partition_of
from .._forest.sharing import state_of
from .._printable import as_label
from ..forest import MondrianForestRegressor
from ._display import SECOND_COLOUR, Display, axes_to_draw_on

_N_TIMES_SHOWN = 5


class PartitionDisplay(Display):
    """The partition of a tree over two features: the boxes of the data, and the cuts inside them.

    A Mondrian tree cuts the box of the rows in a node, and leaves the space between boxes uncut
    (the paper's Figure 1, right). So cuts end where the box ends, and rows outside may still branch
    off. Boxes are grey, and darker the deeper they are in the tree. Early cuts are drawn thicker,
    and the first ones are labelled with their times. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    boxes : ndarray of shape (n_nodes, 2, 2)
        Lower and upper corner of the box of each node.
    cuts : ndarray of shape (n_cuts, 2, 2)
        Both ends of each cut.
    times : ndarray of shape (n_cuts,)
        Time of each cut.
    feature_names : tuple of two str
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(
        self,
        boxes: NDArray[np.float64],
        cuts: NDArray[np.float64],
        times: NDArray[np.float64],
        feature_names: tuple[str, str] = ("feature 0", "feature 1"),
    ) -> None:
        self.boxes = boxes
        self.cuts = cuts
        self.times = times
        self.feature_names = feature_names

    @classmethod
    def from_estimator(
        cls,
        estimator: MondrianForestRegressor,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        tree: int = 0,
        lifetime: float = math.inf,
        ax: Any = None,
    ) -> PartitionDisplay:
        """Draw one tree of a forest that was fitted to two features.

        Parameters
        ----------
        estimator : MondrianForestRegressor
            A fitted forest.
        X : array-like of shape (n_rows, 2), default=None
            Rows to draw as points.
        y : array-like of shape (n_rows,), default=None
            Labels of the rows, shown as colours of the points.
        tree : int, default=0
            Index of the tree.
        lifetime : float, default=inf
            Leave out all cuts after this time.
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PartitionDisplay
        """
        if not isinstance(estimator, MondrianForestRegressor):
            raise TypeError(
                f"{type(estimator).__name__} has no trees of its own: pass the forest itself."
            )
        check_is_fitted(estimator)
        if not isinstance(lifetime, Real) or not lifetime > 0:
            raise ValueError(f"lifetime must be a positive number, got {lifetime!r}.")
        if estimator.n_features_in_ != 2:
            raise ValueError(
                "A partition can be drawn for a forest with 2 features, this one has "
                f"{estimator.n_features_in_}."
            )
        if estimator.mean_function_ is not None and estimator.mean_function_[1] != "subtract":
            raise ValueError(
                "No partition can be drawn where the trees see the mean function as a feature: fit "
                "with mean_function=None."
            )
        if X is not None:
            table = validate_data(estimator, X, dtype=np.float64, reset=False)
            if y is not None and np.shape(y) != (len(table),):
                raise ValueError("y must have one value for each row of X.")
        trees = estimator.trees_
        if not isinstance(tree, Integral) or not 0 <= tree < len(trees):
            raise ValueError(f"tree must be a number from 0 to {len(trees) - 1}, got {tree!r}.")
        boxes, cuts, times = partition_of(trees[int(tree)], lifetime)
        names = getattr(estimator, "feature_names_in_", ("feature 0", "feature 1"))
        display = cls(
            _in_units_of_data(estimator, boxes),
            _in_units_of_data(estimator, cuts),
            times,
            (str(names[0]), str(names[1])),
        ).plot(ax=ax)
        if X is not None:
            points = display.ax_.scatter(
                *table.T, c="black" if y is None else np.asarray(y), s=14, zorder=3
            )
            if y is not None:
                display.figure_.colorbar(points, ax=display.ax_, label="y")
        return display

    def plot(self, *, ax: Any = None) -> PartitionDisplay:
        """Draw the boxes and the cuts.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. If None, a new figure is created.

        Returns
        -------
        PartitionDisplay
            This object.
        """
        ax = axes_to_draw_on(ax, 6.5, 5.5)
        for (left, bottom), (right, top) in self.boxes:
            ax.fill(
                [left, right, right, left],
                [bottom, bottom, top, top],
                facecolor="black",
                alpha=0.05,
                linewidth=0,
            )
        for rank, cut in enumerate(np.argsort(self.times)):
            width = 0.7 + 2.3 / (1.0 + 0.5 * rank)
            ax.plot(*self.cuts[cut].T, color=SECOND_COLOUR, linewidth=width)
            if rank < _N_TIMES_SHOWN:
                ax.annotate(
                    f"{self.times[cut]:.2g}",
                    self.cuts[cut].mean(axis=0),
                    color=SECOND_COLOUR,
                    ha="center",
                    va="center",
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0},
                    zorder=4,
                )
        ax.set(xlabel=as_label(self.feature_names[0]), ylabel=as_label(self.feature_names[1]))
        ax.set_title("boxes of the data, and cuts with their times", fontsize="medium")
        self._remember(ax)
        return self


def _in_units_of_data(
    forest: MondrianForestRegressor, corners: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return corners of boxes or cuts, shape (n, 2, 2), in the units of the training set."""
    found = state_of(forest).scaling.invert(corners.reshape(-1, 2)).reshape(corners.shape)
    # A feature of weight zero is never cut. All its values are scaled to zero, and ``invert``
    # puts both ends of a box at the low end of its range.
    is_unused = forest.feature_weights_ == 0.0
    found[:, 1, is_unused] = forest.feature_range_[1][is_unused]
    return found
