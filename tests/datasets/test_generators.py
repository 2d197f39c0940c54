import numpy as np
import pytest

from mondrian_forest.datasets import make_gap_wave


def test_the_wave_follows_its_formula_and_has_a_region_without_data():
    X, y = make_gap_wave(500, noise=0.0, random_state=0)
    assert X.shape == (500, 1)
    assert ((np.abs(X) >= 1) & (np.abs(X) <= 3)).all()
    np.testing.assert_allclose(y, np.sin(2 * X[:, 0]) + X[:, 0] / 2)


def test_the_noise_has_the_given_standard_deviation():
    X, y = make_gap_wave(20_000, noise=0.3, random_state=1)
    assert np.std(y - np.sin(2 * X[:, 0]) - X[:, 0] / 2) == pytest.approx(0.3, rel=0.03)


@pytest.mark.parametrize("n_samples", [0, None, (3, 2), 1.5])
def test_an_invalid_number_of_rows_is_refused(n_samples):
    with pytest.raises(ValueError, match="n_samples must be an integer of at least 1"):
        make_gap_wave(n_samples)


@pytest.mark.parametrize("noise", [-1.0, np.nan, "x", 1j])
def test_invalid_noise_is_refused(noise):
    with pytest.raises(ValueError, match="noise must be a number of at least 0"):
        make_gap_wave(noise=noise)
