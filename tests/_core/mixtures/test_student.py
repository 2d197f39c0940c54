import numpy as np
import pytest
from scipy.special import betainc
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.student import (
    MANY_DEGREES,
    density_at_zero,
    log_decay,
    normal_at,
    student_at,
    student_log_density,
    student_tail,
)

DEGREES = [1.0, 2.0, 3.0, 4.0, 9.0, 23.0, 24.0, 25.0, 100.0, 1e4, 1e8, np.inf, 0.7, 3.3, 23.9]
POINTS = np.array([0.0, 0.01, 0.1, 0.9, 1.7, 2.5, 4.0, 7.0, 30.0, 1e3])


def test_the_table_of_the_normal_distribution_is_accurate_everywhere():
    generator = np.random.default_rng(0)
    points = np.concatenate(
        [generator.uniform(-9.5, 9.5, 2000), [-np.inf, -1e100, -9.0, 0.0, 9.0, 1e100, np.inf]]
    )
    found = np.array([normal_at(point) for point in points])
    np.testing.assert_allclose(found[:, 0], norm.cdf(points), rtol=0, atol=1e-15)
    np.testing.assert_allclose(found[:, 1], norm.pdf(points), rtol=0, atol=1e-12)
    assert np.isnan(normal_at(np.nan)).all()


@pytest.mark.parametrize("degrees", DEGREES)
def test_tables_have_absolute_precision(degrees):
    for x in np.concatenate([POINTS, -POINTS]):
        below, density = student_at(x, degrees)
        assert below == pytest.approx(t.cdf(x, degrees), rel=0, abs=1e-12)
        assert density == pytest.approx(t.pdf(x, degrees), rel=0, abs=1e-11)


def test_tables_are_right_between_their_nodes():
    points = np.random.default_rng(0).standard_cauchy(60)
    for degrees in range(1, MANY_DEGREES + 10, 4):
        found = np.array([student_at(x, float(degrees)) for x in points])
        np.testing.assert_allclose(found[:, 0], t.cdf(points, degrees), rtol=0, atol=1e-12)
        np.testing.assert_allclose(found[:, 1], t.pdf(points, degrees), rtol=0, atol=1e-11)


@pytest.mark.parametrize("degrees", [v for v in DEGREES if v < 1e5])
def test_small_tails_keep_their_digits(degrees):
    for x in POINTS:
        expected = 0.5 * betainc(0.5 * degrees, 0.5, degrees / (degrees + x * x))
        assert student_tail(x, degrees) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("degrees", DEGREES)
def test_the_larger_tail_has_absolute_precision(degrees):
    for x in POINTS:
        assert student_tail(-x, degrees) == pytest.approx(t.cdf(x, degrees), rel=0, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "degrees", "expected"),
    # mpmath.betainc with 40 digits
    [
        (1e60, 3.0, 1.1026577908435843e-180),
        (1e100, 3.0, 1.102657790843584e-300),
        (50.0, 3.0, 8.8085760206359871e-6),
        (2.0, 3.5, 0.063069261287956767),
        (40.0, 24.0, 8.8057681845374216e-24),
        (8.0, 30.0, 3.1329112378503795e-9),
        (60.0, 200.0, 3.8557892920283139e-130),
        (37.0, 10000.0, 2.8113156177622596e-281),
        (38.0, 1000000000.0, 2.8869349621366047e-316),
        (1.5, 23.0, 0.073608682007532153),
        (0.001, 5.0, 0.49962039338609883),
    ],
)
def test_tails_equal_those_of_arbitrary_precision(x, degrees, expected):
    assert student_tail(x, degrees) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("degrees", DEGREES)
def test_log_density_equals_that_of_scipy(degrees):
    for x in POINTS:
        found = np.log(density_at_zero(degrees)) + student_log_density(x, degrees)
        assert found == pytest.approx(t.logpdf(x, degrees), rel=1e-11)


@pytest.mark.parametrize("degrees", [1.0, 3.0, 3.5, 24.0, np.inf])
def test_infinity_is_the_end_and_nan_is_kept(degrees):
    assert student_at(np.inf, degrees) == pytest.approx((1.0, 0.0), abs=1e-15)
    assert student_at(-np.inf, degrees) == pytest.approx((0.0, 0.0), abs=1e-15)
    assert student_tail(np.inf, degrees) == 0.0
    assert student_tail(-np.inf, degrees) == 1.0
    assert np.isnan(student_at(np.nan, degrees)).all()
    assert np.isnan(student_tail(np.nan, degrees))


def test_the_decay_is_finite_where_squares_overflow():
    assert log_decay(1e200, 4.0) == pytest.approx(400 * np.log(10) - np.log(4.0))
