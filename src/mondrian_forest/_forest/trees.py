"""All trees of a forest at once: sampled, extended and copied, each with its own random stream."""

from __future__ import annotations

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from scipy.optimize import minimize

from .._core.arrays.grove import (
    Grove,
    allocate_for_copy,
    allocate_grove,
    allocate_to_grow,
    compact,
    copy_tree,
    count_free_places,
)
from .._core.arrays.tree import parents_first
from .._core.growth import Growth
from .._core.growth.extend import extend_trees as extend_grove
from .._core.growth.join import join_trees as join_grove
from .._core.growth.learn import learn_alone, learn_batch, put, renew, scratch_like
from .._core.growth.leave import leave_trees as leave_grove
from .._core.growth.leave import leaving_of
from .._core.labels import Hierarchical, LabelModel
from .._core.labels.evidence import TUNABLE, evidence_and_gradient, maximise_evidence
from ..io.container import ModelFileError
from .model_file import fault_of_trees
from .parallel import FEWEST_ROWS_FOR_THREADS, in_threads, other_processes
from .posteriors import HierarchicalPosterior, Posterior
from .state import ForestState, Unfinished

_FEWEST_ROWS_FOR_EVIDENCE = 10
_MANY_NEW = 1000
"""With so many new rows, the free places of a tree are counted. That takes a hundredth of the time
in which these rows are learned."""
_MOST_FREE = 0.25
"""Trees may have this share of free places then."""


def sample_trees(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    n_rows: int,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
    n_jobs: int | None,
) -> Grove:
    """Sample all trees on the first ``n_rows`` rows. The random streams advance in place."""
    n_features, n_candidates = rows.shape[1], growth.n_candidate_splits
    grove = allocate_grove(len(random_states), len(rows), n_features, n_candidates, is_linked=False)
    rows, labels = rows[:n_rows], labels[:n_rows]
    elsewhere = other_processes(n_jobs)
    if elsewhere is not None:
        learned = elsewhere(
            delayed(learn_alone)(rows, labels, growth, model, state) for state in random_states
        )
        for number, one in enumerate(learned):
            put(grove, number, one)
            random_states[number] = one.random_state
        return grove
    free: list[NDArray[np.float32]] = []  # used again, since fresh memory is slow at first

    def sample(number: int) -> None:
        try:
            scratch = free.pop()
        except IndexError:
            scratch = scratch_like(rows)
        learn_batch(grove, number, rows, labels, growth, model, random_states[number], scratch)
        free.append(scratch)

    in_threads(sample, grove.n_trees, n_jobs)
    return grove


def resampled(state: ForestState, n_jobs: int | None) -> ForestState:
    """Return the forest with all trees sampled anew on the stored rows."""
    grove = sample_trees(
        state.rows, state.labels, state.n_rows, state.growth, state.model,
        state.random_states, n_jobs,
    )  # fmt: skip
    return state.but(grove=grove)


def with_joining(state: ForestState, end: int, *, is_due: bool = False) -> ForestState:
    """Return the state with the note that stored rows up to ``end`` have yet to join the trees."""
    have_joined = np.zeros(state.grove.n_trees, dtype=np.bool_)
    return state.but(unfinished=Unfinished(end, is_due, have_joined))


def with_leaving(state: ForestState, numbers: NDArray[np.int64]) -> ForestState:
    """Return the state with the note that some rows have yet to leave the trees as well."""
    if len(numbers) == 0:
        return state
    unfinished = state.unfinished or with_joining(state, state.n_rows).unfinished
    assert unfinished is not None
    leaving = leaving_of(numbers, unfinished.end, state.grove.n_trees)
    return state.but(
        unfinished=unfinished._replace(leaving=leaving, is_moved=np.zeros(1, dtype=np.bool_))
    )


def finish(state: ForestState, n_jobs: int | None) -> ForestState:
    """Let rows join and leave all trees, in place; return the finished state.

    What has been done already stays as it is, so that a call that was interrupted can be repeated.
    Interrupts come between kernels, never within one.
    """
    if state.unfinished is None:
        return state
    end, is_due, have_joined, leaving, _ = state.unfinished
    # Of few trees, the smallest number of a list is found faster than that of an array.
    n_changed = end - min(state.grove.tallies["n_samples"][:, 0].tolist())
    n_changed += 0 if leaving is None else len(leaving.numbers)

    def change(first: int, stop: int) -> None:
        if not all(have_joined[first:stop].tolist()):
            _join(state, first, stop)
        if leaving is not None:
            _leave(state, first, stop)

    def change_one(number: int) -> None:
        change(number, number + 1)
        if is_due:
            renew(state.grove, number, state.model)

    if not is_due and n_changed < FEWEST_ROWS_FOR_THREADS:
        change(0, state.grove.n_trees)
    else:
        in_threads(change_one, state.grove.n_trees, n_jobs)
    if leaving is None:
        return state.but(unfinished=None)
    _move_rows(state)
    return state.but(unfinished=None, n_rows=end - len(leaving.numbers))


def _join(state: ForestState, first: int, stop: int) -> None:
    """Let the stored rows join some trees."""
    assert state.unfinished is not None
    growth, end = state.growth, state.unfinished.end
    join = join_grove
    if growth.n_candidate_splits == 1:
        join = extend_grove
        _make_room(state.grove, first, stop, end)
    join(
        state.grove, first, stop, state.rows, state.labels, end, growth,
        state.model, state.random_states, state.unfinished.have_joined,
    )  # fmt: skip


def _make_room(grove: Grove, first: int, stop: int, end: int) -> None:
    """Close the gaps that forgotten rows have left, where there is no room or many gaps."""
    n_new = end - min(grove.tallies["n_samples"][first:stop, 0].tolist())
    largest = max(grove.sizes[first:stop].tolist())
    is_small = largest <= 3 * end + _MANY_NEW
    if n_new < _MANY_NEW and is_small and largest + 2 * n_new <= grove.nodes.shape[1]:
        return  # as a rule: to look at each tree would take a fifth of the time of a row
    for number in range(first, stop):
        size = int(grove.sizes[number])
        n_new = end - grove.n_rows(number)
        is_full = size + 2 * n_new > grove.nodes.shape[1]
        has_gaps = n_new >= _MANY_NEW and count_free_places(grove, number) > _MOST_FREE * size
        if is_full or has_gaps or size > 3 * end + _MANY_NEW:
            compact(grove, number, allocate_for_copy(grove, grove.n_rows(number)))


def _leave(state: ForestState, first: int, stop: int) -> None:
    """Let rows leave some trees."""
    assert state.unfinished is not None
    assert state.unfinished.leaving is not None
    leave_grove(
        state.grove, first, stop, state.rows, state.labels, state.unfinished.leaving,
        state.growth, state.model, state.random_states,
    )  # fmt: skip


def _move_rows(state: ForestState) -> None:
    """Give rows that stay the places of rows that have left, and clear the places behind them."""
    assert state.unfinished is not None
    end, _, _, leaving, is_moved = state.unfinished
    assert leaving is not None
    assert is_moved is not None
    stored = (state.rows, state.labels, state.means, state.arrivals)
    if not is_moved[0]:  # once more does no harm, before the places behind are cleared
        for array in stored:
            array[leaving.to] = array[leaving.moved]
        is_moved[0] = True
    for array in stored:
        array[end - len(leaving.numbers) : end] = 0


def with_room(state: ForestState, n_rows: int, n_jobs: int | None) -> ForestState:
    """Return the forest with trees that can learn up to ``n_rows`` rows, and can forget."""
    if state.grove.can_learn(n_rows, state.growth.n_candidate_splits) and not state.is_mapped:
        return state
    return with_own_trees(state, n_jobs)


def with_own_trees(state: ForestState, n_jobs: int | None) -> ForestState:
    """Return the forest with a copy of its trees that nobody else knows, and that can learn."""
    old = state.grove
    n_rows, n_features = state.rows.shape
    new = allocate_to_grow(old.n_trees, n_rows, n_features, state.growth.n_candidate_splits)
    in_threads(lambda number: copy_tree(old, number, new), old.n_trees, n_jobs)
    if state.unfinished is not None and state.unfinished.leaving is not None:
        # Rows will move to other places.
        state = state.but(
            rows=state.rows.copy(),
            labels=state.labels.copy(),
            means=state.means.copy(),
            arrivals=state.arrivals.copy(),
        )
    if state.is_mapped:  # somebody may have changed the file since it was loaded
        fault = fault_of_trees(new, state.rows, old.n_rows(0), state.model)
        if fault:
            raise ModelFileError(
                f"The model file has changed since it was loaded with mmap=True: {fault}."
            )
    return state.but(grove=new, is_mapped=False)


def renewed(state: ForestState, model: LabelModel, n_jobs: int | None) -> ForestState:
    """Compute the label model of every node anew, in place; return the state with that model."""
    grove = state.grove
    in_threads(lambda number: renew(grove, number, model), grove.n_trees, n_jobs)
    return state.but(model=model)


def seeks_evidence(posterior: Posterior, model: LabelModel, n_rows: int) -> bool:
    """Return whether hyperparameters are found by the marginal likelihood of the labels."""
    return (
        isinstance(posterior, HierarchicalPosterior)
        and posterior.hyperparameters == "marginal_likelihood"
        and isinstance(model, Hierarchical)
        and n_rows >= _FEWEST_ROWS_FOR_EVIDENCE
    )


def with_most_evidence(state: ForestState, posterior: Posterior, n_jobs: int | None) -> ForestState:
    """Return the forest with the hyperparameters that make the labels most probable, if asked for.

    The label models of all trees are computed anew in place, so nobody else may know these trees.
    """
    if not seeks_evidence(posterior, state.model, state.n_rows):
        return state
    grove = state.grove
    trees = [grove.tree(number) for number in range(grove.n_trees)]
    orders = [parents_first(tree.nodes, tree.depth) for tree in trees]

    def evaluate(tried: Hierarchical) -> tuple[float, NDArray[np.float64]]:
        found = np.empty((grove.n_trees, 1 + len(TUNABLE)))

        def evaluate_one(number: int) -> None:
            nodes, _, tallies = grove.tree(number)
            gradient = found[number, 1:]
            found[number, 0] = evidence_and_gradient(
                tried, nodes, tallies, orders[number], gradient
            )

        in_threads(evaluate_one, grove.n_trees, n_jobs)
        mean = found.mean(axis=0)
        return float(mean[0]), mean[1:]

    assert isinstance(state.model, Hierarchical)
    free = [name for name in TUNABLE if getattr(posterior, name) is None]
    best = maximise_evidence(evaluate, state.model, state.n_rows, minimize, free)
    return renewed(state, best._replace(prior_mean=state.model.prior_mean), n_jobs)
