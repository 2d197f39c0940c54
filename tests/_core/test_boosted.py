"""Sums of boosted trees against going down each tree in Python."""

import numpy as np
import pytest

from mondrian_forest._core.boosted import BOOSTED_NODE, NO_CHILD, add_boosted, fault_of_boosted


def random_tree(generator, n_inner, n_features, first):
    """Return the nodes of a tree whose first node has the number ``first``."""
    nodes = np.zeros(2 * n_inner + 1, BOOSTED_NODE)
    nodes["left"] = nodes["right"] = NO_CHILD
    leaves, n_nodes = [0], 1
    for _ in range(n_inner):
        node = leaves.pop(int(generator.integers(len(leaves))))
        nodes[node]["left"], nodes[node]["right"] = first + n_nodes, first + n_nodes + 1
        nodes[node]["feature"] = generator.integers(n_features)
        nodes[node]["threshold"] = generator.integers(4)  # ties with rows
        leaves += [n_nodes, n_nodes + 1]
        n_nodes += 2
    nodes["value"] = generator.normal(size=len(nodes))
    return nodes


def forest(seed, n_trees=4, n_features=3):
    generator = np.random.default_rng(seed)
    parts, roots = [], []
    for _ in range(n_trees):
        roots.append(sum(map(len, parts)))
        parts.append(random_tree(generator, int(generator.integers(6)), n_features, roots[-1]))
    table = generator.integers(5, size=(20, n_features)).astype(float)
    return table, np.concatenate(parts), np.array(roots)


@pytest.mark.parametrize("seed", range(10))
def test_the_sum_is_that_of_a_walk_down_each_tree(seed):
    table, nodes, roots = forest(seed)
    assert not fault_of_boosted(nodes, roots, 3)
    found = np.full(len(table), 0.5)
    add_boosted(table, nodes, roots, 1, 4, found)
    for row, value in zip(table, found, strict=True):
        total = 0.5
        for root in roots[1:4]:
            node = nodes[root]
            while node["left"] != NO_CHILD:
                goes_left = row[node["feature"]] <= node["threshold"]
                node = nodes[node["left"] if goes_left else node["right"]]
            total += node["value"]
        assert value == total


@pytest.mark.parametrize(
    ("field", "value"),
    [("left", 0), ("right", 10**6), ("left", -7), ("feature", 3), ("feature", -1),
     ("threshold", np.inf), ("value", np.nan)],
)  # fmt: skip
def test_what_would_lead_the_kernel_astray_is_found(field, value):
    _, nodes, roots = forest(3)
    inner = np.flatnonzero(nodes["left"] != NO_CHILD)
    nodes[field][inner[-1]] = value
    assert fault_of_boosted(nodes, roots, 3)


@pytest.mark.parametrize("root", [-1, 10**6])
def test_a_root_that_is_not_there_is_found(root):
    _, nodes, roots = forest(3)
    roots[2] = root
    assert fault_of_boosted(nodes, roots, 3)
