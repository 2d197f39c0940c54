"""How far rows are from the data: with how large a part of all rows they have to be compared.

A row that goes down a tree may branch off above any node whose box it is outside of (Alg. 5). There
it is compared with all rows of that node. The novelty of a row in a tree is the mean share of these
rows in all rows, and the novelty in a forest is the mean over its trees. Next to a training row it
is about 1 / n, and far from all data it is 1. Label models have no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import excess_of_row
from ..arrays.kernel import borrowing_kernel, inner_kernel, wide
from ..arrays.tree import NO_CHILD
from ..growth.sample import partition
from .ensemble import Ensemble, Walk, allocate_walk
from .route import add_groups, find_outside_node, replace_row, start_walk

LEAST_SHARE = 1e-4
"""Nodes with a smaller share of the rows are not told apart: a row is not followed into them."""
_LIGHT = 1e-6
"""A row is not followed when no more than this weight is left."""


def predict_novelty(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    n_threads: int = 1,
    run: Callable[..., Iterable[None]] = map,
) -> NDArray[np.float64]:
    """Return the novelty of a block of rows, from 0 to 1; ``run`` is as in ``predict_moments``."""
    novelty = np.zeros(len(rows))

    def find(part: tuple[int, int]) -> None:
        first, stop = part
        walk = allocate_walk(ensemble, stop - first)
        _add_trees(ensemble, rows[first:stop], walk, novelty[first:stop])

    ends = [len(rows) * part // n_threads for part in range(n_threads + 1)]
    for _ in run(find, list(pairwise(ends))):
        pass
    novelty /= len(ensemble.sizes)
    return np.minimum(novelty, 1.0, out=novelty)


@borrowing_kernel
def _add_trees(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    walk: Walk,
    novelty: NDArray[np.float64],
) -> None:
    for number in range(len(ensemble.sizes)):
        _add_tree(ensemble, number, rows, walk, novelty)


@borrowing_kernel
def _add_tree(
    ensemble: Ensemble,
    number: int,
    rows: NDArray[np.float32],
    walk: Walk,
    novelty: NDArray[np.float64],
) -> None:
    """Add the novelty of each row in one tree."""
    _, all_nodes, all_boxes, _, _, lifetime = ensemble
    nodes, boxes = all_nodes[number], all_boxes[number]
    moving, numbers, groups, _, _, staying, _ = walk
    start_walk(rows, walk)
    n_groups = wide(1)
    while n_groups > 0:
        n_groups -= 1
        node = groups[n_groups, 0]
        start = groups[n_groups, 1]
        stop = groups[n_groups, 2]
        above = groups[n_groups, 3]
        record = nodes[node]
        share = record.n_samples / nodes[0].n_samples
        parent_time = 0.0 if above < 0 else nodes[above].split_time
        duration = min(record.split_time, lifetime) - parent_time
        n_outside = find_outside_node(boxes, node, walk, start, stop)
        stop = _branch_off(boxes, node, walk, n_outside, stop, duration, share, novelty)
        if record.left_child == NO_CHILD or share <= LEAST_SHARE:
            for i in range(start, stop):
                novelty[numbers[i]] += staying[numbers[i]] * share
        else:
            feature = wide(record.split_feature)
            middle = partition(moving, numbers, start, stop, feature, record.threshold)
            n_groups = add_groups(groups, n_groups, record.left_child, start, middle, stop, node)


@inner_kernel
def _branch_off(
    boxes: NDArray[np.float32],
    node: int,
    walk: Walk,
    n_outside: int,
    stop: int,
    duration: float,
    share: float,
    novelty: NDArray[np.float64],
) -> int:
    """Add what branches off above a node; return the end of the rows that go on."""
    moving, numbers, _, _, outside, staying, _ = walk
    # From the last row on: a row that is dropped is replaced by the last one, which is done.
    for k in range(n_outside - 1, -1, -1):
        i = wide(outside[k])
        number = numbers[i]
        distance = excess_of_row(boxes, node, moving, i)
        weight = staying[number] * -math.expm1(-duration * distance)
        staying[number] -= weight
        novelty[number] += weight * share
        if staying[number] <= _LIGHT:
            novelty[number] += staying[number] * share
            stop -= 1
            replace_row(moving, numbers, i, stop)
    return stop
