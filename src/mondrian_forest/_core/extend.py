"""Online learning: rows join a tree (Alg. 3 and 4), with the law of a batch fit.

The paper's Alg. 4 adds one row. Here a group of rows goes down the tree together, as in sampling
and in prediction, and meets each node once. What Alg. 4 asks of one row is asked of the group: the
box that the group needs exceeds the node's box by a certain length (summed over features and
sides), and cuts through the excess arrive at that rate. If the first comes before the node's own
time, the rows beyond the cut leave and are sampled as a block of their own, from the time of the
cut on, and the others go on below it; if none does, the box grows and the group is divided by the
node's own cut. A group of one row is Alg. 4 to the letter.

Alg. 4 also treats every leaf as if it had been split until there was nothing left to split. That
breaks the law as soon as ``min_samples_split`` is above 2: a row would be cut off from a leaf that
a batch fit would not have split. Here a leaf with too few rows just takes the new ones in; once it
has enough, it is sampled on its own rows, from its parent's time on. That is what a batch fit would
have done, since until then nothing depended on how these rows are split. A leaf that had enough
rows before has survived to the end of its time, be it the lifetime, or, where all its rows are
equal, for ever; it is treated like an inner node.

Nothing changes but the nodes that the group has met: boxes on the way down, all the rest, which
depends on the children, on the way back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel, prefetch
from .posterior import (
    Hyperparameters,
    merge_tallies,
    set_posterior,
    set_share,
    tally_labels,
)
from .rng import exponential, uniform
from .sample import bounding_box, link_rows, partition, sample_block, uniform_between
from .tree import NO_CHILD, NO_ROW, Records, Tree
from .vector import padded_width


@kernel
def extend_trees(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    end: int,
    min_samples_split: int,
    lifetime: float,
    posterior: int,
    hyperparameters: Hyperparameters,
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
    for number in range(first, stop):
        begin = tallies[number, 0].n_samples
        if begin < end:
            sizes[number] = extend_tree(
                rows,
                labels,
                begin,
                end,
                min_samples_split,
                lifetime,
                posterior,
                hyperparameters,
                random_states[number],
                Tree(nodes[number], boxes[number], tallies[number]),
                next_row[number],
                sizes[number],
            )


@kernel
def extend_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    begin: int,
    end: int,
    min_samples_split: int,
    lifetime: float,
    posterior: int,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    tree: Tree,
    next_row: NDArray[np.int32],
    n_nodes: int,
) -> int:
    """Let the rows from ``begin`` to ``end`` join the tree; return its number of nodes.

    All arrays must have room for them.
    """
    nodes, boxes, tallies = tree
    n_features = rows.shape[1]
    width = padded_width(n_features)
    joining = np.empty((end - begin, width), dtype=np.float32)  # so that groups are neighbours
    joining[:, :n_features] = rows[begin:end]
    numbers = np.arange(begin, end).astype(np.int32)
    low = np.empty(n_features, dtype=np.float32)
    high = np.empty(n_features, dtype=np.float32)
    # Groups still to be followed, as in `sample_block`. Below the children's groups an empty group
    # waits for the way back: by then the children are up to date, and still in the cache.
    waiting = np.empty((64, 3), dtype=np.int64)  # node, first row, end of rows
    waiting_time = np.empty(64, dtype=np.float64)  # from which on the group may be cut off
    waiting[0, 0] = 0
    waiting[0, 1] = 0
    waiting[0, 2] = end - begin
    waiting_time[0] = 0.0
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting, 0]
        start = waiting[n_waiting, 1]
        stop = waiting[n_waiting, 2]
        start_time = waiting_time[n_waiting]
        if start == stop:
            merge_tallies(nodes, tallies, node)
            set_posterior(nodes, tallies, posterior, hyperparameters, node)
            continue
        if n_waiting + 3 > len(waiting):
            waiting = np.concatenate((waiting, np.empty_like(waiting)))
            waiting_time = np.concatenate((waiting_time, np.empty_like(waiting_time)))
        waiting[n_waiting, 2] = start
        n_waiting += 1
        record = nodes[node]
        tally = tallies[node]
        left_child = record.left_child
        is_leaf = left_child == NO_CHILD
        if not is_leaf:  # so that the next level arrives while this one is looked at
            prefetch(nodes, left_child)
            prefetch(nodes, left_child + 1)
            prefetch(boxes, left_child)
            prefetch(boxes, left_child + 1)
            prefetch(tallies, left_child)
        bounding_box(joining, start, stop, low, high)
        excess = 0.0
        for f in range(n_features):
            excess += max(np.float64(boxes[node, 0, f]) - np.float64(low[f]), 0.0)
            excess += max(np.float64(high[f]) - np.float64(boxes[node, 1, f]), 0.0)
        has_waited = is_leaf and tally.n_samples < min_samples_split
        if excess > 0.0 and not has_waited:
            time = start_time + exponential(random_state, excess)  # Alg. 4, line 2
            if time < min(record.split_time, lifetime):
                feature, threshold, is_above = _sample_cut_outside(
                    random_state, boxes[node, 0], boxes[node, 1], low, high, excess
                )
                middle = partition(joining, numbers, start, stop, feature, threshold)
                moved = n_nodes if is_above else n_nodes + 1
                beyond = n_nodes + 1 if is_above else n_nodes
                _insert_parent(tree, node, moved, n_nodes, feature, threshold, time, low, high)
                set_share(nodes, hyperparameters, node)
                first = middle if is_above else start
                last = stop if is_above else middle
                n_nodes = _sample_subtree(
                    joining[first:last],
                    numbers[first:last],
                    labels,
                    time,
                    min_samples_split,
                    lifetime,
                    posterior,
                    hyperparameters,
                    random_state,
                    tree,
                    next_row,
                    beyond,
                    n_nodes + 2,
                )
                if last - first < stop - start:
                    waiting[n_waiting, 0] = moved
                    waiting[n_waiting, 1] = start if is_above else middle
                    waiting[n_waiting, 2] = middle if is_above else stop
                    waiting_time[n_waiting] = time
                    n_waiting += 1
                continue
        if excess > 0.0:
            for f in range(n_features):  # Alg. 4, line 11
                boxes[node, 0, f] = min(boxes[node, 0, f], low[f])
                boxes[node, 1, f] = max(boxes[node, 1, f], high[f])
        if not is_leaf:
            middle = partition(
                joining, numbers, start, stop, record.split_feature, record.threshold
            )
            for side in range(1, -1, -1):  # the left child ends on top and is followed first
                first = middle if side == 1 else start
                last = stop if side == 1 else middle
                if first < last:
                    waiting[n_waiting, 0] = left_child + side
                    waiting[n_waiting, 1] = first
                    waiting[n_waiting, 2] = last
                    waiting_time[n_waiting] = record.split_time
                    n_waiting += 1
            continue
        n_waiting -= 1  # a leaf has nothing to wait for
        for i in range(start, stop):
            number = numbers[i]
            next_row[number] = tally.first_row
            tally.first_row = number
            tally.n_samples += 1
            deviation = labels[number] - tally.label_mean
            tally.label_mean += deviation / tally.n_samples
            tally.squared_deviation += deviation * (labels[number] - tally.label_mean)
        if has_waited and tally.n_samples >= min_samples_split:
            own_rows = np.empty((tally.n_samples, width), dtype=np.float32)
            own_numbers = np.empty(tally.n_samples, dtype=np.int32)
            number = tally.first_row
            for i in range(tally.n_samples):
                own_numbers[i] = number
                for f in range(n_features):
                    own_rows[i, f] = rows[number, f]
                number = next_row[number]
            n_nodes = _sample_subtree(
                own_rows,
                own_numbers,
                labels,
                start_time,
                min_samples_split,
                lifetime,
                posterior,
                hyperparameters,
                random_state,
                tree,
                next_row,
                node,
                n_nodes,
            )
        else:
            set_posterior(nodes, tallies, posterior, hyperparameters, node)
    return n_nodes


@kernel
def _sample_cut_outside(
    random_state: NDArray[np.uint64],
    lower: NDArray[np.float32],
    upper: NDArray[np.float32],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    excess: float,
) -> tuple[int, np.float32, bool]:
    """Draw feature, threshold and side of a cut between a box and rows that exceed it.

    Feature and side are drawn in proportion to the rows' excess there, the threshold uniformly from
    the gap (Alg. 4, lines 4 and 5). It leaves the whole box on one side, and rows on the other.
    """
    position = uniform(random_state) * excess
    feature, is_above = 0, False
    for side in range(2 * len(lower)):
        f = side // 2
        if side % 2 == 0:
            gap = np.float64(lower[f]) - np.float64(low[f])
        else:
            gap = np.float64(high[f]) - np.float64(upper[f])
        if gap > 0.0:
            # Remembered in case rounding carries the position past the last gap.
            feature, is_above = f, side % 2 == 1
            if position < gap:
                break
            position -= gap
    if is_above:
        threshold = uniform_between(random_state, upper[feature], high[feature])
    else:
        threshold = uniform_between(random_state, low[feature], lower[feature])
    return feature, threshold, is_above


@kernel
def _insert_parent(
    tree: Tree,
    node: int,
    moved: int,
    left_child: int,
    feature: int,
    threshold: np.float32,
    time: float,
    low: NDArray[np.float32],
    high: NDArray[np.float32],
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
    for f in range(boxes.shape[2]):
        boxes[moved, 0, f] = boxes[node, 0, f]
        boxes[moved, 1, f] = boxes[node, 1, f]
        boxes[node, 0, f] = min(boxes[node, 0, f], low[f])
        boxes[node, 1, f] = max(boxes[node, 1, f], high[f])


@kernel
def _sample_subtree(
    rows: NDArray[np.float32],
    numbers: NDArray[np.int32],
    labels: NDArray[np.float64],
    start_time: float,
    min_samples_split: int,
    lifetime: float,
    posterior: int,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    tree: Tree,
    next_row: NDArray[np.int32],
    root: int,
    n_nodes: int,
) -> int:
    """Sample a block of rows below ``root``, with all that is kept; return the number of nodes."""
    nodes, _, tallies = tree
    n_after = sample_block(
        rows,
        numbers,
        start_time,
        min_samples_split,
        lifetime,
        random_state,
        tree,
        root,
        n_nodes,
    )
    tally_labels(nodes, tallies, labels, numbers, n_nodes, n_after)
    tally_labels(nodes, tallies, labels, numbers, root, root + 1)
    link_rows(nodes, tallies, numbers, next_row, n_nodes, n_after)
    link_rows(nodes, tallies, numbers, next_row, root, root + 1)
    for node in range(n_after - 1, n_nodes - 1, -1):
        _set_new(nodes, tallies, posterior, hyperparameters, node)
    _set_new(nodes, tallies, posterior, hyperparameters, root)
    return n_after


@kernel
def _set_new(
    nodes: Records,
    tallies: Records,
    posterior: int,
    hyperparameters: Hyperparameters,
    node: int,
) -> None:
    set_share(nodes, hyperparameters, node)
    set_posterior(nodes, tallies, posterior, hyperparameters, node)
