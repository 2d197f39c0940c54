import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from mondrian_forest import CalibratedDistribution, ConformalForest, MondrianForestRegressor
from mondrian_forest.metrics import LEVELS, calibration_table, neg_crps, pit, summary

LEVEL = np.array(LEVELS)


def stream(n_rows, seed=0, noise=0.3):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + noise * generator.standard_t(3, n_rows)


def forest(**parameters):
    return MondrianForestRegressor(5, random_state=0, **parameters)


@pytest.fixture(scope="module")
def calibrated():
    X, y = stream(6_000)
    model = forest(noise_variance=2.0)  # four times what it is: intervals are too wide
    return ConformalForest(model, calibration_share=0.5, random_state=0).fit(X, y)


def test_coverage_is_right_where_that_of_the_forest_is_not(calibrated):
    X, y = stream(20_000, seed=1)
    before = calibration_table(y, calibrated.forest_.predict_distribution(X))
    after = calibration_table(y, calibrated.predict_distribution(X))
    assert before.worst > 0.2
    # Four standard deviations of what 3,000 rows set aside and 20,000 tested leave open.
    assert after.worst < 4 * 0.5 * np.sqrt(1 / 3_000 + 1 / 20_000)


def test_coverage_is_exact_on_average_over_calibration_sets():
    """The finite-sample guarantee: 19 rows set aside make nine tenths exactly, not roughly."""
    X, y = stream(300)
    model = forest().fit(X, y)
    X, y = stream(20 * 2_000, seed=2)
    inside = []
    for first in range(0, len(y), 20):
        kept, new = slice(first, first + 19), slice(first + 19, first + 20)
        lower, upper = (
            ConformalForest(model).calibrate(X[kept], y[kept]).predict_interval(X[new], 0.9)[0]
        )
        inside.append(lower <= y[new][0] <= upper)
    assert stats.binomtest(sum(inside), len(inside), 0.9).pvalue > 0.001


def test_too_few_rows_make_infinite_intervals():
    X, y = stream(300)
    model = forest().fit(X[:200], y[:200])
    calibrated = ConformalForest(model).calibrate(X[200:210], y[200:210])
    assert len(calibrated.knots_) == 10
    np.testing.assert_array_equal(calibrated.predict_interval(X[:3], 0.9), [[-np.inf, np.inf]] * 3)
    assert np.isfinite(calibrated.predict_interval(X[:3], 0.8)).all()
    assert np.isfinite(calibrated.predict_quantiles(X[:3], [0.01, 0.99])).all()


def test_knots_are_order_statistics_of_the_pit_values(calibrated):
    X, y = stream(1_000, seed=3)
    for n_rows, ranks in ((999, 5 * np.arange(1, 200)), (5, np.arange(1, 6))):
        model = ConformalForest(calibrated.forest_).calibrate(X[:n_rows], y[:n_rows])
        values = np.sort(pit(y[:n_rows], calibrated.forest_.predict_distribution(X[:n_rows])))
        np.testing.assert_array_equal(model.knots_, values[ranks - 1])


def test_levels_between_two_values_are_rounded_outward(calibrated):
    """With 250 rows, a level of 0.005 is between the first and the second value."""
    X, y = stream(250, seed=3)
    model = ConformalForest(calibrated.forest_).calibrate(X, y)
    values = np.sort(pit(y, calibrated.forest_.predict_distribution(X)))
    np.testing.assert_array_equal(model.knots_[[0, 1, 2, -2, -1]], values[[0, 1, 2, 248, 249]])


def test_labels_far_from_all_that_is_expected_stay_inside():
    """Their cdf rounds to 1, and no quantile of that level is finite."""
    X, y = stream(400)
    model = forest().fit(X[:200], y[:200])
    far = np.where(np.arange(200) % 2, 1e6, -1e6)
    for labels in (y[200:] + 1e6, y[200:] - 1e6, far):
        calibrated = ConformalForest(model).calibrate(X[200:], labels)
        lower, upper = calibrated.predict_interval(X[200:], 0.5).T
        assert np.mean((lower <= labels) & (labels <= upper)) >= 0.5
        assert not np.isnan(calibrated.predict_quantiles(X[200:], LEVEL)).any()
        scores = summary(labels, calibrated.predict_distribution(X[200:]))
        assert not np.isnan([scores["width_90"], scores["crps"]]).any()


def test_an_error_changes_nothing():
    X, y = stream(200)
    model = ConformalForest(forest(), random_state=0).fit(X, y)
    before = model.forest_, model.knots_, model.predict_interval(X)
    for bad in (np.full(200, np.nan), y[:50], ["a"] * 200, y * np.inf, np.ma.masked_less(y, 1.0)):
        for act in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=r"y|label|number|sample|mask"):
                act(X, bad)
        with pytest.raises(ValueError, match=r"y|label|number|sample|mask"):
            ConformalForest(model.forest_).calibrate(X, bad)
    assert model.forest_ is before[0]
    assert model.knots_ is before[1]
    np.testing.assert_array_equal(model.predict_interval(X), before[2])
    fresh = ConformalForest(forest())
    with pytest.raises(ValueError, match="NaN"):
        fresh.fit(X, np.full(200, np.nan))
    assert not hasattr(fresh, "forest_")


def test_the_calibrated_distribution_is_consistent(calibrated):
    X, _ = stream(20, seed=4)
    found = calibrated.predict_distribution(X)
    levels = np.array([0.001, 0.0371, 0.25, 0.5, 0.9, 0.999])
    quantiles = found.quantile(levels)
    assert (np.diff(quantiles, axis=1) > 0).all()
    for level, quantile in zip(levels, quantiles.T, strict=True):
        np.testing.assert_allclose(found.cdf(quantile), level, atol=1e-7)
    np.testing.assert_allclose(found.interval(0.9), found.quantile([0.05, 0.95]), rtol=1e-12)
    between = found.interval(0.903)  # outward to the next calibrated levels
    np.testing.assert_allclose(between, found.quantile([0.045, 0.955]), rtol=1e-12)
    grid = np.linspace(-30, 30, 200_001)
    one = found[np.zeros(len(grid), dtype=int)]
    density = one.pdf(grid)
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=1e-3)
    mean = (grid * density).sum() * step
    assert found.mean()[0] == pytest.approx(mean, abs=0.02)
    assert found.std()[0] == pytest.approx(
        np.sqrt(((grid - mean) ** 2 * density).sum() * step), rel=0.1
    )
    y = 0.3
    expected = ((one.cdf(grid) - (grid >= y)) ** 2).sum() * step
    assert found.crps(y)[0] == pytest.approx(expected, rel=0.02)
    assert len(found[3:5]) == 2
    np.testing.assert_array_equal(found[3:5].quantile(0.4), found.quantile(0.4)[3:5])
    assert repr(found) == "<CalibratedDistribution of 20 rows>"


def test_knots_on_the_diagonal_change_nothing():
    X, y = stream(300)
    own = forest().fit(X, y).predict_distribution(X[:50])
    same = CalibratedDistribution(own, np.arange(1, 200) / 200)
    levels = [0.01, 0.3, 0.5, 0.99]
    np.testing.assert_allclose(same.quantile(levels), own.quantile(levels), rtol=1e-7)
    np.testing.assert_allclose(same.logpdf(y[:50]), own.logpdf(y[:50]), atol=1e-9)
    np.testing.assert_allclose(same.crps(y[:50]), own.crps(y[:50]), rtol=0.02)


def coverage_of_stream(model, X, y, chunk=50):
    inside = []
    for start in range(0, len(y), chunk):
        rows = slice(start, start + chunk)
        values = model.predict_distribution(X[rows]).cdf(y[rows])
        inside.append(np.abs(values - 0.5)[:, None] <= 0.5 * LEVEL)
        model.partial_fit(X[rows], y[rows])
    return np.concatenate(inside)


def test_a_drifting_stream_is_followed():
    """The noise grows fourfold halfway: what was calibrated is not, unless it adapts."""
    X, y = stream(9_000)
    y[5_000:] = stream(9_000, noise=1.2)[1][5_000:]
    fixed = ConformalForest(forest(), random_state=0).fit(X[:1_000], y[:1_000])
    late = slice(7_000, None)
    error_of_fixed = calibration_table(y[late], fixed.predict_distribution(X[late])).worst
    model = clone(fixed).set_params(step=0.01).fit(X[:1_000], y[:1_000])
    inside = coverage_of_stream(model, X[1_000:], y[1_000:])
    assert error_of_fixed > 0.2
    assert np.abs(inside.mean(axis=0) - LEVEL).max() < 0.03
    assert np.abs(inside[-2_000:].mean(axis=0) - LEVEL).max() < 0.04


def test_the_long_run_coverage_of_each_end_is_bounded_for_any_stream():
    """Labels chosen by an adversary, who knows the intervals."""
    X, y = stream(2_000)
    model = ConformalForest(forest(), step=0.05).partial_fit(X[:100], y[:100])
    k = 20  # the level of a tenth
    below = []
    for row in range(100, 600):
        rows = slice(row, row + 1)
        knot = model.knots_[k - 1]
        label = model.forest_.predict_quantiles(X[rows], np.clip(knot - 0.01, 1e-6, 0.99))
        value = pit(label, model.forest_.predict_distribution(X[rows]))
        below.append(value[0] <= knot)
        model.partial_fit(X[rows], label)
    assert abs(np.mean(below) - k / 200) <= 1.05 / (0.05 * len(below)) + 1e-9


def test_a_stream_from_nothing_starts_with_the_forests_own_levels():
    X, y = stream(3_000)
    model = ConformalForest(forest(), step=0.01).partial_fit(X[:50], y[:50])
    np.testing.assert_allclose(model.knots_, np.arange(1, 200) / 200)
    inside = coverage_of_stream(model, X[50:], y[50:])
    assert np.abs(inside[-1_500:].mean(axis=0) - LEVEL).max() < 0.05
    assert model.forest_.n_samples_seen_ == 3_000


def test_it_is_a_scikit_learn_estimator():
    X, y = stream(300)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = ConformalForest(forest(), random_state=0)
    assert clone(model).get_params()["estimator__n_estimators"] == 5
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(table, y)
    assert model.n_features_in_ == 3
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.forest_.n_samples_seen_ == 240
    np.testing.assert_array_equal(model.predict(table), model.forest_.predict(table))
    assert model.score(table, y) > 0.3
    assert cross_val_score(model, X, y, scoring=neg_crps, cv=3).shape == (3,)
    assert set(summary(y, model.predict_distribution(table))) >= {"nlpd", "crps"}
    assert ConformalForest(random_state=0).fit(X, y).forest_.n_estimators == 25


def test_bad_input_is_explained():
    X, y = stream(100)
    with pytest.raises(ValueError, match="calibrate needs a fitted forest"):
        ConformalForest().calibrate(X, y)
    with pytest.raises(NotFittedError):
        ConformalForest(forest()).calibrate(X, y)
    model = ConformalForest(forest().fit(X, y))
    with pytest.raises(ValueError, match="y contains NaN"):
        model.calibrate(X, np.where(y > y.mean(), np.nan, y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.calibrate(X, y[:50])
    for share in (0.0, 1.0, 2, None, "half"):
        with pytest.raises(ValueError, match="calibration_share must be a number between 0 and 1"):
            ConformalForest(forest(), calibration_share=share).fit(X, y)
    with pytest.raises(TypeError, match="must be a MondrianForestRegressor, got LinearRegression"):
        ConformalForest(LinearRegression()).fit(X, y)
    with pytest.raises(ValueError, match="at least 2 rows"):
        ConformalForest(forest()).fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="requires y"):
        ConformalForest(forest()).fit(X, None)
    found = model.calibrate(X, y).predict_distribution(X)
    with pytest.raises(ValueError, match="one value for each of the 100 rows"):
        found.crps(y[:3])
    with pytest.raises(ValueError, match="knots must be a list of finite numbers"):
        CalibratedDistribution(forest().fit(X, y).predict_distribution(X), [np.nan])
    model.calibrate(X, y)
    with pytest.raises(ValueError, match="level must be a number from 0 to 1"):
        model.predict_interval(X, 90)
    with pytest.raises(ValueError, match="q must be"):
        model.predict_quantiles(X, [0.5, 1.5])
    with pytest.raises(ValueError, match="step must be a number between 0 and 1"):
        model.set_params(step=0.0).partial_fit(X, y)
