"""The arrays that make up one Mondrian tree.

Children are neighbours: the right child of node j is ``left_child[j] + 1``, so one index is stored
and both children, which prediction reads together, share cache lines. Children come after their
parent; the root is node 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_CHILD = -1


class Tree(NamedTuple):
    """Structure of a Mondrian tree, label-free; see the notation table of ``_core``.

    Per node: 24 bytes, and 8 bytes for each feature.
    """

    left_child: NDArray[np.int32]
    split_feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    split_time: NDArray[np.float64]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    n_samples: NDArray[np.int32]
    depth: int
    """Number of edges between the root and the deepest leaf."""

    @property
    def n_nodes(self) -> int:
        return len(self.left_child)


def allocate_tree(n_nodes: int, n_features: int) -> Tree:
    """Return a tree with room for ``n_nodes`` nodes and undefined content.

    Memory that is never written to is never committed by the operating system, so asking for too
    much costs address space only.
    """
    return Tree(
        left_child=np.empty(n_nodes, dtype=np.int32),
        split_feature=np.empty(n_nodes, dtype=np.int32),
        threshold=np.empty(n_nodes, dtype=np.float32),
        split_time=np.empty(n_nodes, dtype=np.float64),
        lower=np.empty((n_nodes, n_features), dtype=np.float32),
        upper=np.empty((n_nodes, n_features), dtype=np.float32),
        n_samples=np.empty(n_nodes, dtype=np.int32),
        depth=0,
    )


def shrink_tree(tree: Tree, n_nodes: int, depth: int) -> Tree:
    """Give back the room behind the first ``n_nodes`` nodes, in place, and set the depth."""
    for array in tree[:-1]:
        # A reallocation instead of a copy: large blocks are returned to the system page by page.
        array.resize((n_nodes, *array.shape[1:]), refcheck=False)
    return tree._replace(depth=depth)
