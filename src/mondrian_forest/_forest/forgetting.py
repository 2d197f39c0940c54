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
from .scaling import Range, Scaling
from .state import ForestState
from .trees import (
    finish,
    resampled,
    seeks_evidence,
    with_leaving,
    with_most_evidence,
    with_own_trees,
    with_room,
)

MANY = 0.25
"""If a larger share of the rows leaves, the trees are sampled anew on the rest."""

_LARGEST_STORE, _SMALL_STORE = 16, 1000
"""If a store has more places than 16 for each row, and a thousand, all is stored anew. The store of
a stream grows fourfold."""
_ROUNDING = 1e-5
"""By which the coordinates of one value may differ, if they were computed in two ways."""

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
        means=state.means[: state.n_rows][is_kept],
        arrivals=state.arrivals[: state.n_rows][is_kept],
        n_rows=int(is_kept.sum()),
    )


def forget(state: ForestState, parameters: Parameters, arrivals: Numbers) -> ForestState:
    """Return the forest without some rows; they may still have to leave it (``unfinished``).

    What is stored of these rows is removed. What was learned from many rows is estimated again if
    that takes no time: moments of labels, prior mean, spread. The rest stays until the next review
    or fit.
    """
    if len(arrivals) == 0:
        return state
    state = with_tolerance(state, parameters)
    leaving = np.flatnonzero(np.isin(state.arrivals[: state.n_rows], arrivals))
    if len(leaving) == state.n_rows:
        raise ValueError("A forest must keep at least one row: to forget all, fit it to others.")
    n_jobs, posterior = parameters.n_jobs, posterior_for(state.model, parameters.posterior)
    is_kept = np.ones(state.n_rows, dtype=np.bool_)
    is_kept[leaving] = False
    moments = label_moments(state.labels[: state.n_rows][is_kept])
    state = state.but(random_states=state.random_states.copy(), label_moments=moments)
    if len(leaving) > 0:  # else no root is computed anew
        state = state.but(model=_with_prior_of(state, posterior, moments))
    record = state.spread_record[~np.isin(state.spread_record["arrival"], arrivals)]
    if len(record) < len(state.spread_record):
        state = state.but(spread_record=record)
        if parameters.spread is None:
            none = constant_spread(1.0)
            spread = none
            if len(record) > 0:
                spread = spread_of(record, moments, state.model, state.far)
            state = state.but(spread=spread)
    if state.monitor is not None:
        state = state.but(monitor=state.monitor.without(arrivals, moments))
    are_all_held = len(leaving) == len(arrivals)
    state, must_resample = _with_range_of(state, parameters, is_kept, are_all_held=are_all_held)
    must_resample |= len(state.rows) > _LARGEST_STORE * (state.n_rows - len(leaving)) + _SMALL_STORE
    if must_resample or len(leaving) > MANY * state.n_rows:
        state = resampled(without(state, leaving), n_jobs)
        return with_most_evidence(state, posterior, n_jobs)
    if len(leaving) == 0:
        return state
    n_after = state.n_rows - len(leaving)
    state = with_leaving(state, leaving)
    if seeks_evidence(posterior, state.model, n_after):
        # The evidence has to see the rows leave the trees, which nobody else may know then.
        state = finish(with_own_trees(state, n_jobs), n_jobs)
        return with_most_evidence(state, posterior, n_jobs)
    return with_room(state, state.n_rows, n_jobs)


def _with_prior_of(state: ForestState, posterior: Posterior, labels: Moments) -> LabelModel:
    """Return the label model with the prior of other labels, as far as it concerns the root only.

    With any other hyperparameter, all nodes would have to be computed anew.
    """
    prior_stop = getattr(state.model, "prior_stop", COIN)
    new = posterior.estimate(Summary(labels, state.n_columns, state.resolution, prior_stop))
    names = ["prior_mean", "prior_scale"] if isinstance(new, Pruned) else ["prior_mean"]
    known: Any = state.model
    model: LabelModel = known._replace(**{name: getattr(new, name) for name in names})
    return model


def _with_range_of(
    state: ForestState, parameters: Parameters, is_kept: NDArray[np.bool_], *, are_all_held: bool
) -> tuple[ForestState, bool]:
    """Return the forest with ranges that no forgotten row has set.

    Return also whether the rows that stay have other coordinates now. Where some of the forgotten
    rows were not held any more, nobody knows which ends they have set: these are all that no other
    row has.
    """
    kept, gone = state.rows[: state.n_rows][is_kept], state.rows[: state.n_rows][~is_kept]

    def found_again(ends: Range) -> Range | None:
        """Return a range without ends of forgotten rows, or None if it has none."""
        places = state.scaling.apply(np.stack(ends))
        near, is_lost = _nearest(gone, places)
        for end, f in np.argwhere(is_lost):  # not if another row has the same value
            is_lost[end, f] = not np.any(kept[:, f] == near[end, f])
        if not are_all_held:
            is_lost |= ~_nearest(kept, places)[1]
        is_lost &= state.scaling.weights > 0.0
        return _replaced(ends, kept, is_lost, state.scaling) if np.any(is_lost) else None

    seen = found_again(state.seen_range)
    if seen is not None:
        state = state.but(seen_range=seen)
    if state.scaling.warp is not None or parameters.feature_range is not None:
        return state, False
    found = found_again(state.scaling.range)
    if found is None:
        return state, False
    scaling, moved = state.scaling.widened(found, state.rows, state.n_rows)
    return state.but(scaling=scaling, rows=moved), True


def _nearest(
    rows: NDArray[np.float32], places: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return which coordinates of rows are nearest to both ends of each feature.

    Return also whether they are there, up to rounding.
    """
    if len(rows) == 0:
        return places, np.zeros(places.shape, dtype=np.bool_)
    features = np.arange(places.shape[1])
    near = np.array([rows[np.abs(rows - end).argmin(axis=0), features] for end in places])
    return near, np.abs(near - places) <= _ROUNDING * np.abs(places).max(axis=0)


def _replaced(
    ends: Range, rows: NDArray[np.float32], where: NDArray[np.bool_], scaling: Scaling
) -> Range:
    """Return a range of which some ends are those of rows now."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    where = where | ((low == high) & np.any(where, axis=0))  # both ends of a constant are one
    features = scaling.invert(np.stack((low, high)))
    new_low, new_high = np.where(where, features, np.stack(ends))
    return np.minimum(new_low, new_high), new_high


def with_tolerance(state: ForestState, parameters: Parameters) -> ForestState:
    """Return the forest with the tolerance for cuts that is asked for now."""
    if state.growth.tolerance == parameters.cut_tolerance:
        return state
    return state.but(growth=state.growth._replace(tolerance=parameters.cut_tolerance))
