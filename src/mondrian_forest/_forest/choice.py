"""Which mean function a forest gets: what is asked for, or what held-out rows choose.

All candidates are cross-fitted to all rows. Then a few trees are grown around each, and predict
rows that they have not seen. These rows are new to the regressions as well, since each is predicted
by the model that has not seen its label. The best candidate is compared with a forest that has no
mean function once more, with more trees and with feature weights of its own.

Nothing is known about a regression where there are no data. So one that was chosen here does not go
on beyond the data, and far from them the standard deviation is that of all labels.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray

from .._core.features import FARTHEST
from .._core.labels import Pruned
from .mean_function import (
    BOOSTING,
    BOTH,
    FEATURE,
    LINEAR,
    SUBTRACT,
    CrossFit,
    MeanFunction,
    Values,
    bulk_of,
    cross_fit,
    is_auto,
    residuals,
)
from .parameters import Parameters
from .predict import predict_mean, predict_mean_and_std
from .pruning import COIN, scores_of
from .scaling import Range, learn_scaling
from .state import ForestState
from .trees import renewed
from .trials import Found, asks_for_trials, learns_pruning, small_parameters, try_forests
from .weights import MOST_QUERIES, gains, next_weights
from .weights import MOST_ROWS as MOST_TRIAL_ROWS

_CANDIDATES = (
    (LINEAR, SUBTRACT),
    (LINEAR, BOTH),
    (LINEAR, FEATURE),
    (BOOSTING, SUBTRACT),
    (BOOSTING, BOTH),
    (BOOSTING, FEATURE),
)
_FEW_TREES, _MORE_TREES = 10, 20
"""Trees around each candidate, and around the best one and none."""
_MOST_ROWS = 10_000
"""Rows from which the trees are grown."""
_ENOUGH_HELD = 1_000
"""Rows that they predict, in up to five turns of a fifth each."""
_N_TURNS = 5
_FEWEST_ROWS = 50
"""With fewer rows, "auto" is no mean function."""
_LEAST_GAIN = 0.01
"""The mean CRPS must be smaller by this share than without a mean function,"""
_SURE = 2.5
"""and by so many standard errors. Where no candidate is better, chance makes one of six seem so
in one table of 27."""
_N_ROUNDS = 2
"""In which feature weights of the best candidate are learned, from a good guess on."""
_QUERIES = MOST_QUERIES // 4
"""Number of predictions from which the feature weights of a candidate are guessed."""
_PRIORS = (COIN, 0.88, 0.12)
"""Prior probabilities of stopping that are tried around each candidate, with the one that suits
trees without a mean function."""

_LOGGER = logging.getLogger("mondrian_forest")

Fit = Callable[[NDArray[np.float64], Values, Parameters], ForestState]


class Choice(NamedTuple):
    """A mean function that has been fitted, or none, and what suits the trees around it."""

    found: Found
    mean_function: MeanFunction | None = None
    means: Values = np.empty(0)
    """By row: its value, by a model that has not seen the label."""


class Known(NamedTuple):
    """Rows that a mean function is fitted to."""

    table: NDArray[Any]
    labels: Values
    range: Range
    free: NDArray[np.int64]
    """Numbers of the rows that are not held out: only these are fitted."""
    found: Found
    """What suits trees without a mean function."""


def fit_mean_function(
    known: Known, parameters: Parameters, random: np.random.Generator, fit: Fit
) -> Choice:
    """Fit the mean function that is asked for, or the best one."""
    kind, (table, labels, _, free, found) = parameters.mean_function, known
    if not is_auto(kind):
        one = _cross_fit(kind, known, parameters, random)
        return Choice(found, MeanFunction(one.regression, parameters.mean_use), one.means)
    if len(free) < _FEWEST_ROWS:
        return Choice(found)
    some = random.permutation(free)[: _MOST_ROWS + _ENOUGH_HELD]
    trial = _Trial(table[some], labels[some], parameters, random, fit)
    with parallel_config("threading"):  # these are too small to be worth sending elsewhere
        return _best(known, trial, some, random)


def _cross_fit(
    kind: Any, known: Known, parameters: Parameters, random: np.random.Generator
) -> CrossFit:
    table, labels, seen, free, _ = known
    limits = bulk_of(table) if parameters.robust else seen
    # Who asks for a line knows that the trend goes on. Rows of the data cannot tell.
    goes_on = not is_auto(parameters.mean_function)
    n_jobs = parameters.n_jobs
    return cross_fit(kind, table, labels, free, limits, random, n_jobs, goes_on=goes_on)


def _best(
    known: Known, trial: _Trial, some: NDArray[np.int64], random: np.random.Generator
) -> Choice:
    """Return the candidate that is clearly better than no mean function, or none."""
    fits = {kind: _cross_fit(kind, known, trial.parameters, random) for kind in (LINEAR, BOOSTING)}
    plain = known.found
    none = _Seen(trial.in_units_of_range(trial.table), trial.labels)
    loss = trial.losses(none, plain.weights, [plain.prior_stop], _MORE_TREES)[0]

    least, best = np.inf, None
    for kind, use in _CANDIDATES:
        function = MeanFunction(fits[kind].regression, use)
        around = trial.around(function, fits[kind].means[some])
        weights = trial.guess_weights(around, plain.weights)
        priors = list(dict.fromkeys((plain.prior_stop, *_PRIORS)))
        quick = min(one.sum() for one in trial.losses(around, weights, priors, _FEW_TREES))
        if best is None or quick < least:
            least, best = quick, (kind, function, around, weights)
    assert best is not None
    kind, function, around, weights = best
    found = trial.learn(around, weights, _N_ROUNDS)
    own_loss = trial.losses(around, found.weights, [found.prior_stop], _MORE_TREES)[0]

    gain = loss - own_loss
    is_better = gain.mean() > _LEAST_GAIN * loss.mean()
    if is_better and gain.mean() > _SURE * gain.std() / math.sqrt(len(gain)):
        _LOGGER.info("Held-out rows chose the mean function %s (%s).", kind, function.use)
        means = fits[kind].means
        rest = residuals(known.labels, function.offset(means)).std()
        far = max(float(known.labels.std() / rest), 1.0) if rest > 0.0 else 1.0
        return Choice(found, function._replace(far=far), means)
    _LOGGER.info("Held-out rows chose no mean function.")
    return Choice(plain)


class _Seen(NamedTuple):
    """What the trees of a trial see."""

    rows: NDArray[np.float64]
    """In units of the range of each column."""
    labels: Values


class _Trial:
    """Rows, in random order, on which small forests are compared."""

    def __init__(
        self,
        table: NDArray[Any],
        labels: Values,
        parameters: Parameters,
        random: np.random.Generator,
        fit: Fit,
    ) -> None:
        self.table, self.labels, self.parameters = table, labels, parameters
        self._random, self._fit = random, fit

    def in_units_of_range(self, columns: NDArray[Any]) -> NDArray[np.float64]:
        """Return the columns of the rows as trees see them, but for weights."""
        scaling = learn_scaling(
            columns,
            (columns.min(axis=0), columns.max(axis=0)),
            self.parameters.feature_range,
            self.table.shape[1],
            robust=self.parameters.robust,
        )
        return np.asarray(np.clip(scaling.in_units_of_range(columns), -FARTHEST, FARTHEST))

    def around(self, function: MeanFunction, means: Values) -> _Seen:
        """Return what trees around a mean function see."""
        rows = self.in_units_of_range(function.columns(self.table, means))
        return _Seen(rows, residuals(self.labels, function.offset(means)))

    def learn(self, seen: _Seen, weights: Values, n_rounds: int) -> Found:
        """Learn feature weights and pruning, as a fit does, from weights that are good already."""
        if not asks_for_trials(self.parameters, seen.rows.shape[1]):
            return Found(weights, COIN)
        rows, labels = seen.rows[:MOST_TRIAL_ROWS], seen.labels[:MOST_TRIAL_ROWS]
        return try_forests(
            rows, labels, weights, self.parameters, self._random, self._fit, n_rounds
        )

    def guess_weights(self, seen: _Seen, weights: Values) -> Values:
        """Return feature weights that are better than those without a mean function.

        If the mean function is a feature, it begins with the largest of these weights.
        """
        n_more = seen.rows.shape[1] - len(weights)
        weights = np.append(weights, np.full(n_more, weights.max()))
        if not self.parameters.learns_weights:
            return np.asarray(weights / weights.mean())
        rows, labels = seen.rows[:MOST_TRIAL_ROWS], seen.labels[:MOST_TRIAL_ROWS]
        state = self._grow(_Seen(rows, labels), weights, _FEW_TREES)
        trees = [state.grove.tree(number) for number in range(state.grove.n_trees)]
        better = next_weights(
            rows,
            lambda table: predict_mean(state, table, self.parameters.n_jobs),
            gains(trees, rows.shape[1]),
            self._random,
            _QUERIES,
        )
        return np.asarray(weights / weights.mean()) if better is None else better

    def losses(
        self, seen: _Seen, weights: Values, priors: list[float], n_trees: int
    ) -> list[Values]:
        """Return the CRPS of rows that trees have not seen, for each prior probability of stopping.

        All deviations are multiplied by the factor that suits them best, as the spread would do.
        """
        n_rows, n_jobs = len(seen.rows), self.parameters.n_jobs
        n_held = max(min(n_rows // _N_TURNS, _ENOUGH_HELD), 1)
        found: list[list[Values]] = [[] for _ in priors]
        for turn in range(min(-(-_ENOUGH_HELD // n_held), _N_TURNS)):
            is_held = np.zeros(n_rows, dtype=bool)
            is_held[turn * n_held : (turn + 1) * n_held] = True
            others = _Seen(seen.rows[~is_held], seen.labels[~is_held])
            state = self._grow(others, weights, n_trees)
            for number, prior in enumerate(priors):
                if learns_pruning(self.parameters):
                    assert isinstance(state.model, Pruned)
                    state = renewed(state, state.model._replace(prior_stop=prior), n_jobs)
                mean, std = predict_mean_and_std(state, seen.rows[is_held], n_jobs)
                found[number].append(scores_of(seen.labels[is_held] - mean, std))
        by_factor = [np.concatenate(scores) for scores in found]
        return [scores[:, scores.sum(axis=0).argmin()] for scores in by_factor]

    def _grow(self, seen: _Seen, weights: Values, n_trees: int) -> ForestState:
        small = replace(
            small_parameters(self.parameters),
            n_estimators=min(self.parameters.n_estimators, n_trees),
            feature_weights=weights,
            random_state=int(self._random.integers(2**31)),
        )
        return self._fit(seen.rows, seen.labels, small)
