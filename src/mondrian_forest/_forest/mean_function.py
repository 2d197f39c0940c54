"""The mean function: a regressor around which the forest puts its distribution.

The forest learns its residuals, or it takes what the regressor says as one more feature, or both.

It is cross-fitted. The rows are divided into five folds, and a model is fitted to the rows outside
of each fold. The residual of a row is that of the model that has not seen its label.

A prediction takes the mean of the five models, which is more accurate than each of them. Rows that
are held out for the spread are in no fold, so that the mean of the five models is honest for them,
too: the spread is learned from what predictions are. On tables of fewer than 2,000 rows these are
few, and further rows are held out in turn. Their residuals are those of single models, so that
forecasts are rather too wide than too narrow there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from .boosting import Boosted, boosted, fit_boosted
from .linear import Linear, fit_linear
from .scaling import MOST_ROWS, Range, blocks_of

AUTO, LINEAR, BOOSTING = "auto", "linear", "boosting"
SUBTRACT, FEATURE, BOTH = USES = ("subtract", "feature", "both")
LARGEST_RESIDUAL = 1e150
N_FOLDS = 5
FEWEST_ROWS = 20
"""With fewer rows, the mean function is the mean of the labels."""

Values = NDArray[np.float64]


class Regressors(NamedTuple):
    """The mean of regressors that the user has chosen."""

    models: tuple[Any, ...]

    def at(self, table: NDArray[Any]) -> Values:
        """Return the function at some rows, shape (n_rows,)."""
        total = np.zeros(len(table))
        for model in self.models:
            found = np.asarray(model.predict(table), np.float64)
            if found.shape != (len(table),) or not np.all(np.isfinite(found)):
                raise ValueError(
                    f"The mean function {type(model).__name__} must predict one finite number for "
                    f"each of the {len(table)} rows, got shape {found.shape}."
                )
            total += found
        return total / len(self.models)


Regression = Linear | Boosted | Regressors


class MeanFunction(NamedTuple):
    """A regression, and what the forest does with it."""

    regression: Regression
    use: str
    far: float = 1.0
    """Far from the data, the standard deviation is so many times that of what the trees learn."""

    @property
    def kind(self) -> str:
        """The name of the regression: "linear", "boosting", or that of its class."""
        known = self.regression
        if isinstance(known, Regressors):
            return type(known.models[0]).__name__
        return LINEAR if isinstance(known, Linear) else BOOSTING

    @property
    def is_subtracted(self) -> bool:
        """Whether the forest learns what the regression leaves of the labels."""
        return self.use != FEATURE

    @property
    def is_feature(self) -> bool:
        """Whether the trees see the value of the regression as their last feature."""
        return self.use != SUBTRACT

    @property
    def has_models_that_differ(self) -> bool:
        """Whether single models make clearly larger errors than their mean."""
        known = self.regression
        return isinstance(known, Boosted) or (
            isinstance(known, Regressors) and len(known.models) > 1
        )

    def at(self, table: NDArray[Any]) -> Values:
        """Return the value of the regression at some rows, shape (n_rows,)."""
        return self.regression.at(table)

    def writeable(self) -> MeanFunction:
        """Return the same in arrays that can be written to.

        Arrays that come over a network cannot, and kernels would be compiled once more for them.
        """
        parts = (
            np.require(part, requirements="W") if isinstance(part, np.ndarray) else part
            for part in self.regression
        )
        make: Any = type(self.regression)
        return self._replace(regression=make(*parts))

    def columns(self, table: NDArray[Any], values: Values) -> NDArray[Any]:
        """Return what the trees see of rows at which the regression has these values."""
        return np.column_stack((table, values)) if self.is_feature else table

    def offset(self, values: Values) -> Values:
        """Return what is added to the predictions of the trees."""
        return values if self.is_subtracted else np.zeros(len(values))


class CrossFit(NamedTuple):
    """A regression, and what it says of the rows that it was fitted to."""

    regression: Regression
    means: Values
    """By row: the prediction of the model that has not seen its label."""


def residuals(labels: Values, means: Values) -> Values:
    """Return what is left of the labels."""
    with np.errstate(over="ignore", invalid="ignore"):
        rest = labels - means
    if not np.abs(rest).max(initial=0.0) <= LARGEST_RESIDUAL:
        raise ValueError("X is too far from the rows of the fit for its mean function.")
    return rest


def cross_fit(
    kind: Any,
    table: NDArray[Any],
    labels: Values,
    free: NDArray[np.int64],
    limits: Range,
    random: np.random.Generator,
    n_jobs: int | None = None,
    *,
    goes_on: bool = True,
) -> CrossFit:
    """Fit a regression: "linear", "boosting", or a regressor of scikit-learn's interface.

    Only rows that are ``free`` are used. For the others, the mean of all models is what they say:
    none of them has seen their labels. A line is fitted to features within ``limits``, and
    ``goes_on`` says whether it goes on beyond them.
    """
    if isinstance(kind, FrozenEstimator):  # fitted by the user
        regression = Regressors((kind,))
        return CrossFit(regression, regression.at(table))
    if len(free) < FEWEST_ROWS:
        return _constant(labels, labels[free], limits)
    fold = np.full(len(labels), -1)
    fold[free] = random.permutation(len(free)) % N_FOLDS
    if isinstance(kind, str) and kind == LINEAR:
        return _cross_fit_linear(table, labels, fold, limits, goes_on=goes_on)
    if isinstance(kind, str):
        return _cross_fit_boosted(table, labels, fold, int(random.integers(2**31)), n_jobs)
    models, means = _cross_predicted(
        lambda rows, some: clone(kind).fit(rows, some),
        lambda model: Regressors((model,)),
        table,
        labels,
        fold,
    )
    return _with_other_means(Regressors(tuple(models)), means, table, fold)


def bulk_of(table: NDArray[Any]) -> Range:
    """Return limits of features: as far beyond the quantiles at 1% and 99% as these are apart.

    A line would otherwise follow a few rows with extreme values.
    """
    some = table[:: -(-len(table) // MOST_ROWS)]
    low, high = np.quantile(some, (0.01, 0.99), axis=0)
    with np.errstate(over="ignore"):
        width = np.minimum(high - low, np.finfo(np.float64).max)
        limits = low - width, high + width
    largest = np.finfo(np.float64).max
    return np.clip(limits[0], -largest, largest), np.clip(limits[1], -largest, largest)


def _constant(labels: Values, known: Values, limits: Range) -> CrossFit:
    size = np.ones(len(limits[0]))
    level = float(known.mean())
    return CrossFit(Linear(level, 0.0 * size, size, 0.0 * size), np.full(len(labels), level))


def _cross_fit_linear(
    table: NDArray[Any],
    labels: Values,
    fold: NDArray[np.int64],
    limits: Range,
    *,
    goes_on: bool,
) -> CrossFit:
    means = np.empty(len(labels))
    found = []
    for k in range(N_FOLDS):
        blocks = ((rows, np.clip(block, *limits)) for rows, block in blocks_of(table))
        line = fit_linear(blocks, labels, (fold != k) & (fold >= 0), limits)
        found.append(line._replace(goes_on=goes_on))
        means[fold == k] = found[k].at(table[fold == k])
    level = float(np.mean([one.level for one in found]))
    slope = np.mean([one.slope for one in found], axis=0)
    mean = found[0]._replace(level=level, slope=slope)
    return _with_other_means(mean, means, table, fold)


def _cross_fit_boosted(
    table: NDArray[Any], labels: Values, fold: NDArray[np.int64], seed: int, n_jobs: int | None
) -> CrossFit:
    known = labels[fold >= 0]
    center = float(known.mean())
    deviation = float((known - center).std())  # boosting computes in single precision
    unit = deviation if deviation > 0.0 else 1.0
    models, means = _cross_predicted(
        lambda rows, some: fit_boosted(rows, some, seed, n_jobs),
        lambda model: boosted([model], 0.0, 1.0),
        table,
        (labels - center) / unit,
        fold,
    )
    return _with_other_means(boosted(models, center, unit), center + unit * means, table, fold)


def _cross_predicted(
    fit: Callable[[NDArray[Any], Values], Any],
    function_of: Callable[[Any], Regression],
    table: NDArray[Any],
    labels: Values,
    fold: NDArray[np.int64],
) -> tuple[list[Any], Values]:
    """Fit a model outside of each fold; return the models, and what they predict inside."""
    models, means = [], np.zeros(len(labels))
    for k in range(N_FOLDS):
        is_used = (fold != k) & (fold >= 0)
        model = fit(table[is_used], labels[is_used])
        means[fold == k] = function_of(model).at(table[fold == k])
        models.append(model)
    return models, means


def _with_other_means(
    regression: Regression, means: Values, table: NDArray[Any], fold: NDArray[np.int64]
) -> CrossFit:
    """Return a cross-fit in which rows of no fold have the mean of all models."""
    is_other = fold < 0
    if is_other.any():
        means[is_other] = regression.at(table[is_other])
    return CrossFit(regression, means)


def is_auto(kind: Any) -> bool:
    """Return whether held-out rows choose the mean function."""
    return isinstance(kind, str) and kind == AUTO


def check_mean_function(kind: Any) -> Any:
    """Return a value of the parameter, or raise a ValueError in one sentence."""
    if kind is None or (isinstance(kind, str) and kind in (AUTO, LINEAR, BOOSTING)):
        return kind
    if isinstance(kind, str | type) or not (hasattr(kind, "fit") and hasattr(kind, "predict")):
        raise ValueError(
            'mean_function must be None, "auto", "linear", "boosting" or a regressor with fit and '
            f"predict, got {kind!r}."
        )
    return kind
