"""Which labels are outliers, and as what they are learned."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST_LABELS = 100
"""With fewer labels, nobody can tell which one is extreme."""
LABEL_LEVEL = 0.99
LABEL_FACTOR = 20.0
"""A label is extreme if it is this many times as far from the median as 99% of the others. None of
a million values of a Gaussian or an exponential distribution is. Of a log-normal distribution with
a standard deviation of 2, 70 of a million are."""


class LabelLimits(NamedTuple):
    """The interval to which labels are clipped before they are learned."""

    low: float = -math.inf
    high: float = math.inf

    def apply(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the clipped labels: the same array, if none is extreme."""
        if len(labels) > 0 and not (self.low <= labels.min() and labels.max() <= self.high):
            return np.clip(labels, self.low, self.high)
        return labels


def warn_of_limits(limits: LabelLimits) -> None:
    """Warn, at the line of the caller of the package, that labels are clipped."""
    warnings.warn(
        f"Some labels lie outside [{limits.low:.6g}, {limits.high:.6g}], more than "
        f"{LABEL_FACTOR:g} times as far from the median as 99% of all labels. Each is learned as "
        "the nearest end of that interval; use robust=False to learn labels as they are.",
        stacklevel=_frames_of_the_package() + 1,
    )


def _frames_of_the_package() -> int:
    """Return how many frames of this package are on top of the stack, below the caller's."""
    package = __name__.split(".")[0]
    n_frames = 0
    frame = inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        n_frames, frame = n_frames + 1, frame.f_back
    return n_frames


def learn_limits(labels: NDArray[np.float64]) -> LabelLimits:
    """Return the limits beyond which a label is extreme."""
    if len(labels) < FEWEST_LABELS:
        return LabelLimits()
    middle = float(np.median(labels))
    distance = np.abs(labels - middle)
    distance = distance[distance > 0.0]  # many labels may be equal, zero for example
    if len(distance) < FEWEST_LABELS:
        return LabelLimits()
    most = LABEL_FACTOR * float(np.quantile(distance, LABEL_LEVEL, method="lower"))
    return LabelLimits(middle - most, middle + most)
