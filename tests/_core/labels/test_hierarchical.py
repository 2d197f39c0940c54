import numpy as np
import pytest

from mondrian_forest._core.labels import Empirical, Hierarchical
from mondrian_forest._core.labels.exits import Messages, Visits
from mondrian_forest._core.labels.hierarchical import log_marginal_likelihood, send_messages_down
from mondrian_forest._core.labels.model import Summary
from mondrian_forest._core.moments import Moments
from reference import paper as reference
from trees import (
    as_reference,
    check_tree_invariants,
    give_labels,
    grow,
    preorder_numbers,
    small_table,
)

PRIORS = [
    Hierarchical(3.0, 8.0, 0.4, 0.3),
    Hierarchical(-1.0, 0.5, 3.0, 2.0),
    Hierarchical(3.0, 100.0, 0.02, 0.05),
]


def all_visits(tree):
    """Visit every node, parents first."""
    parent = np.full(tree.n_nodes, -1, dtype=np.int32)
    for node in range(tree.n_nodes):
        if tree.left_child[node] >= 0:
            parent[[tree.left_child[node], tree.left_child[node] + 1]] = node
    return Visits(np.arange(tree.n_nodes, dtype=np.int32), parent)


def posterior_of_every_node(tree, prior):
    """Multiply the message from above with the evidence from below."""
    visits = all_visits(tree)
    messages = Messages(np.empty(tree.n_nodes), np.empty(tree.n_nodes))
    send_messages_down(prior, tree.nodes, visits, tree.n_nodes, messages)
    evidence = tree.nodes
    above_share = np.where(visits.parent < 0, 0.5, evidence["share"][visits.parent])
    variance = messages.variance + prior.prior_scale * (above_share - evidence["share"])
    gain = 1 / (1 + evidence["precision"] * variance)
    mean = messages.mean * gain + evidence["location"] * (1 - gain)
    return mean, variance * gain


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("min_samples_split", [2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_message_passing_equals_a_dense_gaussian_solve(seed, min_samples_split, prior):
    rows, labels = small_table(seed)
    tree, row_lists = grow(rows, min_samples_split, seed=seed)
    give_labels(tree, row_lists, labels, prior)
    log_likelihood = log_marginal_likelihood(prior, tree.nodes, tree.tallies)
    mean, variance = posterior_of_every_node(tree, prior)

    root = as_reference(tree, row_lists)
    joint = reference.joint_gaussian(root, len(labels), reference.Prior(*prior))
    dense_mean, dense_variance = reference.node_posterior(joint, labels)
    numbers = preorder_numbers(tree)
    np.testing.assert_allclose(mean[numbers], dense_mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(variance[numbers], dense_variance, rtol=1e-8, atol=1e-10)
    assert log_likelihood == pytest.approx(
        reference.log_marginal_likelihood(joint, labels), rel=1e-8
    )


@pytest.mark.parametrize("n_rows", [1, 2])
def test_one_leaf_has_the_evidence_of_its_labels(n_rows):
    rows = np.zeros((n_rows, 2), dtype=np.float32)
    labels = np.array([1.0, 4.0])[:n_rows]
    tree, row_lists = grow(rows)
    prior = PRIORS[0]
    give_labels(tree, row_lists, labels, prior)
    log_likelihood = log_marginal_likelihood(prior, tree.nodes, tree.tallies)
    assert tree.nodes["location"][0] == labels.mean()
    assert tree.nodes["precision"][0] == pytest.approx(n_rows / prior.noise_variance)
    joint = reference.joint_gaussian(as_reference(tree, row_lists), n_rows, reference.Prior(*prior))
    assert log_likelihood == pytest.approx(reference.log_marginal_likelihood(joint, labels))


@pytest.mark.parametrize(("centre", "scale"), [(0.0, 1.0), (1e8, 1.0), (-3.0, 1e-6)])
def test_moments_are_those_of_the_labels_in_each_node(centre, scale):
    rows, labels = small_table(5, n_rows=40)
    labels = centre + scale * labels
    tree, row_lists = grow(rows, 5)
    give_labels(tree, row_lists, labels, PRIORS[0])
    check_tree_invariants(tree, rows, row_lists, 5, labels=labels)


@pytest.mark.parametrize("model", [Hierarchical, Empirical])
@pytest.mark.parametrize("n_rows", [2, 50, 5000])
def test_the_heuristic_is_that_of_appendix_b(n_rows, model):
    labels = np.random.default_rng(0).normal(2.0, 3.0, n_rows)
    expected = reference.hyperparameters(labels, 7)
    sums = Moments(n_rows, labels.mean(), ((labels - labels.mean()) ** 2).sum())
    found = model.estimate(Summary(sums, 7, 0.0))
    assert isinstance(found, model)
    np.testing.assert_allclose(
        found, [expected.mean, expected.scale, expected.rate, expected.noise_variance], rtol=1e-12
    )


def test_given_hyperparameters_are_kept_and_the_others_follow_from_them():
    summary = Summary(Moments(100, 5.0, 400.0), 2, 0.0)
    found = Hierarchical.estimate(summary, prior_mean=2.0, prior_scale=8.0)
    assert found.prior_mean == 2.0
    assert found.prior_scale == 8.0
    assert found.noise_variance == 8.0 / 200
    found = Hierarchical.estimate(summary, prior_mean=2.0)
    assert found.prior_scale * (1 / 2 + 1 / 200) == pytest.approx(4.0 + 9.0)


@pytest.mark.parametrize("n_rows", [1, 30])
def test_labels_without_spread_get_a_positive_finite_prior(n_rows):
    found = Hierarchical.estimate(Summary(Moments(n_rows, 7.0, 0.0), 3, 0.0))
    assert found.prior_mean == 7.0
    assert all(np.isfinite(value) and value > 0 for value in found)
