"""Spaces: points, their unit rows and keys, and conditions."""

import itertools

import numpy as np
import pytest

from mondrian_forest.optimize import Categorical, Integer, Ordinal, Real, Space


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


def test_a_point_has_its_active_parameters_only(conditional):
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


def test_a_chain_of_conditions_may_be_long_and_in_any_order():
    names = [f"p{k}" for k in range(3000)]
    chain = {name: Integer(0, 1, when={parent: 1}) for name, parent in itertools.pairwise(names)}
    space = Space(chain | {names[-1]: Integer(0, 1)})
    all_ones, all_zeros = space.snap(np.repeat([[0.9], [0.1]], 3000, axis=1))
    assert space.from_unit(all_ones) == dict.fromkeys(names, 1)
    assert space.from_unit(all_zeros) == {names[-1]: 0}


def test_features_are_those_of_the_parameters_side_by_side(conditional):
    units = conditional.snap(np.random.default_rng(0).random((20, 5)))
    parts = [p.features(units[:, k]) for k, p in enumerate(conditional.parameters.values())]
    features = conditional.features(units)
    np.testing.assert_array_equal(features, np.hstack(parts))
    assert features.shape == (20, conditional.n_features)
    low, high = conditional.feature_range()
    assert ((low <= features) & (features <= high)).all()


def test_keys_are_equal_for_equal_points_only(conditional):
    units = conditional.snap(np.random.default_rng(0).random((300, 5)))
    points = [repr(conditional.from_unit(unit)) for unit in units]
    assert len(set(conditional.keys(units))) == len(set(points))
    with_copies = np.concatenate([units, units])
    assert len(set(conditional.keys(with_copies))) == len(set(points))


def test_points_in_the_same_cells_have_equal_keys():
    space = Space({"x": Real(0, 1), "k": Integer(0, 9)})
    units = space.to_units([{"x": 0.31, "k": 2}, {"x": 0.39, "k": 2}, {"x": 0.41, "k": 2}])
    assert len(set(space.keys(units))) == 3
    first, second, third = space.keys(units, n_cells=10)
    assert first == second != third


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
    assert space.n_points == 18  # an upper bound: the condition leaves fewer points


def test_a_space_with_a_continuous_parameter_has_no_number_of_points():
    assert Space({"x": Real(0, 1), "k": Integer(1, 2)}).n_points is None


def test_a_table_becomes_points_without_inactive_parameters(conditional):
    columns = {
        "kind": np.array(["line", "none"]),
        "slope": [0.5, 0.7],
        "period": np.array([3, 4]),
        "shape": ["x", "x"],
        "power": [1, 1],
    }
    points = conditional.points(columns)
    assert points == [{"kind": "line", "slope": 0.5, "period": 3}, {"kind": "none"}]
    assert type(points[0]["period"]) is int


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "with at least one parameter"),
        ({"a": 3}, "must map names to Real"),
        ({"a": Real(0, 1, when={"b": 1})}, "refers to 'b', which is not in the space"),
        ({"b": Real(0, 1), "a": Real(0, 1, when={"b": 1})}, "'b', which is continuous"),
        ({"b": Integer(0, 1), "a": Real(0, 1, when={"b": 2})}, "b must be an integer"),
        (
            {"a": Integer(0, 1, when={"b": 1}), "b": Integer(0, 1, when={"a": 1})},
            "in a circle",
        ),
    ],
)
def test_invalid_spaces_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Space(parameters)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"kind": "line", "slope": 2.0, "period": 3}, "slope must be a number from 0.0 to 1.0"),
        ({"kind": "line", "slope": 0.5, "period": 3.5}, "period must be an integer from 1 to 10"),
        ({"kind": "tree"}, "kind must be one of"),
        ({"kind": "line", "slope": 0.5}, "the point lacks 'period'"),
        ({"kind": "none", "slope": 0.5}, "'slope' is active only when"),
        ({"kind": "none", "other": 1}, "'other' is not a parameter of the space"),
        ("none", "a point must be a dict"),
    ],
)
def test_points_outside_of_the_space_are_refused(conditional, point, message):
    with pytest.raises(ValueError, match=message):
        conditional.to_unit(point)
