"""Trees so deep that recursion, or memory for each level of each row, would fail.

A tree of any shape has positive probability, but no stream makes one this deep in reasonable time:
each cut of a box leaves a uniform share of its extent, so that along one feature of float32 numbers
a path has about 200 cuts on average until nothing is left to cut. The tree is therefore built by
hand, one row cut off at each level, and then learns and predicts as any other.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from mondrian_forest._core.arrays.grove import allocate_grove
from mondrian_forest._core.arrays.tree import NO_CHILD
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._core.labels.tallies import tally_labels
from mondrian_forest._forest.sharing import state_of, with_state
from trees import paper_forest

DEPTH = 100_000


def caterpillar(rows):
    """Return a tree on sorted rows of one feature that cuts off the last row at every level."""
    n_rows = len(rows)
    n_nodes = 2 * n_rows - 1
    grove = allocate_grove(1, n_rows, 1, is_linked=False)
    grove.sizes[0] = n_nodes
    grove.row_numbers[0] = np.arange(n_rows)
    tree = grove.tree(0)
    inner = np.concatenate([[0], np.arange(1, n_nodes - 2, 2)])  # the left child each time
    leaves = np.concatenate([np.arange(2, n_nodes, 2), [n_nodes - 2]])
    n_left = np.arange(n_rows, 1, -1)  # rows in each inner node
    tree.left_child[inner] = np.arange(1, n_nodes, 2)
    tree.split_feature[inner] = 0
    tree.threshold[inner] = rows[n_left - 2, 0]
    tree.split_time[inner] = np.arange(1, n_rows) * 1e-3
    tree.lower[inner] = rows[0]
    tree.upper[inner] = rows[n_left - 1]
    tree.height[inner] = n_left - 1
    tree.n_samples[inner] = n_left
    tree.tallies["first_row"][inner] = 0
    only_row = np.arange(n_rows)[::-1]
    tree.left_child[leaves] = NO_CHILD
    tree.split_feature[leaves] = -1
    tree.threshold[leaves] = np.nan
    tree.split_time[leaves] = np.inf
    tree.lower[leaves] = tree.upper[leaves] = rows[only_row]
    tree.height[leaves] = 0
    tree.n_samples[leaves] = 1
    tree.tallies["first_row"][leaves] = only_row
    return grove


@pytest.fixture(scope="module")
def deep_forest():
    X = np.linspace(0.0, 1.0, DEPTH + 1).reshape(-1, 1)
    y = np.sin(5.0 * X[:, 0])
    forest = paper_forest(1, min_samples_split=2, random_state=0).fit(X, y)
    grove = caterpillar(state_of(forest).rows)
    tree = grove.tree(0)
    ordered = state_of(forest).labels[grove.rows(0).order]
    tally_labels(tree.nodes, tree.tallies, ordered, 0, tree.n_nodes)
    renew(grove, 0, state_of(forest).model)
    with_state(forest, replace(state_of(forest), grove=grove))
    assert forest.trees_[0].depth == DEPTH
    return pickle.dumps(forest)


def check_nodes(forest):
    """All that can be said of nodes and their children at once."""
    tree = forest.trees_[0]
    inner = np.flatnonzero(tree.left_child >= 0)
    left = tree.left_child[inner]
    assert sorted([0, *left, *(left + 1)]) == list(range(tree.n_nodes))
    np.testing.assert_array_equal(
        tree.n_samples[inner], tree.n_samples[left] + tree.n_samples[left + 1]
    )
    np.testing.assert_array_equal(
        tree.height[inner], 1 + np.maximum(tree.height[left], tree.height[left + 1])
    )
    assert tree.n_samples[0] == forest.n_samples_seen_
    for child in (left, left + 1):
        assert (tree.split_time[child] > tree.split_time[inner]).all()
    np.testing.assert_array_equal(
        tree.lower[inner], np.minimum(tree.lower[left], tree.lower[left + 1])
    )
    np.testing.assert_array_equal(
        tree.upper[inner], np.maximum(tree.upper[left], tree.upper[left + 1])
    )
    assert (tree.upper[left, 0] <= tree.threshold[inner]).all()
    assert (tree.threshold[inner] < tree.lower[left + 1, 0]).all()
    found = tree.nodes.copy()
    renew(state_of(forest).grove, 0, state_of(forest).model)
    for field in ("share", "location", "precision"):
        np.testing.assert_allclose(found[field], tree.nodes[field], rtol=1e-9)


@pytest.mark.parametrize("chunk", [1, 50])
def test_rows_join_a_tree_100_000_deep(deep_forest, chunk):
    forest = pickle.loads(deep_forest)
    new = np.random.default_rng(0).uniform(-0.2, 1.2, (50, 1))
    new[:3] = [[0.0], [1e-6], [-0.1]]  # all the way down
    for start in range(0, 50, chunk):
        forest.partial_fit(new[start : start + chunk], np.zeros(len(new[start : start + chunk])))
    assert forest.trees_[0].depth >= DEPTH
    check_nodes(forest)


def test_a_tree_100_000_deep_grows_past_its_room_and_its_review(deep_forest):
    forest = pickle.loads(deep_forest)
    new = np.linspace(0.99, 1.3, 11_000).reshape(-1, 1)  # near the top of the tree
    forest.partial_fit(new, np.zeros(11_000))
    check_nodes(forest)


def test_a_tree_100_000_deep_predicts_and_freezes(deep_forest):
    forest = pickle.loads(deep_forest)
    X = np.linspace(-0.1, 1.1, 300).reshape(-1, 1)
    mean, std = forest.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    inside = (X[:, 0] > 0) & (X[:, 0] < 1)
    np.testing.assert_allclose(mean[inside], np.sin(5.0 * X[inside, 0]), atol=0.2)
    forest.freeze()
    np.testing.assert_array_equal(forest.predict(X), mean)
    assert forest.predict_quantiles(X[:3], 0.5).shape == (3,)
