"""How trees grow: in a batch, row by row, and in pieces."""

from __future__ import annotations

from typing import NamedTuple

MOST_CANDIDATES = 2**15
"""The most cuts to choose from; more make no difference."""


class Growth(NamedTuple):
    """How trees grow, the same for all trees of a forest."""

    min_samples_split: int
    """A node with fewer rows is a leaf."""
    n_candidate_splits: int
    """Cuts to choose from at every node; one is the paper."""
    lifetime: float
    """No node is split after this time; may be infinite."""
