import numpy as np
import pytest
from scipy.stats import norm

from mondrian_forest._core.mixtures.mixture import cumulative, log_density
from mondrian_forest._core.mixtures.neighbours import Neighbours
from mondrian_forest._core.spread.apply import constant_spread
from mondrian_forest._core.spread.blend import BLENDS, KINDS, blend_labels
from mondrian_forest._core.spread.record import (
    BALANCES,
    DENSITY_FACTORS,
    FACTOR_STEP,
    FACTORS,
    RECORD,
    RECORD_WIDTH,
    from_columns,
    measure,
    to_columns,
)

from .mixtures import SPREAD, mixtures, no_labels, stretched, variances


@pytest.mark.parametrize("is_gaussian", [True, False])
class TestMeasure:
    y = np.array([0.3, -2.0, 1.0])

    def record(self, mixture, mean, spread, y=y):
        out = np.empty(len(y), RECORD)
        measure(mixture, mean, no_labels(len(y)), y, spread, 0.0, 1, out)
        return out

    def test_has_the_levels_of_the_intervals_that_end_at_the_labels(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD)
        np.testing.assert_allclose(record["deviation"], np.sqrt(sum(variances(mixture, mean))))
        for f, factor in enumerate(FACTORS):
            after, _ = stretched(mixture, mean, constant_spread(factor))
            below = np.empty(3)
            cumulative(after, self.y, below)
            np.testing.assert_allclose(record["level"][:, f], np.abs(2 * below - 1), atol=1e-9)

    def test_has_the_log_densities_at_the_labels(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD)
        expected = np.empty((len(DENSITY_FACTORS), 3))
        for f, factor in enumerate(DENSITY_FACTORS):
            after, _ = stretched(mixture, mean, constant_spread(factor))
            log_density(after, self.y, expected[f])
        expected += np.log(record["deviation"])
        least = expected.max(axis=0) - 200.0  # one row can lose no more
        assert (expected < least).any() == is_gaussian  # t distributions have heavier tails
        np.testing.assert_allclose(
            record["log_density"].T, np.maximum(expected, least), rtol=1e-9, atol=1e-9
        )

    def test_has_what_each_balance_is_worth(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD)
        np.testing.assert_allclose(
            record["log_factor"], np.log(SPREAD.factor_at(record["deviation"]))
        )
        densities = np.empty((len(BALANCES), 3))
        for b, balance in enumerate(BALANCES):
            for field, log_step in (("level_below", -FACTOR_STEP), ("level_above", FACTOR_STEP)):
                one = SPREAD._replace(balance=balance, factor=SPREAD.factor * np.exp(log_step))
                after, _ = stretched(mixture, mean, one)
                below = np.empty(3)
                cumulative(after, self.y, below)
                np.testing.assert_allclose(record[field][:, b], np.abs(2 * below - 1), atol=1e-9)
            after, _ = stretched(mixture, mean, SPREAD._replace(balance=balance))
            log_density(after, self.y, densities[b])
        expected = densities - densities[BALANCES == 1.0]
        np.testing.assert_allclose(record["gain"].T, expected, rtol=1e-9, atol=1e-9)

    def test_has_what_each_blend_is_worth(self, is_gaussian):
        """Compared with blended mixtures. Labels lie farther apart than the Gaussians are wide."""
        mixture, mean = mixtures(is_gaussian)
        generator = np.random.default_rng(5)
        near = [
            Neighbours(generator.random(3), np.sort(generator.uniform(-3, 3, (3, 6)), axis=1))
            for _ in KINDS
        ]
        record = np.empty(3, RECORD)
        measure(mixture, mean, near, self.y, SPREAD, 0.02, 10, record)
        np.testing.assert_array_equal(record["novelty"], near[0].novelty)
        np.testing.assert_array_equal(record["n_samples"], 10)
        plain, moments = stretched(mixture, mean, SPREAD._replace(balance=1.0))
        density, below = np.empty(3), np.empty(3)
        log_density(plain, self.y, density)
        for b, blend in enumerate(BLENDS):
            if blend.bandwidth > 0.1:
                continue  # labels would share Gaussians
            labels = near[KINDS.index(blend.is_pruned)].labels
            _, blended = blend_labels(plain, moments, labels, blend, 0.02)
            expected = np.empty(3)
            log_density(blended, self.y, expected)
            expected -= density
            np.testing.assert_allclose(record["blend_gain"][:, b], expected, rtol=2e-2)
            cumulative(blended, self.y, below)
            expected = np.abs(2.0 * below - 1.0)
            np.testing.assert_allclose(record["blend_level"][:, b], expected, atol=2e-3)
        for kind, one in enumerate(near):
            away = np.abs(one.labels - self.y[:, None]).mean(axis=1)
            pairs = np.abs(one.labels[:, :, None] - one.labels[:, None]).mean(axis=(1, 2))
            np.testing.assert_allclose(record["label_crps"][:, kind], away - 0.5 * pairs)
        width = np.exp(record["log_factor"]) * record["deviation"]
        standard = (self.y - mean) / width
        expected = standard * (2 * norm.cdf(standard) - 1) + 2 * norm.pdf(standard)
        np.testing.assert_allclose(record["crps"], width * (expected - np.pi**-0.5), rtol=1e-9)

    def test_is_finite_for_absurd_labels(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD, np.array([1e20, -1e60, 1e140]))
        assert np.isfinite(to_columns(record)).all()


def test_files_store_a_record_as_one_column_for_each_number():
    n_factors, n_densities, n_balances = len(FACTORS), len(DENSITY_FACTORS), len(BALANCES)
    of_blends = 2 * len(BLENDS) + 1 + len(KINDS)
    assert 5 + n_factors + n_densities + 3 * n_balances + of_blends == RECORD_WIDTH
    columns = np.random.default_rng(0).random((4, RECORD_WIDTH))
    record = from_columns(columns)
    np.testing.assert_array_equal(to_columns(record), columns)
    first = 0
    for name in RECORD.names:
        width = int(np.prod(RECORD[name].shape))
        expected = columns[:, first : first + width]
        np.testing.assert_array_equal(record[name].reshape(4, width), expected)
        first += width


def test_a_record_of_no_rows_can_be_stored():
    assert to_columns(np.empty(0, RECORD)).shape == (0, RECORD_WIDTH)
    assert from_columns(np.empty((0, RECORD_WIDTH))).shape == (0,)
