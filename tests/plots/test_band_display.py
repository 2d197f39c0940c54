import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mondrian_forest import ConformalForest, MondrianForestRegressor
from mondrian_forest.plots import PredictionBandDisplay


@pytest.fixture(scope="module")
def named(data):
    """A forest that knows the names of its features."""
    return MondrianForestRegressor(5, random_state=0).fit(*data)


def test_bands_are_the_intervals_of_the_forest(data, fitted):
    X = data[0].to_numpy()
    display = PredictionBandDisplay.from_estimator(fitted, X, feature=1, levels=(0.8,))
    rows = np.column_stack([np.full(500, np.median(X[:, 0])), display.feature_values])
    np.testing.assert_array_equal(display.mean, fitted.predict(rows))
    np.testing.assert_array_equal(display.bands[0.8], fitted.predict_interval(rows, 0.8))
    low, high = X[:, 1].min(), X[:, 1].max()
    assert display.feature_values[0] == pytest.approx(low - 0.4 * (high - low))
    assert display.ax_.get_xlabel() == "feature 1"


def test_feature_names_label_the_axis_without_a_warning(data, named, drawn):
    display = PredictionBandDisplay.from_estimator(named, *data, feature=1)
    assert drawn(display) == [
        "height",
        "prediction",
        "90% interval",
        "50% interval",
        "mean",
        "data",
    ]


def test_a_feature_is_chosen_by_name_or_by_index(data, named):
    by_name = PredictionBandDisplay.from_estimator(named, data[0], feature="height", levels=0.8)
    by_index = PredictionBandDisplay.from_estimator(named, data[0], feature=1, levels=(0.8,))
    np.testing.assert_array_equal(by_name.mean, by_index.mean)


@pytest.mark.parametrize("feature", ["depth", 2, -1, 0.5, True])
def test_an_unknown_feature_is_refused(data, named, feature):
    with pytest.raises(ValueError, match="feature must be one of"):
        PredictionBandDisplay.from_estimator(named, data[0], feature=feature)


def test_rows_that_the_forest_refuses_are_refused(data, named):
    X, y = data
    with pytest.raises(ValueError, match="feature names should match"):
        PredictionBandDisplay.from_estimator(named, X[["height", "width"]])
    with pytest.raises(ValueError, match="margin must be"):
        PredictionBandDisplay.from_estimator(named, X, margin=-1)
    with pytest.raises(ValueError, match="y must have one value"):
        PredictionBandDisplay.from_estimator(named, X, y[:-1])


def test_a_pipeline_is_refused_with_advice(data):
    pipeline = make_pipeline(StandardScaler(), MondrianForestRegressor(5)).fit(*data)
    with pytest.raises(TypeError, match="pass the forest itself"):
        PredictionBandDisplay.from_estimator(pipeline, data[0])


def test_infinite_intervals_reach_beyond_the_edge_of_the_plot(data):
    X, y = data
    few = ConformalForest(MondrianForestRegressor(3, random_state=0)).fit(X[:6], y[:6])
    display = PredictionBandDisplay.from_estimator(few, X)
    assert np.isinf(display.bands[0.9]).all()
    bottom, top = display.ax_.get_ylim()
    (path,) = display.ax_.collections[0].get_paths()
    assert path.get_extents().y0 < bottom < top < path.get_extents().y1


def test_bands_of_given_predictions(fitted):
    rows = np.column_stack([np.linspace(0, 2, 20), np.full(20, 0.5)])
    prediction = fitted.predict_distribution(rows)
    display = PredictionBandDisplay.from_predictions(rows[:, 0], prediction, levels=0.8)
    np.testing.assert_array_equal(display.bands[0.8], prediction.interval(0.8))
    with pytest.raises(ValueError, match="must be 20 ascending numbers"):
        PredictionBandDisplay.from_predictions(rows[::-1, 0], prediction)
