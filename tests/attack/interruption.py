"""Exceptions at any bytecode, as a debugger could raise them: harsher than signals."""

import contextlib
import itertools
import sys
import threading
from pathlib import Path

import numpy as np

import mondrian_forest

TRACED = (str(Path(mondrian_forest.__file__).parent), contextlib.__file__)
"""Only what happens in these files counts: the package, and what its ``with`` blocks run."""


class Interruption(BaseException):
    """Like a KeyboardInterrupt, but never mistaken for one of a user."""


class Tracer:
    """Count calls, lines, returns and opcodes; raise at the event number ``stop``, if any.

    Python switches tracing off when a trace function raises, so cleaning up is not interrupted.
    """

    def __init__(self, stop=None):
        self.stop = stop
        self.places = []

    def __call__(self, frame, event, _argument):
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes = True
        self.places.append((frame.f_code, frame.f_lasti, event))
        if len(self.places) - 1 == self.stop:
            raise Interruption(f"{frame.f_code.co_qualname}, line {frame.f_lineno}, at {event}")
        return self


def traced(act, stop=None, *, in_workers=False):
    """Act under a tracer, of this thread or of those that it starts.

    Returns the places of all events, and the interruption, if there was one.
    """
    tracer = Tracer(stop)
    found = None
    before = sys.gettrace(), threading.gettrace()  # as of a coverage tool
    if in_workers:
        threading.settrace(tracer)
    else:
        sys.settrace(tracer)
    try:
        act()
    except Interruption as interruption:
        # Without this frame, so that it is gone when the caller drops it.
        found = interruption.with_traceback(interruption.__traceback__.tb_next)
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
    return tracer.places, found


def choose_events(places, n_wanted, seed):
    """Return numbers of events: as many places as possible, each at a random time; then any.

    Loops repeat few places many times; a sample of all events would hardly leave them.
    """
    random = np.random.default_rng(seed)
    if n_wanted >= len(places):
        return range(len(places))
    times = {}
    for number, place in enumerate(places):
        times.setdefault(place, []).append(number)
    all_times = list(times.values())
    edges = np.linspace(0, len(all_times), min(n_wanted, len(all_times)) + 1).astype(int)
    strata = itertools.pairwise(edges)
    chosen = [random.choice(all_times[random.integers(*stratum)]) for stratum in strata]
    others = np.setdiff1d(np.arange(len(places)), chosen)
    n_more = min(n_wanted - len(chosen), len(others))
    return sorted({*map(int, chosen), *map(int, random.choice(others, n_more, replace=False))})
