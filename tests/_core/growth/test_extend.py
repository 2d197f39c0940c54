from collections import deque

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.arrays.grove import allocate_grove, copy_tree
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import NO_CHILD, level_by_level
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from trees import check_tree_invariants, learn_in_steps, preorder_numbers

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)

tables = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 30), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-2, 2, width=32),
)


def learn_online(rows, labels, growth, n_batch=1, chunk=1):
    """Learn the first rows at once, the others in chunks."""
    states = random_states(np.random.SeedSequence(3), 1)
    return deque(learn_in_steps(rows, labels, growth, PRIOR, states, n_batch, chunk), 1)[0]


def assert_posterior_is_exact(grove, model):
    """Against a full pass over the same tree."""
    nodes = grove.tree(0).nodes
    found = nodes.copy()
    renew(grove, 0, model)
    for field in ("share", "location", "precision"):
        np.testing.assert_allclose(found[field], nodes[field], rtol=1e-11)


@settings(max_examples=60, deadline=None)
@given(rows=tables, seed=st.integers(0, 1000))
def test_level_by_level_comes_to_each_node_once_and_after_its_parent(rows, seed):
    labels = np.random.default_rng(seed).normal(size=len(rows))
    nodes = learn_online(rows, labels, Growth(2, 1, np.inf)).tree(0).nodes
    order = level_by_level(nodes).tolist()
    assert sorted(order) == list(range(len(nodes)))
    place = np.argsort(order)
    for node, left in enumerate(nodes["left_child"]):
        if left != NO_CHILD:
            assert place[node] < place[left] < place[left + 1]


@settings(max_examples=60, deadline=None)
@given(
    rows=tables,
    min_samples_split=st.sampled_from([2, 3, 10]),
    lifetime=st.sampled_from([0.5, 3.0, np.inf]),
    model=st.sampled_from([PRIOR, Empirical(*PRIOR), Pruned(3.0, 8.0, 0.3, 0.5)]),
    chunk=st.sampled_from([1, 1, 2, 5, 29]),
    seed=st.integers(0, 1000),
)
def test_invariants_hold_after_every_step(rows, min_samples_split, lifetime, model, chunk, seed):
    labels = np.random.default_rng(seed).normal(3.0, 2.0, len(rows))
    growth = Growth(min_samples_split, 1, lifetime)
    states = random_states(np.random.SeedSequence(seed), 1)
    n_rows = 1
    for grove in learn_in_steps(rows, labels, growth, model, states, chunk=chunk):
        check_tree_invariants(
            grove.tree(0),
            rows[:n_rows],
            grove.rows(0),
            min_samples_split,
            lifetime,
            labels[:n_rows],
        )
        assert_posterior_is_exact(grove, model)
        n_rows = min(n_rows + chunk, len(rows))


def some_rows(n_rows=60, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.random((n_rows, n_features)).astype(np.float32)
    return rows, generator.normal(size=n_rows)


def test_a_copy_has_the_order_of_a_batch_fit_and_is_the_same_tree():
    rows, labels = some_rows()
    grove = learn_online(rows, labels, Growth(3, 1, np.inf), chunk=7)
    copied = allocate_grove(1, 100, rows.shape[1], is_linked=True)
    copy_tree(grove, 0, copied)
    tree, tidy = grove.tree(0), copied.tree(0)
    order, tidy_order = preorder_numbers(tree), preorder_numbers(tidy)
    inner = np.flatnonzero(tidy.left_child >= 0)
    assert (tidy.left_child[inner] > inner).all()
    assert not (tree.left_child[inner] > inner).all()
    for field in ("threshold", "split_time", "location", "precision", "share"):
        np.testing.assert_array_equal(tree.nodes[field][order], tidy.nodes[field][tidy_order])
    check_tree_invariants(tidy, rows, copied.rows(0), 3, labels=labels)


def test_rows_beside_a_leaf_of_many_equal_rows_are_cut_off_from_it():
    """Ten thousand equal rows have enough rows, but nothing to split: Alg. 4 applies."""
    rows = np.full((10_050, 2), 0.5, dtype=np.float32)
    rows[10_000:] += np.linspace(0.01, 0.4, 50, dtype=np.float32)[:, None]
    labels = np.arange(10_050.0)
    grove = learn_online(rows, labels, Growth(10, 1, np.inf), n_batch=10_000)
    check_tree_invariants(grove.tree(0), rows, grove.rows(0), 10, labels=labels)
    assert grove.tree(0).n_samples.max() == 10_050


def test_a_row_whose_path_is_longer_than_the_first_stack_joins_the_tree():
    """A chain of halves down to the smallest float32, then rows at its far end."""
    chain = 2.0 ** -np.arange(145, dtype=np.float32).reshape(-1, 1)
    rows = np.concatenate([chain, np.repeat(chain[-1:], 5, axis=0)]).astype(np.float32)
    labels = np.arange(150.0)
    grove = learn_online(rows, labels, Growth(2, 1, np.inf), n_batch=145)
    assert grove.tree(0).depth > 66
    check_tree_invariants(grove.tree(0), rows, grove.rows(0), labels=labels)
