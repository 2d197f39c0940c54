"""Where rows leave a tree, and what is predicted there: the arrays of a prediction.

``mixtures.route`` finds the exits of a block of rows and their weights; the label model fills in
the components.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .branching import Branches


class Visits(NamedTuple):
    """The nodes that some row of a block passes through; a parent comes before its children."""

    node: NDArray[np.int32]
    parent: NDArray[np.int32]
    """Position of the parent's visit; -1 at the root."""


class Exits(NamedTuple):
    """Where rows leave the tree: they branch off above a node, or they stop in it."""

    row: NDArray[np.int32]
    visit: NDArray[np.int32]
    weight: NDArray[np.float64]
    """Probability that the row leaves the tree here, w_j in the paper."""
    branch_off: NDArray[np.float64]
    """The same for a row that has come this far."""
    distance: NDArray[np.float64]
    """L1 distance between the row and the node's box, eta in the paper; 0: it ends in the leaf."""


class ExitComponents(NamedTuple):
    """The component of each exit, which is Gaussian or Student-t.

    Its variance is the sum of two parts and the noise.
    """

    location: NDArray[np.float64]
    posterior_variance: NDArray[np.float64]
    """Of the mean at the place where the row leaves the tree."""
    branch_variance: NDArray[np.float64]
    """Of what lies between this place and the row: the fresh branch, and when it branches off."""
    noise_variance: NDArray[np.float64]
    """Of a label about its mean; filled in only if the label model has local noise."""
    degrees: NDArray[np.float64]
    """Degrees of freedom; filled in only if the label model has local noise."""


class Messages(NamedTuple):
    """The downward half of belief propagation, for visited nodes only."""

    mean: NDArray[np.float64]
    """Of the message that reaches the node's parent from all but this node's subtree."""
    variance: NDArray[np.float64]


class LabelScratch(NamedTuple):
    """Scratch space for label models."""

    messages: Messages
    branches: Branches
