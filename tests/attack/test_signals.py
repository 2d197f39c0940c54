"""Signals at random times, as Ctrl-C sends them: no crash, no forest in between two calls.

Each test interrupts a process of its own many times. A timer sends the signals; Python's handler of
Ctrl-C turns them into a KeyboardInterrupt.
"""

import copy
import functools
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from attack.soundness import (
    SCALE,
    assert_copies_are_equal,
    assert_rows_are_in_trees,
    predictions,
    run_child,
    state_of,
)
from mondrian_forest import PAPER, MondrianForestRegressor

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")

N_TRIALS = 17 * SCALE
"""Interrupts of each kind of call; there are six kinds."""
FILE_EVERY = 10
"""Trials after which the forest is saved and loaded."""
SMALL = {"n_estimators": 5, "random_state": 0, "feature_weights": None, "spread": 1.0}
GENERATOR = np.random.default_rng(0)
X = GENERATOR.random((4_000, 2))
Y = np.sin(5.0 * X[:, 0]) + 0.1 * GENERATOR.normal(size=len(X))


class Alarm:
    """Interrupts calls at random times, most of them while they run."""

    def __init__(self, act):
        """Measure how long a call takes; it has been called before."""
        durations = []
        for _ in range(5):
            begin = time.perf_counter()
            act()
            durations.append(time.perf_counter() - begin)
        self.duration = statistics.median(durations)
        self.is_on = False
        self.n_interrupts = 0
        signal.signal(signal.SIGALRM, self.ring)

    def ring(self, number, frame):
        if self.is_on:
            signal.default_int_handler(number, frame)

    def interrupt(self, act):
        """Act; return whether it was interrupted."""
        try:
            self.is_on = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, self.duration))
            act()
            self.is_on = False
        except KeyboardInterrupt:
            self.is_on = False
            self.n_interrupts += 1
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        return False

    def trials(self):
        """Yield numbers until there were enough interrupts, or far too few of the calls had one."""
        for number in range(20 * N_TRIALS):
            if self.n_interrupts >= N_TRIALS:
                return
            yield number
        raise AssertionError(f"only {self.n_interrupts} interrupts of {20 * N_TRIALS} calls")


def check_now_and_then(number, forest):
    assert_rows_are_in_trees(forest)
    if number % FILE_EVERY == 0:
        assert_copies_are_equal(forest)


def interrupt_streams(chunk, n_rows, parameters):
    """Learn a stream that goes on wherever an interrupt has left it; compare with one left alone.

    An interrupted call is repeated if its rows are not in the forest.
    """
    base = MondrianForestRegressor(**parameters).fit(X[:20], Y[:20])

    def learn_all(forest):
        for begin in range(forest.n_samples_seen_, n_rows, chunk):
            end = min(begin + chunk, n_rows)
            forest.partial_fit(X[begin:end], Y[begin:end])

    @functools.cache
    def expected(n_seen):
        """Return what is predicted after so many rows of an undisturbed stream."""
        forest = copy.deepcopy(base)
        for begin in range(20, n_seen, chunk):
            end = min(begin + chunk, n_seen)
            forest.partial_fit(X[begin:end], Y[begin:end])
        return predictions(forest)

    alarm = Alarm(lambda: learn_all(copy.deepcopy(base)))
    forest = copy.deepcopy(base)
    for number in alarm.trials():
        if forest.n_samples_seen_ >= n_rows:
            forest = copy.deepcopy(base)
        alarm.interrupt(lambda forest=forest: learn_all(forest))
        check_now_and_then(number, forest)
        n_seen = forest.n_samples_seen_
        assert (n_seen - 20) % chunk == 0 or n_seen == n_rows, f"a part of a call: {n_seen} rows"
        assert predictions(forest) == expected(n_seen), f"another forest after {n_seen} rows"


def interrupt_fits(n_rows, parameters):
    def fit(forest, which):
        return forest.fit(X[:n_rows], Y[:n_rows] + which)

    forest, other = (fit(MondrianForestRegressor(**parameters), which) for which in (0, 1))
    states = [state_of(forest), state_of(other)]
    alarm = Alarm(lambda: fit(other, 0))
    for number in alarm.trials():
        which = number % 2
        is_interrupted = alarm.interrupt(functools.partial(fit, forest, which))
        check_now_and_then(number, forest)
        allowed = states if is_interrupted else [states[which]]
        assert state_of(forest) in allowed, "the forest is neither the old nor the new one"


def interrupt_predictions():
    """Predict so many rows that most signals arrive while a kernel runs.

    They are handled as soon as it returns, for example while its result becomes a Python object.
    """
    forest = MondrianForestRegressor(**SMALL).fit(X, Y)
    calls = [
        lambda: forest.predict_distribution(X).mean(),
        lambda: forest.predict(X, return_std=True)[1],
        lambda: forest.predict_interval(X[:400])[:, 0],
    ]
    expected = [call() for call in calls]
    alarm = Alarm(calls[0])
    for number in alarm.trials():
        call = calls[number % len(calls)]
        alarm.interrupt(call)
        check_now_and_then(number, forest)
        np.testing.assert_array_equal(call(), expected[number % len(calls)])


def interrupt_saves():
    forests = [MondrianForestRegressor(**SMALL).fit(X[:n], Y[:n]) for n in (50, 100)]
    states = [state_of(forest) for forest in forests]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mf")
        forests[1].save(path)
        alarm = Alarm(lambda: forests[1].save(path))
        for number in alarm.trials():
            which = number % 2
            is_interrupted = alarm.interrupt(lambda which=which: forests[which].save(path))
            found = state_of(MondrianForestRegressor.load(path))
            assert found in (states if is_interrupted else [states[which]]), "another file"
            assert_rows_are_in_trees(forests[which])
            assert state_of(forests[which]) == states[which], "saving has changed the forest"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("interrupt_streams", (1, 120, SMALL)),
        ("interrupt_streams", (13, 400, PAPER | {"n_estimators": 5, "random_state": 0})),
        ("interrupt_fits", (2_000, SMALL)),
        ("interrupt_fits", (60, {"n_estimators": 5, "random_state": 0})),
        ("interrupt_predictions", ()),
        ("interrupt_saves", ()),
    ],
    ids=["single rows", "chunks", "fit", "fit, all learned", "predictions", "save"],
)
def test_signals_neither_crash_nor_leave_half_a_forest(function, arguments):
    run_child("test_signals", function, *arguments)
