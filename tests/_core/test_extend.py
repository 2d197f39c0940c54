import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.learn import (
    Settings,
    in_use,
    learn_batch,
    learn_more,
    renew,
    with_room,
)
from mondrian_forest._core.posterior import EMPIRICAL, HIERARCHICAL, Hyperparameters
from mondrian_forest._core.rng import random_states
from trees import check_tree_invariants, preorder_numbers

PRIOR = Hyperparameters(3.0, 8.0, 0.4, 0.3)

tables = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 30), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-2, 2, width=32),
)


def learn_online(rows, labels, settings, n_batch=1, chunk=1, seed=0, prior=PRIOR):
    """Learn the first rows at once, the others in chunks; return what is in use."""
    state = random_states(np.random.SeedSequence([3, seed]), 1)[0]
    learner = learn_batch(rows[:n_batch], labels[:n_batch], settings, prior, state)
    learner = with_room(learner, len(rows))
    for begin in range(n_batch, len(rows), chunk):
        end = min(begin + chunk, len(rows))
        learn_more(learner, rows, labels, begin, end, settings, prior, state)
    return in_use(learner)


def assert_posterior_is_exact(learner, settings, prior):
    """Against a full pass over the same tree."""
    found = learner.tree.nodes.copy()
    renew(learner, settings, prior)
    for field in ("share", "mean", "precision"):
        np.testing.assert_allclose(found[field], learner.tree.nodes[field], rtol=1e-11)


@settings(max_examples=60, deadline=None)
@given(
    rows=tables,
    min_samples_split=st.sampled_from([2, 3, 10]),
    lifetime=st.sampled_from([0.5, 3.0, np.inf]),
    posterior=st.sampled_from([HIERARCHICAL, EMPIRICAL]),
    chunk=st.sampled_from([1, 1, 2, 5, 29]),
    seed=st.integers(0, 1000),
)
def test_invariants_hold_after_every_step(
    rows, min_samples_split, lifetime, posterior, chunk, seed
):
    labels = np.random.default_rng(seed).normal(3.0, 2.0, len(rows))
    common = Settings(min_samples_split, lifetime, posterior)
    state = random_states(np.random.SeedSequence(seed), 1)[0]
    learner = learn_batch(rows[:1], labels[:1], common, PRIOR, state)
    learner = with_room(learner, len(rows))
    for begin in range(1, len(rows), chunk):
        n_rows = min(begin + chunk, len(rows))
        learn_more(learner, rows, labels, begin, n_rows, common, PRIOR, state)
        used = in_use(learner)
        check_tree_invariants(
            used.tree,
            rows[:n_rows],
            used.rows,
            min_samples_split,
            lifetime,
            labels[:n_rows],
        )
        assert_posterior_is_exact(used, common, PRIOR)


def some_rows(n_rows=60, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.random((n_rows, n_features)).astype(np.float32)
    return rows, generator.normal(size=n_rows)


def test_room_is_made_in_the_order_of_a_batch_fit_and_changes_nothing_else():
    rows, labels = some_rows()
    used = learn_online(rows, labels, Settings(3, np.inf, HIERARCHICAL), chunk=7)
    tidy = in_use(with_room(used, 100))
    order = preorder_numbers(used.tree)
    assert order != sorted(order)
    inner = tidy.tree.left_child >= 0
    assert (tidy.tree.left_child[inner] > np.flatnonzero(inner)).all()
    tidy_order = preorder_numbers(tidy.tree)
    for field in ("threshold", "split_time", "mean", "precision", "share"):
        np.testing.assert_array_equal(
            used.tree.nodes[field][order], tidy.tree.nodes[field][tidy_order]
        )
    check_tree_invariants(tidy.tree, rows, tidy.rows, 3, labels=labels)


def test_rows_beside_a_leaf_of_many_equal_rows_are_cut_off_from_it():
    """Ten thousand equal rows have enough rows, but nothing to split: Alg. 4 applies."""
    rows = np.full((10_050, 2), 0.5, dtype=np.float32)
    rows[10_000:] += np.linspace(0.01, 0.4, 50, dtype=np.float32)[:, None]
    labels = np.arange(10_050.0)
    used = learn_online(rows, labels, Settings(10, np.inf, HIERARCHICAL), n_batch=10_000)
    check_tree_invariants(used.tree, rows, used.rows, 10, labels=labels)
    assert used.tree.n_samples.max() == 10_050


def test_a_row_whose_path_is_longer_than_the_first_stack_joins_the_tree():
    """A chain of halves down to the smallest float32, then rows at its far end."""
    chain = 2.0 ** -np.arange(145, dtype=np.float32).reshape(-1, 1)
    rows = np.concatenate([chain, np.repeat(chain[-1:], 5, axis=0)]).astype(np.float32)
    labels = np.arange(150.0)
    used = learn_online(rows, labels, Settings(2, np.inf, HIERARCHICAL), n_batch=145)
    assert used.tree.depth > 66
    check_tree_invariants(used.tree, rows, used.rows, labels=labels)
