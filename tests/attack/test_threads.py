"""Threads that read while another one learns see the forest before or after a call.

Each test runs in a process of its own, where a crash is seen and does no harm.
"""

import copy
import hashlib
import itertools
import pickle
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from attack.interruption import choose_events, traced
from attack.soundness import SCALE, assert_sound, run_child, state_of, within
from mondrian_forest import PAPER, MondrianForestRegressor

SECONDS = 3.0 * SCALE
HANGS = 60.0
DEEP = PAPER | {"min_samples_split": 2, "feature_range": (0.0, 1.0)}
"""Trees of the paper that grow as deep as the rows make them."""


class Story(NamedTuple):
    """What the writer does, step by step; the same each time."""

    start: Callable[[], MondrianForestRegressor]
    steps: list[Callable[[MondrianForestRegressor], object]]

    def states(self, read):
        """Return what a reader sees after each number of steps, told without any reader."""
        forest = self.start()
        states = [read(forest)]
        for step in self.steps:
            step(forest)
            states.append(read(forest))
        return states


class Telling:
    """A story that is being told: a forest, and how many steps have begun and are done."""

    def __init__(self, story):
        self.story = story
        self.forest = story.start()
        self.n_begun = self.n_done = 0

    def tell(self, is_over):
        for step in self.story.steps:
            if is_over():
                return
            self.n_begun += 1
            step(self.forest)
            self.n_done += 1
            time.sleep(random.choice([0.0, 0.0, 0.001, 0.005]))


class Stage:
    """Tells a story over and over while others watch; remembers the first error of any thread."""

    def __init__(self, story):
        self.story = story
        self.telling = Telling(story)
        self.errors = []
        self.ends_at = time.monotonic() + SECONDS
        self.n_seen = 0

    def is_over(self):
        return bool(self.errors) or time.monotonic() > self.ends_at

    def tell(self):
        while not self.is_over():
            self.telling = Telling(self.story)
            self.telling.tell(self.is_over)

    def watch(self, read, states):
        """Return a reader: what it reads is a state of that time, and none comes before earlier."""

        def run():
            telling, last = None, 0
            while not self.is_over():
                if telling is not self.telling:
                    telling, last = self.telling, 0
                earliest = max(last, telling.n_done)
                found = read(telling.forest)
                latest = telling.n_begun
                matches = [
                    number for number in range(earliest, latest + 1) if states[number] == found
                ]
                others = [number for number, state in enumerate(states) if state == found]
                assert matches, f"expected one of {earliest} to {latest}, found one of {others}"
                last = matches[0]
                self.n_seen += 1

        return run

    def play(self, *readers):
        """Run the writer and all readers, each in a thread; raise the first error."""
        sys.setswitchinterval(1e-4)  # so that threads take turns more often
        self.ends_at = time.monotonic() + SECONDS
        at_once(self.tell, *readers, errors=self.errors)
        assert self.n_seen > 0, "nothing was read"


def at_once(*acts, errors=None):
    """Act in threads, each in one of its own; raise the first error."""
    errors = [] if errors is None else errors

    def run(act):
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + HANGS)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def halving_stream(**parameters):
    """Learn rows at 1, 1/2, 1/4 and so on, one by one: each makes trees deeper."""
    X = 2.0 ** -np.arange(120.0)[:, None]
    y = np.random.default_rng(0).normal(size=len(X))

    def learn(number):
        return lambda forest: forest.partial_fit(X[number : number + 1], y[number : number + 1])

    return Story(
        lambda: MondrianForestRegressor(4, random_state=0, **parameters).fit(X[:1], y[:1]),
        [learn(number) for number in range(1, len(X))],
    )


def mixed_story():
    """Fit again and again, learn chunks and single rows, freeze."""
    generator = np.random.default_rng(1)
    X, y = generator.random((400, 2)), generator.normal(size=400)

    def fit(begin, end):
        return lambda forest: forest.fit(X[begin:end], y[begin:end])

    def learn(begin, end, scale=1.0):
        return lambda forest: forest.partial_fit(scale * X[begin:end], y[begin:end])

    parameters = {"n_estimators": 4, "random_state": 0, "feature_weights": None, "spread": 1.0}
    single_rows = [learn(row, row + 1) for row in range(100, 110)]
    return Story(
        lambda: MondrianForestRegressor(**parameters).fit(X[:50], y[:50]),
        [
            fit(50, 100),
            learn(100, 103),
            fit(0, 100),
            *single_rows,
            learn(110, 150),
            learn(150, 260),
            learn(260, 330, scale=10.0),
            lambda forest: forest.freeze(),
            fit(0, 200),
            *single_rows,
            lambda forest: forest.freeze(),
        ],
    )


HALVES = np.append(2.0 ** -np.arange(0.0, 128.0, 16.0), [-1.0, 0.3])[:, None]


def read_many(read, n_times):
    """Return how to predict the same ten rows many times in one call."""
    rows = np.tile(HALVES, (n_times, 1))

    def read_all(forest):
        found = read(forest, rows).reshape(n_times, -1)
        assert (found == found[0]).all(), "one call has predicted two forests"
        return found[0].tobytes()

    return read_all


def mean_of(forest, rows):
    return forest.predict(rows)


def mean_and_std_of(forest, rows):
    return np.column_stack(forest.predict(rows, return_std=True))


def median_of(forest, rows):
    return forest.predict_quantiles(rows, 0.5)


def distribution_of(forest, rows):
    distribution = forest.predict_distribution(rows)
    return np.column_stack((distribution.mean(), distribution.std(), distribution.cdf(0.1)))


def play_deep_trees(parameters):
    stage = Stage(halving_stream(**parameters))
    readers = []
    for read, n_times in (
        (mean_of, 6_000),
        (mean_and_std_of, 1_000),
        (median_of, 10),
        (distribution_of, 100),
    ):
        states = stage.story.states(read_many(read, 1))
        readers += 2 * [stage.watch(read_many(read, n_times), states)]
    stage.play(*readers)


def play_fits():
    stage = Stage(mixed_story())
    rows = np.random.default_rng(0).uniform(-0.5, 1.5, (10, 2))
    readers = []
    for predict in (mean_of, mean_and_std_of, median_of, distribution_of):

        def read(forest, predict=predict):
            return predict(forest, rows).tobytes()

        readers += 2 * [stage.watch(read, stage.story.states(read))]
    stage.play(*readers)


def copy_by_pickle(forest):
    return state_of(pickle.loads(pickle.dumps(forest)))


def copy_deeply(forest):
    return state_of(copy.deepcopy(forest))


def copy_by_file(forest):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mf")
        forest.save(path)
        return state_of(MondrianForestRegressor.load(path))


def play_copies():
    stage = Stage(mixed_story())

    def save_twice():
        """Compare two files of the same forest, unless the writer has come in between."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, name) for name in ("one.mf", "two.mf")]
            while not stage.is_over():
                telling = stage.telling
                n_done = telling.n_done
                for path in paths:
                    telling.forest.save(path)
                if telling.n_begun == n_done:
                    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
                    assert len(digests) == 1, "two files of one forest differ"

    reads = (copy_by_pickle, copy_deeply, copy_by_file)
    states = stage.story.states(state_of)
    stage.play(*(stage.watch(read, states) for read in reads), save_twice)


def play_two_writers():
    """Let two threads learn at once; in the end the forest has the rows of both."""
    generator = np.random.default_rng(2)
    X, y = generator.random((120, 2)), generator.normal(size=120)
    ends_at = time.monotonic() + SECONDS
    sys.setswitchinterval(1e-4)
    for number in itertools.count():
        if time.monotonic() > ends_at:
            break
        parameters = PAPER if number % 2 else {"feature_weights": None, "spread": 1.0}
        forest = MondrianForestRegressor(3, random_state=number, **parameters).fit(X[:10], y[:10])

        def learn(begin, end, chunk, forest=forest):
            for start in range(begin, end, chunk):
                stop = min(start + chunk, end)
                forest.partial_fit(X[start:stop], y[start:stop])

        at_once(partial(learn, 10, 60, 1), partial(learn, 60, 120, random.choice([1, 7, 60])))
        assert forest.n_samples_seen_ == len(y), f"{forest.n_samples_seen_} rows of {len(y)}"
        assert_sound(forest)
        for tree in forest.trees_:
            np.testing.assert_allclose(tree.tallies["label_mean"][0], y.mean(), atol=1e-12)


@pytest.mark.parametrize(
    "parameters", [DEEP, {"n_jobs": 2, "feature_range": (0.0, 1.0)}], ids=["paper", "default"]
)
def test_readers_see_whole_forests_while_trees_get_deeper(parameters):
    run_child("test_threads", "play_deep_trees", parameters)


def test_readers_see_whole_forests_while_they_are_fitted_again_and_frozen():
    run_child("test_threads", "play_fits")


def test_copies_and_files_are_whole_while_the_forest_learns():
    run_child("test_threads", "play_copies")


def test_two_threads_that_learn_at_once_lose_no_row():
    run_child("test_threads", "play_two_writers")


def test_interrupted_readers_whose_tracebacks_are_kept_block_no_writer():
    generator = np.random.default_rng(3)
    X, y = generator.random((40, 2)), generator.normal(size=40)
    forest, twin = (
        MondrianForestRegressor(2, random_state=0, feature_weights=None, spread=1.0).fit(
            X[:30], y[:30]
        )
        for _ in range(2)
    )
    kept = []
    for read in (
        partial(forest.predict, X),
        partial(forest.predict_distribution, X),
        partial(pickle.dumps, forest),
        partial(copy.deepcopy, forest),
    ):
        read()  # the first call does more than the others
        places, _ = traced(read)
        for event in choose_events(places, 5 * SCALE, seed=len(kept)):
            kept += [within(HANGS, partial(traced, read, event))]
    assert all(interruption is not None for _, interruption in kept)
    for row in range(30, 40):
        within(HANGS, lambda row=row: forest.partial_fit(X[row : row + 1], y[row : row + 1]))
        twin.partial_fit(X[row : row + 1], y[row : row + 1])
    assert_sound(forest, [state_of(twin)])
