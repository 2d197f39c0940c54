import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.plots import PredictionBandDisplay


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = pd.DataFrame(generator.random((100, 2)), columns=["width", "height"])
    return X, X["width"].to_numpy()


def test_bands_are_those_of_the_forest(data):
    X, y = data
    forest = MondrianForestRegressor(5, random_state=0).fit(X.to_numpy(), y)
    display = PredictionBandDisplay.from_estimator(forest, X.to_numpy(), feature=1, levels=(0.8,))
    rows = np.column_stack([np.full(500, np.median(X["width"])), display.feature_values])
    np.testing.assert_array_equal(display.mean, forest.predict(rows))
    np.testing.assert_array_equal(display.bands[0.8], forest.predict_interval(rows, 0.8))
    low, high = X["height"].min(), X["height"].max()
    assert display.feature_values[0] == pytest.approx(low - 0.4 * (high - low))
    assert display.ax_.get_xlabel() == "feature 1"


def test_names_are_shown_and_cause_no_warning(data):
    X, y = data
    forest = MondrianForestRegressor(5, random_state=0).fit(X, y)
    display = PredictionBandDisplay.from_estimator(forest, X, y, feature=1)
    assert display.ax_.get_xlabel() == "height"
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["90% interval", "50% interval", "mean", "data"]


def test_features_are_chosen_by_name_too(data):
    X, y = data
    forest = MondrianForestRegressor(5, random_state=0).fit(X, y)
    by_name = PredictionBandDisplay.from_estimator(forest, X, feature="height", levels=0.8)
    by_number = PredictionBandDisplay.from_estimator(forest, X, feature=1, levels=(0.8,))
    np.testing.assert_array_equal(by_name.mean, by_number.mean)
    for feature in ("depth", 2, -1, 0.5):
        with pytest.raises(ValueError, match="feature must be one of"):
            PredictionBandDisplay.from_estimator(forest, X, feature=feature)


def test_what_the_forest_would_refuse_is_refused(data):
    X, y = data
    forest = MondrianForestRegressor(5, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        PredictionBandDisplay.from_estimator(forest, X[["height", "width"]])
    with pytest.raises(ValueError, match="margin must be"):
        PredictionBandDisplay.from_estimator(forest, X, margin=-1)
    with pytest.raises(ValueError, match="y must have one value"):
        PredictionBandDisplay.from_estimator(forest, X, y[:-1])


def test_a_pipeline_is_refused_with_advice(data):
    pipeline = make_pipeline(StandardScaler(), MondrianForestRegressor(5)).fit(*data)
    with pytest.raises(TypeError, match="pass the forest itself"):
        PredictionBandDisplay.from_estimator(pipeline, data[0])


def test_a_given_axes_is_used(data):
    X, y = data
    forest = MondrianForestRegressor(5, random_state=0).fit(X, y)
    figure, ax = plt.subplots()
    display = PredictionBandDisplay.from_estimator(forest, X, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
