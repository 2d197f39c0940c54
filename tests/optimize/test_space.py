import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mondrian_forest.optimize import Categorical, Integer, Ordinal, Real, Space


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.data())
def test_integers_survive_the_unit_cube(low, span, data):
    parameter = Integer(low, low + span)
    value = data.draw(st.integers(low, low + span))
    assert parameter.from_unit(parameter.to_unit(value)) == value
    assert 0.0 < parameter.to_unit(value) < 1.0


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.data())
def test_integers_on_a_log_scale_survive_the_unit_cube(low, span, data):
    parameter = Integer(low, low + span, log=True)
    value = data.draw(st.integers(low, low + span))
    assert parameter.from_unit(parameter.to_unit(value)) == value


@given(st.floats(0.0, 1.0, exclude_max=True))
def test_every_integer_has_the_same_share_of_the_unit_interval(unit):
    assert Integer(3, 7).from_unit(unit) == 3 + int(unit * 5)


def test_both_ends_of_the_unit_interval_are_values():
    assert [Integer(3, 7).from_unit(u) for u in (0.0, 1.0)] == [3, 7]
    assert [Real(-2.0, 5.0).from_unit(u) for u in (0.0, 1.0)] == [-2.0, 5.0]
    assert [Real(1e-3, 10.0, log=True).from_unit(u) for u in (0.0, 1.0)] == [1e-3, 10.0]
    assert [Categorical(["a", "b"]).from_unit(u) for u in (0.0, 1.0)] == ["a", "b"]


@given(st.floats(1e-6, 1e6), st.booleans())
def test_numbers_survive_the_unit_cube_up_to_rounding(value, log):
    parameter = Real(1e-6, 1e6, log=log)
    assert parameter.from_unit(parameter.to_unit(value)) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", [Categorical, Ordinal])
def test_choices_survive_the_unit_cube(kind):
    values = ["a", 1, 2.5, True, None, "1"]
    parameter = kind(values)
    assert [parameter.from_unit(parameter.to_unit(value)) for value in values] == values
    assert parameter.from_unit(parameter.to_unit(True)) is True


def distance(space, first, second):
    features = space.features(np.array([space.to_unit(first), space.to_unit(second)]))
    return np.abs(features[0] - features[1]).sum()


def test_all_categories_are_at_the_same_distance():
    space = Space({"c": Categorical(["a", "b", "c", "d"])})
    pairs = [(p, q) for p in "abcd" for q in "abcd" if p < q]
    assert {distance(space, {"c": p}, {"c": q}) for p, q in pairs} == {1.0}


def test_many_categories_share_columns_and_are_hardly_ever_near():
    values = list(range(20_000))
    space = Space({"c": Categorical(values)})
    assert space.n_features == 256
    features = space.features(space.all_units())
    assert len({row.tobytes() for row in features}) == len(values)
    np.testing.assert_array_equal(features.sum(axis=1), 0.5)
    i, j = np.random.default_rng(0).integers(len(values), size=(2, 20_000))
    distances = np.abs(features[i] - features[j]).sum(axis=1)[i != j]
    assert distances.max() == 1.0
    # Each of eight columns is shared by one pair in 32.
    assert np.mean(distances == 1.0) == pytest.approx((31 / 32) ** 8, abs=0.02)
    assert np.mean(distances < 0.7) < 0.01
    inactive = Space({"b": Integer(0, 1), "c": Categorical(values, when={"b": 1})})
    assert distance(inactive, {"b": 1, "c": 7}, {"b": 0}) == pytest.approx(1.0)


def test_conditions_may_form_a_long_chain():
    names = [f"p{k}" for k in range(3000)]
    chain = {name: Integer(0, 1, when={parent: 1}) for name, parent in itertools.pairwise(names)}
    space = Space(chain | {names[-1]: Integer(0, 1)})
    assert space._order == names[::-1]


def test_ranks_and_numbers_keep_their_order():
    space = Space({"o": Ordinal(["low", "mid", "high"])})
    assert distance(space, {"o": "low"}, {"o": "high"}) == pytest.approx(
        2 * distance(space, {"o": "low"}, {"o": "mid"})
    )


@pytest.fixture
def conditional():
    return Space(
        {
            "kind": Categorical(["line", "wave", "none"]),
            "slope": Real(0.0, 1.0, when={"kind": "line"}),
            "period": Integer(1, 10, when={"kind": ["line", "wave"]}),
            "shape": Categorical(["x", "y"], when={"kind": "wave"}),
            "power": Integer(1, 3, when={"shape": "y", "kind": "wave"}),
        }
    )


def test_an_inactive_number_is_as_far_from_every_value(conditional):
    inactive = conditional.features(conditional.snap(np.full((1, 5), np.nan)))
    columns = slice(3, 5)  # of the slope
    distances = [
        np.abs(Real(0.0, 1.0, when={"a": 1}).features(np.array([u]))).sum() for u in (0, 0.3, 1)
    ]
    np.testing.assert_allclose(distances, 0.5)
    unit = conditional.to_unit({"kind": "none"})
    np.testing.assert_array_equal(conditional.features(unit[None])[0, columns], [0.0, 0.0])
    assert inactive.shape == (1, conditional.n_features)


def test_active_values_are_as_far_apart_as_without_a_condition(conditional):
    first = {"kind": "line", "slope": 0.2, "period": 3}
    second = {"kind": "line", "slope": 0.9, "period": 3}
    assert distance(conditional, first, second) == pytest.approx(0.7)


def test_points_hold_what_is_active_and_nothing_else(conditional):
    units = conditional.snap(np.random.default_rng(0).random((200, 5)))
    for unit in units:
        point = conditional.from_unit(unit)
        expected = {"kind"}
        if point["kind"] != "none":
            expected |= {"period"}
        if point["kind"] == "line":
            expected |= {"slope"}
        if point["kind"] == "wave":
            expected |= {"shape"}
            if point["shape"] == "y":
                expected |= {"power"}
        assert set(point) == expected
        np.testing.assert_allclose(conditional.to_unit(point), unit)


def test_keys_are_equal_for_equal_points_only(conditional):
    units = conditional.snap(np.random.default_rng(0).random((300, 5)))
    points = [repr(conditional.from_unit(unit)) for unit in units]
    assert len(set(conditional.keys(units))) == len(set(points))
    again = np.array([conditional.to_unit(conditional.from_unit(unit)) for unit in units[:50]])
    discrete = np.delete(np.arange(5), 1)
    assert [
        Space({n: conditional.parameters[n] for n in ["kind"]}).keys(again[:, :1]),
        np.isnan(again[:, discrete]).tolist(),
    ] == [
        Space({n: conditional.parameters[n] for n in ["kind"]}).keys(units[:50, :1]),
        np.isnan(units[:50, discrete]).tolist(),
    ]


def test_a_finite_space_lists_each_of_its_points_once():
    space = Space(
        {
            "k": Integer(1, 3),
            "c": Categorical(["a", "b"]),
            "d": Ordinal([1, 2, 3], when={"c": "a"}),
        }
    )
    points = [repr(space.from_unit(unit)) for unit in space.all_units()]
    assert len(points) == len(set(points)) == 3 * (3 + 1)
    assert space.n_points == 18  # a bound, conditions leave fewer
    assert Space({"x": Real(0, 1), "k": Integer(1, 2)}).n_points is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(1.0, 1.0), "low must be less than high"),
        (lambda: Real(float("nan"), 1.0), "low must be a finite number"),
        (lambda: Real("a", 1.0), "low must be a finite number"),
        (lambda: Real(0.0, 1.0, log=True), "low must be positive on a log scale"),
        (lambda: Integer(1.5, 3), "low must be an integer"),
        (lambda: Integer(0, 3, log=True), "low must be positive on a log scale"),
        (lambda: Integer(True, 3), "low must be an integer"),
        (lambda: Integer(2**60, 2**60 + 10), "must be less than 2"),
        (lambda: Integer(0, 2**52), "must be less than 2"),
        (lambda: Real(0, 10**400), "high must be a finite number"),
        (lambda: Categorical([]), "at least one value"),
        (lambda: Categorical("abc"), "must be a list"),
        (lambda: Categorical(["a", "a"]), "must differ"),
        (lambda: Categorical([object()]), "values must be texts, numbers"),
        (lambda: Ordinal([float("nan")]), "values must be texts, numbers"),
        (lambda: Real(0, 1, when={}), "when must map"),
        (lambda: Space({}), "with one at least"),
        (lambda: Space({"a": 3}), "must map names to Real"),
        (lambda: Space({"a": Real(0, 1, when={"b": 1})}), "refers to 'b', which is absent"),
        (lambda: Space({"b": Real(0, 1), "a": Real(0, 1, when={"b": 1})}), "a continuum"),
        (
            lambda: Space({"b": Integer(0, 1), "a": Real(0, 1, when={"b": 2})}),
            "b must be an integer",
        ),
        (
            lambda: Space({"a": Integer(0, 1, when={"b": 1}), "b": Integer(0, 1, when={"a": 1})}),
            "in a circle",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"kind": "line", "slope": 2.0, "period": 3}, "slope must be a number from 0.0 to 1.0"),
        ({"kind": "line", "slope": 0.5, "period": 3.5}, "period must be an integer from 1 to 10"),
        ({"kind": "tree"}, "kind must be one of"),
        ({"kind": "line", "slope": 0.5}, "the point lacks 'period'"),
        ({"kind": "none", "slope": 0.5}, "'slope' is active only when"),
        ({"kind": "none", "other": 1}, "'other' is no parameter of the space"),
        ("none", "a point must be a dict"),
    ],
)
def test_what_is_no_point_is_refused(conditional, point, message):
    with pytest.raises(ValueError, match=message):
        conditional.to_unit(point)
