import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.mixture import Mixture, cumulative, lower_tail
from mondrian_forest._core.mixtures.quantiles import quantiles, searched_quantile

from .mixtures import (
    component_arrays,
    moved,
    random_mixture,
    random_student_mixture,
    student_parts,
    whole_mixture,
)


def solve(mixture, levels):
    out = np.empty((len(mixture.offset) - 1, len(levels)))
    quantiles(mixture, np.asarray(levels), ndtri(levels), out)
    return out


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


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    distance=st.sampled_from([0.0, 1.0, 50.0, 1e6]),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=6),
)
def test_quantiles_invert_the_cdf_and_never_cross(seed, distance, levels):
    mixture = random_mixture(seed, n_rows=1, distance=distance)
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
    exact = searched_quantile(mixture, None, 0, level, low, high)
    for y in (out[0, 0], exact):
        assert lower_tail(mixture, None, 0, y, 1.0) == pytest.approx(level, abs=2e-11)
    if level not in (0.3, 0.7):
        assert out[0, 0] == pytest.approx(exact, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    distance=st.sampled_from([0.0, 1.0, 1e6]),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=4),
)
def test_quantiles_of_student_mixtures_invert_the_cdf_and_never_cross(seed, distance, levels):
    mixture = random_student_mixture(seed, n_rows=1, distance=distance)
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


def test_infinite_degrees_are_gaussian_components():
    gaussian = random_mixture(6)
    infinite = gaussian._replace(degrees=np.full(len(gaussian.weight), np.inf))
    levels = np.array([1e-9, 0.1, 0.5, 0.99])
    np.testing.assert_allclose(solve(infinite, levels), solve(gaussian, levels), rtol=1e-9)
