"""How trees grow: in a batch, row by row, and in pieces."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..moments import Moments

MOST_CANDIDATES = 2**15
"""The most cuts to choose from; more make no difference."""
_FAR = 5
"""Powers of two by which units, or origins in standard deviations, may differ."""


class Growth(NamedTuple):
    """How trees grow, the same for all trees of a forest."""

    min_samples_split: int
    """A node with fewer rows is a leaf."""
    n_candidate_splits: int
    """Cuts to choose from at every node; one is the paper."""
    lifetime: float
    """No node is split after this time; may be infinite."""
    label_origin: float = 0.0
    label_unit: float = 2.0**-20
    """Candidates for a cut are compared by labels in whole units from the origin. Sums of whole
    numbers have no rounding errors, so that they do not depend on the order in which rows come and
    go, and a sum from which a row is taken away has nothing of it left."""
    tolerance: float = 0.0
    """How much better, as a share, another candidate must separate the labels before it takes the
    place of the cut in use as rows come and go. Only 0 has the law of a batch."""

    def is_far_from(self, other: Growth) -> bool:
        """Return whether labels are compared in units of another order of magnitude."""
        ratio = math.log2(self.label_unit) - math.log2(other.label_unit)
        shift = abs(self.label_origin - other.label_origin) / self.label_unit
        return abs(ratio) > _FAR or shift > 2.0 ** (20 + _FAR)


def with_label_unit(growth: Growth, moments: Moments) -> Growth:
    """Return the growth with the units for labels of these moments.

    A unit is a millionth of the standard deviation. Sums of up to a billion such labels are exact.
    The origin is near their mean. It is a round number, so that no label can be told from it.
    """
    variance = moments.squared_deviation / moments.n_samples
    exponent = math.floor(0.5 * math.log2(variance)) if 0.0 < variance < math.inf else 0
    unit = 2.0 ** max(exponent - 20, -1000)
    origin, coarse = moments.mean, 2.0 ** max(exponent, -980)
    if abs(origin / coarse) < 2.0**52:
        origin = coarse * round(origin / coarse)
    return growth._replace(label_origin=origin, label_unit=unit)
