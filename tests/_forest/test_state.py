import dataclasses

import numpy as np
import pytest

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._forest.sharing import state_of


def fitted(**parameters):
    random = np.random.default_rng(0)
    X = random.random((120, 3))
    y = X[:, 0] + 0.1 * random.normal(size=120)
    return MondrianForestRegressor(3, random_state=0, **parameters).fit(X, y), X, y


def test_a_state_cannot_be_changed():
    state = state_of(fitted()[0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.n_rows = 3


def test_a_changed_state_has_all_fields_and_leaves_the_old_one_alone():
    state = state_of(fitted()[0])
    other = state.but(n_rows=7)
    assert (state.n_rows, other.n_rows) == (120, 7)
    for field in dataclasses.fields(state):
        if field.name != "n_rows":
            assert getattr(other, field.name) is getattr(state, field.name)


@pytest.mark.parametrize("parameters", [{}, PAPER])
def test_learning_replaces_the_state_and_what_it_held_stays(parameters):
    """But for trees and rows, which grow in place."""
    forest, X, y = fitted(**parameters)
    before = state_of(forest)
    streams, moments = before.random_states.copy(), before.label_moments
    forest.partial_fit(X[:5], y[:5])
    after = state_of(forest)
    assert after is not before
    assert (before.n_rows, after.n_rows) == (120, 125)
    np.testing.assert_array_equal(before.random_states, streams)
    assert before.label_moments == moments


def test_a_frozen_state_holds_no_row():
    state = state_of(fitted()[0].freeze())
    assert state.is_frozen
    assert len(state.rows) == len(state.labels) == len(state.spread_record) == 0
    assert state.grove.row_numbers.size == 0
    assert state.grove.tallies.shape[1] == 1


def test_a_copy_shares_no_array_that_changes_in_place():
    state = state_of(fitted()[0])
    copy = state.copied()
    for name in ("rows", "labels", "random_states"):
        assert not np.shares_memory(getattr(copy, name), getattr(state, name))
    for one, other in zip(copy.grove[:5], state.grove[:5], strict=True):
        assert not np.shares_memory(one, other)
