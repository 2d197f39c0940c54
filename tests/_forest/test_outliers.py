"""One extreme value, in the features or in the labels, does not rule the forest."""

import warnings

import numpy as np
import pytest

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._forest.label_limits import LabelLimits, learn_limits
from mondrian_forest._forest.scaling import learn_warp


def problem(n_rows, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, np.sin(6.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=n_rows)


X, Y = problem(1000)
TEST_X, TEST_Y = problem(1000, seed=1)


def error(forest):
    return np.sqrt(np.mean((forest.predict(TEST_X) - TEST_Y) ** 2))


def small(**parameters):
    return MondrianForestRegressor(20, random_state=0, spread=1.0, **parameters)


@pytest.fixture(scope="module")
def usual_error():
    return error(small().fit(X, Y))


def learn_in_chunks(forest, X, y):
    for start in range(0, len(X), 50):
        forest.partial_fit(X[start : start + 50], y[start : start + 50])
    return forest


def with_outlier(X):
    far = X.copy()
    far[7, 0] = 1000.0
    return far


def test_one_extreme_feature_does_no_harm(usual_error):
    far = with_outlier(X)
    assert error(small().fit(far, Y)) < 1.03 * usual_error
    # With minimum and maximum as the ends of the range, and no weights that could make up for it,
    # a forest hardly ever cuts this feature.
    alone = {"feature_weights": None, "mean_function": None}
    plain = small(**alone).fit(far, Y)
    ruled = small(**alone, robust=False).fit(far, Y)
    assert error(ruled) > 2.0 * error(plain)


def test_one_extreme_row_in_a_stream_does_no_harm(usual_error):
    forest = learn_in_chunks(small(), with_outlier(X), Y)
    assert error(forest) < 1.1 * usual_error


def test_one_extreme_label_is_drawn_in_with_a_warning(usual_error):
    far = Y.copy()
    far[7] = 1e6
    with pytest.warns(UserWarning, match="Some labels lie outside") as told:
        forest = small().fit(X, far)
    assert told[0].filename == __file__
    # Neighbours of that row still expect large labels.
    assert error(forest) < 6.0 * usual_error
    with pytest.warns(UserWarning, match="Some labels lie outside"):
        forest = small().fit(X[8:], Y[8:]).partial_fit(X[:8], far[:8])
    assert error(forest) < 6.0 * usual_error
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = small(robust=False).fit(X, far)
    assert error(plain) > 1000.0 * usual_error


def test_an_extreme_label_at_the_start_of_a_stream_is_drawn_in_later(usual_error):
    far = Y.copy()
    far[7] = 1e6
    forest = small()
    forest.partial_fit(X[:50], far[:50])
    assert error(forest) > 100.0 * usual_error  # of so few labels nobody knows which is extreme
    with pytest.warns(UserWarning, match="Some labels lie outside") as told:
        learn_in_chunks(forest, X[50:], far[50:])
    assert told[0].filename == __file__
    assert error(forest) < 6.0 * usual_error


def test_the_papers_model_knows_minimum_and_maximum_only():
    far = with_outlier(X)
    forest = MondrianForestRegressor(2, **PAPER, random_state=0).fit(far, Y)
    np.testing.assert_array_equal(forest.feature_range_, [far.min(axis=0), far.max(axis=0)])


def test_a_warp_is_half_shares_half_lines_between_its_ends():
    values = np.random.default_rng(0).exponential(size=(2000, 1))
    warp = learn_warp(values)
    low, high = (end[0] for end in warp.ends)
    ordered = np.sort(values[:, 0])
    asked = (0.75 * ordered[:-1] + 0.25 * ordered[1:])[[19, 99, 999, 1899, 1979]]
    np.testing.assert_allclose((low, high), asked[[0, -1]])
    line = (asked - low) / (high - low)
    share = (np.array([0.01, 0.05, 0.5, 0.95, 0.99]) - 0.01) / 0.98
    np.testing.assert_allclose(warp.apply(asked[:, None])[:, 0], 0.5 * (line + share))


def test_a_warp_goes_on_beyond_its_ends_at_the_mean_slope():
    warp = learn_warp(np.random.default_rng(0).exponential(size=(2000, 1)))
    low, high = (end[0] for end in warp.ends)
    beyond = np.array([[low - 3.0 * (high - low)], [high + 5.0 * (high - low)]])
    np.testing.assert_allclose(warp.apply(beyond)[:, 0], [-3.0, 6.0])


@pytest.mark.parametrize(
    "column",
    [
        np.zeros(200),
        np.repeat([0.0, 1.0], 100),
        np.eye(1, 200, 5)[0],  # a rare flag
        np.append(np.zeros(199), 1e300),
        np.full(200, 1e308),
        np.full(200, -1.7e308),
        1.7e308 * np.linspace(-1.0, 1.0, 200),
        5e-324 * np.arange(200),
        np.arange(200.0) // 50,
        1e16 + np.arange(200.0),
        np.random.default_rng(0).standard_cauchy(200),
    ],
)
def test_a_warp_of_any_column_is_finite_increasing_and_can_be_inverted(column):
    warp = learn_warp(column[:, None])
    knots, places = warp.knots[0, : warp.counts[0]], warp.places[0, : warp.counts[0]]
    assert (np.diff(0.5 * knots) > 0.0).all()
    assert (np.diff(places) > 0.0).all()
    assert (places[0], places[-1]) == (0.0, 1.0)
    ordered = np.sort(column)[:, None]
    coordinates = warp.apply(ordered)
    assert np.isfinite(coordinates).all()
    assert (np.diff(coordinates[:, 0]) >= 0.0).all()
    width = np.ptp(0.5 * knots)
    np.testing.assert_allclose(
        0.5 * warp.invert(coordinates), 0.5 * ordered, rtol=1e-9, atol=max(1e-12 * width, 5e-323)
    )


def test_a_warp_changes_when_the_bulk_of_a_stream_does():
    forest = small(feature_weights=None)
    forest.partial_fit(X[:300], Y[:300])
    before = forest.feature_range_
    forest.partial_fit(10.0 + 5.0 * X[300:], Y[300:])
    low, high = forest.feature_range_
    assert (high - low > 3.0 * (before[1] - before[0])).all()
    # The stored rows have moved along: a prediction finds the rows of before where they were.
    assert np.corrcoef(forest.predict(X[:300]), Y[:300])[0, 1] > 0.9


def test_limits_of_labels_are_wide_and_need_many_labels():
    labels = np.random.default_rng(0).normal(size=10_000)
    low, high = learn_limits(labels)
    assert -60.0 < low < -40.0
    assert 40.0 < high < 60.0
    assert learn_limits(labels[:99]) == LabelLimits()
    assert learn_limits(np.full(1000, 3.0)) == LabelLimits()
    rare = np.where(np.arange(1000) < 950, 0.0, np.arange(1000.0))
    assert learn_limits(rare) == LabelLimits()  # only 50 differ from the usual one
    for heavy in (
        np.exp(labels),
        np.abs(labels) ** 3,
        -np.log(np.linspace(1e-4, 1.0, 10_000)),
    ):
        assert learn_limits(heavy).apply(heavy) is heavy


def test_robust_is_true_or_false():
    with pytest.raises(ValueError, match="robust must be True or False, got 'yes'"):
        MondrianForestRegressor(robust="yes").fit(X, Y)


def test_a_saved_forest_keeps_warp_and_limits(tmp_path):
    forest = small(feature_weights=None).fit(X, Y)
    forest.save(tmp_path / "model.mf")
    loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
    np.testing.assert_array_equal(loaded.predict(TEST_X), forest.predict(TEST_X))
    np.testing.assert_array_equal(loaded.feature_range_, forest.feature_range_)
    for each in (forest, loaded):
        with pytest.warns(UserWarning, match="Some labels lie outside"):
            each.partial_fit(TEST_X, np.where(np.arange(1000) == 3, 1e6, TEST_Y))
    np.testing.assert_array_equal(loaded.predict(TEST_X), forest.predict(TEST_X))
