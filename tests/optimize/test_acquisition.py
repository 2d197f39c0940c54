import numpy as np
import pytest
from scipy import integrate, stats

from laws.significance import assert_plausible
from mondrian_forest.datasets import make_gap_wave
from mondrian_forest.optimize import (
    expected_improvement,
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
    upper_confidence_bound,
)
from mondrian_forest.optimize.acquisition import _log_h
from trees import paper_forest

QUERIES = np.array([[-2.0], [-1.0], [0.0], [0.5], [2.9], [8.0]])


@pytest.fixture(scope="module", params=["hierarchical", "empirical"])
def forest(request):
    X, y = make_gap_wave(60, random_state=0)
    return paper_forest(5, posterior=request.param, random_state=0).fit(X, y)


def test_the_bound_is_mean_plus_deviations(forest):
    found = forest.predict_distribution(QUERIES)
    mean, std = forest.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(upper_confidence_bound(found, 2.0), mean + 2.0 * std)


@pytest.mark.parametrize("best", [-1.0, 0.7, 2.0])
def test_expected_improvement_is_that_of_the_mixture(forest, best):
    found = forest.predict_distribution(QUERIES)
    for i in range(len(QUERIES)):
        # The mean of what exceeds the best is the integral of the survival function above it.
        expected = integrate.quad(
            lambda y, row=found[i]: 1.0 - row.cdf([y])[0], best, best + 20.0, limit=500
        )[0]
        assert expected_improvement(found, best)[i] == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_probability_of_improvement_is_that_of_the_mixture(forest):
    found = forest.predict_distribution(QUERIES)
    np.testing.assert_allclose(
        probability_of_improvement(found, 0.7),
        1.0 - found.cdf(np.full(6, 0.7)),
        rtol=1e-9,
        atol=1e-15,
    )


def test_tiny_improvements_are_told_apart(forest):
    found = forest.predict_distribution(QUERIES)
    values = log_expected_improvement(found, 1e4)
    assert np.isfinite(values).all()
    assert len(set(values)) > 1
    assert (values < -1e3).all()
    assert (expected_improvement(found, 1e4) == 0.0).all()


def test_the_improvement_of_a_gaussian_is_exact_on_all_its_branches():
    z = np.array([-30.0, -5.0, -1.0001, -0.9999, 0.0, 3.0])
    expected = np.log(
        [
            integrate.quad(
                lambda t, z=z_i: t * np.exp(-0.5 * (t * t - 2 * t * z)), 0, np.inf, epsabs=0
            )[0]
            for z_i in z
        ]
    )
    expected += -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(_log_h(z), expected, rtol=1e-9)
    edge = np.nextafter(-1000.0, [-np.inf, np.inf])
    below, above = _log_h(edge)
    assert below == pytest.approx(above, rel=1e-12)


def test_a_draw_has_the_law_of_the_tree(forest):
    X, y = make_gap_wave(60, random_state=0)
    single = paper_forest(1, posterior=forest.posterior, random_state=1).fit(X, y)
    found = single.predict_distribution(QUERIES)
    draws = np.array([thompson_sample(single, QUERIES, seed) for seed in range(3000)])
    noise = single.posterior_.noise_variance
    # A component's Gaussian stands for many branch times: mean and variance are exact, the rest is
    # not. For the empirical posterior, which knows no times, the whole law is.
    for i in range(len(QUERIES)):
        variance = found.var()[i] - noise
        standard = (draws[:, i].mean() - found.mean()[i]) / np.sqrt(variance / len(draws))
        assert_plausible(2 * stats.norm.sf(abs(standard)), len(draws))
        squares = (draws[:, i] - found.mean()[i]) ** 2
        standard = (squares.mean() - variance) / (squares.std() / np.sqrt(len(draws)))
        assert_plausible(2 * stats.norm.sf(abs(standard)), len(draws))
        if forest.posterior == "empirical":
            noisy = draws[:, i] + np.sqrt(noise) * np.random.default_rng(i).normal(size=len(draws))
            test = stats.kstest(noisy, lambda t, row=i: found[[row] * len(t)].cdf(t))
            assert_plausible(test.pvalue, len(draws))


def test_a_draw_is_one_function(forest):
    grid = np.linspace(-4, 4, 400)[:, None]
    one = thompson_sample(forest, grid, 3)
    np.testing.assert_array_equal(one, thompson_sample(forest, grid, 3))
    np.testing.assert_allclose(thompson_sample(forest, grid[::7], 3), one[::7], rtol=1e-12)
    steps = np.abs(np.diff(one))
    assert np.median(steps) < 0.2 * np.std(one)


def test_a_lifetime_ends_the_branching(forest):
    X, y = make_gap_wave(60, random_state=0)
    short = paper_forest(1, posterior=forest.posterior, random_state=1).fit(X, y)
    found = short.predict_distribution(QUERIES)
    draws = np.array([thompson_sample(short, QUERIES, seed) for seed in range(2000)])
    for i in range(len(QUERIES)):
        variance = found.var()[i] - short.posterior_.noise_variance
        standard = (draws[:, i].mean() - found.mean()[i]) / np.sqrt(variance / len(draws))
        assert_plausible(2 * stats.norm.sf(abs(standard)), len(draws))
