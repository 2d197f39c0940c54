import numpy as np
import pytest

from mondrian_forest._core.spread.apply import constant_spread

from .mixtures import SPREAD, mixtures, stretched, variances


class TestFactor:
    def test_is_a_power_of_the_deviation_between_knots_and_constant_beyond(self):
        found = SPREAD.factor_at(np.array([0.1, 0.5, np.sqrt(0.5), 1.0, 2.0, 1e9]))
        np.testing.assert_allclose(found, [0.2, 0.2, 0.4, 0.8, 0.9, 0.9])

    def test_of_a_constant_spread_is_the_same_everywhere(self):
        np.testing.assert_array_equal(
            constant_spread(0.7).factor_at(np.array([1e-9, 1.0, 1e9])), 0.7
        )

    def test_only_factors_and_balance_of_one_change_nothing(self):
        assert constant_spread(1.0).changes_nothing()
        assert not constant_spread(0.9).changes_nothing()
        assert not constant_spread(1.0)._replace(balance=2.0).changes_nothing()


@pytest.mark.parametrize("is_gaussian", [True, False])
class TestStretch:
    def test_keeps_the_mean_and_multiplies_the_deviation_by_its_factor(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        before = sum(variances(mixture, mean))
        after, moments = stretched(mixture, mean, SPREAD)
        np.testing.assert_allclose(
            np.add.reduceat(after.weight * after.location, after.offset[:-1]), mean
        )
        expected = before * SPREAD.factor_at(np.sqrt(before)) ** 2
        np.testing.assert_allclose(sum(variances(after, mean)), expected)
        np.testing.assert_allclose(sum(moments[1:]), expected)
        np.testing.assert_array_equal(moments.mean, mean)

    def test_distances_between_components_grow_by_the_balance(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        after, moments = stretched(mixture, mean, SPREAD)
        (within, between), (new_within, new_between) = (
            variances(each, mean) for each in (mixture, after)
        )
        np.testing.assert_allclose(new_between / new_within, 1.7**2 * between / within)
        np.testing.assert_allclose(moments.noise, 0.7 * new_within)
        np.testing.assert_allclose(moments.posterior, 0.3 * new_within)
        np.testing.assert_allclose(moments.between_trees, 0.4 * new_between)
        np.testing.assert_allclose(moments.branching, 0.6 * new_between)

    def test_one_factor_multiplies_all_distances_from_the_mean(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        after, _ = stretched(mixture, mean, constant_spread(0.5))
        means = np.repeat(mean, np.diff(mixture.offset))
        np.testing.assert_allclose(after.location - means, 0.5 * (mixture.location - means))
        np.testing.assert_allclose(after.scale, 0.5 * mixture.scale)
