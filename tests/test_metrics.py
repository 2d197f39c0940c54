"""Scores of predictive distributions and of pairs (mean, std), and scorers for scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.metrics import mean_pinball_loss, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mondrian_forest import HierarchicalPosterior, MondrianForestRegressor, metrics


@pytest.fixture(scope="module")
def data():
    X, y = load_diabetes(return_X_y=True)
    forest = MondrianForestRegressor(5, random_state=0).fit(X[:300], y[:300])
    return y[300:], forest.predict_distribution(X[300:])


@pytest.fixture(scope="module")
def gaussians():
    generator = np.random.default_rng(0)
    mean, std = generator.normal(size=500), generator.uniform(0.5, 2.0, 500)
    return mean + std * generator.standard_normal(500), mean, std


def test_a_score_is_the_mean_of_the_scores_of_all_rows(data):
    y, found = data
    assert metrics.nlpd(y, found) == pytest.approx(-found.logpdf(y).mean())
    assert metrics.crps(y, found) == pytest.approx(found.crps(y).mean())
    assert metrics.rmse(y, found) == pytest.approx(root_mean_squared_error(y, found.mean()))
    assert metrics.pinball_loss(y, found, 0.3) == pytest.approx(
        mean_pinball_loss(y, found.quantile(0.3), alpha=0.3)
    )
    assert metrics.sharpness(found, 0.8) == pytest.approx(np.diff(found.interval(0.8)).mean())
    np.testing.assert_array_equal(metrics.pit(y, found), found.cdf(y))


def test_a_pair_of_mean_and_std_is_scored_as_gaussians(gaussians):
    y, mean, std = gaussians
    pair = mean, std
    assert metrics.nlpd(y, pair) == pytest.approx(-stats.norm.logpdf(y, mean, std).mean())
    assert metrics.rmse(y, pair) == pytest.approx(root_mean_squared_error(y, mean))
    np.testing.assert_allclose(metrics.pit(y, pair), stats.norm.cdf(y, mean, std))
    assert metrics.sharpness(pair, 0.9) == pytest.approx(2 * stats.norm.ppf(0.95) * std.mean())
    assert metrics.pinball_loss(y, pair, 0.7) == pytest.approx(
        mean_pinball_loss(y, stats.norm.ppf(0.7, mean, std), alpha=0.7)
    )


def test_crps_of_a_gaussian_is_the_integral_that_defines_it(gaussians):
    y, mean, std = (part[:5] for part in gaussians)
    expected = [
        integrate.quad(lambda t, i=i: stats.norm.cdf(t, mean[i], std[i]) ** 2, -40, y[i])[0]
        + integrate.quad(lambda t, i=i: stats.norm.sf(t, mean[i], std[i]) ** 2, y[i], 40)[0]
        for i in range(5)
    ]
    assert metrics.crps(y, (mean, std)) == pytest.approx(np.mean(expected), rel=1e-6)


def test_the_calibration_table_counts_labels_inside_intervals(data):
    y, found = data
    own = metrics.calibration_table(y, found)
    gaussian = metrics.calibration_table(y, found, gaussian=True)
    np.testing.assert_allclose(own.level, np.arange(1, 10) / 10)
    for row, level in enumerate(own.level):
        lower, upper = found.interval(level).T
        assert own.observed[row] == np.mean((lower <= y) & (y <= upper))
        half = stats.norm.ppf(0.5 + level / 2) * found.std()
        assert gaussian.observed[row] == np.mean(np.abs(y - found.mean()) <= half)
    np.testing.assert_allclose(own.difference, own.observed - own.level)
    assert own.worst == np.abs(own.difference).max()
    assert not np.array_equal(own.observed, gaussian.observed)


def test_calibrated_and_narrow_predictions_are_told_apart():
    y = np.random.default_rng(0).normal(size=100_000)
    exact = (np.zeros(100_000), np.ones(100_000))
    assert metrics.calibration_table(y, exact).worst < 0.006
    narrow = metrics.calibration_table(y, (exact[0], 0.5 * exact[1]))
    assert (narrow.difference < -0.04).all()
    assert stats.kstest(metrics.pit(y, exact), "uniform").pvalue > 0.01


def test_the_summary_holds_all_scores(data):
    y, found = data
    scores = metrics.summary(y, found)
    assert scores == {
        "rmse": metrics.rmse(y, found),
        "nlpd": metrics.nlpd(y, found),
        "crps": metrics.crps(y, found),
        "coverage_90": metrics.calibration_table(y, found, [0.9]).observed[0],
        "width_90": metrics.sharpness(found, 0.9),
        "worst_coverage_error": metrics.calibration_table(y, found).worst,
    }
    assert all(type(score) is float for score in scores.values())


def test_scorers_work_with_searches_and_pipelines():
    X, y = load_diabetes(return_X_y=True)
    forest = MondrianForestRegressor(3, posterior=HierarchicalPosterior(), random_state=0)
    plain = cross_val_score(forest, X, y, scoring=metrics.neg_nlpd, cv=3)
    scaled = make_pipeline(StandardScaler(), forest)
    np.testing.assert_allclose(
        cross_val_score(scaled, X, y, scoring=metrics.neg_nlpd, cv=3), plain, rtol=1e-3
    )
    search = GridSearchCV(
        scaled,
        {"mondrianforestregressor__posterior__prior_rate": [0.01, 1.0]},
        scoring={"nlpd": metrics.neg_nlpd, "crps": metrics.neg_crps},
        refit="crps",
        cv=3,
    )
    nested = cross_validate(search, X, y, scoring=metrics.neg_crps, cv=2, error_score="raise")
    assert (nested["test_score"] < 0).all()


def test_scorers_accept_other_models_that_predict_std():
    X, y = load_diabetes(return_X_y=True)
    process = GaussianProcessRegressor(normalize_y=True, alpha=0.5).fit(X[:100], y[:100])
    mean, std = process.predict(X[100:150], return_std=True)
    assert metrics.neg_nlpd(process, X[100:150], y[100:150]) == pytest.approx(
        stats.norm.logpdf(y[100:150], mean, std).mean()
    )
    for other in (RandomForestRegressor(2), TransformedTargetRegressor(MondrianForestRegressor(2))):
        with pytest.raises(TypeError, match="predicts no uncertainty"):
            metrics.neg_crps(other.fit(X, y), X, y)
    with pytest.raises(NotFittedError):
        metrics.neg_crps(GridSearchCV(MondrianForestRegressor(), {}), X, y)


def test_a_pipeline_of_one_step_scores_as_that_step():
    X, y = load_diabetes(return_X_y=True)
    alone = make_pipeline(MondrianForestRegressor(2, random_state=0)).fit(X, y)
    assert metrics.neg_crps(alone, X, y) == metrics.neg_crps(alone[-1], X, y)


def test_labels_may_be_a_table_of_one_column_or_objects(data):
    y, found = data
    for labels in (y[:, None], pd.DataFrame({"y": y}), y.astype(object), pd.Series(y), list(y)):
        assert metrics.crps(labels, found) == metrics.crps(y, found)


@pytest.mark.parametrize(
    ("labels", "prediction", "message"),
    [
        ([1.0, 2.0], ([0.0], [1.0]), "y_true must have one value for each of the 1 rows"),
        ([[1.0, 2.0]], ([0.0], [1.0]), "y_true must have one value"),
        (["a"], ([0.0], [1.0]), "y_true must be numbers"),
        ([np.nan], ([0.0], [1.0]), "y_true must be finite"),
        ([], ([], []), "no rows to score"),
        ([1.0], ([0.0], [0.0]), "std must be positive, got 0"),
        ([1.0], ([0.0], [-1.0]), "std must be positive"),
        ([1.0], ([np.nan], [1.0]), "must be finite"),
        ([1.0], ([0.0], [1.0, 1.0]), "mean and std must have one value"),
        ([1.0], ([0.0], [1.0], [2.0]), r"a pair \(mean, std\), got 3"),
    ],
)
def test_the_message_names_what_is_wrong_with_labels_or_prediction(labels, prediction, message):
    for score in (metrics.rmse, metrics.nlpd, metrics.crps, metrics.pit, metrics.summary):
        with pytest.raises(ValueError, match=message):
            score(labels, prediction)


def test_an_array_is_refused_as_a_prediction():
    with pytest.raises(TypeError, match="must be a PredictiveDistribution or a pair"):
        metrics.nlpd([1.0], np.array([1.0]))


@pytest.mark.parametrize("q", [1.5, 0, 1, True, "a", None, np.array([0.5])])
def test_invalid_levels_of_quantiles_are_refused(q):
    with pytest.raises(ValueError, match="q must be a number above 0 and below 1"):
        metrics.pinball_loss([1.0], ([0.0], [1.0]), q)


def test_invalid_levels_of_intervals_are_refused():
    with pytest.raises(ValueError, match="levels must have at least one number"):
        metrics.calibration_table([1.0], ([0.0], [1.0]), [])
    for levels in ([50, 90], [[0.5]], ["0.5"], [np.nan]):
        with pytest.raises(ValueError, match=r"levels must be .* numbers from 0 to 1"):
            metrics.calibration_table([1.0], ([0.0], [1.0]), levels)
    with pytest.raises(ValueError, match="level must be a number from 0 to 1"):
        metrics.sharpness(([0.0], [1.0]), -0.1)


def test_the_sharpness_of_no_rows_is_refused():
    with pytest.raises(ValueError, match="no rows to score"):
        metrics.sharpness(([], []))


def test_labels_that_are_not_numbers_are_refused():
    for labels in ([1j], [[1], [2, 3]], ["1.0"]):
        with pytest.raises(ValueError, match="y_true must be numbers"):
            metrics.crps(labels, ([0.0], [1.0]))
    with pytest.raises(ValueError, match="y_true has masked entries"):
        metrics.crps(np.ma.masked_array([1.0], [True]), ([0.0], [1.0]))
    for day in (np.datetime64("2020"), np.timedelta64(1, "D")):
        for labels in ([day], np.array([day]), np.array([day], dtype=object)):
            with pytest.raises(ValueError, match="y_true has dates or times"):
                metrics.crps(labels, ([0.0], [1.0]))


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_rmse_is_right_where_squares_leave_the_range_of_float64(size):
    labels = size * np.array([3.0, -4.0, 0.0])
    prediction = np.zeros(3), np.full(3, size)
    assert metrics.rmse(labels, prediction) == pytest.approx(size * np.sqrt(25 / 3), rel=1e-15)
    assert metrics.rmse(np.zeros(3), prediction) == 0.0
