import numpy as np
import pytest

from mondrian_forest.datasets import make_gap_wave


def test_the_wave_has_a_gap_and_follows_its_formula():
    X, y = make_gap_wave(500, noise=0.0, random_state=0)
    assert X.shape == (500, 1)
    assert ((np.abs(X) >= 1) & (np.abs(X) <= 3)).all()
    np.testing.assert_allclose(y, np.sin(2 * X[:, 0]) + X[:, 0] / 2)


def test_the_noise_has_the_standard_deviation_asked_for():
    X, y = make_gap_wave(20_000, noise=0.3, random_state=1)
    assert np.std(y - np.sin(2 * X[:, 0]) - X[:, 0] / 2) == pytest.approx(0.3, rel=0.03)


@pytest.mark.parametrize("n_samples", [0, None, (3, 2), 1.5])
def test_numbers_of_rows_that_make_no_sense_are_refused(n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        make_gap_wave(n_samples)


@pytest.mark.parametrize("noise", [-1.0, np.nan, "x", 1j])
def test_noise_that_makes_no_sense_is_refused(noise):
    with pytest.raises(ValueError, match="noise must be a number"):
        make_gap_wave(noise=noise)
