import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.crps import crps
from mondrian_forest._core.mixtures.mixture import Mixture

from .mixtures import component_arrays, random_mixture


def crps_at(mixture, y):
    out = np.empty(len(mixture.offset) - 1)
    crps(mixture, np.full(len(out), y), out)
    return out


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
