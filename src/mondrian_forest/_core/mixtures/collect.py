"""The predictive mixture of each row: the components of all trees side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import borrowing_kernel
from ..arrays.memory import empty
from ..labels.model import LabelModel
from .ensemble import Ensemble, PredictionSpace, borrowed_space
from .mixture import Mixture
from .reduce import ForestMoments, add_tree, allocate_groups, group_size, merged_groups
from .route import find_components


class TreeComponents(NamedTuple):
    """The components of one tree, in the order of its exits."""

    row: NDArray[np.int32]
    weight: NDArray[np.float64]
    location: NDArray[np.float64]
    scale: NDArray[np.float64]
    degrees: NDArray[np.float64]
    """Empty if all are Gaussian."""


@borrowing_kernel
def _collect_tree(
    model: LabelModel,
    n_exits: int,
    n_trees: int,
    space: PredictionSpace,
    counts: NDArray[np.int64],
    found: TreeComponents,
) -> None:
    """Set ``found`` to the components of one tree; count those of each row over all trees.

    Weights of a row add up to 1 / n_trees.
    """
    walk, _, exits, _, components, _ = space
    _, _, _, _, _, total_weight, _ = walk  # which is not needed any more
    exit_row, _, weights, _, _ = exits
    locations, posterior_variances, branch_variances, noise_variances, all_degrees = components
    row, weight, location, scale, degrees = found
    for i in range(len(counts)):
        total_weight[i] = 0.0
    for e in range(n_exits):
        total_weight[exit_row[e]] += weights[e]
        counts[exit_row[e]] += 1
    for e in range(n_exits):
        row[e] = exit_row[e]
        location[e] = locations[e]
        weight[e] = weights[e] / (total_weight[exit_row[e]] * n_trees)
        variance = posterior_variances[e] + branch_variances[e]
        if model.has_local_noise():
            degrees[e] = all_degrees[e]
            shrink = (degrees[e] - 2.0) / degrees[e]
            scale[e] = math.sqrt((variance + noise_variances[e]) * shrink)
        else:
            scale[e] = math.sqrt(variance + model.noise_variance)


@borrowing_kernel
def _place(found: TreeComponents, cursor: NDArray[np.int64], mixture: Mixture) -> None:
    """Write the components of one tree at ``cursor``, which moves on."""
    rows, weight, location, scale, degrees = found
    _, all_weights, all_locations, all_scales, all_degrees = mixture
    for e in range(len(rows)):
        position = cursor[rows[e]]
        cursor[rows[e]] += 1
        all_weights[position] = weight[e]
        all_locations[position] = location[e]
        all_scales[position] = scale[e]
        if len(degrees) > 0:
            all_degrees[position] = degrees[e]


def predict_mixture(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    n_threads: int = 1,
    run: Callable[..., Iterable[Any]] = map,
) -> tuple[ForestMoments, Mixture]:
    """Return the moments of ``predict_moments``, and the mixture of each row.

    Threads share trees, as for moments alone. Each knows where in a row's mixture its own
    components begin.
    """
    groups = allocate_groups(ensemble, len(rows))
    parts = list(pairwise(len(groups) * part // n_threads for part in range(n_threads + 1)))
    found = list(run(lambda part: _collect_groups(ensemble, rows, part, groups), parts))
    begin = np.zeros((n_threads + 1, len(rows)), dtype=np.int64)
    np.cumsum([counts for counts, _ in found], axis=0, out=begin[1:])
    offset = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(begin[-1], out=offset[1:])
    begin += offset[:-1]
    n_degrees = offset[-1] if ensemble.model.has_local_noise() else 0
    lengths = (offset[-1], offset[-1], offset[-1], n_degrees)
    mixture = Mixture(offset, *(empty((length,), np.float64) for length in lengths))

    def place(number: int) -> None:
        for one_tree in found[number][1]:
            _place(one_tree, begin[number], mixture)

    for _ in run(place, range(n_threads)):
        pass
    return merged_groups(ensemble, groups), mixture


def _collect_groups(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    part: tuple[int, int],
    groups: NDArray[np.float64],
) -> tuple[NDArray[np.int64], list[TreeComponents]]:
    """Average some groups of trees; return their components, and how many there are of each row."""
    model = ensemble.model
    has_degrees = model.has_local_noise()
    n_trees = len(ensemble.sizes)
    size = group_size(n_trees)
    counts = np.zeros(len(rows), dtype=np.int64)
    by_tree = []
    with borrowed_space(ensemble, len(rows)) as space:
        for number in range(part[0] * size, min(part[1] * size, n_trees)):
            n_exits = find_components(ensemble, number, rows, space)
            group, n_before = divmod(number, size)
            if n_before == 0:
                groups[group] = 0.0
            add_tree(
                model,
                space.exits,
                n_exits,
                space.components,
                n_before,
                space.sums,
                groups[group],
            )
            weight, location, scale = np.empty((3, n_exits))
            degrees = np.empty(n_exits if has_degrees else 0)
            row = np.empty(n_exits, np.int32)
            found = TreeComponents(row, weight, location, scale, degrees)
            _collect_tree(model, n_exits, n_trees, space, counts, found)
            by_tree.append(found)
    return counts, by_tree
