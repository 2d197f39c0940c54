import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.plots import PartitionDisplay


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).uniform([100, -5], [200, 5], (30, 2))


@pytest.fixture(scope="module")
def forest(rows):
    parameters = {"min_samples_split": 2, "mean_function": None, "random_state": 0}
    return MondrianForestRegressor(2, **parameters).fit(rows, rows[:, 0])


def test_boxes_of_leaves_are_the_rows_in_their_own_units(rows, forest):
    display = PartitionDisplay.from_estimator(forest, rows, rows[:, 0], tree=1)
    assert len(display.boxes) == 59
    assert len(display.cuts) == 29
    leaves = display.boxes[(display.boxes[:, 0] == display.boxes[:, 1]).all(axis=1), 0]
    np.testing.assert_allclose(np.sort(leaves, axis=0), np.sort(rows, axis=0), atol=1e-4)
    display.figure_.canvas.draw()


def test_the_first_cut_crosses_the_box_of_all_rows(rows, forest):
    display = PartitionDisplay.from_estimator(forest, tree=1)
    first = display.cuts[display.times.argmin()]
    feature = forest.trees_[1].split_feature[0]
    assert first[0, feature] == first[1, feature]
    np.testing.assert_allclose(
        first[:, 1 - feature], [rows[:, 1 - feature].min(), rows[:, 1 - feature].max()], rtol=1e-6
    )


@pytest.mark.parametrize("weights", [[3.0, 1.0], [1.0, 0.0]], ids=["unequal", "zero"])
def test_feature_weights_do_not_change_the_units(rows, weights):
    weighted = MondrianForestRegressor(
        2, min_samples_split=2, feature_weights=weights, mean_function=None, random_state=0
    ).fit(rows, rows[:, 0])
    box = PartitionDisplay.from_estimator(weighted).boxes[0]
    ends = np.array([rows.min(axis=0), rows.max(axis=0)])
    # Nothing is stored of a feature without weight.
    expected = np.where(np.array(weights) > 0.0, ends, weighted.feature_range_)
    np.testing.assert_allclose(box, expected, rtol=1e-5)


def test_cuts_after_the_lifetime_are_left_out(forest):
    early = PartitionDisplay.from_estimator(forest, lifetime=1.0)
    assert len(early.boxes) == 2 * len(early.cuts) + 1 < 59
    assert (early.times < 1.0).all()


def test_feature_names_label_the_axes(data):
    forest = MondrianForestRegressor(1, mean_function=None).fit(*data)
    assert PartitionDisplay.from_estimator(forest).ax_.get_xlabel() == "width"


def test_what_cannot_be_drawn_is_refused(data):
    X, y = data
    wide = np.column_stack([X, X])
    with pytest.raises(ValueError, match="with 2 features, this one has 4"):
        PartitionDisplay.from_estimator(MondrianForestRegressor(1).fit(wide, y))
    forest = MondrianForestRegressor(1, mean_function=None).fit(X, y)
    with pytest.raises(ValueError, match="tree must be a number from 0 to 0"):
        PartitionDisplay.from_estimator(forest, tree=1)
    with pytest.raises(ValueError, match="lifetime must be a positive number"):
        PartitionDisplay.from_estimator(forest, lifetime=np.nan)
    with pytest.raises(ValueError, match="one value for each row"):
        PartitionDisplay.from_estimator(forest, X, y[:5])
    with pytest.raises(TypeError, match="pass the forest itself"):
        PartitionDisplay.from_estimator(make_pipeline(forest))


def test_a_mean_function_as_a_third_feature_is_refused():
    X = np.random.default_rng(0).random((60, 2))
    model = MondrianForestRegressor(2, mean_function="linear", mean_use="both").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="trees see the mean function as a feature"):
        PartitionDisplay.from_estimator(model)
