import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mondrian_forest import ConformalForest, MondrianForestRegressor, metrics
from mondrian_forest.plots import (
    DensityDisplay,
    ErrorDisplay,
    PartitionDisplay,
    PITDisplay,
    PredictionBandDisplay,
    ReliabilityDisplay,
)


@pytest.fixture(autouse=True)
def _close_figures():
    plt.close("all")  # those of other files' tests, too
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


def drawn(display):
    """Draw as a user would see it, and return its texts."""
    display.figure_.canvas.draw()
    ax = display.ax_
    legend = ax.get_legend()
    return [ax.get_xlabel(), ax.get_ylabel()] + (
        [text.get_text() for text in legend.get_texts()] if legend else []
    )


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return MondrianForestRegressor(5, random_state=0).fit(X.to_numpy(), y)


@pytest.fixture(scope="module")
def held_out():
    X = np.random.default_rng(1).random((200, 2))
    return X, X[:, 0]


def test_the_reliability_diagram_shows_the_calibration_table(fitted, held_out):
    display = ReliabilityDisplay.from_estimator(fitted, *held_out)
    X, y = held_out
    expected = metrics.calibration_table(y, fitted.predict_distribution(X), np.linspace(0, 1, 101))
    _, curve = display.ax_.get_lines()
    np.testing.assert_array_equal(curve.get_xydata().T, [expected.level, expected.observed])
    assert drawn(display)[:2] == ["probability of the interval", "share of labels inside"]


def test_several_predictions_share_a_reliability_diagram(fitted, held_out):
    X, y = held_out
    pair = fitted.predict(X, return_std=True)
    display = ReliabilityDisplay.from_predictions(
        y, {"mixture": fitted.predict_distribution(X), "Gaussian": pair}
    )
    assert drawn(display)[2:] == ["ideal", "mixture", "Gaussian"]


def test_the_pit_histogram_has_unit_area(fitted, held_out):
    display = PITDisplay.from_estimator(fitted, *held_out, n_bins=8)
    bars = display.ax_.patches[:8]
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1.0)
    assert drawn(display)[0] == "predictive cdf at the label"
    X, y = held_out
    np.testing.assert_array_equal(display.values, metrics.pit(y, fitted.predict_distribution(X)))


def test_densities_are_those_of_the_rows(fitted, held_out):
    X, y = held_out
    display = DensityDisplay.from_estimator(fitted, X[:3], y[:3])
    assert drawn(display)[2:] == ["row 0", "row 1", "row 2"]
    one = fitted.predict_distribution(X[1:2])
    np.testing.assert_allclose(
        display.densities[1, 200], one.pdf(display.values[200])[0], rtol=1e-12
    )
    assert len(DensityDisplay.from_estimator(fitted, X[:2]).ax_.get_lines()) == 2
    with pytest.raises(ValueError, match="one finite value for each of the 3 rows"):
        DensityDisplay.from_estimator(fitted, X[:3], y[:2])
    with pytest.raises(TypeError, match="must be a PredictiveDistribution"):
        DensityDisplay.from_predictions((X[:, 0], y))


def test_groups_of_exact_predictions_lie_on_the_diagonal():
    generator = np.random.default_rng(0)
    std = generator.uniform(1.0, 3.0, 50_000)
    display = ErrorDisplay.from_predictions(
        std * generator.standard_normal(50_000), (np.zeros(50_000), std), n_groups=10
    )
    _, groups, _ = display.ax_.get_lines()
    typical, found = groups.get_xydata().T
    assert len(typical) == 10
    np.testing.assert_allclose(found, typical, rtol=0.05)
    assert drawn(display)[2:] == [
        "absolute error of a row",
        "root mean squared error of a group",
        "ideal",
    ]


def test_errors_of_an_estimator_are_drawn(fitted, held_out):
    X, y = held_out
    display = ErrorDisplay.from_estimator(fitted, X, y)
    np.testing.assert_array_equal(display.error, y - fitted.predict(X))


def test_the_partition_shows_boxes_and_cuts_in_the_units_of_the_data():
    generator = np.random.default_rng(0)
    X = generator.uniform([100, -5], [200, 5], (30, 2))
    forest = MondrianForestRegressor(2, min_samples_split=2, random_state=0).fit(X, X[:, 0])
    display = PartitionDisplay.from_estimator(forest, X, X[:, 0], tree=1)
    assert len(display.boxes) == 59
    assert len(display.cuts) == 29
    leaves = display.boxes[(display.boxes[:, 0] == display.boxes[:, 1]).all(axis=1), 0]
    np.testing.assert_allclose(np.sort(leaves, axis=0), np.sort(X, axis=0), atol=1e-4)
    first = display.times.argmin()
    np.testing.assert_allclose(
        np.delete(display.cuts[first], forest.trees_[1].split_feature[0], axis=1).ravel(),
        np.delete(
            [X.min(axis=0), X.max(axis=0)], forest.trees_[1].split_feature[0], axis=1
        ).ravel(),
    )  # from end to end of the box of all rows
    display.figure_.canvas.draw()
    weighted = MondrianForestRegressor(
        2, min_samples_split=2, feature_weights=[3.0, 1.0], random_state=0
    ).fit(X, X[:, 0])
    box = PartitionDisplay.from_estimator(weighted).boxes[0]
    np.testing.assert_allclose(box, [X.min(axis=0), X.max(axis=0)], rtol=1e-5)
    early = PartitionDisplay.from_estimator(forest, lifetime=1.0)
    assert len(early.boxes) == 2 * len(early.cuts) + 1 < 59
    assert (early.times < 1.0).all()


def test_partitions_of_other_forests_are_refused(data):
    X, y = data
    wide = np.column_stack([X, X])
    with pytest.raises(ValueError, match="over 2 features, this forest has 4"):
        PartitionDisplay.from_estimator(MondrianForestRegressor(1).fit(wide, y))
    forest = MondrianForestRegressor(1).fit(X, y)
    assert PartitionDisplay.from_estimator(forest).ax_.get_xlabel() == "width"
    with pytest.raises(ValueError, match="tree must be a number from 0 to 0"):
        PartitionDisplay.from_estimator(forest, tree=1)
    with pytest.raises(ValueError, match="lifetime must be a positive number"):
        PartitionDisplay.from_estimator(forest, lifetime=np.nan)
    with pytest.raises(ValueError, match="one value for each row"):
        PartitionDisplay.from_estimator(forest, X, y[:5])
    with pytest.raises(TypeError, match="pass the forest itself"):
        PartitionDisplay.from_estimator(make_pipeline(forest))


def test_infinite_intervals_are_drawn_to_the_edge(data):
    X, y = data
    few = ConformalForest(MondrianForestRegressor(3, random_state=0)).fit(X[:6], y[:6])
    display = PredictionBandDisplay.from_estimator(few, X)
    assert np.isinf(display.bands[0.9]).all()
    bottom, top = display.ax_.get_ylim()
    (path,) = display.ax_.collections[0].get_paths()
    assert path.get_extents().y0 < bottom < top < path.get_extents().y1


@pytest.mark.parametrize("number", [0, 1.5, None, "auto", True])
def test_counts_are_checked(fitted, held_out, number):
    with pytest.raises(ValueError, match="n_bins must be a positive integer"):
        PITDisplay.from_estimator(fitted, *held_out, n_bins=number)
    with pytest.raises(ValueError, match="n_groups must be a positive integer"):
        ErrorDisplay.from_estimator(fitted, *held_out, n_groups=number)


def test_bands_of_given_predictions_are_drawn(fitted):
    rows = np.column_stack([np.linspace(0, 2, 20), np.full(20, 0.5)])
    found = fitted.predict_distribution(rows)
    display = PredictionBandDisplay.from_predictions(rows[:, 0], found, levels=0.8)
    np.testing.assert_array_equal(display.bands[0.8], found.interval(0.8))
    with pytest.raises(ValueError, match="must be 20 ascending numbers"):
        PredictionBandDisplay.from_predictions(rows[::-1, 0], found)


@pytest.mark.parametrize(
    "draw",
    [
        lambda forest, X, y, ax: ReliabilityDisplay.from_estimator(forest, X, y, ax=ax),
        lambda forest, X, y, ax: PITDisplay.from_estimator(forest, X, y, ax=ax),
        lambda forest, X, y, ax: DensityDisplay.from_estimator(forest, X[:2], y[:2], ax=ax),
        lambda forest, X, y, ax: ErrorDisplay.from_estimator(forest, X, y, ax=ax),
        lambda forest, X, y, ax: PartitionDisplay.from_estimator(forest, X, y, ax=ax),
        lambda forest, X, y, ax: PredictionBandDisplay.from_estimator(forest, X, y, ax=ax),
    ],
)
def test_displays_draw_where_they_are_told_to(fitted, held_out, draw):
    figure, ax = plt.subplots()
    display = draw(fitted, *held_out, ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert plt.get_fignums() == [figure.number]
