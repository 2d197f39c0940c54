"""Pictures of predictions, as scikit-learn displays. Matplotlib is imported when one is drawn."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted, validate_data

from . import metrics
from ._core.arrays.tree import NO_CHILD
from ._forest.sharing import read
from ._printable import as_label
from .forest import MondrianForestRegressor

_COLOUR = "#2f6f9f"
_SECOND_COLOUR = "#c8553d"


def _axes(ax: Any, width: float = 8.0, height: float = 4.5) -> Any:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Plots need matplotlib: pip install 'mondrian-forest[plot]'."
        ) from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")


class _Display:
    """What all displays have in common."""

    ax_: Any
    figure_: Any

    def _is_drawn_in(self, ax: Any) -> None:
        self.ax_ = ax
        self.figure_ = ax.figure


class PredictionBandDisplay(_Display):
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
        feature = int(feature)
        low, high = table[:, feature].min(), table[:, feature].max()
        values = np.linspace(low - margin * (high - low), high + margin * (high - low), 500)
        grid = np.tile(np.median(table, axis=0), (len(values), 1))
        grid[:, feature] = values
        with warnings.catch_warnings():
            # The grid is an array whatever kind of table the forest was fitted on.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            distribution = estimator.predict_distribution(grid)
        display = cls.from_predictions(
            values,
            distribution,
            feature_name=f"feature {feature}"
            if isinstance(names[feature], int)
            else str(names[feature]),
            levels=levels,
            ax=ax,
        )
        if y is not None:
            display.ax_.plot(
                table[:, feature], np.asarray(y), ".", color="black", markersize=3, label="data"
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
        """Draw the prediction of rows over the values of one feature.

        Parameters
        ----------
        feature_values : array-like of shape (n_points,)
            The feature in each of the rows, ascending.
        prediction : PredictiveDistribution
            Of these rows.
        feature_name : str, default="feature"
        levels : float or tuple of float, default=(0.5, 0.9)
            Probabilities of the intervals.
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        ax = _axes(ax)
        known = np.concatenate([self.mean, *(band.ravel() for band in self.bands.values())])
        low, high = known[np.isfinite(known)].min(), known[np.isfinite(known)].max()
        height = high - low
        for number, level in enumerate(sorted(self.bands, reverse=True)):
            # Infinite ends are drawn beyond the edge of the picture.
            lower, upper = np.clip(self.bands[level].T, low - 9 * height - 9, high + 9 * height + 9)
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
        if not np.all(np.isfinite(known)):
            margin = 0.2 * height or 1.0
            ax.set_ylim(low - margin, high + margin)
        ax.set_xlabel(as_label(self.feature_name))
        ax.set_ylabel("prediction")
        ax.legend(loc="best", framealpha=0.8)
        self._is_drawn_in(ax)
        return self


class ReliabilityDisplay(_Display):
    """Reliability diagram: how often central prediction intervals hold the label.

    Below the diagonal, intervals are too narrow; above, too wide. Create it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    tables : dict of str to CalibrationTable
        By name, as in the legend.

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
        """Draw the diagram of a fitted estimator on rows that it has not learned.

        Parameters
        ----------
        estimator : estimator
            A forest, a pipeline that ends with one, or another regressor with uncertainty; see
            :func:`mondrian_forest.metrics.neg_nlpd`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        """Draw the diagram of predictions.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        predictions : PredictiveDistribution, pair (mean, std), or dict of these by name
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
            Where to draw. None: in a new figure.

        Returns
        -------
        ReliabilityDisplay
            This object.
        """
        ax = _axes(ax, 5.0, 5.0)
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
        self._is_drawn_in(ax)
        return self


class PITDisplay(_Display):
    """Histogram of PIT values: the predictive cdf at each label.

    Flat where the prediction is calibrated. A hill: distributions are too wide; a bowl: too narrow;
    a slope: predictions are too low, or too high. Create it with :meth:`from_estimator` or
    :meth:`from_predictions`.

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
        """Draw the histogram of a fitted estimator on rows that it has not learned.

        Parameters
        ----------
        estimator : estimator
            As for :meth:`ReliabilityDisplay.from_estimator`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        """Draw the histogram of a prediction.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        prediction : PredictiveDistribution or pair (mean, std)
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        PITDisplay
        """
        return cls(metrics.pit(y_true, prediction)).plot(n_bins=n_bins, ax=ax)

    def plot(self, *, n_bins: int = 20, ax: Any = None) -> PITDisplay:
        """Draw the histogram, and where bars of calibrated predictions would end.

        Parameters
        ----------
        n_bins : int, default=20
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        PITDisplay
            This object.
        """
        _check_count("n_bins", n_bins)
        ax = _axes(ax, 6.0, 4.0)
        counts, edges = np.histogram(self.values, n_bins, (0.0, 1.0))
        share = n_bins / len(self.values)
        ax.bar(edges[:-1], counts * share, np.diff(edges), align="edge", color=_COLOUR, alpha=0.7)
        low, high = binom.ppf([0.025, 0.975], len(self.values), 1.0 / n_bins) * share
        ax.axhspan(low, high, color="grey", alpha=0.3, label="calibrated, 95% of bars")
        ax.axhline(1.0, color="grey", linestyle="--", linewidth=1)
        ax.set(xlabel="predictive cdf at the label", ylabel="density", xlim=(0, 1))
        ax.legend(loc="best", framealpha=0.8)
        self._is_drawn_in(ax)
        return self


class DensityDisplay(_Display):
    """Predictive densities of single rows.

    Create it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    values : ndarray of shape (n_points,)
        Values of y, ascending.
    densities : ndarray of shape (n_rows, n_points)
    y_true : ndarray of shape (n_rows,) or None
        Labels to be marked.

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
            Labels, to mark them.
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        DensityDisplay
        """
        return cls.from_predictions(metrics.predict_distribution(estimator, X), y, ax=ax)

    @classmethod
    def from_predictions(
        cls, prediction: Any, y_true: ArrayLike | None = None, *, ax: Any = None
    ) -> DensityDisplay:
        """Draw the densities of a prediction.

        Parameters
        ----------
        prediction : PredictiveDistribution
        y_true : array-like of shape (n_rows,), default=None
            Labels, to mark them.
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        values = np.linspace(low, high, 400)
        densities = [
            prediction[np.full(len(values), row)].pdf(values) for row in range(len(prediction))
        ]
        return cls(values, np.array(densities), labels).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> DensityDisplay:
        """Draw the densities, and the labels as dots on them.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        DensityDisplay
            This object.
        """
        ax = _axes(ax)
        for row, density in enumerate(self.densities):
            (line,) = ax.plot(self.values, density, label=f"row {row}")
            ax.fill_between(self.values, density, color=line.get_color(), alpha=0.1, linewidth=0)
            if self.y_true is not None:
                height = np.interp(self.y_true[row], self.values, density)
                ax.plot(
                    [self.y_true[row]] * 2,
                    [0.0, height],
                    color=line.get_color(),
                    linestyle=":",
                    marker="o",
                    markevery=[1],
                    label="_its label",
                )
        ax.set(xlabel="y", ylabel="predictive density")
        ax.set_ylim(bottom=0.0)
        if len(self.densities) <= 10:
            ax.legend(
                loc="best",
                framealpha=0.8,
                title=None if self.y_true is None else "dots are the labels",
            )
        self._is_drawn_in(ax)
        return self


class ErrorDisplay(_Display):
    """Size of the errors against the predicted standard deviation.

    Rows are sorted by their predicted standard deviation and cut into groups of equal size. Where
    the prediction is right, the root mean squared error of each group is its mean standard
    deviation: dots lie on the diagonal. Create it with :meth:`from_estimator` or
    :meth:`from_predictions`.

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
        """Draw the errors of a fitted estimator on rows that it has not learned.

        Parameters
        ----------
        estimator : estimator
            As for :meth:`ReliabilityDisplay.from_estimator`.
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        n_groups : int, default=20
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
        """Draw the errors of a prediction.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
        prediction : PredictiveDistribution or pair (mean, std)
        n_groups : int, default=20
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
            Where to draw. None: in a new figure.

        Returns
        -------
        ErrorDisplay
            This object.
        """
        _check_count("n_groups", n_groups)
        ax = _axes(ax, 5.5, 5.0)
        groups = np.array_split(np.argsort(self.std), min(n_groups, len(self.std)))
        typical = [math.sqrt(np.mean(self.std[rows] ** 2)) for rows in groups]
        found = [math.sqrt(np.mean(self.error[rows] ** 2)) for rows in groups]
        shown = slice(None, None, -(-len(self.std) // 5000))  # thousands of points say enough
        ax.plot(
            self.std[shown],
            np.abs(self.error[shown]),
            ".",
            color="grey",
            alpha=0.25,
            markersize=3,
            label="absolute error of a row",
        )
        ax.plot(typical, found, "o", color=_COLOUR, label="root mean squared error of a group")
        ends = np.array([min(typical), max(typical)])
        ax.plot(ends, ends, color="black", linestyle="--", linewidth=1, label="ideal")
        top = 1.1 * max(*found, *typical, float(np.quantile(np.abs(self.error), 0.98)))
        low, high = np.quantile(self.std, [0.001, 0.999])
        margin = 0.05 * (high - low) or 0.05 * high
        ax.set(xlim=(low - margin, high + margin), ylim=(0.0, top))
        ax.set(xlabel="predicted standard deviation", ylabel="error")
        ax.legend(loc="upper left", framealpha=0.8)
        self._is_drawn_in(ax)
        return self


class PartitionDisplay(_Display):
    """The partition of a tree over two features: boxes of the data, and cuts within them.

    A Mondrian tree cuts the box of the rows in a node, not the space between boxes (the paper's
    Figure 1, right): cuts end where the box ends, and rows outside may still branch off. Boxes are
    grey, the deeper in the tree the darker. Early cuts are drawn thicker; the first ones have their
    times. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    boxes : ndarray of shape (n_nodes, 2, 2)
        Lower and upper corners of the boxes of all nodes.
    cuts : ndarray of shape (n_cuts, 2, 2)
        Both ends of each cut.
    times : ndarray of shape (n_cuts,)
    feature_names : tuple of two str

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
            Labels, as colours of the points.
        tree : int, default=0
            Number of the tree.
        lifetime : float, default=inf
            Leave out what happens after this time.
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

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
                f"A partition can be drawn over 2 features, this forest has "
                f"{estimator.n_features_in_}."
            )
        if X is not None:
            table = validate_data(estimator, X, dtype=np.float64, reset=False)
            if y is not None and np.shape(y) != (len(table),):
                raise ValueError("y must have one value for each row of X.")
        trees = estimator.trees_
        if not isinstance(tree, Integral) or not 0 <= tree < len(trees):
            raise ValueError(f"tree must be a number from 0 to {len(trees) - 1}, got {tree!r}.")
        nodes, scaled_boxes, _ = trees[int(tree)]
        scaling = read(estimator, lambda state: state.scaling)
        boxes = scaling.invert(scaled_boxes.reshape(-1, 2)).reshape(scaled_boxes.shape)
        is_idle = estimator.feature_weights_ == 0.0
        boxes[:, 1, is_idle] = estimator.feature_range_[1][is_idle]  # not a cut anywhere
        is_alive = np.zeros(len(nodes), dtype=bool)
        is_alive[0] = True
        is_cut = (nodes["left_child"] != NO_CHILD) & (nodes["split_time"] < lifetime)
        waiting = [0]
        while waiting:
            node = waiting.pop()
            if is_cut[node]:
                left = nodes["left_child"][node]
                is_alive[left : left + 2] = True
                waiting += [left, left + 1]
        chosen = np.flatnonzero(is_alive & is_cut)
        feature = nodes["split_feature"][chosen]
        corner = np.zeros((len(chosen), 2))
        corner[np.arange(len(chosen)), feature] = nodes["threshold"][chosen]
        position = scaling.invert(corner)[np.arange(len(chosen)), feature]
        cuts = boxes[chosen].copy()  # from corner to corner, except along the feature that is cut
        cuts[np.arange(len(chosen)), :, feature] = position[:, None]
        names = getattr(estimator, "feature_names_in_", ("feature 0", "feature 1"))
        display = cls(
            boxes[is_alive],
            cuts,
            nodes["split_time"][chosen],
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
        """Draw boxes and cuts.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None: in a new figure.

        Returns
        -------
        PartitionDisplay
            This object.
        """
        ax = _axes(ax, 6.5, 5.5)
        for (left, bottom), (right, top) in self.boxes:
            ax.fill(
                [left, right, right, left],
                [bottom, bottom, top, top],
                facecolor="black",
                alpha=0.05,
                linewidth=0,
            )
        order = np.argsort(self.times)
        for rank, cut in enumerate(order):
            width = 0.7 + 2.3 / (1.0 + 0.5 * rank)
            ax.plot(*self.cuts[cut].T, color=_SECOND_COLOUR, linewidth=width)
            if rank < 5:
                ax.annotate(
                    f"{self.times[cut]:.2g}",
                    self.cuts[cut].mean(axis=0),
                    color=_SECOND_COLOUR,
                    ha="center",
                    va="center",
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0},
                    zorder=4,
                )
        ax.set(xlabel=as_label(self.feature_names[0]), ylabel=as_label(self.feature_names[1]))
        ax.set_title("boxes of the data, and cuts with their times", fontsize="medium")
        self._is_drawn_in(ax)
        return self


class ConvergenceDisplay(_Display):
    """Values of the trials of an optimisation, and the best so far.

    Create it with :meth:`from_result`, or with ``result.plot()``.

    Parameters
    ----------
    values : ndarray of shape (n_trials,)
        NaN for failures.
    best_so_far : ndarray of shape (n_trials,)

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
            By default those of a new figure.

        Returns
        -------
        ConvergenceDisplay
        """
        return cls(result.values, result.best_so_far()).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            By default those of a new figure.

        Returns
        -------
        self
        """
        ax = _axes(ax)
        trials = np.arange(1, len(self.values) + 1)
        ax.plot(trials, self.values, ".", color=_COLOUR, alpha=0.5, label="trial")
        ax.step(trials, self.best_so_far, where="post", color=_SECOND_COLOUR, label="best so far")
        failed = trials[np.isnan(self.values)]
        if len(failed):
            height = np.full(len(failed), 0.02)
            ax.plot(
                failed, height, "x", color="0.4", label="failed", transform=ax.get_xaxis_transform()
            )
        ax.set(xlabel="trials", ylabel="value")
        ax.legend()
        self._is_drawn_in(ax)
        return self
