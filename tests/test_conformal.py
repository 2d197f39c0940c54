"""Coverage of calibrated intervals: what is guaranteed, and what happens in streams."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from mondrian_forest import CalibratedDistribution, ConformalForest, HierarchicalPosterior
from mondrian_forest._core.mixtures.mixture import Mixture
from mondrian_forest._core.mixtures.reduce import ForestMoments
from mondrian_forest.distribution import PredictiveDistribution
from mondrian_forest.metrics import LEVELS, calibration_table, neg_crps, pit, summary
from trees import paper_forest

LEVEL = np.array(LEVELS)


def stream(n_rows, seed=0, noise=0.3):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + noise * generator.standard_t(3, n_rows)


def forest(**parameters):
    return paper_forest(5, random_state=0, **parameters)


@pytest.fixture(scope="module")
def calibrated():
    X, y = stream(6_000)
    # Far more than the true noise: intervals are too wide.
    model = forest(posterior=HierarchicalPosterior(noise_variance=2.0))
    return ConformalForest(model, calibration_share=0.5, random_state=0).fit(X, y)


def test_calibration_corrects_the_coverage_of_a_wrong_forest(calibrated):
    X, y = stream(20_000, seed=1)
    before = calibration_table(y, calibrated.forest_.predict_distribution(X))
    after = calibration_table(y, calibrated.predict_distribution(X))
    assert before.worst > 0.2
    # Four standard deviations of the coverage with 3,000 held-out rows and 20,000 test rows.
    assert after.worst < 4 * 0.5 * np.sqrt(1 / 3_000 + 1 / 20_000)


@pytest.mark.parametrize("use", ["subtract", "feature", "both"])
def test_intervals_around_a_mean_function_cover(use):
    X, y = stream(6_000)
    around = forest(mean_function="linear", mean_use=use)
    model = ConformalForest(around, random_state=0).fit(X[:4_000], y[:4_000])
    low, high = model.predict_interval(X[4_000:], 0.8).T
    assert 0.75 < np.mean((low <= y[4_000:]) & (y[4_000:] <= high)) < 0.85


def test_coverage_is_exact_on_average_over_calibration_sets():
    """The finite-sample guarantee: with 19 held-out rows the coverage of 90% is exact."""
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


def test_intervals_are_infinite_with_too_few_held_out_rows():
    X, y = stream(300)
    model = forest().fit(X[:200], y[:200])
    calibrated = ConformalForest(model).calibrate(X[200:210], y[200:210])
    np.testing.assert_array_equal(calibrated.predict_interval(X[:3], 0.9), [[-np.inf, np.inf]] * 3)
    assert np.isfinite(calibrated.predict_interval(X[:3], 0.8)).all()
    assert np.isfinite(calibrated.predict_quantiles(X[:3], [0.01, 0.99])).all()
    assert summary(y[:3], calibrated.predict_distribution(X[:3]))["width_90"] == np.inf


def test_a_level_of_999_in_1000_needs_1999_held_out_rows(calibrated):
    X, y = stream(2_000, seed=3)
    for n_rows, is_enough in ((1_999, True), (1_998, False)):
        model = ConformalForest(calibrated.forest_).calibrate(X[:n_rows], y[:n_rows])
        assert np.isfinite(model.predict_interval(X[:3], 0.999)).all() == is_enough


@pytest.mark.parametrize(
    ("n_rows", "level", "ranks"),
    [(999, 0.9, (50, 950)), (19, 0.9, (1, 19)), (250, 0.99, (1, 250)), (250, 0.5, (62, 189))],
)
def test_ends_of_intervals_are_quantiles_at_order_statistics_rounded_outward(
    calibrated, n_rows, level, ranks
):
    X, y = stream(n_rows, seed=3)
    model = ConformalForest(calibrated.forest_).calibrate(X, y)
    values = np.sort(pit(y, calibrated.forest_.predict_distribution(X)))
    np.testing.assert_array_equal(
        model.predict_interval(X[:5], level),
        calibrated.forest_.predict_quantiles(X[:5], values[np.array(ranks) - 1]),
    )


def test_labels_far_outside_of_the_prediction_are_covered():
    """Their cdf is 1 up to rounding errors, and no quantile of that level is finite."""
    X, y = stream(400)
    model = paper_forest(6, random_state=0).fit(X[:200], y[:200])
    far = np.where(np.arange(200) % 2, 1e6, -1e6)
    some = np.where(np.arange(200) % 10, y[200:], 1e6)
    for labels in (y[200:] + 1e6, y[200:] - 1e6, far, some):
        calibrated = ConformalForest(model).calibrate(X[200:], labels)
        for level in (0.5, 0.9):
            lower, upper = calibrated.predict_interval(X[200:], level).T
            inside = (lower <= labels) & (labels <= upper)
            assert inside.mean() >= level - 0.01
            found = calibrated.predict_distribution(X[200:])
            assert (found.covers(labels, level)[:, 0] != inside).sum() <= 2  # labels at an end
        assert not np.isnan(calibrated.predict_quantiles(X[200:], LEVEL)).any()
        scores = summary(labels, found)
        assert not np.isnan([scores["width_90"], scores["crps"]]).any()
        assert scores["nlpd"] > 0


def test_an_error_leaves_the_calibration_unchanged():
    X, y = stream(200)
    model = ConformalForest(forest(), random_state=0).fit(X, y)
    before = model.forest_, model.reference_, model.predict_interval(X)
    for bad in (
        np.full(200, np.nan),
        y[:50],
        np.where(y > 0, np.inf, y),
        np.ma.masked_less(y, 1.0),
    ):
        for act in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=r"y|label|number|sample|mask"):
                act(X, bad)
        with pytest.raises(ValueError, match=r"y|label|number|sample|mask"):
            ConformalForest(model.forest_).calibrate(X, bad)
    assert model.forest_ is before[0]
    assert model.reference_ is before[1]
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
    np.testing.assert_allclose(found.interval(0.9), found.quantile([0.05, 0.95]), atol=0.02)
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


def test_uniform_reference_values_leave_the_distribution_unchanged():
    X, y = stream(300)
    own = forest().fit(X, y).predict_distribution(X[:50])
    same = CalibratedDistribution(own, np.arange(1, 10_000) / 10_000)
    levels = [0.01, 0.3, 0.5, 0.99]
    np.testing.assert_allclose(same.quantile(levels), own.quantile(levels), rtol=1e-7)
    np.testing.assert_allclose(same.interval(0.9), own.interval(0.9), rtol=1e-7)
    np.testing.assert_allclose(same.logpdf(y[:50]), own.logpdf(y[:50]), atol=1e-9)
    np.testing.assert_allclose(same.crps(y[:50]), own.crps(y[:50]), rtol=0.02)


@pytest.mark.parametrize("n_rows", [30, 100, 300, 2_000])
def test_calibrating_a_calibrated_forest_costs_little_log_score(n_rows):
    """The density has few cells. One cell for each reference value would cost 0.4 nats."""
    generator = np.random.default_rng(0)
    own = forest().fit(*stream(300)).predict_distribution(stream(500, seed=1)[0])
    labels = own.sample(1, random_state=0)[:, 0]
    losses = [
        (own.logpdf(labels) - CalibratedDistribution(own, values).logpdf(labels)).mean()
        for values in generator.random((20, n_rows))
    ]
    assert -0.01 < np.mean(losses) < 0.06


def coverage_of_stream(model, X, y, chunk=50):
    """Return whether labels are inside the intervals predicted before they are learned."""
    inside = []
    for start in range(0, len(y), chunk):
        rows = slice(start, start + chunk)
        ends = [model.predict_interval(X[rows], level).T for level in LEVELS]
        inside.append(np.stack([(a <= y[rows]) & (y[rows] <= b) for a, b in ends], axis=1))
        model.partial_fit(X[rows], y[rows])
    return np.concatenate(inside)


def test_coverage_follows_a_drifting_stream():
    """The noise grows fourfold halfway through, so a fixed calibration becomes wrong."""
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


@pytest.mark.parametrize(("chunk", "step"), [(1, 0.02), (10, 0.01), (150, 0.005), (500, 0.005)])
def test_the_error_of_the_long_run_coverage_is_bounded(chunk, step):
    """Even if an adversary sees the intervals and places labels just outside of one end."""
    X, y = stream(3_000)
    model = ConformalForest(
        forest(posterior=HierarchicalPosterior(noise_variance=5.0)), step=step
    ).partial_fit(X[:300], y[:300])
    generator = np.random.default_rng(0)
    below, above = [], []
    for start in range(300, 3_000, chunk):
        rows = slice(start, start + chunk)
        lower, upper = model.predict_interval(X[rows], 0.8).T
        labels = y[rows]
        if start >= 1_500:
            mean = model.predict(X[rows])
            labels = np.where(np.isfinite(upper), upper + 0.01, mean)
            labels = np.where(generator.random(len(mean)) < 0.5, labels, mean)
        below.append(labels < lower)
        above.append(labels > upper)
        model.partial_fit(X[rows], labels)
    gain = min(step * chunk, 1.0)
    bound = (1 + gain) / (gain * (2_700 / chunk))
    for misses in (below, above):
        assert abs(np.concatenate(misses).mean() - 0.1) <= bound


def test_a_stream_corrects_intervals_that_are_too_wide():
    """Gains are near one and PIT values near 1/2, yet the levels must keep their order."""
    X, y = stream(12_000)
    model = ConformalForest(
        forest(posterior=HierarchicalPosterior(noise_variance=5.0))
    ).partial_fit(X[:200], y[:200])
    inside = coverage_of_stream(model, X[200:], y[200:], chunk=200)
    assert np.abs(inside[-8_000:].mean(axis=0) - LEVEL).max() < 0.02


def test_a_stream_without_a_fit_starts_with_the_levels_of_the_forest():
    X, y = stream(3_000)
    model = ConformalForest(forest(), step=0.01).partial_fit(X[:50], y[:50])
    np.testing.assert_allclose(
        model.predict_interval(X[:5], 0.9), model.forest_.predict_interval(X[:5], 0.9)
    )
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
    assert ConformalForest(random_state=0).fit(X, y).forest_.n_estimators == 50


def test_the_message_names_what_is_wrong():
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
        with pytest.raises(ValueError, match="calibration_share must be a number above 0"):
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
    own = forest().fit(X, y).predict_distribution(X)
    for reference in ([np.nan], [2.0], [[0.5]]):
        with pytest.raises(ValueError, match="reference must be a list of numbers from 0 to 1"):
            CalibratedDistribution(own, reference)
    with pytest.raises(ValueError, match="ranks must be 199 finite numbers"):
        CalibratedDistribution(own, [0.5], [0.5])
    with pytest.raises(ValueError, match="call calibrate before partial_fit"):
        ConformalForest(forest().fit(X, y)).partial_fit(X, y)
    model.calibrate(X, y)
    with pytest.raises(ValueError, match="level must be a number from 0 to 1"):
        model.predict_interval(X, 90)
    with pytest.raises(ValueError, match="q must be"):
        model.predict_quantiles(X, [0.5, 1.5])
    with pytest.raises(ValueError, match="step must be a number above 0 and below 1"):
        model.set_params(step=0.0).partial_fit(X, y)


def test_moments_are_right_where_float64_has_no_number_between_quantiles():
    place = 1e16 + 2.0
    mixture = Mixture(*(np.array(part) for part in ([0, 1], [1.0], [place], [1e-3])))
    moments = ForestMoments(*np.array([[place], [1e-6], [0.0], [0.0], [0.0]]))
    calibrated = CalibratedDistribution(PredictiveDistribution(mixture, moments), [])
    # Quantiles of levels up to 1/2 are this number. All others are the next number of float64.
    assert calibrated.var() == pytest.approx(1.0)
    assert calibrated.mean()[0] in (place, place + 2.0)
