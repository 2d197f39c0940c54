"""Novelty, and the labels near rows, against a slow walk through the trees of the reference."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mondrian_forest._core.arrays.grove import allocate_grove, copy_tree
from mondrian_forest._core.arrays.kernel import IS_COMPILED
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.learn import learn_batch
from mondrian_forest._core.labels import Hierarchical, Pruned
from mondrian_forest._core.mixtures.ensemble import Ensemble
from mondrian_forest._core.mixtures.neighbours import (
    FEWEST_LABELS,
    LEAST_SHARE,
    NO_LABELS,
    find_neighbours,
    label_memory,
    order_labels,
    set_phases,
)
from reference import paper as reference
from trees import as_reference, learn_in_steps, preorder_numbers, small_table

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
PRUNED = Pruned(3.0, 8.0, 0.3, 0.5)
MODELS = [PRIOR, PRUNED]
N_EACH = 20
"""Labels from each tree of a small forest."""


def learn(rows, labels, n_trees=1, min_samples_split=2, lifetime=np.inf, seed=0, model=PRIOR):
    """Return trees as sampled at once."""
    grove = allocate_grove(n_trees, *rows.shape, is_linked=False)
    growth = Growth(min_samples_split, 1, lifetime)
    for number, state in enumerate(random_states(np.random.SeedSequence(seed), n_trees)):
        learn_batch(grove, number, rows, labels, growth, model, state)
    return grove


def learn_online(rows, labels, model=PRIOR, seed=0):
    """Return a tree that has learned half of the rows in small chunks."""
    states = random_states(np.random.SeedSequence(seed), 1)
    growth = Growth(2, 1, np.inf)
    *_, grove = learn_in_steps(rows, labels, growth, model, states, len(rows) // 2, chunk=7)
    return grove


def linked_copy(grove):
    """Return the same trees with linked lists of rows."""
    n_rows, n_features = grove.row_numbers.shape[1], grove.boxes.shape[3]
    copy = allocate_grove(grove.n_trees, n_rows, n_features, is_linked=True)
    for number in range(grove.n_trees):
        copy_tree(grove, number, copy)
    return copy


def ensemble_of(grove, model=PRIOR, lifetime=np.inf):
    return Ensemble(grove.sizes, grove.nodes, grove.boxes, grove.depth, model, lifetime)


def roots_of(grove):
    """Return the trees as linked nodes."""
    return [as_reference(grove.tree(k), grove.rows(k)) for k in range(grove.n_trees)]


def queries(rows, n_queries=15, seed=0):
    """Return places in the data and a little outside of it, and some training rows."""
    generator = np.random.default_rng(seed)
    around = generator.uniform(-0.2, 1.2, (n_queries, rows.shape[1])).astype(np.float32)
    around[:5, -1] = 0.5  # as the constant column
    return np.concatenate([around, rows[:5]])


def labels_near(grove, query, labels, *, is_pruned=False, model=PRIOR):
    memory = label_memory(grove, labels)
    return find_neighbours(ensemble_of(grove, model), query, memory, is_pruned=is_pruned).labels


def novelty_by_hand(roots, row, lifetime=np.inf):
    """Return the mean of n_j / n over the places where the row leaves the trees."""
    return np.mean(
        [
            sum(
                branch.weight * len(branch.node.rows) / len(root.rows)
                for branch in reference.predict(root, row.astype(float), lifetime)
            )
            for root in roots
        ]
    )


def sources_by_hand(root, row):
    """Return nodes and weights: where the row leaves the tree, or the last large node above."""
    sources = []
    for branch in reference.predict(root, row.astype(float)):
        node = branch.node
        while len(node.rows) < FEWEST_LABELS and node.parent is not None:
            node = node.parent
        sources.append((node, branch.weight))
    return sources


def stops_by_hand(root, row, stop_of):
    """Return nodes and weights: the row branches off above a node, stops in it, or goes on."""
    sources, staying, node = [], 1.0, root
    while True:
        outside = np.maximum(row - node.upper, 0.0).sum() + np.maximum(node.lower - row, 0.0).sum()
        duration = node.split_time - node.parent_time
        leaving = 1.0 - math.exp(-duration * outside) if outside > 0.0 else 0.0
        sources.append((node, staying * leaving))
        staying *= 1.0 - leaving
        stopping = stop_of[id(node)] if node.children else 1.0
        sources.append((node, staying * stopping))
        staying *= 1.0 - stopping
        if not node.children:
            return sources
        node = node.children[0 if row[node.split_feature] <= node.threshold else 1]


def stop_probabilities(tree, root):
    shares = tree.nodes["share"][preorder_numbers(tree)]
    return {id(node): 1.0 / (1.0 + np.exp(-s)) for node, s in zip(root.walk(), shares, strict=True)}


def assert_sampled_from(found, root, labels, sources, n_each=N_EACH):
    """Assert that labels come from these nodes by their weights, and evenly from each.

    The labels, which all differ, tell the rows. The numbers of labels from the nodes are ``n_each``
    times the weights, rounded so that they add up. If a node of n rows gives c labels, then c m / n
    of them come from each node of m rows below it, rounded up or down.
    """
    cumulated = np.cumsum([weight for _, weight in sources])
    counts = np.diff(np.floor(n_each * cumulated + 0.5), prepend=0.0)
    assert len(found) == counts.sum() == n_each
    for node in root.walk():
        fewest = most = 0
        for (source, _), count in zip(sources, counts, strict=True):
            expected = count * len(set(node.rows) & set(source.rows)) / len(source.rows)
            fewest += math.floor(expected + 1e-9)
            most += math.ceil(expected - 1e-9)
        assert fewest <= np.isin(found, labels[node.rows]).sum() <= most


class TestNovelty:
    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("lifetime", [np.inf, 1.0])
    @pytest.mark.parametrize("seed", range(3))
    def test_is_the_mean_share_of_rows_where_a_row_leaves_the_tree(self, seed, lifetime, model):
        rows, labels = small_table(seed, 30)
        grove = learn(rows, labels, 1, 2, lifetime, seed, model)
        query = queries(rows, seed=seed)
        found = find_neighbours(ensemble_of(grove, model, lifetime), query).novelty
        roots = roots_of(grove)
        expected = [novelty_by_hand(roots, row, lifetime) for row in query]
        # A row is not followed when a weight of 1e-6 is left.
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)

    def test_is_the_mean_over_trees(self):
        rows, labels = small_table(3, 30)
        grove = learn(rows, labels, n_trees=4, min_samples_split=5)
        query = queries(rows)
        found = find_neighbours(ensemble_of(grove), query).novelty
        roots = roots_of(grove)
        expected = [novelty_by_hand(roots, row) for row in query]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)

    def test_is_that_of_the_tree_as_it_is_after_online_learning(self):
        rows, labels = small_table(2, 30)
        grove = learn_online(rows, labels)
        query = queries(rows)
        roots = roots_of(grove)
        expected = [novelty_by_hand(roots, row) for row in query]
        found = find_neighbours(ensemble_of(grove), query).novelty
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)

    @pytest.mark.parametrize("direction", [-1.0, 1.0])
    def test_is_one_far_from_all_data(self, direction):
        rows, labels = small_table(0, 30)
        far = rows[:4] + np.float32(direction * 1e4) * np.eye(4, 3, dtype=np.float32)
        found = find_neighbours(ensemble_of(learn(rows, labels, 3)), far[:3]).novelty
        np.testing.assert_allclose(found, 1.0, rtol=1e-12)

    def test_at_a_training_row_is_the_share_of_the_rows_that_equal_it(self):
        rows, labels = small_table(1, 30)
        found = find_neighbours(ensemble_of(learn(rows, labels, 3)), rows).novelty
        n_equal = (rows[:, None] == rows).all(axis=2).sum(axis=1)
        assert set(n_equal) == {1, 2}
        np.testing.assert_allclose(found, n_equal / 30, rtol=1e-12)

    @pytest.mark.parametrize("feature", range(3))
    def test_never_falls_on_the_way_out_of_the_data(self, feature):
        rows, labels = small_table(1, 30)
        way = np.repeat(rows[:1], 100, axis=0)
        way[:, feature] = 1.0 + np.geomspace(1e-3, 1e3, 100)
        found = find_neighbours(ensemble_of(learn(rows, labels, 3)), way).novelty
        assert (np.diff(found) >= 0.0).all()
        assert found[0] < 0.9
        assert found[-1] == pytest.approx(1.0)

    def test_of_equal_rows_is_one(self):
        rows = np.full((8, 2), 0.5, np.float32)
        found = find_neighbours(ensemble_of(learn(rows, np.arange(8.0))), rows[:1]).novelty
        assert found[0] == 1.0

    def test_does_not_tell_nodes_with_next_to_no_rows_apart(self):
        """Nearly all rows are equal; the others are few."""
        n_rows = int(3.5 / LEAST_SHARE)
        rows = np.full((n_rows, 2), 0.5, np.float32)
        rows[:12] = np.random.default_rng(0).random((12, 2))
        found = find_neighbours(ensemble_of(learn(rows, np.zeros(n_rows))), rows[:12]).novelty
        np.testing.assert_allclose(found, LEAST_SHARE, rtol=1e-12)

    def test_does_not_depend_on_the_label_model(self):
        rows, labels = small_table(4, 30)
        query = queries(rows)
        one, other = (
            find_neighbours(ensemble_of(learn(rows, y, 2, model=model), model), query).novelty
            for model, y in [(PRIOR, labels), (PRUNED, labels[::-1].copy())]
        )
        np.testing.assert_array_equal(one, other)

    def test_is_the_same_if_labels_are_asked_for_too(self):
        rows, labels = small_table(5, 60)
        grove = learn(rows, labels, 2)
        query = queries(rows)
        both = find_neighbours(ensemble_of(grove), query, label_memory(grove, labels))
        alone = find_neighbours(ensemble_of(grove), query)
        np.testing.assert_array_equal(both.novelty, alone.novelty)


class TestBlocks:
    @pytest.mark.parametrize("is_pruned", [False, True])
    @pytest.mark.parametrize("n_threads", [2, 30])
    def test_threads_change_nothing(self, n_threads, is_pruned):
        """There are 20 rows, so that some of 30 threads have none."""
        rows, labels = small_table(0, 40)
        grove = learn(rows, labels, 3, model=PRUNED)
        arguments = ensemble_of(grove, PRUNED), queries(rows), label_memory(grove, labels)
        alone = find_neighbours(*arguments, is_pruned=is_pruned)
        with ThreadPoolExecutor(2) as executor:
            shared = find_neighbours(*arguments, n_threads, executor.map, is_pruned=is_pruned)
        np.testing.assert_array_equal(alone.novelty, shared.novelty)
        np.testing.assert_array_equal(alone.labels, shared.labels)

    @pytest.mark.parametrize("is_pruned", [False, True])
    def test_other_rows_of_the_block_change_nothing(self, is_pruned):
        """Some rows of the block leave the tree early, and others are in their places then."""
        rows, labels = small_table(6, 40)
        grove = learn(rows, labels, 2, model=PRUNED)
        memory, ensemble = label_memory(grove, labels), ensemble_of(grove, PRUNED)
        query = np.concatenate([queries(rows), rows[:3] + np.float32(1e6), queries(rows)[::-1]])
        together = find_neighbours(ensemble, query, memory, is_pruned=is_pruned)
        for i in range(len(query)):
            alone = find_neighbours(ensemble, query[i : i + 1], memory, is_pruned=is_pruned)
            assert alone.novelty[0] == together.novelty[i]
            np.testing.assert_array_equal(alone.labels[0], together.labels[i])

    def test_of_no_rows_is_empty(self):
        rows, labels = small_table(0)
        grove = learn(rows, labels)
        found = find_neighbours(ensemble_of(grove), rows[:0], label_memory(grove, labels))
        assert found.novelty.shape == (0,)
        assert found.labels.shape == (0, N_EACH)


class TestLabels:
    @pytest.mark.parametrize("n_rows", [12, 30, 60])
    @pytest.mark.parametrize("seed", range(3))
    def test_come_from_where_a_row_leaves_the_tree_or_the_last_large_node(self, seed, n_rows):
        rows, labels = small_table(seed, n_rows)
        grove = learn(rows, labels, seed=seed)
        (root,) = roots_of(grove)
        query = queries(rows, seed=seed)
        for row, found in zip(query, labels_near(grove, query, labels), strict=True):
            assert_sampled_from(found, root, labels, sources_by_hand(root, row))

    def test_come_from_a_large_leaf_itself(self):
        rows, labels = small_table(0, 60)
        rows[10:50] = 0.5
        grove = learn(rows, labels)
        (found,) = labels_near(grove, rows[10:11], labels)
        assert np.isin(found, labels[10:50]).all()
        assert len(np.unique(found)) == N_EACH

    def test_come_from_the_tree_as_it_is_after_online_learning(self):
        rows, labels = small_table(2, 60)
        grove = learn_online(rows, labels)
        (root,) = roots_of(grove)
        query = queries(rows)
        for row, found in zip(query, labels_near(grove, query, labels), strict=True):
            assert_sampled_from(found, root, labels, sources_by_hand(root, row))

    @pytest.mark.parametrize("is_pruned", [False, True])
    def test_far_from_all_data_are_a_sample_of_all(self, is_pruned):
        rows, labels = small_table(1, 50)
        grove = learn(rows, labels, model=PRUNED)
        (root,) = roots_of(grove)
        far = rows[:3] + np.float32(1e6)
        near = labels_near(grove, far, labels, is_pruned=is_pruned, model=PRUNED)
        for found in near:
            assert_sampled_from(found, root, labels, [(root, 1.0)])

    def test_of_many_far_rows_are_all_labels_equally_often(self):
        """Rows differ in which labels they are given. Five standard deviations are allowed."""
        rows, labels = small_table(1, 50)
        grove = learn(rows, labels)
        far = np.random.default_rng(0).uniform(900.0, 1000.0, (300, 3)).astype(np.float32)
        times = (labels_near(grove, far, labels)[..., None] == labels).sum(axis=(0, 1))
        share = N_EACH / 50
        assert np.abs(times - 300 * share).max() < 5 * math.sqrt(300 * share * (1 - share))

    def test_come_from_each_tree_as_if_it_were_alone(self):
        """A label is a thousand times the number of its tree more than it should be."""
        rows, labels = small_table(5, 60)
        grove = learn(rows, labels, 3)
        ordered = order_labels(ensemble_of(grove), label_memory(grove, labels))
        ordered += 1000.0 * np.arange(3)[:, None]
        query = queries(rows)
        near = find_neighbours(ensemble_of(grove), query, NO_LABELS._replace(ordered=ordered))
        for row, found in zip(query, near.labels, strict=True):
            for number, root in enumerate(roots_of(grove)):
                of_tree = found[number * N_EACH : (number + 1) * N_EACH]
                own = labels + 1000.0 * number
                assert_sampled_from(of_tree, root, own, sources_by_hand(root, row))

    @pytest.mark.parametrize(("n_trees", "n_labels"), [(3, 60), (50, 800), (60, 840)])
    def test_are_as_many_from_each_tree_and_800_of_many_trees(self, n_trees, n_labels):
        rows, labels = small_table(0, 6)
        grove = learn(rows, labels, n_trees)
        assert labels_near(grove, rows[:1], labels).shape == (1, n_labels)

    def test_are_not_looked_for_without_a_memory(self):
        rows, labels = small_table(0)
        assert find_neighbours(ensemble_of(learn(rows, labels)), rows).labels.shape == (12, 0)

    @pytest.mark.parametrize("is_pruned", [False, True])
    def test_ascend_and_are_labels_of_training_rows(self, is_pruned):
        rows, labels = small_table(3, 40)
        labels = np.round(labels)
        grove = learn(rows, labels, 3, model=PRUNED)
        found = labels_near(grove, queries(rows), labels, is_pruned=is_pruned, model=PRUNED)
        assert (np.diff(found, axis=1) >= 0.0).all()
        assert np.isin(found, labels).all()

    def test_that_repeat_are_found_as_often_as_they_are_there(self):
        """A quarter of all labels is 7: a quarter of the labels found is 7, but for rounding."""
        rows, labels = small_table(3, 80)
        labels[np.argsort(rows[:, 1])[::4]] = 7.0
        grove = learn(rows, labels, 20)
        (found,) = labels_near(grove, rows[:1] + np.float32(1e6), labels)
        assert np.mean(found == 7.0) == pytest.approx(0.25, abs=0.03)


class TestPrunedLabels:
    @pytest.mark.parametrize("seed", range(4))
    def test_come_from_where_the_label_model_lets_a_row_stop(self, seed):
        rows, labels = small_table(seed, 30)
        grove = learn(rows, labels, seed=seed, model=PRUNED)
        (root,) = roots_of(grove)
        stop_of = stop_probabilities(grove.tree(0), root)
        query = queries(rows, seed=seed)
        near = labels_near(grove, query, labels, is_pruned=True, model=PRUNED)
        for row, found in zip(query, near, strict=True):
            sources = stops_by_hand(root, row.astype(float), stop_of)
            assert_sampled_from(found, root, labels, sources)

    def test_of_two_nodes_have_the_shares_of_their_probabilities(self):
        """Of 20 labels, three tenths come from the root, and the others from one of its children.

        The root's are spread over both children, so that the other child shows their number.
        """
        rows, labels = small_table(2, 40)
        grove = learn(rows, labels, model=PRUNED)
        grove.nodes["share"][0] = np.inf
        grove.nodes["share"][0, 0] = math.log(0.3 / 0.7)
        (root,) = roots_of(grove)
        near = labels_near(grove, rows, labels, is_pruned=True, model=PRUNED)
        for child, other in (root.children, root.children[::-1]):
            for i in child.rows:
                n_other = np.isin(near[i], labels[other.rows]).sum()
                assert abs(n_other - 6 * len(other.rows) / 40) < 1
                assert np.isin(near[i], labels[child.rows]).sum() == 20 - n_other

    def test_come_from_the_leaf_however_small_if_a_row_stops_nowhere_else(self):
        rows, labels = small_table(0, 40)
        grove = learn(rows, labels, model=PRUNED)
        is_leaf = grove.nodes["left_child"] < 0
        grove.nodes["share"][~is_leaf] = -np.inf
        near = labels_near(grove, rows, labels, is_pruned=True, model=PRUNED)
        for row, found in zip(rows, near, strict=True):
            np.testing.assert_array_equal(np.unique(found), np.sort(labels[(rows == row).all(1)]))


class TestMemory:
    @pytest.mark.parametrize("is_pruned", [False, True])
    def test_linked_lists_give_the_labels_of_the_row_order(self, is_pruned):
        rows, labels = small_table(0, 60)
        rows[10:50] = 0.5
        grove = learn(rows, labels, 2, min_samples_split=6, model=PRUNED)
        one, other = (
            labels_near(each, queries(rows), labels, is_pruned=is_pruned, model=PRUNED)
            for each in (grove, linked_copy(grove))
        )
        np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("is_pruned", [False, True])
    @pytest.mark.parametrize("is_online", [False, True])
    def test_ordered_labels_give_what_the_rows_give(self, is_online, is_pruned):
        rows, labels = small_table(1, 60)
        rows[10:30] = 0.5
        grove = (learn_online if is_online else learn)(rows, labels, model=PRUNED)
        ensemble, memory = ensemble_of(grove, PRUNED), label_memory(grove, labels)
        ordered = NO_LABELS._replace(ordered=order_labels(ensemble, memory))
        query = queries(rows)
        np.testing.assert_array_equal(
            find_neighbours(ensemble, query, ordered, is_pruned=is_pruned).labels,
            find_neighbours(ensemble, query, memory, is_pruned=is_pruned).labels,
        )

    @pytest.mark.parametrize("is_linked", [False, True])
    def test_ordered_labels_are_those_of_the_leaves_from_left_to_right(self, is_linked):
        rows, labels = small_table(2, 40)
        grove = learn(rows, labels, 2, min_samples_split=5)
        grove = linked_copy(grove) if is_linked else grove
        expected = [
            [labels[i] for node in root.walk() if not node.children for i in node.rows]
            for root in roots_of(grove)
        ]
        found = order_labels(ensemble_of(grove), label_memory(grove, labels))
        np.testing.assert_array_equal(found, expected)

    def test_ordered_labels_stay_in_order(self):
        rows, labels = small_table(2, 40)
        grove = learn(rows, labels, 2)
        ordered = order_labels(ensemble_of(grove), label_memory(grove, labels))
        again = order_labels(ensemble_of(grove), NO_LABELS._replace(ordered=ordered))
        np.testing.assert_array_equal(again, ordered)

    def test_labels_of_a_long_list_are_labels_of_its_leaf(self):
        rows, labels = small_table(0, 100)
        rows[:90] = 0.25
        grove = linked_copy(learn(rows, labels))
        (found,) = labels_near(grove, rows[:1], labels)
        assert np.isin(found, labels[:90]).all()


def test_labels_of_a_long_list_are_as_various_as_those_of_the_row_order():
    rows, labels = small_table(0, 300)
    rows[:] = 0.25
    (found,) = labels_near(linked_copy(learn(rows, labels)), rows[:1], labels)
    assert len(np.unique(found)) == N_EACH


@pytest.mark.skipif(not IS_COMPILED, reason="too many rows for uncompiled kernels")
def test_novelty_is_the_same_with_labels_in_large_trees():
    """Nearly all rows are equal; the others are so few that they are not told apart."""
    rows = np.full((int(26 / LEAST_SHARE), 2), 0.9, np.float32)
    rows[:24] = 0.01 * np.random.default_rng(0).random((24, 2))
    labels = np.zeros(len(rows))
    grove = learn(rows, labels)
    both = find_neighbours(ensemble_of(grove), rows[:24], label_memory(grove, labels))
    alone = find_neighbours(ensemble_of(grove), rows[:24])
    np.testing.assert_allclose(both.novelty, alone.novelty, rtol=1e-12)


@pytest.mark.parametrize("n_constant", [0, 10, 30])
def test_far_rows_have_different_labels_whatever_columns_are_behind(n_constant):
    generator = np.random.default_rng(0)
    rows = np.full((50, 2 + n_constant), 0.5, np.float32)
    rows[:, :2] = generator.random((50, 2))
    labels = generator.normal(size=50)
    far = rows[np.zeros(300, int)]
    far[:, :2] += generator.uniform(900.0, 1000.0, (300, 2)).astype(np.float32)
    times = (labels_near(learn(rows, labels), far, labels)[..., None] == labels).sum(axis=(0, 1))
    share = N_EACH / 50
    assert np.abs(times - 300 * share).max() < 5 * math.sqrt(300 * share * (1 - share))


def test_phases_are_shares_whatever_the_rows():
    generator = np.random.default_rng(0)
    rows = generator.choice([-1e30, -1e16, -1.0, 0.0, 1e-30, 1e15, 1e30], (500, 4))
    phase = np.empty(500)
    set_phases(rows.astype(np.float32), phase)
    assert ((phase >= 0.0) & (phase < 1.0)).all()
