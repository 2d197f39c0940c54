"""Learning more rows: when to review, widen, extend and refit a forest.

- Every call: some rows are predicted first, for the spread; and all of them, if the forest watches
  for changes. Rows and labels are stored, and then join the trees. If there are more than
  ``max_rows``, some leave.
- When a quarter of the rows are new (the forest is due for a review): the feature range or warp,
  the limits of the labels and the hyperparameters are estimated again. If range, warp or labels
  change, all trees are sampled anew.
- When 50, 200, 800, 1,600 and 3,200 rows are held, and when twice as many as are held have come
  since the last fit: a forest whose feature weights or pruning are learned is fitted again.
- When errors have risen, if the forest watches for that: it is fitted to the rows since.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._core.arrays.memory import enlarge
from .._core.growth import with_label_unit
from .._core.labels.model import Summary
from .._core.moments import Moments, merge_samples, remove_samples
from .forgetting import MANY, Exchange, exchange, first_rows, with_tolerance, without
from .held_out import (
    FEWEST_ROWS,
    HeldOut,
    extended_record,
    must_learn_spread,
    scored_rows,
    spread_of,
)
from .intake import Survey, label_moments, resolution_of
from .label_limits import learn_limits, warn_of_limits
from .mean_function import residuals
from .monitor import Monitor
from .parameters import CHANGE, Parameters
from .posteriors import Posterior, posterior_for
from .predict import predict_mean_of_trees
from .pruning import COIN
from .recipe import ArrayRows, fit, review_at
from .scaling import WIDEST, Range
from .state import ForestState
from .trees import (
    finish,
    resampled,
    seeks_evidence,
    with_joining,
    with_leaving,
    with_most_evidence,
    with_own_trees,
    with_room,
)
from .trials import asks_for_trials, small_parameters

_FITS_AT = (50, 200, 800, 1600, 3200)
"""Numbers of rows at which a forest whose feature weights or pruning are learned is fitted again.
These are learned from 2,500 rows at most, so that later fits would not see more of them."""
_TURNOVERS = 2
"""It is fitted again, too, when this many times the rows that it holds have been learned since."""
_GROWTH = 2
"""A forest with a mean function is fitted again when it has this many times the rows."""
_FEWEST_TO_COMPARE = 10
"""Rows on which a forest of the latest rows is compared with one of all rows."""
_LOGGER = logging.getLogger("mondrian_forest")


def start(
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    names: NDArray[np.object_] | None = None,
) -> ForestState:
    """Fit a forest to its first rows, or to as many of them as it may keep."""
    n_rows = len(labels)
    kept = None
    if parameters.max_rows is not None:
        seed = check_random_state(parameters.random_state).randint(2**31)
        kept = first_rows(n_rows, parameters, np.random.default_rng(seed))
    if kept is None:
        return _fitted(parameters, table, labels, names)
    state = _fitted(parameters, table[kept], labels[kept], names)
    return _renumbered(state, kept, n_rows)


def _fitted(
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    names: NDArray[np.object_] | None,
) -> ForestState:
    return fit(ArrayRows(table, labels, parameters.n_jobs), parameters, names)


def _renumbered(state: ForestState, arrivals: NDArray[np.int64], n_seen: int) -> ForestState:
    """Return a fitted forest whose rows have come later than they were numbered."""
    record = state.spread_record.copy()
    record["arrival"] = arrivals[record["arrival"].astype(np.int64)]
    return state.but(
        arrivals=arrivals[state.arrivals[: state.n_rows]],
        spread_record=record,
        n_seen=n_seen,
        review_at=review_at(n_seen, state.n_rows),
        fitted_at=n_seen,
    )


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
    n_jobs = parameters.n_jobs
    n_seen = state.n_seen + len(labels)
    state = with_tolerance(state, parameters)
    if parameters.forgetting == CHANGE:
        state, n_since = _watched(state, parameters, table, labels)
        if n_since is not None:
            return _fitted_since(state, parameters, table, labels, n_since)
    rows = exchange(state, parameters, len(labels))
    if _must_fit_again(state, parameters, rows, len(labels)):
        return _fitted_again(state, parameters, table, labels, rows)
    limited = state.label_limits.apply(labels)
    if limited is not labels:
        warn_of_limits(state.label_limits)
    table, offset = state.seen_by_trees(table)
    learned = limited if offset is None else residuals(limited, offset)
    means = np.zeros(len(labels)) if offset is None else offset
    if parameters.spread is None:
        state = _with_current_spread(state, table, learned, n_jobs)
    arrivals = np.arange(state.n_seen, n_seen)
    seen = found.range
    if table.shape[1] > len(seen[0]):  # the mean function is a column, too
        seen = _range_with(state.seen_range, seen, table[:, -1])
    state = state.but(random_states=state.random_states.copy(), seen_range=seen, n_seen=n_seen)
    joining = rows.joining
    if joining is not None:
        table, learned, arrivals = table[joining], learned[joining], arrivals[joining]
        means = means[joining]
    new = _Rows(table, learned, means, arrivals)
    moments = found.moments if learned is labels else label_moments(learned)
    return _exchanged(state, parameters, new, moments, rows.leaving)


def _range_with(known: Range, features: Range, values: NDArray[np.float64]) -> Range:
    """Return the range of all columns: of the features, and of more values of the last column."""
    low, high = features
    lowest, highest = values.min(initial=known[0][-1]), values.max(initial=known[1][-1])
    return np.append(low, lowest), np.append(high, highest)


class _Rows(NamedTuple):
    """Rows that are stored, or will be."""

    table: NDArray[Any]
    """As the trees see them."""
    labels: NDArray[np.float64]
    """Residuals, if a mean function is subtracted."""
    means: NDArray[np.float64]
    arrivals: NDArray[np.int64]


def _exchanged(
    state: ForestState,
    parameters: Parameters,
    new: _Rows,
    new_moments: Moments,
    leaving: NDArray[np.int64],
) -> ForestState:
    """Return the forest with new rows, and without those that leave for them."""
    n_jobs, posterior = parameters.n_jobs, posterior_for(state.model, parameters.posterior)
    labels = new.labels
    must_resample = False
    if len(leaving) > MANY * state.n_rows:
        state, leaving, must_resample = without(state, leaving), leaving[:0], True
        moments = label_moments(np.concatenate((state.labels, labels)))
    else:
        moments = _with_fewer_labels(state, leaving)
        moments = merge_samples(moments, new_moments) if len(labels) > 0 else moments
    begin, end = state.n_rows, state.n_rows + len(labels)
    n_after = end - len(leaving)
    is_due = state.n_seen >= state.review_at
    if is_due:
        if state.n_seen > n_after:  # rounding errors of labels that were removed add up
            known = np.delete(state.labels[:begin], leaving)
            moments = label_moments(np.concatenate((known, labels)))
        posterior.check_labels(moments)
    state = state.but(label_moments=moments)
    seen = state.seen_range
    if is_due and parameters.feature_range is None and state.scaling.is_outgrown(seen):
        state = _told_of_rescaling(state)
        scaling, rows = state.scaling.widened(seen, state.rows, begin)
        state = state.but(scaling=scaling, rows=rows)
        must_resample = True
    state = _stored(state, new, parameters.max_rows)
    if is_due:
        state, is_changed = _reviewed(state, posterior, leaving, robust=parameters.robust)
        must_resample |= is_changed
    if must_resample:
        state = resampled(without(state, leaving), n_jobs)
        return with_most_evidence(state, posterior, n_jobs) if is_due else state
    state = with_leaving(with_joining(state, end, is_due=is_due), leaving)
    if is_due and seeks_evidence(posterior, state.model, n_after):
        # The evidence has to see the rows in the trees, which nobody else may know then.
        state = finish(with_own_trees(state, n_jobs), n_jobs)
        return with_most_evidence(state, posterior, n_jobs)
    return with_room(state, end, n_jobs)


def _with_fewer_labels(state: ForestState, leaving: NDArray[np.int64]) -> Moments:
    if len(leaving) == 0:
        return state.label_moments
    return remove_samples(state.label_moments, label_moments(state.labels[leaving]))


def _watched(
    state: ForestState,
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
) -> tuple[ForestState, int | None]:
    """Let the monitor see the errors of rows that are not learned yet.

    Return also how many rows have come since a change, if there was one.
    """
    if state.n_rows < FEWEST_ROWS:
        return state, None
    monitor = state.monitor or Monitor.start(state.label_moments, state.n_seen)
    if monitor.n_seen != state.n_seen:  # rows have been learned without it
        monitor = Monitor.start(state.label_moments, state.n_seen, monitor.changes)
    errors = labels - predict_mean_of_trees(state, table, parameters.n_jobs)
    monitor, n_since = monitor.seen(errors)
    state = state.but(monitor=monitor)
    if n_since is None or not _is_better_since(state, parameters, table, labels, n_since):
        return state, None
    return state, n_since


def _rows_since(state: ForestState, n_new: int, n_since: int) -> Exchange:
    """Return the exchange after which a forest holds the latest rows only."""
    first = state.n_seen + n_new - n_since
    return Exchange(
        np.arange(max(first - state.n_seen, 0), n_new),
        np.flatnonzero(state.arrivals[: state.n_rows] < first),
    )


def _is_better_since(
    state: ForestState,
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    n_since: int,
) -> bool:
    """Return whether a forest that knows the latest rows only would predict better.

    It is fitted to the first half of them and predicts the second half.
    """
    assert state.monitor is not None
    rows = _rows_since(state, len(labels), n_since)
    known = _held_after(state, table, labels, rows)
    half = len(known.labels) // 2
    if half < _FEWEST_TO_COMPARE:
        return False
    small = replace(
        small_parameters(parameters),
        robust=parameters.robust,
        mean_function=parameters.mean_function,
        feature_range=parameters.feature_range,
    )
    small = _seeded(_with_given_columns(small, state), state, len(labels))
    trial = start(small, known.table[:half], known.labels[:half])
    predicted = predict_mean_of_trees(trial, known.table[half:], parameters.n_jobs)
    errors = known.labels[half:] - predicted
    monitor = state.monitor
    new = np.minimum(np.abs(errors), monitor.scale) / monitor.scale
    return bool(new.mean() < monitor.recent[-len(new) :].mean())


def _fitted_since(
    state: ForestState,
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    n_since: int,
) -> ForestState:
    """Return a forest that is fitted to the latest rows, stored ones and new ones."""
    assert state.monitor is not None
    rows = _rows_since(state, len(labels), n_since)
    _LOGGER.info(
        "The errors of predictions have risen: the forest forgets what is older than %d rows.",
        n_since,
    )
    since = _fitted_again(state, parameters, table, labels, rows)
    return since.but(monitor=state.monitor.confirmed(since.label_moments))


def _must_fit_again(state: ForestState, parameters: Parameters, rows: Exchange, n_new: int) -> bool:
    """Return whether feature weights, pruning and mean function are to be learned again."""
    n_after = state.n_rows - len(rows.leaving)
    n_after += n_new if rows.joining is None else len(rows.joining)
    has_grown = any(state.n_rows_fitted < number <= n_after for number in _FITS_AT)
    has_turned_over = state.n_seen + n_new - state.fitted_at >= _TURNOVERS * n_after
    if not np.all(state.scaling.weights > 0.0):  # they were given, when it was fitted
        return False
    if parameters.mean_function is not None:
        return has_turned_over or n_after >= _GROWTH * state.n_rows_fitted
    return (has_grown or has_turned_over) and asks_for_trials(parameters, state.n_features)


def _fitted_again(
    state: ForestState,
    parameters: Parameters,
    table: NDArray[Any],
    labels: NDArray[np.float64],
    rows: Exchange,
) -> ForestState:
    """Return a forest that is fitted anew to what it holds after an exchange of rows."""
    known = _held_after(state, table, labels, rows)
    again = replace(parameters, posterior=posterior_for(state.model, parameters.posterior))
    again = _seeded(_with_given_columns(again, state), state, len(labels))
    since = start(again, known.table, known.labels, state.feature_names)
    if _keeps_mean_function(state):
        means = known.means[since.arrivals[: since.n_rows]]
        since = since.but(mean_function=state.mean_function, means=means)
    return _renumbered(since, known.arrivals, state.n_seen + len(labels)).but(
        monitor=state.monitor, has_rescaled=state.has_rescaled
    )


def _with_given_columns(parameters: Parameters, state: ForestState) -> Parameters:
    """Return parameters of a fit to the columns that the trees see, if the mean function stays."""
    if not _keeps_mean_function(state):
        return parameters
    has_range = parameters.feature_range is not None
    return replace(
        parameters,
        mean_function=None,
        feature_weights=state.scaling.weights,
        feature_range=state.scaling.range if has_range else None,
    )


def _keeps_mean_function(state: ForestState) -> bool:
    """Return whether the mean function stays in a fit to stored rows.

    They know nothing of features without a weight, which the mean function may need.
    """
    return state.mean_function is not None and not np.all(state.scaling.weights > 0.0)


def _seeded(parameters: Parameters, state: ForestState, n_new: int) -> Parameters:
    """Return parameters with a seed that follows from the forest as it is."""
    random = np.random.default_rng([*state.random_states[0].tolist(), state.n_seen + n_new])
    return replace(parameters, random_state=int(random.integers(2**31)))


def _held_after(
    state: ForestState, table: NDArray[Any], labels: NDArray[np.float64], rows: Exchange
) -> _Rows:
    """Return what the forest holds after an exchange of rows, in the order of arrival.

    Stored rows are not known more precisely than their coordinates. The labels are residuals if the
    mean function stays; then there are means, too.
    """
    held = np.delete(np.arange(state.n_rows), rows.leaving)
    held = held[np.argsort(state.arrivals[held])]
    new = np.arange(len(labels)) if rows.joining is None else rows.joining
    known, known_labels = state.scaling.invert(state.rows[held]), state.labels[held]
    means, new_table, new_labels = state.means[held], table[new], labels[new]
    new_means = np.zeros(len(new))
    if _keeps_mean_function(state):
        new_table, offset = state.seen_by_trees(new_table)
        if offset is not None:
            new_labels, new_means = residuals(new_labels, offset), offset
    else:
        known, known_labels = known[:, : state.n_features], known_labels + means
    return _Rows(
        np.concatenate((known, new_table)),
        np.concatenate((known_labels, new_labels)),
        np.concatenate((means, new_means)),
        np.concatenate((state.arrivals[held], state.n_seen + new)),
    )


def _with_current_spread(
    state: ForestState, table: NDArray[Any], labels: NDArray[np.float64], n_jobs: int | None
) -> ForestState:
    """Return the forest with a spread that has seen some of the new rows."""
    if state.n_rows < FEWEST_ROWS:
        return state
    scored = scored_rows(state.n_seen, len(labels))
    if len(scored) == 0:
        return state
    record = extended_record(
        state.ensemble(),
        state.spread_record,
        state.label_memory(),
        HeldOut(state.scaling.apply(table[scored]), labels[scored], state.n_seen + scored),
        n_jobs,
    )
    state = state.but(spread_record=record)
    if not must_learn_spread(state.n_seen, len(labels)):
        return state
    spread = spread_of(record, state.label_moments, state.model, state.far)
    return state.but(spread=spread)


def _stored(state: ForestState, new: _Rows, max_rows: int | None) -> ForestState:
    """Return the forest with the new rows in its store, which is enlarged at least fourfold.

    If the number of rows is limited, there is room for a quarter more than that.
    """
    begin, end = state.n_rows, state.n_rows + len(new.labels)
    rows, labels, means, arrivals = state.rows, state.labels, state.means, state.arrivals
    if end > len(rows):
        room = end + 3 * len(rows)
        if max_rows is not None:
            room = max(end, min(room, len(new.labels) + max_rows + max_rows // 4))
        rows, labels = enlarge(rows, room), enlarge(labels, room)
        means, arrivals = enlarge(means, room), enlarge(arrivals, room)
    state.scaling.apply(new.table, rows[begin:end])
    labels[begin:end] = new.labels
    means[begin:end] = new.means
    arrivals[begin:end] = new.arrivals
    return state.but(rows=rows, labels=labels, means=means, arrivals=arrivals, n_rows=end)


def _reviewed(
    state: ForestState, posterior: Posterior, leaving: NDArray[np.int64], *, robust: bool
) -> tuple[ForestState, bool]:
    """Estimate warp, limits and unit of labels, and hyperparameters again.

    Returns also whether stored rows or labels have changed, so that trees must be sampled anew.
    Rows that leave in the same call still count for warp, limits and resolution.
    """
    is_changed = False
    n_rows = state.n_rows - len(leaving)
    if state.n_seen > n_rows:
        state = state.but(seen_range=_range_of(state))
    rewarped = state.scaling.rewarped(state.rows, state.n_rows)
    if rewarped is not None:
        state = _told_of_rescaling(state)
        state = state.but(scaling=rewarped[0], rows=rewarped[1])
        is_changed = True
    if state.mean_function is None or not state.mean_function.is_subtracted:
        # Else the stored labels are not those that were given.
        if robust:
            state, is_limited = _with_limited_labels(state, leaving)
            is_changed |= is_limited
        state = state.but(resolution=resolution_of(state.labels[: state.n_rows]))
    growth = with_label_unit(state.growth, state.label_moments)
    if growth.n_candidate_splits > 1 and growth.is_far_from(state.growth):
        state = state.but(growth=growth)  # as a fit would compare cuts
        is_changed = True
    model = posterior.estimate(
        Summary(
            state.label_moments,
            state.n_columns,
            state.resolution,
            getattr(state.model, "prior_stop", COIN),
        )
    )
    return state.but(model=model, review_at=review_at(state.n_seen, n_rows)), is_changed


def _range_of(state: ForestState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the range of the stored rows; where a feature has no weight, that of the scaling."""
    rows = state.rows[: state.n_rows]
    ends = state.scaling.invert(np.stack((rows.min(axis=0), rows.max(axis=0))))
    is_known = state.scaling.weights > 0.0
    low, high = (
        np.where(is_known, end, known) for end, known in zip(ends, state.scaling.range, strict=True)
    )
    return low, high


def _with_limited_labels(
    state: ForestState, leaving: NDArray[np.int64]
) -> tuple[ForestState, bool]:
    """Find the limits of labels again; return also whether stored labels lie outside."""
    known = state.labels[: state.n_rows]
    limits = learn_limits(known)
    state = state.but(label_limits=limits)
    learned = limits.apply(known)
    if learned is known:
        return state, False
    warn_of_limits(limits)
    labels = enlarge(learned, len(state.labels))
    return state.but(labels=labels, label_moments=label_moments(np.delete(learned, leaving))), True


def _told_of_rescaling(state: ForestState) -> ForestState:
    """Tell the user, once for each forest, that the scaling is learned again."""
    if not state.has_rescaled:
        _LOGGER.info(
            "Rows span more than %g times the feature range: it is found again, and all trees are "
            "sampled anew, now and whenever this happens again; feature_range avoids it.",
            WIDEST,
        )
    return state.but(has_rescaled=True)
