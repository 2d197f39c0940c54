"""Tells whether the errors of a stream have risen; each row is predicted before it is learned.

Where the detector finds that errors have risen, the monitor suspects a change. The place is the one
that separates small errors from large ones best. The forest is then asked whether one that is
fitted to the rows since would predict better (``stream``). If it would not, it is asked again when
there are twice as many of these rows: errors that depend on each other, such as those of one day,
rise without a change that it would help to know of.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.moments import Moments
from .change import ChangeDetector, as_count

MOST_RECENT = 1000
"""So many of the latest errors are kept, and a suspicion is dropped after so many rows."""
_FEWEST_SINCE = 20
"""Fewer rows cannot tell whether a new forest predicts better."""
_BLOCK = 20
"""Errors in a block, of which the means tell how much errors depend on each other."""
_FEWEST_BLOCKS = 5
"""Fewer blocks tell too little."""
_LEAST_PART = 5
"""The least number of rows on either side of a change."""
_MOST_CHANGES = 1000
"""The latest changes are remembered."""
_LEAST_VARIANCE = 1e-20
"""Errors with a smaller variance are all the same, but for rounding."""
_HEAD = 6
"""Length of the fixed part of ``to_array``."""
_LARGEST_ERROR = 2.0
"""In standard deviations of the labels. Larger errors count as if they were of this size."""


class Monitor(NamedTuple):
    """The errors of a stream, and what they have told."""

    detector: ChangeDetector
    scale: float
    """Errors of this size, or larger ones, count as 1. It is positive."""
    n_seen: int
    """How many rows have been learned, with those that are seen now."""
    recent: NDArray[np.float64]
    """The latest errors, in units of the scale."""
    suspected: int | None = None
    """The row with which a change may have begun, as numbered by arrival."""
    ask_at: int = 0
    """The number of rows at which the forest is asked about it."""
    changes: tuple[int, ...] = ()
    """The rows with which changes began."""

    @classmethod
    def start(cls, labels: Moments, n_seen: int, changes: tuple[int, ...] = ()) -> Monitor:
        """Return a monitor that has seen no errors.

        They are compared with the standard deviation of the labels, not with what the forest
        predicts. The latter falls while it learns, so that the ratio of both may rise without any
        change.
        """
        deviation = math.sqrt(labels.squared_deviation / labels.n_samples)
        scale = max(_LARGEST_ERROR * deviation, 5e-324)
        return cls(ChangeDetector(), scale, n_seen, np.empty(0), changes=changes)

    def seen(self, errors: NDArray[np.float64]) -> tuple[Monitor, int | None]:
        """Take the errors of rows.

        Return also how many rows there are since a suspected change, if it is time to ask.
        """
        # An error is limited first: divided by a tiny scale it might overflow.
        values = np.minimum(np.abs(errors), self.scale) / self.scale
        detector, n_since_rise = self.detector.seen(values)
        n_seen = self.n_seen + len(values)
        recent = np.concatenate((self.recent, values))[-MOST_RECENT:]
        suspected, ask_at = self.suspected, self.ask_at
        if n_since_rise is not None:
            place = _place_of_rise(recent)
            suspected = n_seen - len(recent) + place
            ask_at = suspected + math.ceil(_FEWEST_SINCE * _dependence(recent[:place]))
        elif suspected is not None and n_seen - suspected > MOST_RECENT:
            suspected, ask_at = None, 0
        now = self._replace(
            detector=detector, n_seen=n_seen, recent=recent, suspected=suspected, ask_at=ask_at
        )
        if suspected is None or n_seen < ask_at:
            return now, None
        n_since = n_seen - suspected
        return now._replace(ask_at=n_seen + n_since), n_since

    def confirmed(self, labels: Moments) -> Monitor:
        """Return a monitor that starts anew, of a forest fitted to the rows since a change."""
        assert self.suspected is not None
        changes = (*self.changes, self.suspected)[-_MOST_CHANGES:]
        return Monitor.start(labels, self.n_seen, changes)

    def without(self, arrivals: NDArray[np.int64], labels: Moments) -> Monitor:
        """Return a monitor that knows nothing of some rows: it starts anew if it knew of any."""
        first = self.n_seen - max(len(self.recent), self.detector.width)
        if not np.any(arrivals >= first):
            return self
        return Monitor.start(labels, self.n_seen, self.changes)

    def to_array(self) -> NDArray[np.float64]:
        """Return all of the monitor as numbers.

        Numbers of which each monitor has one, changes, recent errors, and then the detector. An
        ``ask_at`` of 0 tells that nothing is suspected.
        """
        head = [self.scale, self.n_seen, self.suspected or 0, self.ask_at]
        head += [len(self.changes), len(self.recent), *self.changes]
        return np.concatenate((np.array(head, np.float64), self.recent, self.detector.to_array()))

    @classmethod
    def from_array(cls, array: NDArray[np.float64]) -> Monitor:
        """Return the monitor of which ``to_array`` has made an array.

        Raises a ValueError for an array that no monitor can have made.
        """
        if array.dtype != np.float64 or array.ndim != 1 or len(array) < _HEAD:
            raise ValueError(f"a monitor is at least {_HEAD} float64 numbers in a row.")
        scale, *numbers = array[:_HEAD].tolist()
        if not 0.0 < scale < math.inf:
            raise ValueError(f"the scale of a monitor must be a positive number, got {scale!r}.")
        n_seen, suspected, ask_at, n_changes, n_recent = map(as_count, numbers)
        end = _HEAD + n_changes
        changes = tuple(map(as_count, array[_HEAD:end].tolist()))
        recent = array[end : end + n_recent].copy()
        if len(changes) > _MOST_CHANGES:
            raise ValueError(f"a monitor knows up to {_MOST_CHANGES} changes, got {n_changes}.")
        if not np.all((recent >= 0.0) & (recent <= 1.0)):  # true for NaN, too
            raise ValueError("the errors of a monitor must be numbers from 0 to 1.")
        detector = ChangeDetector.from_array(array[end + n_recent :])
        n_kept = min(detector.n_seen, MOST_RECENT)
        if len(recent) != n_kept or detector.n_seen > n_seen:
            raise ValueError(
                f"a monitor that has seen {detector.n_seen} errors of {n_seen} rows keeps {n_kept} "
                f"of them, got {n_recent}."
            )
        is_suspicion = n_seen - n_recent <= suspected < ask_at <= n_seen + MOST_RECENT
        if not (is_suspicion or suspected == ask_at == 0):
            raise ValueError(
                f"a monitor cannot suspect row {suspected} and ask at row {ask_at}, after {n_seen}."
            )
        # A monitor starts anew after a change, so that all that it keeps is from later rows.
        rows = [*changes, n_seen - detector.n_seen]
        if any(one >= other for one, other in pairwise(rows)):
            raise ValueError("the changes of a monitor must be in order, among the rows seen.")
        return cls(detector, scale, n_seen, recent, suspected if ask_at else None, ask_at, changes)


def _place_of_rise(errors: NDArray[np.float64]) -> int:
    """Return where errors rise most clearly: the first place of the larger ones."""
    n_errors = len(errors)
    before = np.arange(_LEAST_PART, n_errors - _LEAST_PART + 1)
    if len(before) == 0:
        return 0
    sums = np.cumsum(errors)
    after = n_errors - before
    rise = (sums[-1] - sums[before - 1]) / after - sums[before - 1] / before
    return int(before[np.argmax(rise * np.sqrt(before * (after / n_errors)))])


def _dependence(errors: NDArray[np.float64]) -> float:
    """Return how many errors in a row tell as much as one that depends on no other; at least 1.

    The variance of means of blocks is that of single errors, divided by the size of the blocks, if
    errors are independent. If they depend on each other, it is so many times larger.
    """
    n_blocks = len(errors) // _BLOCK
    if n_blocks < _FEWEST_BLOCKS:
        return 1.0
    errors = errors[len(errors) - n_blocks * _BLOCK :]
    variance = float(errors.var())
    if variance < _LEAST_VARIANCE:
        return 1.0
    of_means = float(errors.reshape(n_blocks, _BLOCK).mean(axis=1).var(ddof=1))
    return max(_BLOCK * of_means / variance, 1.0)
