"""Which numbers the checks accept, and what their messages say."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from mondrian_forest import MondrianForestRegressor
from mondrian_forest._forest.validation import (
    check_flag,
    check_integer,
    check_level,
    check_levels,
    check_number,
    check_positive,
    check_rows_and_labels,
    check_share,
    is_integer,
    is_number,
)

INTEGERS = [3, np.int8(3), np.uint64(3)]
OTHER_NUMBERS = [0.5, np.float32(0.5), Fraction(1, 2)]
NOT_NUMBERS = [True, np.True_, None, "3", [3], np.array([3.0]), 3j]
NOT_FINITE = [np.nan, np.inf, -np.inf, 10**400, Fraction(10**400)]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers_of_any_type_are_integers_and_numbers(value):
    assert is_integer(value)
    assert is_number(value)
    assert type(check_integer("n", value, 3)) is int


@pytest.mark.parametrize("value", OTHER_NUMBERS)
def test_other_finite_numbers_are_numbers_only(value):
    assert not is_integer(value)
    assert is_number(value)
    found = check_number("x", value)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("value", NOT_NUMBERS + NOT_FINITE[:3])
def test_truth_values_text_arrays_and_infinities_are_refused(value):
    assert not is_integer(value)
    assert not is_number(value)
    for check in (check_integer, check_number, check_positive, check_share, check_level):
        with pytest.raises(ValueError, match="x must be"):
            check("x", value)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_numbers_beyond_float64_are_not_finite(value):
    assert not is_number(value)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_integer("n", 1.5), "n must be an integer, got 1.5."),
        (lambda: check_integer("n", 1, 2), "n must be an integer of at least 2, got 1."),
        (
            lambda: check_integer("n", 1, 2, instead='"auto"'),
            'n must be "auto" or an integer of at least 2, got 1.',
        ),
        (lambda: check_number("x", "a"), "x must be a number, got 'a'."),
        (lambda: check_number("x", -1, 0.0), "x must be a number of at least 0, got -1."),
        (
            lambda: check_number("x", 2e3, 1e-3, 1e3, instead="None"),
            "x must be None or a number from 0.001 to 1000, got 2000.0.",
        ),
        (lambda: check_positive("x", 0), "x must be a positive number, got 0."),
        (
            lambda: check_positive("x", -1.0, instead="inf"),
            "x must be inf or a positive number, got -1.0.",
        ),
        (lambda: check_share("x", 1), "x must be a number above 0 and below 1, got 1."),
        (lambda: check_level("x", 1.5), "x must be a number from 0 to 1, got 1.5."),
        (lambda: check_flag("x", 1), "x must be True or False, got 1."),
        (
            lambda: check_levels("q", [0.5, 2]),
            "q must be a number or a list of numbers from 0 to 1, got [0.5, 2].",
        ),
    ],
)
def test_the_message_has_the_name_the_bounds_and_the_value(check, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared
        check()
    assert str(refused.value) == message


def test_bounds_are_included_unless_the_check_says_otherwise():
    assert check_integer("n", 2, 2) == 2
    assert [check_number("x", end, 0.0, 4.0) for end in (0, 4)] == [0.0, 4.0]
    assert [check_level("x", end) for end in (0, 1)] == [0.0, 1.0]
    for end in (0.0, 1.0):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            check_share("x", end)


def test_levels_keep_their_shape():
    assert check_levels("q", 0.5).shape == ()
    assert check_levels("q", []).shape == (0,)
    np.testing.assert_array_equal(check_levels("q", [1, 0]), [1.0, 0.0])


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_become_plain_truth_values(value):
    assert type(check_flag("x", value)) is bool
    assert check_flag("x", value) == value


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, np.nan], "y contains NaN"),
        ([1.0, 1e151], r"y must not exceed 1e\+150 in size"),
        ([1.0], "inconsistent numbers of samples"),
        (np.ones((2, 2)), "predicts one target but y has 2 columns"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "y has masked entries"),
        ([np.datetime64("2020"), np.datetime64("2021")], "y has dates or times"),
    ],
)
def test_labels_that_no_forest_can_learn_are_refused(labels, message):
    forest = MondrianForestRegressor(1, random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match=message):
        check_rows_and_labels(forest, [[0.0], [1.0]], labels, reset=False)


def test_rows_must_have_the_features_of_the_fit():
    forest = MondrianForestRegressor(1, random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="2 features, but MondrianForestRegressor is expecting 1"):
        check_rows_and_labels(forest, [[0.0, 1.0], [1.0, 2.0]], [0, 1], reset=False)


def test_rows_of_a_fit_may_have_any_features_which_the_estimator_notes():
    noted, rows = LinearRegression(), [[0.0, 1.0], [1.0, 2.0]]
    found, labels = check_rows_and_labels(noted, rows, [0, 1], reset=True)
    np.testing.assert_array_equal(found, rows)
    assert labels.dtype == np.float64
    assert noted.n_features_in_ == 2
