import numpy as np
import pytest

from mondrian_forest._core.arrays.boxes import (
    bounding_box,
    copy_box,
    excess_of_box,
    excess_of_row,
    find_outside,
    include_box,
    include_row,
    join_boxes,
    total_extent,
)

WIDTHS = [1, 2, 3, 4, 5, 8, 16, 17]


def random_boxes(n_boxes, n_features, seed=0):
    ends = np.random.default_rng(seed).integers(-5, 6, (n_boxes, 2, n_features))
    return np.sort(ends, axis=1).astype(np.float32)


def random_rows(n_rows, n_features, seed=1):
    return np.random.default_rng(seed).integers(-6, 7, (n_rows, n_features)).astype(np.float32)


@pytest.mark.parametrize("n_features", range(1, 10))
def test_the_bounding_box_is_tight(n_features):
    rows = np.random.default_rng(0).random((20, n_features)).astype(np.float32)
    boxes = np.full((3, 2, n_features), np.nan, np.float32)
    bounding_box(rows, 3, 17, boxes, 1)
    np.testing.assert_array_equal(boxes[1], [rows[3:17].min(axis=0), rows[3:17].max(axis=0)])
    assert np.isnan(boxes[[0, 2]]).all()
    expected = (rows[3:17].max(axis=0).astype(float) - rows[3:17].min(axis=0)).sum()
    assert total_extent(boxes, 1) == pytest.approx(expected, rel=1e-14)


def test_the_bounding_box_of_more_rows_than_a_portion_is_tight():
    rows = np.random.default_rng(0).random((1300, 5)).astype(np.float32)
    boxes = np.empty((1, 2, 5), np.float32)
    bounding_box(rows, 0, 1300, boxes, 0)
    np.testing.assert_array_equal(boxes[0], [rows.min(axis=0), rows.max(axis=0)])


@pytest.mark.parametrize("n_features", WIDTHS)
def test_a_row_exceeds_a_box_by_its_distance_from_the_nearest_point(n_features):
    boxes, rows = random_boxes(4, n_features), random_rows(30, n_features)
    for node, (low, high) in enumerate(boxes):
        expected = np.abs(rows - np.clip(rows, low, high)).sum(axis=1)
        found = [excess_of_row(boxes, node, rows, i) for i in range(30)]
        np.testing.assert_array_equal(found, expected)


def test_the_excess_of_a_row_is_computed_in_double_precision():
    boxes = np.zeros((1, 2, 2), np.float32)
    rows = np.array([[1e8, 0.25]], np.float32)
    assert excess_of_row(boxes, 0, rows, 0) == 1e8 + 0.25


@pytest.mark.parametrize("n_features", WIDTHS)
def test_a_box_exceeds_another_by_what_that_must_grow(n_features):
    boxes, others = random_boxes(5, n_features), random_boxes(5, n_features, seed=2)
    for node in range(5):
        grown = boxes.copy()
        include_box(grown, node, others, 4 - node)
        low = np.minimum(boxes[node, 0], others[4 - node, 0])
        high = np.maximum(boxes[node, 1], others[4 - node, 1])
        np.testing.assert_array_equal(grown[node], [low, high])
        np.testing.assert_array_equal(np.delete(grown, node, 0), np.delete(boxes, node, 0))
        growth = total_extent(grown, node) - total_extent(boxes, node)
        assert excess_of_box(boxes, node, others, 4 - node) == growth
        assert excess_of_box(grown, node, others, 4 - node) == 0.0


def test_rows_that_are_included_one_by_one_give_the_bounding_box():
    rows = random_rows(9, 3)
    boxes, expected = np.empty((2, 2, 3), np.float32), np.empty((1, 2, 3), np.float32)
    boxes[1] = rows[0]
    for i in range(1, 9):
        include_row(boxes, 1, rows, i)
    bounding_box(rows, 0, 9, expected, 0)
    np.testing.assert_array_equal(boxes[1], expected[0])


def test_a_copied_box_leaves_out_padding():
    boxes, others = random_boxes(3, 4), np.full((2, 2, 3), np.nan, np.float32)
    copy_box(boxes, 2, others, 1)
    np.testing.assert_array_equal(others[1], boxes[2, :, :3])
    assert np.isnan(others[0]).all()


def test_the_join_of_two_boxes_is_the_smallest_that_holds_both():
    boxes = random_boxes(4, 3)
    expected = [boxes[1:3, 0].min(axis=0), boxes[1:3, 1].max(axis=0)]
    join_boxes(boxes, 1, boxes, 3)
    np.testing.assert_array_equal(boxes[3], expected)


@pytest.mark.parametrize("n_features", WIDTHS)
def test_rows_outside_a_box_are_found(n_features):
    boxes, rows = random_boxes(6, n_features), random_rows(40, n_features)
    for low, high in boxes:
        positions = np.full(41, -1, np.int32)
        n_outside = find_outside(rows, 5, 38, np.array([low, high]), positions)
        is_outside = ((rows < low) | (rows > high)).any(axis=1)
        expected = np.flatnonzero(is_outside[5:38]) + 5
        np.testing.assert_array_equal(positions[:n_outside], expected)
