"""Where a node is cut: at random as in the paper, or at the best of several random places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import Boxes
from ..arrays.contests import FEWEST_ROWS, NO_CONTEST, Contests, take_contest
from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel, kernel_methods
from ..arrays.rng import uniform
from . import Growth

MANY_FEATURES = 128
"""With more features, a binary search for the feature of a cut is faster than counting sides."""
_LARGEST_SCORE = 2.0**31
"""About two thousand standard deviations. No label of a fit to fewer than four million rows is as
far from the mean; one that comes later may be. Sums up to 2**53 are exact, so that nothing of a
label is left when it is taken away."""


class CutScratch(NamedTuple):
    """What ``choose_cut`` works with: candidates come in fours, the last ones may be padding."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    """As drawn. Rounded down to single precision, a threshold separates the same rows."""
    sum_left: NDArray[np.float64]
    """The sum of ``score`` on the left."""
    n_left: NDArray[np.float64]
    side_ends: NDArray[np.float64]
    """By feature: the total length of the sides of the box up to this one."""
    score: NDArray[np.float64]
    """By position: the label in whole units."""


@kernel
def allocate_cut_scratch(n_candidates: int, n_features: int, n_rows: int) -> CutScratch:
    """Return the scratch space of ``choose_cut``; next to none if there is nothing to choose."""
    n_padded = (n_candidates + 3) // 4 * 4
    return CutScratch(
        np.empty(n_padded, dtype=np.int64),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_padded),
        np.empty(n_features),
        np.empty(n_rows if n_candidates > 1 else 0),
    )


@kernel_methods
class AnyCut(NamedTuple):
    """The rule of the paper: the cut that is drawn is made."""

    n_candidates: int = 1
    """Numba cannot pass on a tuple without fields."""

    @inner_kernel
    def draw_cut(
        self,
        random_state: NDArray[np.uint64],
        boxes: Boxes,
        node: int,
        extent: float,
        rows: NDArray[np.float32],  # noqa: ARG002
        row_order: NDArray[np.int32],  # noqa: ARG002
        start: int,  # noqa: ARG002
        stop: int,  # noqa: ARG002
        contests: Contests,  # noqa: ARG002
        scratch: CutScratch,  # noqa: ARG002
    ) -> tuple[int, np.float32, int]:
        """Draw feature and threshold of the cut through a node, which keeps no candidates."""
        feature, threshold = sample_cut(random_state, boxes, node, extent)
        return feature, threshold, NO_CONTEST


@kernel_methods
class BestCut(NamedTuple):
    """Several cuts are drawn, and the one that separates the labels best is made."""

    labels: NDArray[np.float64]
    """By row number."""
    n_candidates: int
    label_origin: float
    label_unit: float

    @inner_kernel
    def draw_cut(
        self,
        random_state: NDArray[np.uint64],
        boxes: Boxes,
        node: int,
        extent: float,
        rows: NDArray[np.float32],
        row_order: NDArray[np.int32],
        start: int,
        stop: int,
        contests: Contests,
        scratch: CutScratch,
    ) -> tuple[int, np.float32, int]:
        """Draw feature and threshold of the cut through a node, and the place of its contest."""
        if self.n_candidates == 1 or stop - start == 2:  # all cuts separate two rows equally
            feature, threshold = sample_cut(random_state, boxes, node, extent)
            return feature, threshold, NO_CONTEST
        best, label_sum = choose_cut(
            self, random_state, boxes, node, rows, row_order, start, stop, scratch
        )
        place = NO_CONTEST
        if stop - start >= FEWEST_ROWS:
            place = take_contest(contests)
            if place != NO_CONTEST:
                _keep_candidates(contests, place, scratch, label_sum)
        return scratch.feature[best], rounded_down(scratch.threshold[best]), place

    @inner_kernel
    def score_label(self, row: int) -> float:
        """Return the label of a row in whole units."""
        return score_label(self.labels[row], self.label_origin, self.label_unit)


CutRule = AnyCut | BestCut


def cut_rule(growth: Growth, labels: NDArray[np.float64]) -> CutRule:
    """Return the rule for cuts on some rows; without candidates nothing else is compiled."""
    if growth.n_candidate_splits == 1:
        return AnyCut()
    return best_cut_in_python(growth, labels)


def best_cut_in_python(growth: Growth, labels: NDArray[np.float64]) -> BestCut:
    """Return the rule for several candidates."""
    return BestCut(labels, growth.n_candidate_splits, growth.label_origin, growth.label_unit)


best_cut = kernel(best_cut_in_python)
"""``best_cut_in_python`` for kernels."""


@inner_kernel
def score_label(label: float, origin: float, unit: float) -> float:
    """Return a label in whole units from the origin, or what is finite of it."""
    score: float = np.rint((label - origin) / unit)
    return min(max(score, -_LARGEST_SCORE), _LARGEST_SCORE)


@inner_kernel
def separation(n_rows: float, label_sum: float, n_left: float, sum_left: float) -> float:
    """Return the sum of squares between the two sides of a cut, of which neither is empty.

    Candidates that separate the same rows have the same value, to the last bit.
    """
    between = sum_left - n_left * (label_sum / n_rows)
    return between * (between / (n_left * (n_rows - n_left)))


@borrowing_kernel
def _keep_candidates(contests: Contests, place: int, scratch: CutScratch, label_sum: float) -> None:
    """Write down the candidates that ``choose_cut`` has left in its scratch space."""
    _, candidates = contests
    last = candidates.shape[1] - 1
    for c in range(last):
        candidate = candidates[place, c]
        candidate.feature = scratch.feature[c]
        candidate.threshold = rounded_down(scratch.threshold[c])
        candidate.n_left = np.int32(scratch.n_left[c])
        candidate.sum_left = scratch.sum_left[c]
    whole = candidates[place, last]
    whole.feature = 0
    whole.threshold = np.float32(0.0)
    whole.n_left = NO_CONTEST
    whole.sum_left = label_sum


@borrowing_kernel
def sample_cut(
    random_state: NDArray[np.uint64], boxes: Boxes, node: int, extent: float
) -> tuple[int, np.float32]:
    """Draw feature and threshold of a cut through a node of positive extent (Alg. 2, lines 5, 6).

    The feature is drawn in proportion to its side, the threshold uniformly from its side, so that
    ``lower <= threshold < upper`` and neither child is empty.
    """
    position = uniform(random_state) * extent
    feature = 0
    for f in range(boxes.shape[2]):
        side = np.float64(boxes[node, 1, f]) - np.float64(boxes[node, 0, f])
        if side > 0.0:
            feature = f  # the last side is taken if rounding carries the position past its end
            if position < side:
                break
            position -= side
    return feature, uniform_between(random_state, boxes[node, 0, feature], boxes[node, 1, feature])


@borrowing_kernel
def uniform_between(
    random_state: NDArray[np.uint64], low: np.float32, high: np.float32
) -> np.float32:
    """Draw uniformly from [low, high) and round down to single precision.

    Rounded down, the draw separates the same single precision numbers as the exact one.
    """
    while True:
        draw = rounded_down(
            np.float64(low) + uniform(random_state) * (np.float64(high) - np.float64(low))
        )
        if draw < high:  # not so if the sum was rounded up to ``high`` in double precision
            return draw


@borrowing_kernel
def sample_cut_outside(
    random_state: NDArray[np.uint64],
    boxes: Boxes,
    node: int,
    group_boxes: Boxes,
    group: int,
    excess: float,
) -> tuple[int, np.float32, bool]:
    """Draw feature, threshold and side of a cut between a node's box and rows that exceed it.

    Feature and side are drawn in proportion to the rows' excess there, the threshold uniformly from
    the gap (Alg. 4, lines 4 and 5). The box is on one side of the cut, some rows on the other.
    """
    position = uniform(random_state) * excess
    feature, is_above = 0, False
    for side in range(2 * boxes.shape[2]):
        f = side // 2
        if side % 2 == 0:
            gap = np.float64(boxes[node, 0, f]) - np.float64(group_boxes[group, 0, f])
        else:
            gap = np.float64(group_boxes[group, 1, f]) - np.float64(boxes[node, 1, f])
        if gap > 0.0:
            # Remembered in case rounding carries the position past the last gap.
            feature, is_above = f, side % 2 == 1
            if position < gap:
                break
            position -= gap
    if is_above:
        low, high = boxes[node, 1, feature], group_boxes[group, 1, feature]
    else:
        low, high = group_boxes[group, 0, feature], boxes[node, 0, feature]
    return feature, uniform_between(random_state, low, high), is_above


@kernel
def rounded_down(exact: float) -> np.float32:
    """Return the largest single precision number that is not above a double precision one."""
    rounded = np.float32(exact)
    if np.float64(rounded) > exact:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return rounded


@inner_kernel
def choose_cut(
    rule: BestCut,
    random_state: NDArray[np.uint64],
    boxes: Boxes,
    node: int,
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    start: int,
    stop: int,
    scratch: CutScratch,
) -> tuple[int, float]:
    """Draw several cuts; return which one separates the labels best, and the sum of the labels.

    The best is the first one with the largest sum of squares between its sides. ``scratch`` has all
    candidates then.
    """
    labels, n_candidates, origin, unit = rule
    features, thresholds, sums, counts, side_ends, scores = scratch
    _draw_cuts(random_state, boxes, node, n_candidates, features, thresholds, side_ends)
    total = 0.0
    for i in range(start, stop):
        score = score_label(labels[row_order[i]], origin, unit)
        scores[i] = score
        total += score
    for c in range(len(features)):
        sums[c] = 0.0
        counts[c] = 0.0
    for first in range(start, stop, 256):  # rows that stay in the cache for all candidates
        end = min(first + 256, stop)
        for c in range(0, len(features), 4):
            _add_left(rows, scores, first, end, features, thresholds, c, sums, counts)
    n_rows = np.float64(stop - start)
    best = 0
    most = -1.0
    for c in range(n_candidates):
        between = separation(n_rows, total, counts[c], sums[c])
        if between > most:
            best, most = c, between
    return best, total


@inner_kernel
def _draw_cuts(
    random_state: NDArray[np.uint64],
    boxes: Boxes,
    node: int,
    n_candidates: int,
    features: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    side_ends: NDArray[np.float64],
) -> None:
    """Draw cuts as ``sample_cut`` does, with less work for each."""
    n_features = len(side_ends)
    end = 0.0
    last = 0
    for f in range(n_features):
        side = np.float64(boxes[node, 1, f]) - np.float64(boxes[node, 0, f])
        end += side
        side_ends[f] = end
        if side > 0.0:
            last = f  # taken if rounding carries a position past the last side
    for c in range(n_candidates):
        feature = min(_side_at(side_ends, uniform(random_state) * end), last)
        low, high = (np.float64(boxes[node, 0, feature]), np.float64(boxes[node, 1, feature]))
        threshold = high
        while threshold >= high:  # only rounding asks for a second draw
            threshold = low + uniform(random_state) * (high - low)
        features[c] = feature
        thresholds[c] = threshold
    for c in range(n_candidates, len(features)):
        features[c], thresholds[c] = features[0], thresholds[0]


@inner_kernel
def _side_at(side_ends: NDArray[np.float64], position: float) -> int:
    """Return the number of sides that end at a position or before it."""
    n_features = len(side_ends)
    n_before = 0
    if n_features <= MANY_FEATURES:
        for f in range(n_features):  # in vector registers
            n_before += side_ends[f] <= position
        return n_before
    stop = n_features
    while n_before < stop:
        middle = (n_before + stop) // 2
        if side_ends[middle] <= position:
            n_before = middle + 1
        else:
            stop = middle
    return n_before


@inner_kernel
def _add_left(
    rows: NDArray[np.float32],
    scores: NDArray[np.float64],
    start: int,
    stop: int,
    features: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    c: int,
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """Add what rows are on the left of four candidates, whose sums stay in registers.

    Whether a row is on the left is a number to multiply with. A branch would be mispredicted half
    of the time: 1 ns for each row and candidate, 6 ns with branches.
    """
    feature0, feature1, feature2, feature3 = (
        features[c],
        features[c + 1],
        features[c + 2],
        features[c + 3],
    )
    threshold0, threshold1, threshold2, threshold3 = (
        thresholds[c],
        thresholds[c + 1],
        thresholds[c + 2],
        thresholds[c + 3],
    )
    sum0 = sum1 = sum2 = sum3 = 0.0
    n0 = n1 = n2 = n3 = 0.0
    for i in range(start, stop):
        score = scores[i]
        is_left = np.float64(rows[i, feature0] <= threshold0)
        sum0 += score * is_left
        n0 += is_left
        is_left = np.float64(rows[i, feature1] <= threshold1)
        sum1 += score * is_left
        n1 += is_left
        is_left = np.float64(rows[i, feature2] <= threshold2)
        sum2 += score * is_left
        n2 += is_left
        is_left = np.float64(rows[i, feature3] <= threshold3)
        sum3 += score * is_left
        n3 += is_left
    sums[c] += sum0
    sums[c + 1] += sum1
    sums[c + 2] += sum2
    sums[c + 3] += sum3
    counts[c] += n0
    counts[c + 1] += n1
    counts[c + 2] += n2
    counts[c + 3] += n3
