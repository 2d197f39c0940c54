"""Points that may be asked for: listed ones, and sampled ones."""

import numpy as np
import pytest

from mondrian_forest.optimize import Categorical, Integer, Real, Space, SpaceExhausted
from mondrian_forest.optimize.candidates import (
    CELLS_PER_POINT,
    ListedPoints,
    SampledPoints,
    is_allowed,
    neighbours,
    random_argmax,
    sobol_design,
)

NUMBERS = Space({"k": Integer(0, 9)})
SQUARE = Space({"x": Real(0.0, 1.0), "y": Real(0.0, 1.0)})


@pytest.fixture
def random():
    return np.random.default_rng(0)


def unit(k):
    return NUMBERS.to_unit({"k": k})


def sampled(constraint=None, n_candidates=200, n_initial=4):
    return SampledPoints(SQUARE, constraint, n_candidates, sobol_design(SQUARE, n_initial, 0))


class TestListedPoints:
    @pytest.fixture
    def points(self):
        return ListedPoints(NUMBERS, [{"k": k} for k in (3, 5, 8, 5)])

    def drawn(self, points, random):
        return {points.first(0, random)["k"] for _ in range(50)}

    def test_a_taken_point_does_not_return_until_all_are_restored(self, points, random):
        assert self.drawn(points, random) == {3, 5, 8}
        points.take(unit(5))
        assert self.drawn(points, random) == {3, 8}
        points.restore()
        assert self.drawn(points, random) == {3, 5, 8}

    def test_a_copy_without_points_leaves_the_original_unchanged(self, points, random):
        fewer = points.without([unit(3), unit(8), unit(1)])
        assert self.drawn(fewer, random) == {5}
        assert self.drawn(points, random) == {3, 5, 8}

    def test_the_best_point_has_the_largest_acquisition_of_those_left(self, points, random):
        def evaluate(features):
            return features[:, 0]

        assert points.best(evaluate, [], random) == {"k": 8}
        points.take(unit(8))
        assert points.best(evaluate, [], random) == {"k": 5}

    def test_the_end_is_an_exception(self, points, random):
        for k in (3, 5, 8):
            points.take(unit(k))
        with pytest.raises(SpaceExhausted, match="all 3 points have been asked for"):
            points.first(0, random)


class TestSampledPoints:
    def test_the_first_points_are_the_design_unless_their_cell_is_taken(self, random):
        points, design = sampled(), sobol_design(SQUARE, 4, 0)
        assert points.first(2, random) == SQUARE.from_unit(design[2])
        points.take(design[2])
        assert points.first(2, random) != SQUARE.from_unit(design[2])

    def test_the_search_comes_nearer_to_a_peak_than_random_points(self, random):
        def evaluate(features):
            return -np.abs(features - [0.123, 0.456]).sum(axis=1)

        points = sampled(n_candidates=2000)
        for unit in random.random((100, 2)):  # with more points, cells are finer
            points.take(unit)
        found = points.best(evaluate, [np.array([0.9, 0.9])], random)
        # The nearest of 1000 random points is about 0.02 away.
        assert abs(found["x"] - 0.123) + abs(found["y"] - 0.456) < 0.003

    def test_no_two_points_share_a_cell(self, random):
        points, asked = sampled(n_candidates=40), [np.array([0.5, 0.5])]
        points.take(asked[0])
        for _ in range(29):
            point = points.best(lambda features: -features.sum(axis=1), asked[-1:], random)
            asked.append(SQUARE.to_unit(point))
            points.take(asked[-1])
        finest = 32 * CELLS_PER_POINT  # the number of cells is doubled until it suffices
        assert len(set(SQUARE.keys(np.array(asked), finest))) == 30

    def test_a_copy_without_points_leaves_the_original_unchanged(self):
        points, design = sampled(), sobol_design(SQUARE, 4, 0)
        fewer = points.without(list(design[:1]))
        first = [source.first(0, np.random.default_rng(0)) for source in (points, fewer)]
        assert first[0] == SQUARE.from_unit(design[0])
        assert first[1] != first[0]

    def test_a_constraint_that_refuses_all_points_is_reported(self, random):
        with pytest.raises(SpaceExhausted, match="none of 100 random points is allowed and new"):
            sampled(lambda _: False).first(0, random)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(True, True), (False, False), (0.0, True), (-1e-9, False), ([1, -1], False), ([1, 0], True)],
)
def test_a_constraint_returns_truth_or_numbers_that_are_not_negative(answer, expected):
    assert is_allowed(lambda _: answer, {}) is expected
    assert is_allowed(None, {})


def test_a_design_has_one_point_in_each_of_equal_parts():
    design = sobol_design(SQUARE, 16, 3)
    for column in design.T:
        np.testing.assert_array_equal(np.sort(np.floor(16 * column)), np.arange(16))
    np.testing.assert_array_equal(sobol_design(SQUARE, 11, 3), design[:11])


def test_neighbours_are_near_and_move_at_least_one_coordinate(random):
    row = np.full(8, 0.5)
    near = neighbours([row], 4000, random, (1e-3,))
    steps = np.abs(near - row)
    assert (steps.max(axis=1) > 0).all()
    is_redrawn = steps > 6e-3
    # Half of the coordinates move, and a tenth of these are drawn anew.
    assert (steps > 0).mean() == pytest.approx(0.5 + 0.5 / 8, abs=0.02)
    assert is_redrawn.sum() / (steps > 0).sum() == pytest.approx(0.1, abs=0.02)


def test_neighbours_give_inactive_parameters_a_value(random):
    space = Space({"c": Categorical(["a", "b"]), "x": Real(0, 1, when={"c": "a"})})
    near = neighbours([space.to_unit({"c": "b"})], 100, random, (0.1,))
    assert not np.isnan(near).any()
    assert len(set(near[:, 1])) == 100


def test_ties_of_the_largest_value_are_broken_at_random_and_nan_never_wins(random):
    values = np.array([np.nan, 2.0, 1.0, 2.0])
    found = [random_argmax(values, random) for _ in range(400)]
    assert set(found) == {1, 3}
    assert found.count(1) / 400 == pytest.approx(0.5, abs=0.12)
