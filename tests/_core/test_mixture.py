import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import norm

from mondrian_forest._core.mixture import (
    Mixture,
    _quantile,
    crps,
    cumulative,
    draw,
    log_density,
    lower_tail,
    normal_at,
    quantiles,
)


def random_mixture(seed, n_rows=5, n_components=4, spread=3.0):
    generator = np.random.default_rng(seed)
    weight = generator.dirichlet(np.ones(n_components), n_rows).ravel()
    location = generator.normal(2.0, spread, n_rows * n_components)
    scale = np.exp(generator.normal(0.0, 1.0, n_rows * n_components))
    return Mixture(n_components * np.arange(n_rows + 1), weight, location, scale)


def component_arrays(mixture, i):
    part = slice(mixture.offset[i], mixture.offset[i + 1])
    return mixture.weight[part], mixture.location[part], mixture.scale[part]


def solve(mixture, levels):
    out = np.empty((len(mixture.offset) - 1, len(levels)))
    quantiles(mixture, np.asarray(levels), ndtri(levels), out)
    return out


def test_density_and_cdf_equal_those_of_scipy():
    mixture = random_mixture(0)
    y = np.linspace(-8.0, 12.0, 5)
    log_densities, probabilities = np.empty(5), np.empty(5)
    log_density(mixture, y, log_densities)
    cumulative(mixture, y, probabilities)
    for i in range(5):
        weight, location, scale = component_arrays(mixture, i)
        assert np.exp(log_densities[i]) == pytest.approx(weight @ norm.pdf(y[i], location, scale))
        assert probabilities[i] == pytest.approx(weight @ norm.cdf(y[i], location, scale))


def test_log_density_is_finite_where_the_density_underflows():
    mixture = random_mixture(1, n_rows=2)
    y, out = np.array([1e6, -np.inf]), np.empty(2)
    log_density(mixture, y, out)
    weight, location, scale = component_arrays(mixture, 0)
    assert out[0] == pytest.approx((np.log(weight) + norm.logpdf(1e6, location, scale)).max())
    assert out[1] == -np.inf


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 50.0, 1e6]),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=6),
)
def test_quantiles_invert_the_cdf_and_never_cross(seed, spread, levels):
    mixture = random_mixture(seed, n_rows=1, spread=spread)
    levels = np.unique(levels)
    found = solve(mixture, levels)[0]
    assert (np.diff(found) >= 0).all()
    weight, location, scale = component_arrays(mixture, 0)
    for level, y in zip(levels, found, strict=True):
        if level <= 0.5:
            assert weight @ norm.cdf(y, location, scale) == pytest.approx(level, rel=1e-6)
        else:
            assert weight @ norm.sf(y, location, scale) == pytest.approx(1 - level, rel=1e-6)


def test_the_quantile_of_the_cdf_is_the_label():
    mixture = random_mixture(2)
    y, probabilities = np.array([-1.0, 0.5, 2.0, 3.3, 4.0]), np.empty(5)
    cumulative(mixture, y, probabilities)
    for i in range(5):
        assert solve(mixture, probabilities[i : i + 1])[i, 0] == pytest.approx(y[i], rel=1e-9)


def test_extreme_levels_are_infinite():
    found = solve(random_mixture(3), np.array([0.0, 0.5, 1.0]))
    assert (found[:, 0] == -np.inf).all()
    assert np.isfinite(found[:, 1]).all()
    assert (found[:, 2] == np.inf).all()


def test_quantiles_of_two_far_spikes_are_on_the_spikes():
    """A plateau of the cdf between two narrow components, where Newton steps leave the bracket."""
    mixture = Mixture(
        np.array([0, 2]), np.array([0.3, 0.7]), np.array([-1e6, 1e6]), np.array([1e-3, 1e-3])
    )
    found = solve(mixture, np.array([0.1, 0.29, 0.31, 0.9]))[0]
    np.testing.assert_allclose(found, [-1e6, -1e6, 1e6, 1e6], atol=0.01)
    np.testing.assert_allclose(found[0], -1e6 + 1e-3 * norm.ppf(1 / 3), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e-13, 1e-15])
def test_a_spike_does_not_catch_the_search_for_other_levels(scale):
    mixture = Mixture(
        np.array([0, 3]),
        np.array([0.1, 0.88, 0.02]),
        np.array([0.0, 5.0, -200.0]),
        np.array([scale, 20.0, 1.0]),
    )
    levels = np.array([0.42, 0.46, 0.48, 0.49, 0.6])
    for level, y in zip(levels, solve(mixture, levels)[0], strict=True):
        weight, location, scales = component_arrays(mixture, 0)
        step = 1e-12
        assert weight @ norm.cdf(y - step, location, scales) <= level + 1e-13
        assert weight @ norm.cdf(y + step, location, scales) >= level - 1e-13


@pytest.mark.parametrize("level", [1e-300, 1e-100, 1e-50, 1e-20])
def test_extreme_levels_keep_their_digits(level):
    mixture = Mixture(
        np.array([0, 2]), np.array([0.999, 0.001]), np.array([0.0, 0.0]), np.array([1.0, 100.0])
    )
    found = solve(mixture, np.array([level]))[0, 0]
    assert found == pytest.approx(norm.ppf(level / 0.001, scale=100.0), rel=1e-6)


def test_crps_equals_its_integral():
    mixture = random_mixture(4)
    y, out = np.array([-3.0, 0.0, 1.0, 5.0, 20.0]), np.empty(5)
    crps(mixture, y, out)
    for i in range(5):
        weight, location, scale = component_arrays(mixture, i)

        def squared_error(t, i=i, weight=weight, location=location, scale=scale):
            return (weight @ norm.cdf(t, location, scale) - (t >= y[i])) ** 2

        exact = sum(quad(squared_error, a, b, limit=200)[0] for a, b in [(-80, y[i]), (y[i], 80)])
        assert out[i] == pytest.approx(exact, rel=1e-6)


def test_draws_follow_the_weights_and_components():
    mixture = Mixture(
        np.array([0, 2]), np.array([0.25, 0.75]), np.array([-5.0, 5.0]), np.array([1.0, 2.0])
    )
    uniform = np.array([[0.0, 0.2499, 0.25, 0.99, 1.0]])
    normal = np.array([[0.0, 1.0, 1.0, -1.0, 0.5]])
    out = np.empty((1, 5))
    draw(mixture, uniform, normal, out)
    np.testing.assert_allclose(out, [[-5.0, -4.0, 7.0, 3.0, 6.0]])


def test_the_table_of_the_normal_distribution_is_accurate_everywhere():
    generator = np.random.default_rng(0)
    points = np.concatenate(
        [generator.uniform(-9.5, 9.5, 2000), [-np.inf, -1e100, -9.0, 0.0, 9.0, 1e100, np.inf]]
    )
    found = np.array([normal_at(point) for point in points])
    np.testing.assert_allclose(found[:, 0], norm.cdf(points), rtol=0, atol=1e-15)
    np.testing.assert_allclose(found[:, 1], norm.pdf(points), rtol=0, atol=1e-12)
    assert np.isnan(normal_at(np.nan)).all()


@pytest.mark.parametrize("level", [1e-4, 0.3, 0.5, 0.7, 1 - 1e-4])
def test_newton_and_the_exact_search_find_the_same_quantile(level):
    """Two far and narrow modes, with a flat stretch in between where Newton's steps are wild."""
    mixture = Mixture(
        np.array([0, 3]),
        np.array([0.3, 0.4, 0.3]),
        np.array([-100.0, 0.0, 1000.0]),
        np.array([1e-3, 5.0, 1e-2]),
    )
    out = np.empty((1, 1))
    quantiles(mixture, np.array([level]), norm.ppf([level]), out)
    low, high = np.array([-200.0, 2000.0])
    # In the flat stretch one error of rounding in the level moves the quantile a long way.
    exact = _quantile(mixture, 0, level, low, high)
    for y in (out[0, 0], exact):
        assert lower_tail(mixture, 0, y, 1.0) == pytest.approx(level, abs=2e-11)
    if level not in (0.3, 0.7):
        assert out[0, 0] == pytest.approx(exact, rel=1e-9)
