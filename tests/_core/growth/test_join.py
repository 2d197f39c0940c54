"""Rows join trees whose cuts look at the labels: what a law does not show."""

import numpy as np
import pytest

from mondrian_forest._core.arrays.contests import NO_CONTEST
from mondrian_forest._core.arrays.grove import allocate_grove, copy_tree
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import NO_CHILD
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.extend import extend_trees
from mondrian_forest._core.growth.join import join_trees
from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from trees import LivingTrees, preorder_numbers, small_table

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
MODELS = [PRIOR, Empirical(*PRIOR), Pruned(3.0, 8.0, 0.3, 0.5)]


def living(rows, labels, n_candidates=3, min_samples_split=2, model=PRIOR, room=60, n_trees=1):
    states = random_states(np.random.SeedSequence(0), n_trees)
    growth = Growth(min_samples_split, n_candidates, np.inf, 3.0)
    return LivingTrees(rows, labels, growth, model, states, room)


def content(grove):
    return [array.tobytes() for array in (*grove[:6], *grove.contests)]


@pytest.mark.parametrize(("n_candidates", "join"), [(1, extend_trees), (3, join_trees)])
def test_trees_that_have_all_rows_stay_as_they_are_and_are_done(n_candidates, join):
    """Also in one call with a tree that has not, and if no tree has anything to learn."""
    rows, labels = small_table(0, n_rows=20)
    trees = living(rows, labels, n_candidates, n_trees=2)
    grove, growth = trees.grove, trees.growth
    kept = content(grove), trees.states.copy()
    is_done = np.zeros(2, np.bool_)
    join(grove, 0, 2, trees.rows, trees.labels, 20, growth, PRIOR, trees.states, is_done)
    assert is_done.all()
    assert content(grove) == kept[0]
    np.testing.assert_array_equal(trees.states, kept[1])
    trees.rows[20:22], trees.labels[20:22] = rows[:2] + 1.0, labels[:2]
    for first in (0, 1):  # the first tree, then both
        is_done = np.zeros(2, np.bool_)
        join(
            grove, 0, 2 * first + 1 - first, trees.rows, trees.labels, 22, growth, PRIOR,
            trees.states, is_done,
        )  # fmt: skip
        assert is_done.tolist() == [True, first == 1]
        assert [grove.n_rows(number) for number in range(2)] == [22, 22 if first else 20]
    trees.n_rows = 22
    for number in range(2):
        trees.check(number)


def test_trees_that_are_marked_as_done_are_left_alone():
    rows, labels = small_table(0, n_rows=20)
    trees = living(rows[:15], labels[:15], n_trees=2)
    trees.rows[:20], trees.labels[:20] = rows, labels
    is_done = np.array([False, True])
    join_trees(
        trees.grove, 0, 2, trees.rows, trees.labels, 20, trees.growth, PRIOR, trees.states, is_done
    )
    assert [trees.grove.n_rows(number) for number in range(2)] == [20, 15]


@pytest.mark.parametrize("model", MODELS)
def test_times_beside_nearly_equal_rows_are_not_rounded_away(model):
    """Cuts between rows that are 1e-20 apart have times of 1e20. A row that comes from afar lets
    the root be cut at a usual time, and the nodes below it after usual durations."""
    generator = np.random.default_rng(0)
    close = (1e-20 * generator.random((12, 2))).astype(np.float32)
    far = generator.random((20, 2)).astype(np.float32)
    labels = generator.normal(3.0, 2.0, 32)
    trees = living(close, labels[:12], model=model)
    assert trees.grove.nodes[0, 0]["split_time"] > 1e15
    for row in range(20):
        trees.learn(far[row : row + 1], labels[12 + row : 13 + row])
        trees.check()  # times increase from parents to children
        times = trees.grove.tree(0).split_time[preorder_numbers(trees.grove.tree(0))]
        assert 0.0 < times[0] < 1e3
    inner = np.sort(times[np.isfinite(times)])
    assert np.sum((inner > 1e-3) & (inner < 1e3)) > 5
    assert inner[-1] > 1e15
    trees.forget(np.arange(13, 32))
    trees.check()


@pytest.mark.parametrize("labels", [np.full(30, 0.1), np.arange(30.0)])
def test_equal_rows_fill_a_leaf(labels):
    rows = np.full((30, 2), 0.5, np.float32)
    trees = living(rows[:1], labels[:1])
    before = trees.states.copy()
    for chunk in (slice(1, 2), slice(2, 10), slice(10, 30)):
        trees.learn(rows[chunk], labels[chunk])
        trees.check()
    assert trees.grove.sizes[0] == 1
    np.testing.assert_array_equal(trees.states, before)  # nothing is drawn
    if labels[0] == labels[1]:
        assert trees.grove.tallies[0, 0]["squared_deviation"] == 0.0
    trees.learn(np.array([[0.5, 0.25]], np.float32), np.array([3.0]))
    trees.check()
    assert trees.grove.sizes[0] == 3


def test_leaves_with_too_few_rows_wait():
    rows, labels = small_table(1, n_rows=30)
    trees = living(rows[:1], labels[:1], min_samples_split=25)
    before = trees.states.copy()
    for row in range(1, 24):
        trees.learn(rows[row : row + 1], labels[row : row + 1])
        trees.check()
        assert trees.grove.sizes[0] == 1
    np.testing.assert_array_equal(trees.states, before)
    trees.learn(rows[24:25], labels[24:25])
    trees.check()
    assert trees.grove.sizes[0] > 1


def test_nodes_that_found_no_place_for_their_contest_are_sampled_anew():
    rows, labels = small_table(2, n_rows=40)
    trees = living(rows[:30], labels[:30])
    bare = allocate_grove(1, 60, 3, 1, is_linked=True)
    copy_tree(trees.grove, 0, bare)
    roomy = allocate_grove(1, 60, 3, 3, is_linked=True)
    copy_tree(bare, 0, roomy)
    trees.grove = roomy
    assert (roomy.tree(0).tallies["contest"] == NO_CONTEST).all()
    root = roomy.nodes[0, 0].copy()
    trees.learn(rows[30:], labels[30:])
    trees.check()
    assert roomy.nodes[0, 0]["split_time"] != root["split_time"]


def test_a_label_beyond_all_bounds_leaves_no_trace():
    """Sums of labels in whole units stay finite, or nothing could be taken away from them."""
    rows, labels = small_table(3, n_rows=30)
    states = random_states(np.random.SeedSequence(0), 1)
    growth = Growth(2, 3, np.inf, 0.0, 2.0**-1000)
    trees = LivingTrees(rows, labels, growth, PRIOR, states, 40)
    for label in (1e308, -1e308):
        trees.learn(rows[:1] + 0.5, np.array([label]))
        trees.forget([30])
    used = trees.grove.contests.candidates[0, : trees.grove.contests.counts[0, 0]]
    assert np.isfinite(used["sum_left"]).all()


def test_rows_join_far_below_the_root():
    """A chain of halves down to the smallest float32, then rows at its far end."""
    chain = 2.0 ** -np.arange(145, dtype=np.float32).reshape(-1, 1)
    rows = np.concatenate([chain, np.repeat(chain[-1:], 5, axis=0)]).astype(np.float32)
    labels = np.arange(150.0) ** 2
    trees = living(rows[:100], labels[:100], n_candidates=2, room=150)
    trees.learn(rows[100:], labels[100:])
    trees.check()
    trees.forget(np.arange(0, 150, 2))
    trees.check()


@pytest.mark.parametrize("model", MODELS)
def test_only_the_way_down_changes_while_boxes_stay(model):
    """Rows inside all boxes change no time, and no node beside their way."""
    generator = np.random.default_rng(5)
    rows = generator.random((50, 2)).astype(np.float32)
    labels = 10.0 * (rows[:, 0] > 0.5) + 0.1 * rows[:, 1]
    trees = living(rows, labels, model=model, n_candidates=9)
    tree = trees.grove.tree(0)
    times, cut = tree.split_time[0], tree.threshold[0]
    inside = np.array([[tree.upper[0, 0] - 0.01, 0.5]], np.float32)
    left = int(tree.left_child[0])
    assert tree.split_feature[0] == 0
    kept = tree.nodes[preorder_numbers(tree, left)].tobytes()
    trees.learn(inside, np.array([10.0]))
    trees.check()
    tree = trees.grove.tree(0)
    assert (tree.split_time[0], tree.threshold[0]) == (times, cut)
    below = preorder_numbers(tree, left)
    found = tree.nodes[below]
    if not isinstance(model, Pruned):  # whose nodes depend on their parents
        assert found.tobytes() == kept
    assert NO_CHILD in found["left_child"]
