"""Online learning: rows join a tree (Alg. 3 and 4), with the law of a batch fit.

The paper's Alg. 4 adds one row. Here a group of rows goes down the tree together, as in sampling
and in prediction, and meets each node once. What Alg. 4 asks of one row is asked of the group: the
box that the group needs exceeds the node's box by a certain length (summed over features and
sides), and cuts through the excess arrive at that rate. If the first comes before the node's own
time, the rows beyond the cut leave and are sampled as a block of their own, from the time of the
cut on, and the others go on below it; if none does, the box grows and the group is divided by the
node's own cut. For a group of one row this is Alg. 4, but for what follows.

Alg. 4 also treats every leaf as if it had been split until there was nothing left to split. That
breaks the law as soon as ``min_samples_split`` is above 2: a row would be cut off from a leaf that
a batch fit would not have split. Here a leaf with too few rows just takes the new ones in; once it
has enough, it is sampled on its own rows, from its parent's time on. That is what a batch fit would
have done, since until then nothing depended on how these rows are split. A leaf that had enough
rows before has survived to the end of its time, be it the lifetime, or, where all its rows are
equal, for ever; it is treated like an inner node.

Nothing changes but the nodes that the groups have met: boxes on the way down, all the rest, which
depends on the children, on the way back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import bounding_box
from ..arrays.grove import link_rows
from ..arrays.kernel import AHEAD, inner_kernel, kernel, prefetch, wide
from ..arrays.rng import exponential_before, uniform
from ..arrays.tree import NO_CHILD, NO_ROW, Records, Tree
from ..arrays.vector import padded_width
from ..labels.model import LabelModel
from ..labels.tallies import add_row, merge_tallies, order_labels, prefetch_family, tally_labels
from .sample import (
    Scratch,
    allocate_scratch,
    divide,
    sample_block,
    uniform_between,
)


class Workspace(NamedTuple):
    """Arrays that are filled for each tree anew; allocated once, which takes a while for one row.

    Nothing else is allocated while a tree changes: what runs out of memory does so before that.

    All groups of a level are looked at before any of the next: they have nothing to do with each
    other, so that the nodes of the next ones arrive while this one is looked at. There are never
    more groups than rows. Two levels share the arrays of groups, one behind ``here``, one behind
    ``below``; arrays that change their names would be counted, and that takes longer than a node.
    """

    joining: NDArray[np.float32]
    """The rows that join the tree; those of a group are neighbours."""
    numbers: NDArray[np.int32]
    """Of these rows."""
    group_node: NDArray[np.int32]
    group_start: NDArray[np.int32]
    group_stop: NDArray[np.int32]
    group_time: NDArray[np.float64]
    """From which on the group may be cut off."""
    group_boxes: NDArray[np.float32]
    met: NDArray[np.int32]
    """Nodes whose tallies and posteriors are set on the way back, parents before children."""
    crowded: NDArray[np.int64]
    """Leaves to be split."""
    crowded_time: NDArray[np.float64]
    crowded_end: NDArray[np.int64]
    """Where the rows of each of these leaves end in the next two arrays."""
    crowded_numbers: NDArray[np.int32]
    crowded_rows: NDArray[np.float32]
    ordered: NDArray[np.float64]
    """Labels of the rows of a subtree that is sampled."""
    scratch: Scratch


@kernel
def _allocate_workspace(
    n_rows: int, n_features: int, n_candidate_splits: int, most_met: int, most_crowded: int
) -> Workspace:
    """Return arrays for ``n_rows`` rows that join, and ``most_crowded`` rows of leaves to split."""
    room = n_rows + 1
    largest_block = max(n_rows, most_crowded)
    return Workspace(
        np.empty((n_rows, padded_width(n_features)), dtype=np.float32),
        np.empty(n_rows, dtype=np.int32),
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room, dtype=np.int32),
        np.empty(2 * room),
        np.empty((2 * room, 2, n_features), dtype=np.float32),
        np.empty(most_met, dtype=np.int32),
        np.empty(room, dtype=np.int64),
        np.empty(room),
        np.empty(room, dtype=np.int64),
        np.empty(most_crowded, dtype=np.int32),
        np.empty((most_crowded, padded_width(n_features)), dtype=np.float32),
        np.empty(largest_block),
        allocate_scratch(n_candidate_splits, n_features, largest_block),
    )


@kernel
def extend_trees(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    end: int,
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    model: LabelModel,
    random_states: NDArray[np.uint64],
    nodes: Records,
    boxes: NDArray[np.float32],
    tallies: Records,
    next_row: NDArray[np.int32],
    sizes: NDArray[np.int64],
    first: int,
    stop: int,
) -> None:
    """Let the rows up to ``end`` join the trees of a ``Grove`` from first to stop."""
    fewest = wide(end)
    highest = wide(0)
    largest = wide(0)
    for number in range(first, stop):
        fewest = min(fewest, wide(tallies[number, 0].n_samples))
        highest = max(highest, wide(tallies[number, 0].height))
        largest = max(largest, sizes[number])
    n_joining = end - fewest
    # A group meets one node of each level, and each row that is cut off adds a level.
    most_met = min(n_joining * (highest + 1 + n_joining), largest + 2 * n_joining)
    # A leaf is split as soon as it has enough rows.
    most_crowded = min(n_joining * min_samples_split, wide(end))
    space = _allocate_workspace(
        n_joining, rows.shape[1], n_candidate_splits, most_met, most_crowded
    )
    for number in range(first, stop):
        begin = tallies[number, 0].n_samples
        if begin < end:
            sizes[number] = extend_tree(
                rows,
                labels,
                begin,
                end,
                min_samples_split,
                n_candidate_splits,
                lifetime,
                model,
                random_states[number],
                Tree(nodes[number], boxes[number], tallies[number]),
                next_row[number],
                sizes[number],
                space,
            )


@kernel
def extend_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    begin: int,
    end: int,
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    model: LabelModel,
    random_state: NDArray[np.uint64],
    tree: Tree,
    next_row: NDArray[np.int32],
    n_nodes: int,
    space: Workspace,
) -> int:
    """Let the rows from ``begin`` to ``end`` join the tree; return its number of nodes.

    All arrays must have room for them.
    """
    nodes, boxes, tallies = tree
    n_features = rows.shape[1]
    (
        joining,
        numbers,
        group_node,
        group_start,
        group_stop,
        group_time,
        group_boxes,
        met,
        crowded,
        crowded_time,
        _,
        _,
        _,
        ordered,
        scratch,
    ) = space
    scratch_boxes, _, _ = scratch
    for i in range(end - begin):
        for f in range(n_features):
            joining[i, f] = rows[begin + i, f]
        numbers[i] = begin + i
    here, below = 0, end - begin + 1
    group_node[0] = 0
    group_start[0] = 0
    group_stop[0] = end - begin
    group_time[0] = 0.0
    bounding_box(joining, 0, end - begin, group_boxes, 0)
    n_here = 1
    n_crowded = 0
    n_met = 0
    while n_here > 0:
        n_below = 0
        for group in range(here, here + n_here):
            ahead = group_node[min(group + AHEAD, here + n_here - 1)]
            prefetch(nodes, ahead)
            prefetch(nodes, ahead + 1)  # a record may begin in one cache line and end in the next
            prefetch(boxes, ahead)
            prefetch(tallies, ahead)
            node = wide(group_node[group])
            start = wide(group_start[group])
            stop = wide(group_stop[group])
            start_time = group_time[group]
            record = nodes[node]
            left_child = wide(record.left_child)
            is_leaf = left_child == NO_CHILD
            if stop - start == 1:  # as most groups: it has a box only where that is needed
                excess = _excess_of_row(boxes, node, joining, start)
                if excess > 0.0:
                    for f in range(n_features):
                        group_boxes[group, 0, f] = group_boxes[group, 1, f] = joining[start, f]
            else:
                excess = _excess_of_box(boxes, node, group_boxes, group)
            has_waited = is_leaf and tallies[node].n_samples < min_samples_split
            time = np.inf
            if excess > 0.0 and not has_waited:  # Alg. 4, line 2
                time = start_time + exponential_before(
                    random_state, excess, min(record.split_time, lifetime) - start_time
                )
            if time < np.inf:
                met[n_met] = node
                n_met += 1
                feature, threshold, is_above = _sample_cut_outside(
                    random_state, boxes, node, group_boxes, group, excess
                )
                middle = _divide_group(
                    joining,
                    numbers,
                    start,
                    stop,
                    feature,
                    threshold,
                    group_boxes,
                    below + n_below,
                    scratch_boxes,
                )
                moved = n_nodes if is_above else n_nodes + 1
                beyond = n_nodes + 1 if is_above else n_nodes
                _insert_parent(tree, node, moved, n_nodes, feature, threshold, time)
                _stretch(boxes, node, group_boxes, group)
                model.set_time(nodes, node)
                first = middle if is_above else start
                last = stop if is_above else middle
                bounding_box(joining, first, last, boxes, beyond)
                n_nodes = _sample_subtree(
                    joining[first:last],
                    numbers[first:last],
                    labels,
                    time,
                    min_samples_split,
                    n_candidate_splits,
                    lifetime,
                    model,
                    random_state,
                    tree,
                    next_row,
                    beyond,
                    n_nodes + 2,
                    ordered,
                    scratch,
                )
                if last - first < stop - start:
                    group_node[below + n_below] = moved
                    group_start[below + n_below] = start if is_above else middle
                    group_stop[below + n_below] = middle if is_above else stop
                    group_time[below + n_below] = time
                    if not is_above:
                        _copy_box(group_boxes, below + n_below + 1, below + n_below)
                    n_below += 1
                continue
            if excess > 0.0:
                _stretch(boxes, node, group_boxes, group)  # Alg. 4, line 11
            if not is_leaf:
                met[n_met] = node
                n_met += 1
                if stop - start == 1:
                    goes_right = joining[start, record.split_feature] > record.threshold
                    group_node[below + n_below] = left_child + goes_right
                    group_start[below + n_below] = start
                    group_stop[below + n_below] = stop
                    group_time[below + n_below] = record.split_time
                    n_below += 1
                    continue
                middle = _divide_group(
                    joining,
                    numbers,
                    start,
                    stop,
                    wide(record.split_feature),
                    record.threshold,
                    group_boxes,
                    below + n_below,
                    scratch_boxes,
                )
                for side in range(2):
                    first = middle if side == 1 else start
                    last = stop if side == 1 else middle
                    if first < last:
                        group_node[below + n_below] = left_child + side
                        group_start[below + n_below] = first
                        group_stop[below + n_below] = last
                        group_time[below + n_below] = record.split_time
                        n_below += 1
                continue
            tally = tallies[node]
            for i in range(start, stop):
                add_row(tallies, node, next_row, numbers[i], labels[numbers[i]])
            if has_waited and tally.n_samples >= min_samples_split:
                crowded[n_crowded] = node
                crowded_time[n_crowded] = start_time
                n_crowded += 1
            else:
                model.set_node(nodes, tallies, node)
        here, below = below, here
        n_here = n_below
    if n_crowded > 0:
        n_nodes = _split_leaves(
            n_crowded,
            rows,
            labels,
            min_samples_split,
            n_candidate_splits,
            lifetime,
            model,
            random_state,
            tree,
            next_row,
            n_nodes,
            space,
        )
    for i in range(n_met - 1, -1, -1):  # children before parents
        prefetch(nodes, met[max(i - 2 * AHEAD, 0)])
        prefetch_family(nodes, tallies, met[max(i - AHEAD, 0)])
        node = wide(met[i])
        merge_tallies(nodes, tallies, node)
        model.set_node(nodes, tallies, node)
    return n_nodes


@kernel
def _divide_group(
    joining: NDArray[np.float32],
    numbers: NDArray[np.int32],
    start: int,
    stop: int,
    feature: int,
    threshold: np.float32,
    group_boxes: NDArray[np.float32],
    below: int,
    scratch: NDArray[np.float32],
) -> int:
    """Divide a group as ``divide`` does, into ``below`` and ``below + 1``, but without gaps.

    If there are rows on one side only, ``below`` is theirs. A single row has no box.
    """
    if stop - start == 1:
        return stop if joining[start, feature] <= threshold else start
    middle = divide(joining, numbers, start, stop, feature, threshold, group_boxes, below, scratch)
    if middle == start:
        _copy_box(group_boxes, below + 1, below)
    return middle


@inner_kernel
def _excess_of_row(
    boxes: NDArray[np.float32], node: int, rows: NDArray[np.float32], i: int
) -> float:
    """Return by how much a node's box would have to grow, summed over features, to hold a row."""
    excess = 0.0
    for f in range(boxes.shape[2]):
        value = np.float64(rows[i, f])
        low, high = np.float64(boxes[node, 0, f]), np.float64(boxes[node, 1, f])
        excess += max(low - value, value - high, 0.0)
    return excess


@inner_kernel
def _excess_of_box(
    boxes: NDArray[np.float32], node: int, group_boxes: NDArray[np.float32], group: int
) -> float:
    """Return the same for a box; its sides count each by itself."""
    excess = 0.0
    for f in range(boxes.shape[2]):
        low = np.float64(boxes[node, 0, f]) - np.float64(group_boxes[group, 0, f])
        high = np.float64(group_boxes[group, 1, f]) - np.float64(boxes[node, 1, f])
        excess += max(low, 0.0) + max(high, 0.0)
    return excess


@inner_kernel
def _stretch(
    boxes: NDArray[np.float32], node: int, group_boxes: NDArray[np.float32], group: int
) -> None:
    """Let the box of a node take in that of a group."""
    for f in range(boxes.shape[2]):
        boxes[node, 0, f] = min(boxes[node, 0, f], group_boxes[group, 0, f])
        boxes[node, 1, f] = max(boxes[node, 1, f], group_boxes[group, 1, f])


@inner_kernel
def _copy_box(boxes: NDArray[np.float32], source: int, target: int) -> None:
    for end in range(2):
        for f in range(boxes.shape[2]):
            boxes[target, end, f] = boxes[source, end, f]


@kernel
def _split_leaves(
    n_leaves: int,
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    model: LabelModel,
    random_state: NDArray[np.uint64],
    tree: Tree,
    next_row: NDArray[np.int32],
    n_nodes: int,
    space: Workspace,
) -> int:
    """Sample the crowded leaves on their own rows; return the number of nodes.

    The lists of rows are followed together, one step in each in turn: each step waits for memory,
    and the next step in the same list waits for it.
    """
    nodes, boxes, tallies = tree
    n_features = rows.shape[1]
    _, _, _, _, _, _, _, _, leaves, start_times, ends, numbers, own_rows, ordered, scratch = space
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
        for f in range(n_features):
            own_rows[i, f] = rows[numbers[i], f]
    start = 0
    for i in range(n_leaves):
        ahead = leaves[min(i + 4, n_leaves - 1)]  # some rows each, so that 4 are far enough
        prefetch(nodes, ahead)
        prefetch(nodes, ahead + 1)
        prefetch(boxes, ahead)
        prefetch(tallies, ahead)
        stop = ends[i]
        n_nodes = _sample_subtree(
            own_rows[start:stop],
            numbers[start:stop],
            labels,
            start_times[i],
            min_samples_split,
            n_candidate_splits,
            lifetime,
            model,
            random_state,
            tree,
            next_row,
            leaves[i],
            n_nodes,
            ordered,
            scratch,
        )
        start = stop
    return n_nodes


@kernel
def _sample_cut_outside(
    random_state: NDArray[np.uint64],
    boxes: NDArray[np.float32],
    node: int,
    group_boxes: NDArray[np.float32],
    group: int,
    excess: float,
) -> tuple[int, np.float32, bool]:
    """Draw feature, threshold and side of a cut between a node's box and rows that exceed it.

    Feature and side are drawn in proportion to the rows' excess there, the threshold uniformly from
    the gap (Alg. 4, lines 4 and 5). It leaves the whole box on one side, and rows on the other.
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
    _copy_box(boxes, node, moved)


@kernel
def _sample_subtree(
    rows: NDArray[np.float32],
    numbers: NDArray[np.int32],
    labels: NDArray[np.float64],
    start_time: float,
    min_samples_split: int,
    n_candidate_splits: int,
    lifetime: float,
    model: LabelModel,
    random_state: NDArray[np.uint64],
    tree: Tree,
    next_row: NDArray[np.int32],
    root: int,
    n_nodes: int,
    ordered: NDArray[np.float64],
    scratch: Scratch,
) -> int:
    """Sample a block of rows below ``root``, with all that is kept; return the number of nodes.

    The root has its box already.
    """
    nodes, _, tallies = tree
    n_after = sample_block(
        rows,
        numbers,
        labels,
        start_time,
        min_samples_split,
        n_candidate_splits,
        lifetime,
        random_state,
        tree,
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


@kernel
def _set_new(
    nodes: Records,
    tallies: Records,
    model: LabelModel,
    node: int,
) -> None:
    model.set_time(nodes, node)
    model.set_node(nodes, tallies, node)
