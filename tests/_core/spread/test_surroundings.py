"""What novelty says about widths."""

import numpy as np
import pytest

from mondrian_forest._core.spread.apply import LEVELS, Surroundings

TILT = 0.02
"""How much wider the strangest of the held-out rows is than the most familiar one, at most."""
FAR = 5.0
HELD_OUT = np.random.default_rng(0).lognormal(-4.0, 1.0, 2000).clip(max=1.0)


def surroundings(novelty=HELD_OUT, far_deviation=FAR):
    return Surroundings(np.quantile(novelty, LEVELS), far_deviation)


SURROUNDINGS = surroundings()
WITH_TIES = surroundings(np.round(HELD_OUT, 1) + 0.001)
ALL_EQUAL = surroundings(np.full(100, 0.02))
ALL_NEW = surroundings(np.ones(100))
TINY = surroundings(HELD_OUT / 1000.0)
KINDS = [SURROUNDINGS, WITH_TIES, ALL_EQUAL, ALL_NEW, TINY]
NAMES = ["spread", "ties", "equal", "new", "tiny"]
NOVELTY = np.concatenate(([0.0], np.geomspace(1e-6, 1.0, 2000)))


def widths(one, usual, novelty):
    novelty = np.atleast_1d(np.asarray(novelty, float))
    return one.width_at(np.full(len(novelty), usual), novelty)


@pytest.mark.parametrize("one", KINDS, ids=NAMES)
class TestAnySurroundings:
    def test_rank_is_from_0_to_1(self, one):
        rank = one.rank(NOVELTY)
        assert rank.min() >= 0.0
        assert rank.max() <= 1.0

    def test_rank_never_falls(self, one):
        assert (np.diff(one.rank(NOVELTY)) >= 0.0).all()

    def test_rank_is_1_for_all_that_is_stranger_than_the_held_out_rows(self, one):
        assert one.rank(np.nextafter(one.novelty[-1:], 2.0))[0] == 1.0
        assert one.rank(np.array([2.0]))[0] == 1.0

    def test_half_of_the_rows_that_are_as_strange_count(self, one):
        for novelty in one.novelty[[0, 50, 100]]:
            known = np.append(0.0, one.novelty)
            more = 0.5 * (np.sum(known < novelty) + np.sum(known <= novelty) - 1)
            assert one.rank(np.array([novelty]))[0] == pytest.approx(more / 101)

    @pytest.mark.parametrize("usual", [1e-6, 0.5, 4.0, 4.95, FAR])
    def test_the_width_of_a_narrow_row_never_falls_with_novelty(self, one, usual):
        width = widths(one, usual, NOVELTY)
        assert (np.diff(width) >= -1e-14 * width[1:]).all()

    @pytest.mark.parametrize("usual", [1e-6, 0.5, FAR, 5.03, 80.0])
    def test_the_width_far_away_is_that_of_all_labels(self, one, usual):
        np.testing.assert_allclose(widths(one, usual, 1.0), FAR, rtol=1e-12)

    @pytest.mark.parametrize("usual", [1e-6, 0.5, FAR, 80.0])
    def test_a_familiar_row_has_its_usual_width_but_for_the_tilt(self, one, usual):
        familiar = NOVELTY[(one.novelty[98 if usual <= FAR else 95] >= NOVELTY) & (NOVELTY < 1.0)]
        width = widths(one, usual, familiar)
        assert (width <= usual * (1.0 + 1e-12)).all()
        assert (width >= usual * np.exp(-TILT) * (1.0 - 1e-12)).all()

    @pytest.mark.parametrize("usual", [0.5, 80.0])
    def test_widths_are_between_the_usual_one_and_that_of_all_labels(self, one, usual):
        width = widths(one, usual, NOVELTY)
        assert (width >= min(usual, FAR) * np.exp(-TILT) * (1.0 - 1e-12)).all()
        assert (width <= max(usual, FAR) * (1.0 + 1e-12)).all()

    def test_a_row_is_not_strange_that_is_as_familiar_as_most_held_out_rows(self, one):
        familiar = one.novelty[:96]
        for strange in one.strangeness(familiar[familiar < 1.0]):
            np.testing.assert_array_equal(strange, 0.0)

    def test_a_row_far_away_is_as_strange_as_can_be(self, one):
        for strange in one.strangeness(np.ones(1)):
            assert strange[0] == pytest.approx(1.0, rel=1e-12)

    def test_strangeness_is_from_0_to_1_and_never_falls(self, one):
        for strange in one.strangeness(NOVELTY):
            assert strange.min() == 0.0
            assert strange.max() == pytest.approx(1.0, rel=1e-12)
            assert (np.diff(strange) >= 0.0).all()


class TestRank:
    def test_is_the_share_of_held_out_rows_that_are_more_familiar(self):
        novelty = np.quantile(HELD_OUT, [0.03, 0.25, 0.5, 0.9, 0.99])
        share = [(each > HELD_OUT).mean() for each in novelty]
        np.testing.assert_allclose(SURROUNDINGS.rank(novelty), share, atol=0.012)

    def test_ascends_between_the_held_out_rows(self):
        inside = np.linspace(HELD_OUT.min(), HELD_OUT.max(), 1000)
        assert (np.diff(SURROUNDINGS.rank(inside)) > 0.0).all()

    def test_of_what_is_more_familiar_than_all_held_out_rows_still_ascends(self):
        found = SURROUNDINGS.rank(SURROUNDINGS.novelty[0] * np.array([0.0, 0.3, 0.9]))
        assert found[0] == 0.0
        assert 0.0 < found[1] < found[2] < 0.01


class TestWidth:
    def test_of_equally_wide_rows_differs_if_their_novelty_does(self):
        """From the most familiar rows to those that are far away."""
        for usual in (0.5, 80.0):
            width = widths(SURROUNDINGS, usual, NOVELTY[NOVELTY > 1e-5])
            assert (np.diff(width) != 0.0).all()

    def test_gains_the_tilt_from_the_most_familiar_row_to_the_strangest_of_most_rows(self):
        first, last = widths(SURROUNDINGS, 0.5, SURROUNDINGS.novelty[[0, 95]])
        assert np.log(last / first) == pytest.approx(TILT * 0.95, rel=0.01)

    @pytest.mark.parametrize("level", [96, 97, 98])
    def test_of_wide_rows_is_that_of_all_labels_sooner(self, level):
        """The share of the way to it, for rows that are as much wider as others are narrower."""
        novelty = SURROUNDINGS.novelty[level]
        narrow, wide = (
            np.log(widths(SURROUNDINGS, usual, novelty)[0] / usual) / np.log(FAR / usual)
            for usual in (FAR / 4.0, FAR * 4.0)
        )
        assert wide > narrow + 0.1

    def test_of_wide_rows_is_nearly_that_of_all_labels_where_narrow_ones_begin_to_widen(self):
        novelty = SURROUNDINGS.novelty[98]
        assert widths(SURROUNDINGS, 4.0 * FAR, novelty)[0] == pytest.approx(FAR, rel=0.02)
        assert widths(SURROUNDINGS, FAR / 4.0, novelty)[0] == pytest.approx(FAR / 4.0, rel=0.02)

    def test_of_narrow_rows_is_nearly_that_of_all_labels_at_three_times_the_novelty(self):
        novelty = 3.0 * SURROUNDINGS.novelty[98]
        assert widths(SURROUNDINGS, FAR / 4.0, novelty)[0] == pytest.approx(FAR, rel=0.02)

    def test_does_not_change_where_hardly_any_novelty_is_seen(self):
        """All novelties are tiny: one that is a hundred times as large is not strange yet."""
        one = surroundings(np.geomspace(1e-6, 1e-5, 100))
        assert widths(one, 0.5, 9e-4)[0] == pytest.approx(0.5, rel=1e-12)
