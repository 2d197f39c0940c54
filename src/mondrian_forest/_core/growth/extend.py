"""Online learning: rows join a tree (Alg. 3 and 4), with the law of a batch fit.

The paper's Alg. 4 adds one row. Here a group of rows goes down the tree together, as in sampling
and in prediction, and meets each node once. What Alg. 4 asks of one row is asked of the group. The
box that the group needs exceeds the node's box by a certain length, summed over features and sides,
and cuts through the excess arrive at that rate. If the first cut comes before the node's own time,
the rows beyond the cut are cut off: they are sampled as a block of their own, from the time of the
cut on, and the others go on below the cut. If no cut comes in time, the box grows and the group is
divided by the node's own cut. For a group of one row this is Alg. 4, with one exception.

Alg. 4 treats every leaf as if it had been split until there was nothing left to split. That breaks
the law as soon as ``min_samples_split`` is above 2: a row would be cut off from a leaf that a batch
fit would not have split. Here a leaf with too few rows takes the new ones in. Once it has enough,
it is sampled on its own rows, from its parent's time on. That is what a batch fit would have done,
since until then nothing depended on how these rows are split. A leaf that had enough rows before
has survived to the end of its time: to the lifetime, or, if all its rows are equal, for ever. It is
treated like an inner node.

Only the nodes that the groups meet change: their boxes on the way down, all that depends on the
children on the way back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box, copy_box, excess_of_box, excess_of_row, include_box
from ..arrays.contests import Contests, contests_of
from ..arrays.grove import Grove, link_rows
from ..arrays.kernel import AHEAD, borrowing_kernel, inner_kernel, kernel, prefetch, wide
from ..arrays.rng import exponential_before
from ..arrays.tree import NO_CHILD, NO_ROW, Records, Tree
from ..arrays.vector import padded_width
from ..labels.model import LabelModel
from ..labels.tallies import add_row, merge_tallies, order_labels, prefetch_family, tally_labels
from . import Growth
from .cuts import AnyCut, sample_cut_outside
from .sample import Scratch, allocate_scratch, divide, sample_block


class Learner(NamedTuple):
    """A tree that learns, and all that this takes."""

    tree: Tree
    """Its arrays, with room for more nodes."""
    next_row: NDArray[np.int32]
    """That of ``RowLists``."""
    random_state: NDArray[np.uint64]
    labels: NDArray[np.float64]
    """By row number."""
    growth: Growth
    model: LabelModel
    contests: Contests
    """There are none where a single cut is drawn."""


class Groups(NamedTuple):
    """Rows that go down the tree together.

    All groups of a level are looked at before any of the next. They have nothing to do with each
    other, so that the nodes of the next groups arrive while this one is looked at. There are never
    more groups than rows. The groups of two levels share the arrays: one level is in the first half
    and the next level in the second half, or the other way round.
    """

    node: NDArray[np.int32]
    """The node that the group meets next."""
    start: NDArray[np.int32]
    """Where the rows of the group start among the joining rows."""
    stop: NDArray[np.int32]
    time: NDArray[np.float64]
    """From which on the group may be cut off: the time of the node's parent."""
    boxes: NDArray[np.float32]
    """The box of the rows; that of a single row is there only where it is needed."""


class CrowdedLeaves(NamedTuple):
    """Leaves that have got enough rows to be split, and all their rows."""

    leaf: NDArray[np.int64]
    start_time: NDArray[np.float64]
    end: NDArray[np.int64]
    """Where the rows of each of these leaves end in the next two arrays."""
    numbers: NDArray[np.int32]
    rows: NDArray[np.float32]


class LearningSpace(NamedTuple):
    """Arrays that are filled anew for each tree, and allocated once for all of them.

    Nothing else is allocated while a tree changes: if memory runs out, it does so before that.
    """

    joining: NDArray[np.float32]
    """The rows that join the tree; those of a group are neighbours."""
    numbers: NDArray[np.int32]
    """The numbers of these rows."""
    groups: Groups
    met: NDArray[np.int32]
    """Inner nodes that are to be set on the way back, parents before children."""
    crowded: CrowdedLeaves
    ordered: NDArray[np.float64]
    """Labels of the rows of a subtree that is sampled."""
    scratch: Scratch


@kernel
def _allocate_space(
    n_rows: int, n_features: int, n_candidate_splits: int, most_met: int, most_crowded: int
) -> LearningSpace:
    """Return arrays for ``n_rows`` rows that join, and ``most_crowded`` rows of crowded leaves."""
    room = n_rows + 1
    largest_block = max(n_rows, most_crowded)
    groups = Groups(
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room),
        np.empty((2 * room, 2, n_features), dtype=np.float32),
    )
    crowded = CrowdedLeaves(
        np.empty(room, dtype=np.int64),
        np.empty(room),
        np.empty(room, dtype=np.int64),
        np.empty(most_crowded, dtype=np.int32),
        np.empty((most_crowded, padded_width(n_features)), dtype=np.float32),
    )
    return LearningSpace(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        groups,
        np.empty(most_met, dtype=np.int32),
        crowded,
        np.empty(largest_block),
        allocate_scratch(n_candidate_splits, n_features, largest_block),
    )


@kernel
def extend_trees(
    grove: Grove,
    first: int,
    stop: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    end: int,
    growth: Growth,
    model: LabelModel,
    random_states: NDArray[np.uint64],
    is_done: NDArray[np.bool_],
) -> None:
    """Let the rows up to ``end`` join the trees from first to stop (Alg. 3).

    There must be room. Trees that are done, as ``is_done`` says afterwards, are left as they are.
    """
    sizes, _, nodes, boxes, tallies, next_row, contests, _ = grove
    fewest = wide(end)
    highest = wide(0)
    largest = wide(0)
    for number in range(first, stop):
        if is_done[number] or tallies[number, 0].n_samples == end:
            is_done[number] = True
            continue
        fewest = min(fewest, wide(tallies[number, 0].n_samples))
        highest = max(highest, wide(tallies[number, 0].height))
        largest = max(largest, sizes[number])
    if fewest == end:
        return
    n_joining = end - fewest
    # A group meets one node of each level, and each row that is cut off adds a level.
    most_met = min(n_joining * (highest + 1 + n_joining), largest + 2 * n_joining)
    # A leaf is split as soon as it has enough rows.
    most_crowded = min(n_joining * growth.min_samples_split, wide(end))
    space = _allocate_space(
        n_joining, rows.shape[1], growth.n_candidate_splits, most_met, most_crowded
    )
    for number in range(first, stop):
        begin = wide(tallies[number, 0].n_samples)
        if not is_done[number]:
            learner = Learner(
                Tree(nodes[number], boxes[number], tallies[number]),
                next_row[number],
                random_states[number],
                labels,
                growth,
                model,
                contests_of(contests, number),
            )
            sizes[number] = extend_tree(learner, rows, begin, end, sizes[number], space)
            is_done[number] = True


@borrowing_kernel
def extend_tree(
    learner: Learner,
    rows: NDArray[np.float32],
    begin: int,
    end: int,
    n_nodes: int,
    space: LearningSpace,
) -> int:
    """Let the rows from ``begin`` to ``end`` join a tree; return its new number of nodes."""
    tree, _, random_state, _, growth, _, _ = learner
    nodes, boxes, tallies = tree
    joining, numbers, groups, met, crowded, _, scratch = space
    group_nodes, _, _, start_times, _ = groups
    _start_group(rows, begin, end, joining, numbers, groups)
    here, below = 0, end - begin + 1
    n_here = 1
    n_met = wide(0)
    n_crowded = wide(0)
    while n_here > 0:
        n_below = 0
        for group in range(here, here + n_here):
            _prefetch_node(tree, wide(group_nodes[min(group + AHEAD, here + n_here - 1)]))
            node = wide(group_nodes[group])
            is_leaf = nodes[node].left_child == NO_CHILD
            excess = _excess_of_group(boxes, node, joining, groups, group)
            time = np.inf
            if excess > 0.0 and not (
                is_leaf and tallies[node].n_samples < growth.min_samples_split
            ):  # Alg. 4, line 2
                last_time = min(nodes[node].split_time, growth.lifetime)
                time = start_times[group] + exponential_before(
                    random_state, excess, last_time - start_times[group]
                )
            if time < np.inf:
                met[n_met] = node
                n_met += 1
                n_nodes = _cut_off(learner, space, group, excess, time, n_nodes, below + n_below)
                n_below += groups.start[below + n_below] < groups.stop[below + n_below]
                continue
            if excess > 0.0:
                include_box(boxes, node, groups.boxes, group)  # Alg. 4, line 11
            if is_leaf:
                n_crowded += _settle(learner, numbers, groups, group, crowded, n_crowded)
            else:
                met[n_met] = node
                n_met += 1
                n_below += _pass_on(
                    nodes[node], joining, numbers, groups, group, below + n_below, scratch
                )
        here, below = below, here
        n_here = n_below
    if n_crowded > 0:
        n_nodes = _split_leaves(learner, rows, n_crowded, n_nodes, space)
    _go_back(learner, met, n_met)
    return n_nodes


@inner_kernel
def _start_group(
    rows: NDArray[np.float32],
    begin: int,
    end: int,
    joining: NDArray[np.float32],
    numbers: NDArray[np.int32],
    groups: Groups,
) -> None:
    """Make one group of all rows that join; it meets the root."""
    nodes, starts, stops, times, boxes = groups
    for i in range(end - begin):
        for f in range(rows.shape[1]):
            joining[i, f] = rows[begin + i, f]
        numbers[i] = begin + i
    nodes[0] = 0
    starts[0] = 0
    stops[0] = end - begin
    times[0] = 0.0
    bounding_box(joining, 0, end - begin, boxes, 0)


@inner_kernel
def _prefetch_node(tree: Tree, node: int) -> None:
    nodes, boxes, tallies = tree
    prefetch(nodes, node)
    prefetch(nodes, node + 1)  # a record may begin in one cache line and end in the next
    prefetch(boxes, node)
    prefetch(tallies, node)


@inner_kernel
def _excess_of_group(
    boxes: NDArray[np.float32],
    node: int,
    joining: NDArray[np.float32],
    groups: Groups,
    group: int,
) -> float:
    """Return by how much a node's box would have to grow to hold a group.

    Most groups have a single row. If it is outside of the box, it is given a box of its own.
    """
    _, starts, stops, _, group_boxes = groups
    start = starts[group]
    if stops[group] - start == 1:
        excess = excess_of_row(boxes, node, joining, start)
        if excess > 0.0:
            for f in range(boxes.shape[2]):
                group_boxes[group, 0, f] = group_boxes[group, 1, f] = joining[start, f]
    else:
        excess = excess_of_box(boxes, node, group_boxes, group)
    return excess


@borrowing_kernel
def _cut_off(
    learner: Learner,
    space: LearningSpace,
    group: int,
    excess: float,
    time: float,
    n_nodes: int,
    below: int,
) -> int:
    """Cut off the rows of a group that are beyond a new cut; return the number of nodes.

    The other rows, if there are any, become the group ``below``.
    """
    tree, _, random_state, _, _, model, _ = learner
    nodes, boxes, _ = tree
    joining, numbers, groups, _, _, _, scratch = space
    group_nodes, starts, stops, times, group_boxes = groups
    node, start, stop = wide(group_nodes[group]), wide(starts[group]), wide(stops[group])
    feature, threshold, is_above = sample_cut_outside(
        random_state, boxes, node, group_boxes, group, excess
    )
    middle = _divide_group(joining, numbers, groups, group, feature, threshold, below, scratch)
    moved = n_nodes if is_above else n_nodes + 1
    beyond = n_nodes + 1 if is_above else n_nodes
    _insert_parent(tree, node, moved, n_nodes, feature, threshold, time)
    include_box(boxes, node, group_boxes, group)
    model.set_time(nodes, node)
    first = middle if is_above else start
    last = stop if is_above else middle
    bounding_box(joining, first, last, boxes, beyond)
    if not is_above:  # else the box of the other rows is there already
        copy_box(group_boxes, below + 1, group_boxes, below)
    group_nodes[below] = moved
    starts[below] = start if is_above else middle
    stops[below] = middle if is_above else stop
    times[below] = time
    return _sample_subtree(
        learner, joining[first:last], numbers[first:last], time, beyond, n_nodes + 2, space
    )


@inner_kernel
def _pass_on(
    record: Any,
    joining: NDArray[np.float32],
    numbers: NDArray[np.int32],
    groups: Groups,
    group: int,
    below: int,
    scratch: Scratch,
) -> int:
    """Divide a group by the cut of an inner node; return the number of groups that result.

    They become the groups from ``below`` on.
    """
    nodes, starts, stops, times, _ = groups
    start = wide(starts[group])
    stop = wide(stops[group])
    left_child = wide(record.left_child)
    n_groups = 1
    if stop - start == 1:
        goes_right = joining[start, record.split_feature] > record.threshold
        nodes[below] = left_child + goes_right
        starts[below] = start
        stops[below] = stop
        times[below] = record.split_time
    else:
        feature = wide(record.split_feature)
        middle = _divide_group(
            joining, numbers, groups, group, feature, record.threshold, below, scratch
        )
        n_groups = 0
        for side in range(2):
            first = middle if side == 1 else start
            last = stop if side == 1 else middle
            if first < last:
                nodes[below + n_groups] = left_child + side
                starts[below + n_groups] = first
                stops[below + n_groups] = last
                times[below + n_groups] = record.split_time
                n_groups += 1
    return n_groups


@inner_kernel
def _settle(
    learner: Learner,
    numbers: NDArray[np.int32],
    groups: Groups,
    group: int,
    crowded: CrowdedLeaves,
    n_crowded: int,
) -> int:
    """Let a group join a leaf; return 1 if the leaf has become crowded, else 0."""
    tree, next_row, _, labels, growth, model, _ = learner
    nodes, _, tallies = tree
    group_nodes, starts, stops, times, _ = groups
    crowded_leaves, crowded_times, _, _, _ = crowded
    node = wide(group_nodes[group])
    n_before = tallies[node].n_samples
    for i in range(starts[group], stops[group]):
        add_row(tallies, node, next_row, numbers[i], labels[numbers[i]])
    is_crowded = n_before < growth.min_samples_split <= tallies[node].n_samples
    if is_crowded:
        crowded_leaves[n_crowded] = node
        crowded_times[n_crowded] = times[group]
    else:
        model.set_node(nodes, tallies, node)
    return wide(is_crowded)


@borrowing_kernel
def _divide_group(
    joining: NDArray[np.float32],
    numbers: NDArray[np.int32],
    groups: Groups,
    group: int,
    feature: int,
    threshold: np.float32,
    below: int,
    scratch: Scratch,
) -> int:
    """Divide a group as ``divide`` does; return where the rows on the right start.

    The boxes of both sides become those of ``below`` and ``below + 1``. If there are rows on one
    side only, their box is that of ``below``. A single row has no box.
    """
    _, starts, stops, _, boxes = groups
    scratch_boxes, _, _ = scratch
    start, stop = wide(starts[group]), wide(stops[group])
    if stop - start == 1:
        return stop if joining[start, feature] <= threshold else start
    middle = divide(joining, numbers, start, stop, feature, threshold, boxes, below, scratch_boxes)
    if middle == start:
        copy_box(boxes, below + 1, boxes, below)
    return middle


@borrowing_kernel
def _split_leaves(
    learner: Learner, rows: NDArray[np.float32], n_leaves: int, n_nodes: int, space: LearningSpace
) -> int:
    """Sample the crowded leaves on their own rows; return the number of nodes."""
    _, _, _, _, crowded, _, _ = space
    leaves, start_times, ends, numbers, own_rows = crowded
    _collect_rows(learner, rows, n_leaves, crowded)
    start = wide(0)
    for i in range(n_leaves):
        # Each leaf has some rows, so that 4 leaves are far enough ahead.
        _prefetch_node(learner.tree, leaves[min(i + 4, n_leaves - 1)])
        stop = ends[i]
        n_nodes = _sample_subtree(
            learner,
            own_rows[start:stop],
            numbers[start:stop],
            start_times[i],
            leaves[i],
            n_nodes,
            space,
        )
        start = stop
    return n_nodes


@borrowing_kernel
def _collect_rows(
    learner: Learner, rows: NDArray[np.float32], n_leaves: int, crowded: CrowdedLeaves
) -> None:
    """Copy the rows of the crowded leaves, leaf by leaf.

    The lists of rows are followed together, one step in each in turn: each step waits for memory,
    and the next step in the same list would have to wait for it.
    """
    tree, next_row, _, labels, _, _, _ = learner
    _, _, tallies = tree
    leaves, _, ends, numbers, own_rows = crowded
    total = 0
    most = 0
    for i in range(n_leaves):
        total += tallies[leaves[i]].n_samples
        most = max(most, tallies[leaves[i]].n_samples)
        ends[i] = total
    for i in range(n_leaves):
        numbers[ends[i] - 1] = tallies[leaves[i]].first_row
    for step in range(1, most):
        for i in range(n_leaves):
            place = ends[i] - 1 - step
            if place >= (ends[i - 1] if i > 0 else 0):
                numbers[place] = next_row[numbers[place + 1]]
    for i in range(total):
        ahead = numbers[min(i + AHEAD, total - 1)]
        prefetch(rows, ahead)
        prefetch(labels, ahead)
        for f in range(rows.shape[1]):
            own_rows[i, f] = rows[numbers[i], f]


@inner_kernel
def _go_back(learner: Learner, met: NDArray[np.int32], n_met: int) -> None:
    """Set tallies and label model of the inner nodes that were met, children before parents."""
    tree, _, _, _, _, model, _ = learner
    nodes, _, tallies = tree
    for i in range(n_met - 1, -1, -1):
        prefetch(nodes, met[max(i - 2 * AHEAD, 0)])
        prefetch_family(nodes, tallies, met[max(i - AHEAD, 0)])
        node = wide(met[i])
        merge_tallies(nodes, tallies, node)
        model.set_node(nodes, tallies, node)


@borrowing_kernel
def _insert_parent(
    tree: Tree,
    node: int,
    moved: int,
    left_child: int,
    feature: int,
    threshold: np.float32,
    time: float,
) -> None:
    r"""Put a new parent above a node, with a place for another subtree beside it.

    The new parent takes over the number of the node, so that the grandparent need not know::

             node                    node: new parent
            /    \        ->         /              \
          ...    ...              moved          to be sampled     (or the other way round)
    """
    nodes, boxes, tallies = tree
    nodes[moved] = nodes[node]
    tallies[moved] = tallies[node]
    record = nodes[node]
    record.left_child = left_child
    record.split_feature = feature
    record.threshold = threshold
    record.split_time = time
    tallies[node].first_row = NO_ROW
    copy_box(boxes, node, boxes, moved)


@borrowing_kernel
def _sample_subtree(
    learner: Learner,
    rows: NDArray[np.float32],
    numbers: NDArray[np.int32],
    start_time: float,
    root: int,
    n_nodes: int,
    space: LearningSpace,
) -> int:
    """Sample a block of rows below ``root``, with all that is kept; return the number of nodes.

    The root has its box already.
    """
    tree, next_row, random_state, labels, growth, model, contests = learner
    nodes, _, tallies = tree
    _, _, _, _, _, ordered, scratch = space
    n_after = sample_block(
        rows,
        numbers,
        AnyCut(1),
        start_time,
        growth,
        random_state,
        tree,
        contests,
        root,
        n_nodes,
        scratch,
    )
    order_labels(labels, numbers, ordered)
    tally_labels(nodes, tallies, ordered, n_nodes, n_after)
    tally_labels(nodes, tallies, ordered, root, root + 1)
    link_rows(nodes, tallies, numbers, next_row, n_nodes, n_after)
    link_rows(nodes, tallies, numbers, next_row, root, root + 1)
    for node in range(n_after - 1, n_nodes - 1, -1):
        _set_new(nodes, tallies, model, node)
    _set_new(nodes, tallies, model, root)
    return n_after


@borrowing_kernel
def _set_new(nodes: Records, tallies: Records, model: LabelModel, node: int) -> None:
    model.set_time(nodes, node)
    model.set_node(nodes, tallies, node)
