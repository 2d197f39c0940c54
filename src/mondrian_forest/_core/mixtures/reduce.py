"""Averages over trees: the predictive mean and the parts of the predictive variance.

Trees are averaged in groups, one after the other within each group. Threads share the groups, not
the rows: then each node is read by one thread only, and two threads are twice as fast as one. With
half of the rows for each thread they were 1.4 times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import borrowing_kernel
from ..arrays.memory import empty
from ..labels.exits import ExitComponents, Exits
from ..labels.model import LabelModel
from .ensemble import Ensemble, PredictionSpace, borrowed_space
from .route import find_components

MOST_GROUPS = 16


class ForestMoments(NamedTuple):
    """Predictive mean of each row, and the parts of its variance."""

    mean: NDArray[np.float64]
    posterior: NDArray[np.float64]
    """Uncertainty of the means at the places where the row may leave the tree."""
    branching: NDArray[np.float64]
    """Uncertainty about where the row branches off, and of the fresh branch."""
    between_trees: NDArray[np.float64]
    """Variance of the trees' predictive means."""
    noise: NDArray[np.float64]
    """Variance of a label about its mean."""

    def deviation(self) -> NDArray[np.float64]:
        """Return the standard deviations."""
        return np.sqrt(self.noise + self.posterior + self.branching + self.between_trees)


def group_size(n_trees: int) -> int:
    """Return how many trees a group has; the last group may have fewer."""
    return -(-n_trees // MOST_GROUPS)


def allocate_groups(ensemble: Ensemble, n_rows: int) -> NDArray[np.float64]:
    """Return an array for the averages of each group, by group, field and row."""
    n_trees = len(ensemble.sizes)
    n_groups = -(-n_trees // group_size(n_trees))
    return empty((n_groups, len(ForestMoments._fields), n_rows), np.float64)


@borrowing_kernel
def add_tree(
    model: LabelModel,
    exits: Exits,
    n_exits: int,
    components: ExitComponents,
    n_trees_before: int,
    sums: NDArray[np.float64],
    moments: NDArray[np.float64],
) -> None:
    """Bring the running averages over trees from ``n_trees_before`` to one more.

    ``moments`` has one row for each field of ``ForestMoments``. Means and variances are updated as
    in West (1979), without differences of large sums.
    """
    exit_row, _, weights, _, _ = exits
    locations, posterior_variances, branch_variances, noise_variances, _ = components
    has_local_noise = model.has_local_noise()
    sums[:] = 0.0
    for e in range(n_exits):
        row = exit_row[e]  # of sums: weight, mean, spread, posterior, branching, noise
        weight = weights[e]
        sums[row, 0] += weight
        deviation = locations[e] - sums[row, 1]
        sums[row, 1] += deviation * (weight / sums[row, 0])
        sums[row, 2] += weight * deviation * (locations[e] - sums[row, 1])
        sums[row, 3] += weight * posterior_variances[e]
        sums[row, 4] += weight * branch_variances[e]
        if has_local_noise:
            sums[row, 5] += weight * noise_variances[e]
    share = 1.0 / (n_trees_before + 1.0)
    for i in range(len(sums)):
        inverse = 1.0 / sums[i, 0]
        deviation = sums[i, 1] - moments[0, i]
        moments[0, i] += deviation * share
        moments[1, i] += share * (sums[i, 3] * inverse - moments[1, i])
        moments[2, i] += share * ((sums[i, 4] + sums[i, 2]) * inverse - moments[2, i])
        moments[3, i] += share * (deviation * (sums[i, 1] - moments[0, i]) - moments[3, i])
        noise = sums[i, 5] * inverse if has_local_noise else model.noise_variance
        moments[4, i] += share * (noise - moments[4, i])


@borrowing_kernel
def _average_groups(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    size: int,
    first: int,
    stop: int,
    space: PredictionSpace,
    moments: NDArray[np.float64],
) -> None:
    """Average the trees of the groups from first to stop; ``moments[g]`` is that of a group."""
    _, _, exits, _, components, sums = space
    n_trees = len(ensemble.sizes)
    for group in range(first, stop):
        moments[group] = 0.0
        for number in range(group * size, min((group + 1) * size, n_trees)):
            n_exits = find_components(ensemble, number, rows, space)
            add_tree(
                ensemble.model, exits, n_exits, components, number % size, sums, moments[group]
            )


@borrowing_kernel
def _merge_groups(
    moments: NDArray[np.float64], size: int, n_trees: int, merged: NDArray[np.float64]
) -> None:
    """Set ``merged`` to the averages over all trees."""
    for part in range(merged.shape[0]):  # a slice would take seconds to compile
        for i in range(merged.shape[1]):
            merged[part, i] = moments[0, part, i]
    n_before = min(size, n_trees)
    for group in range(1, len(moments)):
        n_more = min(size, n_trees - group * size)
        share = n_more / (n_before + n_more)
        for i in range(merged.shape[1]):
            deviation = moments[group, 0, i] - merged[0, i]
            merged[0, i] += share * deviation
            merged[1, i] += share * (moments[group, 1, i] - merged[1, i])
            merged[2, i] += share * (moments[group, 2, i] - merged[2, i])
            merged[3, i] += share * (moments[group, 3, i] - merged[3, i]) + (
                share * (1.0 - share) * deviation * deviation
            )
            merged[4, i] += share * (moments[group, 4, i] - merged[4, i])
        n_before += n_more


def merged_groups(ensemble: Ensemble, groups: NDArray[np.float64]) -> ForestMoments:
    """Return the averages over all trees from those of the groups."""
    n_trees = len(ensemble.sizes)
    merged = np.empty(groups.shape[1:])
    _merge_groups(groups, group_size(n_trees), n_trees, merged)
    return ForestMoments(*merged)


def predict_moments(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    n_threads: int = 1,
    run: Callable[..., Iterable[None]] = map,
) -> ForestMoments:
    """Return the predictive mean and the parts of the predictive variance of a block of rows.

    ``run`` applies a function to each of a list, as ``map`` does, in ``n_threads`` threads.
    """
    groups = allocate_groups(ensemble, len(rows))
    size = group_size(len(ensemble.sizes))

    def average(part: tuple[int, int]) -> None:
        with borrowed_space(ensemble, len(rows)) as space:
            _average_groups(ensemble, rows, size, *part, space, groups)

    ends = [len(groups) * part // n_threads for part in range(n_threads + 1)]
    for _ in run(average, list(pairwise(ends))):
        pass
    return merged_groups(ensemble, groups)


def group_parts(ensemble: Ensemble, n_parts: int) -> list[Ensemble]:
    """Return parts of a forest, each of whole groups, that other processes can average."""
    n_trees = len(ensemble.sizes)
    size = group_size(n_trees)
    n_groups = -(-n_trees // size)
    ends = [n_groups * part // n_parts * size for part in range(n_parts)] + [n_trees]
    return [
        ensemble._replace(
            sizes=ensemble.sizes[first:stop],
            nodes=ensemble.nodes[first:stop],
            boxes=ensemble.boxes[first:stop],
        )
        for first, stop in pairwise(ends)
        if first < stop
    ]


def average_part(part: Ensemble, rows: NDArray[np.float32], n_trees: int) -> NDArray[np.float64]:
    """Average the groups of a part of a forest of ``n_trees`` trees."""
    size = group_size(n_trees)
    n_groups = -(-len(part.sizes) // size)
    # As the kernels are compiled for: arrays from another process may be read-only.
    rows = np.require(rows, requirements="W")
    part = part._replace(
        sizes=np.require(part.sizes, requirements="W"),
        nodes=np.require(part.nodes, requirements="W"),
        boxes=np.require(part.boxes, requirements="W"),
    )
    groups = empty((n_groups, len(ForestMoments._fields), len(rows)), np.float64)
    with borrowed_space(part, len(rows)) as space:
        _average_groups(part, rows, size, 0, n_groups, space, groups)
    return groups


def merge_parts(ensemble: Ensemble, parts: list[NDArray[np.float64]]) -> ForestMoments:
    """Return the moments of a forest from those of its parts, in their order."""
    return merged_groups(ensemble, np.concatenate(parts))
