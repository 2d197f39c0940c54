"""Bad input gets one clear sentence."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from mondrian_forest import HierarchicalPosterior, MondrianForestRegressor, PrunedPosterior

X = np.random.default_rng(0).random((30, 3))
Y = X.sum(axis=1)


def changed(array, value):
    copy = array.copy()
    copy[3] = value
    return copy


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (changed(X, np.nan), Y, "Input X contains NaN"),
        (changed(X, np.inf), Y, "Input X contains infinity"),
        (X, changed(Y, np.nan), "Input y contains NaN"),
        (X, changed(Y, -np.inf), "Input y contains infinity"),
        (np.full((30, 3), "red"), Y, "could not convert string to float|Unable to convert"),
        (pd.DataFrame({"a": ["x", "y"] * 15}), Y, "could not convert string to float"),
        (X, np.array(["a", "b"] * 15), "could not convert string to float"),
        (np.empty((0, 3)), np.empty(0), r"0 sample\(s\)"),
        (np.empty((30, 0)), Y, r"0 feature\(s\)"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X[0], Y, "Expected 2D array, got 1D array"),
        (X[None], Y, "Found array with dim 3"),
        (X, np.column_stack([Y, Y]), "predicts one target but y has 2 columns"),
        (scipy.sparse.csr_matrix(X), Y, "[Ss]parse data was passed"),
        (X + 1j, Y, "Complex data not supported"),
        (np.zeros((30, 2**15)), Y, "takes 32,767 features at most, got 32,768"),
        (X, None, "requires y to be passed, but the target y is None"),
        (X, 1e200 * Y, "y must not exceed 1e.150 in size"),
        (X, np.full(30, 1.7e308), "y must not exceed 1e.150 in size"),
        (X, [None, *Y[1:]], "Input y contains NaN"),
        (pd.DataFrame({"day": pd.date_range("2020", periods=30)}), Y, "X has dates or times"),
        (pl.DataFrame({"day": pd.date_range("2020", periods=30)}), Y, "X has dates or times"),
        (pa.table({"day": pd.date_range("2020", periods=30)}), Y, "X has dates or times"),
        (X, pd.Series(pd.date_range("2020", periods=30)), "y has dates or times"),
        (X.astype("datetime64[s]"), Y, "X has dates or times"),
        (np.ma.masked_greater(X, 0.9), Y, "X has masked entries"),
        (X, np.ma.masked_greater(Y, 1.9), "y has masked entries"),
        (X, 1e-200 * Y, "variance of y is too large or too small"),
    ],
)
def test_bad_training_data_is_refused(features, labels, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MondrianForestRegressor(2).fit(features, labels)


def objects(values):
    array = np.empty(len(values), object)
    for i, value in enumerate(values):
        array[i] = value
    return array


TIMES = {
    "date": datetime.date(2020, 1, 1),
    "datetime": datetime.datetime(2020, 1, 1),
    "time": datetime.time(12),
    "timedelta": datetime.timedelta(1),
    "Timestamp": pd.Timestamp("2020"),
    "Timedelta": pd.Timedelta(1, "D"),
    "Period": pd.Period("2020"),
    "NaT": pd.NaT,
    "datetime64": np.datetime64("2020"),
    "timedelta64": np.timedelta64(1, "D"),
    "array": np.array(np.datetime64("2020")),
}
CONTAINERS = {
    "array": lambda column: column[:, None],
    "list": lambda column: [[value] for value in column],
    "frame": lambda column: pd.DataFrame({"day": pd.Series(column, dtype=object)}),
    "labels": lambda column: column,
    "list of labels": list,
    "series of labels": lambda column: pd.Series(column, dtype=object),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("value", TIMES)
def test_dates_and_times_are_no_numbers_wherever_they_are(value, container):
    column = objects([*Y[1:], TIMES[value]])
    data = CONTAINERS[container](column)
    name, arguments = ("y", (X, data)) if "labels" in container else ("X", (data, Y))
    message = f"^{name} has dates or times: turn them into numbers first.$"
    with pytest.raises(ValueError, match=message):
        MondrianForestRegressor(2).fit(*arguments)
    if name == "X":
        forest = MondrianForestRegressor(2, random_state=0).fit(X[:, :1], Y)
        with pytest.raises(ValueError, match=message):
            forest.predict(data)


def test_categories_that_are_dates_are_no_numbers():
    days = pd.Series(pd.date_range("2020", periods=30)).astype("category")
    with pytest.raises(ValueError, match="y has dates or times"):
        MondrianForestRegressor(2).fit(X, days)
    with pytest.raises(ValueError, match="X has dates or times"):
        MondrianForestRegressor(2).fit(pd.DataFrame({"day": days}), Y)


def test_the_missing_value_of_pandas_is_named():
    column = objects([pd.NA, *Y[1:]])
    with pytest.raises(ValueError, match="X has missing values: fill them in"):
        MondrianForestRegressor(2).fit(column[:, None], Y)
    with pytest.raises(ValueError, match="y has missing values: fill them in"):
        MondrianForestRegressor(2).fit(X, column)


@pytest.mark.parametrize("kind", [Decimal, Fraction, np.float32, str, bool])
def test_objects_that_are_numbers_pass_as_scikit_learn_takes_them(kind):
    """Text of digits, too: scikit-learn's own estimators read it as the numbers that it means."""
    column = [kind(number) for number in range(30)]
    expected = MondrianForestRegressor(2, random_state=0).fit(
        np.array([float(value) for value in column])[:, None], Y
    )
    found = MondrianForestRegressor(2, random_state=0).fit(objects(column)[:, None], Y)
    np.testing.assert_array_equal(found.predict(X[:, :1]), expected.predict(X[:, :1]))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (changed(X, np.nan), "Input X contains NaN"),
        (changed(X, np.inf), "Input X contains infinity"),
        (np.full((3, 3), "red"), "could not convert string to float|Unable to convert"),
        (X[:, :2], "X has 2 features, but MondrianForestRegressor is expecting 3 features"),
        (X[0], "Expected 2D array, got 1D array"),
        (np.empty((0, 3)), r"0 sample\(s\)"),
        (scipy.sparse.csr_matrix(X), "[Ss]parse data was passed"),
    ],
)
@pytest.mark.parametrize(
    "method", ["predict", "predict_distribution", "predict_quantiles", "predict_interval", "apply"]
)
def test_bad_rows_are_refused(features, message, method):
    forest = MondrianForestRegressor(2, random_state=0).fit(X, Y)
    arguments = {"predict_quantiles": [0.5], "predict_interval": [0.9]}.get(method, [])
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(forest, method)(features, *arguments)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_estimators": 0}, "n_estimators must be an integer of at least 1, got 0"),
        ({"n_estimators": 2.5}, "n_estimators must be an integer of at least 1, got 2.5"),
        ({"n_estimators": True}, "n_estimators must be an integer of at least 1, got True"),
        (
            {"min_samples_split": 1},
            'min_samples_split must be "auto" or an integer of at least 2, got 1',
        ),
        ({"min_samples_split": None}, 'min_samples_split must be "auto" or an integer'),
        ({"min_samples_split": "many"}, 'min_samples_split must be "auto" or an integer'),
        ({"posterior": "student"}, "posterior must be one of 'pruned', 'hierarchical', "),
        (
            {"posterior": HierarchicalPosterior(prior_mean=np.nan)},
            "prior_mean must be a number or None, got nan",
        ),
        (
            {"posterior": HierarchicalPosterior(prior_mean="auto")},
            "prior_mean must be a number or None, got 'auto'",
        ),
        (
            {"posterior": HierarchicalPosterior(prior_mean=1e200)},
            "prior_mean is too far from y for float64, got 1e\\+200",
        ),
        (
            {"posterior": HierarchicalPosterior(prior_scale=0.0)},
            "prior_scale must be None or a positive number, .* got 0.0",
        ),
        (
            {"posterior": HierarchicalPosterior(prior_rate=-1.0)},
            "prior_rate must be None or a positive number, .* got -1.0",
        ),
        (
            {"posterior": HierarchicalPosterior(prior_rate=1e-320)},
            "prior_rate must be None or a positive number, .* got 1e-320",
        ),
        (
            {"posterior": HierarchicalPosterior(noise_variance=np.inf)},
            "noise_variance must be None or a positive .* got inf",
        ),
        (
            {"posterior": HierarchicalPosterior(noise_variance=1e-310)},
            "noise_variance must be None or a positive .* got 1e-310",
        ),
        ({"feature_range": (1.0, 0.0)}, r"feature_range must be a pair \(low, high\)"),
        ({"feature_range": ([0, 0], [1, 1])}, r"feature_range must be a pair \(low, high\)"),
        ({"feature_range": 3}, r"feature_range must be a pair \(low, high\)"),
        ({"feature_range": (0, np.inf)}, r"feature_range must be a pair \(low, high\)"),
        ({"feature_range": ("a", "b")}, r"feature_range must be a pair \(low, high\)"),
        ({"random_state": "seed"}, "cannot be used to seed"),
        (
            {"posterior": HierarchicalPosterior(prior_mean=10**400)},
            "prior_mean must be a number or None",
        ),
        (
            {"posterior": PrunedPosterior(prior_scale=1e49, noise_variance=1e-60)},
            "noise_variance must be None or",
        ),
        ({"feature_range": (10**400, 10**401)}, r"feature_range must be a pair \(low, high\)"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0, got 0"),
        ({"n_jobs": 2.5}, "n_jobs must be None or an integer other than 0, got 2.5"),
        ({"posterior": np.array(["a", "b"])}, "posterior must be one of"),
    ],
)
def test_invalid_parameters_are_refused_in_one_sentence(parameters, message):
    with pytest.raises(ValueError, match=message) as caught:
        MondrianForestRegressor(**parameters).fit(X, Y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("features", "labels"), [(X[:, :2], 1e-200 * Y), (np.ones((5, 900)), [1e200, 0, 0, 0, 0])]
)
def test_a_fit_that_fails_leaves_the_forest_as_it_was(features, labels):
    forest = MondrianForestRegressor(2, random_state=0).fit(X, Y)
    expected = forest.predict(X)
    with pytest.raises(ValueError, match="rescale y"):
        forest.fit(features, labels)
    np.testing.assert_array_equal(forest.predict(X), expected)
    assert forest.n_features_in_ == 3
    fresh = MondrianForestRegressor(2)
    with pytest.raises(ValueError, match="rescale y"):
        fresh.fit(features, labels)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_far_rows_and_unusual_numbers_work_without_a_warning():
    forest = MondrianForestRegressor(
        np.int64(2),
        min_samples_split=2**63,
        n_jobs=5000,
        posterior=PrunedPosterior(noise_variance=np.float32(0.1)),
    ).fit(0.5 * X, Y)
    assert np.isfinite(forest.predict(np.full((2, 3), 1e308))).all()


def test_prediction_before_fit_is_refused():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        MondrianForestRegressor().predict(X)


def test_numpy_numbers_are_welcome_as_parameters():
    forest = MondrianForestRegressor(
        np.int64(2),
        min_samples_split=np.int32(5),
        spread=np.float64(1.5),
        posterior=HierarchicalPosterior(prior_mean=np.float32(1)),
    )
    assert len(forest.fit(X, Y).trees_) == 2
