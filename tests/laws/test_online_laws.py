"""A tree that saw its rows one by one cannot be told from one that was sampled on all at once."""

from collections import deque
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from laws.significance import assert_plausible, is_rejected
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.labels import Hierarchical
from mondrian_forest._core.mixtures.reduce import predict_moments
from trees import forest_of, learn_in_steps, routed

N_TREES = 1500
PRIOR = Hierarchical(0.0, 2.0, 0.3, 0.05)
QUERY = np.array([[0.4, 0.9]], dtype=np.float32)


def table():
    """Thirty rows in two features, with ties and duplicates."""
    generator = np.random.default_rng(1)
    rows = generator.random((30, 2)).astype(np.float32)
    rows[:, 0] = np.round(rows[:, 0], 1)
    rows[20:25] = rows[3]
    return rows, np.sin(5.0 * rows[:, 0].astype(float)) + rows[:, 1]


ORDERS = {
    "as given": np.arange(30),
    "sorted": np.lexsort(table()[0].T),
    "reversed": np.arange(30)[::-1],
}


def grown(rows, labels, growth, states, chunk):
    """Return a tree that learned one row, then chunks; without a chunk, one sampled at once."""
    n_batch = len(rows) if chunk is None else 1
    steps = learn_in_steps(rows, labels, growth, PRIOR, states, n_batch, chunk or 1)
    return deque(steps, maxlen=1)[0].tree(0)


@cache
def statistics(order, growth, seed, chunk=None):
    """Return what the laws are compared in, an array over trees for each."""
    rows, labels = (np.ascontiguousarray(array[ORDERS[order]]) for array in table())
    found = []
    for state in random_states(np.random.SeedSequence([7, seed]), N_TREES):
        tree = grown(rows, labels, growth, state[None], chunk)
        found.append(measures(tree, growth.lifetime))
    return {name: np.array([row[name] for row in found]) for name in found[0]}


def measures(tree, lifetime):
    """Return what tells trees of different laws apart."""
    visits, exits = routed(tree, QUERY, PRIOR, lifetime)
    moments = predict_moments(forest_of([tree], PRIOR, lifetime), QUERY)
    return {
        "leaves": np.sum(tree.left_child < 0),
        "nodes on the path": len(visits.node),
        "depth": tree.depth,
        "root time": tree.split_time[0],
        "root feature": tree.split_feature[0],
        "root threshold": tree.threshold[0],
        "first weight": exits.weight[0],
        "largest weight": exits.weight.max(),
        "mean": moments.mean[0],
        "variance": moments.posterior[0] + moments.branching[0],
    }


def p_value(name, one, other):
    if name == "root feature":
        pooled = np.array([[np.sum(x == f) for f in (-1, 0, 1)] for x in (one, other)])
        return chi2_contingency(pooled[:, pooled.sum(axis=0) > 0]).pvalue
    finite = np.isfinite(one), np.isfinite(other)  # a root that is never cut has no threshold
    return ks_2samp(one[finite[0]], other[finite[1]]).pvalue


@pytest.mark.parametrize("chunk", [1, 7, 29])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("min_samples_split", "lifetime"), [(2, np.inf), (5, np.inf), (10, np.inf), (5, 1.5)]
)
def test_online_and_batch_have_one_law(min_samples_split, lifetime, order, chunk):
    growth = Growth(min_samples_split, 1, lifetime)
    batch = statistics("as given", growth, 1)
    online = statistics(order, growth, 2, chunk)
    for name in batch:
        assert_plausible(p_value(name, batch[name], online[name]), N_TREES)


def test_the_papers_rule_at_leaves_would_be_noticed():
    """A leaf that cuts off new rows before it has enough of them, as in the paper's Alg. 4."""
    batch = statistics("as given", Growth(5, 1, np.inf), 1)
    never_waits = statistics("as given", Growth(2, 1, np.inf), 2, 1)
    assert is_rejected(p_value("leaves", batch["leaves"], never_waits["leaves"]))
    assert is_rejected(p_value("depth", batch["depth"], never_waits["depth"]))
