"""Acquisition functions against integrals of the mixture, and draws against its law."""

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks.settings import PRUNED
from forests import friedman, small_forest
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


def fitted(n_trees, posterior, seed=0, **parameters):
    X, y = make_gap_wave(60, random_state=0)
    return paper_forest(n_trees, posterior=posterior, random_state=seed, **parameters).fit(X, y)


@pytest.fixture(scope="module", params=["hierarchical", "empirical", "pruned"])
def found(request):
    return fitted(5, request.param).predict_distribution(QUERIES)


@pytest.fixture(scope="module", params=["hierarchical", "empirical"])
def posterior(request):
    return request.param


def test_the_confidence_bound_is_the_mean_plus_standard_deviations(posterior):
    forest = fitted(5, posterior)
    found = forest.predict_distribution(QUERIES)
    mean, std = forest.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(upper_confidence_bound(found, 2.0), mean + 2.0 * std)


@pytest.mark.parametrize("best", [-1.0, 0.7, 2.0])
def test_the_expected_improvement_is_the_integral_of_the_survival_function(found, best):
    is_gaussian = np.isinf(found.components().df).all()
    tail = 1e-9 if is_gaussian else 1e-6  # what the integral leaves out
    for i in range(len(QUERIES)):
        expected = integrate.quad(
            lambda y, row=found[i]: 1.0 - row.cdf([y])[0], best, best + 20.0, limit=500
        )[0]
        assert expected_improvement(found, best)[i] == pytest.approx(expected, rel=1e-5, abs=tail)


def test_the_probability_of_improvement_is_the_survival_function(found):
    np.testing.assert_allclose(
        probability_of_improvement(found, 0.7),
        1.0 - found.cdf(np.full(6, 0.7)),
        rtol=1e-9,
        atol=1e-15,
    )


@pytest.mark.parametrize("posterior", ["hierarchical", "empirical"])
def test_the_logarithm_tells_improvements_apart_that_underflow(posterior):
    found = fitted(5, posterior).predict_distribution(QUERIES)
    values = log_expected_improvement(found, 1e4)
    assert np.isfinite(values).all()
    assert len(set(values)) > 1
    assert (values < -1e3).all()
    assert (expected_improvement(found, 1e4) == 0.0).all()


def test_the_improvement_of_a_gaussian_is_exact_in_all_ranges_of_its_formula():
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


def test_draws_are_distributed_as_the_mixture_of_the_tree(posterior):
    single = fitted(1, posterior, seed=1)
    found = single.predict_distribution(QUERIES)
    draws = np.array([thompson_sample(single, QUERIES, seed) for seed in range(3000)])
    noise = single.posterior_.noise_variance
    # The Gaussian of a component averages over branch times, so that its mean and variance are
    # exact, but not its shape. The empirical posterior has no times, so that all of it is exact.
    for i in range(len(QUERIES)):
        variance = found.var()[i] - noise
        standard = (draws[:, i].mean() - found.mean()[i]) / np.sqrt(variance / len(draws))
        assert_plausible(2 * stats.norm.sf(abs(standard)), len(draws))
        squares = (draws[:, i] - found.mean()[i]) ** 2
        standard = (squares.mean() - variance) / (squares.std() / np.sqrt(len(draws)))
        assert_plausible(2 * stats.norm.sf(abs(standard)), len(draws))
        if posterior == "empirical":
            noisy = draws[:, i] + np.sqrt(noise) * np.random.default_rng(i).normal(size=len(draws))
            test = stats.kstest(noisy, lambda t, row=i: found[[row] * len(t)].cdf(t))
            assert_plausible(test.pvalue, len(draws))


@pytest.mark.parametrize("posterior", ["hierarchical", "empirical", "pruned"])
def test_a_draw_is_a_function_that_changes_little_between_near_rows(posterior):
    forest = fitted(5, posterior)
    grid = np.linspace(-4, 4, 400)[:, None]
    one = thompson_sample(forest, grid, 3)
    np.testing.assert_array_equal(one, thompson_sample(forest, grid, 3))
    np.testing.assert_allclose(thompson_sample(forest, grid[::7], 3), one[::7], rtol=1e-12)
    steps = np.abs(np.diff(one))
    assert np.median(steps) < 0.2 * np.std(one)


def test_the_logarithm_tells_tiny_improvements_of_the_pruned_posterior_apart():
    X, y = friedman(3000, 5)
    found = small_forest(**PRUNED).fit(X, y).predict_distribution(X[:3] + 1e6)
    values = [log_expected_improvement(found, best) for best in (1e2, 1e3, 1e5)]
    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values, axis=0) < 0.0)


def test_draws_of_the_pruned_posterior_have_the_mean_of_the_forest():
    X, y = friedman(200, 3)
    model = small_forest(**PRUNED).fit(X, y)
    draws = np.array([thompson_sample(model, X[:5], seed) for seed in range(600)])
    np.testing.assert_allclose(draws.mean(axis=0), model.predict(X[:5]), atol=0.5)
