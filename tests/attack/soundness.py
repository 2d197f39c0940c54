"""What must hold for a forest whatever was done to it, and how to run an attack.

``MONDRIAN_ATTACK`` multiplies the number of trials, for long runs on demand.
"""

import copy
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from mondrian_forest import MondrianForestRegressor
from mondrian_forest._forest import sharing
from trees import check_tree_invariants

SCALE = int(os.environ.get("MONDRIAN_ATTACK", "1"))
NOT_FITTED = "not fitted"
FROZEN = "frozen"


def probe(forest):
    """Return rows to predict, in and around the unit cube, as the forest wants them."""
    n_features = forest.n_features_in_
    table = np.random.default_rng(n_features).uniform(-0.5, 1.5, (5, n_features))
    names = getattr(forest, "feature_names_in_", None)
    return table if names is None else pd.DataFrame(table, columns=names)


def learn_one_more(forest):
    """Let the forest learn a row off most data, so that its trees draw random numbers."""
    return forest.partial_fit(probe(forest)[:1] * 0.0 + 1.25, [0.5])


def predictions(forest):
    """Return what the forest predicts for the probe, as bytes."""
    rows = probe(forest)
    mean, std = forest.predict(rows, return_std=True)
    values = np.column_stack((mean, std, forest.predict_quantiles(rows, [0.1, 0.9])))
    assert np.isfinite(values).all(), f"not finite: {values}"
    return values.tobytes()


def state_of(forest):
    """Return the forest's rows and predictions, and its predictions after one more row.

    The latter depend on the random streams, and on when which estimate is due. Two forests with
    equal states are equal as far as a user can tell.
    """
    try:
        check_is_fitted(forest)
    except NotFittedError:
        return NOT_FITTED
    now = forest.n_samples_seen_, forest.row_numbers_.tobytes(), predictions(forest)
    copied = copy.deepcopy(forest)
    try:
        learn_one_more(copied)
    except ValueError as error:
        if "freeze" not in str(error):
            raise
        return (*now, FROZEN)
    return (*now, predictions(copied))


def assert_sound(forest, allowed=None):
    """Assert that a forest is whole, and in one of the allowed states if these are given.

    Returns the place of its state among the allowed ones. The forest is left as it is.
    """
    found = state_of(forest)
    if found != NOT_FITTED:
        assert_trees_are_whole(forest)
        assert_copies_are_equal(forest)
    if allowed is None:
        assert found != NOT_FITTED, found
        return None
    known = [describe(state) for state in allowed]
    assert found in allowed, f"the forest has {describe(found)}, allowed are {known}"
    return allowed.index(found)


def describe(state):
    return state if state == NOT_FITTED else f"{state[0]} rows, predictions {hash(state[1:]):x}"


def assert_rows_are_in_trees(forest):
    counts = [int(tree.n_samples[0]) for tree in forest.trees_]
    assert set(counts) == {forest.n_rows_}, f"{forest.n_rows_} held, {counts} known"


def assert_trees_are_whole(forest):
    """Check the trees with the rows that they have learned.

    The stored rows have no public name: this is the only place here that looks inside.
    """
    assert_rows_are_in_trees(forest)
    n_rows = forest.n_rows_
    state = sharing.state_of(forest)
    if state.is_frozen:
        return
    for number, tree in enumerate(forest.trees_):
        check_tree_invariants(
            tree,
            state.rows[:n_rows],
            state.grove.rows(number),
            forest.min_samples_split_,
            labels=state.labels[:n_rows],
        )


def assert_copies_are_equal(forest):
    """Check that a pickle, a copy and a file predict the same; loading a file checks it."""
    expected = predictions(forest)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mf")
        forest.save(path)
        for copied in (
            pickle.loads(pickle.dumps(forest)),
            copy.deepcopy(forest),
            MondrianForestRegressor.load(path),
        ):
            assert copied.n_samples_seen_ == forest.n_samples_seen_, "a copy has other rows"
            assert predictions(copied) == expected, "a copy predicts something else"


def within(seconds, act):
    """Act in another thread and return the result; fail if it hangs, as on a lock that is held."""
    results, errors = [], []

    def run():
        try:
            results.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "another thread hangs: a lock is held for ever"
    if errors:
        raise errors[0]
    return results[0]


def run_child(module, function, *arguments):
    """Call a function in a process of its own, where a crash does no harm.

    One that hangs ends itself, and says where it was.
    """
    seconds = 120 + 60 * SCALE
    call = (
        f"import faulthandler; faulthandler.dump_traceback_later({seconds}, exit=True); "
        f"from attack.{module} import {function}; {function}(*{arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", call],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
