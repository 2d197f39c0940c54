import copy
import datetime as dt
import pickle

import numpy as np
import pandas as pd
import pytest
from river import base, checks, compose, datasets, evaluate, metrics, preprocessing
from sklearn.exceptions import NotFittedError

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest.streams import RiverForest

SMALL = {"n_estimators": 4, **PAPER}


def rows_and_labels(n_rows=300, seed=0):
    X = np.random.default_rng(seed).random((n_rows, 3))
    return X, 3.0 * X[:, 0] + X[:, 1]


def as_dicts(X, names="abc"):
    return [dict(zip(names, row, strict=True)) for row in X.tolist()]


def learned(n_rows=300, **parameters):
    X, y = rows_and_labels(n_rows)
    model = RiverForest(seed=0, **SMALL | parameters)
    for x, label in zip(as_dicts(X), y, strict=True):
        model.learn_one(x, label)
    return model


def test_only_the_check_of_equal_draws_is_skipped():
    assert RiverForest()._unit_test_skips() == {"check_learn_many_matches_learn_one"}


@pytest.mark.parametrize(
    "parameters", list(RiverForest._unit_test_params()), ids=["default", "paper"]
)
@pytest.mark.parametrize("number", range(len(list(checks.yield_checks(RiverForest())))))
def test_checks_of_river(number, parameters):
    model = RiverForest(**parameters)
    check = list(checks.yield_checks(model))[number]
    if check.__name__ not in model._unit_test_skips():
        check(model)


def test_it_is_a_regressor_for_mini_batches():
    assert isinstance(RiverForest(), base.MiniBatchRegressor)


def test_a_row_at_a_time_leads_to_the_forest_of_partial_fit():
    X, y = rows_and_labels()
    model = learned()
    forest = MondrianForestRegressor(random_state=0, **SMALL)
    for start in range(len(y)):
        forest.partial_fit(X[start : start + 1], y[start : start + 1])
    assert model.features == ("a", "b", "c")
    assert model.forest.n_samples_seen_ == 300
    new = rows_and_labels(20, 1)[0]
    np.testing.assert_array_equal(
        [model.predict_one(x) for x in as_dicts(new)], forest.predict(new)
    )


def test_predictions_of_a_row_are_those_of_the_forest():
    model = learned()
    x, row = {"c": 0.1, "a": 0.5, "b": 0.9}, [[0.5, 0.9, 0.1]]
    distribution = model.forest.predict_distribution(row)
    assert model.predict_one(x) == distribution.mean()[0]
    assert model.predict_distribution_one(x).std() == distribution.std()
    assert model.predict_interval_one(x, 0.8) == tuple(distribution.interval(0.8)[0])
    assert model.predict_quantiles_one(x, 0.3) == distribution.quantile(0.3)[0]
    quantiles = model.predict_quantiles_one(x, [0.3, 0.6])
    np.testing.assert_array_equal(quantiles, distribution.quantile([0.3, 0.6])[0])
    assert type(model.predict_one(x)) is type(model.predict_quantiles_one(x, 0.3)) is float


def test_before_the_first_row_it_predicts_zero_and_has_no_distribution():
    model = RiverForest()
    assert model.predict_one({"a": 1.0}) == 0.0
    found = model.predict_many(pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 7]))
    assert found.to_dict() == {5: 0.0, 7: 0.0}
    assert model.forest is None
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.predict_distribution_one({"a": 1.0})


def test_tables_are_learned_and_predicted():
    X, y = rows_and_labels(1000)
    frame = pd.DataFrame(X, columns=list("abc"))
    model = RiverForest(seed=0, **SMALL)
    for start in range(0, 1000, 100):
        model.learn_many(frame[start : start + 100], pd.Series(y[start : start + 100]))
    assert model.forest.n_samples_seen_ == 1000
    new, labels = rows_and_labels(200, 1)
    table = pd.DataFrame(new, columns=list("abc"), index=range(50, 250))[["c", "a", "b"]]
    found = model.predict_many(table)
    assert found.index.equals(table.index)
    np.testing.assert_array_equal(found, [model.predict_one(x) for x in as_dicts(new)])
    assert np.corrcoef(found, labels)[0, 1] > 0.9
    assert len(model.predict_many(table[:0])) == 0
    model.learn_many(table[:0], pd.Series([], dtype=float))
    assert model.forest.n_samples_seen_ == 1000


def test_learning_many_rows_is_as_accurate_as_learning_each():
    X, y = rows_and_labels(1500)
    new, labels = rows_and_labels(500, 1)
    errors = []
    for many in (True, False):
        model = RiverForest(seed=0, **SMALL | {"n_estimators": 20})
        for start in range(0, 1500, 75):
            rows = slice(start, start + 75)
            if many:
                model.learn_many(pd.DataFrame(X[rows], columns=list("abc")), pd.Series(y[rows]))
            else:
                for x, label in zip(as_dicts(X[rows]), y[rows], strict=True):
                    model.learn_one(x, label)
        found = [model.predict_one(x) for x in as_dicts(new)]
        errors.append(np.sqrt(np.mean((found - labels) ** 2)))
    assert errors[0] == pytest.approx(errors[1], rel=0.1)


@pytest.mark.parametrize("many", [False, True])
def test_a_feature_that_appears_early_counts_with_all_rows(many):
    X, y = rows_and_labels(100)
    model = RiverForest(seed=0, **SMALL)
    for number, (x, label) in enumerate(zip(as_dicts(X), y, strict=True)):
        if number < 10:
            del x["b"]
        if many:
            model.learn_many(pd.DataFrame([x]), pd.Series([label]))
        else:
            model.learn_one(x, label)
        assert model.forest.n_samples_seen_ == number + 1
    assert model.features == ("a", "b", "c")
    low, high = (model.predict_one({"a": 0.5, "b": b, "c": 0.5}) for b in (0.0, 1.0))
    assert high - low > 0.1


def test_values_before_a_feature_appears_are_its_mean_after():
    settings = SMALL | {"min_samples_split": 2}
    model = RiverForest(seed=0, **settings)
    model.learn_one({"a": 1.0}, 0.0)
    model.learn_one({"a": 2.0, "b": 4.0}, 1.0)
    model.learn_one({"a": 3.0, "b": 8.0}, 2.0)
    model.learn_one({"a": 4.0}, 2.0)
    expected = MondrianForestRegressor(random_state=0, **settings)
    expected.fit([[1.0, 4.0], [2.0, 4.0]], [0.0, 1.0])
    expected.partial_fit([[3.0, 8.0]], [2.0]).partial_fit([[4.0, 6.0]], [2.0])
    for a, b in [(2.5, 4.0), (4.0, 6.0), (4.0, 0.0)]:
        assert model.predict_one({"a": a, "b": b}) == expected.predict([[a, b]])[0]


@pytest.mark.parametrize("missing", [{}, {"b": None}, {"b": np.nan}])
def test_a_missing_value_is_the_mean_of_the_values_before(missing):
    X, _ = rows_and_labels()
    model = learned()
    mean = X[:, 1].mean()
    assert model.predict_one({"a": 0.4, "c": 0.3} | missing) == pytest.approx(
        model.predict_one({"a": 0.4, "b": mean, "c": 0.3})
    )
    # A missing value does not move the mean; the next value does.
    model.learn_one({"a": 0.4, "c": 0.3} | missing, 1.0)
    np.testing.assert_allclose(model._means[1], mean)
    model.learn_one({"a": 0.4, "b": 50.0, "c": 0.3}, 1.0)
    np.testing.assert_allclose(model._means[1], np.append(X[:, 1], 50.0).mean())


@pytest.mark.parametrize("empty", [None, pd.NA, np.nan])
def test_missing_values_in_tables_are_means(empty):
    model = learned()
    dtype = "Float64" if empty is pd.NA else np.float64
    table = pd.DataFrame({"a": pd.array([empty], dtype=dtype), "c": [0.3], "b": [0.2]})
    assert model.predict_many(table)[0] == model.predict_one({"b": 0.2, "c": 0.3})
    model.learn_many(table, pd.Series([1.0]))
    assert model.forest.n_samples_seen_ == 301


def test_a_feature_that_appears_late_is_ignored_with_one_warning():
    model = learned()
    known = {"a": 0.1, "b": 0.2, "c": 0.3}
    with pytest.warns(UserWarning, match=r"after the first 200 rows are ignored: 'new'"):
        model.learn_one(known | {"new": 5.0}, 1.0)
    model.learn_one(known | {"newer": 5.0}, 1.0)
    assert model.features == ("a", "b", "c")
    assert model.predict_one(known | {"new": 1.0}) == model.predict_one(known)


def test_rows_are_kept_only_until_features_are_settled():
    assert len(learned(199)._first) == 199
    assert learned(200)._first is None


@pytest.mark.parametrize("n_pairs", [1, 120])
def test_rows_without_features_wait_for_the_first_feature(n_pairs):
    model = RiverForest(seed=0, **SMALL)
    for _ in range(n_pairs):
        model.learn_one({}, 4.0)
        model.learn_one({}, 6.0)
    assert model.forest is None
    assert model.predict_one({"a": 1.0}) == 5.0
    model.learn_one({"a": 1.0}, 7.0)
    assert model.forest.n_samples_seen_ == 2 * n_pairs + 1


def test_names_of_any_type_are_features():
    model = RiverForest(seed=0, **SMALL)
    for number in range(10):
        model.learn_one({1: number, "1": 2.0, ("a", 2): True}, number)
    assert model.features == (("a", 2), 1, "1")


@pytest.mark.parametrize("value", ["red", [1.0], dt.datetime(2020, 1, 1), 10**400, {}])
@pytest.mark.parametrize("n_rows", [0, 20, 250])
def test_a_value_that_is_no_number_is_named_and_changes_nothing(value, n_rows):
    model = learned(n_rows) if n_rows else RiverForest(seed=0, **SMALL)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="Feature 'b' must be a number"):
        model.learn_one({"a": 1.0, "b": value, "c": 0.0}, 1.0)
    with pytest.raises(ValueError, match="Feature 'b' must be a number"):
        model.learn_one({"b": value, "new": 0.0}, 1.0)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("n_rows", [0, 20, 250])
@pytest.mark.parametrize(("x", "y"), [({"a": np.inf}, 1.0), ({"a": 1.0}, np.nan)])
def test_rows_that_the_forest_refuses_change_nothing(x, y, n_rows):
    model = learned(n_rows) if n_rows else RiverForest(seed=0, **SMALL)
    before = pickle.dumps(model)
    for new in ({}, {"d": 1.0}):
        with pytest.raises(ValueError, match=r"infinity|NaN"):
            model.learn_one(x | new, y)
        assert pickle.dumps(model) == before


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"a": ["x", "y"]}), "must be numbers"),
        (pd.DataFrame({"a": pd.date_range("2020-01-01", periods=2)}), "dates"),
        (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "different names"),
        (pd.DataFrame({"a": [1.0, 2.0, 3.0]}), "one value for each"),
    ],
)
def test_tables_that_make_no_sense_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        RiverForest(**SMALL).learn_many(table, pd.Series([1.0, 2.0]))


def test_unknown_parameters_are_refused_at_once():
    with pytest.raises(TypeError, match="n_trees"):
        RiverForest(n_trees=3)
    with pytest.raises(TypeError, match="random_state"):
        RiverForest(random_state=3)


def test_parameters_are_shown_cloned_and_passed_on():
    model = RiverForest(seed=3, n_estimators=7, robust=False)
    clone = model.clone({"n_estimators": 8})
    assert "n_estimators" in repr(model)
    clone.learn_one({"a": 1.0}, 1.0)
    assert model.forest is None
    forest = clone.forest
    assert (forest.random_state, forest.n_estimators, forest.robust) == (3, 8, False)


def test_copies_go_on_alike():
    model = learned(150)
    copies = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for x, label in zip(as_dicts(rows_and_labels(100, 2)[0]), range(100), strict=True):
        for each in (model, *copies):
            each.learn_one(x, label)
    x = {"a": 0.3, "b": 0.4, "c": 0.5}
    assert model.predict_one(x) == copies[0].predict_one(x) == copies[1].predict_one(x)


def test_a_pipeline_of_river_learns_text():
    random = np.random.default_rng(0)
    model = (compose.SelectType(str) | preprocessing.OneHotEncoder()) + compose.SelectType(
        float
    ) | RiverForest(seed=0, **SMALL)
    for _ in range(300):
        kind, size = random.choice(["cat", "dog", "cow"]), float(random.random())
        model.learn_one({"kind": str(kind), "size": size}, {"cat": 1, "dog": 2, "cow": 9}[kind])
    cow, cat = (model.predict_one({"kind": kind, "size": 0.5}) for kind in ("cow", "cat"))
    assert cow - cat > 3.0


def test_it_learns_a_stream_of_river():
    rows = list(datasets.TrumpApproval().take(500))
    error = evaluate.progressive_val_score(rows, RiverForest(seed=0, n_estimators=4), metrics.MAE())
    mean = np.mean([y for _, y in rows])
    assert error.get() < 0.7 * np.mean([abs(y - mean) for _, y in rows])


def test_forgotten_rows_do_not_come_back_with_a_new_feature():
    model = RiverForest(n_estimators=3, seed=0)
    rows = [
        ({"a": i / 50, "b": (i * 7 % 50) / 50}, 123.456 if i == 3 else i / 50) for i in range(50)
    ]
    for x, y in rows:
        model.learn_one(x, y)
    model.forget([3])
    assert model.forest.n_rows_ == 49
    assert np.float64(123.456).tobytes() not in pickle.dumps(model)
    with pytest.warns(UserWarning, match="are ignored"):
        model.learn_one({"a": 0.1, "b": 0.2, "c": 0.3}, 0.5)
    assert model.forest.n_rows_ == 50
    assert model.features == ("a", "b")


def test_a_forest_without_rows_cannot_forget():
    with pytest.raises(NotFittedError):
        RiverForest(n_estimators=3).forget([0])
