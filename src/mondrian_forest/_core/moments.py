"""Number, mean and squared deviation of labels: of an array, with one more, of two sets merged.

The squared deviation is the sum of the squared differences from the mean. All formulas work with
differences, so that labels which are large and close to each other keep their digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays.kernel import inner_kernel

SMALLEST = 5e-324
"""The smallest positive float64: the squared deviation of labels that differ, where it underflows.
Only equal labels have a squared deviation of zero."""


class Moments(NamedTuple):
    """The moments of one set of labels."""

    n_samples: int
    mean: float
    squared_deviation: float


class MomentArrays(NamedTuple):
    """The moments of several sets of labels, one entry for each set. A set may be empty."""

    n_samples: NDArray[np.int64]
    mean: NDArray[np.float64]
    squared_deviation: NDArray[np.float64]


@inner_kernel
def moments_of(labels: NDArray[np.float64], start: int, stop: int) -> Moments:
    """Return the moments of ``labels[start:stop]``, which must not be empty.

    Two passes are more accurate than ``add_label`` for each label. For a handful of labels they
    are also faster, since ``add_label`` divides each time.
    """
    total = 0.0
    for i in range(start, stop):
        total += labels[i]
    mean = total / (stop - start)
    squared_deviation = 0.0
    correction = 0.0
    for i in range(start, stop):
        deviation = labels[i] - mean
        correction += deviation
        squared_deviation += deviation * deviation
    return Moments(stop - start, mean + correction / (stop - start), squared_deviation)


@inner_kernel
def add_label(moments: Moments, label: float) -> Moments:
    """Return the moments with one label more (Welford 1962)."""
    n_samples = moments.n_samples + 1
    deviation = label - moments.mean
    mean = moments.mean + deviation / n_samples
    return Moments(n_samples, mean, moments.squared_deviation + deviation * (label - mean))


def merge_in_python(first: Moments, second: Moments) -> Moments:
    """Return the moments of two sets together (Chan, Golub and LeVeque 1979)."""
    n_samples = first.n_samples + second.n_samples
    share = second.n_samples / n_samples
    difference = second.mean - first.mean
    return Moments(
        n_samples,
        first.mean + difference * share,
        first.squared_deviation
        + second.squared_deviation
        + difference * difference * first.n_samples * share,
    )


merge = inner_kernel(merge_in_python)
"""``merge_in_python`` for kernels. Python must not call it: a kernel that returns a NamedTuple to
Python fails when an interrupt arrives at that moment."""


def merge_samples(first: Moments, second: Moments) -> Moments:
    """Merge two samples; the squared deviation is zero only if all their labels are equal."""
    merged = merge_in_python(first, second)
    if first.mean == second.mean:
        return merged
    return merged._replace(squared_deviation=max(merged.squared_deviation, SMALLEST))


def remove_samples(both: Moments, second: Moments) -> Moments:
    """Return the moments of the labels that stay when a part of them is removed."""
    n_samples = both.n_samples - second.n_samples
    mean = both.mean + (both.mean - second.mean) * (second.n_samples / n_samples)
    difference = second.mean - mean
    squared_deviation = (
        both.squared_deviation
        - second.squared_deviation
        - difference * difference * (n_samples * (second.n_samples / both.n_samples))
    )
    return Moments(n_samples, mean, max(squared_deviation, 0.0))


def merge_arrays(first: MomentArrays, second: MomentArrays) -> MomentArrays:
    """Merge each set of the first with the set at the same place of the second.

    The last product is the one of ``merge``, in another order. The order decides the last bit, and
    the results of distributed fits are compared bit for bit.
    """
    n_samples = first.n_samples + second.n_samples
    share = np.divide(
        second.n_samples, n_samples, out=np.zeros(len(n_samples)), where=n_samples > 0
    )
    difference = second.mean - first.mean
    return MomentArrays(
        n_samples,
        first.mean + share * difference,
        first.squared_deviation
        + second.squared_deviation
        + share * first.n_samples * difference * difference,
    )
