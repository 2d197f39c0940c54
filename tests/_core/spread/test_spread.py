import numpy as np
import pytest
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.mixture import Mixture, cumulative, log_density
from mondrian_forest._core.mixtures.predict import ForestMoments
from mondrian_forest._core.spread.learn import (
    BALANCES,
    FACTORS,
    RECORD_WIDTH,
    Spread,
    constant_spread,
    even_spread,
    learn_spread,
    measure,
    record_of_constant,
    stretch,
)

N_FACTORS = len(FACTORS)


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


def copy(mixture):
    return mixture._replace(location=mixture.location.copy(), scale=mixture.scale.copy())


def variances(mixture, mean):
    """Return the variances within components and between them."""
    degrees = mixture.degrees if len(mixture.degrees) else np.full(len(mixture.weight), 1e300)
    within = mixture.weight * mixture.scale**2 * (degrees / (degrees - 2))
    between = mixture.weight * (mixture.location - np.repeat(mean, np.diff(mixture.offset))) ** 2
    return tuple(np.add.reduceat(part, mixture.offset[:-1]) for part in (within, between))


def moments_of(mixture, mean):
    within, between = variances(mixture, mean)
    return ForestMoments(mean, 0.3 * within, 0.6 * between, 0.4 * between, 0.7 * within)


def stretched(mixture, mean, spread):
    changed = copy(mixture)
    return changed, stretch(changed, moments_of(mixture, mean), spread)


SPREAD = Spread(1.7, np.array([0.5, 1.0, 2.0]), np.array([0.2, 0.8, 0.9]))


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


@pytest.mark.parametrize("is_gaussian", [True, False])
class TestMeasure:
    y = np.array([0.3, -2.0, 1.0])

    def record(self, mixture, mean, spread, y=y):
        out = np.empty((len(y), RECORD_WIDTH))
        measure(mixture, mean, y, spread, out)
        return out

    def test_has_the_intervals_that_end_at_the_labels_and_their_densities(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD)
        deviation = np.sqrt(sum(variances(mixture, mean)))
        np.testing.assert_allclose(record[:, 0], deviation)
        for f in range(N_FACTORS):
            after, _ = stretched(mixture, mean, constant_spread(FACTORS[f]))
            below, density = np.empty(3), np.empty(3)
            cumulative(after, self.y, below)
            log_density(after, self.y, density)
            np.testing.assert_allclose(record[:, 2 + f], np.abs(2 * below - 1), atol=1e-9)
            if f % 3 == 0:
                found = record[:, 2 + N_FACTORS + f // 3]
                is_least = found == record[:, 2 + N_FACTORS : -3 * len(BALANCES)].min(axis=1)
                expected = np.where(is_least, found, density + np.log(deviation))
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)

    def test_has_what_each_balance_is_worth(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD)
        less, more, gain = (part.T for part in np.split(record[:, -3 * len(BALANCES) :], 3, axis=1))
        densities = np.empty((len(BALANCES), 3))
        for b, balance in enumerate(BALANCES):
            for found, log_factor in ((less[b], -0.15), (more[b], 0.15), (None, 0.0)):
                one = SPREAD._replace(balance=balance, factor=SPREAD.factor * np.exp(log_factor))
                after, _ = stretched(mixture, mean, one)
                if found is None:
                    log_density(after, self.y, densities[b])
                else:
                    below = np.empty(3)
                    cumulative(after, self.y, below)
                    np.testing.assert_allclose(found, np.abs(2 * below - 1), atol=1e-9)
        expected = densities - densities[BALANCES == 1.0]
        np.testing.assert_allclose(gain, expected, rtol=1e-9, atol=1e-9)

    def test_is_finite_for_absurd_labels(self, is_gaussian):
        mixture, mean = mixtures(is_gaussian)
        record = self.record(mixture, mean, SPREAD, np.array([1e20, -1e60, 1e140]))
        assert np.isfinite(record).all()


def normal_record(ratio, deviation, seed=0):
    """Return a record of predictions that are normal, and labels as far off as the ratio says."""
    n_rows = len(deviation)
    generator = np.random.default_rng(seed)
    mean = generator.normal(size=n_rows)
    y = mean + ratio * deviation * generator.normal(size=n_rows)
    mixture = Mixture(
        np.arange(n_rows + 1), np.ones(n_rows), mean.copy(), deviation.copy(), np.empty(0)
    )
    return measured_twice(mixture, mean, y)


def measured_twice(mixture, mean, y):
    """Return the record as a forest makes it of its first rows."""
    record = np.empty((len(y), RECORD_WIDTH))
    measure(mixture, mean, y, even_spread(record[:0]), record)
    measure(mixture, mean, y, even_spread(record.copy()), record)
    return record


def learned(record, far_deviation=0.0):
    return learn_spread(record, far_deviation)


class TestLearn:
    @pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 2.0])
    def test_finds_the_factor_that_labels_ask_for(self, ratio):
        spread = learned(normal_record(ratio, np.full(4000, 3.0)))
        assert len(spread.factor) == 1  # all deviations are the same
        np.testing.assert_allclose(spread.factor, ratio, rtol=0.05)

    def test_finds_that_the_factor_depends_on_the_deviation(self):
        deviation = np.geomspace(0.1, 10.0, 4000)
        ratio = 0.5 * deviation**0.25
        spread = learned(normal_record(ratio, deviation))
        assert len(spread.factor) == 5
        inner = (deviation > 0.3) & (deviation < 3)
        np.testing.assert_allclose(spread.factor_at(deviation)[inner], ratio[inner], rtol=0.1)

    def test_what_is_less_certain_does_not_become_the_narrower(self):
        deviation = np.geomspace(1.0, 2.0, 1000)
        spread = learned(normal_record(deviation**-3.0, deviation))
        width = spread.factor_at(deviation) * deviation
        assert (np.diff(width) > -1e-12).all()

    def test_few_rows_hardly_move_the_factor(self):
        record = normal_record(0.01, np.ones(3))
        assert 0.7 < learned(record).factor[0] < 1.0

    def test_few_rows_have_one_factor(self):
        assert len(learned(normal_record(0.5, np.geomspace(0.1, 10.0, 99))).factor) == 1

    def test_a_knot_follows_all_rows_until_it_has_rows_of_its_own(self):
        deviation = np.geomspace(1.0, 4.0, 100)  # two knots
        ratio = np.where(deviation < 2.0, 0.2, 0.8)
        few = learned(normal_record(ratio, deviation)).factor
        many = learned(normal_record(np.repeat(ratio, 20), np.repeat(deviation, 20))).factor
        assert 0.2 < few[0] < few[-1] < 0.8
        assert many[0] < few[0]

    def test_one_absurd_label_does_not_decide(self):
        record = normal_record(0.3, np.ones(400))
        before = learned(record).factor
        absurd = normal_record(1e30, np.ones(1))
        after = learned(np.concatenate([record, absurd])).factor
        np.testing.assert_allclose(after, before, rtol=0.3)

    def test_surprises_keep_sure_predictions_from_becoming_spikes(self):
        """One label in twenty is far off, and the others are exact: coverage alone would make the
        distributions as narrow as can be."""
        exact, surprise = normal_record(1e-5, np.ones(950)), normal_record(0.5, np.ones(50))
        assert learned(exact).factor[0] < 0.003
        assert learned(np.concatenate([exact, surprise])).factor[0] > 0.02

    def test_heavy_tails_and_clear_modes_are_told_apart(self):
        """Two components of the same distance: labels of either shape ask for another balance."""
        generator = np.random.default_rng(0)
        n_rows = 1000
        mean = np.zeros(n_rows)
        mixture = Mixture(
            2 * np.arange(n_rows + 1),
            np.full(2 * n_rows, 0.5),
            np.tile([-1.0, 1.0], n_rows),
            np.ones(2 * n_rows),
            np.empty(0),
        )
        sign = generator.choice([-1, 1], n_rows)
        for balance, found in ((0.5, 0.5**0.5), (1.0, 1.0), (2.0, 2.0)):  # which 1 attracts
            scaling = np.sqrt(2 / (1 + balance**2))
            y = scaling * (balance * sign + generator.normal(size=n_rows))
            record = measured_twice(mixture, mean, y)
            assert learned(record).balance == pytest.approx(found)
        heavy = t(3).rvs(n_rows, random_state=generator)
        assert learned(measured_twice(mixture, mean, heavy)).balance < 1.0

    def test_few_rows_keep_the_balance(self):
        record = np.zeros((20, RECORD_WIDTH))
        record[:, : -len(BALANCES)] = normal_record(1.0, np.ones(20))[:, : -len(BALANCES)]
        record[:, -1] = 0.5
        assert learned(record).balance == 1.0

    def test_a_record_can_stand_for_a_factor(self):
        record = record_of_constant(0.4, np.geomspace(0.1, 10.0, 1000))
        np.testing.assert_allclose(learned(record).factor, 0.4, rtol=0.05)

    def test_what_is_learned_covers_as_it_says(self):
        """Labels of another width and another shape than predicted, both within what is tried."""
        generator = np.random.default_rng(0)
        n_rows = 4000
        mixture, mean = mixtures(False, n_rows)
        truth = Spread(2.0, np.array([0.5, 1.5]), np.array([0.3, 0.9]))
        true, _ = stretched(mixture, mean, truth)
        chosen = np.arange(0, 4 * n_rows, 4) + (
            generator.random(n_rows)[:, None] > true.weight.reshape(-1, 4).cumsum(axis=1)
        ).sum(axis=1).clip(max=3)
        y = true.location[chosen] + true.scale[chosen] * generator.standard_t(true.degrees[chosen])
        half = n_rows // 2
        first = mixture._replace(offset=mixture.offset[: half + 1])
        spread = learned(measured_twice(first, mean[:half], y[:half]))
        assert spread.balance == 2.0
        after, _ = stretched(mixture, mean, spread)
        below = np.empty(n_rows)
        cumulative(after, y, below)
        inside = np.abs(2 * below[half:] - 1)
        for level in np.arange(0.1, 1.0, 0.1):
            assert np.mean(inside <= level) == pytest.approx(level, abs=0.04)

    def test_flat_labels_are_covered_as_nearly_as_normal_predictions_allow(self):
        n_rows = 4000
        y = np.random.default_rng(0).uniform(-1, 1, n_rows)
        ones = np.ones(n_rows)
        mixture = Mixture(np.arange(n_rows + 1), ones, 0 * ones, ones.copy(), np.empty(0))
        record = measured_twice(mixture, 0 * ones, y)
        levels = np.linspace(0.05, 0.95, 19)

        def error(factor):
            inside = 2 * norm.cdf(np.abs(y) / factor) - 1
            return np.mean([(np.mean(inside <= level) - level) ** 2 for level in levels])

        least = min(error(factor) for factor in np.linspace(0.4, 0.9, 101))
        assert error(learned(record).factor[0]) < 1.02 * least
        assert error(even_spread(record).factor[0]) > 1.04 * least

    def test_far_from_what_was_seen_nothing_is_changed(self):
        deviation = np.geomspace(0.1, 1.0, 400)
        record = normal_record(0.5, deviation)
        near, far = learned(record, 1.0), learned(record, 10.0)
        seen = deviation[:390]  # but for the last percent
        np.testing.assert_array_equal(near.factor_at(seen), far.factor_at(seen))
        assert near.factor_at(np.array([10.0]))[0] < 0.6
        np.testing.assert_allclose(far.factor_at(np.array([10.0, 99.0])), 1.0)
        assert (np.diff(far.deviation) > 0).all()

    def test_one_row_does_not_decide_what_is_far(self):
        deviation = np.geomspace(0.1, 0.3, 400)
        deviation[-1] = 0.99
        spread = learned(normal_record(0.3, deviation), 1.0)
        assert spread.factor_at(np.array([1.0]))[0] == 1.0

    def test_rows_that_were_measured_long_ago_count_where_they_still_can(self):
        """A stream: at first nothing is known of the factor, and it is far from 1."""
        generator = np.random.default_rng(0)
        mixture, mean = mixtures(False, 300)
        y = mean + 0.02 * generator.standard_t(10, 300)
        record = np.empty((300, RECORD_WIDTH))
        for i in range(300):
            one = mixture._replace(offset=mixture.offset[i : i + 2])
            even = even_spread(record[:i].copy())
            measure(one, mean[i : i + 1], y[i : i + 1], even, record[i : i + 1])
        at_once = measured_twice(mixture, mean, y)
        np.testing.assert_allclose(learned(record).factor, learned(at_once).factor, rtol=0.1)

    def test_one_row_can_be_far_from_what_was_seen(self):
        spread = learned(normal_record(0.5, np.ones(1)), 10.0)
        assert (np.diff(spread.deviation) > 0).all()
        assert spread.factor_at(np.array([10.0]))[0] == 1.0

    def test_what_is_too_narrow_does_not_shrink_far_away(self):
        record = normal_record(2.5, np.ones(400))
        deviation = np.geomspace(1.0, 9.0, 50)
        for far_deviation in (1.2, 2.6, 5.0):
            width = learned(record, far_deviation).factor_at(deviation) * deviation
            assert (np.diff(width) > -1e-12).all()
