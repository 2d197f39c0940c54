"""The benchmark of streams runs, and counts alarms and coverage rightly."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.streams.drift import coverages, sorted_alarms
from benchmarks.streams.generated import Stream, drifting, friedman
from benchmarks.streams.methods import Followed

ROOT = Path(__file__).parents[1]


def stream(*changes, n_rows=100):
    return Stream("some", np.zeros((n_rows, 1)), np.zeros(n_rows), changes)


def followed(inside):
    inside = np.asarray(inside, dtype=bool)
    empty = np.empty((0, 3), dtype=np.int64)
    return Followed(np.zeros(len(inside)), inside, empty[:, :2], empty, 0.0)


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )


def test_all_parts_run():
    done = run("benchmarks", "streams", "--quick")
    assert done.returncode == 0, done.stderr
    assert "RuntimeWarning" not in done.stderr
    titles = [line[3:] for line in done.stdout.splitlines() if line.startswith("## ")]
    assert titles == [
        "Learn in chunks of 20, against a batch fit of the same rows",
        "One row per call, after 300 rows",
        "Learn 300 rows in chunks of 50, and in one batch",
        "Forget 50 of 500 rows",
        "Streams of 400 rows that change",
        "Changes that are found",
        "False alarms",
        "The paper's model learns 2,000 rows and keeps 400",
        "The default learns 1,000 rows and keeps 200",
        "Bytes per node while learning, 500 rows",
    ]
    assert "| 2,000 | 400 |" in done.stdout
    assert "| 1,000 | 200 |" in done.stdout


def test_pictures_are_drawn_from_results_that_are_kept(tmp_path):
    drawing = ("benchmarks.streams", "pictures", tmp_path, "--quick", "--cache", tmp_path)
    for _ in range(2):
        done = run(*drawing)
        assert done.returncode == 0, done.stderr
    names = ["stream_change.png", "stream_erasure.png", "stream_law.png"]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == names
    for name in names:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("sudden_400_*.npz"))


def test_an_unknown_part_is_refused():
    done = run("benchmarks.streams", "nonsense")
    assert done.returncode == 2
    assert "unknown part 'nonsense'" in done.stderr


def test_features_exchange_their_parts_in_the_middle():
    steady, sudden, gradual, recurring = drifting(400, seed=3)
    noise = steady.y - friedman(steady.X)
    exchanged = friedman(np.hstack([steady.X[:, 5:], steady.X[:, :5]])) + noise
    np.testing.assert_array_equal(sudden.y[:200], steady.y[:200])
    np.testing.assert_allclose(sudden.y[200:], exchanged[200:])
    is_new = np.isclose(gradual.y, exchanged)
    assert not is_new[:160].any()
    assert is_new[240:].all()
    assert 20 < is_new[160:240].sum() < 60
    for k, old in enumerate((True, False, True, False)):
        quarter = slice(100 * k, 100 * (k + 1))
        np.testing.assert_allclose(recurring.y[quarter], (steady.y if old else exchanged)[quarter])


def test_first_alarms_of_changes_are_told_from_later_and_false_ones():
    alarms = np.array([[20, 10], [45, 42], [50, 44], [51, 44], [80, 75], [99, 98]])
    delays, places, n_more, n_false = sorted_alarms(stream((40, 40), (70, 75)), alarms)
    assert (delays, places) == ("5, 10", "42, 75")
    assert (n_more, n_false) == (1, 3)


def test_a_change_without_an_alarm_is_never_found():
    alarms = np.array([[60, 50]])
    assert sorted_alarms(stream((40, 40), (90, 90)), alarms) == ("never, never", "-, -", 0, 1)


def test_the_alarm_of_the_next_change_is_not_that_of_the_last_one():
    alarms = np.array([[49, 46]])
    delays, *_, n_false = sorted_alarms(stream((40, 40), (45, 45)), alarms)
    assert (delays, n_false) == ("never, 4", 0)


def test_coverage_just_after_a_change_is_not_that_of_settled_rows():
    # Rows 20 to 99 were predicted; the change at 40 counts as recent until row 50.
    inside = np.ones(80, dtype=bool)
    inside[20:30] = False  # rows 40 to 49
    inside[35] = False  # row 55
    assert coverages(stream((40, 40)), followed(inside), 20, 10) == ("0.900 to 1.000", "0.000")


def test_windows_begin_with_rows_that_were_predicted():
    inside = np.ones(85, dtype=bool)
    inside[:5] = False  # rows 15 to 19: no whole window
    assert coverages(stream(), followed(inside), 15, 10) == ("1.000 to 1.000", "1.000")


def test_methods_without_intervals_have_no_coverage():
    assert coverages(stream(), followed([]), 20, 10) == ("", "")
