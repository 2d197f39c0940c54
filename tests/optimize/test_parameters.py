"""Parameters: units, features and their distances."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mondrian_forest.optimize import Categorical, Integer, Ordinal, Real


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.data())
def test_an_integer_is_the_same_after_conversion_to_its_unit_and_back(low, span, data):
    parameter = Integer(low, low + span)
    value = data.draw(st.integers(low, low + span))
    assert parameter.from_unit(parameter.to_unit(value)) == value
    assert 0.0 < parameter.to_unit(value) < 1.0


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.data())
def test_so_is_an_integer_on_a_log_scale(low, span, data):
    parameter = Integer(low, low + span, log=True)
    value = data.draw(st.integers(low, low + span))
    assert parameter.from_unit(parameter.to_unit(value)) == value


@given(st.floats(1e-6, 1e6), st.booleans())
def test_so_is_a_number_up_to_rounding(value, log):
    parameter = Real(1e-6, 1e6, log=log)
    assert parameter.from_unit(parameter.to_unit(value)) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", [Categorical, Ordinal])
def test_so_is_a_choice_of_any_type(kind):
    values = ["a", 1, 2.5, True, None, "1"]
    parameter = kind(values)
    assert [parameter.from_unit(parameter.to_unit(value)) for value in values] == values
    assert parameter.from_unit(parameter.to_unit(True)) is True


@given(st.floats(0.0, 1.0, exclude_max=True))
def test_every_integer_has_the_same_share_of_the_unit_interval(unit):
    assert Integer(3, 7).from_unit(unit) == 3 + int(unit * 5)


def test_the_ends_of_the_unit_interval_are_the_ends_of_the_range():
    assert [Integer(3, 7).from_unit(u) for u in (0.0, 1.0)] == [3, 7]
    assert [Real(-2.0, 5.0).from_unit(u) for u in (0.0, 1.0)] == [-2.0, 5.0]
    assert [Real(1e-3, 10.0, log=True).from_unit(u) for u in (0.0, 1.0)] == [1e-3, 10.0]
    assert [Categorical(["a", "b"]).from_unit(u) for u in (0.0, 1.0)] == ["a", "b"]


@pytest.mark.parametrize(
    "parameter",
    [Integer(-3, 9), Integer(2, 40, log=True), Ordinal([1, 5, 2]), Categorical(["a", "b"])],
)
def test_indices_of_discrete_values_are_the_same_after_conversion_to_units_and_back(parameter):
    indices = np.arange(parameter.n_values)
    units = parameter.index_to_unit(indices)
    assert (np.diff(units) > 0).all()
    np.testing.assert_array_equal(parameter.unit_to_index(units), indices)


def distances(parameter, values):
    """Return the L1 distances of the features of all pairs of values."""
    features = parameter.features(parameter.to_units(values))
    return [np.abs(p - q).sum() for p, q in itertools.combinations(features, 2)]


def test_all_pairs_of_categories_have_the_distance_1():
    assert distances(Categorical(["a", "b", "c", "d"]), ["a", "b", "c", "d"]) == [1.0] * 6


def test_ranks_have_the_distances_of_their_order():
    near, far, again = distances(Ordinal(["low", "mid", "high"]), ["low", "mid", "high"])
    assert near == pytest.approx(again)
    assert far == pytest.approx(2 * near)


def test_categories_that_share_columns_are_rarely_near():
    values = list(range(20_000))
    parameter = Categorical(values)
    assert parameter.n_features == 256
    features = parameter.features(parameter.to_units(values))
    assert len({row.tobytes() for row in features}) == len(values)
    np.testing.assert_array_equal(features.sum(axis=1), 0.5)
    i, j = np.random.default_rng(0).integers(len(values), size=(2, 20_000))
    found = np.abs(features[i] - features[j]).sum(axis=1)[i != j]
    assert found.max() == 1.0
    # Two choices share the column of a group with probability 1/32.
    assert np.mean(found == 1.0) == pytest.approx((31 / 32) ** 8, abs=0.02)
    assert np.mean(found < 0.7) < 0.01


@pytest.mark.parametrize("parameter", [Real(0.0, 1.0, when={"a": 1}), Integer(1, 9, when={"a": 1})])
def test_an_inactive_number_has_the_distance_one_half_from_every_value(parameter):
    inactive = parameter.features(np.array([np.nan]))
    values = parameter.features(np.array([0.0, 0.3, 1.0]))
    np.testing.assert_array_equal(inactive, [[0.0, 0.0]])
    np.testing.assert_allclose(np.abs(values - inactive).sum(axis=1), 0.5)


def test_a_condition_leaves_the_distances_of_active_values_unchanged():
    units = np.array([0.2, 0.9])
    for parameter in (Real(0, 1), Real(0, 1, when={"a": 1})):
        first, second = parameter.features(units)
        assert np.abs(first - second).sum() == pytest.approx(0.7)


@pytest.mark.parametrize("n_choices", [3, 300])
def test_an_inactive_category_has_the_distance_one_half_from_every_choice(n_choices):
    parameter = Categorical(list(range(n_choices)), when={"a": 1})
    features = parameter.features(np.append(parameter.to_units([0, 1, 2]), np.nan))
    np.testing.assert_allclose(np.abs(features[:3] - features[3]).sum(axis=1), 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(1.0, 1.0), "low must be less than high"),
        (lambda: Real(float("nan"), 1.0), "low must be a finite number"),
        (lambda: Real("a", 1.0), "low must be a finite number"),
        (lambda: Real(0.0, 1.0, log=True), "low must be positive on a log scale"),
        (lambda: Real(0.5, 1.0, log="yes"), "log must be True or False"),
        (lambda: Real(0, 10**400), "high must be a finite number"),
        (lambda: Real(-1e308, 1e308), "high - low must be finite"),
        (lambda: Integer(1.5, 3), "low must be an integer"),
        (lambda: Integer(0, 3, log=True), "low must be positive on a log scale"),
        (lambda: Integer(True, 3), "low must be an integer"),
        (lambda: Integer(2**60, 2**60 + 10), "must be less than 2"),
        (lambda: Integer(0, 2**52), "must be less than 2"),
        (lambda: Categorical([]), "at least one value"),
        (lambda: Categorical("abc"), "must be a list"),
        (lambda: Categorical(["a", "a"]), "must differ"),
        (lambda: Categorical([1, 1.0]), "must differ"),
        (lambda: Categorical([object()]), "values must be texts, numbers"),
        (lambda: Ordinal([float("nan")]), "values must be texts, numbers"),
        (lambda: Real(0, 1, when={}), "when must map"),
    ],
)
def test_invalid_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
