"""Tallies: number, mean and squared deviation of the labels in each node."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import borrowing_kernel, inner_kernel, prefetch
from ..arrays.tree import NO_CHILD, Records
from ..moments import Moments, add_label, merge, moments_of


@borrowing_kernel
def order_labels(
    labels: NDArray[np.float64], row_order: NDArray[np.int32], ordered: NDArray[np.float64]
) -> None:
    """Gather labels; in a loop that does nothing else, many of the cache misses overlap."""
    for i in range(len(row_order)):
        ordered[i] = labels[row_order[i]]


@borrowing_kernel
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
        tally = tallies[node]
        first = tally.first_row
        found = moments_of(ordered, first, first + tally.n_samples)
        tally.label_mean, tally.squared_deviation = found.mean, found.squared_deviation


@inner_kernel
def merge_tallies(nodes: Records, tallies: Records, node: int) -> None:
    """Set the tally of an inner node from those of its children."""
    tally = tallies[node]
    left = tallies[nodes[node].left_child]
    right = tallies[nodes[node].left_child + 1]
    tally.height = 1 + max(left.height, right.height)
    merged = merge(_moments_in(left), _moments_in(right))
    tally.n_samples = merged.n_samples
    tally.label_mean = merged.mean
    tally.squared_deviation = merged.squared_deviation


@inner_kernel
def _moments_in(tally: Any) -> Moments:
    return Moments(tally.n_samples, tally.label_mean, tally.squared_deviation)


@inner_kernel
def add_row(tallies: Records, node: int, next_row: NDArray[np.int32], row: int, y: float) -> None:
    """Let a row with the label ``y`` join a leaf and the list of its rows."""
    tally = tallies[node]
    next_row[row] = tally.first_row
    tally.first_row = row
    found = add_label(_moments_in(tally), y)
    tally.n_samples = found.n_samples
    tally.label_mean = found.mean
    tally.squared_deviation = found.squared_deviation


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
