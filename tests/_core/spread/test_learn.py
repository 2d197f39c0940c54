import numpy as np
import pytest
from scipy.stats import norm, t

from mondrian_forest._core.mixtures.mixture import Mixture, cumulative
from mondrian_forest._core.mixtures.neighbours import Neighbours
from mondrian_forest._core.spread.apply import Spread
from mondrian_forest._core.spread.blend import Blend
from mondrian_forest._core.spread.learn import learn_factors, learn_spread
from mondrian_forest._core.spread.record import RECORD, measure

from .mixtures import mixtures, no_labels, stretched


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
    for factors in (learn_factors(record[:0]), None):
        known = learn_factors(record.copy()) if factors is None else factors
        measure(mixture, mean, no_labels(len(y)), y, known, 0.0, 1, record)
    return record


def learned(record, far_deviation=1.0, n_samples=1):
    return learn_spread(record, far_deviation, n_samples)


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

    def test_rows_that_were_measured_with_other_factors_still_count(self):
        """A stream: at first nothing is known of the factor, and it is far from 1."""
        generator = np.random.default_rng(0)
        mixture, mean = mixtures(False, 300)
        y = mean + 0.02 * generator.standard_t(10, 300)
        record = np.empty(300, RECORD)
        for i in range(300):
            one = mixture._replace(offset=mixture.offset[i : i + 2])
            factors = learn_factors(record[:i].copy())
            here = slice(i, i + 1)
            measure(one, mean[here], no_labels(1), y[here], factors, 0.0, 1, record[here])
        at_once = measured_twice(mixture, mean, y)
        np.testing.assert_allclose(learned(record).factor, learned(at_once).factor, rtol=0.1)

    def test_knows_the_novelty_of_the_rows_and_the_width_of_all_labels(self):
        record = normal_record(0.5, np.ones(400))
        record["novelty"] = np.linspace(0.1, 0.5, 400)
        around = learned(record, 7.0).surroundings
        np.testing.assert_allclose(around.novelty, np.linspace(0.1, 0.5, 101))
        assert around.far_deviation == 7.0


def labels_of_two_kinds(near, others):
    """Return neighbours with labels near the rows and others, of which the trees know nothing."""
    return [Neighbours(np.zeros(len(near)), np.sort(labels, axis=1)) for labels in (near, others)]


def test_novelty_that_was_small_falls_as_the_forest_grows_and_that_of_far_rows_stays():
    record = normal_record(0.5, np.ones(400))
    record["n_samples"] = 100
    for novelty, expected in ((0.01, 0.001), (1.0, 1.0)):
        record["novelty"] = novelty
        found = learned(record, n_samples=1000).surroundings.novelty
        np.testing.assert_allclose(found, expected, rtol=0.1)


class TestBlend:
    """Normal predictions of labels that are at one of two places, which some neighbours show."""

    n_rows = 400

    def learned(self, labels_of, y_of=None):
        generator = np.random.default_rng(0)
        mean = generator.normal(size=self.n_rows)
        side = generator.choice([-1.0, 1.0], self.n_rows)
        y = mean + (side + 0.1 * generator.normal(size=self.n_rows) if y_of is None else y_of(side))
        ones = np.ones(self.n_rows)
        mixture = Mixture(np.arange(self.n_rows + 1), ones, mean.copy(), ones, np.empty(0))
        record = np.empty(self.n_rows, RECORD)
        places = mean[:, None] + labels_of(generator)
        far = 5.0 * generator.normal(size=(self.n_rows, 200))
        for known in (record[:0], record):
            factors = learn_factors(known.copy())
            near = labels_of_two_kinds(places, far)
            measure(mixture, mean, near, y, factors, 0.01, 1, record)
        return learned(record)

    def two_places(self, generator):
        shape = self.n_rows, 200
        return generator.choice([-1.0, 1.0], shape) + 0.1 * generator.normal(size=shape)

    def test_takes_the_labels_that_show_the_shape(self):
        found = self.learned(self.two_places)
        assert found.blend == Blend(0.95, 0.05, False)
        assert found.balance == 1.0

    def test_does_without_labels_that_show_no_more_than_the_prediction(self):
        def normal(generator):
            return generator.normal(size=(self.n_rows, 200))

        def labels(side):
            return np.random.default_rng(1).normal(size=len(side))

        assert self.learned(normal, labels).blend is None

    def test_does_without_labels_that_win_density_by_spikes_alone(self):
        """Half of the labels are exactly zero, which the other labels near a row hit as well, and
        the other half is predicted much better by the trees."""

        def spikes(generator):
            shape = self.n_rows, 200
            return np.where(generator.random(shape) < 0.6, 0.0, 9.0 * generator.normal(size=shape))

        def labels(side):
            return np.where(side > 0, 0.0, 0.3 * np.random.default_rng(1).normal(size=len(side)))

        assert self.learned(spikes, labels).blend is None
