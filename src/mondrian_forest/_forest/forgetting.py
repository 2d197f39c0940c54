"""Forgetting rows: which ones, and the forest without them.

A row is known by its arrival: how many rows had been learned before it. Few rows leave the trees
one by one, in place (``trees.finish``). If many leave, the trees are sampled anew on the rest,
which gives the same law.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.labels import LabelModel, Pruned
from .._core.labels.model import Summary
from .._core.moments import Moments
from .._core.spread.apply import constant_spread
from .held_out import spread_of
from .intake import label_moments
from .parameters import RANDOM, Parameters
from .posteriors import Posterior, posterior_for
from .pruning import COIN
from .scaling import Range
from .state import ForestState
from .trees import (
    finish,
    resampled,
    seeks_evidence,
    with_leaving,
    with_most_evidence,
    with_own_trees,
)

MANY = 0.25
"""If a larger share of the rows leaves, the trees are sampled anew on the rest."""

Numbers = NDArray[np.int64]


class Exchange(NamedTuple):
    """Which rows a forest takes in, and which it forgets for them."""

    joining: Numbers | None
    """Places among the new rows; None: all of them."""
    leaving: Numbers
    """Places among the rows that are stored."""


def first_rows(n_rows: int, parameters: Parameters, random: np.random.Generator) -> Numbers | None:
    """Return the rows that a fit keeps, in ascending order; None for all."""
    most = parameters.max_rows
    if most is None or n_rows <= most:
        return None
    if parameters.forgetting == RANDOM:
        return np.sort(random.choice(n_rows, most, replace=False))
    return np.arange(n_rows - most, n_rows)


def exchange(state: ForestState, parameters: Parameters, n_new: int) -> Exchange:
    """Return which of ``n_new`` rows join, and which rows leave, by ``max_rows``."""
    most, n_rows = parameters.max_rows, state.n_rows
    if most is None or n_rows + n_new <= most:
        return Exchange(None, np.empty(0, np.int64))
    if parameters.forgetting == RANDOM:
        return _reservoir(state, most, n_new)
    n_leaving = min(n_rows + n_new - most, n_rows)
    joining = None if n_new <= most else np.arange(n_new - most, n_new)
    return Exchange(joining, _oldest(state, n_leaving))


def _oldest(state: ForestState, n_leaving: int) -> Numbers:
    """Return the places of the rows that came first."""
    arrivals = state.arrivals[: state.n_rows]
    if n_leaving == 1:  # a tenth of the time, for streams of single rows
        return np.array([arrivals.argmin()])
    return np.argpartition(arrivals, n_leaving - 1)[:n_leaving]


def _reservoir(state: ForestState, most: int, n_new: int) -> Exchange:
    """Keep a uniform sample of all rows (Vitter 1985, algorithm R).

    The new row that comes after t others takes the place of a random one with probability
    ``most / (t + 1)``.
    """
    # Also where no row is taken in, so that no stream of the trees moves on.
    seed = [*state.random_states[0].tolist(), state.n_seen]
    random = np.random.default_rng(seed)
    n_rows, n_seen = state.n_rows, state.n_seen
    extra = max(n_rows - most, 0)  # where a smaller number has been set since
    held = random.permutation(n_rows)[extra:]
    places = np.concatenate((held, np.full(max(most - len(held), 0), -1)))
    n_free = len(places) - len(held)
    for i in range(n_new):
        if i < n_free:
            places[len(held) + i] = n_rows + i
            continue
        place = int(random.integers(n_seen + i + 1))
        if place < most:
            places[place] = n_rows + i
    is_kept = np.zeros(n_rows + n_new, dtype=np.bool_)
    is_kept[places[places >= 0]] = True
    return Exchange(np.flatnonzero(is_kept[n_rows:]), np.flatnonzero(~is_kept[:n_rows]))


def without(state: ForestState, leaving: Numbers) -> ForestState:
    """Return the forest without stored rows, of which none may be on its way into a tree.

    The trees still know these rows: the caller samples them anew.
    """
    if len(leaving) == 0:
        return state
    is_kept = np.ones(state.n_rows, dtype=np.bool_)
    is_kept[leaving] = False
    return state.but(
        rows=state.rows[: state.n_rows][is_kept],
        labels=state.labels[: state.n_rows][is_kept],
        arrivals=state.arrivals[: state.n_rows][is_kept],
        n_rows=int(is_kept.sum()),
    )


def forget(state: ForestState, parameters: Parameters, arrivals: Numbers) -> ForestState:
    """Return the forest without some rows; they may still have to leave it (``unfinished``).

    What is stored of these rows is removed. What was learned from many rows is estimated again if
    that takes no time: moments of labels, prior mean, spread. The rest stays until the next review
    or fit.
    """
    leaving = np.flatnonzero(np.isin(state.arrivals[: state.n_rows], arrivals))
    record = state.spread_record[~np.isin(state.spread_record["arrival"], arrivals)]
    if len(leaving) == 0 and len(record) == len(state.spread_record):
        return state
    if len(leaving) == state.n_rows:
        raise ValueError("A forest must keep at least one row: to forget all, fit it to others.")
    n_jobs, posterior = parameters.n_jobs, posterior_for(state.model, parameters.posterior)
    is_kept = np.ones(state.n_rows, dtype=np.bool_)
    is_kept[leaving] = False
    moments = label_moments(state.labels[: state.n_rows][is_kept])
    state = state.but(
        random_states=state.random_states.copy(),
        label_moments=moments,
        model=_with_prior_of(state, posterior, moments),
    )
    if parameters.spread is None and len(record) < len(state.spread_record):
        none = constant_spread(1.0)
        spread = spread_of(record, moments, state.model) if len(record) > 0 else none
        state = state.but(spread=spread, spread_record=record)
    if state.monitor is not None:
        state = state.but(monitor=state.monitor.without(arrivals, moments))
    state, must_resample = _with_range_of(state, parameters, leaving, is_kept)
    if must_resample or len(leaving) > MANY * state.n_rows:
        state = resampled(without(state, leaving), n_jobs)
        return with_most_evidence(state, posterior, n_jobs)
    n_after = state.n_rows - len(leaving)
    state = with_leaving(state, leaving)
    if seeks_evidence(posterior, state.model, n_after):
        # The evidence has to see the rows leave the trees, which nobody else may know then.
        state = finish(with_own_trees(state, n_jobs), n_jobs)
        return with_most_evidence(state, posterior, n_jobs)
    if not state.grove.can_learn(state.n_rows, state.growth.n_candidate_splits):
        state = with_own_trees(state, n_jobs)
    return state


def _with_prior_of(state: ForestState, posterior: Posterior, labels: Moments) -> LabelModel:
    """Return the label model with the prior of other labels, as far as it concerns the root only.

    With any other hyperparameter, all nodes would have to be computed anew.
    """
    prior_stop = getattr(state.model, "prior_stop", COIN)
    new = posterior.estimate(Summary(labels, state.n_features, state.resolution, prior_stop))
    names = ["prior_mean", "prior_scale"] if isinstance(new, Pruned) else ["prior_mean"]
    known: Any = state.model
    model: LabelModel = known._replace(**{name: getattr(new, name) for name in names})
    return model


def _with_range_of(
    state: ForestState, parameters: Parameters, leaving: Numbers, is_kept: NDArray[np.bool_]
) -> tuple[ForestState, bool]:
    """Return the forest with ranges that no forgotten row has set.

    Return also whether the rows that stay have other coordinates now.
    """
    rows = state.rows[: state.n_rows]
    old = rows.min(axis=0), rows.max(axis=0)
    gone = rows[leaving]
    if not np.any((gone == old[0]) | (gone == old[1])):
        return state, False
    new = rows[is_kept].min(axis=0), rows[is_kept].max(axis=0)
    is_moved = [one != other for one, other in zip(old, new, strict=True)]
    known = state.scaling.weights > 0.0
    features = state.scaling.invert(np.stack(new))
    seen_range = _replaced(state.seen_range, features, [where & known for where in is_moved])
    state = state.but(seen_range=seen_range)
    if state.scaling.warp is not None or parameters.feature_range is not None:
        return state, False
    bounds = state.scaling.apply(np.stack(state.scaling.range))
    was_end = [
        where & known & (np.abs(end - bound) <= 1e-5 * np.abs(bounds[1]))
        for where, end, bound in zip(is_moved, old, bounds, strict=True)
    ]
    if not np.any(was_end):
        return state, False
    found = _replaced(state.scaling.range, features, was_end)
    scaling, moved = state.scaling.widened(found, state.rows, state.n_rows)
    return state.but(scaling=scaling, rows=moved), True


def _replaced(ends: Range, features: NDArray[np.float64], where: list[Any]) -> Range:
    low, high = (
        np.where(place, feature, end)
        for place, feature, end in zip(where, features, ends, strict=True)
    )
    return low, high
