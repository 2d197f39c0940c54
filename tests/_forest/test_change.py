import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom

from mondrian_forest._forest.change import ChangeDetector, as_count


def shifting(seed, n_values=3000):
    """Values from 0 to 1 whose mean and spread change now and then."""
    random = np.random.default_rng(seed)
    pieces = []
    while sum(map(len, pieces)) < n_values:
        length = int(random.integers(1, 900))
        low, high = np.sort(random.random(2))
        kind = random.integers(3)
        if kind == 0:
            pieces.append(random.uniform(low, high, length))
        elif kind == 1:
            pieces.append((random.random(length) < low).astype(np.float64))
        else:
            pieces.append(np.full(length, low))
    return np.concatenate(pieces)[:n_values]


SETTINGS = [
    {},
    {"delta": 0.3, "clock": 1},
    {"delta": 0.05, "clock": 7},
    {"delta": 1e-5, "clock": 32},
    {"delta": 0.9, "clock": 3},
]


class SlowDetector:
    """Keep every value, in buckets of values, and compute everything anew from the values."""

    def __init__(self, delta=0.002, clock=32):
        self.delta, self.clock = delta, clock
        self.n_seen, self.buckets = 0, []  # the oldest first

    def see(self, value):
        """Return the changes of the mean, of which there may be several."""
        self.buckets.append([value])
        size = 1
        while len(same := [i for i, each in enumerate(self.buckets) if len(each) == size]) > 5:
            first, second = same[:2]
            self.buckets[first] += self.buckets.pop(second)
            size *= 2
        self.n_seen += 1
        changes = []
        if self.n_seen % self.clock == 0 and len(self.values()) > 10:
            while (change := self.change()) is not None:
                self.buckets.pop(0)
                changes.append(change)
        return changes

    def values(self):
        return [value for bucket in self.buckets for value in bucket]

    def change(self):
        values = np.array(self.values())
        if len(values) < 10:
            return None
        share = math.log(2 * math.log(len(values)) / self.delta)
        n_old = 0
        for bucket in self.buckets:
            n_old += len(bucket)
            old, new = values[:n_old], values[n_old:]
            if min(len(old), len(new)) < 5:
                continue
            inverse = 1 / (len(old) - 4) + 1 / (len(new) - 4)
            bound = math.sqrt(2 * inverse * values.var() * share) + 2 / 3 * inverse * share
            if abs(new.mean() - old.mean()) > bound:
                return new.mean() - old.mean()
        return None


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_windows_are_those_of_river_after_every_value(settings, seed):
    drift = pytest.importorskip("river.drift")
    theirs, ours = drift.ADWIN(**settings), ChangeDetector(**settings)
    n_changes = 0
    for value in shifting(seed):
        width = ours.width
        ours, _ = ours.seen(np.array([value]))
        theirs.update(value)
        assert ours.width == theirs.width
        assert ours.mean == pytest.approx(theirs.estimation, abs=1e-9)
        has_changed = ours.width <= width
        assert has_changed == theirs.drift_detected
        if has_changed:  # river starts again after a change, with its next value
            n_changes += 1
            ours = ChangeDetector(**settings)
    assert n_changes > 1


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_windows_are_those_of_a_slow_detector_that_keeps_all_values(settings):
    slow, quick = SlowDetector(**settings), ChangeDetector(**settings)
    values = np.concatenate([shifting(7, 900), np.full(200, 0.1), np.full(200, 0.9)])
    n_rises = n_falls = 0
    for count, value in enumerate(values, 1):
        changes = slow.see(value)
        quick, n_since = quick.seen(np.array([value]))
        kept = slow.values()
        assert (quick.n_seen, quick.width) == (count, len(kept))
        assert quick.mean == pytest.approx(np.mean(kept), abs=1e-12)
        assert n_since == (len(kept) if any(change > 0 for change in changes) else None)
        n_rises += n_since is not None
        n_falls += bool(changes) and n_since is None
        deviation = sum(
            squared + size * (mean - quick.mean) ** 2
            for size, row in ((1 << i, row) for i, row in enumerate(quick.rows))
            for mean, squared in row
        )
        assert deviation == pytest.approx(np.var(kept) * len(kept), abs=1e-9)
    assert n_rises > 0
    assert n_falls > 0


def test_values_at_once_are_as_values_one_by_one():
    values = shifting(3)
    whole, n_since = ChangeDetector().seen(values)
    single, found = ChangeDetector(), []
    for count, value in enumerate(values, 1):
        single, one = single.seen(np.array([value]))
        if one is not None:
            found.append(count - one)
    assert single == whole
    assert n_since == len(values) - found[-1]


def test_a_detector_is_not_changed_by_what_it_sees():
    before, _ = ChangeDetector().seen(shifting(0, 500))
    kept = before.to_array()
    before.seen(np.ones(1000))
    np.testing.assert_array_equal(before.to_array(), kept)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.n_seen = 0


def test_a_rise_is_told_with_the_number_of_values_after_it():
    values = np.concatenate([np.full(5000, 0.2), np.full(1000, 0.6)])
    detector, found = ChangeDetector(), []
    for count, value in enumerate(values, 1):
        detector, n_since = detector.seen(np.array([value]))
        if n_since is not None:
            found.append((count, n_since))
    # The oldest bucket that is kept may still have values from before the rise.
    count, n_since = found[-1]
    assert abs((count - n_since) - 5000) <= 32
    assert found[0][0] - 5000 <= 96


@pytest.mark.parametrize("level", [0.1, 0.7])
def test_a_fall_shortens_the_window_but_is_not_told(level):
    values = np.concatenate([np.full(2000, 0.9), np.full(2000, level)])
    detector, n_since = ChangeDetector().seen(values)
    assert n_since is None
    assert detector.width <= 2100
    assert detector.mean == pytest.approx(level, abs=0.01)


def test_errors_of_a_model_that_learns_are_no_change():
    random = np.random.default_rng(0)
    n_learned = np.arange(1, 50_001)
    errors = np.abs(random.normal(size=len(n_learned))) * (0.05 + 0.4 * n_learned**-0.3)
    assert ChangeDetector().seen(np.minimum(errors, 1.0))[1] is None


@pytest.mark.parametrize("kind", ["coins", "uniform"])
def test_false_alarms_are_rarer_than_one_in_a_thousand_checks(kind):
    """The bound is far from tight: delta promises 0.05 at each check only."""
    random = np.random.default_rng(1)
    n_alarms, n_checks = 0, 0
    for _ in range(20):
        values = random.random(6400)
        if kind == "coins":
            values = (values < 0.3).astype(np.float64)
        detector = ChangeDetector(delta=0.05)
        for start in range(0, len(values), 32):
            width = detector.width
            detector, _ = detector.seen(values[start : start + 32])
            n_alarms += detector.width < width + 32
            n_checks += 1
    # With a rate of one in a thousand, more alarms than this have a probability of one in 10,000.
    assert n_alarms <= binom.ppf(0.9999, n_checks, 0.001)


@pytest.mark.parametrize(("shift", "longest"), [(0.1, 500), (0.3, 100)])
def test_a_shift_is_found_soon(shift, longest):
    random = np.random.default_rng(2)
    for _ in range(10):
        values = random.uniform(0.0, 0.4, 5000)
        detector, n_since = ChangeDetector().seen(values)
        assert n_since is None
        later = random.uniform(shift, 0.4 + shift, longest)
        detector, n_since = detector.seen(later)
        assert n_since is not None


def test_memory_grows_as_the_logarithm_of_the_values():
    values = np.random.default_rng(0).random(100_000)
    detector, _ = ChangeDetector(delta=1e-9).seen(values)
    assert detector.width == 100_000
    assert sum(map(len, detector.rows)) <= 5 * math.log2(100_000)


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, np.inf, -np.inf])
def test_other_numbers_than_0_to_1_are_refused(bad):
    with pytest.raises(ValueError, match="from 0 to 1"):
        ChangeDetector().seen(np.array([0.5, bad]))


@pytest.mark.parametrize(
    "wrong", [{"delta": 0.0}, {"delta": 1.0}, {"delta": np.nan}, {"clock": 0}, {"clock": 1.5}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChangeDetector(**wrong)


def test_an_empty_detector_has_no_mean():
    assert ChangeDetector().width == 0
    assert math.isnan(ChangeDetector().mean)


def test_a_detector_that_was_stored_goes_on_as_before():
    for n_values in (0, 1, 5, 6, 31, 32, 500, 3000):
        detector, _ = ChangeDetector(0.01, 7).seen(shifting(5)[:n_values])
        again = ChangeDetector.from_array(detector.to_array())
        assert again == detector
        assert again.seen(shifting(6)) == detector.seen(shifting(6))


def stored():
    detector, _ = ChangeDetector().seen(np.random.default_rng(0).random(100))
    return detector.to_array()


def n_rows_of(array):
    return int(array[3])


BUCKETS = 4 + n_rows_of(stored())
"""Where the buckets begin."""


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 0.0),
        (0, 2.0),
        (1, 0.0),
        (1, -32.0),
        (1, 32.5),
        (2, 5.0),  # fewer values seen than kept
        (2, 2.0**60),
        (3, 2.0**53),
        (3, 0.0),
        (4, 0.0),
        (4, 1e9),
        (BUCKETS, -0.1),
        (BUCKETS, 1.1),
        (BUCKETS + 1, 0.1),  # a bucket of one value deviates from nothing
        (-1, 1e3),
        (-1, -1e-3),
        *((place, bad) for place in (0, 1, 2, 3, 4, -2, -1) for bad in (np.nan, np.inf, -np.inf)),
    ],
)
def test_an_array_of_no_detector_is_refused(place, value):
    array = stored()
    array[place] = value
    with pytest.raises(ValueError, match=r"change detector|values from 0 to 1|delta|clock"):
        ChangeDetector.from_array(array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.zeros(3),
        np.zeros((2, 4)),
        stored().astype(np.float32),
        stored()[:-1],
        stored()[: BUCKETS - 1],
        np.append(stored(), [0.5, 0.0]),
        # Only the last row may have fewer than four buckets.
        np.array([0.002, 32, 100, 2, 3, 2] + [0.5, 0.0] * 5),
        np.array([0.002, 32, 100, 1, 6] + [0.5, 0.0] * 6),
        # Rows without end: the size of their buckets is no float64 any more.
        np.concatenate([[0.002, 32, 1e6, 2000], np.full(2000, 4.0), np.full(16_000, 0.1)]),
    ],
)
def test_an_array_of_another_shape_is_refused(array):
    with pytest.raises(ValueError, match="change detector"):
        ChangeDetector.from_array(array)


def test_random_damage_is_refused_or_leaves_a_detector_that_works():
    random = np.random.default_rng(0)
    for _ in range(500):
        array = stored()
        for place in random.integers(0, len(array), 2):
            array[place] = random.choice([0.0, 1.0, 0.5, -1.0, 4.0, 1e18, array[place] + 1])
        try:
            detector = ChangeDetector.from_array(array)
        except ValueError:
            continue
        detector, _ = detector.seen(random.random(300))
        assert 0 < detector.width <= detector.n_seen


@pytest.mark.parametrize("number", [0.0, 7.0, 2.0**53])
def test_counts_are_whole_numbers(number):
    count = as_count(number)
    assert count == number
    assert type(count) is int


@pytest.mark.parametrize("number", [-1.0, 0.5, 2.0**53 + 2, np.nan, np.inf, -np.inf])
def test_other_numbers_are_no_counts(number):
    with pytest.raises(ValueError, match="whole numbers"):
        as_count(number)
