"""Tallies: number, mean and squared deviation of the labels in each node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import inner_kernel, kernel, prefetch
from ..arrays.tree import NO_CHILD, Records


@kernel
def order_labels(
    labels: NDArray[np.float64], row_order: NDArray[np.int32], ordered: NDArray[np.float64]
) -> None:
    """Gather labels; in a loop that does nothing else, many of the cache misses overlap."""
    for i in range(len(row_order)):
        ordered[i] = labels[row_order[i]]


@kernel
def tally_labels(
    nodes: Records, tallies: Records, ordered: NDArray[np.float64], start: int, stop: int
) -> None:
    """Tally the labels in the nodes from start to stop, as sampled: children after parents.

    ``ordered`` has the labels in the order of ``RowOrder``.
    """
    for node in range(stop - 1, start - 1, -1):
        if nodes[node].left_child != NO_CHILD:
            merge_tallies(nodes, tallies, node)
            continue
        # Two passes over a handful of labels: more accurate than one, and faster than Welford's
        # division for each label.
        tally = tallies[node]
        first = tally.first_row
        last = first + tally.n_samples
        total = 0.0
        for i in range(first, last):
            total += ordered[i]
        mean = total / (last - first)
        squared_deviation = 0.0
        correction = 0.0
        for i in range(first, last):
            deviation = ordered[i] - mean
            correction += deviation
            squared_deviation += deviation * deviation
        tally.label_mean = mean + correction / (last - first)
        tally.squared_deviation = squared_deviation


@inner_kernel
def merge_tallies(nodes: Records, tallies: Records, node: int) -> None:
    """Set the tally of an inner node from those of its children."""
    tally = tallies[node]
    left = tallies[nodes[node].left_child]
    right = tallies[nodes[node].left_child + 1]
    tally.n_samples = left.n_samples + right.n_samples
    tally.height = 1 + max(left.height, right.height)
    share_of_right = right.n_samples / tally.n_samples
    difference = right.label_mean - left.label_mean
    tally.label_mean = left.label_mean + difference * share_of_right
    tally.squared_deviation = (
        left.squared_deviation
        + right.squared_deviation
        + difference * difference * left.n_samples * share_of_right
    )


@inner_kernel
def prefetch_family(nodes: Records, tallies: Records, node: int) -> None:
    """Ask for all that a label model needs to set a node, whose own record must be here."""
    child = nodes[node].left_child
    prefetch(nodes, child)
    prefetch(nodes, child + 1)  # a record may begin in one cache line and end in the next
    prefetch(nodes, child + 2)
    prefetch(tallies, node)
    prefetch(tallies, child)
    prefetch(tallies, child + 1)
