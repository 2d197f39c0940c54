"""A forest with the encoding of its tables, and the file that holds both."""

import numpy as np
import pyarrow as pa
import pytest

from mondrian_forest import ModelFileError, MondrianForestRegressor
from mondrian_forest.tables import TableForest
from mondrian_forest.tables.model import describe


@pytest.fixture(scope="module")
def table():
    a = np.random.default_rng(0).random(600)
    return pa.table({"a": a, "number": np.arange(600), "y": np.sin(6 * a)})


@pytest.fixture(scope="module")
def model(table):
    return TableForest.fit(table, "y", columns=["a"], n_estimators=3)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "m.mf")
    return tmp_path / "m.mf"


def test_a_loaded_model_predicts_the_same(model, table, path):
    again = TableForest.load(path)
    one, other = (m.predict(table, std=True, quantiles=[0.5]) for m in (model, again))
    assert list(one) == list(other) == ["prediction", "std", "q0.5"]
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_loaded_model_learns_more(table, path):
    again = TableForest.load(path).partial_fit(table.slice(0, 10))
    assert again.forest.n_samples_seen_ == 610


def test_the_forest_can_be_loaded_without_the_encoding(model, table, path):
    plain = MondrianForestRegressor.load(path)
    X = table["a"].to_numpy()[:, None]
    np.testing.assert_array_equal(plain.predict(X), model.predict(table)["prediction"])


def test_a_file_without_an_encoding_is_refused(model, tmp_path):
    model.forest.save(tmp_path / "plain.mf")
    with pytest.raises(ModelFileError, match="how to read tables"):
        TableForest.load(tmp_path / "plain.mf")


def test_predictions_are_those_of_the_forest(model, table):
    X = table["a"].to_numpy()[:, None]
    mean, std = model.forest.predict(X, return_std=True)
    found = model.predict(table, std=True, quantiles=[0.1, 0.9], novelty=True)
    np.testing.assert_array_equal(found["prediction"], mean)
    np.testing.assert_array_equal(found["std"], std)
    quantiles = model.forest.predict_quantiles(X, [0.1, 0.9])
    np.testing.assert_array_equal(np.column_stack([found["q0.1"], found["q0.9"]]), quantiles)
    np.testing.assert_array_equal(found["novelty"], model.forest.novelty(X))


def test_a_table_without_rows_has_the_same_columns(model, table):
    found = model.predict(table.slice(0, 0), std=True, quantiles=[0.1], novelty=True)
    assert {name: len(values) for name, values in found.items()} == {
        "prediction": 0,
        "std": 0,
        "q0.1": 0,
        "novelty": 0,
    }


def test_close_quantiles_have_different_names(model, table):
    found = model.predict(table.slice(0, 5), quantiles=[0.9999999, 0.99999991])
    assert list(found) == ["prediction", "q0.9999999", "q0.99999991"]


def test_a_description_says_what_the_file_contains(model, path):
    found = describe(path)
    assert found["file bytes"] == path.stat().st_size
    assert found["rows seen"] == 600
    assert found["can learn more"] is True
    assert found["target"] == "y"
    assert found["columns"] == {"a": "number"}
    assert found["nodes"] == sum(len(tree.nodes) for tree in model.forest.trees_)
    assert found["depth"] == max(tree.depth for tree in model.forest.trees_)
    assert found["rates of cuts"] == {"a": 1.0}


def test_a_description_says_that_a_file_without_rows_cannot_learn(model, tmp_path):
    model.save(tmp_path / "small.mf", rows=False)
    assert describe(tmp_path / "small.mf")["can learn more"] is False
