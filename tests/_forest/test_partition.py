import subprocess
import sys

import numpy as np
import pytest

from mondrian_forest import MondrianForestRegressor
from mondrian_forest._core.arrays.tree import NO_CHILD, NODE, Tree
from mondrian_forest._forest.partition import partition_of

BOXES = np.array(
    [
        [[0, 0], [8, 4]],  # the root, cut at x = 2
        [[0, 0], [1, 4]],  # cut at y = 3
        [[5, 1], [8, 2]],  # a leaf
        [[0, 0], [1, 2]],  # a leaf
        [[0, 4], [1, 4]],  # a leaf
    ],
    dtype=np.float32,
)


@pytest.fixture
def tree():
    nodes = np.zeros(5, dtype=NODE)
    nodes["left_child"] = [1, 3, NO_CHILD, NO_CHILD, NO_CHILD]
    nodes["split_feature"] = [0, 1, 0, 0, 0]
    nodes["threshold"] = [2, 3, 0, 0, 0]
    nodes["split_time"] = [0.5, 1.5, np.inf, np.inf, np.inf]
    return Tree(nodes, BOXES.copy(), np.zeros(0))


def test_a_cut_crosses_the_box_of_its_node(tree):
    partition = partition_of(tree)
    np.testing.assert_array_equal(partition.boxes, BOXES)
    np.testing.assert_array_equal(partition.cuts, [[[2, 0], [2, 4]], [[0, 3], [1, 3]]])
    np.testing.assert_array_equal(partition.times, [0.5, 1.5])


@pytest.mark.parametrize(
    ("lifetime", "nodes", "times"),
    [(0.5, [0], []), (1.5, [0, 1, 2], [0.5]), (1.6, [0, 1, 2, 3, 4], [0.5, 1.5])],
)
def test_nodes_below_a_cut_after_the_lifetime_do_not_exist(tree, lifetime, nodes, times):
    partition = partition_of(tree, lifetime)
    np.testing.assert_array_equal(partition.boxes, BOXES[nodes])
    np.testing.assert_array_equal(partition.times, times)
    assert partition.cuts.shape == (len(times), 2, 2)


def test_the_tree_stays_as_it_was(tree):
    partition_of(tree)
    np.testing.assert_array_equal(tree.boxes, BOXES)


@pytest.mark.parametrize("lifetime", [2.0, np.inf])
def test_a_tree_that_was_learned_online_has_one_box_more_than_sides_of_cuts(lifetime):
    generator = np.random.default_rng(0)
    forest = MondrianForestRegressor(1, min_samples_split=2, random_state=0)
    for _ in range(4):
        X = generator.random((50, 3))
        forest.partial_fit(X, X[:, 0])
    boxes, cuts, times = partition_of(forest.trees_[0], lifetime)
    assert 1 < len(boxes) == 2 * len(cuts) + 1
    assert (times < lifetime).all()


def test_no_plotting_library_is_imported():
    code = "import sys, mondrian_forest._forest.partition; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
