"""The partition that a tree makes of the feature space: boxes of rows, and cuts inside the boxes.

A Mondrian tree cuts the box of the rows in a node, and leaves the space between boxes uncut (the
paper's Figure 1, right).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.tree import NO_CHILD, Tree


class Partition(NamedTuple):
    """The boxes and cuts of a tree, in the units of the tree's boxes."""

    boxes: NDArray[np.float32]
    """Shape (n_boxes, 2, n_features): lower and upper corner of each node's box."""
    cuts: NDArray[np.float32]
    """Shape (n_cuts, 2, n_features): two opposite corners of each cut, which is a flat box."""
    times: NDArray[np.float64]
    """Shape (n_cuts,): time of each cut."""


def partition_of(tree: Tree, lifetime: float = math.inf) -> Partition:
    """Return the partition that consists of the cuts before ``lifetime``.

    Times increase from a parent to its children, so that all ancestors of a cut that is made before
    ``lifetime`` are made before it, too.
    """
    is_cut = (tree.left_child != NO_CHILD) & (tree.split_time < lifetime)
    parents = np.flatnonzero(is_cut)
    exists = np.zeros(tree.n_nodes, dtype=bool)
    exists[0] = True
    exists[tree.left_child[parents]] = True
    exists[tree.left_child[parents] + 1] = True
    # A cut crosses its node's box, except along the feature that is cut.
    cuts = tree.boxes[parents]
    cuts[np.arange(len(parents)), :, tree.split_feature[parents]] = tree.threshold[parents, None]
    return Partition(tree.boxes[exists], cuts, tree.split_time[parents])
