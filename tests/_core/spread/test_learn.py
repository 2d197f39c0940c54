import numpy as np
import pytest
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.mixture import Mixture, cumulative
from mondrian_forest._core.spread.apply import Spread
from mondrian_forest._core.spread.learn import learn_factors, learn_spread
from mondrian_forest._core.spread.record import RECORD, measure

from .mixtures import mixtures, stretched


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
    record = np.empty(len(y), RECORD)
    measure(mixture, mean, y, learn_factors(record[:0]), record)
    measure(mixture, mean, y, learn_factors(record.copy()), record)
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

    def test_a_less_certain_prediction_does_not_become_the_narrower_one(self):
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
        record = normal_record(1.0, np.ones(20))
        record["gain"] = 0.0
        record["gain"][:, -1] = 0.5
        assert learned(record).balance == 1.0

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
        assert error(learn_factors(record).factor[0]) > 1.04 * least

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

    def test_rows_that_were_measured_with_other_factors_still_count(self):
        """A stream: at first nothing is known of the factor, and it is far from 1."""
        generator = np.random.default_rng(0)
        mixture, mean = mixtures(False, 300)
        y = mean + 0.02 * generator.standard_t(10, 300)
        record = np.empty(300, RECORD)
        for i in range(300):
            one = mixture._replace(offset=mixture.offset[i : i + 2])
            factors = learn_factors(record[:i].copy())
            measure(one, mean[i : i + 1], y[i : i + 1], factors, record[i : i + 1])
        at_once = measured_twice(mixture, mean, y)
        np.testing.assert_allclose(learned(record).factor, learned(at_once).factor, rtol=0.1)

    def test_one_row_can_be_far_from_what_was_seen(self):
        spread = learned(normal_record(0.5, np.ones(1)), 10.0)
        assert (np.diff(spread.deviation) > 0).all()
        assert spread.factor_at(np.array([10.0]))[0] == 1.0

    def test_predictions_that_are_too_narrow_do_not_shrink_far_away(self):
        record = normal_record(2.5, np.ones(400))
        deviation = np.geomspace(1.0, 9.0, 50)
        for far_deviation in (1.2, 2.6, 5.0):
            width = learned(record, far_deviation).factor_at(deviation) * deviation
            assert (np.diff(width) > -1e-12).all()
