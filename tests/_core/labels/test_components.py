import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from mondrian_forest._core.arrays.tree import Tree, parents_first
from mondrian_forest._core.labels import Empirical, Hierarchical
from mondrian_forest._core.labels.branching import allocate_branches, branch_variance_moments
from mondrian_forest._core.labels.hierarchical import log_marginal_likelihood
from mondrian_forest._core.labels.model import set_all_nodes
from mondrian_forest._core.mixtures.reduce import predict_moments
from reference import paper as reference
from trees import (
    as_reference,
    components_of,
    forest_of,
    give_labels,
    grow,
    preorder_numbers,
    routed,
    rows_in,
    small_table,
)

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)


def expectation(function, rate, duration):
    """Integrate against the exponential distribution truncated to [0, duration], adaptively."""
    last = min(rate * duration, 60.0)
    marks = [0.0, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    edges = [mark for mark in marks if mark < last] + [last]
    total = sum(
        quad(lambda u: function(u / rate) * math.exp(-u), a, b, epsabs=0, epsrel=1e-10)[0]
        for a, b in pairwise(edges)
    )
    return total / -math.expm1(-rate * duration)


@pytest.mark.parametrize("start", [0.0, 0.3, 10.0])
@pytest.mark.parametrize("duration", [1e-5, 1e-3, 9e-3, 0.02, 0.5, 5.0, math.inf])
@pytest.mark.parametrize("distance", [1e-5, 1e-2, 0.3, 2.0, 50.0])
def test_branch_moments_equal_adaptive_quadrature(start, duration, distance):
    """Times are in units of 1 / gamma_2, so that ``distance`` is also the rate ratio."""
    share = float(expit(-start))

    def accumulated(elapsed):
        s = -math.expm1(-elapsed)
        return share * (1 - share) * s / (1 - share * s)

    # The closed form of the integrand is itself checked where differences keep their digits.
    assert accumulated(0.7) == pytest.approx(share - float(expit(-start - 0.7)), rel=1e-9)

    inputs = share, distance, -math.expm1(-duration), -math.expm1(-distance * duration)
    branches = allocate_branches()
    for array, value in zip(branches, (*inputs, np.nan, np.nan), strict=False):
        array[:] = value
    branch_variance_moments(branches)
    mean, variance = branches.mean[0], branches.variance[0]
    exact = expectation(accumulated, distance, duration)
    exact_variance = expectation(lambda t: (accumulated(t) - exact) ** 2, distance, duration)
    assert mean == pytest.approx(exact, rel=1e-8)
    assert variance == pytest.approx(exact_variance, rel=1e-6, abs=2e-9 * exact**2)


@pytest.mark.parametrize("lifetime", [np.inf, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_components_equal_a_dense_solve_integrated_over_the_branch_time(seed, lifetime):
    rows, labels = small_table(seed, n_rows=8)
    tree, row_lists = grow(rows, 3, lifetime, seed)
    give_labels(tree, row_lists, labels, PRIOR)
    query = np.random.default_rng(seed).uniform(-0.3, 1.3, (3, 3)).astype(np.float32)
    query[0] = rows[0]
    visits, exits, components = components_of(tree, query, PRIOR, lifetime)

    prior = reference.Prior(*PRIOR)
    root = as_reference(tree, row_lists)
    node_of = dict(zip(preorder_numbers(tree), root.walk(), strict=True))
    joint = reference.joint_gaussian(root, len(labels), prior)
    dense = dict(
        zip(
            map(id, joint.nodes),
            zip(*reference.node_posterior(joint, labels), strict=True),
            strict=True,
        )
    )
    assert (exits.distance > 0).sum() >= 3
    assert (exits.distance == 0).sum() >= 1
    for e in range(len(exits.row)):
        node = node_of[visits.node[exits.visit[e]]]
        found_variance = components.posterior_variance[e] + components.branch_variance[e]
        if exits.distance[e] == 0.0:
            mean, variance = dense[id(node)]
            assert components.location[e] == pytest.approx(mean, rel=1e-8)
            assert found_variance == pytest.approx(variance, rel=1e-8)
            continue

        def at(elapsed, node=node):
            return reference.branch_off_at(root, node, node.parent_time + elapsed, labels, prior)

        rate, duration = exits.distance[e], min(node.split_time, lifetime) - node.parent_time
        mean = expectation(lambda t, at=at: at(t)[0], rate, duration)
        assert components.location[e] == pytest.approx(mean, rel=1e-6)
        square = expectation(
            lambda t, at=at: at(t)[1] + at(t)[2] - PRIOR.noise_variance + at(t)[0] ** 2,
            rate,
            duration,
        )
        assert found_variance == pytest.approx(square - mean**2, rel=1e-6)


def test_far_from_all_data_the_prediction_is_the_prior():
    rows, labels = small_table(0)
    tree, row_lists = grow(rows)
    give_labels(tree, row_lists, labels, PRIOR)
    far = np.array([[1e30, 0, 0], [-1e30, 1e30, 0.5]], dtype=np.float32)
    found = predict_moments(forest_of([tree], PRIOR), far)
    np.testing.assert_allclose(found.mean, PRIOR.prior_mean, rtol=1e-15)
    np.testing.assert_allclose(found.posterior + found.branching, PRIOR.prior_scale / 2, rtol=1e-15)


def test_with_small_noise_the_mean_at_a_training_point_is_its_label():
    generator = np.random.default_rng(0)
    rows = generator.random((30, 2)).astype(np.float32)
    labels = generator.normal(size=30)
    tree, row_lists = grow(rows)
    prior = Hierarchical(0.0, 2.0, 0.1, 1e-12)
    give_labels(tree, row_lists, labels, prior)
    found = predict_moments(forest_of([tree], prior), rows)
    np.testing.assert_allclose(found.mean, labels, atol=1e-6)
    assert (found.posterior + found.branching < 2e-12).all()


@pytest.mark.parametrize("noise_variance", [1e-12, 1e-11, 1e-9])
def test_next_to_a_training_row_the_variance_is_hardly_more_than_at_the_row(noise_variance):
    """A hair outside a leaf's box, where all of the edge's variance has accumulated."""
    rows = np.linspace(0.1, 1.0, 50, dtype=np.float32).reshape(-1, 1)
    labels = np.sin(6.0 * rows[:, 0].astype(float))
    tree, row_lists = grow(rows)
    prior = Hierarchical(0.0, 1.0, 0.01, noise_variance)
    give_labels(tree, row_lists, labels, prior)
    forest = forest_of([tree], prior)
    at, beside = (
        predict_moments(forest, query) for query in (rows, np.nextafter(rows, np.float32(0)))
    )
    assert (beside.branching >= 0).all()
    assert (beside.posterior >= 0.999 * at.posterior).all()
    # 6e-8 of a box away, against a prior rate of 0.01: a share of 1e-5 of the prior is left.
    assert (beside.posterior + beside.branching < at.posterior + 1e-5).all()


def insert_node_without_data(tree: Tree, node, time):
    """Put a node above ``node`` at the given time; its other child holds nothing.

    The inserted node takes the number of the old one, which moves to the end with its sibling.
    """
    end = tree.n_nodes
    wider = Tree(*(np.concatenate([array, array[[node, node]]]) for array in tree))
    wider.left_child[node] = end
    wider.split_feature[node] = 0
    wider.threshold[node] = np.inf  # every row goes left
    wider.split_time[node] = time
    wider.left_child[end + 1] = -1
    wider.split_time[end + 1] = np.inf
    wider.n_samples[end + 1] = 0
    wider.tallies["squared_deviation"][end + 1] = 0.0
    wider.height[:] += 1  # an upper bound will do
    return wider


@pytest.mark.parametrize("where", ["root", "inner", "leaf"])
def test_an_inserted_node_without_data_changes_no_prediction(where):
    """The prior is closed under marginalisation (section 3)."""
    rows, labels = small_table(3, n_rows=20)
    tree, row_lists = grow(rows, 3)
    give_labels(tree, row_lists, labels, PRIOR)
    left = int(tree.left_child[0])
    node, time = {
        "root": (0, 0.4 * tree.split_time[0]),
        "inner": (left, 0.5 * (tree.split_time[0] + tree.split_time[left])),
        "leaf": (
            next(j for j in range(tree.n_nodes) if tree.left_child[j] < 0),
            2.0 * tree.split_time[np.isfinite(tree.split_time)].max(),
        ),
    }[where]
    assert np.isfinite(time)
    wider = insert_node_without_data(tree, node, time)
    order = parents_first(wider.nodes, wider.depth)
    set_all_nodes(PRIOR, wider.nodes, wider.tallies, order)
    assert log_marginal_likelihood(PRIOR, wider.nodes, wider.tallies) == pytest.approx(
        log_marginal_likelihood(PRIOR, tree.nodes, tree.tallies), rel=1e-12
    )
    query = np.random.default_rng(0).uniform(-0.5, 1.5, (200, 3)).astype(np.float32)
    before = predict_moments(forest_of([tree], PRIOR), query)
    after = predict_moments(forest_of([wider], PRIOR), query)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-8)
    np.testing.assert_allclose(
        after.posterior + after.branching, before.posterior + before.branching, rtol=1e-7
    )
    # The test can only fail if rows do branch off next to the inserted node.
    (_, more), (_, fewer) = (routed(one, query, PRIOR) for one in (wider, tree))
    assert len(more.row) > len(fewer.row)


def test_empirical_components_are_the_moments_of_the_nodes():
    rows, labels = small_table(1)
    tree, row_lists = grow(rows, 4)
    empirical = Empirical(*PRIOR)
    give_labels(tree, row_lists, labels, empirical)
    query = np.random.default_rng(0).uniform(-0.5, 1.5, (10, 3)).astype(np.float32)
    visits, exits, components = components_of(tree, query, empirical)
    for e in range(len(exits.row)):
        node = visits.node[exits.visit[e]]
        inside = labels[rows_in(tree, row_lists, node)]
        assert components.location[e] == pytest.approx(inside.mean())
        assert components.posterior_variance[e] == pytest.approx(inside.var(), abs=1e-12)
        assert components.branch_variance[e] == 0.0


def test_components_stay_finite_when_the_prior_is_used_up():
    """At times so late that nothing of the prior variance is left, and without any precision."""
    rows = np.array([[0.0], [1e-6], [1.0]], dtype=np.float32)
    labels = np.array([1.0, 2.0, 3.0])
    tree, row_lists = grow(rows)
    prior = PRIOR._replace(prior_rate=1e6)
    give_labels(tree, row_lists, labels, prior)
    query = np.linspace(-0.5, 1.5, 50, dtype=np.float32).reshape(-1, 1)
    for factor in (1.0, 0.0):
        tree.nodes["precision"] *= factor
        found = predict_moments(forest_of([tree], prior), query)
        assert np.isfinite(found.mean).all()
        assert (found.posterior >= 0).all()
        assert (found.branching >= 0).all()
