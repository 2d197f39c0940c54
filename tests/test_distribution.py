"""What a PredictiveDistribution returns, and what it refuses."""

import os

import numpy as np
import pytest
from joblib import Parallel
from scipy.stats import kstest, norm

from trees import paper_forest


@pytest.fixture(scope="module", params=["hierarchical", "empirical"])
def distribution(request):
    generator = np.random.default_rng(0)
    X = generator.random((400, 2))
    y = np.sin(5 * X[:, 0]) + 0.2 * generator.normal(size=400)
    forest = paper_forest(8, posterior=request.param, random_state=0).fit(X, y)
    return forest.predict_distribution(generator.uniform(-0.3, 1.3, (40, 2)))


def components(distribution, i):
    """Return weights, means and standard deviations of the components of row i."""
    weight, mean, scale, df, offset = distribution.components()
    assert np.isinf(df).all()
    part = slice(offset[i], offset[i + 1])
    return weight[part], mean[part], scale[part]


def test_the_parts_add_up_to_the_variance_of_the_mixture(distribution):
    parts = distribution.decompose()
    assert parts._fields == ("noise", "posterior", "branching", "between_trees")
    for part in parts:
        assert part.shape == (40,)
        assert (part >= 0).all()
    for i in range(40):
        weight, mean, scale = components(distribution, i)
        total = weight @ (scale**2 + (mean - weight @ mean) ** 2)
        assert sum(part[i] for part in parts) == pytest.approx(total, rel=1e-9)


def test_the_mean_is_the_mean_of_the_mixture(distribution):
    for i in range(40):
        weight, mean, _ = components(distribution, i)
        assert distribution.mean()[i] == pytest.approx(weight @ mean, rel=1e-9, abs=1e-12)


def test_draws_have_the_mean_and_variance_of_the_distribution(distribution):
    draws = distribution.sample(4000, random_state=0)
    assert draws.shape == (40, 4000)
    z = (draws.mean(axis=1) - distribution.mean()) / distribution.std() * np.sqrt(4000)
    assert np.abs(z).max() < 5
    np.testing.assert_allclose(draws.var(axis=1), distribution.var(), rtol=0.3)
    np.testing.assert_array_equal(draws, distribution.sample(4000, random_state=0))
    assert not np.array_equal(draws, distribution.sample(4000, random_state=1))
    assert distribution.sample().shape == (40, 1)


def test_draws_follow_the_cdf(distribution):
    """In each row, the cdf at the draws is uniform."""
    draws = distribution.sample(500, random_state=1)
    probabilities = np.array([distribution.cdf(column) for column in draws.T])
    p_values = [kstest(row, "uniform").pvalue for row in probabilities.T]
    assert min(p_values) > 1e-3 / len(p_values)


def test_the_density_is_the_derivative_of_the_cdf(distribution):
    y = distribution.mean()
    step = 1e-5 * distribution.std()
    slope = (distribution.cdf(y + step) - distribution.cdf(y - step)) / (2 * step)
    np.testing.assert_allclose(distribution.pdf(y), slope, rtol=1e-4)
    np.testing.assert_allclose(np.log(distribution.pdf(y)), distribution.logpdf(y), rtol=1e-10)


def test_a_number_applies_to_all_rows(distribution):
    np.testing.assert_array_equal(distribution.cdf(0.3), distribution.cdf(np.full(40, 0.3)))


def test_quantiles_have_the_documented_shapes(distribution):
    assert distribution.quantile(0.5).shape == (40,)
    assert distribution.quantile([0.5]).shape == (40, 1)
    assert distribution.quantile([0.9, 0.1, 0.5]).shape == (40, 3)
    assert distribution.interval(0.9).shape == (40, 2)
    assert distribution.quantile([]).shape == (40, 0)


def test_quantiles_have_the_order_of_the_levels(distribution):
    found = distribution.quantile([0.9, 0.1, 0.9])
    np.testing.assert_array_equal(found[:, 0], distribution.quantile(0.9))
    np.testing.assert_array_equal(found[:, 1], distribution.quantile(0.1))
    np.testing.assert_array_equal(found[:, 2], found[:, 0])


def test_quantiles_are_monotone_and_invert_the_cdf(distribution):
    levels = np.linspace(0.001, 0.999, 101)
    found = distribution.quantile(levels)
    assert (np.diff(found, axis=1) >= 0).all()
    for k in (0, 13, 50, 100):
        np.testing.assert_allclose(distribution.cdf(found[:, k]), levels[k], rtol=1e-9)


def test_intervals_are_central(distribution):
    ends = distribution.interval(0.8)
    np.testing.assert_allclose(distribution.cdf(ends[:, 0]), 0.1, rtol=1e-9)
    np.testing.assert_allclose(distribution.cdf(ends[:, 1]), 0.9, rtol=1e-9)


def test_crps_is_the_expectation_over_draws_that_defines_it(distribution):
    y = distribution.mean() + distribution.std()
    draws = distribution.sample(4000, random_state=2)
    by_draws = np.abs(draws - y[:, None]).mean(axis=1) - 0.5 * np.abs(
        draws[:, ::2] - draws[:, 1::2]
    ).mean(axis=1)
    error = distribution.std() / np.sqrt(2000)
    assert (np.abs(distribution.crps(y) - by_draws) < 5 * error).all()


def test_a_single_component_is_a_gaussian():
    forest = paper_forest(1, random_state=0).fit([[0.0]], [2.0])
    single = forest.predict_distribution([[0.0]])
    mean, std = single.mean()[0], single.std()[0]
    assert len(single.components().weight) == 1
    y = mean + 0.7 * std
    assert single.cdf(y)[0] == pytest.approx(norm.cdf(0.7))
    assert single.quantile(0.95)[0] == pytest.approx(norm.ppf(0.95, mean, std))
    gaussian_crps = std * (0.7 * (2 * norm.cdf(0.7) - 1) + 2 * norm.pdf(0.7) - 1 / np.sqrt(np.pi))
    assert single.crps(y)[0] == pytest.approx(gaussian_crps)


@pytest.mark.parametrize(
    "chosen", [3, -1, slice(5, 20, 3), np.array([7, 7, 2]), np.arange(40) % 2 == 0, [], [1, 4]]
)
def test_rows_are_selected_as_in_an_array(distribution, chosen):
    part = distribution[chosen]
    expected = np.atleast_1d(distribution.mean()[chosen])
    assert len(part) == len(expected)
    np.testing.assert_array_equal(part.mean(), expected)
    np.testing.assert_array_equal(part.cdf(0.2), np.atleast_1d(distribution.cdf(0.2)[chosen]))
    np.testing.assert_array_equal(
        part.quantile(0.7), np.atleast_1d(distribution.quantile(0.7)[chosen])
    )
    np.testing.assert_array_equal(part.var(), np.atleast_1d(distribution.var()[chosen]))


def test_row_numbers_beyond_the_last_row_are_refused(distribution):
    with pytest.raises(IndexError):
        distribution[40]
    assert len(list(distribution)) == 40


@pytest.mark.parametrize("rows", [None, True, [[0, 1], [2, 3]]])
def test_invalid_selections_are_refused(distribution, rows):
    with pytest.raises(IndexError, match="Select rows by"):
        distribution[rows]


@pytest.mark.parametrize("y", ["a", {}, None, np.datetime64("2020"), 10**400])
def test_labels_that_are_not_numbers_are_refused(distribution, y):
    with pytest.raises(ValueError, match="y must be numbers"):
        distribution.cdf(y)


def test_missing_labels_give_nan_and_infinite_labels_the_limits(distribution):
    y = np.zeros(40)
    y[:3] = np.nan, np.inf, -np.inf
    np.testing.assert_allclose(distribution.cdf(y)[:3], [np.nan, 1.0, 0.0], rtol=1e-14)
    np.testing.assert_array_equal(distribution.pdf(y)[:3], [np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(distribution.crps(y)[:3], [np.nan, np.inf, np.inf])


@pytest.mark.parametrize("q", [-0.1, 1.1, np.nan, [0.5, 2.0], [[0.5]], "half", "0.5", 10**400])
def test_levels_outside_zero_to_one_are_refused(distribution, q):
    with pytest.raises(ValueError, match="q must be"):
        distribution.quantile(q)


@pytest.mark.parametrize("size", [-1, 1.5, "many", (2, 3), True])
def test_an_invalid_number_of_draws_is_refused(distribution, size):
    with pytest.raises(ValueError, match="size must be an integer of at least 0"):
        distribution.sample(size)


@pytest.mark.parametrize("level", [-0.5, 1.5, np.nan, [0.5, 0.9], "0.9", None, True])
def test_interval_levels_outside_zero_to_one_are_refused(distribution, level):
    with pytest.raises(ValueError, match="level must be"):
        distribution.interval(level)


def test_labels_of_the_wrong_length_are_refused(distribution):
    with pytest.raises(ValueError, match="one value for each of the 40 rows"):
        distribution.logpdf(np.zeros(39))


def test_the_repr_has_the_number_of_rows(distribution):
    assert repr(distribution).startswith("<PredictiveDistribution of 40 rows")


def test_there_are_never_more_threads_than_processors_or_blocks(monkeypatch):
    asked = []

    def parallel(n_jobs, **options):
        asked.append(n_jobs)
        return Parallel(n_jobs=n_jobs, **options)

    monkeypatch.setattr("mondrian_forest.distribution.Parallel", parallel)
    X = np.random.default_rng(0).random((3000, 1))
    forest = paper_forest(2, random_state=0, n_jobs=5000).fit(X, X[:, 0])
    forest.predict_quantiles(X, [0.1, 0.9])
    forest.predict_distribution(X[:10]).quantile(0.5)
    assert asked == [min(3, os.cpu_count()), 1]
