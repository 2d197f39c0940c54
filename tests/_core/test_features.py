import numpy as np
import pytest

from mondrian_forest._core.features import (
    FARTHEST,
    is_finite,
    scale_rows,
    survey_features,
    survey_labels,
    warp_rows,
)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_noticed(value):
    table = np.ones((3, 2))
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    assert is_finite(table)
    assert survey_features(table, low, high)
    table[2, 0] = value
    assert not is_finite(table)
    assert not survey_features(table, low, high)


def test_the_range_of_each_column_grows_to_what_is_seen():
    low, high = np.array([0.0, 5.0]), np.array([0.5, 5.0])
    survey_features(np.array([[0.2, 4.0], [-1.0, 9.0]]), low, high)
    np.testing.assert_array_equal(low, [-1.0, 4.0])
    np.testing.assert_array_equal(high, [0.5, 9.0])


def test_a_survey_of_labels_finds_mean_squared_deviation_and_largest_size():
    labels = np.array([1.0, -4.0, 0.5, 0.5])
    mean, squared_deviation, largest = survey_labels(labels)
    assert mean == pytest.approx(labels.mean(), rel=1e-15)
    assert squared_deviation == pytest.approx(4 * labels.var(), rel=1e-15)
    assert largest == 4.0


def test_labels_that_are_large_and_close_to_each_other_keep_their_digits():
    mean, squared_deviation, _ = survey_labels(2.0**52 + np.array([0.0, 1.0, 2.0, 3.0]))
    assert mean == 2.0**52 + 2.0  # 1.5, rounded to even
    assert squared_deviation == 5.0


def test_only_equal_labels_have_a_squared_deviation_of_zero():
    assert survey_labels(np.full(7, 0.1)) == (0.1, 0.0, 0.1)
    assert survey_labels(np.array([1e-200, 2e-200]))[1] > 0.0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_label_that_is_nan_is_noticed(place):
    labels = np.array([1.0, 2.0, 3.0])
    labels[place] = np.nan
    assert np.isnan(survey_labels(labels)[2])


def test_rows_are_scaled_and_clipped_to_what_single_precision_holds():
    table = np.array([[2.0, 1e300], [4.0, -1e300]])
    out = np.empty((2, 2), np.float32)
    scale_rows(table, 0.5, np.array([1.0, 0.0]), np.array([4.0, 1.0]), out)
    np.testing.assert_array_equal(out, np.float32([[0.0, FARTHEST], [0.25, -FARTHEST]]))


def test_a_warp_interpolates_and_continues_its_chord_outside():
    knots, places = np.array([[0.0, 1.0, 4.0]]), np.array([[0.0, 2.0, 4.0]])
    table = np.array([[-4.0], [0.0], [0.5], [1.0], [2.5], [4.0], [8.0]])
    out = np.empty_like(table)
    warp_rows(table, knots, places, np.array([3]), out)
    np.testing.assert_allclose(out[:, 0], [-4.0, 0.0, 1.0, 2.0, 3.0, 4.0, 8.0])
