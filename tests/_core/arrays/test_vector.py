"""The intrinsics against the Python functions that say what they do."""

from itertools import product

import numpy as np
import pytest

from mondrian_forest._core.arrays.kernel import kernel
from mondrian_forest._core.arrays.vector import (
    _divide_in_python,
    _partition_in_python,
    divide_vectors,
    padded_width,
    partition_vectors,
)
from mondrian_forest._core.growth.sample import divide, partition


@kernel
def compiled_partition(rows, row_order, start, stop, feature, threshold):
    return partition_vectors(rows, row_order, start, stop, feature, threshold)


@kernel
def compiled_division(rows, row_order, start, stop, feature, threshold, boxes):
    return divide_vectors(rows, row_order, start, stop, feature, threshold, boxes)


def table(width, n_rows=37, seed=0):
    rows = np.random.default_rng(seed).integers(-5, 6, (n_rows, width)).astype(np.float32)
    return rows, np.arange(n_rows, dtype=np.int32)


CUTS = [(0, 37, 0), (5, 30, 0), (5, 6, 2), (9, 9, 0), (0, 37, -5), (0, 37, 5), (3, 20, -99)]


@pytest.mark.parametrize(("start", "stop", "threshold"), CUTS)
@pytest.mark.parametrize("width", [4, 8, 12, 16])
def test_partition_does_what_its_python_version_does(width, start, stop, threshold):
    (rows, order), (expected_rows, expected_order) = table(width), table(width)
    for feature in range(width):
        arguments = start, stop, feature, np.float32(threshold)
        middle = compiled_partition(rows, order, *arguments)
        assert middle == _partition_in_python(expected_rows, expected_order, *arguments)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_array_equal(order, expected_order)


@pytest.mark.parametrize("width", [4, 8, 12, 16])
def test_division_does_what_its_python_version_does(width):
    (rows, order), (expected_rows, expected_order) = table(width), table(width)
    boxes, expected_boxes = np.empty((2, 2, 2, width), dtype=np.float32)
    for feature, threshold in product(range(width), (-9, -1, 0, 1, 9)):
        arguments = 4, 33, feature, np.float32(threshold)
        middle = compiled_division(rows, order, *arguments, boxes)
        assert middle == _divide_in_python(
            expected_rows, expected_order, *arguments, expected_boxes
        )
        np.testing.assert_array_equal(boxes, expected_boxes)
        np.testing.assert_array_equal(order, expected_order)


@pytest.mark.parametrize("n_features", range(1, 22))
def test_any_number_of_features_can_be_divided(n_features):
    rows, order = table(padded_width(n_features))
    before = rows.copy()
    boxes = np.full((4, 2, n_features), np.nan, dtype=np.float32)
    scratch = np.empty((2, 2, rows.shape[1]), dtype=np.float32)
    feature, threshold = n_features - 1, np.float32(0.0)
    middle = divide(rows, order, 2, 35, feature, threshold, boxes, 1, scratch)
    np.testing.assert_array_equal(rows, before[order])
    assert (rows[2:middle, feature] <= 0).all()
    assert (rows[middle:35, feature] > 0).all()
    assert 2 < middle < 35
    for node, side in ((1, rows[2:middle]), (2, rows[middle:35])):
        np.testing.assert_array_equal(boxes[node, 0], side.min(axis=0)[:n_features])
        np.testing.assert_array_equal(boxes[node, 1], side.max(axis=0)[:n_features])
    assert np.isnan(boxes[[0, 3]]).all()
    again = partition(rows, order, 2, 35, feature, threshold)
    assert again == middle
