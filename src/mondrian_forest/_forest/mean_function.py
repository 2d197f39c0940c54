"""The mean function: a regressor whose residuals the forest learns.

It is cross-fitted. The rows are divided into five folds, and a model is fitted to the rows outside
of each fold. The residual of a row is that of the model that has not seen its label. So rows that
are held out for the spread have honest residuals, too.

A prediction takes the mean of the five models. None of them has seen the label of a new row, so
its residual is like those that the forest has learned; and since the mean of models is at least as
accurate as they are on average, forecasts are rather too wide than too narrow.
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
from .scaling import Range, blocks_of

AUTO, LINEAR, BOOSTING = "auto", "linear", "boosting"
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


MeanFunction = Linear | Boosted | Regressors


class CrossFit(NamedTuple):
    """A mean function, and what it says of the rows that it was fitted to."""

    function: MeanFunction
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
    seen: Range,
    random: np.random.Generator,
    n_jobs: int | None = None,
) -> CrossFit:
    """Fit a mean function: "linear", "boosting", or a regressor of scikit-learn's interface."""
    if isinstance(kind, FrozenEstimator):  # fitted by the user
        function = Regressors((kind,))
        return CrossFit(function, function.at(table))
    n_rows = len(labels)
    if n_rows < FEWEST_ROWS:
        return _constant(labels, seen)
    fold = random.permutation(n_rows) % N_FOLDS
    if isinstance(kind, str) and kind == LINEAR:
        return _cross_fit_linear(table, labels, seen, fold)
    if isinstance(kind, str):
        return _cross_fit_boosted(table, labels, fold, int(random.integers(2**31)), n_jobs)
    models, means = _cross_predicted(
        lambda rows, some: clone(kind).fit(rows, some),
        lambda model: Regressors((model,)),
        table,
        labels,
        fold,
    )
    return CrossFit(Regressors(tuple(models)), means)


def _constant(labels: Values, seen: Range) -> CrossFit:
    size = np.ones(len(seen[0]))
    level = float(labels.mean())
    return CrossFit(Linear(level, 0.0 * size, size, 0.0 * size), np.full(len(labels), level))


def _cross_fit_linear(
    table: NDArray[Any], labels: Values, seen: Range, fold: NDArray[np.int64]
) -> CrossFit:
    means = np.empty(len(labels))
    found = []
    for k in range(N_FOLDS):
        found.append(fit_linear(blocks_of(table), labels, fold != k, seen))
        means[fold == k] = found[k].at(table[fold == k])
    level = float(np.mean([one.level for one in found]))
    slope = np.mean([one.slope for one in found], axis=0)
    return CrossFit(found[0]._replace(level=level, slope=slope), means)


def _cross_fit_boosted(
    table: NDArray[Any], labels: Values, fold: NDArray[np.int64], seed: int, n_jobs: int | None
) -> CrossFit:
    center = float(labels.mean())
    deviation = float((labels - center).std())  # boosting computes in single precision
    unit = deviation if deviation > 0.0 else 1.0
    models, means = _cross_predicted(
        lambda rows, some: fit_boosted(rows, some, seed, n_jobs),
        lambda model: boosted([model], 0.0, 1.0),
        table,
        (labels - center) / unit,
        fold,
    )
    return CrossFit(boosted(models, center, unit), center + unit * means)


def _cross_predicted(
    fit: Callable[[NDArray[Any], Values], Any],
    function_of: Callable[[Any], MeanFunction],
    table: NDArray[Any],
    labels: Values,
    fold: NDArray[np.int64],
) -> tuple[list[Any], Values]:
    """Fit a model outside of each fold; return the models, and what they predict inside."""
    models, means = [], np.empty(len(labels))
    for k in range(N_FOLDS):
        model = fit(table[fold != k], labels[fold != k])
        means[fold == k] = function_of(model).at(table[fold == k])
        models.append(model)
    return models, means


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
