import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import beta, ndtri
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.mixture import (
    Mixture,
    _quantile,
    choose,
    crps,
    cumulative,
    log_density,
    lower_tail,
    quantiles,
)


def random_mixture(seed, n_rows=5, n_components=4, spread=3.0):
    generator = np.random.default_rng(seed)
    weight = generator.dirichlet(np.ones(n_components), n_rows).ravel()
    location = generator.normal(2.0, spread, n_rows * n_components)
    scale = np.exp(generator.normal(0.0, 1.0, n_rows * n_components))
    return Mixture(n_components * np.arange(n_rows + 1), weight, location, scale)


def random_student_mixture(seed, **options):
    mixture = random_mixture(seed, **options)
    choices = [3.0, 4.0, 7.0, 24.0, 500.0, 3.5, np.inf]
    degrees = np.random.default_rng(seed).choice(choices, len(mixture.weight))
    return mixture._replace(degrees=degrees)


def student_parts(mixture, i):
    """Return weight, location, scale and degrees; SciPy takes infinite degrees as Gaussian."""
    part = slice(mixture.offset[i], mixture.offset[i + 1])
    return (*component_arrays(mixture, i), mixture.degrees[part])


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
    exact = _quantile(mixture, None, 0, level, low, high)
    for y in (out[0, 0], exact):
        assert lower_tail(mixture, None, 0, y, 1.0) == pytest.approx(level, abs=2e-11)
    if level not in (0.3, 0.7):
        assert out[0, 0] == pytest.approx(exact, rel=1e-9)


def test_density_and_cdf_of_student_mixtures_equal_those_of_scipy():
    mixture = random_student_mixture(0)
    y = np.array([-80.0, -3.0, 2.0, 5.0, 1e4])
    log_densities, probabilities = np.empty(5), np.empty(5)
    log_density(mixture, y, log_densities)
    cumulative(mixture, y, probabilities)
    for i in range(5):
        weight, location, scale, degrees = student_parts(mixture, i)
        density = weight @ t.pdf(y[i], degrees, location, scale)
        assert log_densities[i] == pytest.approx(np.log(density), rel=1e-12)
        below = weight @ t.cdf(y[i], degrees, location, scale)
        assert probabilities[i] == pytest.approx(below, rel=1e-10)
        above = weight @ t.sf(y[i], degrees, location, scale)
        assert lower_tail(mixture, mixture.degrees, i, y[i], -1.0) == pytest.approx(
            above, rel=1e-10
        )


def test_log_density_of_a_student_mixture_is_finite_where_squares_overflow():
    mixture = random_student_mixture(1, n_rows=1)._replace(degrees=np.full(4, 3.0))
    out = np.empty(1)
    log_density(mixture, np.array([1e200]), out)
    weight, _, scale, _ = student_parts(mixture, 0)
    constant = 6.0 * np.sqrt(3.0) / np.pi  # the density of three degrees tends to it / x^4
    assert out[0] == pytest.approx(
        np.log(weight @ scale**3 * constant) - 4 * np.log(1e200), rel=1e-12
    )


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 1e6]),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=4),
)
def test_quantiles_of_student_mixtures_invert_the_cdf_and_never_cross(seed, spread, levels):
    mixture = random_student_mixture(seed, n_rows=1, spread=spread)
    levels = np.unique(levels)
    found = solve(mixture, levels)[0]
    assert (np.diff(found) >= 0).all()
    weight, location, scale, degrees = student_parts(mixture, 0)
    for level, y in zip(levels, found, strict=True):
        if level <= 0.5:
            below = weight @ t.cdf(y, degrees, location, scale)
            assert below == pytest.approx(level, rel=1e-6)
        else:
            above = weight @ t.sf(y, degrees, location, scale)
            assert above == pytest.approx(1 - level, rel=1e-6)


def test_quantiles_of_a_student_mixture_equal_roots_of_scipys_cdf():
    mixture = random_student_mixture(5, n_rows=2)
    levels = np.array([1e-6, 0.01, 0.5, 0.9])
    found = solve(mixture, levels)
    for i in range(2):
        weight, location, scale, degrees = student_parts(mixture, i)
        for q, level in enumerate(levels):

            def excess(y, parts=(degrees, location, scale), weight=weight, level=level):
                return weight @ t.cdf(y, *parts) / level - 1.0

            assert found[i, q] == pytest.approx(brentq(excess, -1e4, 1e4, xtol=1e-12), rel=1e-9)


def test_the_quantile_of_the_cdf_of_a_student_mixture_is_the_label():
    mixture = random_student_mixture(2)
    y, probabilities = np.array([-1.0, 0.5, 2.0, 3.3, 4.0]), np.empty(5)
    cumulative(mixture, y, probabilities)
    for i in range(5):
        assert solve(mixture, probabilities[i : i + 1])[i, 0] == pytest.approx(y[i], rel=1e-9)


@pytest.mark.parametrize("degrees", [1.0, 3.0, 40.0])
@pytest.mark.parametrize("level", [1e-250, 1e-20, 1e-5])
def test_extreme_levels_of_a_student_mixture_keep_their_digits(degrees, level):
    mixture = Mixture(
        np.array([0, 2]), np.full(2, 0.5), np.zeros(2), np.ones(2), np.array([degrees, np.inf])
    )
    y = solve(mixture, np.array([level]))[0, 0]
    below = 0.5 * (t.cdf(y, degrees) + norm.cdf(y))
    assert below == pytest.approx(level, rel=1e-9)


def crps_at(mixture, y):
    out = np.empty(len(mixture.offset) - 1)
    crps(mixture, np.full(len(out), y), out)
    return out


@pytest.mark.parametrize("degrees", [1.5, 2.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("y", [-30.0, 0.0, 1.0, 1e5])
def test_crps_of_one_student_component_has_its_closed_form(degrees, y):
    mixture = Mixture(*(np.array(a) for a in ([0, 1], [1.0], [2.0], [0.5], [degrees])))
    z = (y - 2.0) / 0.5
    # Jordan, Krueger and Lerch (2019), "Evaluating probabilistic forecasts with scoringRules".
    expected = (
        z * (2.0 * t.cdf(z, degrees) - 1.0)
        + 2.0 * t.pdf(z, degrees) * (degrees + z * z) / (degrees - 1.0)
        - 2.0
        * np.sqrt(degrees)
        / (degrees - 1.0)
        * beta(0.5, degrees - 0.5)
        / beta(0.5, 0.5 * degrees) ** 2
    )
    assert crps_at(mixture, y) == pytest.approx(0.5 * expected, rel=1e-5)


@pytest.mark.parametrize(
    ("location", "scale"),
    [
        ([0.0, 0.5, -0.5], [1.0, 0.7, 2.0]),
        ([0.0, 0.3, -1.0], [1.0, 1e-6, 1.0]),
        ([-1e6, 0.0, 1e6], [1.0, 1.0, 1.0]),
        ([-1.0, 0.0, 1.0], [1e-6, 1e-6, 1e-6]),
    ],
)
@pytest.mark.parametrize("y", [0.3, -40.0])
def test_crps_of_a_student_mixture_equals_its_integral(location, scale, y):
    weight, degrees = np.array([0.2, 0.5, 0.3]), np.array([3.0, 5.0, 30.0])
    location, scale = np.array(location), np.array(scale)
    found = crps_at(Mixture(np.array([0, 3]), weight, location, scale, degrees), y)

    steps = scale * np.append(0.0, np.geomspace(1.0, 1e10, 21))[:, None]
    cuts = np.unique(np.concatenate([(location - steps).ravel(), (location + steps).ravel(), [y]]))
    nodes, node_weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(cuts)[:, None]
    points = (cuts[:-1, None] + half) + half * nodes
    sign = np.where(points < y, 1.0, -1.0)[..., None]
    tails = t.cdf(sign * (points[..., None] - location) / scale, degrees) @ weight
    exact = (half * node_weights * tails**2).sum()
    assert found == pytest.approx(exact, rel=1e-5)


def test_infinite_degrees_are_gaussian_components():
    gaussian = random_mixture(6)
    infinite = gaussian._replace(degrees=np.full(len(gaussian.weight), np.inf))
    y = np.array([-60.0, -3.0, 2.0, 5.0, 12.0])
    for function, tolerance in [(log_density, 1e-12), (cumulative, 1e-12), (crps, 1e-5)]:
        expected, found = np.empty(5), np.empty(5)
        function(gaussian, y, expected)
        function(infinite, y, found)
        np.testing.assert_allclose(found, expected, rtol=tolerance)
    levels = np.array([1e-9, 0.1, 0.5, 0.99])
    np.testing.assert_allclose(solve(infinite, levels), solve(gaussian, levels), rtol=1e-9)


def test_components_are_chosen_by_their_weights():
    mixture = Mixture(
        np.array([0, 2, 3]), np.array([0.25, 0.75, 1.0]), np.zeros(3), np.ones(3), np.full(3, 4.0)
    )
    chosen = np.empty((2, 3), dtype=np.int64)
    choose(mixture, np.array([[0.0, 0.25, 1.0], [0.0, 0.5, 1.0]]), chosen)
    np.testing.assert_array_equal(chosen, [[0, 1, 1], [2, 2, 2]])


def moved(mixture, shift):
    return mixture._replace(location=mixture.location + shift)


def whole_mixture(seed, degrees, n_rows=6, n_components=5):
    """Return mixtures whose locations are even numbers, and stay exact when they are moved."""
    generator = np.random.default_rng(seed)
    n_all = n_rows * n_components
    return Mixture(
        n_components * np.arange(n_rows + 1),
        generator.dirichlet(np.ones(n_components), n_rows).ravel(),
        2.0 * generator.integers(-20, 20, n_all),
        generator.choice([1e-7, 1e-3, 0.5, 3.0, 40.0], n_all),
        generator.choice([3.0, 7.0, 24.0, 500.0], n_all) if degrees else np.empty(0),
    )


@pytest.mark.parametrize("degrees", [False, True], ids=["Gaussian", "Student"])
@pytest.mark.parametrize("shift", [2.0**27, 2.0**40, -(2.0**53)])
@pytest.mark.parametrize("seed", range(5))
def test_scores_do_not_change_when_mixture_and_label_are_moved(seed, shift, degrees):
    mixture = whole_mixture(seed, degrees)
    y = 2.0 * np.random.default_rng(seed).integers(-30, 30, 6)
    for function, tolerance in [(log_density, 0.0), (cumulative, 0.0), (crps, 1e-5)]:
        expected, found = np.empty(6), np.empty(6)
        function(mixture, y, expected)
        function(moved(mixture, shift), y + shift, found)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=0.0)


@pytest.mark.parametrize("degrees", [False, True], ids=["Gaussian", "Student"])
@pytest.mark.parametrize("shift", [0.0, 1e8, 1e16])
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e3])
def test_the_crps_of_equal_components_is_that_of_one(shift, scale, degrees):
    """A sum of locations is not one of them: it is off by more than the components' width."""
    weight = np.random.default_rng(0).dirichlet(np.ones(40))
    of_degrees = np.full(40, 5.0) if degrees else np.empty(0)
    many = Mixture(np.array([0, 40]), weight, np.full(40, shift), np.full(40, scale), of_degrees)
    one = Mixture(np.array([0, 1]), np.ones(1), np.zeros(1), np.full(1, scale), of_degrees[:1])
    assert crps_at(many, shift) == pytest.approx(crps_at(one, 0.0), rel=1e-5)


def assert_quantiles_are_the_first_to_reach_their_level(mixture, levels):
    """Up to 1e-12: what the cdf is there reaches it, and what it is at the number before does not.

    Where a component is narrower than the distance between two numbers of float64, the cdf has a
    step, and there is no number at which it is the level.
    """
    for level, y in zip(levels, solve(mixture, levels).T, strict=True):
        at, before = np.empty(len(y)), np.empty(len(y))
        cumulative(mixture, y, at)
        cumulative(mixture, np.nextafter(y, -np.inf), before)
        assert (at >= level - 1e-12).all()
        assert (before <= level + 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    degrees=st.booleans(),
    shift=st.sampled_from([0.0, 1.0, 305.0, 1e8, 1e16]),
    shrink=st.sampled_from([1.0, 1e-6, 1e-12, 1e-18, 1e-60]),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=6),
)
def test_quantiles_are_the_first_numbers_to_reach_their_level(seed, degrees, shift, shrink, levels):
    mixture = whole_mixture(seed, degrees, n_rows=2)
    mixture = moved(mixture, shift)._replace(scale=shrink * mixture.scale)
    assert_quantiles_are_the_first_to_reach_their_level(mixture, np.unique(levels))


@pytest.mark.parametrize("location", [0.0, 1e-300, 507.0, -1e16])
@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e-12])
def test_quantiles_on_a_spike_beside_a_wide_component(location, scale):
    mixture = Mixture(
        np.array([0, 2]),
        np.array([0.5, 0.5]),
        np.array([location, location + 4.0]),
        np.array([scale, 2.0]),
    )
    levels = np.array([1e-6, 1e-3, 0.05, 0.2, 0.4, 0.5, 0.8, 1 - 1e-6])
    assert_quantiles_are_the_first_to_reach_their_level(mixture, levels)
