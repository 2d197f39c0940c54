"""The detector of changes in a stream of numbers.

It is ADWIN, a window of the latest values that shrinks when their mean changes:
A. Bifet and R. Gavalda, "Learning from Time-Changing Data with Adaptive Windowing", SIAM
International Conference on Data Mining 2007: the variant ADWIN2 with the bound of section 3.1 that
uses the variance, and with the default parameters of river's ``drift.ADWIN``, whose windows it has.

The window is not kept value by value, but as an exponential histogram. Row i of it holds buckets of
2**i values each, and knows of each bucket the mean and the sum of squared deviations from it. A new
value is a bucket of row 0. The two oldest buckets of a row that is too long become one bucket of
the next row. So a window of n values has about ``5 * log2(n / 5)`` buckets:

    oldest                                         newest value
    row 2        row 1                row 0
    [4] [4]      [2] [2] [2] [2]      [1] [1] [1] [1] [1]

Everything is plain Python: there are fewer than 100 buckets as a rule, and one value at a time
joins them, so that NumPy would take longer, and compiling much longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .validation import check_integer, check_share

Bucket = tuple[float, float]
"""Mean of the values in a bucket, and the sum of their squared deviations from it."""

Rows = tuple[tuple[Bucket, ...], ...]
"""Row i has buckets of 2**i values, the oldest first."""

_MOST_BUCKETS = 5
"""The number of buckets in a row. More of them find the place of a change more precisely."""
_LEAST_PART = 5
"""The least number of values on either side of a change."""
_GRACE_PERIOD = 10
"""A window of so many values, or fewer, is not checked."""
_HEAD = 4
"""Numbers before the lengths of the rows: two parameters, values seen, number of rows."""
_LARGEST = 2**53
"""Whole numbers up to this one are exact in float64."""
_SLACK = 1e-9
"""What rounding may add to the squared deviations in a bucket, for each value."""


@dataclass(frozen=True)
class ChangeDetector:
    """A window of the latest values from 0 to 1, as long as their mean shows no change.

    A detector does not change: ``seen`` returns another one. It drops old values after a rise and
    after a fall of their mean, but tells of rises only.

    Parameters
    ----------
    delta : float, default=0.002
        About the probability of a false alarm at each check. The bound is far from tight.
    clock : int, default=32
        The window is checked after every so many values.

    Attributes
    ----------
    n_seen : int
        The number of values seen so far.
    rows : Rows
        The exponential histogram.
    """

    delta: float = 0.002
    clock: int = 32
    n_seen: int = 0
    rows: Rows = ()

    def __post_init__(self) -> None:
        check_share("delta", self.delta)
        check_integer("clock", self.clock, 1)

    @property
    def width(self) -> int:
        """The number of values in the window."""
        return _width(self.rows)

    @property
    def mean(self) -> float:
        """The mean of the values in the window; NaN if there are none."""
        width = self.width
        return _total(self.rows) / width if width else math.nan

    def seen(self, values: NDArray[np.float64]) -> tuple[ChangeDetector, int | None]:
        """Take values one after the other, the oldest first.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Numbers from 0 to 1, for which the bound on false alarms holds.

        Returns
        -------
        detector : ChangeDetector
            The detector that has seen the values.
        n_since_rise : int or None
            None if the mean has not risen. Otherwise the number of latest values that come after
            the latest rise.
        """
        rows = [list(row) for row in self.rows]
        n_seen, risen_at = self.n_seen, None
        for value in values.tolist():
            if not 0.0 <= value <= 1.0:  # true for NaN, too
                raise ValueError(f"a change detector takes numbers from 0 to 1, got {value!r}.")
            _add(rows, value)
            n_seen += 1
            if n_seen % self.clock == 0 and self._shrink(rows):
                risen_at = n_seen - _width(rows)
        return (
            self._with(n_seen, tuple(tuple(row) for row in rows)),
            None if risen_at is None else n_seen - risen_at,
        )

    def _with(self, n_seen: int, rows: Rows) -> ChangeDetector:
        """Return the detector in another state.

        As ``dataclasses.replace``, which checks the parameters again. That takes longer than to
        see a value.
        """
        other = object.__new__(ChangeDetector)
        other.__dict__.update(self.__dict__, n_seen=n_seen, rows=rows)
        return other

    def _shrink(self, rows: list[list[Bucket]]) -> bool:
        """Drop the oldest bucket until the window shows no change; tell whether any was a rise."""
        has_risen = False
        if _width(rows) <= _GRACE_PERIOD:
            return has_risen
        while (change := self._change(rows)) != 0.0:
            has_risen |= change > 0.0
            del rows[-1][0]
            if not rows[-1]:
                del rows[-1]
        return has_risen

    def _change(self, rows: list[list[Bucket]]) -> float:
        """Return by how much the mean changes where it does so significantly; else 0.

        The window is cut between two buckets, at the oldest place where the difference of the means
        of the two parts exceeds the bound.
        """
        width, least = _width(rows), _LEAST_PART
        if width < 2 * least:
            return 0.0
        total = _total(rows)
        middle = total / width
        variance = (
            sum(_squared_deviation(row, 1 << i, middle) for i, row in enumerate(rows)) / width
        )
        # ln(2 / delta') of the paper: the delta is shared by about ln(width) places to cut.
        log_share = math.log(2.0 * math.log(width) / self.delta)
        n_old, sum_old = 0, 0.0
        for i in range(len(rows) - 1, -1, -1):
            size = 1 << i
            for mean, _ in rows[i]:
                n_old += size
                sum_old += size * mean
                n_new = width - n_old
                if n_old < least or n_new < least:
                    continue
                change = (total - sum_old) / n_new - sum_old / n_old
                # 1 / m of the paper. As in MOA and river, a part that just has the least number of
                # values counts as one value.
                inverse = 1.0 / (n_old - least + 1) + 1.0 / (n_new - least + 1)
                bound = math.sqrt(2.0 * inverse * variance * log_share) + inverse * log_share / 1.5
                if abs(change) > bound:
                    return change
        return 0.0

    def to_array(self) -> NDArray[np.float64]:
        """Return all of the detector as numbers.

        Parameters, number of values seen, number of rows, lengths of the rows, and then the mean
        and the squared deviation of each bucket, row by row.
        """
        head = [self.delta, self.clock, self.n_seen, len(self.rows), *map(len, self.rows)]
        buckets = [number for row in self.rows for bucket in row for number in bucket]
        return np.array(head + buckets, dtype=np.float64)

    @classmethod
    def from_array(cls, array: NDArray[np.float64]) -> ChangeDetector:
        """Return the detector of which ``to_array`` has made an array.

        Raises a ValueError for an array that no detector can have made.
        """
        if array.dtype != np.float64 or array.ndim != 1 or len(array) < _HEAD:
            raise ValueError(f"a change detector is at least {_HEAD} float64 numbers in a row.")
        delta, *numbers = array.tolist()
        clock, n_seen, n_rows = map(as_count, numbers[: _HEAD - 1])
        lengths = [as_count(number) for number in numbers[_HEAD - 1 :][:n_rows]]
        rest = numbers[_HEAD - 1 + n_rows :]
        if len(lengths) != n_rows or len(rest) != 2 * sum(lengths):
            raise ValueError(
                f"a change detector with {n_rows} rows of {sum(lengths)} buckets has not "
                f"{len(array)} numbers."
            )
        buckets = iter(zip(rest[::2], rest[1::2], strict=True))
        rows = tuple(tuple(next(buckets) for _ in range(length)) for length in lengths)
        detector = cls(delta, clock, n_seen, rows)
        detector._require_sound_rows()
        return detector

    def _require_sound_rows(self) -> None:
        """Raise a ValueError for rows that cannot have come from values from 0 to 1."""
        most = _MOST_BUCKETS
        for i, row in enumerate(self.rows):
            # A row that has become too long keeps all but two of its buckets. Only the last row may
            # be shorter: it is the one that starts empty, and the one that loses its oldest bucket.
            fewest = 1 if i == len(self.rows) - 1 else most - 1
            if not fewest <= len(row) <= most:
                raise ValueError(
                    f"row {i} of a change detector has {fewest} to {most} buckets, got {len(row)}."
                )
        if self.n_seen < self.width:
            raise ValueError(
                f"a change detector that has seen {self.n_seen} values cannot keep {self.width}."
            )
        for i, row in enumerate(self.rows):
            size = 1 << i
            for mean, squared_deviation in row:
                # Values from 0 to 1 deviate most if they are all 0 or 1.
                largest = size * (mean * (1.0 - mean) + _SLACK) if i else 0.0
                if not (0.0 <= mean <= 1.0 and 0.0 <= squared_deviation <= largest):
                    raise ValueError(
                        f"{size} values from 0 to 1 cannot have the mean {mean!r} and the squared "
                        f"deviation {squared_deviation!r}."
                    )


def _add(rows: list[list[Bucket]], value: float) -> None:
    """Add the newest value; let rows that become too long pass two buckets on as one."""
    if not rows:
        rows.append([])
    rows[0].append((value, 0.0))
    i = 0
    while len(rows[i]) > _MOST_BUCKETS:
        (mean, deviation), (next_mean, next_deviation) = rows[i][:2]
        del rows[i][:2]
        if i + 1 == len(rows):
            rows.append([])
        difference = next_mean - mean
        squared_deviation = deviation + next_deviation + 0.5 * (1 << i) * difference * difference
        rows[i + 1].append((0.5 * (mean + next_mean), squared_deviation))
        i += 1


def _width(rows: Rows | list[list[Bucket]]) -> int:
    return sum(len(row) << i for i, row in enumerate(rows))


def _total(rows: Rows | list[list[Bucket]]) -> float:
    return math.fsum((1 << i) * mean for i, row in enumerate(rows) for mean, _ in row)


def _squared_deviation(row: list[Bucket], size: int, middle: float) -> float:
    """Return the squared deviations of all values in a row from ``middle``."""
    return math.fsum(deviation + size * (mean - middle) ** 2 for mean, deviation in row)


def as_count(number: float) -> int:
    """Return a number from a file as a whole number."""
    if not (0.0 <= number <= _LARGEST and number.is_integer()):
        raise ValueError(f"a change detector counts in whole numbers, got {number!r}.")
    return int(number)
