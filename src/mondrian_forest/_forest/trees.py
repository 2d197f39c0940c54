"""All trees of a forest at once: sampled, extended and copied, each with its own random stream."""

from __future__ import annotations

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from scipy.optimize import minimize

from .._core.arrays.grove import Grove, allocate_grove, allocate_to_grow, copy_tree
from .._core.arrays.tree import parents_first
from .._core.growth import Growth
from .._core.growth.extend import extend_trees as extend_grove
from .._core.growth.join import join_trees as join_grove
from .._core.growth.learn import learn_alone, learn_batch, put, renew, scratch_like
from .._core.labels import Hierarchical, LabelModel
from .._core.labels.evidence import TUNABLE, evidence_and_gradient, maximise_evidence
from ..io.container import ModelFileError
from .model_file import fault_of_trees
from .parallel import FEWEST_ROWS_FOR_THREADS, in_threads, other_processes
from .posteriors import HierarchicalPosterior, Posterior
from .state import ForestState

_FEWEST_ROWS_FOR_EVIDENCE = 10


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
    grove = allocate_grove(
        len(random_states), *rows.shape, growth.n_candidate_splits, is_linked=False
    )
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


def extend_trees(state: ForestState, end: int, *, is_due: bool, n_jobs: int | None) -> None:
    """Let the rows up to ``end`` join all trees, in place.

    If ``is_due``, the label model of every node is computed anew, for new hyperparameters. Trees
    that hold these rows already stay as they are, so that a call that was interrupted can be
    repeated. Interrupts come between kernels, never within one.
    """
    grove, growth, model = state.grove, state.growth, state.model
    learn = extend_grove if growth.n_candidate_splits == 1 else join_grove

    def extend(first: int, stop: int) -> None:
        learn(
            grove, first, stop, state.rows, state.labels, end, growth, model, state.random_states
        )

    def extend_one(number: int) -> None:
        extend(number, number + 1)
        if is_due:
            renew(grove, number, model)

    n_new = end - min(grove.n_rows(number) for number in range(grove.n_trees))
    if not is_due and n_new < FEWEST_ROWS_FOR_THREADS:
        extend(0, grove.n_trees)
    else:
        in_threads(extend_one, grove.n_trees, n_jobs)


def finish(state: ForestState, n_jobs: int | None) -> ForestState:
    """Let rows that are stored join the trees, in place; return the finished state."""
    if state.unfinished is None:
        return state
    extend_trees(state, state.unfinished.end, is_due=state.unfinished.is_due, n_jobs=n_jobs)
    return state.but(unfinished=None)


def with_own_trees(state: ForestState, n_jobs: int | None) -> ForestState:
    """Return the forest with a copy of its trees that nobody else knows, and that can learn."""
    old = state.grove
    new = allocate_to_grow(old.n_trees, *state.rows.shape, state.growth.n_candidate_splits)
    in_threads(lambda number: copy_tree(old, number, new), old.n_trees, n_jobs)
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
