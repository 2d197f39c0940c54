import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.arrays.boxes import total_extent
from mondrian_forest._core.arrays.rng import random_states, uniform
from mondrian_forest._core.growth.cuts import MANY_FEATURES, _draw_cuts, sample_cut
from mondrian_forest._core.growth.sample import partition
from trees import check_tree_invariants, grow, small_table

tables = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 25), st.integers(1, 6)),
    elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1, width=32),
)


@settings(max_examples=60, deadline=None)
@given(
    rows=tables,
    min_samples_split=st.sampled_from([2, 3, 10]),
    lifetime=st.sampled_from([0.5, 3.0, np.inf]),
    seed=st.integers(0, 1000),
)
def test_a_sampled_tree_satisfies_the_invariants(rows, min_samples_split, lifetime, seed):
    tree, row_lists = grow(rows, min_samples_split, lifetime, seed)
    check_tree_invariants(tree, rows, row_lists, min_samples_split, lifetime)


@settings(max_examples=60, deadline=None)
@given(rows=tables, feature=st.integers(0, 5), threshold=st.floats(0, 1, width=32))
def test_partition_keeps_every_row_and_separates_them(rows, feature, threshold):
    feature %= rows.shape[1]
    moved, order = rows.copy(), np.arange(len(rows), dtype=np.int32)
    middle = partition(moved, order, 0, len(rows), feature, np.float32(threshold))
    np.testing.assert_array_equal(moved, rows[order])
    assert sorted(order) == list(range(len(rows)))
    assert (moved[:middle, feature] <= np.float32(threshold)).all()
    assert (moved[middle:, feature] > np.float32(threshold)).all()


def test_partition_leaves_rows_outside_the_range_alone():
    rows, _ = small_table(0)
    moved, order = rows.copy(), np.arange(len(rows), dtype=np.int32)
    partition(moved, order, 4, 9, 1, np.float32(0.5))
    np.testing.assert_array_equal(order[:4], [0, 1, 2, 3])
    np.testing.assert_array_equal(order[9:], [9, 10, 11])


def test_a_cut_through_the_narrowest_box_separates_its_ends():
    above = np.nextafter(np.float32(0.5), np.float32(1))
    boxes = np.array([[[0.3, 0.5], [0.3, above]]], dtype=np.float32)
    state = random_states(np.random.SeedSequence(0), 1)[0]
    for _ in range(50):
        feature, threshold = sample_cut(state, boxes, 0, total_extent(boxes, 0))
        assert feature == 1
        assert threshold == np.float32(0.5)


def test_features_without_extent_are_never_cut():
    rows, _ = small_table(1, n_rows=30)
    for seed in range(10):
        tree = grow(rows, seed=seed)[0]
        assert 2 not in tree.split_feature


def test_identical_rows_make_a_single_leaf():
    assert grow(np.full((100, 3), 0.25))[0].n_nodes == 1


def test_a_chain_deeper_than_the_first_stack_is_sampled_whole():
    rows = 2.0 ** -np.arange(145, dtype=np.float32).reshape(-1, 1)
    tree, row_lists = grow(rows)
    assert tree.depth > 70
    check_tree_invariants(tree, rows, row_lists)


def test_the_rows_stay_as_they_are_and_the_seed_decides_about_the_tree():
    rows, _ = small_table(2)
    before = rows.copy()
    first, again, other = grow(rows, seed=1), grow(rows, seed=1), grow(rows, seed=2)
    np.testing.assert_array_equal(rows, before)
    for field in ("left_child", "split_feature", "threshold", "split_time", "lower", "upper"):
        np.testing.assert_array_equal(getattr(first[0], field), getattr(again[0], field))
    assert first[0].split_time[0] != other[0].split_time[0]


@pytest.mark.parametrize("n_features", [MANY_FEATURES, MANY_FEATURES + 1])
def test_a_search_among_many_features_finds_what_counting_finds(n_features):
    generator = np.random.default_rng(0)
    boxes = np.zeros((1, 2, n_features), np.float32)
    boxes[0, 1] = generator.random(n_features) * (generator.random(n_features) < 0.7)
    state, twin = (random_states(np.random.SeedSequence(1), 1)[0] for _ in range(2))
    features, thresholds = np.empty(40, np.int64), np.empty(40)
    side_ends = np.empty(n_features)
    _draw_cuts(state, boxes, 0, 40, features, thresholds, side_ends)
    np.testing.assert_array_equal(side_ends, np.cumsum(boxes[0, 1], dtype=np.float64))
    for feature, threshold in zip(features, thresholds, strict=True):
        assert feature == np.sum(side_ends <= uniform(twin) * side_ends[-1])
        assert threshold == uniform(twin) * np.float64(boxes[0, 1, feature])
