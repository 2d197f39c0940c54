"""The label model over a given tree: tallies of labels, hyperparameters, upward messages.

Nothing here changes the structure of a tree. The label models start from the same tallies and fill
the same fields of a node:

- ``HIERARCHICAL``, the Gaussian prior of section 3: ``location`` and ``precision`` are the
  evidence, what the labels below the node say of its mean: the upward half of belief propagation.
  The message from above is carried along the path during prediction, so that a new row changes one
  path and not every node. ``share`` is ``remaining_share`` at the node's time: kept, since
  prediction would need an exponential for each node that it passes, and one for the sibling.
- ``EMPIRICAL``, the approximation of appendix C: mean and inverse variance of the node's labels.
- ``PRUNED``, see ``pruning``.

``degrees`` are the degrees of freedom of a new label, infinite in the first two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import AHEAD, inner_kernel, kernel, prefetch, wide
from ..arrays.tree import NO_CHILD, Records
from .pruned import set_pruning

HIERARCHICAL = 0
EMPIRICAL = 1
PRUNED = 2


class Hyperparameters(NamedTuple):
    """The paper's mu_H, gamma_1, gamma_2 and sigma_y^2."""

    prior_mean: float
    prior_scale: float
    prior_rate: float
    noise_variance: float


SMALLEST_NOISE = 1e-5
"""Variance of the error of a label under ``PRUNED``, at least, as a share of that of all labels."""
_SMALLEST = 5e-324


class LabelSums(NamedTuple):
    """Number, mean and sum of squared deviations of all labels seen."""

    n_rows: int
    mean: float
    squared_deviation: float

    def plus(self, other: LabelSums) -> LabelSums:
        n_rows = self.n_rows + other.n_rows
        difference = other.mean - self.mean
        share = other.n_rows / n_rows
        between = difference * difference * self.n_rows * share
        if difference != 0.0:
            between = max(between, _SMALLEST)
        return LabelSums(
            n_rows,
            self.mean + difference * share,
            self.squared_deviation + other.squared_deviation + between,
        )


def heuristic_hyperparameters(
    n_rows: int,
    n_features: int,
    label_mean: float,
    squared_deviation: float,
    prior_mean: float | None = None,
    prior_scale: float | None = None,
    prior_rate: float | None = None,
    noise_variance: float | None = None,
) -> Hyperparameters:
    """Fill in the hyperparameters that are None by the heuristic of appendix B.

    Where the heuristic is undefined it is extended: a sample without any spread is given unit
    variance (there is nothing to learn a scale from), and one row counts as two in ``log2 N``.
    """
    if prior_mean is None:
        prior_mean = label_mean
    noise_ratio = min(2000, 2 * n_rows)  # K in the paper
    if prior_scale is None:
        difference = label_mean - prior_mean
        variance = squared_deviation / n_rows + difference * difference
        if variance == 0.0:
            variance = 1.0
        prior_scale = variance / (0.5 + 1.0 / noise_ratio)
    if prior_rate is None:
        prior_rate = n_features / (20.0 * math.log2(max(n_rows, 2)))
    if noise_variance is None:
        noise_variance = prior_scale / noise_ratio
    return Hyperparameters(prior_mean, prior_scale, prior_rate, noise_variance)


def pruned_hyperparameters(
    n_rows: int,
    label_mean: float,
    squared_deviation: float,
    resolution: float,
    prior_mean: float | None = None,
    prior_scale: float | None = None,
    prior_rate: float | None = None,
    noise_variance: float | None = None,
) -> Hyperparameters:
    """Fill in the hyperparameters of ``PRUNED`` that are None.

    Only the root's prior and the error of labels matter to it. Labels that are rounded to multiples
    of ``resolution`` have an error of that size; nothing else is known of it, but that it is small.
    """
    if prior_mean is None:
        prior_mean = label_mean
    difference = label_mean - prior_mean
    variance = squared_deviation / n_rows + difference * difference
    if variance == 0.0:
        variance = 1.0
    if prior_scale is None:
        prior_scale = 2.0 * variance
    if prior_rate is None:
        prior_rate = 1.0  # no matter what
    if noise_variance is None:
        noise_variance = max(SMALLEST_NOISE * variance, resolution * resolution / 12.0)
    return Hyperparameters(prior_mean, prior_scale, prior_rate, noise_variance)


@kernel
def order_labels(
    labels: NDArray[np.float64], row_order: NDArray[np.int32], ordered: NDArray[np.float64]
) -> None:
    """Gather labels; in a loop of nothing else, many of the cache misses overlap."""
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


@kernel
def remaining_share(prior_rate: float, time: float) -> float:
    """Return the share of ``prior_scale`` that is still to come: sigmoid(-rate time).

    Differences of this function keep their digits where the sigmoid itself is close to one.
    """
    # np.exp, which overflows to infinity also where kernels run uncompiled
    share: float = 1.0 / (1.0 + np.exp(prior_rate * time))
    return share


@inner_kernel
def message_precision(precision: float, edge_variance: float) -> float:
    """Return the precision of the message that crosses an edge: 1 / (1 / precision + variance).

    Written without the reciprocal of the precision, which is zero where there are no labels.
    """
    return precision / (1.0 + precision * edge_variance)


@kernel
def renew_posterior(
    nodes: Records,
    tallies: Records,
    posterior: int,
    hyperparameters: Hyperparameters,
    parents_first: NDArray[np.int32],
) -> None:
    """Compute what the label model says of each node, from its tallies alone."""
    for i in range(len(parents_first) - 1, -1, -1):
        prefetch(nodes, parents_first[max(i - 2 * AHEAD, 0)])
        prefetch_family(nodes, tallies, parents_first[max(i - AHEAD, 0)])
        node = wide(parents_first[i])
        set_share(nodes, posterior, hyperparameters, node)
        set_posterior(nodes, tallies, posterior, hyperparameters, node)


@inner_kernel
def prefetch_family(nodes: Records, tallies: Records, node: int) -> None:
    """Ask for all that ``set_posterior`` needs but the node itself, whose record must be here."""
    child = nodes[node].left_child
    prefetch(nodes, child)
    prefetch(nodes, child + 1)  # a record may begin in one cache line and end in the next
    prefetch(nodes, child + 2)
    prefetch(tallies, node)
    prefetch(tallies, child)
    prefetch(tallies, child + 1)


@inner_kernel
def set_share(nodes: Records, posterior: int, hyperparameters: Hyperparameters, node: int) -> None:
    """Set what a label model derives from the time of a node alone."""
    if posterior != PRUNED:
        record = nodes[node]
        record.share = remaining_share(hyperparameters.prior_rate, record.split_time)
        record.degrees = np.float32(np.inf)


@inner_kernel
def set_posterior(
    nodes: Records,
    tallies: Records,
    posterior: int,
    hyperparameters: Hyperparameters,
    node: int,
) -> None:
    """Set location and precision of a node from its tally and from its children.

    For ``PRUNED``, set those of its children, and its own if it is the root.
    """
    if posterior == PRUNED:
        set_pruning(nodes, tallies, hyperparameters, node)
        return
    record = nodes[node]
    tally = tallies[node]
    left = wide(record.left_child)
    if posterior == EMPIRICAL:
        record.location = tally.label_mean
        record.precision = tally.n_samples / tally.squared_deviation
    elif left == NO_CHILD:
        record.location = tally.label_mean
        record.precision = tally.n_samples / hyperparameters.noise_variance
    else:  # the product of the children's messages
        left_precision = edge_precision(nodes, hyperparameters, node, left)
        right_precision = edge_precision(nodes, hyperparameters, node, left + 1)
        precision = left_precision + right_precision
        record.precision = precision
        record.location = nodes[left].location
        if precision > 0.0:
            difference = nodes[left + 1].location - nodes[left].location
            record.location += difference * (right_precision / precision)


@inner_kernel
def edge_precision(
    nodes: Records, hyperparameters: Hyperparameters, node: int, child: int
) -> float:
    """Return the precision of the message from a child to its parent."""
    edge_variance = hyperparameters.prior_scale * (nodes[node].share - nodes[child].share)
    return message_precision(nodes[child].precision, edge_variance)


@kernel
def _log_normal_density(deviation: float, variance: float) -> float:
    return -0.5 * (math.log(2.0 * math.pi * variance) + deviation * deviation / variance)


@kernel
def log_marginal_likelihood(
    nodes: Records, tallies: Records, hyperparameters: Hyperparameters
) -> float:
    """Return log p(labels | tree), the by-product of message passing.

    A product of two Gaussian messages is a Gaussian times the density of their difference; the
    logarithms of these factors, and of what the labels of a leaf leave over, add up to the
    logarithm of the marginal likelihood.
    """
    noise_variance = hyperparameters.noise_variance
    total = _log_normal_density(
        nodes[0].location - hyperparameters.prior_mean,
        1.0 / nodes[0].precision + hyperparameters.prior_scale * (0.5 - nodes[0].share),
    )
    for node in range(len(nodes)):
        left = nodes[node].left_child
        if left == NO_CHILD:
            n_samples = tallies[node].n_samples
            if n_samples > 0:
                # prod_i N(y_i | mu, s) = N(mean | mu, s / n) * what is added here
                total -= 0.5 * (
                    (n_samples - 1) * math.log(2.0 * math.pi * noise_variance)
                    + math.log(n_samples)
                    + tallies[node].squared_deviation / noise_variance
                )
            continue
        left_precision = edge_precision(nodes, hyperparameters, node, left)
        right_precision = edge_precision(nodes, hyperparameters, node, left + 1)
        if left_precision > 0.0 and right_precision > 0.0:
            total += _log_normal_density(
                nodes[left + 1].location - nodes[left].location,
                1.0 / left_precision + 1.0 / right_precision,
            )
    return total
