import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.learn import (
    Settings,
    in_use,
    learn_batch,
    learn_more,
    log_likelihood,
    renew_evidence,
    with_room,
)
from mondrian_forest._core.posterior import Hyperparameters, upward_pass
from mondrian_forest._core.rng import random_states
from trees import check_tree_invariants

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
        learner = learn_more(learner, rows, labels, begin, end, settings, prior, state)
    return in_use(learner)


@settings(max_examples=60, deadline=None)
@given(
    rows=tables,
    min_samples_split=st.sampled_from([2, 3, 10]),
    lifetime=st.sampled_from([0.5, 3.0, np.inf]),
    has_evidence=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_invariants_hold_after_every_row(rows, min_samples_split, lifetime, has_evidence, seed):
    labels = np.random.default_rng(seed).normal(3.0, 2.0, len(rows))
    common = Settings(min_samples_split, lifetime, has_evidence)
    state = random_states(np.random.SeedSequence(seed), 1)[0]
    learner = learn_batch(rows[:1], labels[:1], common, PRIOR, state)
    learner = with_room(learner, len(rows))
    for n_rows in range(2, len(rows) + 1):
        learner = learn_more(learner, rows, labels, n_rows - 1, n_rows, common, PRIOR, state)
        used = in_use(learner)
        check_tree_invariants(
            used.tree,
            rows[:n_rows],
            used.rows,
            min_samples_split,
            lifetime,
            labels[:n_rows],
            used.moments,
        )
        if has_evidence:
            expected = upward_pass(used.tree, used.moments, PRIOR)
            for found, exact in zip(used.evidence, expected, strict=True):
                np.testing.assert_allclose(found, exact, rtol=1e-11)


def some_rows(n_rows=60, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.random((n_rows, n_features)).astype(np.float32)
    return rows, generator.normal(size=n_rows)


@pytest.mark.parametrize("chunk", [1, 7, 59])
def test_the_size_of_the_chunks_does_not_matter(chunk):
    rows, labels = some_rows()
    common = Settings(5, np.inf, True)
    one = learn_online(rows, labels, common, chunk=1)
    other = learn_online(rows, labels, common, chunk=chunk)
    for left, right in zip(one[1:], other[1:], strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)


def test_renewed_evidence_is_that_of_a_full_pass():
    rows, labels = some_rows()
    used = learn_online(rows, labels, Settings(3, np.inf, True))
    other = PRIOR._replace(prior_scale=1.0, noise_variance=2.0)
    renew_evidence(used, other)
    for found, exact in zip(
        used.evidence, upward_pass(used.tree, used.moments, other), strict=True
    ):
        np.testing.assert_array_equal(found, exact)
    assert np.isfinite(log_likelihood(used, other))


def test_rows_beside_a_leaf_of_many_equal_rows_are_cut_off_from_it():
    """Ten thousand equal rows have enough rows, but nothing to split: Alg. 4 applies."""
    rows = np.full((10_050, 2), 0.5, dtype=np.float32)
    rows[10_000:] += np.linspace(0.01, 0.4, 50, dtype=np.float32)[:, None]
    labels = np.arange(10_050.0)
    used = learn_online(rows, labels, Settings(10, np.inf, True), n_batch=10_000)
    check_tree_invariants(used.tree, rows, used.rows, 10, labels=labels, moments=used.moments)
    assert used.tree.n_samples.max() == 10_050


def test_a_row_whose_path_is_longer_than_the_first_stack_joins_the_tree():
    """A chain of halves down to the smallest float32, then rows at its far end."""
    chain = 2.0 ** -np.arange(145, dtype=np.float32).reshape(-1, 1)
    rows = np.concatenate([chain, np.repeat(chain[-1:], 5, axis=0)]).astype(np.float32)
    labels = np.arange(150.0)
    used = learn_online(rows, labels, Settings(2, np.inf, True), n_batch=145)
    assert used.tree.depth > 66
    check_tree_invariants(used.tree, rows, used.rows, labels=labels, moments=used.moments)
