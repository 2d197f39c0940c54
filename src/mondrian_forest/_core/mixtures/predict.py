"""Prediction: rows are routed through each tree (Alg. 5), then the trees' mixtures are combined.

Rows travel in groups: a node's rows are neighbours, as in sampling, and the tree is walked depth
first, which is the order of its nodes in memory. So each node is read once for a block of rows,
and what belongs to the node alone, the message from above, is computed once. In a tree of 400,000
nodes this takes 15 ns for each row and node, where following rows one by one took 55 to 110, most
of it spent on cache misses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import doubled, kernel, prefetch, wide
from ..arrays.memory import empty
from ..arrays.tree import NO_CHILD, Records
from ..arrays.vector import are_vectors, find_outside_vectors, padded_width
from ..growth.sample import partition
from ..labels.exits import ExitComponents, Exits, Messages, Visits
from ..labels.model import LabelModel
from .mixture import Mixture

NEGLIGIBLE_WEIGHT = 1e-12
"""A row is not followed when no more than this weight is left, and lighter components are dropped.
So a tree of depth d loses at most (d + 2) times this, which bounds the error of its cdf."""

LIGHT = 1e-6
"""The same under the pruned posterior, where a row may stop at each node of its path: most of these
components weigh next to nothing, and would take most of the time."""


class Ensemble(NamedTuple):
    """All that prediction needs of a forest; the first three are those of ``Grove``."""

    sizes: NDArray[np.int64]
    nodes: Records
    boxes: NDArray[np.float32]
    depth: int
    """Number of edges between the root and the deepest leaf of any tree."""
    model: LabelModel
    lifetime: float


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


class Workspace(NamedTuple):
    """Arrays that routing and the label models fill, one tree after the other."""

    visits: Visits
    exits: Exits
    messages: Messages
    components: ExitComponents
    rows: NDArray[np.float32]
    """The rows in the order of the tree, with their numbers in ``row_order``."""
    row_order: NDArray[np.int32]
    outside: NDArray[np.int32]
    """Positions of the rows that are outside the box of a node."""
    staying: NDArray[np.float64]
    """By row number: the probability that it has not left the tree yet."""
    branching: NDArray[np.float64]
    """By row number: the probability that it branches off above the node that is looked at; under
    the pruned posterior only."""
    sums: NDArray[np.float64]
    """By row number: sums over the exits of a row, one cache line for each."""


def _most_visits_and_exits(ensemble: Ensemble, n_rows: int) -> tuple[int, int]:
    n_visits = min(ensemble.nodes.shape[1], n_rows * (ensemble.depth + 1))
    return n_visits, n_rows * (ensemble.depth + 2)


def allocate_workspace(ensemble: Ensemble, n_rows: int) -> Workspace:
    """Return arrays that are large enough for ``n_rows`` rows in any of the trees.

    These are upper bounds: what is not written to takes no memory.
    """
    n_visits, n_exits = _most_visits_and_exits(ensemble, n_rows)

    def numbers(length: int) -> NDArray[np.int32]:
        return empty((length,), np.int32)

    def values(length: int) -> NDArray[np.float64]:
        return empty((length,), np.float64)

    return Workspace(
        Visits(numbers(n_visits), numbers(n_visits)),
        Exits(
            row=numbers(n_exits),
            visit=numbers(n_exits),
            weight=values(n_exits),
            branch_off=values(n_exits),
            distance=values(n_exits),
        ),
        Messages(values(n_visits), values(n_visits)),
        ExitComponents(*(values(n_exits) for _ in range(5))),
        rows=empty((n_rows, padded_width(ensemble.boxes.shape[3])), np.float32),
        row_order=numbers(n_rows),
        outside=numbers(n_rows + 1),
        staying=values(n_rows),
        branching=values(n_rows),
        sums=empty((n_rows, 6), np.float64),
    )


_spare: list[Workspace] = []
"""Workspaces for the next prediction of as many rows, two at most: new memory is slow at first, and
for a single row the 18 allocations take a quarter of the time."""


@contextmanager
def _borrowed_workspace(ensemble: Ensemble, n_rows: int) -> Iterator[Workspace]:
    try:
        space = _spare.pop()  # from now on no other thread has it
    except IndexError:
        space = allocate_workspace(ensemble, n_rows)
    n_visits, n_exits = _most_visits_and_exits(ensemble, n_rows)
    if (
        space.rows.shape != (n_rows, padded_width(ensemble.boxes.shape[3]))
        or len(space.visits.node) < n_visits
        or len(space.exits.row) < n_exits
    ):
        space = allocate_workspace(ensemble, n_rows)
    yield space
    if len(_spare) < 2:
        _spare.append(space)


@kernel
def route(
    nodes: Records,
    boxes: NDArray[np.float32],
    model: LabelModel,
    lifetime: float,
    rows: NDArray[np.float32],
    space: Workspace,
) -> tuple[int, int]:
    """Find the nodes that the rows pass through and the places where they leave the tree (Alg. 5).

    Returns their numbers, of visits and of exits. With a finite lifetime nothing branches off after
    it.

    Under the pruned posterior, rows also stop at inner nodes. One that branches off above a node is
    like one that stops there: the place where it branches off has the labels of the node.
    """
    visits, exits, _, _, moving, row_order, outside, staying, branching, _ = space
    is_pruned = model.stops_inside()
    negligible = LIGHT if is_pruned else NEGLIGIBLE_WEIGHT
    # Unpacked, since an array taken out of a tuple costs atomic reference counts each time.
    visited, parents = visits
    exit_row, exit_visit, exit_weight, exit_branch_off, exit_distance = exits
    n_features = rows.shape[1]
    for i in range(len(rows)):
        for f in range(n_features):
            moving[i, f] = rows[i, f]
        row_order[i] = i
        staying[i] = 1.0
        branching[i] = 0.0
    box = np.empty((2, moving.shape[1]), dtype=np.float32)
    box[0] = -np.inf
    box[1] = np.inf
    # Groups still to be followed, as in `sample_block`.
    waiting = np.empty((16, 4), dtype=np.int64)  # node, first row, end of rows, parent's visit
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = len(rows)
    waiting[0, 3] = -1
    n_waiting = 1
    n_visits = 0
    n_exits = 0
    while n_waiting > 0:
        if n_waiting + 2 > len(waiting):
            waiting = doubled(waiting)
        while 0 < n_waiting <= len(waiting) - 2:  # two loops, for the reason given there
            n_waiting -= 1
            node = waiting[n_waiting, 0]
            start = waiting[n_waiting, 1]
            stop = waiting[n_waiting, 2]
            above = waiting[n_waiting, 3]
            record = nodes[node]
            left_child = record.left_child
            if left_child != NO_CHILD:  # so that the next level arrives while this one is looked at
                prefetch(nodes, left_child)
                prefetch(nodes, left_child + 1)
                prefetch(boxes, left_child)
                prefetch(boxes, left_child + 1)
            parent_time = 0.0 if above < 0 else nodes[visited[above]].split_time
            duration = min(record.split_time, lifetime) - parent_time
            visited[n_visits] = node
            parents[n_visits] = above
            for f in range(n_features):
                box[0, f] = boxes[node, 0, f]
                box[1, f] = boxes[node, 1, f]
            # From the last one on: then the row that takes the place of one that is done with is
            # past.
            for k in range(find_outside(moving, start, stop, box, outside) - 1, -1, -1):
                i = outside[k]
                distance = 0.0
                for f in range(n_features):
                    value = np.float64(moving[i, f])
                    low, high = np.float64(box[0, f]), np.float64(box[1, f])
                    distance += max(low - value, value - high, 0.0)
                number = row_order[i]
                branch_off = -math.expm1(-duration * distance)
                weight = staying[number] * branch_off
                staying[number] -= weight
                if is_pruned:
                    branching[number] = weight
                    continue
                exit_row[n_exits] = number
                exit_visit[n_exits] = n_visits
                exit_weight[n_exits] = weight
                exit_branch_off[n_exits] = branch_off
                exit_distance[n_exits] = distance
                n_exits += weight > negligible
                if staying[number] <= negligible:
                    stop -= 1
                    for f in range(n_features):
                        moving[i, f] = moving[stop, f]
                    row_order[i] = row_order[stop]
            if is_pruned:
                stop_probability = model.stop_probability(record)
                for i in range(stop - 1, start - 1, -1):
                    number = row_order[i]
                    weight = staying[number] * stop_probability
                    staying[number] -= weight
                    weight += branching[number]
                    branching[number] = 0.0
                    exit_row[n_exits] = number
                    exit_visit[n_exits] = n_visits
                    exit_weight[n_exits] = weight
                    n_exits += weight > negligible
                    if staying[number] > negligible:
                        continue
                    stop -= 1
                    for f in range(n_features):
                        moving[i, f] = moving[stop, f]
                    row_order[i] = row_order[stop]
            if left_child == NO_CHILD:
                for i in range(start, stop):
                    exit_row[n_exits] = row_order[i]
                    exit_visit[n_exits] = n_visits
                    exit_weight[n_exits] = staying[row_order[i]]
                    exit_branch_off[n_exits] = 1.0
                    exit_distance[n_exits] = 0.0
                    n_exits += 1
            else:
                middle = partition(
                    moving, row_order, start, stop, wide(record.split_feature), record.threshold
                )
                for side in range(1, -1, -1):  # the left child ends on top and is followed first
                    first = middle if side == 1 else start
                    end = stop if side == 1 else middle
                    if first < end:
                        waiting[n_waiting, 0] = left_child + side
                        waiting[n_waiting, 1] = first
                        waiting[n_waiting, 2] = end
                        waiting[n_waiting, 3] = n_visits
                        n_waiting += 1
            n_visits += 1
    return n_visits, n_exits


@kernel
def find_outside(
    rows: NDArray[np.float32],
    start: int,
    stop: int,
    box: NDArray[np.float32],
    positions: NDArray[np.int32],
) -> int:
    """Write down the positions of rows outside a box; return their number."""
    n_columns = rows.shape[1]
    if are_vectors(n_columns):
        return find_outside_vectors(rows, start, stop, box, positions)
    n_outside = 0
    for i in range(start, stop):
        is_outside = False
        for f in range(n_columns):
            is_outside |= (rows[i, f] < box[0, f]) | (rows[i, f] > box[1, f])
        positions[n_outside] = i
        n_outside += is_outside
    return n_outside


@kernel
def find_leaves(nodes: Records, rows: NDArray[np.float32], leaves: NDArray[np.int32]) -> None:
    """Set ``leaves[i]`` to the leaf whose block holds row i."""
    for i in range(len(rows)):
        node = np.int32(0)
        while nodes[node].left_child != NO_CHILD:
            goes_right = rows[i, nodes[node].split_feature] > nodes[node].threshold
            node = nodes[node].left_child + np.int32(goes_right)
        leaves[i] = node


@kernel
def _add_tree_moments(
    exits: Exits,
    n_exits: int,
    components: ExitComponents,
    model: LabelModel,
    n_trees_before: int,
    sums: NDArray[np.float64],
    moments: NDArray[np.float64],
) -> None:
    """Bring the running averages over trees from ``n_trees_before`` to one more.

    ``moments`` has one row for each field of ``ForestMoments``. Means and variances are updated as
    in West (1979): no difference of large sums.
    """
    exit_row, _, weights, _, _ = exits
    locations, posterior_variances, branch_variances, noise_variances, _ = components
    is_noise_local = model.has_local_noise()
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
        if is_noise_local:
            sums[row, 5] += weight * noise_variances[e]
    share = 1.0 / (n_trees_before + 1.0)
    for i in range(len(sums)):
        inverse = 1.0 / sums[i, 0]
        deviation = sums[i, 1] - moments[0, i]
        moments[0, i] += deviation * share
        moments[1, i] += share * (sums[i, 3] * inverse - moments[1, i])
        moments[2, i] += share * ((sums[i, 4] + sums[i, 2]) * inverse - moments[2, i])
        moments[3, i] += share * (deviation * (sums[i, 1] - moments[0, i]) - moments[3, i])
        noise = sums[i, 5] * inverse if is_noise_local else model.noise_variance
        moments[4, i] += share * (noise - moments[4, i])


MOST_GROUPS = 16
"""Trees are averaged in so many groups, one after the other within each. Threads share the groups,
not the rows: then each node is read by one thread only, and two threads are twice as fast as one,
where with half of the rows each they were 1.4 times as fast."""


def _group_size(n_trees: int) -> int:
    return -(-n_trees // MOST_GROUPS)


@kernel
def _average_groups(
    sizes: NDArray[np.int64],
    nodes: Records,
    boxes: NDArray[np.float32],
    model: LabelModel,
    lifetime: float,
    rows: NDArray[np.float32],
    group_size: int,
    first: int,
    stop: int,
    space: Workspace,
    moments: NDArray[np.float64],
) -> None:
    """Average the trees of the groups from first to stop; ``moments[g]`` is that of a group."""
    for group in range(first, stop):
        moments[group] = 0.0
        for number in range(group * group_size, min((group + 1) * group_size, len(sizes))):
            size = sizes[number]
            tree, tree_boxes = nodes[number, :size], boxes[number, :size]
            n_visits, n_exits = route(tree, tree_boxes, model, lifetime, rows, space)
            model.fill_components(
                tree,
                lifetime,
                space.visits,
                n_visits,
                space.messages,
                space.exits,
                n_exits,
                space.components,
            )
            _add_tree_moments(
                space.exits,
                n_exits,
                space.components,
                model,
                number % group_size,
                space.sums,
                moments[group],
            )


@kernel
def _merge_groups(
    moments: NDArray[np.float64], group_size: int, n_trees: int, merged: NDArray[np.float64]
) -> None:
    """Set ``merged`` to the averages over all trees."""
    for part in range(merged.shape[0]):  # a slice would take seconds to compile
        for i in range(merged.shape[1]):
            merged[part, i] = moments[0, part, i]
    n_before = min(group_size, n_trees)
    for group in range(1, len(moments)):
        n_more = min(group_size, n_trees - group * group_size)
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


def _allocate_groups(ensemble: Ensemble, n_rows: int) -> NDArray[np.float64]:
    n_trees = len(ensemble.sizes)
    n_groups = -(-n_trees // _group_size(n_trees))
    return empty((n_groups, len(ForestMoments._fields), n_rows), np.float64)


def _merged(ensemble: Ensemble, groups: NDArray[np.float64]) -> ForestMoments:
    n_trees = len(ensemble.sizes)
    merged = np.empty(groups.shape[1:])
    _merge_groups(groups, _group_size(n_trees), n_trees, merged)
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
    groups = _allocate_groups(ensemble, len(rows))

    def average(part: tuple[int, int]) -> None:
        with _borrowed_workspace(ensemble, len(rows)) as space:
            _average_groups(
                ensemble.sizes,
                ensemble.nodes,
                ensemble.boxes,
                ensemble.model,
                ensemble.lifetime,
                rows,
                _group_size(len(ensemble.sizes)),
                *part,
                space,
                groups,
            )

    ends = [len(groups) * part // n_threads for part in range(n_threads + 1)]
    for _ in run(average, list(pairwise(ends))):
        pass
    return _merged(ensemble, groups)


def group_parts(ensemble: Ensemble, n_parts: int) -> list[Ensemble]:
    """Return parts of a forest, each of whole groups, that other processes can average."""
    n_trees = len(ensemble.sizes)
    size = _group_size(n_trees)
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
    size = _group_size(n_trees)
    n_groups = -(-len(part.sizes) // size)
    rows = np.require(rows, requirements="W")  # as below
    nodes = np.require(part.nodes, requirements="W")
    boxes = np.require(part.boxes, requirements="W")
    sizes = np.require(part.sizes, requirements="W")
    groups = empty((n_groups, len(ForestMoments._fields), len(rows)), np.float64)
    with _borrowed_workspace(part, len(rows)) as space:
        _average_groups(
            sizes,
            nodes,
            boxes,
            part.model,
            part.lifetime,
            rows,
            size,
            0,
            n_groups,
            space,
            groups,
        )
    return groups


def merge_parts(ensemble: Ensemble, parts: list[NDArray[np.float64]]) -> ForestMoments:
    """Return the moments of a forest from those of its parts, in their order."""
    return _merged(ensemble, np.concatenate(parts))


_TreeComponents = tuple[
    NDArray[np.int32],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
]
"""Row, weight, location, scale and degrees of the components of one tree, in the tree's order."""


@kernel
def _collect(
    exits: Exits,
    n_exits: int,
    components: ExitComponents,
    noise_variance: float,
    n_trees: int,
    total_weight: NDArray[np.float64],
    counts: NDArray[np.int64],
    found: _TreeComponents,
) -> None:
    """Set ``found`` to the components of one tree; count those of each row over all trees.

    Weights of a row add up to 1 / n_trees. ``total_weight`` is scratch space.
    """
    exit_row, _, weights, _, _ = exits
    locations, posterior_variances, branch_variances, noise_variances, all_degrees = components
    row, weight, location, scale, degrees = found
    total_weight[:] = 0.0
    for e in range(n_exits):
        total_weight[exit_row[e]] += weights[e]
        counts[exit_row[e]] += 1
    for e in range(n_exits):
        row[e] = exit_row[e]
        location[e] = locations[e]
        weight[e] = weights[e] / (total_weight[exit_row[e]] * n_trees)
        if len(degrees) > 0:
            degrees[e] = all_degrees[e]
            variance = posterior_variances[e] + noise_variances[e]
            scale[e] = math.sqrt(variance * ((degrees[e] - 2.0) / degrees[e]))
        else:
            scale[e] = math.sqrt(posterior_variances[e] + branch_variances[e] + noise_variance)


@kernel
def _place(found: _TreeComponents, cursor: NDArray[np.int64], mixture: Mixture) -> None:
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
    """Return moments as above, and each row's mixture: the trees' mixtures side by side.

    Threads share trees, as for moments alone; each knows where in a row's mixture its own begin.
    """
    groups = _allocate_groups(ensemble, len(rows))
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
    return _merged(ensemble, groups), mixture


def _collect_groups(
    ensemble: Ensemble,
    rows: NDArray[np.float32],
    part: tuple[int, int],
    groups: NDArray[np.float64],
) -> tuple[NDArray[np.int64], list[_TreeComponents]]:
    """Average some groups of trees; return their components, and how many there are of each row."""
    n_trees = len(ensemble.sizes)
    group_size = _group_size(n_trees)
    counts = np.zeros(len(rows), dtype=np.int64)
    by_tree = []
    with _borrowed_workspace(ensemble, len(rows)) as space:
        for number in range(part[0] * group_size, min(part[1] * group_size, n_trees)):
            size = ensemble.sizes[number]
            tree, boxes = ensemble.nodes[number, :size], ensemble.boxes[number, :size]
            n_visits, n_exits = route(tree, boxes, ensemble.model, ensemble.lifetime, rows, space)
            ensemble.model.fill_components(
                tree,
                ensemble.lifetime,
                space.visits,
                n_visits,
                space.messages,
                space.exits,
                n_exits,
                space.components,
            )
            group, n_before = divmod(number, group_size)
            if n_before == 0:
                groups[group] = 0.0
            _add_tree_moments(
                space.exits,
                n_exits,
                space.components,
                ensemble.model,
                n_before,
                space.sums,
                groups[group],
            )
            degrees = np.empty(n_exits if ensemble.model.has_local_noise() else 0)
            found = (np.empty(n_exits, np.int32), *np.empty((3, n_exits)), degrees)
            _collect(
                space.exits,
                n_exits,
                space.components,
                ensemble.model.noise_variance,
                n_trees,
                space.staying,
                counts,
                found,
            )
            by_tree.append(found)
    return counts, by_tree
