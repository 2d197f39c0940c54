import math
from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import t as student

from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import NO_CHILD, parents_first
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.labels import Pruned
from mondrian_forest._core.labels.model import set_all_nodes
from mondrian_forest._core.labels.pruned import (
    LOG_WEIGHT,
    PRIOR_COUNT,
    PRIOR_SHAPE,
    flattening,
)
from mondrian_forest._core.mixtures.collect import predict_mixture
from reference import pruning
from trees import forest_of, give_labels, grow, learn_in_steps, rows_in, small_table

PRIOR = Pruned(3.0, 8.0, 1e-13, 0.3)


def sequential(labels, mean, variance):
    """Density of labels one after the other, and the distribution of the next.

    The textbook update of a normal-inverse-gamma distribution, one label at a time.
    """
    count, shape, rate = PRIOR_COUNT, PRIOR_SHAPE, PRIOR_SHAPE * variance
    log_density = 0.0
    for y in [*labels, None]:
        predictive = student(2 * shape, mean, math.sqrt(rate * (count + 1) / (shape * count)))
        if y is None:
            return log_density, predictive
        log_density += predictive.logpdf(y)
        rate += 0.5 * count / (count + 1) * (y - mean) ** 2
        mean = (count * mean + y) / (count + 1)
        count, shape = count + 1, shape + 0.5
    raise AssertionError


def describe(tree, row_lists, labels, node=0, parent=(PRIOR.prior_mean, PRIOR.prior_scale / 2)):
    """Return by node: the density of its labels, what it predicts, its children, and its cut."""
    inside = labels[rows_in(tree, row_lists, node)]
    own, predictive = sequential(inside, *parent)
    found = {node: (own, predictive, (), 0.0)}
    left = int(tree.left_child[node])
    if left != NO_CHILD:
        here = inside.mean(), inside.var(ddof=1)
        for child in (left, left + 1):
            found |= describe(tree, row_lists, labels, child, here)
        flat = flattening(len(inside))
        cut = LOG_WEIGHT + found[left][0] + found[left + 1][0] - flat * own
        cut -= (1.0 - flat) * sequential(inside, *here)[0]
        found[node] = (own, predictive, (left, left + 1), cut)
    return found


def prunings(nodes, node=0):
    """Return all prunings below a node: the logarithm of their weight, and their leaves."""
    children, cut = nodes[node][2:]
    if not children:
        return [(0.0, (node,))]
    deeper = product(*(prunings(nodes, child) for child in children))
    goes_on = math.log(1.0 - PRIOR.prior_stop) + cut
    return [(math.log(PRIOR.prior_stop), (node,))] + [
        (goes_on + left[0] + right[0], left[1] + right[1]) for left, right in deeper
    ]


def path_of(tree, row):
    """Yield the nodes that a row passes, with the probability that it branches off above each."""
    node, time = 0, 0.0
    while True:
        outside = np.maximum(tree.lower[node] - row, 0) + np.maximum(row - tree.upper[node], 0)
        duration = tree.split_time[node] - time
        distance = float(outside.sum(dtype=float))
        yield node, -math.expm1(-duration * distance) if distance > 0 else 0.0
        if tree.left_child[node] == NO_CHILD:
            return
        time = tree.split_time[node]
        goes_right = row[tree.split_feature[node]] > tree.threshold[node]
        node = int(tree.left_child[node]) + goes_right


@pytest.mark.parametrize("seed", range(4))
def test_weights_and_predictions_equal_the_sum_over_all_prunings(seed):
    rows, labels = small_table(seed, n_rows=7)
    tree, row_lists = grow(rows, 2, seed=seed)
    give_labels(tree, row_lists, labels, PRIOR)
    nodes = describe(tree, row_lists, labels)
    logs, leaves = zip(*prunings(nodes), strict=True)
    assert len(leaves) > 5
    weights = np.exp(np.array(logs) - logsumexp(logs))
    reached = {
        node: sum(w for w, ends in zip(weights, leaves, strict=True) if node in ends)
        for node in nodes
    }
    # The probability to stop at a node is that of reaching it times that of going no further.
    staying = {0: 1.0}
    for node in parents_first(tree.nodes, tree.depth):
        stop = float(expit(tree.nodes["share"][node]))
        assert staying[node] * stop == pytest.approx(reached[node], rel=1e-10, abs=1e-14)
        for child in nodes[node][2]:
            staying[child] = staying[node] * (1.0 - stop)
        law = nodes[node][1]
        assert tree.nodes["location"][node] == pytest.approx(law.kwds.get("loc", law.args[1]))
        assert tree.nodes["precision"][node] == pytest.approx(law.args[2] ** -2, rel=1e-10)
        assert 2.0 * PRIOR_SHAPE + tree.nodes["n_samples"][node] == law.args[0]

    generator = np.random.default_rng(seed)
    queries = generator.uniform(-0.3, 1.3, (6, rows.shape[1])).astype(np.float32)
    queries[0] = rows[0]
    _, mixture = predict_mixture(forest_of([tree], PRIOR), queries)
    for i, query in enumerate(queries):
        y = generator.normal(3.0, 2.0)
        density = 0.0
        for weight, ends in zip(weights, leaves, strict=True):
            left = weight
            for node, branches_off in path_of(tree, query):
                # What hangs on a new branch above a node knows the labels of the node.
                leaves_here = 1.0 if node in ends else branches_off
                density += left * leaves_here * nodes[node][1].pdf(y)
                left *= 1.0 - leaves_here
        part = slice(mixture.offset[i], mixture.offset[i + 1])
        found = (
            student.pdf(y, mixture.degrees[part], mixture.location[part], mixture.scale[part])
            @ mixture.weight[part]
        )
        # Components lighter than 1e-6 are left out.
        assert found == pytest.approx(density, rel=3e-5)


@pytest.mark.parametrize("n_candidate_splits", [1, 3])
@pytest.mark.parametrize("chunk", [1, 5])
def test_online_equals_a_full_recomputation(chunk, n_candidate_splits):
    rows, labels = small_table(1, n_rows=40)
    growth = Growth(3, n_candidate_splits, np.inf)
    states = random_states(np.random.SeedSequence(3), 1)
    for grove in learn_in_steps(rows, labels, growth, PRIOR, states, 2, chunk):
        tree = grove.tree(0)
        kept = tree.nodes.copy(), tree.tallies.copy()
        order = parents_first(tree.nodes, tree.depth)
        set_all_nodes(PRIOR, tree.nodes, tree.tallies, order)
        for before, after in zip(kept, (tree.nodes, tree.tallies), strict=True):
            for name in before.dtype.names:
                np.testing.assert_allclose(before[name], after[name], rtol=1e-12, atol=1e-12)


def test_equal_labels_keep_a_variance_and_a_finite_density():
    rows = np.linspace(0, 1, 30, dtype=np.float32)[:, None]
    prior = PRIOR._replace(noise_variance=1e-4)
    tree, row_lists = grow(rows, 2)
    give_labels(tree, row_lists, np.full(30, 7.0), prior)
    squared_scale = 1.0 / tree.nodes["precision"]
    assert np.all(squared_scale >= 1e-4)
    assert np.all(np.isfinite(tree.nodes["location"]))


def test_labels_without_structure_are_not_split():
    rows, _ = small_table(0, n_rows=400)
    labels = np.random.default_rng(5).normal(3.0, 2.0, 400)
    tree, row_lists = grow(rows, 5, seed=1)
    give_labels(tree, row_lists, labels, PRIOR)
    assert expit(tree.nodes["share"][0]) > 0.9  # though the prior probability is 0.3
    # ... and where a cut explains the labels, hardly anything stops above it.
    labels += 50.0 * rows[:, 1]
    give_labels(tree, row_lists, labels, PRIOR)
    assert expit(tree.nodes["share"][0]) < 1e-6


def log_average(log_gain, prior_stop):
    return np.logaddexp(math.log(prior_stop), math.log(1.0 - prior_stop) + log_gain)


def log_cut(n, of_children, own, squares):
    flat = flattening(n)
    return of_children - flat * own - (1.0 - flat) * pruning.log_centred_density(n, squares)


def log_mean_cut(n_left, n_right):
    """Log of the mean of a cut over all labels that its node may have as a leaf."""
    n = n_left + n_right
    return pruning.log_excess(n_left, n_right) + pruning.log_flatness(n, flattening(n))


@pytest.mark.parametrize(
    "sizes", [(1, 1), (1, 2), (2, 2), (1, 4), (3, 4), (7, 20), (60, 300), (1, 700), (316, 316)]
)
def test_a_cut_of_noise_has_about_the_same_mean_whatever_its_size(sizes):
    """With the weight that the prior gives to each cut it is 4.7 to 7."""
    assert 4.65 < math.exp(LOG_WEIGHT + log_mean_cut(*sizes)) < 7.0


@pytest.mark.parametrize(("centre", "variance"), [(0.0, 1.0), (7.0, 0.01)])
@pytest.mark.parametrize("prior_stop", [0.02, 0.5])
def test_the_evidence_of_two_labels_is_a_density_times_a_prior_weight(prior_stop, centre, variance):
    """The weight of the pruning with a cut is the same, whatever the parent's labels are."""

    def average(mean, squares):
        # Labels at mean +- d, where 2 d^2 is the sum of squares, which is also the variance.
        child = pruning.log_density(1, 0.0, np.sqrt(0.5 * squares), squares)
        own = pruning.log_density(2, squares, mean - centre, variance)
        return log_average(log_cut(2, 2.0 * child, own, squares), prior_stop)

    total = pruning.log_total(2, average, centre, variance)
    expected = log_average(log_mean_cut(1, 1), prior_stop)
    assert total == pytest.approx(expected, abs=0.01)


def of_three_labels(centre, variance, prior_stop=0.5):
    """Return the total evidence of all three labels that a node may have.

    The root cuts the first of them off, and the other inner node cuts the two others.
    """
    # By symmetry a quarter of a circle of directions is enough. Where the two others are equal the
    # density has a pole, so that points are dense there.
    steps = (np.arange(60) + 0.5) / 60
    directions, volumes = 0.5 * np.pi * steps**5, 5.0 * steps**4 / 60
    along = np.array([[2.0, -1.0, -1.0], [0.0, 1.0, -1.0]]) / np.sqrt([[6.0], [2.0]])

    def average(mean, squares):
        own = pruning.log_density(3, squares, mean - centre, variance)
        here = 0.5 * squares
        total = -np.inf
        for angle, part in zip(directions, volumes, strict=True):
            direction = np.cos(angle) * along[0] + np.sin(angle) * along[1]
            labels = np.sqrt(squares) * direction[:, None]
            first = pruning.log_density(1, 0.0, labels[0], here)
            middle, pair = 0.5 * (labels[1] + labels[2]), 0.5 * (labels[1] - labels[2]) ** 2
            second = pruning.log_density(2, pair, middle, here)
            half = pruning.log_density(1, 0.0, np.sqrt(0.5 * pair), pair)
            inner = log_average(log_cut(2, 2.0 * half, second, pair), prior_stop)
            outer = log_cut(3, first + second + inner, own, squares)
            total = np.logaddexp(total, log_average(outer, prior_stop) + math.log(part))
        return total

    return math.exp(pruning.log_total(3, average, centre, variance))


def test_the_evidence_of_three_labels_is_a_density_times_a_prior_weight():
    weight = of_three_labels(0.0, 1.0)
    assert 1.0 < weight < 0.5 + 0.5 * 5.0 * (0.5 + 0.5 * 5.0)
    assert of_three_labels(7.0, 0.01) == pytest.approx(weight, rel=1e-3)
