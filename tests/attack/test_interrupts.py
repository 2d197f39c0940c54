"""An exception at any bytecode leaves the old forest or the new one, whole, and no lock held."""

import copy
import functools
import gc
import pickle
import traceback
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from attack.interruption import choose_events, traced
from attack.soundness import FROZEN, SCALE, assert_sound, learn_one_more, probe, state_of, within
from mondrian_forest import PAPER, HierarchicalPosterior, MondrianForestRegressor
from mondrian_forest._core.arrays.kernel import IS_COMPILED

pytestmark = [
    pytest.mark.skipif(not IS_COMPILED, reason="plain Python can be interrupted within a kernel"),
    # An exception between opening a file and the `with` block leaves closing it to Python.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N_POINTS = 16 * SCALE
"""Points of each case; there are some 45 cases."""
LONG = 5_000
"""A call with more events than this is slow to trace, and gets fewer points."""
MOST_FAILURES = 5
SECONDS = 20.0
"""After so long, a call on a tiny forest hangs."""

SMALL = {"n_estimators": 2, "random_state": 0, "feature_weights": None, "spread": 1.0}
SMALL_PAPER = PAPER | {"n_estimators": 2, "random_state": 0}
EVIDENCE = SMALL_PAPER | {"posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood")}
AUTO = {"n_estimators": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def _quick_collection():
    """Collect what a test leaves behind quickly, and before the next one begins."""
    gc.freeze()
    yield
    gc.collect()
    gc.unfreeze()


class Case(NamedTuple):
    """A call to interrupt."""

    start: Callable[[], MondrianForestRegressor]
    """Return the forest as it is before the call; equal and independent each time."""
    act: Callable[[MondrianForestRegressor], object]
    in_workers: bool = False
    """Interrupt the threads that the call starts, not the one that calls."""


def stream(n_features=2):
    generator = np.random.default_rng(0)
    X = generator.random((300, n_features))
    return X, np.sin(5.0 * X[:, 0]) + 0.1 * generator.normal(size=300)


X, Y = stream()


def unfitted(**parameters):
    return lambda: MondrianForestRegressor(**parameters)


def fitted(n_rows, *more, **parameters):
    """Return how to make a forest that has learned some rows, then others up to further numbers.

    A copy has no room for more rows. Learning makes room, and with it other ways to go wrong.
    """
    base = functools.cache(
        lambda: MondrianForestRegressor(**parameters).fit(X[:n_rows], Y[:n_rows])
    )

    def start():
        forest = copy.deepcopy(base())
        for end in more:
            learn_to(end)(forest)
        return forest

    return start


def learn_to(end):
    """Return a call that makes the number of rows seen ``end``."""

    def act(forest):
        begin = forest.n_samples_seen_
        forest.partial_fit(X[begin:end], Y[begin:end])

    return act


def fit_named(forest):
    table = pd.DataFrame(X[:16], columns=["first", "second"])
    return forest.fit(table, Y[:16])


def fit_wider(forest):
    return forest.fit(stream(3)[0][:16], Y[:16])


def learn_wide_rows(forest):
    return forest.partial_fit(10.0 * X[20:24], Y[20:24])


FITS = {
    "fit": Case(unfitted(**SMALL), lambda forest: forest.fit(X[:16], Y[:16])),
    "fit, all learned": Case(unfitted(**AUTO), lambda forest: forest.fit(X[:60], Y[:60])),
    "fit, trend": Case(
        unfitted(**SMALL, mean_function="linear"), lambda forest: forest.fit(X[:16], Y[:16])
    ),
    "fit, evidence": Case(unfitted(**EVIDENCE), lambda forest: forest.fit(X[:16], Y[:16])),
    "fit again, more features": Case(fitted(16, 17, **SMALL), fit_wider),
    "fit again, names": Case(fitted(16, **SMALL), fit_named),
    "fit after freeze": Case(
        lambda: fitted(16, **SMALL_PAPER)().freeze(), lambda forest: forest.fit(X[:16], Y[:16])
    ),
}
UPDATES = {
    "first rows": Case(unfitted(**SMALL), lambda forest: forest.partial_fit(X[:16], Y[:16])),
    "a row, no room": Case(fitted(16, **SMALL), learn_to(17)),
    "a row": Case(fitted(16, 17, **SMALL), learn_to(18)),
    "a row, paper": Case(fitted(16, 17, **SMALL_PAPER), learn_to(18)),
    "a row, review": Case(fitted(16, 19, **SMALL), learn_to(20)),
    "a row, review, paper": Case(fitted(16, 19, **SMALL_PAPER), learn_to(20)),
    "a row, spread": Case(fitted(60, 64, **SMALL | {"spread": "auto"}), learn_to(65)),
    "a row, trend": Case(fitted(16, 17, **SMALL, mean_function="linear"), learn_to(18)),
    "a row, 50 seen": Case(fitted(48, 49, **SMALL | {"feature_weights": "auto"}), learn_to(50)),
    "a row, 200 seen": Case(fitted(198, 199, **AUTO | {"spread": 1.0}), learn_to(200)),
    "rows": Case(fitted(16, 17, **SMALL), learn_to(19)),
    "rows, review": Case(fitted(16, 17, **SMALL), learn_to(24)),
    "rows, threads": Case(fitted(16, 17, **SMALL, n_jobs=2), learn_to(24)),
    "rows, in threads": Case(fitted(16, 17, **SMALL, n_jobs=2), learn_to(24), in_workers=True),
    "many rows, threads": Case(fitted(16, 17, **SMALL_PAPER, n_jobs=2), learn_to(120)),
    "wide rows": Case(fitted(16, **SMALL), learn_wide_rows),
    "wide rows, in threads": Case(fitted(16, **SMALL, n_jobs=2), learn_wide_rows, in_workers=True),
    "rows, evidence": Case(fitted(16, 17, **EVIDENCE), learn_to(24)),
    "rows, evidence, in threads": Case(
        fitted(16, 17, **EVIDENCE, n_jobs=2), learn_to(24), in_workers=True
    ),
}
FORGETS = {
    "forget, no room": Case(fitted(16, **SMALL), lambda forest: forest.forget([3, 9])),
    "forget": Case(fitted(16, 17, **SMALL), lambda forest: forest.forget([3])),
    "forget, paper": Case(fitted(16, 17, **SMALL_PAPER), lambda forest: forest.forget([3, 16])),
    "forget, threads": Case(
        fitted(40, 41, **SMALL, n_jobs=2), lambda forest: forest.forget([3, 7])
    ),
    "forget, in threads": Case(
        fitted(40, 41, **SMALL, n_jobs=2), lambda forest: forest.forget([3, 7]), in_workers=True
    ),
    "forget many": Case(fitted(16, 17, **SMALL), lambda forest: forest.forget(range(9))),
    "forget, evidence": Case(fitted(16, 17, **EVIDENCE), lambda forest: forest.forget([3])),
    "forget, spread": Case(
        fitted(60, 64, **SMALL | {"spread": "auto"}), lambda forest: forest.forget([3, 5])
    ),
    "window": Case(fitted(16, 17, **SMALL, max_rows=16), learn_to(19)),
    "window, paper": Case(fitted(16, 17, **SMALL_PAPER, max_rows=16), learn_to(18)),
    "sample": Case(fitted(16, 17, **SMALL, max_rows=16, forgetting="random"), learn_to(24)),
    "change": Case(
        fitted(60, 64, **SMALL_PAPER, forgetting="change"),
        lambda forest: forest.partial_fit(X[:128], 30.0 - 9.0 * Y[:128]),
    ),
}
OTHERS = {
    "freeze": Case(fitted(16, 17, **SMALL), lambda forest: forest.freeze()),
    "freeze, paper": Case(fitted(16, 17, **SMALL_PAPER), lambda forest: forest.freeze()),
    "pickle": Case(fitted(16, 17, **SMALL), pickle.dumps),
    "deepcopy": Case(fitted(16, 17, **SMALL), copy.deepcopy),
    "predict": Case(fitted(16, 17, **SMALL), lambda forest: forest.predict(X, return_std=True)),
    "predict, threads": Case(
        fitted(16, 17, **SMALL, n_jobs=2), lambda forest: forest.predict(X, return_std=True)
    ),
    "predict_distribution": Case(
        fitted(16, 17, **AUTO), lambda forest: forest.predict_distribution(X[:30]).quantile(0.5)
    ),
    "predict_distribution, threads": Case(
        fitted(16, 17, **SMALL, n_jobs=2), lambda forest: forest.predict_distribution(X)
    ),
    "predict_interval, in threads": Case(
        fitted(16, 17, **SMALL, n_jobs=2),
        lambda forest: forest.predict_interval(X),
        in_workers=True,
    ),
}


def events_of(case):
    """Return where the call could be interrupted, when everything has been called before."""
    for _ in range(2):
        forest = case.start()
        places, _ = traced(lambda forest=forest: case.act(forest), in_workers=case.in_workers)
    return places


def states_of(case):
    """Return the states before and after the call."""
    forest = case.start()
    old = state_of(forest)
    case.act(forest)
    return [old, state_of(forest)]


def interrupt(case, event, allowed):
    """Interrupt the call at an event; raise an AssertionError unless the forest is sound."""
    forest = case.start()
    _, interruption = traced(lambda: case.act(forest), event, in_workers=case.in_workers)
    if interruption is None:  # it was in the way of something that is not part of the result
        allowed = allowed[1:]
    try:
        assert_still_works(case, forest, allowed)
        expected = state_of(forest)
        # A shell keeps the last traceback, and with it all frames, for a while. When they go,
        # nothing must happen to the forest.
        place = str(interruption)
        interruption = None
        gc.collect()
        is_same = state_of(forest) == expected
        assert is_same, "the forest changes when the traceback is dropped"
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line
        raise AssertionError(f"interrupted in {interruption or place}: {error!r}: {line}") from None


def assert_still_works(case, forest, allowed):
    """Check the forest from another thread and from this one; let it learn in both."""
    found = within(SECONDS, lambda: assert_sound(forest, allowed))
    is_same = state_of(forest) == allowed[found]
    assert is_same, "other threads see another forest"
    if allowed[found] != allowed[-1]:
        within(SECONDS, lambda: case.act(forest))
        is_same = state_of(forest) == allowed[-1]
        assert is_same, "repeating the call does not give the new forest"
    if hasattr(forest, "n_features_in_") and state_of(forest)[-1] != FROZEN:
        n_rows = forest.n_samples_seen_
        within(SECONDS, lambda: learn_one_more(forest))
        learn_one_more(forest)
        assert forest.n_samples_seen_ == n_rows + 2


@pytest.mark.parametrize("name", [*FITS, *UPDATES, *FORGETS, *OTHERS])
def test_an_exception_anywhere_leaves_the_old_or_the_new_forest(name):
    case = (FITS | UPDATES | FORGETS | OTHERS)[name]
    allowed = states_of(case)
    places = events_of(case)
    n_points = N_POINTS if len(places) < LONG else max(N_POINTS // 3, 1)
    failures = []
    for event in choose_events(places, n_points, seed=zlib.crc32(name.encode())):
        try:
            within(5 * SECONDS, lambda event=event: interrupt(case, event, allowed))
        except AssertionError as error:
            failures.append(str(error))
        if len(failures) == MOST_FAILURES:
            break
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("rows", [True, False])
def test_an_exception_anywhere_in_save_leaves_the_old_or_the_new_file(tmp_path, rows):
    path = tmp_path / "model.mf"
    older = fitted(16, **SMALL)()

    def start():
        older.save(path)
        return fitted(16, 17, **SMALL)()

    case = Case(start, lambda forest: forest.save(path, rows=rows))
    forest = start()
    expected = state_of(forest)
    case.act(forest)
    allowed = [state_of(older), state_of(MondrianForestRegressor.load(path))]
    for event in choose_events(events_of(case), 2 * N_POINTS, seed=0):
        forest = start()
        _, interruption = traced(lambda forest=forest: case.act(forest), event)
        assert_sound(MondrianForestRegressor.load(path), allowed)
        assert state_of(forest) == expected, interruption
        within(SECONDS, lambda forest=forest: case.act(forest))
        assert state_of(MondrianForestRegressor.load(path)) == allowed[1]


def test_an_exception_anywhere_in_load_leaves_the_file(tmp_path):
    path = tmp_path / "model.mf"
    forest = fitted(16, 17, **SMALL)()
    forest.save(path)
    expected = forest.predict(probe(forest))
    case = Case(lambda: forest, lambda _: MondrianForestRegressor.load(path))
    for event in choose_events(events_of(case), N_POINTS, seed=0):
        traced(lambda: case.act(forest), event)
        loaded = MondrianForestRegressor.load(path)
        np.testing.assert_array_equal(loaded.predict(probe(loaded)), expected)
