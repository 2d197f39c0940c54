import numpy as np
import pytest

from mondrian_forest.plots import DensityDisplay


def test_each_curve_is_the_density_of_its_row(fitted, held_out, drawn):
    X, y = held_out
    display = DensityDisplay.from_estimator(fitted, X[:3], y[:3])
    assert drawn(display)[2:] == ["row 0", "row 1", "row 2"]
    one = fitted.predict_distribution(X[1:2])
    np.testing.assert_allclose(
        display.densities[1, 200], one.pdf(display.values[200])[0], rtol=1e-12
    )


def test_labels_are_optional(fitted, held_out):
    X, _ = held_out
    assert len(DensityDisplay.from_estimator(fitted, X[:2]).ax_.get_lines()) == 2


def test_labels_and_predictions_are_checked(fitted, held_out):
    X, y = held_out
    with pytest.raises(ValueError, match="one finite value for each of the 3 rows"):
        DensityDisplay.from_estimator(fitted, X[:3], y[:2])
    with pytest.raises(TypeError, match="must be a PredictiveDistribution"):
        DensityDisplay.from_predictions((X[:, 0], y))
