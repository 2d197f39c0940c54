"""Learning more rows: when to review, widen, reweigh and extend a forest.

- Every call: one row in 32 is predicted first, for the spread. Rows and labels are stored, and then
  join the trees.
- When the number of rows has grown by a quarter (the forest is due for a review): the feature range
  or warp, the limits of the labels and the hyperparameters are estimated again. If range, warp or
  labels change, all trees are sampled anew.
- When 50, 200, 800 and 3,200 rows have been seen: feature weights that are learned are learned
  again, and all trees are sampled anew.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.memory import enlarge
from .._core.labels import Pruned
from .._core.labels.model import Summary
from .._core.moments import merge_samples
from .held_out import EVERY, FEWEST_ROWS, learn_from_held_out
from .intake import Survey, label_moments, resolution_of
from .label_limits import learn_limits, warn_of_limits
from .parameters import Parameters
from .posteriors import Posterior, posterior_for
from .pruning import COIN
from .recipe import review_at, tried
from .scaling import WIDEST
from .state import ForestState, Unfinished
from .trees import finish, resampled, seeks_evidence, with_most_evidence, with_own_trees
from .trials import asks_for_trials, learns_pruning
from .weights import MOST_ROWS as MOST_TRIAL_ROWS

_TRIALS_AT = (50, 200, 800, 3200)
"""Numbers of rows at which feature weights and pruning are learned again. The next one would exceed
the number of rows that they are learned from."""
_LOGGER = logging.getLogger("mondrian_forest")


def learn(
    state: ForestState,
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    found: Survey,
) -> ForestState:
    """Return the forest with more rows; they may still have to join the trees (``unfinished``).

    Arrays that others know are not changed, except for room that is not in use. ``found`` is what
    a survey has found in the rows.
    """
    n_jobs, posterior = parameters.n_jobs, posterior_for(state.model, parameters.posterior)
    labels, new_moments = _as_learned(state, table, labels, found)
    begin, end = state.n_rows, state.n_rows + len(labels)
    moments = merge_samples(state.label_moments, new_moments)
    is_due = end >= state.review_at
    if is_due:
        posterior.check_labels(moments)
    state = state.but(
        random_states=state.random_states.copy(), seen_range=found.range, label_moments=moments
    )
    if parameters.spread is None:
        state = _with_current_spread(state, table, labels, n_jobs)
    must_resample = False
    if is_due and parameters.feature_range is None and state.scaling.is_outgrown(found.range):
        state = _told_of_rescaling(state)
        scaling, rows = state.scaling.widened(found.range, state.rows, begin)
        state = state.but(scaling=scaling, rows=rows)
        must_resample = True
    state = _stored(state, table, labels)
    if is_due:
        state, is_changed = _reviewed(state, posterior, robust=parameters.robust)
        must_resample |= is_changed
    if _must_try_again(state, parameters, begin, end):
        state = _tried_again(state, parameters)
        must_resample = True
    if must_resample:
        state = resampled(state, n_jobs)
        return with_most_evidence(state, posterior, n_jobs) if is_due else state
    if not state.grove.has_room(end):
        state = with_own_trees(state, n_jobs)
    state = state.but(unfinished=Unfinished(end, is_due))
    if is_due and seeks_evidence(posterior, state.model, end):
        # The evidence has to see the rows in the trees, which nobody else may know then.
        state = finish(with_own_trees(state, n_jobs), n_jobs)
        state = with_most_evidence(state, posterior, n_jobs)
    return state


def _as_learned(
    state: ForestState, table: NDArray[Any], labels: NDArray[np.float64], found: Survey
) -> tuple[NDArray[np.float64], Any]:
    """Return labels within their limits, less the trend, and their moments."""
    learned = state.label_limits.apply(labels)
    if learned is not labels:
        warn_of_limits(state.label_limits)
    if state.trend is not None:
        learned = state.trend.residuals(table, learned)
    return learned, found.moments if learned is labels else label_moments(learned)


def _with_current_spread(
    state: ForestState, table: NDArray[Any], labels: NDArray[np.float64], n_jobs: int | None
) -> ForestState:
    """Return the forest with a spread that has seen some of the new rows."""
    scored = slice(-state.n_rows % EVERY, None, EVERY)
    if len(labels[scored]) == 0 or state.n_rows < FEWEST_ROWS:
        return state
    spread, record = learn_from_held_out(
        state.ensemble(),
        state.spread_record,
        state.label_memory(),
        (state.scaling.apply(table[scored]), labels[scored]),
        state.label_moments,
        n_jobs,
    )
    return state.but(spread=spread, spread_record=record)


def _stored(state: ForestState, table: NDArray[Any], labels: NDArray[np.float64]) -> ForestState:
    """Return the forest with the new rows in its store, which is enlarged at least twofold."""
    begin, end = state.n_rows, state.n_rows + len(labels)
    rows, stored = state.rows, state.labels
    if end > len(rows):
        room = end + len(rows)
        rows, stored = enlarge(rows, room), enlarge(stored, room)
    state.scaling.apply(table, rows[begin:end])
    stored[begin:end] = labels
    return state.but(rows=rows, labels=stored, n_rows=end)


def _reviewed(
    state: ForestState, posterior: Posterior, *, robust: bool
) -> tuple[ForestState, bool]:
    """Estimate warp, limits of labels and hyperparameters again.

    Returns also whether stored rows or labels have changed, so that trees must be sampled anew.
    """
    is_changed = False
    rewarped = state.scaling.rewarped(state.rows, state.n_rows)
    if rewarped is not None:
        state = _told_of_rescaling(state)
        state = state.but(scaling=rewarped[0], rows=rewarped[1])
        is_changed = True
    if state.trend is None:  # else the stored labels are not those that were given
        if robust:
            state, is_limited = _with_limited_labels(state)
            is_changed |= is_limited
        state = state.but(resolution=resolution_of(state.labels[: state.n_rows]))
    model = posterior.estimate(
        Summary(
            state.label_moments,
            state.n_features,
            state.resolution,
            getattr(state.model, "prior_stop", COIN),
        )
    )
    state = state.but(model=model, review_at=review_at(state.label_moments.n_samples))
    return state, is_changed


def _with_limited_labels(state: ForestState) -> tuple[ForestState, bool]:
    """Find the limits of labels again; return also whether stored labels lie outside."""
    known = state.labels[: state.n_rows]
    limits = learn_limits(known)
    state = state.but(label_limits=limits)
    learned = limits.apply(known)
    if learned is known:
        return state, False
    warn_of_limits(limits)
    labels = enlarge(learned, len(state.labels))
    return state.but(labels=labels, label_moments=label_moments(learned)), True


def _must_try_again(state: ForestState, parameters: Parameters, begin: int, end: int) -> bool:
    return (
        asks_for_trials(parameters, state.n_features)
        and bool(np.all(state.scaling.weights > 0.0))  # else they were given, when it was fitted
        and any(begin < number <= end for number in _TRIALS_AT)
    )


def _tried_again(state: ForestState, parameters: Parameters) -> ForestState:
    """Learn feature weights and pruning from the rows seen so far, and rescale these."""
    random = np.random.default_rng(state.random_states[0].tolist())
    n_rows = state.n_rows
    chosen = random.choice(n_rows, min(n_rows, MOST_TRIAL_ROWS), replace=False)
    rows = state.scaling.unweighted(state.rows[chosen])
    found = tried(rows, state.labels[chosen], state.scaling.weights, parameters, random)
    scaling, moved = state.scaling.reweighed(found.weights, state.rows, n_rows)
    state = state.but(scaling=scaling, rows=moved)
    if learns_pruning(parameters) and isinstance(state.model, Pruned):
        state = state.but(model=state.model._replace(prior_stop=found.prior_stop))
    return state


def _told_of_rescaling(state: ForestState) -> ForestState:
    """Tell the user, once for each forest, that the scaling is learned again."""
    if not state.has_rescaled:
        _LOGGER.info(
            "Rows span more than %g times the feature range: it is found again, and all trees are "
            "sampled anew, now and whenever this happens again; feature_range avoids it.",
            WIDEST,
        )
    return state.but(has_rescaled=True)
