"""The contest of a node's candidate cuts, as its box grows and shrinks and rows come and go.

In a batch, k candidates are drawn independently, feature in proportion to the extents of the box
and threshold uniform; the first one that separates the labels best is made, after an exponential
time whose rate is the total extent L. All of this stays true of a larger or smaller box:

- The box grows from L to L + E. Each candidate is redrawn in the new part with probability
  E / (L + E); the others stay. The time becomes the smaller one of itself and another draw, at rate
  E. Both are as if they had been drawn in the larger box.
- The box shrinks from L to L - E. Candidates that do not cut the smaller box are redrawn in it. The
  time grows, with probability E / L, by another draw at rate L - E.

Then the labels of the rows that come or go are added to the sums of all candidates, or taken away,
and the best candidate is found anew. If the node's children are on its two sides, they stay, since
they depend on their own rows alone. If not, both are sampled anew. The old node may not be used
again below a new cut: its candidates have lost a contest, so they are no fair draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import Boxes, total_extent
from ..arrays.contests import Contests
from ..arrays.kernel import borrowing_kernel, inner_kernel, prefetch, wide
from ..arrays.rng import exponential, exponential_before, uniform
from ..arrays.tree import NO_CHILD, Tree
from .cuts import BestCut, sample_cut, sample_cut_outside, separation


class Moves(NamedTuple):
    """Nodes whose times are still to be set, and these times."""

    waiting: NDArray[np.int32]
    times: NDArray[np.float64]


@borrowing_kernel
def redraw_in_larger_box(
    random_state: NDArray[np.uint64],
    tree: Tree,
    contests: Contests,
    node: int,
    group_boxes: NDArray[np.float32],
    excess: float,
) -> None:
    """Redraw candidates as a box grows.

    ``group_boxes[0]`` has the rows that come. The box of the node is still the old one.
    """
    _, boxes, tallies = tree
    _, candidates = contests
    place = wide(tallies[node].contest)
    share = excess / (total_extent(boxes, node) + excess)
    n_candidates = candidates.shape[1] - 1
    whole = candidates[place, n_candidates]
    c = _candidates_until(random_state, share, n_candidates)
    while c < n_candidates:
        feature, threshold, is_above = sample_cut_outside(
            random_state, boxes, node, group_boxes, 0, excess
        )
        candidate = candidates[place, c]
        candidate.feature = feature
        candidate.threshold = threshold
        candidate.n_left = tallies[node].n_samples if is_above else 0
        candidate.sum_left = whole.sum_left if is_above else 0.0
        c += 1 + _candidates_until(random_state, share, n_candidates)


@inner_kernel
def _candidates_until(random_state: NDArray[np.uint64], share: float, most: int) -> int:
    """Return how many candidates stay before the next one is redrawn, at most ``most``.

    One draw for each that is redrawn is cheaper than one for each candidate: most of them stay.
    """
    # np.log1p, which is minus infinity at -1 also where kernels run uncompiled
    gap = exponential(random_state, 1.0) / -np.log1p(-share)
    return wide(gap) if gap < most else most  # not so if the share is so small that it is lost


@borrowing_kernel
def shorten_time(
    random_state: NDArray[np.uint64],
    tree: Tree,
    node: int,
    start_time: float,
    excess: float,
    moves: Moves,
) -> bool:
    """Let the time of a node become that of a box which grows; return whether it has changed."""
    nodes, _, _ = tree
    duration = nodes[node].split_time - start_time
    shorter = exponential_before(random_state, excess, duration)
    if shorter == np.inf:
        return False
    _set_time(tree, node, start_time + shorter, moves)
    return True


@borrowing_kernel
def lengthen_time(
    random_state: NDArray[np.uint64],
    tree: Tree,
    node: int,
    old_extent: float,
    extent: float,
    moves: Moves,
) -> bool:
    """Let the time of a node become that of a box which shrinks; return whether it has changed."""
    if uniform(random_state) * old_extent < extent:
        return False
    nodes, _, _ = tree
    _set_time(tree, node, nodes[node].split_time + exponential(random_state, extent), moves)
    return True


@borrowing_kernel
def _set_time(tree: Tree, node: int, time: float, moves: Moves) -> None:
    """Set the time of an inner node; the durations of all edges below it stay.

    The node's time is not shifted by a difference: cuts between rows that are nearly equal have
    huge times, and what is left of a usual time that is added to one is a rounding error.
    """
    nodes, _, _ = tree
    waiting, times = moves
    waiting[0] = node
    times[0] = time
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        here = wide(waiting[n_waiting])
        new_time = times[n_waiting]
        old_time = nodes[here].split_time
        nodes[here].split_time = new_time
        left = nodes[here].left_child
        prefetch(nodes, left)
        prefetch(nodes, left + 1)
        for child in range(left + 1, left - 1, -1):
            if nodes[child].left_child != NO_CHILD:
                waiting[n_waiting] = child
                times[n_waiting] = new_time + (nodes[child].split_time - old_time)
                n_waiting += 1


@inner_kernel
def count_rows(
    contests: Contests,
    place: int,
    rule: BestCut,
    rows: NDArray[np.float32],
    numbers: NDArray[np.int32],
    start: int,
    stop: int,
    sign: int,
) -> None:
    """Add rows to all candidates of a contest, or take them away if the sign is -1."""
    _, candidates = contests
    n_candidates = candidates.shape[1] - 1
    for i in range(start, stop):
        score = sign * rule.score_label(wide(numbers[i]))
        candidates[place, n_candidates].sum_left += score
        for c in range(n_candidates):
            candidate = candidates[place, c]
            is_left = rows[i, candidate.feature] <= candidate.threshold
            candidate.n_left += sign * is_left
            candidate.sum_left += score * is_left


@inner_kernel
def cuts_box(boxes: Boxes, node: int, feature: int, threshold: np.float32) -> bool:
    """Return whether a cut goes through a box, so that there are rows on both of its sides."""
    return bool(boxes[node, 0, feature] <= threshold < boxes[node, 1, feature])


@borrowing_kernel
def redraw_in_smaller_box(
    random_state: NDArray[np.uint64], tree: Tree, contests: Contests, node: int, extent: float
) -> int:
    """Redraw candidates that do not cut the box of a node any more; return how many.

    Those have no rows on the left then, until ``count_redrawn``.
    """
    _, boxes, tallies = tree
    _, candidates = contests
    place = wide(tallies[node].contest)
    n_redrawn = 0
    for c in range(candidates.shape[1] - 1):
        candidate = candidates[place, c]
        if not cuts_box(boxes, node, wide(candidate.feature), candidate.threshold):
            feature, threshold = sample_cut(random_state, boxes, node, extent)
            candidate.feature = feature
            candidate.threshold = threshold
            candidate.n_left = 0
            candidate.sum_left = 0.0
            n_redrawn += 1
    return n_redrawn


@borrowing_kernel
def count_redrawn(
    contests: Contests,
    place: int,
    rule: BestCut,
    rows: NDArray[np.float32],
    numbers: NDArray[np.int32],
    n_rows: int,
) -> None:
    """Count all rows of a node for the candidates that have been redrawn."""
    _, candidates = contests
    for c in range(candidates.shape[1] - 1):
        candidate = candidates[place, c]
        if candidate.n_left > 0:
            continue
        feature, threshold = wide(candidate.feature), candidate.threshold
        count, total = 0, 0.0
        for i in range(n_rows):
            if rows[i, feature] <= threshold:
                count += 1
                total += rule.score_label(wide(numbers[i]))
        candidate.n_left = count
        candidate.sum_left = total


@inner_kernel
def best_candidate(
    contests: Contests, place: int, n_rows: int, record: Any, tolerance: float
) -> int:
    """Return the first candidate that separates the labels best.

    Return the cut in use instead, that of ``record``, if it is hardly worse.
    """
    _, candidates = contests
    n_candidates = candidates.shape[1] - 1
    label_sum = candidates[place, n_candidates].sum_left
    best = used = 0
    most = of_used = -1.0
    for c in range(n_candidates):
        candidate = candidates[place, c]
        between = separation(
            np.float64(n_rows), label_sum, np.float64(candidate.n_left), candidate.sum_left
        )
        if between > most:
            best, most = c, between
        if candidate.feature == record.split_feature and candidate.threshold == record.threshold:
            used, of_used = c, between
    is_kept = tolerance > 0.0 and of_used >= 0.0 and most <= (1.0 + tolerance) * of_used
    return used if is_kept else best


@inner_kernel
def decide(tree: Tree, contests: Contests, node: int, n_rows: int, tolerance: float) -> bool:
    """Cut a node at its best candidate; return whether its children stay.

    They do if their boxes are on the two sides of the cut. Rows that join the node may be between
    these boxes: they are divided by the new cut.
    """
    nodes, boxes, tallies = tree
    _, candidates = contests
    place = wide(tallies[node].contest)
    record = nodes[node]
    best = candidates[place, best_candidate(contests, place, n_rows, record, tolerance)]
    feature, left = wide(best.feature), wide(record.left_child)
    stay = (
        feature == record.split_feature
        and boxes[left, 1, feature] <= best.threshold < boxes[left + 1, 0, feature]
    )
    record.split_feature = feature
    record.threshold = best.threshold
    return bool(stay)
