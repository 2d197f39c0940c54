"""Scores of predictive distributions and of pairs (mean, std), and scorers for scikit-learn."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import integrate, stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.inspection import permutation_importance as permutation_importance_of_sklearn
from sklearn.metrics import mean_pinball_loss, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from houses import houses
from mondrian_forest import (
    PAPER,
    ConformalForest,
    HierarchicalPosterior,
    MondrianForestRegressor,
    metrics,
)
from mondrian_forest.metrics import permutation_importance
from mondrian_forest.tables import TableForest


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


@pytest.fixture(scope="module")
def known():
    """Rows of a strong, a noise and a weak feature, labels, and a forest of the first 300 rows."""
    random = np.random.default_rng(0)
    X = random.random((500, 3))
    y = np.sin(6 * X[:, 0]) + 0.5 * X[:, 2] + 0.1 * random.normal(size=500)
    return X, y, MondrianForestRegressor(10, random_state=0).fit(X[:300], y[:300])


@pytest.mark.parametrize("max_rows", [100, 1000], ids=["a sample", "all rows"])
def test_a_noise_column_has_no_importance_and_the_strongest_has_the_largest(known, max_rows):
    X, y, forest = known
    found = permutation_importance(forest, X[300:], y[300:], max_rows=max_rows, random_state=0)
    strong, noise, weak = found.importances_mean
    assert abs(noise) < 0.005
    assert 0.03 < weak < 0.2
    assert 0.3 < strong < 0.9


def test_importances_on_rows_that_were_learned_flatter_a_noise_column():
    random = np.random.default_rng(0)
    X = random.random((200, 2))
    y = X[:, 0] + 0.5 * random.normal(size=200)
    parameters = PAPER | {"min_samples_split": 2}  # learns its rows by heart
    forest = MondrianForestRegressor(10, **parameters, random_state=0).fit(X[:100], y[:100])
    learned = permutation_importance(forest, X[:100], y[:100], random_state=0)
    new = permutation_importance(forest, X[100:], y[100:], random_state=0)
    assert learned.importances_mean[1] > 0.2
    assert abs(new.importances_mean[1]) < 0.02


def test_a_feature_that_only_changes_the_shape_of_the_distribution_is_important():
    random = np.random.default_rng(0)
    X = random.random((2000, 2))
    y = np.where(X[:, 0] > 0.5, random.choice([-5.0, 5.0], 2000), random.normal(0.0, 5.0, 2000))
    forest = MondrianForestRegressor(20, random_state=0).fit(X[:1000], y[:1000])
    shape, noise = permutation_importance(forest, X[1000:], y[1000:], random_state=0).importances
    assert shape.mean() > 0.05
    assert shape.min() > 3 * np.abs(noise).max()


def test_importances_are_nearly_those_of_scikit_learn_with_the_exact_score(known):
    X, y, forest = known
    own = permutation_importance(forest, X[300:], y[300:], n_repeats=20, random_state=0)
    other = permutation_importance_of_sklearn(
        forest, X[300:], y[300:], scoring=metrics.neg_crps, n_repeats=20, random_state=0
    )
    np.testing.assert_allclose(own.importances_mean, other.importances_mean, rtol=0.05, atol=0.003)


def test_importances_have_a_row_for_each_feature_and_a_column_for_each_repeat(known):
    X, y, forest = known
    found = permutation_importance(forest, X[300:], y[300:], n_repeats=4, random_state=0)
    assert found.importances.shape == (3, 4)
    np.testing.assert_allclose(found.importances_mean, found.importances.mean(axis=1))
    np.testing.assert_allclose(found.importances_std, found.importances.std(axis=1))
    assert (found.importances_std > 0.0).all()


def test_the_random_state_decides_how_columns_are_shuffled_and_which_rows_are_used(known):
    X, y, forest = known

    def found(random_state, **parameters):
        rows = X[300:], y[300:]
        return permutation_importance(forest, *rows, random_state=random_state, **parameters)[2]

    for parameters in ({}, {"max_rows": 50}):
        np.testing.assert_array_equal(found(1, **parameters), found(1, **parameters))
        assert not np.array_equal(found(1, **parameters), found(2, **parameters))
    assert not np.allclose(found(1), found(1, max_rows=50), rtol=0.01)


def test_no_more_rows_than_asked_for_are_predicted(known):
    X, y, forest = known
    sizes = []

    class Counting:
        def predict_distribution(self, rows):
            sizes.append(len(rows))
            assert {tuple(row) for row in rows[:, :1]} <= {tuple(row) for row in X[:, :1]}
            return forest.predict_distribution(rows)

    permutation_importance(Counting(), X, y, n_repeats=2, max_rows=40)
    assert sizes == [40] * 7


@pytest.mark.parametrize("max_rows", [100, 1000], ids=["a sample", "all rows"])
@pytest.mark.parametrize(
    "table_of",
    [
        lambda X: pd.DataFrame(X, columns=list("abc"), index=np.arange(len(X)) % 7),
        lambda X: pl.DataFrame(X, schema=list("abc")),
        lambda X: pa.table(dict(zip("abc", X.T, strict=True))),
        lambda X: X.tolist(),
    ],
    ids=["pandas", "polars", "arrow", "lists"],
)
def test_a_table_has_the_importances_of_its_array_and_stays_as_it_is(known, table_of, max_rows):
    X, y, plain = known
    table = table_of(X[300:])
    forest = MondrianForestRegressor(10, random_state=0).fit(table_of(X[:300]), y[:300])
    parameters = {"n_repeats": 2, "max_rows": max_rows, "random_state": 0}
    found = permutation_importance(forest, table, pd.Series(y[300:]), **parameters)
    expected = permutation_importance(plain, X[300:], y[300:], **parameters)
    np.testing.assert_array_equal(found.importances, expected.importances)
    np.testing.assert_array_equal(np.asarray(table), X[300:])


def test_the_columns_that_a_pipeline_is_given_are_shuffled():
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"noise": random.choice(["x", "y"], 400), "town": random.choice(["A", "B", "C"], 400)}
    ).astype({"town": "category"})
    y = table["town"].cat.codes + 0.1 * random.normal(size=400)
    pipeline = make_pipeline(OrdinalEncoder(), MondrianForestRegressor(5, random_state=0))
    pipeline.fit(table[:200], y[:200])
    search = GridSearchCV(pipeline, {}, cv=2, scoring=metrics.neg_crps).fit(table[:200], y[:200])
    for fitted in (pipeline, search):
        noise, town = permutation_importance(fitted, table[200:], y[200:], random_state=0)[0]
        assert abs(noise) < 0.02
        assert town > 0.3


def test_a_table_forest_has_one_importance_for_each_column():
    table, new = houses(300, 0), houses(200, 1)
    new = pa.concat_tables([new.slice(0, 90), new.slice(90)])  # of two chunks
    model = TableForest.fit(
        table, "price", columns=["sold", "town", "area"], random_state=0, n_estimators=10
    )
    found = permutation_importance(model, new, new["price"].to_numpy(), random_state=0)
    rises = dict(zip(new.column_names, found.importances_mean, strict=True))
    assert rises["id"] == rises["garden"] == rises["price"] == 0.0  # it does not look at them
    assert abs(rises["sold"]) < 5.0
    assert min(rises["town"], rises["area"]) > 20.0


def test_other_models_that_predict_uncertainty_have_importances(known):
    X, y, _ = known
    process = GaussianProcessRegressor(alpha=0.02).fit(X[:100], y[:100])
    calibrated = ConformalForest(MondrianForestRegressor(5), random_state=0).fit(X[:300], y[:300])
    for model in (process, calibrated):
        found = permutation_importance(model, X[300:], y[300:], n_repeats=2, random_state=0)
        assert found.importances_mean.argmax() == 0
        assert abs(found.importances_mean[1]) < 0.05
    with pytest.raises(TypeError, match="predicts no uncertainty"):
        permutation_importance(RandomForestRegressor(2).fit(X, y), X, y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_repeats": 0}, "n_repeats must be an integer of at least 1, got 0"),
        ({"max_rows": 1}, "max_rows must be an integer of at least 2, got 1"),
        (
            {"y": [1.0, 2.0]},
            r"y must have one value for each of the 200 rows of X, got shape \(2,\)",
        ),
        ({"X": np.ones(200)}, r"X must have rows and columns, got shape \(200,\)"),
        ({"X": np.ones((200, 2))}, "X has 2 features"),
        ({"y": [np.nan] * 200}, "y_true must be finite"),
    ],
)
def test_importances_of_what_makes_no_sense_are_refused(known, changed, message):
    X, y, forest = known
    asked = {"X": X[300:], "y": y[300:]} | changed
    with pytest.raises(ValueError, match=message):
        permutation_importance(forest, asked.pop("X"), asked.pop("y"), **asked)
