"""The parameters of a forest, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .mean_function import USES, check_mean_function
from .posteriors import LARGEST, SMALLEST, Posterior, posterior_of
from .validation import check_flag, check_integer, check_n_jobs, check_number

AUTO = "auto"
OLDEST, RANDOM, CHANGE = FORGETTING = ("oldest", "random", "change")


@dataclass(frozen=True, eq=False)
class Parameters:
    """What the user has chosen; None stands for what is found from the data."""

    n_estimators: int
    min_samples_split: int | None
    posterior: Posterior
    n_candidate_splits: int | None
    """None: as many as there are features."""
    feature_weights: NDArray[np.float64] | None
    learns_weights: bool
    spread: float | None
    robust: bool
    mean_function: Any
    """None, a name, or a regressor."""
    mean_use: str
    feature_range: tuple[ArrayLike, ArrayLike] | None
    max_rows: int | None
    forgetting: str
    cut_tolerance: float
    n_jobs: int | None
    random_state: Any


def _is(value: object, word: str) -> bool:
    return isinstance(value, str) and value == word


def parameters_of(forest: Any) -> Parameters:
    """Return the parameters of an estimator, or raise a ValueError in one sentence."""
    check_integer("n_estimators", forest.n_estimators, 1)
    if not _is(forest.min_samples_split, AUTO):
        check_integer("min_samples_split", forest.min_samples_split, 2, instead='"auto"')
    check_n_jobs(forest.n_jobs)
    posterior = posterior_of(forest.posterior)
    if not _is(forest.n_candidate_splits, "n_features"):
        check_integer("n_candidate_splits", forest.n_candidate_splits, 1, instead='"n_features"')
    weights = _given_weights(forest.feature_weights)
    if not _is(forest.spread, AUTO):
        check_number("spread", forest.spread, 1e-3, 1e3, instead='"auto"')
    check_flag("robust", forest.robust)
    mean_function = check_mean_function(forest.mean_function)
    if not any(_is(forest.mean_use, use) for use in USES):
        raise ValueError(
            f'mean_use must be "subtract", "feature" or "both", got {forest.mean_use!r}.'
        )
    if forest.max_rows is not None:
        check_integer("max_rows", forest.max_rows, 1, instead="None")
    if not any(_is(forest.forgetting, rule) for rule in FORGETTING):
        raise ValueError(
            f'forgetting must be "oldest", "random" or "change", got {forest.forgetting!r}.'
        )
    check_number("cut_tolerance", forest.cut_tolerance, 0.0, 1.0)
    return Parameters(
        int(forest.n_estimators),
        None if isinstance(forest.min_samples_split, str) else int(forest.min_samples_split),
        posterior,
        None if isinstance(forest.n_candidate_splits, str) else int(forest.n_candidate_splits),
        weights,
        _is(forest.feature_weights, AUTO),
        None if isinstance(forest.spread, str) else float(forest.spread),
        bool(forest.robust),
        mean_function,
        forest.mean_use,
        forest.feature_range,
        None if forest.max_rows is None else int(forest.max_rows),
        forest.forgetting,
        float(forest.cut_tolerance),
        forest.n_jobs,
        forest.random_state,
    )


def _given_weights(weights: Any) -> NDArray[np.float64] | None:
    if weights is None or _is(weights, AUTO):
        return None
    try:
        values = np.asarray(weights)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if not (
        values.ndim == 1
        and values.dtype.kind in "biuf"
        and np.all((values >= 0.0) & (values <= LARGEST))
        and values.max(initial=0.0) >= SMALLEST
    ):
        raise ValueError(
            'feature_weights must be None, "auto", or numbers of which none is negative and '
            f"not all are zero, one for each feature, got {weights!r}."
        )
    return values.astype(np.float64)
