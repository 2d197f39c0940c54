import numpy as np
import pytest

from mondrian_forest._core.mixtures.mixture import cumulative, log_density
from mondrian_forest._core.spread.apply import constant_spread
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

from .mixtures import SPREAD, mixtures, stretched, variances


@pytest.mark.parametrize("is_gaussian", [True, False])
class TestMeasure:
    y = np.array([0.3, -2.0, 1.0])

    def record(self, mixture, mean, spread, y=y):
        out = np.empty(len(y), RECORD)
        measure(mixture, mean, y, spread, out)
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

    def test_is_finite_for_absurd_labels(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD, np.array([1e20, -1e60, 1e140]))
        assert np.isfinite(to_columns(record)).all()


def test_files_store_a_record_as_one_column_for_each_number():
    n_factors, n_densities, n_balances = len(FACTORS), len(DENSITY_FACTORS), len(BALANCES)
    assert 2 + n_factors + n_densities + 3 * n_balances == RECORD_WIDTH
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
