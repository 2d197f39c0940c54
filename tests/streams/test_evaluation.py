import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import evaluate, metrics
from sklearn.base import clone
from sklearn.linear_model import SGDRegressor

from mondrian_forest import PAPER, ConformalForest, MondrianForestRegressor
from mondrian_forest.metrics import crps, nlpd, rmse
from mondrian_forest.streams import Prequential, RiverForest, prequential

FOREST = MondrianForestRegressor(4, random_state=0, **PAPER)
LOSSES = {"squared_error", "absolute_error", "crps", "nlpd", "covered"}


class Recorder:
    """Predict the number of rows learned so far, and remember all calls."""

    def __init__(self):
        self.calls = []
        self.learned = []

    def predict(self, X):
        self.calls.append(("predict", [row[0] for row in X]))
        return np.full(len(X), float(len(self.learned)))

    def partial_fit(self, X, y):
        self.calls.append(("learn", [row[0] for row in X]))
        self.learned += y.tolist()


def table(n_rows=300):
    X = np.random.default_rng(0).random((n_rows, 2))
    return X, X.sum(axis=1)


def numbered(n_rows):
    return np.arange(n_rows).reshape(-1, 1), np.arange(n_rows) / 10


def test_each_chunk_is_predicted_and_then_learned():
    recorder = Recorder()
    result = prequential(recorder, *numbered(5), chunk_size=2)
    assert recorder.calls == [
        ("predict", [0, 1]),
        ("learn", [0, 1]),
        ("predict", [2, 3]),
        ("learn", [2, 3]),
        ("predict", [4]),
        ("learn", [4]),
    ]
    np.testing.assert_array_equal(result.prediction, [0, 0, 2, 2, 4])


@pytest.mark.parametrize(("chunk_size", "delay"), [(1, 0), (1, 3), (4, 0), (4, 1), (4, 6), (3, 99)])
def test_a_label_is_known_when_enough_rows_after_it_were_predicted(chunk_size, delay):
    recorder = Recorder()
    prequential(recorder, *numbered(20), chunk_size=chunk_size, delay=delay)
    n_predicted = n_learned = 0
    for kind, rows in recorder.calls:
        if kind == "predict":
            assert rows == list(range(n_predicted, n_predicted + len(rows)))
            # All labels are known that arrived before, and no others.
            assert n_learned == max(n_predicted - delay, 0)
            n_predicted += len(rows)
        else:
            assert rows == list(range(n_learned, n_learned + len(rows)))
            n_learned += len(rows)
    assert recorder.learned == (np.arange(20) / 10).tolist()


@pytest.mark.parametrize("delay", [0, 5])
def test_predictions_are_those_of_rivers_progressive_validation(delay):
    X, y = table(150)
    model = RiverForest(seed=0, n_estimators=4, **PAPER)
    rows = [(dict(enumerate(x)), label) for x, label in zip(X.tolist(), y.tolist(), strict=True)]
    metric = metrics.MAE()
    # River counts the rows until the label of a row, this row included.
    evaluate.progressive_val_score(rows, model, metric, delay=delay + 1)
    result = prequential(clone(FOREST), X, y, chunk_size=1, delay=delay)
    predicted = np.nan_to_num(result.prediction)  # river counts 0 where there is no forest
    assert np.isnan(result.prediction).sum() == delay + 1
    assert metric.get() == pytest.approx(np.abs(predicted - y).mean())


def test_losses_are_those_of_distributions_before_learning():
    X, y = table()
    result = prequential(clone(FOREST), X, y, chunk_size=50, level=0.8)
    forest, window = clone(FOREST), result.scores(window=50)
    assert set(result.losses) == LOSSES
    assert np.isnan(result.prediction[:50]).all()
    for number in range(1, 6):
        rows = slice(50 * number, 50 * number + 50)
        forest.partial_fit(X[rows.start - 50 : rows.start], y[rows.start - 50 : rows.start])
        distribution = forest.predict_distribution(X[rows])
        np.testing.assert_array_equal(result.prediction[rows], distribution.mean())
        assert window["stop"][number] == rows.stop
        assert window["rmse"][number] == pytest.approx(rmse(y[rows], distribution))
        assert window["mae"][number] == pytest.approx(np.abs(y[rows] - distribution.mean()).mean())
        assert window["crps"][number] == pytest.approx(crps(y[rows], distribution))
        assert window["nlpd"][number] == pytest.approx(nlpd(y[rows], distribution))
        low, high = distribution.interval(0.8).T
        assert window["coverage"][number] == np.mean((low <= y[rows]) & (y[rows] <= high))


def test_windows_may_overlap_and_leave_out_what_was_not_predicted():
    result = prequential(clone(FOREST), *table(), chunk_size=100)
    squared = result.losses["squared_error"]
    found = result.scores(window=150, every=50)
    assert found["stop"].tolist() == [150, 200, 250, 300]
    expected = [squared[100:150], squared[100:200], squared[100:250], squared[150:300]]
    np.testing.assert_allclose(found["rmse"], [np.sqrt(each.mean()) for each in expected])
    assert np.isnan(result.scores(window=100)["mae"][0])
    assert result.scores(window=301)["stop"].size == 0
    whole = result.scores()
    assert whole["stop"].tolist() == [300]
    np.testing.assert_allclose(whole["rmse"], np.sqrt(np.nanmean(squared)))


def test_other_regressors_are_scored_by_their_errors():
    X, y = table()
    result = prequential(SGDRegressor(random_state=0), X, y)
    assert set(result.losses) == {"squared_error", "absolute_error"}
    assert np.isnan(result.prediction[:100]).all()
    rmse = result.scores(window=100)["rmse"]
    assert rmse[2] < rmse[1]
    assert repr(result).startswith("<PrequentialResult of 300 rows, rmse 0.")


def test_calibrated_forests_are_scored_as_distributions():
    X, y = table(600)
    forest = ConformalForest(clone(FOREST), random_state=0).fit(X[:300], y[:300])
    result = prequential(forest, X[300:], y[300:])
    assert set(result.losses) == LOSSES
    assert result.scores()["coverage"] > 0.8


def test_only_the_scores_asked_for_are_computed():
    result = prequential(clone(FOREST), *table(), scores=["nlpd"])
    assert set(result.losses) == {"nlpd"}
    assert set(result.scores()) == {"stop", "nlpd"}
    with pytest.raises(ValueError, match="scores must be among rmse, mae, got 'crps'"):
        prequential(SGDRegressor(), *table(), scores=["crps"])


def test_a_fitted_estimator_predicts_from_the_first_row():
    X, y = table()
    forest = clone(FOREST).fit(X[:100], y[:100])
    result = prequential(forest, X[100:], y[100:])
    assert np.isfinite(result.prediction).all()
    assert forest.n_samples_seen_ == 300


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, np.ndarray.tolist])
def test_tables_and_lists_are_streams(kind):
    X, y = table()
    expected = prequential(clone(FOREST), X, y).prediction
    rows = kind(X)
    if isinstance(rows, pd.DataFrame):
        rows = rows.rename(columns=str).set_index(np.linspace(0.0, 1.0, 300))
    np.testing.assert_array_equal(prequential(clone(FOREST), rows, y).prediction, expected)


def test_a_result_becomes_a_table():
    result = prequential(clone(FOREST), *table())
    frame = result.to_frame()
    assert list(frame.columns) == ["prediction", *result.losses]
    np.testing.assert_array_equal(frame["prediction"], result.prediction)


def test_a_stream_without_rows_has_no_scores():
    result = prequential(clone(FOREST), np.empty((0, 2)), [])
    assert len(result.prediction) == 0
    assert np.isnan(result.scores()["rmse"]).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chunk_size": 0}, "chunk_size"),
        ({"delay": -1}, "delay"),
        ({"level": 1.0}, "level"),
        ({"y": np.full(300, np.nan)}, "finite"),
        ({"y": np.zeros((300, 2))}, "one for each row"),
        ({"y": np.zeros(299)}, "X has 300 rows, but y has 299 labels"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_learned(wrong, message):
    X, y = table()
    forest = clone(FOREST).fit(X, y)
    with pytest.raises(ValueError, match=message):
        prequential(forest, **{"X": X, "y": y} | wrong)
    assert forest.n_samples_seen_ == 300


@pytest.mark.parametrize("name", ["window", "every"])
def test_windows_are_whole_numbers(name):
    with pytest.raises(ValueError, match=name):
        prequential(clone(FOREST), *table()).scores(**{name: 0})


def fitted():
    return clone(FOREST).fit(*table())


def test_labels_come_late_and_in_any_order():
    X, y = table(20)
    stream, forest = Prequential(fitted(), level=0.5), fitted()
    before = forest.predict_distribution(X)
    for key, x in enumerate(X):
        predicted = stream.predict(key, x)
        assert predicted.mean() == before[key].mean()
    assert stream.n_waiting == 20
    order = np.random.default_rng(1).permutation(20)[:15]
    for key in order.tolist():
        stream.learn(key, y[key])
        forest.partial_fit(X[[key]], y[[key]])
    assert stream.n_waiting == 5
    np.testing.assert_array_equal(stream.estimator.predict(X), forest.predict(X))
    chosen, labels = before[order], y[order]
    low, high = chosen.interval(0.5).T
    assert stream.scores() == pytest.approx(
        {
            "rmse": rmse(labels, chosen),
            "mae": np.abs(labels - chosen.mean()).mean(),
            "crps": crps(labels, chosen),
            "nlpd": nlpd(labels, chosen),
            "coverage": np.mean((low <= labels) & (labels <= high)),
        }
    )


def test_scores_are_about_the_latest_labels():
    stream = Prequential(Recorder(), window=2)
    assert stream.scores() == {}
    for key, label in enumerate([9.0, 2.0, 4.0]):  # predicted as 0, 1, 2
        assert stream.predict(key, [0.0]) == float(key)
        stream.learn(key, label)
    assert stream.scores() == pytest.approx({"rmse": np.sqrt(2.5), "mae": 1.5})


def test_a_stream_may_start_with_an_estimator_that_is_not_fitted():
    stream = Prequential(clone(FOREST), scores=["mae"])
    assert stream.predict("first", [0.0, 1.0]) is None
    stream.learn("first", 3.0)
    assert stream.scores() == {}
    assert stream.predict("second", [0.0, 1.0]).mean() == pytest.approx(3.0)
    stream.learn("second", 3.0)
    assert stream.scores()["mae"] == pytest.approx(0.0)


@pytest.mark.parametrize("key", ["never predicted", "has its label", "dropped"])
def test_a_label_without_a_row_is_refused_in_one_sentence(key):
    stream = Prequential(Recorder(), max_waiting=1)
    stream.predict("dropped", [1.0])
    stream.predict("has its label", [2.0])
    stream.learn("has its label", 1.0)
    with pytest.raises(LookupError, match=f"^No row waits for the label of '{key}': [^.]*[.]$"):
        stream.learn(key, 1.0)
    assert stream.estimator.learned == [1.0]


def test_rows_whose_labels_never_come_are_dropped_oldest_first():
    stream = Prequential(Recorder(), max_waiting=3)
    for key in range(10):
        stream.predict(key, [key])
    assert (stream.n_waiting, stream.n_dropped) == (3, 7)
    for key in (7, 8, 9):
        stream.learn(key, 0.0)
    assert [rows for kind, rows in stream.estimator.calls if kind == "learn"] == [[7], [8], [9]]


def test_a_key_that_waits_is_not_taken_twice():
    stream = Prequential(Recorder())
    stream.predict("a", [1.0])
    with pytest.raises(ValueError, match="'a' already waits"):
        stream.predict("a", [2.0])
    stream.learn("a", 0.0)
    stream.predict("a", [2.0])
    assert stream.n_waiting == 1


def test_a_row_that_waits_is_a_copy():
    stream = Prequential(Recorder())
    x = np.array([1.0])
    stream.predict("a", x)
    x[0] = 5.0
    stream.learn("a", 0.0)
    assert stream.estimator.calls[-1] == ("learn", [1.0])


@pytest.mark.parametrize("label", [np.nan, np.inf, [1.0, 2.0]])
def test_a_wrong_label_leaves_the_row_waiting(label):
    stream = Prequential(fitted())
    stream.predict("a", [0.5, 0.5])
    with pytest.raises(ValueError, match="finite numbers, one for each row"):
        stream.learn("a", label)
    stream.learn("a", 1.0)
    assert stream.n_waiting == 0
    assert stream.estimator.n_samples_seen_ == 301


def test_a_wrong_row_does_not_wait():
    stream = Prequential(fitted())
    with pytest.raises(ValueError, match="NaN"):
        stream.predict("a", [0.5, np.nan])
    assert stream.n_waiting == 0


@pytest.mark.parametrize("wrong", [{"window": 0}, {"max_waiting": 0}, {"level": 2.0}])
def test_wrong_parameters_of_a_stream_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Prequential(FOREST, **wrong)


def test_a_stream_is_kept_with_its_waiting_rows():
    stream = Prequential(fitted())
    stream.predict("a", [0.5, 0.5])
    again = pickle.loads(pickle.dumps(stream))
    for each in (stream, again):
        each.learn("a", 1.0)
    assert again.scores() == stream.scores()
