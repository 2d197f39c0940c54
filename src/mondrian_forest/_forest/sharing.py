"""Threads that share a forest: any number of readers, and one writer at a time.

The state of a forest is the dictionary of its attributes. A writer works on a draft, which has a
dictionary of its own, and puts it in place in one step. So an error or an interrupt leaves the old
state or the new one, and a reader, who keeps the dictionary that it began with, sees one of them.

Trees are too large to be copied for every new row: rows join them in place. A writer first waits
until nobody reads these trees, and readers wait until the rows have joined. Where the readers take
too long, the writer copies the trees after all. The draft takes its place before the rows join,
with a note of what is unfinished. If an interrupt comes in between, whoever comes next finishes it.

There is no lock that an interrupt could leave locked. A visit is an entry in a dictionary, made and
removed by one operation each. Whatever a visit does stands in a ``try`` block whose last statement
ends the visit, and whose handler ends it, too: a ``with`` block, or ``finally``, has moments at its
beginning and at its end in which an interrupt would keep it from cleaning up.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

LONGEST_WAIT = 1.0
"""Seconds that a writer waits for readers before it copies the trees."""
_PAUSE = 1e-4
_ONLY = "writer"

Result = TypeVar("Result")


class Shared(Protocol):
    """What is asked of a forest here."""

    def _finish(self) -> None:
        """Do what ``_unfinished`` says and remove that note; a second call does no harm."""

    def _copy_trees(self) -> None:
        """Replace the trees by a copy that nobody else knows."""


class Gate:
    """Who is at work on a forest, by the numbers of their visits. It stays that of the forest."""

    def __init__(self) -> None:
        self.readers: dict[int, Any] = {}
        """The trees that each reader has in use."""
        self.writer: dict[str, int] = {}
        self.changing: dict[int, None] = {}
        """Those at whose trees nobody else may look."""

    def is_read(self, trees: object) -> bool:
        return any(used is trees for used in list(self.readers.values()))


def gate_of(state: dict[str, Any]) -> Gate:
    gate: Gate = state.get("_gate") or state.setdefault("_gate", Gate())
    return gate


def _with_state(forest: Any, state: dict[str, Any]) -> Any:
    """Return another object of the same class, which has this state."""
    other = object.__new__(type(forest))
    other.__dict__ = state
    return other


def read(forest: Any, look: Callable[[Any], Result]) -> Result:
    """Return what ``look`` finds in a view of the forest, which does not change meanwhile."""
    visit = _Visit(forest)
    try:
        found = look(visit.begin_to_read())
        visit.end()
    except BaseException:
        visit.end()
        raise
    return found


def write(forest: Any, change: Callable[[Any], None]) -> None:
    """Change the forest: what ``change`` makes of a draft of it, it will be."""
    visit = _Visit(forest)
    try:
        draft = visit.begin_to_write()
        change(draft)
        visit.put_in_place(draft)
        visit.end()
    except BaseException:
        visit.end()
        raise


class _Visit:
    """The stay of a reader or of a writer."""

    _gate: Gate | None = None

    def __init__(self, forest: Any) -> None:
        self._forest = forest

    def end(self) -> None:
        """Let others in; a second call does no harm."""
        gate, number = self._gate, id(self)
        if gate is not None:
            gate.changing.pop(number, None)
            gate.readers.pop(number, None)
            if gate.writer.get(_ONLY) == number:
                gate.writer.pop(_ONLY, None)

    def begin_to_read(self) -> Any:
        """Return a view, as soon as no rows are on their way into the trees."""
        forest = self._forest
        while True:
            state = forest.__dict__
            if "_grove" not in state:  # not fitted yet
                return _with_state(forest, state)
            gate = self._gate = gate_of(state)
            gate.readers[id(self)] = state["_grove"]
            if not gate.changing and forest.__dict__ is state and "_unfinished" not in state:
                return _with_state(forest, state)
            gate.readers.pop(id(self), None)
            if gate.changing:
                sleep(_PAUSE)
            elif "_unfinished" in forest.__dict__:
                write(forest, lambda _draft: None)

    def begin_to_write(self) -> Any:
        """Return a draft, as soon as nobody else writes; finish what others left unfinished."""
        forest = self._forest
        gate = self._gate = gate_of(forest.__dict__)
        while gate.writer.setdefault(_ONLY, id(self)) != id(self):
            sleep(_PAUSE)
        if "_unfinished" in forest.__dict__:
            while gate.is_read(forest.__dict__["_grove"]):
                sleep(_PAUSE)
            gate.changing[id(self)] = None
            _with_state(forest, forest.__dict__)._finish()
            gate.changing.pop(id(self), None)
        return _with_state(forest, forest.__dict__.copy())

    def put_in_place(self, draft: Any) -> None:
        """Let the forest become what the draft is."""
        forest, gate = self._forest, self._gate
        assert gate is not None
        state = draft.__dict__
        if "_unfinished" in state and not (
            state["_grove"] is forest.__dict__["_grove"] and self._is_alone(gate, draft)
        ):
            draft._finish()  # on trees that nobody else knows yet
        forest.__dict__ = state
        if "_unfinished" in state:
            try:
                draft._finish()
            except BaseException:  # an interrupt: who looks next shall see it whole all the same
                draft._finish()
                raise

    def _is_alone(self, gate: Gate, draft: Any) -> bool:
        """Wait until nobody reads the trees, and keep readers out; or copy the trees in the end."""
        gate.changing[id(self)] = None
        if not gate.readers:  # as a rule
            return True
        deadline = monotonic() + LONGEST_WAIT
        while gate.is_read(draft._grove):
            if monotonic() > deadline:
                gate.changing.pop(id(self), None)
                draft._copy_trees()
                return False
            sleep(_PAUSE)
        return True
