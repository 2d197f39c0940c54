import numpy as np
import pytest
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.crps import crps
from mondrian_forest._core.mixtures.mixture import (
    Mixture,
    choose,
    cumulative,
    log_density,
    lower_tail,
)

from .mixtures import (
    component_arrays,
    moved,
    random_mixture,
    random_student_mixture,
    student_parts,
    whole_mixture,
)


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


def test_infinite_degrees_are_gaussian_components():
    gaussian = random_mixture(6)
    infinite = gaussian._replace(degrees=np.full(len(gaussian.weight), np.inf))
    y = np.array([-60.0, -3.0, 2.0, 5.0, 12.0])
    for function, tolerance in [(log_density, 1e-12), (cumulative, 1e-12), (crps, 1e-5)]:
        expected, found = np.empty(5), np.empty(5)
        function(gaussian, y, expected)
        function(infinite, y, found)
        np.testing.assert_allclose(found, expected, rtol=tolerance)


def test_components_are_chosen_by_their_weights():
    mixture = Mixture(
        np.array([0, 2, 3]), np.array([0.25, 0.75, 1.0]), np.zeros(3), np.ones(3), np.full(3, 4.0)
    )
    chosen = np.empty((2, 3), dtype=np.int64)
    choose(mixture, np.array([[0.0, 0.25, 1.0], [0.0, 0.5, 1.0]]), chosen)
    np.testing.assert_array_equal(chosen, [[0, 1, 1], [2, 2, 2]])


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
