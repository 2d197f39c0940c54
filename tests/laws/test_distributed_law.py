"""A tree grown from parts that never met cannot be told from one that was sampled on all rows."""

from functools import cache

import numpy as np
import pytest

from laws.significance import assert_plausible, is_rejected
from laws.test_online_laws import N_TREES, PRIOR, measures, p_value, statistics, table
from mondrian_forest._core.arrays.tree import parents_first
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.top import CLOSED
from mondrian_forest._core.labels.model import set_all_nodes
from parts import grow_in_parts


@cache
def in_parts(growth, most_rows, forgets_time=False):
    rows, labels = table()
    found = []
    for number in range(N_TREES):
        sizes = [7, 0, 20, 3]
        top, tree, _ = grow_in_parts(
            rows, labels, sizes, growth, (3, number), most_rows, forgets_time=forgets_time
        )
        order = parents_first(tree.nodes, tree.depth)
        set_all_nodes(PRIOR, tree.nodes, tree.tallies, order)
        found.append(measures(tree, growth.lifetime) | {"blocks": top.n_blocks})
        assert most_rows < 30 or top.kind == [CLOSED]
    return {name: np.array([row[name] for row in found]) for name in found[0]}


@pytest.mark.parametrize("most_rows", [1, 10])
@pytest.mark.parametrize(("min_samples_split", "lifetime"), [(2, np.inf), (5, 1.5)])
def test_parts_and_all_rows_have_one_law(min_samples_split, lifetime, most_rows):
    growth = Growth(min_samples_split, 1, lifetime)
    batch = statistics("as given", growth, 1)
    parts = in_parts(growth, most_rows)
    assert parts["blocks"].max() > 5  # or the top has nothing to do with it
    for name in batch:
        assert_plausible(p_value(name, batch[name], parts[name]), N_TREES)


def test_a_subtree_that_forgets_its_time_would_be_noticed():
    growth = Growth(5, 1, 1.5)
    batch = statistics("as given", growth, 1)
    other = in_parts(growth, 10, forgets_time=True)
    assert is_rejected(p_value("leaves", batch["leaves"], other["leaves"]))
