"""The arrays that make up one Mondrian tree.

Children are neighbours: the right child of node j is ``left_child[j] + 1``, so one index is stored
and both children, which prediction reads together, share cache lines. The root is node 0. A batch
fit numbers nodes depth first, children after their parent; online learning appends nodes and keeps
no order. Arrays may have room for more nodes than there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel

NO_CHILD = -1
NO_ROW = -1


class Tree(NamedTuple):
    """Structure of a Mondrian tree, label-free; see the notation table of ``_core``.

    Per node: 28 bytes, and 8 bytes for each feature.
    """

    left_child: NDArray[np.int32]
    split_feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    split_time: NDArray[np.float64]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    n_samples: NDArray[np.int32]
    height: NDArray[np.int32]
    """Number of edges between the node and the deepest leaf below it."""

    @property
    def n_nodes(self) -> int:
        return len(self.left_child)

    @property
    def depth(self) -> int:
        """Number of edges between the root and the deepest leaf."""
        return int(self.height[0])


class RowOrder(NamedTuple):
    """Which rows each node holds, as sampling leaves them: row numbers that are neighbours."""

    first: NDArray[np.int32]
    """By node: it holds ``order[first[j] : first[j] + n_samples[j]]``."""
    order: NDArray[np.int32]


class RowLists(NamedTuple):
    """Which rows each leaf holds, as learning needs them: a linked list for each leaf."""

    first: NDArray[np.int32]
    """By node: the first row of a leaf, ``NO_ROW`` at other nodes."""
    next: NDArray[np.int32]
    """By row: the next row of the same leaf, ``NO_ROW`` at the end."""


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
        height=np.empty(n_nodes, dtype=np.int32),
    )


Arrays = TypeVar("Arrays", bound=tuple[NDArray[Any], ...])


def shrink(arrays: Arrays, length: int) -> Arrays:
    """Give back the room behind the first ``length`` entries of each array, in place."""
    for array in arrays:
        # A reallocation instead of a copy: large blocks are returned to the system page by page.
        array.resize((length, *array.shape[1:]), refcheck=False)
    return arrays


def view(arrays: Arrays, length: int) -> Arrays:
    """Return the first ``length`` entries of each array, without a copy."""
    return _remake(arrays, [array[:length] for array in arrays])


def enlarge(arrays: Arrays, room: int) -> Arrays:
    """Return copies of the arrays with room for ``room`` entries."""

    def copy(array: NDArray[Any]) -> NDArray[Any]:
        larger = np.empty((room, *array.shape[1:]), dtype=array.dtype)
        larger[: len(array)] = array
        return larger

    return _remake(arrays, [copy(array) for array in arrays])


def _remake(arrays: Arrays, members: list[NDArray[Any]]) -> Arrays:
    make = getattr(arrays, "_make", tuple)  # a NamedTuple, or a plain tuple
    return cast(Arrays, make(members))


@kernel
def parents_first(tree: Tree) -> NDArray[np.int32]:
    """Return all node numbers, each parent before its children."""
    order = np.empty(len(tree.left_child), dtype=np.int32)
    waiting = np.empty(tree.height[0] + 2, dtype=np.int32)
    waiting[0] = 0
    n_waiting = 1
    n_found = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        order[n_found] = node
        n_found += 1
        if tree.left_child[node] != NO_CHILD:
            waiting[n_waiting] = tree.left_child[node] + 1
            waiting[n_waiting + 1] = tree.left_child[node]
            n_waiting += 2
    return order[:n_found]
