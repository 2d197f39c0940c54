"""What all displays have in common."""

import matplotlib.pyplot as plt
import pytest

from mondrian_forest.plots import (
    DensityDisplay,
    ErrorDisplay,
    PartitionDisplay,
    PITDisplay,
    PredictionBandDisplay,
    ReliabilityDisplay,
)


@pytest.mark.parametrize(
    "display_class",
    [
        DensityDisplay,
        ErrorDisplay,
        PITDisplay,
        PartitionDisplay,
        PredictionBandDisplay,
        ReliabilityDisplay,
    ],
)
def test_a_display_draws_on_the_given_axes_and_opens_no_figure(display_class, fitted, held_out):
    X, y = held_out
    figure, ax = plt.subplots()
    display = display_class.from_estimator(fitted, X[:20], y[:20], ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert plt.get_fignums() == [figure.number]
