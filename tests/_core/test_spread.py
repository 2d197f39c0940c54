import numpy as np
import pytest

from mondrian_forest._core.mixture import Mixture, crps, cumulative
from mondrian_forest._core.spread import (
    SPREADS,
    best_spread,
    contract,
    score_spreads,
    scores_before,
)


def mixtures(is_gaussian, n_rows=3, n_components=4, seed=0):
    generator = np.random.default_rng(seed)
    shape = n_rows * n_components
    weight = generator.dirichlet(np.ones(n_components), n_rows).ravel()
    location = generator.normal(0, 1, shape)
    scale = generator.uniform(0.1, 1.0, shape)
    degrees = np.empty(0) if is_gaussian else generator.integers(3, 40, shape).astype(float)
    offset = n_components * np.arange(n_rows + 1)
    mean = np.add.reduceat(weight * location, offset[:-1])
    return Mixture(offset, weight, location, scale, degrees), mean


def deviation(mixture, mean):
    degrees = mixture.degrees if len(mixture.degrees) else np.full(len(mixture.weight), 1e300)
    variance = mixture.scale**2 * (degrees / (degrees - 2)) + mixture.location**2
    return np.sqrt(np.add.reduceat(mixture.weight * variance, mixture.offset[:-1]) - mean**2)


@pytest.mark.parametrize("is_gaussian", [True, False])
def test_scores_are_the_crps_of_contracted_mixtures(is_gaussian):
    mixture, mean = mixtures(is_gaussian)
    y = np.array([0.3, -4.0, 1.0])
    scores = np.zeros((3, len(SPREADS)))
    score_spreads(mixture, mean, y, scores)
    assert (scores[2] == 3).all()
    for spread, score, excess in list(zip(SPREADS, *scores[:2], strict=True))[::6]:
        contracted = mixture._replace(location=mixture.location.copy(), scale=mixture.scale.copy())
        contract(contracted, mean, spread)
        exact = np.empty(3)
        crps(contracted, y, exact)
        assert score == pytest.approx((exact / deviation(mixture, mean)).sum(), rel=5e-3)
        below = np.empty(3)
        cumulative(contracted, y, below)
        assert excess == pytest.approx(np.abs(2 * below - 1).sum() - 1.5, abs=1e-10)


def by_crps(scores):
    return np.stack([scores, np.zeros(len(scores)), np.ones(len(scores))])


def test_contraction_keeps_the_mean_and_scales_the_variance():
    mixture, mean = mixtures(True)
    variance = np.add.reduceat(
        mixture.weight * (mixture.scale**2 + mixture.location**2), mixture.offset[:-1]
    )
    contract(mixture, mean, 0.5)
    after = np.add.reduceat(mixture.weight * mixture.location, mixture.offset[:-1])
    np.testing.assert_allclose(after, mean)
    squared = np.add.reduceat(
        mixture.weight * (mixture.scale**2 + mixture.location**2), mixture.offset[:-1]
    )
    np.testing.assert_allclose(squared - after**2, 0.25 * (variance - mean**2))


def test_the_best_spread_is_found_between_those_that_are_scored():
    for truth in (0.31, 0.9, 1.43):
        scores = (np.log(SPREADS) - np.log(truth)) ** 2
        assert best_spread(by_crps(scores)) == pytest.approx(truth, rel=1e-3)
    assert best_spread(by_crps(SPREADS)) == pytest.approx(SPREADS[0], rel=0.3)
    assert best_spread(by_crps(-SPREADS)) == pytest.approx(SPREADS[-1], rel=0.3)


def test_the_coverage_has_as_much_of_a_say_as_the_crps():
    # Normal labels whose CRPS asks for a spread of 1, and whose coverage asks for 1.1.
    crps_scores, _, n_rows = scores_before(1000)
    excess = 1000 * (2 / np.pi * np.arctan(1.1 / SPREADS) - 0.5)
    found = best_spread(np.stack([crps_scores, excess, n_rows]))
    assert found == pytest.approx(np.sqrt(1.1), rel=5e-3)


def test_few_rows_hardly_move_the_spread():
    mixture, mean = mixtures(True)
    scores = scores_before(20)
    assert best_spread(scores) == pytest.approx(1.0, abs=1e-3)
    score_spreads(mixture, mean, mean, scores)  # three labels right in the middle
    assert 0.7 < best_spread(scores) < 1.0


def test_an_absurd_label_does_not_decide_alone():
    mixture, mean = mixtures(False)
    scores = scores_before(20)
    for _ in range(200):
        score_spreads(mixture, mean, mean + 0.3 * deviation(mixture, mean), scores)
    before = best_spread(scores)
    score_spreads(mixture, mean, np.array([1e20, -1e60, 1e140]), scores)
    assert best_spread(scores) < 1.3 * before
