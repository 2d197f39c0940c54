"""The sampler follows the Mondrian law."""

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp, kstest, norm

from laws.significance import assert_plausible, is_rejected
from mondrian_forest._core.arrays.rng import random_states
from reference.paper import sample_mondrian_block
from trees import grow

N_TREES = 4000
ROWS = np.array(
    [[0.0, 0.2, 0.5], [1.0, 0.1, 0.5], [0.4, 0.45, 0.5], [0.3, 0.3, 0.5]], dtype=np.float32
)
EXTENTS = np.array([1.0, 0.35, 0.0])


def sample_many(rows, n_trees, min_samples_split=2, lifetime=np.inf, seed=0):
    states = random_states(np.random.SeedSequence([2016, seed]), n_trees)
    return [grow(rows, min_samples_split, lifetime, state=state)[0] for state in states]


@pytest.fixture(scope="module")
def trees():
    return sample_many(ROWS, N_TREES)


def test_the_root_is_split_after_an_exponential_time(trees):
    times = np.array([tree.split_time[0] for tree in trees])
    rate = EXTENTS.sum()
    assert_plausible(kstest(times, "expon", (0, 1 / rate)).pvalue, N_TREES)
    assert is_rejected(kstest(times, "expon", (0, 1 / (0.85 * rate))).pvalue)


def test_a_child_waits_for_its_own_exponential_time(trees):
    """Rescaled by the extent of the left child, waiting times have rate one."""
    waits = []
    for tree in trees:
        left = tree.left_child[0]
        if tree.n_samples[left] >= 2:
            extent = (tree.upper[left].astype(float) - tree.lower[left]).sum()
            waits.append(extent * (tree.split_time[left] - tree.split_time[0]))
    assert_plausible(kstest(waits, "expon").pvalue, len(waits))


def test_the_root_feature_is_drawn_in_proportion_to_the_extents(trees):
    counts = np.bincount([tree.split_feature[0] for tree in trees], minlength=3)
    assert counts[2] == 0
    expected = N_TREES * EXTENTS[:2] / EXTENTS.sum()
    assert_plausible(chisquare(counts[:2], expected).pvalue, N_TREES)


@pytest.mark.parametrize("feature", [0, 1])
def test_the_root_threshold_is_uniform_in_the_box(trees, feature):
    thresholds = [tree.threshold[0] for tree in trees if tree.split_feature[0] == feature]
    low = float(ROWS[:, feature].min())
    law = kstest(thresholds, "uniform", (low, EXTENTS[feature]))
    assert_plausible(law.pvalue, len(thresholds))


def test_time_feature_and_threshold_of_the_root_are_independent(trees):
    times = np.array([tree.split_time[0] for tree in trees])
    features = np.array([tree.split_feature[0] for tree in trees])
    thresholds = np.array([tree.threshold[0] for tree in trees])
    rate = EXTENTS.sum()
    for late in (False, True):
        chosen = (times > np.log(2) / rate) == late
        share = np.mean(features[chosen] == 0)
        error = np.sqrt(EXTENTS[0] * EXTENTS[1]) / rate / np.sqrt(chosen.sum())
        z = (share - EXTENTS[0] / rate) / error
        assert_plausible(2 * norm.sf(abs(z)), int(chosen.sum()))
        first = chosen & (features == 0)
        assert_plausible(kstest(thresholds[first], "uniform").pvalue, int(first.sum()))


@pytest.mark.parametrize(
    ("n_features", "points_per_axis", "lifetime", "n_trees"),
    [
        (1, 4001, 3.0, 2000),
        (2, 301, 1.0, 1500),
        pytest.param(3, 61, 0.5, 1000, marks=pytest.mark.slow),
    ],
)
def test_the_number_of_cells_of_a_dense_cube(n_features, points_per_axis, lifetime, n_trees):
    """On average (1 + lifetime)^D; the grid misses cells thinner than its spacing, well below the
    standard error."""
    axis = np.linspace(0, 1, points_per_axis, dtype=np.float32)
    rows = np.stack(np.meshgrid(*[axis] * n_features), axis=-1).reshape(-1, n_features)
    rows = np.ascontiguousarray(rows)
    found = sample_many(rows, n_trees, lifetime=lifetime, seed=n_features)
    cells = np.array([np.sum(tree.left_child < 0) for tree in found])
    expected = (1 + lifetime) ** n_features
    error = cells.std() / np.sqrt(n_trees)
    assert error < 0.04 * expected
    assert_plausible(2 * norm.sf(abs(cells.mean() - expected) / error), n_trees)


def test_a_cut_between_neighbouring_floats_follows_the_gaps():
    """Three neighbouring numbers of single precision: either gap holds the cut half of the time."""
    middle = np.nextafter(np.float32(0.5), np.float32(1))
    rows = np.array([[0.5], [middle], [np.nextafter(middle, np.float32(1))]], dtype=np.float32)
    n_trees = 4000
    lower_gap = sum(tree.threshold[0] == rows[0, 0] for tree in sample_many(rows, n_trees, seed=5))
    assert_plausible(chisquare([lower_gap, n_trees - lower_gap]).pvalue, n_trees)


def topology(tree):
    """Root feature, which points went left, and the feature that separates the last two."""
    left = tree.left_child[0]
    inner = left if tree.n_samples[left] == 2 else left + 1
    goes_left = tuple(THREE[:, tree.split_feature[0]] <= tree.threshold[0])
    return (int(tree.split_feature[0]), goes_left, int(tree.split_feature[inner]))


THREE = np.array([[0.0, 0.3], [0.6, 0.0], [1.0, 0.7]], dtype=np.float32)


def enumerate_topologies():
    """All trees on three points with their probabilities, by the lengths of the gaps."""
    probabilities = {}
    extents = np.ptp(THREE.astype(float), axis=0)
    for feature in range(2):
        order = np.argsort(THREE[:, feature])
        for k in range(2):
            gap = float(THREE[order[k + 1], feature]) - float(THREE[order[k], feature])
            root = gap / extents.sum()
            left = np.isin(np.arange(3), order[: k + 1])
            pair = THREE[~left if k == 0 else left].astype(float)
            sides = np.ptp(pair, axis=0)
            for second in range(2):
                key = (feature, tuple(left), second)
                probabilities[key] = root * sides[second] / sides.sum()
    return probabilities


def test_trees_on_three_points_have_the_enumerated_probabilities():
    probabilities = enumerate_topologies()
    assert sum(probabilities.values()) == pytest.approx(1.0)
    n_trees = 10_000
    counts = dict.fromkeys(probabilities, 0)
    for tree in sample_many(THREE, n_trees, seed=3):
        counts[topology(tree)] += 1
    expected = n_trees * np.array(list(probabilities.values()))
    assert len(probabilities) == 8
    assert expected.min() > 20
    assert_plausible(chisquare(list(counts.values()), expected).pvalue, n_trees)


def deepest(node):
    return 1 + max(map(deepest, node.children)) if node.children else 0


@pytest.mark.parametrize(("min_samples_split", "lifetime"), [(2, 2.0), (5, np.inf), (5, 4.0)])
def test_kernel_and_reference_sample_from_one_law(min_samples_split, lifetime):
    """Numbers of leaves, depths and times, against the literal transcription of Alg. 2."""
    generator = np.random.default_rng(0)
    rows = generator.random((20, 2)).astype(np.float32)
    rows[10:, 0] = np.round(rows[10:, 0], 1)
    n_trees = 1500
    fast = sample_many(rows, n_trees, min_samples_split, lifetime, seed=4)
    slow = [
        sample_mondrian_block(
            rows.astype(float), list(range(20)), None, min_samples_split, lifetime, generator
        )
        for _ in range(n_trees)
    ]
    pairs = {
        "leaves": (
            [np.sum(tree.left_child < 0) for tree in fast],
            [sum(not node.children for node in root.walk()) for root in slow],
        ),
        "depth": ([tree.depth for tree in fast], [deepest(root) for root in slow]),
        "total time": (
            [tree.split_time[np.isfinite(tree.split_time)].sum() for tree in fast],
            [sum(node.split_time for node in root.walk() if node.children) for root in slow],
        ),
    }
    for one, other in pairs.values():
        assert_plausible(ks_2samp(one, other).pvalue, n_trees)
