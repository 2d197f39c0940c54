"""Rows leave trees: what a law does not show, and the rule of a single candidate in words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.arrays.contests import CANDIDATE
from mondrian_forest._core.arrays.kernel import IS_COMPILED
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.leave import leave_trees, leaving_of
from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from reference.paper import Node
from trees import LivingTrees, as_reference, small_table

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
MODELS = [PRIOR, Empirical(*PRIOR), Pruned(3.0, 8.0, 0.3, 0.5)]


def living(rows, labels, n_candidates=3, min_samples_split=2, model=PRIOR, n_trees=1, seed=0):
    states = random_states(np.random.SeedSequence(seed), n_trees)
    growth = Growth(min_samples_split, n_candidates, np.inf, 3.0)
    return LivingTrees(rows, labels, growth, model, states, len(rows) + 10)


def restricted(node: Node, leaving, min_samples_split) -> Node | None:
    """Return a tree without some rows: cuts stay where there are rows on both sides of them."""
    rows = [row for row in node.rows if row not in leaving]
    if not rows:
        return None
    sides = [restricted(child, leaving, min_samples_split) for child in node.children]
    there = [side for side in sides if side is not None]
    if len(rows) < min_samples_split or not there:
        return Node(rows, node.lower, node.upper)
    if len(there) == 1:
        return there[0]
    return Node(
        rows, node.lower, node.upper, None, node.split_time, node.split_feature, node.threshold,
        there,
    )  # fmt: skip


def assert_same(found: Node, expected: Node, old_numbers):
    assert sorted(old_numbers[found.rows]) == sorted(expected.rows)
    assert len(found.children) == len(expected.children)
    if expected.children:
        assert found.split_time == expected.split_time
        assert found.split_feature == expected.split_feature
        assert found.threshold == expected.threshold
    for one, other in zip(found.children, expected.children, strict=True):
        assert_same(one, other, old_numbers)


@settings(max_examples=60 if IS_COMPILED else 15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n_rows=st.integers(2, 25),
    min_samples_split=st.sampled_from([2, 3, 6]),
    share=st.sampled_from([0.1, 0.5, 0.9]),
)
def test_with_one_candidate_the_tree_is_looked_at_on_fewer_rows(
    seed, n_rows, min_samples_split, share
):
    generator = np.random.default_rng(seed)
    rows, labels = small_table(seed, n_rows)
    trees = living(rows, labels, 1, min_samples_split, seed=seed)
    grove, states = trees.grove, trees.states.copy()
    for _ in range(2):
        n_leaving = min(max(1, int(share * trees.n_rows)), trees.n_rows - 1)
        leaving = generator.permutation(trees.n_rows)[:n_leaving]
        before = as_reference(grove.tree(0), grove.rows(0))
        order = trees.forget(leaving)
        trees.check()
        found = as_reference(grove.tree(0), grove.rows(0))
        assert_same(found, restricted(before, set(leaving), min_samples_split), order)
        if trees.n_rows == 1:
            break
    np.testing.assert_array_equal(trees.states, states)  # nothing is drawn


@pytest.mark.parametrize("n_candidates", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_one_row_is_left_and_learns_again(model, n_candidates):
    rows, labels = small_table(0, n_rows=30)
    trees = living(rows, labels, n_candidates, model=model)
    order = trees.forget(np.delete(np.arange(30), 17))
    assert order.tolist() == [17]
    trees.check()
    assert trees.grove.depth == 0
    trees.learn(rows, labels)
    trees.check()


@pytest.mark.parametrize("n_candidates", [1, 3])
@pytest.mark.parametrize("side", [0, 1])
def test_the_root_can_lose_a_whole_side(n_candidates, side):
    rows, labels = small_table(1, n_rows=30)
    trees = living(rows, labels, n_candidates)
    child = as_reference(trees.grove.tree(0), trees.grove.rows(0)).children[side]
    order = trees.forget(child.rows)
    trees.check()
    np.testing.assert_array_equal(trees.rows[: trees.n_rows], rows[order])
    assert not set(order) & set(child.rows)


@pytest.mark.parametrize("n_candidates", [1, 3])
def test_trees_without_enough_rows_become_leaves(n_candidates):
    rows, labels = small_table(2, n_rows=30)
    trees = living(rows, labels, n_candidates, min_samples_split=20)
    assert trees.grove.depth > 0
    trees.forget(np.arange(10))
    trees.check()
    assert trees.grove.depth > 0
    trees.forget([3])
    trees.check()
    assert trees.grove.depth == 0
    trees.forget([0, 18])
    trees.check()


@pytest.mark.parametrize("n_candidates", [1, 3])
def test_no_rows_leave_nothing_to_do(n_candidates):
    rows, labels = small_table(2, n_rows=20)
    trees = living(rows, labels, n_candidates, n_trees=2)
    before = trees.grove.nodes.tobytes()
    assert trees.forget([]).tolist() == list(range(20))
    assert trees.grove.nodes.tobytes() == before


def test_a_row_that_is_named_twice_leaves_once():
    leaving = leaving_of(np.array([4, 1, 4]), 6, 1)
    assert leaving.numbers.tolist() == [1, 4]
    assert (leaving.moved.tolist(), leaving.to.tolist()) == ([5], [1])
    assert leaving.is_leaving.tolist() == [False, True, False, False, True, False]


def test_rows_with_the_highest_numbers_take_those_that_are_free():
    leaving = leaving_of(np.array([0, 7, 2, 5]), 9, 2)
    assert (leaving.moved.tolist(), leaving.to.tolist()) == ([6, 8], [0, 2])
    assert leaving.is_done.tolist() == [False, False]
    last = leaving_of(np.array([7, 8]), 9, 1)
    assert (len(last.moved), len(last.to)) == (0, 0)


@pytest.mark.parametrize("n_candidates", [1, 3])
def test_trees_that_are_done_are_left_alone(n_candidates):
    """As in a call that comes again after an interrupt."""
    rows, labels = small_table(3, n_rows=20)
    trees = living(rows, labels, n_candidates, n_trees=3)
    leaving = leaving_of(np.array([2, 9]), 20, 3)
    leaving.is_done[1] = True
    before = trees.grove.nodes[1].tobytes()
    arguments = (trees.rows, trees.labels, leaving, trees.growth, PRIOR, trees.states)
    leave_trees(trees.grove, 0, 2, *arguments)
    assert leaving.is_done.tolist() == [True, True, False]
    assert [trees.grove.n_rows(number) for number in range(3)] == [18, 20, 20]
    assert trees.grove.nodes[1].tobytes() == before
    leave_trees(trees.grove, 0, 3, *arguments)
    assert [trees.grove.n_rows(number) for number in range(3)] == [18, 20, 18]


@pytest.mark.parametrize("n_candidates", [1, 3])
def test_leaves_with_many_equal_rows_lose_some(n_candidates):
    """Most rows that stay get new numbers, in two long lists."""
    n_rows = 20_000 if IS_COMPILED else 60
    rows = np.zeros((n_rows, 2), np.float32)
    rows[::3] = 1.0
    labels = np.random.default_rng(0).normal(size=n_rows)
    trees = living(rows, labels, n_candidates)
    order = trees.forget(np.arange(n_rows // 2))
    np.testing.assert_array_equal(np.sort(order), np.arange(n_rows // 2, n_rows))
    trees.check()
    assert trees.grove.sizes[0] == 3


def test_candidates_in_a_side_that_rounding_hides_are_redrawn():
    """The box shrinks by less than the last bit of its extent."""
    rows, labels = small_table(4, n_rows=20, n_features=2)
    rows[:, 0] = np.linspace(0.0, 1e10, 20, dtype=np.float32)
    rows[:, 1] = 0.0
    rows[5, 1] = 1e-9
    trees = living(rows, labels)
    _, contests = trees.grove.tree(0), trees.grove.contests_of(0)
    place = trees.grove.tallies[0, 0]["contest"]
    whole = contests.candidates[place, -1]["sum_left"]
    score = np.rint((labels[5] - trees.growth.label_origin) / trees.growth.label_unit)
    cut = trees.grove.nodes[0, 0]["threshold"]
    for c, candidate in enumerate(contests.candidates[place, :-1]):
        if candidate["threshold"] != cut:
            thin = (1, 5e-10, 19, whole - score)
            contests.candidates[place, c] = np.array(thin, CANDIDATE)
            break
    if trees.grove.nodes[0, 0]["threshold"] != cut:
        pytest.fail("another cut is best")
    trees.check()
    trees.forget([5])
    trees.check()


@pytest.mark.parametrize("model", MODELS)
def test_times_grow_when_a_row_far_away_leaves(model):
    """The others are nearly equal, so that all times become huge."""
    generator = np.random.default_rng(0)
    rows = (1e-20 * generator.random((13, 2))).astype(np.float32)
    rows[12] = 1.0
    trees = living(rows, generator.normal(3.0, 2.0, 13), model=model)
    assert trees.grove.nodes[0, 0]["split_time"] < 1e3
    trees.forget([12])
    trees.check()
    assert trees.grove.nodes[0, 0]["split_time"] > 1e15
