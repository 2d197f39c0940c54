"""Too little memory ends in a MemoryError and leaves the old forest or the new one.

Each test limits the address space of a process of its own. All kernels run once before, since
compiling or loading them takes memory that is not the forest's. There is one thread only: without
memory, Python itself may wait for ever for a thread to start.
"""

import copy
import ctypes
import functools
import gc
import pickle
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from attack.soundness import (
    SCALE,
    assert_copies_are_equal,
    assert_rows_are_in_trees,
    run_child,
    state_of,
)
from mondrian_forest import PAPER, HierarchicalPosterior, MondrianForestRegressor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_AS")

N_TRIALS = 5 * SCALE
"""Trials of each kind of call."""
LEAST, MOST = 2**16, 2**30
"""Bytes beyond those in use, for the search of how many are enough."""
SMALL = {"n_estimators": 6, "random_state": 0, "feature_weights": None, "spread": 1.0}
EVIDENCE = PAPER | {
    "n_estimators": 6,
    "random_state": 0,
    "posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood"),
}
GENERATOR = np.random.default_rng(0)
X = GENERATOR.random((60_000, 2))
Y = GENERATOR.normal(size=len(X))
N_ROWS = 3_000


@functools.cache
def fitted_once(**parameters):
    return MondrianForestRegressor(**parameters).fit(X[:N_ROWS], Y[:N_ROWS])


def fitted(*more, **parameters):
    """Return how to make a forest of the first rows; learning up to ``more`` gives it room."""

    def start():
        forest = copy.deepcopy(fitted_once(**parameters))
        for end in more:
            learn_to(end)(forest)
        return forest

    return start


def learn_to(end, scale=1.0):
    def act(forest):
        begin = forest.n_samples_seen_
        forest.partial_fit(scale * X[begin:end], Y[begin:end])

    return act


def fit(forest):
    return forest.fit(X[:2_000], Y[:2_000])


KINDS = {
    "first fit": (lambda: MondrianForestRegressor(**SMALL), fit),
    "fit": (fitted(**SMALL), fit),
    "fit, all learned": (
        lambda: MondrianForestRegressor(3, random_state=0),
        lambda forest: forest.fit(X[:300], Y[:300]),
    ),
    "a row, no room": (fitted(**SMALL), learn_to(N_ROWS + 1)),
    "a row": (fitted(N_ROWS + 1, **SMALL), learn_to(N_ROWS + 2)),
    "rows": (fitted(N_ROWS + 1, **SMALL), learn_to(N_ROWS + 500)),
    "rows, review": (fitted(N_ROWS + 1, **SMALL), learn_to(N_ROWS + 800)),
    "wide rows": (fitted(**SMALL), learn_to(N_ROWS + 800, scale=10.0)),
    "rows, evidence": (fitted(**EVIDENCE), learn_to(N_ROWS + 800)),
    "freeze": (fitted(**SMALL), lambda forest: forest.freeze()),
    "predict": (fitted(**SMALL), lambda forest: forest.predict(X, return_std=True)),
    "predict_distribution": (
        fitted(**SMALL),
        lambda forest: forest.predict_distribution(X[:2_000]),
    ),
    "predict_interval": (fitted(**SMALL), lambda forest: forest.predict_interval(X[:2_000])),
    "pickle": (fitted(**SMALL), pickle.dumps),
    "deepcopy": (fitted(**SMALL), copy.deepcopy),
}


def bytes_in_use():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def error_with(n_more_bytes, act):
    """Act with so many bytes beyond those in use; return the error, if any."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory would be used first
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (bytes_in_use() + n_more_bytes, hard))
    try:
        act()
    except Exception as error:
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return None


def find_enough(start, act):
    """Return a number of bytes with which the call succeeds."""
    n_bytes = LEAST
    while n_bytes < MOST and error_with(n_bytes, functools.partial(act, start())) is not None:
        n_bytes *= 2
    return n_bytes


def limit_calls(*names):
    """Let calls run out of memory at random; raise an error that names all failures."""
    gc.freeze()
    failures = []
    for name in names:
        random = np.random.default_rng(len(name))
        start, act = KINDS[name]
        forest = start()
        allowed = [state_of(forest)]
        act(forest)
        allowed.append(state_of(forest))
        enough = find_enough(start, act)
        for _ in range(N_TRIALS):
            forest = start()
            n_bytes = int(random.uniform(0, enough))
            error = error_with(n_bytes, functools.partial(act, forest))
            place = f"{name}, {n_bytes} of {enough} bytes"
            if not (error is None or isinstance(error, MemoryError)):
                failures.append(f"{place}: {error!r}")
            try:
                check_forest(forest, act, allowed if error else allowed[1:])
            except Exception as wrong:
                failures.append(f"{place}: after {error!r}: {wrong!r}")
    assert not failures, "\n".join(failures)


def check_forest(forest, act, allowed):
    state = state_of(forest)
    assert state in allowed, "the forest is neither the old nor the new one"
    if state != allowed[-1]:
        act(forest)
        assert state_of(forest) == allowed[-1], "repeating the call does not give the new forest"
    assert_rows_are_in_trees(forest)
    assert_copies_are_equal(forest)


def limit_files():
    """Let saving and loading run out of memory; the file is the old one or the new one."""
    gc.freeze()
    random = np.random.default_rng(0)
    old, new = fitted(**SMALL)(), fitted(N_ROWS + 1, **SMALL)()
    allowed = [state_of(old), state_of(new)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mf")
        for act in (new.save, MondrianForestRegressor.load):
            old.save(path)
            act(path)
            enough = find_enough(lambda: path, act)
            for _ in range(N_TRIALS):
                old.save(path)
                n_bytes = int(random.uniform(0, enough))
                error = error_with(n_bytes, functools.partial(act, path))
                assert error is None or isinstance(error, MemoryError), f"{n_bytes}: {error!r}"
                is_new = act == new.save and error is None
                found = state_of(MondrianForestRegressor.load(path))
                assert found in (allowed[1:] if is_new else allowed), "the file has another forest"
                assert state_of(new) == allowed[1], "saving has changed the forest"


@pytest.mark.parametrize(
    "names",
    [
        ("first fit", "fit", "fit, all learned"),
        ("a row, no room", "a row", "rows", "rows, review"),
        ("wide rows", "rows, evidence"),
        ("freeze", "predict", "predict_distribution", "predict_interval", "pickle", "deepcopy"),
    ],
    ids="+".join,
)
def test_too_little_memory_leaves_the_old_or_the_new_forest(names):
    run_child("test_memory", "limit_calls", *names)


def test_too_little_memory_leaves_the_old_or_the_new_file():
    run_child("test_memory", "limit_files")
