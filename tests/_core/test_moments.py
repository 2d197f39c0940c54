from fractions import Fraction

import numpy as np
import pytest

from mondrian_forest._core.arrays.kernel import kernel
from mondrian_forest._core.moments import (
    SMALLEST,
    MomentArrays,
    Moments,
    add_label,
    merge,
    merge_arrays,
    merge_in_python,
    merge_samples,
    moments_of,
    remove_samples,
)


@kernel
def of_array(labels, out):
    out[0], out[1], out[2] = moments_of(labels, 0, len(labels))


@kernel
def one_by_one(labels, out):
    moments = Moments(0, 0.0, 0.0)
    for i in range(len(labels)):
        moments = add_label(moments, labels[i])
    out[0], out[1], out[2] = moments


@kernel
def merged_at(labels, middle, out):
    first = moments_of(labels, 0, middle)
    second = moments_of(labels, middle, len(labels))
    out[0], out[1], out[2] = merge(first, second)


def filled(function, *arguments):
    out = np.empty(3)
    function(*arguments, out)
    return Moments(*out)


def exact(labels):
    values = [Fraction(label) for label in labels]
    mean = sum(values) / len(values)
    return Moments(len(labels), float(mean), float(sum((value - mean) ** 2 for value in values)))


TABLES = [
    np.array([3.0]),
    np.array([2.0, 2.0, 2.0]),
    np.array([0.1, -7.25, 1e-3, 40.0, 40.0]),
    1e9 + np.random.default_rng(0).random(50),
]


@pytest.mark.parametrize("labels", TABLES, ids=["one", "equal", "mixed", "large and close"])
class TestMoments:
    def assert_close(self, found, labels):
        expected = exact(labels)
        assert found.n_samples == expected.n_samples
        assert found.mean == pytest.approx(expected.mean, rel=1e-15)
        rounding = len(labels) * (np.spacing(abs(expected.mean)) ** 2)
        assert found.squared_deviation == pytest.approx(
            expected.squared_deviation, rel=1e-7, abs=rounding
        )

    def test_of_an_array_are_exact(self, labels):
        self.assert_close(filled(of_array, labels), labels)

    def test_follow_labels_that_are_added_one_by_one(self, labels):
        self.assert_close(filled(one_by_one, labels), labels)

    def test_of_two_parts_merge_to_those_of_all(self, labels):
        for middle in range(1, len(labels)):
            found = filled(merged_at, labels, middle)
            self.assert_close(found, labels)
            parts = [filled(of_array, part) for part in (labels[:middle], labels[middle:])]
            assert merge_in_python(*parts) == found


def test_arrays_of_moments_merge_entry_by_entry_and_sets_may_be_empty():
    nothing, some, more = Moments(0, 0.0, 0.0), Moments(3, 1.5, 2.0), Moments(2, -4.0, 0.5)
    first = MomentArrays(*np.transpose([nothing, some, some, nothing]))
    second = MomentArrays(*np.transpose([some, nothing, more, nothing]))
    found = merge_arrays(first, second)
    expected = [some, some, merge_in_python(some, more), nothing]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-15)


def test_the_squared_deviation_of_samples_is_zero_only_if_all_labels_are_equal():
    zero, tiny = Moments(1, 0.0, 0.0), Moments(1, 1e-200, 0.0)
    assert merge_in_python(zero, tiny).squared_deviation == 0.0
    assert merge_samples(zero, tiny).squared_deviation == SMALLEST
    assert merge_samples(tiny, tiny).squared_deviation == 0.0
    apart = Moments(1, 3.0, 0.0)
    assert merge_samples(zero, apart) == merge_in_python(zero, apart) == (2, 1.5, 4.5)


@pytest.mark.parametrize("labels", TABLES[1:], ids=["equal", "mixed", "large and close"])
@pytest.mark.parametrize("n_leaving", [1, 2])
def test_removing_a_part_leaves_the_moments_of_the_rest(labels, n_leaving):
    left = remove_samples(exact(labels), exact(labels[:n_leaving]))
    expected = exact(labels[n_leaving:])
    rounding = 4 * np.finfo(float).eps
    assert left.n_samples == expected.n_samples
    assert left.mean == pytest.approx(expected.mean, rel=rounding)
    # What is taken away from a sum leaves the rounding error of the sum.
    error = abs(left.squared_deviation - expected.squared_deviation)
    total = exact(labels).squared_deviation
    assert error <= 8 * np.finfo(float).eps * (total + abs(expected.mean) * np.sqrt(total))
    assert left.squared_deviation >= 0.0
