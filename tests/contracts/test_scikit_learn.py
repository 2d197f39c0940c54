import joblib
import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mondrian_forest import PAPER, MondrianForestRegressor


@parametrize_with_checks(
    [
        MondrianForestRegressor(n_estimators=3, random_state=0),
        MondrianForestRegressor(n_estimators=3, random_state=0, mean_function="linear"),
        MondrianForestRegressor(n_estimators=3, random_state=0, mean_function="boosting"),
        MondrianForestRegressor(n_estimators=10, random_state=0, **PAPER),
        MondrianForestRegressor(
            n_estimators=10, random_state=0, **PAPER | {"posterior": "empirical"}
        ),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    X = generator.random((200, 3))
    return X, X[:, 0] + 0.1 * generator.normal(size=200)


def test_clone_keeps_parameters_and_drops_the_fit(data):
    forest = MondrianForestRegressor(3, min_samples_split=3, random_state=1).fit(*data)
    copy = clone(forest)
    assert copy.get_params() == forest.get_params()
    assert not hasattr(copy, "trees_")


def test_pipeline_grid_search_and_cross_validation(data):
    pipeline = make_pipeline(StandardScaler(), MondrianForestRegressor(5, random_state=0))
    search = GridSearchCV(
        pipeline, {"mondrianforestregressor__min_samples_split": [2, 50]}, cv=3
    ).fit(*data)
    assert search.best_params_ == {"mondrianforestregressor__min_samples_split": 2}
    assert cross_val_score(pipeline, *data, cv=3).mean() > 0.3


def test_inside_a_parallel_search(data):
    search = GridSearchCV(
        MondrianForestRegressor(3, random_state=0, n_jobs=2),
        {"min_samples_split": [2, 5]},
        cv=2,
        n_jobs=2,
    )
    with joblib.parallel_config("threading"):
        assert search.fit(*data).best_score_ > 0


def test_categories_through_a_column_transformer():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"colour": ["red", "blue"] * 50, "size": np.arange(100.0)})
    y = np.where(table["colour"] == "red", 1.0, -1.0)
    encode = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    pipeline = make_pipeline(encode, MondrianForestRegressor(random_state=0)).fit(table, y)
    assert pipeline.score(table, y) > 0.9


def test_several_targets_through_the_meta_estimator(data):
    X, y = data
    both = MultiOutputRegressor(MondrianForestRegressor(5, random_state=0)).fit(
        X, np.column_stack([y, -y])
    )
    np.testing.assert_allclose(both.predict(X)[:, 0], -both.predict(X)[:, 1])


def test_joblib_dump_and_load(data, tmp_path):
    forest = MondrianForestRegressor(3, random_state=0).fit(*data)
    joblib.dump(forest, tmp_path / "forest.joblib")
    loaded = joblib.load(tmp_path / "forest.joblib")
    np.testing.assert_array_equal(loaded.predict(data[0]), forest.predict(data[0]))


def test_it_is_a_regressor_that_refuses_weights(data):
    assert is_regressor(MondrianForestRegressor())
    with pytest.raises(TypeError, match="sample_weight"):
        MondrianForestRegressor().fit(*data, sample_weight=np.ones(200))
