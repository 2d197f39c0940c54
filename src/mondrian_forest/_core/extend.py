"""Online learning: rows join a tree one by one (Alg. 3 and 4), with the law of a batch fit.

The paper's Alg. 4 treats every leaf as if it had been split until there was nothing left to split.
That breaks the law as soon as ``min_samples_split`` is above 2: a row would be cut off from a leaf
that a batch fit would not have split. Here a leaf with too few rows just takes the new row in; once
it has enough, it is sampled on its own rows, from its parent's time on. That is what a batch fit
would have done, since until then nothing depended on how these rows are split. Inner nodes, and
leaves with enough rows, follow Alg. 4; such a leaf has survived to the end of its time, be it the
lifetime, or, where all its rows are equal, for ever.

A row changes one path only: boxes, counts, moments and evidence of the nodes on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel
from .posterior import (
    Evidence,
    Hyperparameters,
    LabelMoments,
    fill_moments,
    merge_moments,
    message_precision,
    set_leaf_evidence,
    set_share,
)
from .rng import exponential, uniform
from .sample import link_rows, sample_block, uniform_between
from .tree import NO_CHILD, NO_ROW, RowLists, Tree


@kernel
def extend_tree(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    begin: int,
    end: int,
    min_samples_split: int,
    lifetime: float,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_lists: RowLists,
    moments: LabelMoments,
    evidence: Evidence,
    n_nodes: int,
) -> int:
    """Let the rows from ``begin`` to ``end`` join the tree; return the new number of nodes.

    All arrays must have room for them. Evidence is kept up to date unless its arrays are empty.
    """
    n_features = rows.shape[1]
    has_evidence = len(evidence.mean) > 0
    prior_scale = hyperparameters.prior_scale
    noise_variance = hyperparameters.noise_variance
    path = np.empty(64, dtype=np.int32)
    for number in range(begin, end):
        label = labels[number]
        node = 0
        parent_time = 0.0
        length = 0
        while True:
            if length == len(path):
                path = np.concatenate((path, np.empty_like(path)))
            path[length] = node
            length += 1
            distance = 0.0
            for f in range(n_features):
                value = np.float64(rows[number, f])
                low, high = np.float64(tree.lower[node, f]), np.float64(tree.upper[node, f])
                distance += max(low - value, value - high, 0.0)
            left = tree.left_child[node]
            n_samples = tree.n_samples[node]
            waits_for_rows = left == NO_CHILD and n_samples < min_samples_split
            if distance > 0.0 and not waits_for_rows:
                time = parent_time + exponential(random_state, distance)  # Alg. 4, line 2
                if time < min(tree.split_time[node], lifetime):
                    _insert_parent(
                        rows,
                        number,
                        label,
                        time,
                        distance,
                        hyperparameters,
                        random_state,
                        tree,
                        row_lists,
                        moments,
                        evidence,
                        node,
                        n_nodes,
                    )
                    n_nodes += 2
                    break
            if distance > 0.0:
                for f in range(n_features):  # Alg. 4, line 11
                    tree.lower[node, f] = min(tree.lower[node, f], rows[number, f])
                    tree.upper[node, f] = max(tree.upper[node, f], rows[number, f])
            tree.n_samples[node] = n_samples + 1
            deviation = label - moments.mean[node]
            moments.mean[node] += deviation / (n_samples + 1)
            moments.squared_deviation[node] += deviation * (label - moments.mean[node])
            if left == NO_CHILD:
                row_lists.next[number] = row_lists.first[node]
                row_lists.first[node] = number
                if waits_for_rows and n_samples + 1 >= min_samples_split:
                    n_nodes = _split_leaf(
                        rows,
                        labels,
                        parent_time,
                        min_samples_split,
                        lifetime,
                        hyperparameters,
                        random_state,
                        tree,
                        row_lists,
                        moments,
                        evidence,
                        node,
                        n_nodes,
                    )
                break
            parent_time = tree.split_time[node]
            goes_right = rows[number, tree.split_feature[node]] > tree.threshold[node]
            node = int(left) + int(goes_right)
        # Bring heights and evidence up to date from the leaf to the root: `set_height`,
        # `set_leaf_evidence` and `merge_evidence` written out, since calls with arrays cost atomic
        # reference counts, for which threads wait for each other.
        for k in range(length - 1, -1, -1):
            node = int(path[k])
            left = tree.left_child[node]
            if left == NO_CHILD:
                if has_evidence:
                    evidence.mean[node] = moments.mean[node]
                    evidence.precision[node] = tree.n_samples[node] / noise_variance
                continue
            right = left + 1
            tree.height[node] = 1 + max(tree.height[left], tree.height[right])
            if has_evidence:
                share = evidence.share[node]
                left_precision = message_precision(
                    evidence.precision[left], prior_scale * (share - evidence.share[left])
                )
                right_precision = message_precision(
                    evidence.precision[right], prior_scale * (share - evidence.share[right])
                )
                precision = left_precision + right_precision
                difference = evidence.mean[right] - evidence.mean[left]
                evidence.precision[node] = precision
                evidence.mean[node] = evidence.mean[left] + difference * (
                    right_precision / precision
                )
    return n_nodes


@kernel
def _insert_parent(
    rows: NDArray[np.float32],
    number: int,
    label: float,
    time: float,
    distance: float,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_lists: RowLists,
    moments: LabelMoments,
    evidence: Evidence,
    node: int,
    n_nodes: int,
) -> None:
    r"""Cut a row off above ``node`` (Alg. 4, lines 4 to 9).

    The new parent takes over the number of the node, so that the grandparent need not know; the
    node moves to ``n_nodes`` or ``n_nodes + 1``, and the row gets a leaf of its own beside it::

             node                    node: new parent
            /    \        ->         /              \
          ...    ...            moved node      leaf of the row     (or the other way round)
    """
    feature, threshold = _sample_cut_outside(random_state, tree, node, rows, number, distance)
    row_goes_left = rows[number, feature] <= threshold
    leaf = n_nodes if row_goes_left else n_nodes + 1
    moved = n_nodes + 1 if row_goes_left else n_nodes

    tree.left_child[moved] = tree.left_child[node]
    tree.split_feature[moved] = tree.split_feature[node]
    tree.threshold[moved] = tree.threshold[node]
    tree.split_time[moved] = tree.split_time[node]
    tree.n_samples[moved] = tree.n_samples[node]
    tree.height[moved] = tree.height[node]
    row_lists.first[moved] = row_lists.first[node]
    moments.mean[moved] = moments.mean[node]
    moments.squared_deviation[moved] = moments.squared_deviation[node]

    tree.left_child[leaf] = NO_CHILD
    tree.split_feature[leaf] = -1
    tree.threshold[leaf] = np.float32(np.nan)
    tree.split_time[leaf] = np.inf
    tree.n_samples[leaf] = 1
    tree.height[leaf] = 0
    row_lists.first[leaf] = number
    row_lists.next[number] = NO_ROW
    moments.mean[leaf] = label
    moments.squared_deviation[leaf] = 0.0

    for f in range(rows.shape[1]):
        value = rows[number, f]
        tree.lower[leaf, f] = tree.upper[leaf, f] = value
        tree.lower[moved, f] = tree.lower[node, f]
        tree.upper[moved, f] = tree.upper[node, f]
        tree.lower[node, f] = min(tree.lower[node, f], value)
        tree.upper[node, f] = max(tree.upper[node, f], value)

    tree.left_child[node] = n_nodes
    tree.split_feature[node] = feature
    tree.threshold[node] = threshold
    tree.split_time[node] = time
    tree.n_samples[node] += 1
    row_lists.first[node] = NO_ROW
    merge_moments(tree, moments, node)
    if len(evidence.mean) > 0:
        evidence.mean[moved] = evidence.mean[node]
        evidence.precision[moved] = evidence.precision[node]
        evidence.share[moved] = evidence.share[node]
        set_share(tree, hyperparameters, evidence, node)
        set_leaf_evidence(tree, moments, hyperparameters, evidence, leaf)


@kernel
def _sample_cut_outside(
    random_state: NDArray[np.uint64],
    tree: Tree,
    node: int,
    rows: NDArray[np.float32],
    number: int,
    distance: float,
) -> tuple[int, np.float32]:
    """Draw feature and threshold of a cut between the box of a node and a row outside it.

    The feature is drawn in proportion to the row's distance in it, the threshold uniformly from
    the gap (Alg. 4, lines 4 and 5); ``start <= threshold < stop``, so that it separates them.
    """
    position = uniform(random_state) * distance
    feature = 0
    for f in range(rows.shape[1]):
        value = np.float64(rows[number, f])
        gap = max(
            np.float64(tree.lower[node, f]) - value, value - np.float64(tree.upper[node, f]), 0.0
        )
        if gap > 0.0:
            # Remembered in case rounding carries the position past the last gap.
            feature = f
            if position < gap:
                break
            position -= gap
    start, stop = tree.upper[node, feature], rows[number, feature]
    if stop < start:
        start, stop = stop, tree.lower[node, feature]
    return feature, uniform_between(random_state, start, stop)


@kernel
def _split_leaf(
    rows: NDArray[np.float32],
    labels: NDArray[np.float64],
    parent_time: float,
    min_samples_split: int,
    lifetime: float,
    hyperparameters: Hyperparameters,
    random_state: NDArray[np.uint64],
    tree: Tree,
    row_lists: RowLists,
    moments: LabelMoments,
    evidence: Evidence,
    leaf: int,
    n_nodes: int,
) -> int:
    """Sample a leaf on its own rows from its parent's time on; return the new number of nodes."""
    n_rows = tree.n_samples[leaf]
    block = np.empty((n_rows, rows.shape[1]), dtype=np.float32)
    numbers = np.empty(n_rows, dtype=np.int32)
    number = row_lists.first[leaf]
    for i in range(n_rows):
        numbers[i] = number
        for f in range(rows.shape[1]):
            block[i, f] = rows[number, f]
        number = row_lists.next[number]
    n_after = sample_block(
        block,
        numbers,
        parent_time,
        min_samples_split,
        lifetime,
        random_state,
        tree,
        row_lists.first,
        leaf,
        n_nodes,
    )
    fill_moments(tree, labels, row_lists.first, numbers, moments, n_nodes, n_after)
    link_rows(tree, numbers, row_lists, leaf, leaf + 1)
    link_rows(tree, numbers, row_lists, n_nodes, n_after)
    if len(evidence.mean) > 0:
        # The leaf had just enough rows to be split, so that its children, if any, are leaves.
        for node in range(n_nodes, n_after):
            set_leaf_evidence(tree, moments, hyperparameters, evidence, node)
        set_share(tree, hyperparameters, evidence, leaf)
    return n_after
