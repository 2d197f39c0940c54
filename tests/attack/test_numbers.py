"""Hostile numbers: whatever a small fit is made of, its predictions are sound.

``MONDRIAN_ATTACK`` multiplies the number of examples.
"""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.metrics import summary

SCALE = int(os.environ.get("MONDRIAN_ATTACK", "1"))
LEVELS = np.array([1e-9, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1 - 1e-9])

FEATURES = {
    "uniform": lambda random, n: random.random(n),
    "integers": lambda random, n: random.integers(0, 4, n).astype(float),
    "constant": lambda _, n: np.full(n, 7.0),
    "huge": lambda random, n: random.choice([-1e300, 0.0, 1e300], n),
    "tiny": lambda random, n: 1e-300 * random.random(n),
    "large and close": lambda random, n: 1e16 + 2.0 * random.integers(0, 5, n),
    "many sizes": lambda random, n: 10.0 ** random.uniform(-300, 300, n),
    "one outlier": lambda random, n: np.where(np.arange(n) == 0, 1e12, random.random(n)),
}
LABELS = {
    "normal": lambda random, n: random.normal(size=n),
    "uniform": lambda random, n: random.random(n),
    "constant": lambda _, n: np.ones(n),
    "two values": lambda random, n: random.integers(0, 2, n).astype(float),
    "nearly constant": lambda random, n: 1.0 + 1e-15 * random.integers(0, 3, n),
    "many sizes": lambda random, n: 10.0 ** random.uniform(-8, 8, n),
    "one outlier": lambda random, n: np.where(np.arange(n) == 0, 1e9, random.random(n)),
}


@st.composite
def tables(draw):
    """Return features and labels of a few rows."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    n_rows = draw(st.sampled_from([1, 2, 3, 8, 20, 60]))
    kinds = draw(st.lists(st.sampled_from(sorted(FEATURES)), min_size=1, max_size=3))
    X = np.column_stack([FEATURES[kind](random, n_rows) for kind in kinds])
    label = draw(st.sampled_from([*sorted(LABELS), "linear"]))
    if label == "linear":
        y = 3.0 * (X[:, 0] / max(np.abs(X[:, 0]).max(), 1e-300)) + 7.0
    else:
        y = LABELS[label](random, n_rows)
    return X, draw(st.sampled_from([0.0, 1.0, 1e8, 1e12, 1e16, -1e16])) + y


def assert_sound(distribution, y):
    """Check all that a predictive distribution says of itself, at the labels and elsewhere."""
    mean, deviation = distribution.mean(), distribution.std()
    assert np.isfinite(mean).all()
    assert (deviation > 0.0).all()
    assert np.isfinite(deviation).all()
    quantiles = distribution.quantile(LEVELS)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=1) >= 0.0).all()
    for level, at in zip(LEVELS, quantiles.T, strict=True):
        reached = distribution.cdf(at)
        before = distribution.cdf(np.nextafter(at, -np.inf))
        assert ((reached >= 0.0) & (reached <= 1.0)).all()
        assert (reached >= level - 1e-12).all()
        assert (before <= level + 1e-12).all()
    for point in (y, mean, *quantiles.T):
        assert np.isfinite(distribution.logpdf(point)).all()
        score = distribution.crps(point)
        assert (score >= 0.0).all()
        assert np.isfinite(score).all()
    assert np.isfinite(distribution.sample(3, random_state=0)).all()
    assert all(np.isfinite(part).all() and (part >= 0.0).all() for part in distribution.decompose())
    assert np.isfinite(list(summary(y, distribution).values())).all()


@settings(max_examples=60 * SCALE, deadline=None)
@given(
    table=tables(),
    size=st.sampled_from([1.0, 1e-16, 1e-100, 1e100]),
    posterior=st.sampled_from(["pruned", "hierarchical", "empirical"]),
    spread=st.sampled_from(["auto", 1.0, 1e-3]),
    mean_function=st.sampled_from([None, "linear"]),
    min_samples_split=st.sampled_from([2, 10]),
    share=st.sampled_from([1.0, 0.5]),
)
def test_predictions_are_sound(
    table, size, posterior, spread, mean_function, min_samples_split, share
):
    """After a fit to a share of the rows, and learning the others."""
    X, y = table
    n_first = len(y)
    # With a linear mean function, rows that are too far from those of the fit are refused, and so
    # are labels of such sizes if it leaves nothing of them.
    if mean_function is None:
        y = size * y
        n_first = max(int(share * len(y)), 1)
    forest = MondrianForestRegressor(
        3,
        posterior=posterior,
        spread=spread,
        mean_function=mean_function,
        min_samples_split=min_samples_split,
        random_state=0,
    ).fit(X[:n_first], y[:n_first])
    if n_first < len(y):
        forest.partial_fit(X[n_first:], y[n_first:])
    assert_sound(forest.predict_distribution(X), y)
    far = np.vstack([np.nextafter(X, np.inf), 0.5 * X, np.zeros_like(X)])
    assert_sound(forest.predict_distribution(far), np.tile(y, 3))


def test_labels_that_differ_in_their_last_digit_are_learned():
    """Their mean is no number of float64, and the deviations from it were rounded to zero."""
    X, y = np.array([[0.0], [1.0]]), 1e16 + np.array([8.0, 10.0])
    forest = MondrianForestRegressor(3, random_state=0).fit(X, y)
    assert_sound(forest.predict_distribution(X), y)


@pytest.mark.parametrize("posterior", ["pruned", "hierarchical", "empirical"])
def test_labels_whose_spread_is_below_the_resolution_of_float64(posterior):
    """They are all equal, and so is the score of all of them."""
    random = np.random.default_rng(0)
    X, y = random.random((60, 2)), 1e16 + random.random(60)
    distribution = (
        MondrianForestRegressor(5, posterior=posterior, random_state=0)
        .fit(X, y)
        .predict_distribution(X)
    )
    assert_sound(distribution, y)
    score, deviation = distribution.crps(y), distribution.std()
    assert (score < deviation).all()
    assert (score > 0.1 * deviation).all()
