import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import multivariate_normal

from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import NO_CHILD, parents_first
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.labels.evidence import TUNABLE, evidence_and_gradient, maximise_evidence
from mondrian_forest._core.labels.hierarchical import Hierarchical, log_marginal_likelihood
from mondrian_forest._core.labels.model import Summary, set_all_nodes
from mondrian_forest._core.moments import Moments
from reference import paper as reference
from trees import as_reference, give_labels, grow, learn_in_steps, small_table

PRIORS = [
    Hierarchical(3.0, 8.0, 0.4, 0.3),
    Hierarchical(-1.0, 0.5, 3.0, 2.0),
    Hierarchical(3.0, 100.0, 0.02, 0.05),
    Hierarchical(0.0, 1e-3, 20.0, 4.0),
]


def evidence(tree, prior):
    """Return the evidence of a tree and its gradient."""
    gradient = np.full(3, np.nan)
    order = parents_first(tree.nodes, tree.depth)
    value = evidence_and_gradient(prior, tree.nodes, tree.tallies, order, gradient)
    return value, gradient


def labelled_tree(seed, n_rows, prior, min_samples_split=2, lifetime=np.inf):
    rows, labels = small_table(seed, n_rows)
    tree, order = grow(rows, min_samples_split, lifetime, seed=seed)
    return give_labels(tree, order, labels, prior)


def learned_tree(seed, prior):
    """A tree whose nodes are out of order, since it has learned its rows one by one."""
    rows, labels = small_table(seed, 20)
    states = random_states(np.random.SeedSequence(seed), 1)
    growth = Growth(3, 1, np.inf)
    for grove in learn_in_steps(rows, labels, growth, prior, states):
        last = grove
    return last.tree(0)


def trees_of_all_kinds(prior):
    yield from (labelled_tree(seed, 12, prior) for seed in range(3))
    yield labelled_tree(3, 40, prior, min_samples_split=10)
    yield labelled_tree(4, 30, prior, lifetime=1.0)
    yield labelled_tree(5, 6, prior, lifetime=1e-9)  # all rows in the root
    yield labelled_tree(6, 1, prior)
    yield learned_tree(7, prior)
    rows = np.repeat(small_table(8)[0], 3, axis=0)
    tree, order = grow(rows)
    yield give_labels(tree, order, np.arange(len(rows)) % 7.0, prior)


def renewed_evidence(tree, prior):
    """Return the evidence from messages that are computed anew."""
    order = parents_first(tree.nodes, tree.depth)
    set_all_nodes(prior, tree.nodes, tree.tallies, order)
    return log_marginal_likelihood(prior, tree.nodes, tree.tallies)


def moved(prior, name, step):
    return prior._replace(**{name: getattr(prior, name) * np.exp(step)})


def slope(function, step=2e-3):
    """Return the derivative at zero, by central differences of the fourth order."""
    near = function(step) - function(-step)
    far = function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_value_is_the_log_marginal_likelihood(prior):
    for tree in trees_of_all_kinds(prior):
        expected = log_marginal_likelihood(prior, tree.nodes, tree.tallies)
        assert evidence(tree, prior)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_gradient_is_the_slope_of_the_value(prior):
    for tree in trees_of_all_kinds(prior):
        _, gradient = evidence(tree, prior)
        for found, name in zip(gradient, TUNABLE, strict=True):
            expected = slope(
                lambda step, name=name, tree=tree: renewed_evidence(tree, moved(prior, name, step))
            )
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("lifetime", [1.0, np.inf])
def test_the_value_is_a_dense_normal_density(lifetime, prior):
    rows, labels = small_table(1)
    tree, order = grow(rows, 2, lifetime)
    give_labels(tree, order, labels, prior)
    joint = reference.joint_gaussian(
        as_reference(tree, order), len(labels), reference.Prior(*prior)
    )
    n_nodes = len(joint.nodes)
    dense = multivariate_normal(joint.mean[n_nodes:], joint.covariance[n_nodes:, n_nodes:])
    assert evidence(tree, prior)[0] == pytest.approx(dense.logpdf(labels), rel=1e-9)


def test_the_tree_is_left_as_it_is():
    tree = labelled_tree(0, 12, PRIORS[0])
    before = tree.nodes.copy(), tree.tallies.copy()
    evidence(tree, PRIORS[1])
    assert tree.nodes.tobytes() == before[0].tobytes()
    assert tree.tallies.tobytes() == before[1].tobytes()


@pytest.mark.parametrize("prior_rate", [1e-300, 1e-8, 1e8, 1e300])
@pytest.mark.parametrize("noise_variance", [1e-80, 1e80])
def test_extreme_hyperparameters_have_a_finite_gradient(noise_variance, prior_rate):
    prior = Hierarchical(3.0, 1.0, prior_rate, noise_variance)
    for tree in trees_of_all_kinds(PRIORS[0]):
        value, gradient = evidence(tree, prior)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


class MeanEvidence:
    """The mean evidence of trees, which counts how often it was asked for."""

    def __init__(self, trees):
        self.trees = trees
        self.n_calls = 0

    def __call__(self, prior):
        self.n_calls += 1
        values, gradients = zip(*(evidence(tree, prior) for tree in self.trees), strict=True)
        return np.mean(values), np.mean(gradients, axis=0)


def heuristic(tree):
    tally = tree.tallies[0]
    mean, deviation = float(tally.label_mean), float(tally.squared_deviation)
    return Hierarchical.estimate(Summary(Moments(int(tally.n_samples), mean, deviation), 3, 0.0))


def drawn_from_the_model(tree, order, prior, generator):
    """Draw labels: the mean of each node about its parent's, and noise about the leaf's."""
    share = expit(-prior.prior_rate * tree.split_time)
    means = np.empty(tree.n_nodes)
    means[0] = generator.normal(prior.prior_mean, np.sqrt(prior.prior_scale * (0.5 - share[0])))
    labels = np.empty(len(order.order))
    for node in parents_first(tree.nodes, tree.depth):
        left = tree.left_child[node]
        if left != NO_CHILD:
            children = [left, left + 1]
            deviation = np.sqrt(prior.prior_scale * (share[node] - share[children]))
            means[children] = generator.normal(means[node], deviation)
        else:
            first = tree.tallies["first_row"][node]
            rows = order.order[first : first + tree.n_samples[node]]
            labels[rows] = generator.normal(
                means[node], np.sqrt(prior.noise_variance), tree.n_samples[node]
            )
    return labels


@pytest.mark.parametrize("noise_variance", [0.05, 2.0])
def test_the_maximiser_recovers_the_model_that_labels_were_drawn_from(noise_variance):
    prior = Hierarchical(1.0, 3.0, 0.3, noise_variance)
    generator = np.random.default_rng(0)
    trees = []
    for seed in range(5):
        tree, order = grow(generator.random((2000, 3)), 10, seed=seed)
        labels = drawn_from_the_model(tree, order, prior, generator)
        trees.append(give_labels(tree, order, labels, prior))
    evaluate = MeanEvidence(trees)
    found = maximise_evidence(evaluate, heuristic(trees[0]), 2000, minimize)
    # Each of the 10,000 labels says something of the noise; of the prior only the few early nodes
    # and, for the rate, how far siblings differ.
    assert found.noise_variance == pytest.approx(noise_variance, rel=0.1)
    assert found.prior_scale == pytest.approx(prior.prior_scale, rel=0.3)
    assert found.prior_rate == pytest.approx(prior.prior_rate, rel=0.3)
    _, gradient = evaluate(found)
    assert abs(gradient).max() < 1e-3 * 2000
    assert evaluate.n_calls < 40


@pytest.mark.parametrize("min_samples_split", [2, 10])
@pytest.mark.parametrize("seed", range(3))
def test_the_evidence_is_never_worse_than_at_the_start(seed, min_samples_split):
    evaluate = MeanEvidence([labelled_tree(seed, 30, PRIORS[0], min_samples_split)])
    for start in (*PRIORS, heuristic(evaluate.trees[0])):
        found = maximise_evidence(evaluate, start, 30, minimize)
        assert evaluate(found)[0] >= evaluate(start)[0]
        again = maximise_evidence(evaluate, found, 30, minimize)
        assert evaluate(again)[0] >= evaluate(found)[0]
        assert evaluate(again)[0] == pytest.approx(evaluate(found)[0], abs=1e-2)


def test_the_start_is_returned_when_nothing_is_better():
    start = PRIORS[0]

    def evaluate(prior):
        steps = [np.log(getattr(prior, name) / getattr(start, name)) for name in TUNABLE]
        return -np.square(steps).sum(), -2.0 * np.array(steps)

    assert maximise_evidence(evaluate, start, 1, minimize) == start


@pytest.mark.parametrize("fixed", TUNABLE)
def test_what_is_not_free_stays_and_the_others_move(fixed):
    free = [name for name in TUNABLE if name != fixed]
    start = PRIORS[0]
    evaluate = MeanEvidence([labelled_tree(0, 30, start, 5)])
    found = maximise_evidence(evaluate, start, 30, minimize, free)
    assert found.prior_mean == start.prior_mean
    assert getattr(found, fixed) == getattr(start, fixed)
    assert all(getattr(found, name) != getattr(start, name) for name in free)


def test_nothing_is_evaluated_when_nothing_is_free():
    evaluate = MeanEvidence([])
    assert maximise_evidence(evaluate, PRIORS[0], 30, minimize, ()) == PRIORS[0]
    assert evaluate.n_calls == 0


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100])
def test_units_of_the_labels_do_not_matter(unit):
    rows, labels = small_table(2, 40)
    labels += 20.0 * rows[:, 1]
    found = []
    for factor in (1.0, unit):
        tree, order = grow(rows, 10)
        give_labels(tree, order, factor * labels, PRIORS[0])
        found.append(maximise_evidence(MeanEvidence([tree]), heuristic(tree), 40, minimize))
    expected = np.array(found[0]) * [unit, unit**2, 1.0, unit**2]
    np.testing.assert_allclose(found[1], expected, rtol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 20])
def test_labels_without_spread_get_a_positive_finite_prior(n_rows):
    rows, _ = small_table(0, n_rows)
    tree, order = grow(rows)
    give_labels(tree, order, np.full(n_rows, 7.0), PRIORS[0])
    found = maximise_evidence(MeanEvidence([tree]), heuristic(tree), n_rows, minimize)
    assert all(np.isfinite(value) and value > 0 for value in found)
