from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from mondrian_forest._core.mixtures.collect import predict_mixture
from mondrian_forest._core.mixtures.reduce import predict_moments
from mondrian_forest._core.mixtures.route import NEGLIGIBLE_WEIGHT, find_leaves
from reference import paper as reference
from trees import (
    as_reference,
    forest_of,
    give_labels,
    grow,
    preorder_numbers,
    routed,
    rows_in,
    small_table,
)

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
EMPIRICAL = Empirical(*PRIOR)
PRUNED = Pruned(3.0, 8.0, 0.3, 0.5)


def small_forest(n_trees=3, n_rows=40, min_samples_split=4, model=PRIOR):
    rows, labels = small_table(7, n_rows)
    trees = [
        give_labels(*grow(rows, min_samples_split, seed=seed), labels, model)
        for seed in range(n_trees)
    ]
    return forest_of(trees, model)


def queries(n_rows, n_features=3, seed=0):
    return np.random.default_rng(seed).uniform(-0.4, 1.4, (n_rows, n_features)).astype(np.float32)


@pytest.mark.parametrize("lifetime", [np.inf, 1.0])
@pytest.mark.parametrize("min_samples_split", [2, 6])
@pytest.mark.parametrize("seed", range(3))
def test_routed_weights_are_those_of_algorithm_5(seed, min_samples_split, lifetime):
    rows, _ = small_table(seed, n_rows=25)
    tree, row_lists = grow(rows, min_samples_split, lifetime, seed)
    root = as_reference(tree, row_lists)
    number_of = dict(zip(map(id, root.walk()), preorder_numbers(tree), strict=True))
    query = np.concatenate([queries(20, seed=seed), rows[:5]])
    visits, exits = routed(tree, query, PRIOR, lifetime)
    for i, row in enumerate(query.astype(float)):
        expected = {
            (number_of[id(branch.node)], branch.ends_in_leaf): branch.weight
            for branch in reference.predict(root, row, lifetime)
        }
        found = {
            (visits.node[exits.visit[e]], exits.distance[e] == 0.0): exits.weight[e]
            for e in np.flatnonzero(exits.row == i)
        }
        for place in expected.keys() | found.keys():
            assert found.get(place, 0.0) == pytest.approx(
                expected.get(place, 0.0), rel=1e-9, abs=2 * NEGLIGIBLE_WEIGHT
            )
        assert sum(found.values()) == pytest.approx(1.0, abs=1e-11)


def test_parents_are_visited_before_their_children():
    rows, _ = small_table(7, 40)
    tree, _ = grow(rows, 4)
    visits, _ = routed(tree, queries(50), PRIOR)
    assert visits.parent[0] == -1
    assert (visits.parent[1:] < np.arange(1, len(visits.node))).all()
    left = tree.left_child[visits.node[visits.parent[1:]]]
    assert (np.abs(visits.node[1:] - left - 0.5) == 0.5).all()


def test_a_training_row_inside_its_leaf_leaves_the_tree_nowhere_else():
    rows, _ = small_table(0)
    tree, _ = grow(rows, 4)
    _, exits = routed(tree, rows, PRIOR)
    assert sorted(exits.row) == list(range(len(rows)))
    assert (exits.weight == 1.0).all()


@pytest.mark.parametrize("model", [PRIOR, EMPIRICAL])
def test_a_prediction_does_not_depend_on_the_other_rows_of_its_block(model):
    forest = small_forest(model=model)
    query = queries(60)
    together = predict_moments(forest, query)
    for i in (0, 17, 59):
        alone = predict_moments(forest, query[i : i + 1])
        for one, all_ in zip(alone, together, strict=True):
            assert one[0] == all_[i]


@pytest.mark.parametrize("model", [PRIOR, EMPIRICAL])
def test_mixture_and_moments_agree(model):
    """Law of total variance over the components of all trees."""
    forest = small_forest(model=model)
    query = queries(50)
    moments, mixture = predict_mixture(forest, query)
    for left, right in zip(moments, predict_moments(forest, query), strict=True):
        np.testing.assert_array_equal(left, right)
    for i in range(len(query)):
        part = slice(mixture.offset[i], mixture.offset[i + 1])
        weight, location, scale = mixture.weight[part], mixture.location[part], mixture.scale[part]
        assert weight.sum() == pytest.approx(1.0, rel=1e-12)
        mean = weight @ location
        assert moments.mean[i] == pytest.approx(mean, rel=1e-9)
        total = (
            PRIOR.noise_variance
            + moments.posterior[i]
            + moments.branching[i]
            + moments.between_trees[i]
        )
        assert total == pytest.approx(weight @ (scale**2 + (location - mean) ** 2), rel=1e-9)


@pytest.mark.parametrize("model", [PRIOR, EMPIRICAL, PRUNED])
@pytest.mark.parametrize(("n_trees", "n_threads"), [(3, 2), (3, 7), (20, 3)])
def test_parts_of_a_forest_have_the_mixtures_of_all_its_trees(model, n_trees, n_threads):
    forest = small_forest(n_trees, model=model)
    query = queries(50)
    moments, mixture = predict_mixture(forest, query)
    with ThreadPoolExecutor(n_threads) as executor:
        found = predict_mixture(forest, query, n_threads, executor.map)
    for whole, parts in zip((*moments, *mixture), (*found[0], *found[1]), strict=True):
        np.testing.assert_array_equal(whole, parts)


def test_what_is_dropped_stays_below_the_stated_bound():
    """Rows at a distance where a walk ends early, against the full walk of the reference."""
    rows, labels = small_table(4, n_rows=60)
    tree, row_lists = grow(rows, 2)
    give_labels(tree, row_lists, labels, PRIOR)
    root = as_reference(tree, row_lists)
    dropped = 0
    for distance in (0.5, 2.0, 5.0, 8.0, 12.0):
        query = np.full((1, 3), 1.0 + distance, dtype=np.float32)
        branches = reference.predict(root, query[0].astype(float))
        _, mixture = predict_mixture(forest_of([tree], PRIOR), query)
        kept = sorted(mixture.weight)[::-1]
        full = sorted((branch.weight for branch in branches), reverse=True)
        lost = sum(full[len(kept) :])
        assert lost <= (tree.depth + 2) * NEGLIGIBLE_WEIGHT
        np.testing.assert_allclose(kept, full[: len(kept)], rtol=1e-9)
        dropped += len(full) - len(kept)
    assert dropped > 0


def test_leaves_are_found_by_the_thresholds_alone():
    rows, _ = small_table(0, n_rows=30)
    tree, row_lists = grow(rows, 5)
    leaves = np.empty(30, dtype=np.int32)
    find_leaves(tree.nodes, rows, leaves)
    for i, leaf in enumerate(leaves):
        assert tree.left_child[leaf] == -1
        assert i in rows_in(tree, row_lists, leaf)
