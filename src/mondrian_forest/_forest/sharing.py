"""Threads that share a forest: any number of readers, and one writer at a time.

An estimator has one ``Shared`` object, which holds the reference to its ``ForestState``. A writer
makes a new state and replaces the reference in one step. So an error or an interrupt leaves the old
state or the new one. A reader keeps the state that it began with, and sees one of them.

Trees are too large to be copied for every new row: rows join them in place. A writer first waits
until nobody reads these trees, and readers wait until the rows have joined. If the readers take too
long, the writer copies the trees after all. The new state takes its place before the rows join,
with a note of what is unfinished. If an interrupt comes in between, whoever comes next finishes it.

There is no lock that an interrupt could leave locked. A visit is an entry in a dictionary, made and
removed by one operation each. Whatever a visit does stands in a ``try`` block. The last statement
of the block ends the visit, and so does its handler. A ``with`` block or ``finally`` would not do:
at its beginning and at its end there are moments in which an interrupt keeps it from cleaning up.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from time import monotonic, sleep
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

from .parameters import Parameters, parameters_of
from .state import ForestState
from .trees import finish, with_own_trees

LONGEST_WAIT = 1.0
"""Seconds that a writer waits for readers before it copies the trees."""
_PAUSE = 1e-4
_ONLY = "writer"
NAME = "_shared"
"""The attribute of an estimator that holds its ``Shared``."""

Result = TypeVar("Result")
Forest = TypeVar("Forest")


class Shared:
    """The state of a forest, and who is at work on it, by the numbers of their visits."""

    def __init__(self, state: ForestState | None = None) -> None:
        self.state = state
        """None before the first fit."""
        self.readers: dict[int, ForestState] = {}
        """The state that each reader has in use."""
        self.writer: dict[str, int] = {}
        self.changing: dict[int, None] = {}
        """Visits during which nobody else may look at the trees."""
        self.checked: tuple[list[Any], Parameters] | None = None
        """The parameters that were checked last, as the estimator has them and as they are used."""

    def is_read(self, state: ForestState) -> bool:
        """Return whether somebody reads what finishing a state would change in place."""
        assert state.unfinished is not None
        moves_rows = state.unfinished.leaving is not None
        return any(
            used.grove is state.grove or (moves_rows and used.shares_rows_with(state))
            for used in list(self.readers.values())
        )


def shared_by(forest: Any) -> Shared:
    """Return what all who work on a forest share; it is made for the first of them."""
    known: Shared | None = vars(forest).get(NAME)
    return known or vars(forest).setdefault(NAME, Shared())


def is_fitted(forest: Any) -> bool:
    """Return whether a forest has a state."""
    known: Shared | None = vars(forest).get(NAME)
    return known is not None and known.state is not None


def read(forest: Any, look: Callable[[ForestState], Result]) -> Result:
    """Return what ``look`` finds in the state of a forest, which does not change meanwhile."""
    if not is_fitted(forest):
        check_is_fitted(forest)
    visit = _Visit(shared_by(forest), forest.n_jobs)
    try:
        found = look(visit.begin_to_read())
        visit.end()
    except BaseException:
        visit.end()
        raise
    return found


def parameters_for(forest: Any, *, is_due: bool) -> Parameters:
    """Return the parameters of a forest that learns more rows.

    They are checked at every review, and when others were set. To check them for every row would
    take a quarter of the time in which it is learned.
    """
    shared, values = shared_by(forest), list(vars(forest).values())
    if shared.checked is None or is_due or not all(map(is_, values, shared.checked[0])):
        shared.checked = values, parameters_of(forest)
    return shared.checked[1]


def state_of(forest: Any) -> ForestState:
    """Return the state of a fitted forest; trees and rows may change when somebody learns."""
    return read(forest, lambda state: state)


def with_state(forest: Forest, state: ForestState) -> Forest:
    """Give an estimator the state of a fit that was made elsewhere; return it."""
    shared_by(forest).state = state
    return forest


def write(forest: Any, change: Callable[[ForestState | None], ForestState]) -> None:
    """Replace the state of a forest by what ``change`` makes of it; at first there is none."""
    visit = _Visit(shared_by(forest), forest.n_jobs)
    try:
        visit.put_in_place(change(visit.begin_to_write()))
        visit.end()
    except BaseException:
        visit.end()
        raise


class _Visit:
    """The stay of a reader or of a writer."""

    def __init__(self, shared: Shared, n_jobs: int | None) -> None:
        self._shared, self._n_jobs = shared, n_jobs

    def end(self) -> None:
        """Let others in; a second call does no harm."""
        shared, number = self._shared, id(self)
        shared.changing.pop(number, None)
        shared.readers.pop(number, None)
        if shared.writer.get(_ONLY) == number:
            shared.writer.pop(_ONLY, None)

    def begin_to_read(self) -> ForestState:
        """Return the state, as soon as no rows are on their way into the trees."""
        shared = self._shared
        while True:
            state = shared.state
            assert state is not None
            shared.readers[id(self)] = state
            if not shared.changing and shared.state is state and not state.unfinished:
                return state
            shared.readers.pop(id(self), None)
            if shared.changing:
                sleep(_PAUSE)
            elif state.unfinished:
                self._finish_for_others()

    def _finish_for_others(self) -> None:
        """Finish what an interrupted writer has left, as a writer."""
        visit = _Visit(self._shared, self._n_jobs)
        try:
            visit.begin_to_write()
            visit.end()
        except BaseException:
            visit.end()
            raise

    def begin_to_write(self) -> ForestState | None:
        """Return the state, as soon as nobody else writes; finish what others left unfinished."""
        shared = self._shared
        while shared.writer.setdefault(_ONLY, id(self)) != id(self):
            sleep(_PAUSE)
        state = shared.state
        if state is not None and state.unfinished:
            while shared.is_read(state):
                sleep(_PAUSE)
            shared.changing[id(self)] = None
            shared.state = finish(state, self._n_jobs)
            shared.changing.pop(id(self), None)
        return shared.state

    def put_in_place(self, state: ForestState) -> None:
        """Let a new state be that of the forest, and finish what it leaves unfinished."""
        shared, n_jobs = self._shared, self._n_jobs
        if state.unfinished:
            if shared.state is None or state.grove is not shared.state.grove:
                state = finish(state, n_jobs)  # on trees that nobody else knows yet
            elif not self._is_alone(state):
                state = finish(with_own_trees(state, n_jobs), n_jobs)
        shared.state = state
        if state.unfinished:
            try:
                shared.state = finish(state, n_jobs)
            except BaseException:  # an interrupt: who looks next must see a whole forest
                shared.state = finish(state, n_jobs)
                raise

    def _is_alone(self, state: ForestState) -> bool:
        """Keep new readers out and wait until nobody reads the trees; False if that takes long."""
        shared = self._shared
        shared.changing[id(self)] = None
        if not shared.readers:  # as a rule
            return True
        deadline = monotonic() + LONGEST_WAIT
        while shared.is_read(state):
            if monotonic() > deadline:
                shared.changing.pop(id(self), None)
                return False
            sleep(_PAUSE)
        return True
