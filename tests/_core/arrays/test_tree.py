import numpy as np

from mondrian_forest._core.arrays.contests import NO_CONTESTS
from mondrian_forest._core.arrays.tree import (
    NO_CHILD,
    Tree,
    copy_depth_first,
    level_by_level,
    parents_first,
)
from trees import grow, preorder_numbers, small_table


def shuffled(tree, seed=0):
    """Return the same tree with its pairs of children in another order, as online learning may."""
    n_pairs = tree.n_nodes // 2
    order = np.random.default_rng(seed).permutation(n_pairs)
    new_numbers = np.zeros(tree.n_nodes, dtype=int)
    new_numbers[1::2] = 2 * order + 1
    new_numbers[2::2] = 2 * order + 2
    arrays = []
    for array in tree:
        moved = np.empty_like(array)
        moved[new_numbers] = array
        arrays.append(moved)
    left = arrays[0]["left_child"]
    left[left != NO_CHILD] = new_numbers[left[left != NO_CHILD]]
    return Tree(*arrays)


def depth_of(tree):
    depth = np.zeros(tree.n_nodes, dtype=int)
    for node in preorder_numbers(tree):
        if tree.left_child[node] != NO_CHILD:
            depth[tree.left_child[node] :][:2] = depth[node] + 1
    return depth


def test_a_copy_in_depth_first_order_is_numbered_as_sampled():
    tree, _ = grow(small_table(0, n_rows=40)[0])
    for mixed in (tree, shuffled(tree)):
        room = tree.n_nodes + 3
        copy = Tree(*(np.empty((room, *array.shape[1:]), array.dtype) for array in mixed))
        counts = np.empty(2, np.int64)
        copy_depth_first(mixed, NO_CONTESTS, copy, counts, NO_CONTESTS)
        assert counts.tolist() == [tree.n_nodes, NO_CHILD]
        for array, expected in zip(copy, tree, strict=True):
            assert array[: tree.n_nodes].tobytes() == expected.tobytes()  # NaN, too


def test_nodes_are_listed_depth_first():
    tree = shuffled(grow(small_table(1, n_rows=40)[0])[0])
    assert tree.depth > 4
    assert parents_first(tree.nodes, tree.depth).tolist() == preorder_numbers(tree)


def test_nodes_are_listed_level_by_level():
    tree = shuffled(grow(small_table(2, n_rows=40)[0])[0])
    order = level_by_level(tree.nodes)
    assert sorted(order) == list(range(tree.n_nodes))
    assert (np.diff(depth_of(tree)[order]) >= 0).all()
