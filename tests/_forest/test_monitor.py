from itertools import pairwise

import numpy as np
import pytest

from mondrian_forest._core.moments import Moments
from mondrian_forest._forest.change import ChangeDetector
from mondrian_forest._forest.intake import label_moments
from mondrian_forest._forest.monitor import MOST_RECENT, Monitor

LABELS = label_moments(np.array([-0.5, 0.5] * 20))
"""Their standard deviation is 0.5, so that errors of size 1 count as 1."""


def watching(monitor, errors, chunk):
    """Yield the monitor after each chunk, and how many rows there are since a suspected change."""
    for start in range(0, len(errors), chunk):
        monitor, n_since = monitor.seen(errors[start : start + chunk])
        yield monitor, n_since


def watched(monitor, errors, chunk=1):
    """Return the monitor that has seen all errors, and when it asked for how many rows."""
    asked = []
    for now, n_since in watching(monitor, errors, chunk):
        monitor = now
        if n_since is not None:
            asked.append((now.n_seen, n_since))
    return monitor, asked


def steps(*pieces):
    return np.concatenate([np.full(length, size) for length, size in pieces])


def slow_place_of_rise(errors):
    """Try every place, with two means each: the scaled difference is that of a t-test."""
    best, place = -np.inf, 0
    for before in range(5, len(errors) - 4):
        old, new = errors[:before], errors[before:]
        share = np.sqrt(len(old) * len(new) / len(errors))
        rise = (new.mean() - old.mean()) * share
        if rise > best:
            best, place = rise, before
    return place


# The scale of errors.


def test_errors_of_either_sign_are_limited_at_two_standard_deviations_of_the_labels():
    labels = label_moments(np.array([1.0, 3.0, 1.0, 3.0]))
    monitor = Monitor.start(labels, 70)
    assert (monitor.scale, monitor.n_seen, monitor.changes) == (2.0, 70, ())
    monitor, _ = monitor.seen(np.array([-1.0, 1.0, 0.0, 5.0, -1e300]))
    assert monitor.recent.tolist() == [0.5, 0.5, 0.0, 1.0, 1.0]
    assert [mean for mean, _ in monitor.detector.rows[0]] == [0.5, 0.5, 0.0, 1.0, 1.0]
    assert monitor.n_seen == 75


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_errors_of_any_scale_are_counted_without_overflow(scale):
    monitor = Monitor.start(LABELS, 0)._replace(scale=scale)
    monitor, _ = monitor.seen(np.array([0.0, 1e308, -scale]))
    assert monitor.recent[[0, 2]].tolist() == [0.0, 1.0]
    assert monitor.recent[1] == min(1e308 / max(scale, 1e-200), 1.0)


def test_the_scale_of_constant_labels_is_positive():
    monitor = Monitor.start(Moments(40, 3.0, 0.0), 40)
    assert monitor.scale > 0.0
    monitor, n_since = monitor.seen(np.zeros(200))
    assert n_since is None
    assert not monitor.recent.any()


# The place of a rise, and when the forest is asked.


@pytest.mark.parametrize("n_before", [100, 400, 999, 5000])
@pytest.mark.parametrize("chunk", [1, 37, 200])
def test_a_clean_step_is_found_exactly(n_before, chunk):
    errors = steps((n_before, 0.2), (300, 0.6))
    monitor, asked = watched(Monitor.start(LABELS, 70), errors, chunk)
    assert monitor.suspected == 70 + n_before
    assert asked
    assert {seen - since for seen, since in asked} == {70 + n_before}


def test_the_place_is_that_of_a_slow_search():
    random = np.random.default_rng(0)
    n_compared = 0
    for _ in range(20):
        sizes = random.random(4)
        errors = np.repeat(sizes, random.integers(5, 300, 4)) * random.random()
        errors = np.clip(errors + 0.1 * random.normal(size=len(errors)), 0.0, 1.0)
        previous = Monitor.start(LABELS, 0)
        for monitor, _ in watching(previous, errors, 1):
            _, n_since_rise = previous.detector.seen(monitor.recent[-1:])
            if n_since_rise is not None:
                first = monitor.n_seen - len(monitor.recent)
                assert monitor.suspected == first + slow_place_of_rise(monitor.recent)
                n_compared += 1
            previous = monitor
    assert n_compared > 10


def test_a_noisy_rise_is_found_within_some_rows():
    random = np.random.default_rng(1)
    distances = []
    for _ in range(30):
        errors = 0.3 * random.normal(size=1400)
        errors[1000:] *= 2.5
        monitor, asked = watched(Monitor.start(LABELS, 0), errors, 10)
        assert asked
        distances.append(abs(monitor.suspected - 1000))
    assert np.median(distances) <= 10
    assert max(distances) <= 100


def test_the_latest_of_two_rises_is_found_after_the_first():
    errors = steps((300, 0.1), (600, 0.3), (200, 0.9))
    places = [monitor.suspected for monitor, _ in watching(Monitor.start(LABELS, 0), errors, 1)]
    assert [place for place in dict.fromkeys(places) if place is not None] == [300, 900]


def test_a_fall_is_not_suspected():
    monitor, asked = watched(Monitor.start(LABELS, 0), steps((500, 0.9), (1500, 0.1)))
    assert monitor.detector.width < 1600
    assert asked == []
    assert monitor.suspected is None


@pytest.mark.parametrize("size", [0.6, 1.0])
def test_the_forest_is_asked_whenever_there_are_twice_as_many_rows(size):
    _, asked = watched(Monitor.start(LABELS, 70), steps((600, 0.2), (1500, size)))
    counts = [since for seen, since in asked if seen - since == 670]
    # An alarm of the detector, which there may be several of, asks at once.
    is_alarm = [(600 + since) % ChangeDetector().clock == 0 for since in counts]
    assert is_alarm[0]
    for (one, other), alarm in zip(pairwise(counts), is_alarm[1:], strict=True):
        assert alarm or other == 2 * one
    assert not any(is_alarm[-2:])
    assert MOST_RECENT / 2 < counts[-1] <= MOST_RECENT


def test_nothing_is_asked_before_20_rows_since_the_change():
    """The detector may find a change sooner than a forest could be fitted to what follows."""
    for shift in range(32):
        errors = steps((320 + shift, 0.0), (100, 1.0))
        first, asked = None, []
        for monitor, n_since in watching(Monitor.start(LABELS, 0), errors, 1):
            if monitor.suspected is not None and first is None:
                first = monitor.n_seen - monitor.suspected
            if n_since is not None:
                asked.append(n_since)
        assert asked[0] == max(first, 20), shift


def test_a_suspicion_ends_after_a_thousand_rows():
    errors = steps((500, 0.2), (3000, 0.6))
    held = [
        monitor.suspected is not None
        for monitor, _ in watching(Monitor.start(LABELS, 0), errors, 1)
    ]
    assert not any(held[:500])
    assert all(held[600:1500])
    assert not any(held[1500:])
    monitor, asked = watched(Monitor.start(LABELS, 0), errors)
    assert (monitor.suspected, monitor.ask_at) == (None, 0)
    assert max(seen for seen, _ in asked) <= 1500


def test_a_chunk_may_be_longer_than_what_is_remembered():
    monitor, n_since = Monitor.start(LABELS, 9).seen(steps((5000, 0.2), (700, 0.6)))
    assert len(monitor.recent) == MOST_RECENT
    assert (monitor.suspected, n_since) == (5009, 700)
    monitor, n_since = monitor.seen(np.full(5000, 0.6))
    assert (monitor.suspected, n_since) == (None, None)


def test_a_monitor_is_not_changed_by_what_it_sees():
    before, _ = Monitor.start(LABELS, 0).seen(np.full(500, 0.2))
    kept = before.to_array()
    before.seen(np.ones(1200))
    np.testing.assert_array_equal(before.to_array(), kept)


# What follows a change, and forgotten rows.


def suspicious():
    """A monitor that has seen rows 70 to 1269, and suspects row 1070."""
    monitor, n_since = Monitor.start(LABELS, 70, (13, 60)).seen(steps((1000, 0.2), (200, 0.6)))
    assert (monitor.suspected, n_since) == (1070, 200)
    return monitor


def test_a_confirmed_change_is_remembered_and_all_else_starts_anew():
    labels = label_moments(np.array([0.0, 6.0]))
    monitor = suspicious().confirmed(labels)
    same_array(monitor, Monitor.start(labels, 1270, (13, 60, 1070)))
    assert monitor.scale == 6.0


def test_errors_before_a_confirmed_change_cannot_raise_another_alarm():
    monitor, asked = watched(suspicious().confirmed(LABELS), np.full(3000, 0.6))
    assert asked == []
    assert monitor.changes == (13, 60, 1070)


def test_all_but_the_latest_thousand_changes_are_forgotten():
    monitor = suspicious()._replace(changes=tuple(range(1000))).confirmed(LABELS)
    assert monitor.changes == (*range(1, 1000), 1070)


def test_a_monitor_starts_anew_only_without_rows_that_it_knows():
    labels = label_moments(np.array([0.0, 6.0]))
    for size in (0.2, 0.6):  # with all values in the window of the detector, and with few
        monitor, _ = Monitor.start(LABELS, 70, (13,)).seen(steps((1200, 0.2), (1500, size)))
        first = 70 + 2700 - max(monitor.detector.width, MOST_RECENT)
        assert (first == 70) == (size == 0.2)
        assert monitor.without(np.arange(first), labels) is monitor
        for arrivals in ([first], [0, first], [first, 2769], [2769]):
            fresh = monitor.without(np.array(arrivals), labels)
            same_array(fresh, Monitor.start(labels, 2770, (13,)))


# As an array.


def same_array(one, other):
    np.testing.assert_array_equal(one.to_array(), other.to_array())


def examples():
    """Monitors in all states: new, with and without a suspicion, with and without changes."""
    quiet, _ = Monitor.start(LABELS, 70).seen(np.full(33, 0.25))
    calm, _ = Monitor.start(LABELS, 70, (3, 69)).seen(np.full(2000, 0.25))
    waiting, _ = suspicious().seen(np.full(5, 0.6))
    confirmed = suspicious().confirmed(LABELS)
    from_first_row, _ = Monitor.start(LABELS, 0).seen(np.full(20, 0.25))
    return [
        Monitor.start(LABELS, 70),
        quiet,
        calm,
        suspicious(),
        waiting,
        confirmed,
        from_first_row,
    ]


@pytest.mark.parametrize("which", range(7))
def test_a_monitor_that_was_stored_goes_on_as_before(which):
    monitor = examples()[which]
    again = Monitor.from_array(monitor.to_array())
    same_array(again, monitor)
    for one, other in zip(monitor, again, strict=True):
        assert type(one) is type(other)
    errors = steps((300, 0.25), (300, 0.7)) + 0.1 * np.random.default_rng(0).normal(size=600)
    for (one, n_since), (other, n_since_other) in zip(
        watching(monitor, errors, 7), watching(again, errors, 7), strict=True
    ):
        same_array(one, other)
        assert n_since == n_since_other
    assert one.suspected is not None


def test_a_stored_monitor_has_its_own_memory():
    array = suspicious().to_array()
    monitor = Monitor.from_array(array)
    array[:] = 0.0
    same_array(monitor, suspicious())


SCALE, N_SEEN, SUSPECTED, ASK_AT, N_CHANGES, N_RECENT, CHANGES, RECENT = *range(7), 8
DETECTOR = RECENT + MOST_RECENT


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (SCALE, 0.0),
        (SCALE, -1.0),
        (N_SEEN, 1199.0),  # fewer rows than errors
        (N_SEEN, 1260.0),  # the detector would have started before the last change
        (SUSPECTED, 269.0),  # no error of it is kept
        (SUSPECTED, 0.0),
        (SUSPECTED, 1470.0),  # it would be asked before it came
        (ASK_AT, 0.0),
        (ASK_AT, 1070.0),
        (ASK_AT, 2271.0),  # after the suspicion has ended
        (N_CHANGES, 0.0),
        (N_CHANGES, 1.0),
        (N_CHANGES, 3.0),
        (N_CHANGES, 1001.0),
        (N_CHANGES, 2.0**53),
        (N_RECENT, 0.0),
        (N_RECENT, 999.0),
        (N_RECENT, 1001.0),
        (N_RECENT, 2.0**53),
        (CHANGES, 60.0),  # twice the same one
        (CHANGES, 61.0),  # not in order
        (CHANGES + 1, 70.0),  # a monitor starts after a change
        (CHANGES + 1, 1e6),
        (RECENT, -0.1),
        (RECENT, 1.1),
        (DETECTOR - 1, 1.1),
        (DETECTOR, 0.0),  # its share of false alarms
        (DETECTOR + 1, 0.0),  # its clock
        (DETECTOR + 2, 1271.0),  # it has seen more values than there were rows
        (DETECTOR + 2, 999.0),  # fewer than are kept
        *(
            (place, bad)
            for place in (*range(CHANGES + 2), RECENT, DETECTOR - 1, *range(DETECTOR, DETECTOR + 6))
            for bad in (np.nan, np.inf, -np.inf, -1.0, 0.5)
            if not (bad == 0.5 and place in (SCALE, RECENT, DETECTOR - 1, DETECTOR))
        ),
    ],
)
def test_an_array_of_no_monitor_is_refused(place, value):
    array = suspicious().to_array()
    array[place] = value
    with pytest.raises(ValueError, match=r"monitor|change detector|delta|clock"):
        Monitor.from_array(array)


def test_a_monitor_that_suspects_nothing_knows_no_row_to_ask_at():
    array = examples()[2].to_array()
    assert array[[SUSPECTED, ASK_AT]].tolist() == [0.0, 0.0]
    array[SUSPECTED] = 1500.0
    with pytest.raises(ValueError, match="suspect"):
        Monitor.from_array(array)


def test_more_changes_than_a_monitor_remembers_are_refused():
    monitor = Monitor.start(LABELS, 5000, tuple(range(1000)))
    assert Monitor.from_array(monitor.to_array()).changes == tuple(range(1000))
    array = monitor._replace(changes=tuple(range(1001))).to_array()
    with pytest.raises(ValueError, match="up to 1000 changes, got 1001"):
        Monitor.from_array(array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.ones(1),
        np.ones(5),
        np.ones(6),
        np.ones((3, 3)),
        suspicious().to_array()[:-1],
        suspicious().to_array()[:DETECTOR],
        suspicious().to_array()[: DETECTOR - 1],
        suspicious().to_array()[1:],
        np.append(suspicious().to_array(), [0.5, 0.0]),
        suspicious().to_array().astype(np.float32),
        suspicious().to_array().reshape(-1, 1),
    ],
)
def test_an_array_of_another_shape_is_refused(array):
    with pytest.raises(ValueError, match=r"monitor|change detector"):
        Monitor.from_array(array)


def test_random_damage_is_refused_or_leaves_a_monitor_that_works():
    random = np.random.default_rng(0)
    n_left = 0
    for _ in range(1000):
        array = examples()[int(random.integers(7))].to_array()
        places = np.concatenate((random.integers(0, 8, 1), random.integers(0, len(array), 1)))
        for place in np.minimum(places, len(array) - 1):
            array[place] = random.choice([0.0, 1.0, 0.5, -1.0, 1e18, array[place] + 1, 70, 1200])
        try:
            monitor = Monitor.from_array(array)
        except ValueError:
            continue
        n_left += 1
        same_array(Monitor.from_array(monitor.to_array()), monitor)
        monitor, n_since = monitor.seen(random.random(300))
        assert n_since is None or 20 <= n_since <= monitor.n_seen
        assert len(monitor.recent) <= MOST_RECENT
    assert n_left > 20
