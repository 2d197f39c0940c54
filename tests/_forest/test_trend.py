"""A forest with a trend: the forest learns its residuals, and adds it to what it predicts."""

import numpy as np
import pytest

from benchmarks.settings import PRUNED
from forests import rmse, share_covered, small_forest
from mondrian_forest import PrunedPosterior
from mondrian_forest._forest.sharing import state_of


def test_the_forest_learns_what_the_trend_leaves():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 3)) * [1.0, 10.0, 0.0]
    y = 5.0 + X @ [2.0, -3.0, 1.0] + np.sin(X[:, 0])
    model = small_forest(**PRUNED | {"trend": "linear"}).fit(X[:200], y[:200])
    design = np.column_stack([np.ones(200), X[:200, :2]])
    slope = np.linalg.lstsq(design, y[:200], rcond=None)[0]
    trend = state_of(model).trend.at(X)
    np.testing.assert_allclose(trend, slope[0] + X[:, :2] @ slope[1:], rtol=0.01, atol=0.1)
    residual = y - trend
    posterior = PrunedPosterior(noise_variance=model.posterior_.noise_variance)
    model.set_params(posterior=posterior)
    plain = small_forest(**PRUNED | {"posterior": posterior}).fit(X[:200], residual[:200])
    model.partial_fit(X[200:], y[200:])
    plain.partial_fit(X[200:], residual[200:])
    np.testing.assert_allclose(model.predict(X), plain.predict(X) + trend, atol=1e-8)
    np.testing.assert_allclose(
        model.predict_quantiles(X, 0.9), plain.predict_quantiles(X, 0.9) + trend, atol=1e-8
    )


def test_a_trend_extrapolates():
    """Beyond the data a forest is flat: the first failure that the paper names."""
    X = np.random.default_rng(0).random((500, 2))
    y = 10.0 * X[:, 0] + np.sin(9 * X[:, 1])
    far = X + np.array([2.0, 0.0])
    flat, rising = (
        small_forest(**PRUNED | {"trend": trend}).fit(X, y) for trend in (None, "linear")
    )
    truth = y + 20.0
    assert rmse(rising, far, truth) < 0.1 * rmse(flat, far, truth)


def test_equal_features_share_a_slope():
    X = np.random.default_rng(0).random((100, 1))
    model = small_forest(**PRUNED | {"trend": "linear"}).fit(np.hstack([X, X]), X[:, 0])
    trend = state_of(model).trend
    np.testing.assert_allclose(trend.slope[0], trend.slope[1])
    np.testing.assert_allclose(trend.at([[0.0, 0.0], [1.0, 1.0]]), [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("n_features", [50, 80])
def test_intervals_stay_wide_if_there_are_few_rows_for_many_features(n_features):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(260, n_features)), generator.normal(size=260)
    model = small_forest(**PRUNED | {"trend": "linear", "spread": "auto"}).fit(X[:60], y[:60])
    assert share_covered(model.predict_distribution(X[60:]), y[60:], 0.9) > 0.7


def test_a_trend_works_with_a_given_range_and_in_extreme_units():
    generator = np.random.default_rng(0)
    X = generator.random((300, 2)) * [100.0, 1.0] + [1e8, 0.0]
    y = 0.1 * (X[:, 0] - 1e8) + X[:, 1]
    model = small_forest(**PRUNED | {"trend": "linear", "feature_range": (0.0, 1e10)}).fit(X, y)
    np.testing.assert_allclose(state_of(model).trend.at(X), y, atol=1e-3)
    for unit in (1e300, 1e-300):
        rows = (X - [1e8, 0.0]) * unit
        tiny = small_forest(**PRUNED | {"trend": "linear"}).fit(rows, y)
        np.testing.assert_allclose(tiny.predict(rows), y, atol=0.1)


def test_the_noise_follows_from_the_resolution_of_the_labels_themselves():
    X = np.random.default_rng(0).random((300, 2))
    y = np.round(20 * X[:, 0])
    model = small_forest(**PRUNED | {"trend": "linear"}).fit(X, y)
    assert model.posterior_.noise_variance == pytest.approx(1 / 12)
