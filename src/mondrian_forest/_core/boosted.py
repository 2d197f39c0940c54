"""Sums of boosted trees, as gradient boosting makes them: evaluation only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays.kernel import borrowing_kernel

NO_CHILD = -1

BOOSTED_NODE = np.dtype(
    (
        np.record,
        [
            ("left", np.int32),
            ("right", np.int32),
            ("feature", np.int32),
            ("threshold", np.float64),
            ("value", np.float64),
        ],
    )
)
"""A node sends rows to the left if their feature is at most the threshold. Leaves have a value and
no children."""


@borrowing_kernel
def add_boosted(
    table: NDArray[np.float64],
    nodes: NDArray[Any],
    roots: NDArray[np.int64],
    start: int,
    stop: int,
    out: NDArray[np.float64],
) -> None:
    """Add the values of the trees from start to stop, in this order, to ``out``."""
    for tree in range(start, stop):
        root = roots[tree]
        for i in range(len(table)):
            node = root
            while nodes[node].left != NO_CHILD:
                is_left = table[i, nodes[node].feature] <= nodes[node].threshold
                node = np.int64(nodes[node].left if is_left else nodes[node].right)
            out[i] += nodes[node].value


def fault_of_boosted(nodes: NDArray[Any], roots: NDArray[np.int64], n_features: int) -> str:
    """Say what could lead ``add_boosted`` astray; nothing if all is sound."""
    n_nodes = len(nodes)
    if not np.all((roots >= 0) & (roots < n_nodes)):
        return "a boosted tree has no root"
    left, right = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
    is_leaf = left == NO_CHILD
    number = np.arange(n_nodes)
    children_follow = (left > number) & (right > number) & (left < n_nodes) & (right < n_nodes)
    if not np.all(is_leaf | children_follow):
        return "a boosted tree has no end"
    is_known = (nodes["feature"] >= 0) & (nodes["feature"] < n_features)
    if not np.all(is_leaf | is_known):
        return "a boosted tree asks for a feature that is not there"
    if not (np.all(np.isfinite(nodes["value"])) and np.all(np.isfinite(nodes["threshold"]))):
        return "a number in a boosted tree is not finite"
    return ""
