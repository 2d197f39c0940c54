"""Displays of how well predictions fit held-out labels: reliability, PIT, errors."""

import numpy as np
import pytest

from mondrian_forest import metrics
from mondrian_forest.plots import ErrorDisplay, PITDisplay, ReliabilityDisplay


def test_the_reliability_diagram_shows_the_calibration_table(fitted, held_out, drawn):
    display = ReliabilityDisplay.from_estimator(fitted, *held_out)
    X, y = held_out
    expected = metrics.calibration_table(y, fitted.predict_distribution(X), np.linspace(0, 1, 101))
    _, curve = display.ax_.get_lines()
    np.testing.assert_array_equal(curve.get_xydata().T, [expected.level, expected.observed])
    assert drawn(display)[:2] == ["probability of the interval", "share of labels inside"]


def test_several_predictions_share_a_reliability_diagram(fitted, held_out, drawn):
    X, y = held_out
    pair = fitted.predict(X, return_std=True)
    display = ReliabilityDisplay.from_predictions(
        y, {"mixture": fitted.predict_distribution(X), "Gaussian": pair}
    )
    assert drawn(display)[2:] == ["ideal", "mixture", "Gaussian"]


def test_the_pit_histogram_has_unit_area(fitted, held_out, drawn):
    display = PITDisplay.from_estimator(fitted, *held_out, n_bins=8)
    bars = display.ax_.patches[:8]
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1.0)
    assert drawn(display)[0] == "predictive cdf at the label"
    X, y = held_out
    np.testing.assert_array_equal(display.values, metrics.pit(y, fitted.predict_distribution(X)))


def test_groups_lie_on_the_diagonal_if_the_standard_deviations_are_right(drawn):
    generator = np.random.default_rng(0)
    std = generator.uniform(1.0, 3.0, 50_000)
    display = ErrorDisplay.from_predictions(
        std * generator.standard_normal(50_000), (np.zeros(50_000), std), n_groups=10
    )
    _, groups, _ = display.ax_.get_lines()
    predicted, observed = groups.get_xydata().T
    assert len(predicted) == 10
    np.testing.assert_allclose(observed, predicted, rtol=0.05)
    assert drawn(display)[2:] == [
        "absolute error of a row",
        "root mean squared error of a group",
        "ideal",
    ]


def test_errors_are_labels_minus_predicted_means(fitted, held_out):
    X, y = held_out
    display = ErrorDisplay.from_estimator(fitted, X, y)
    np.testing.assert_array_equal(display.error, y - fitted.predict(X))


@pytest.mark.parametrize("number", [0, 1.5, None, "auto", True])
def test_a_number_of_bins_or_groups_must_be_a_positive_integer(fitted, held_out, number):
    with pytest.raises(ValueError, match="n_bins must be an integer of at least 1"):
        PITDisplay.from_estimator(fitted, *held_out, n_bins=number)
    with pytest.raises(ValueError, match="n_groups must be an integer of at least 1"):
        ErrorDisplay.from_estimator(fitted, *held_out, n_groups=number)
