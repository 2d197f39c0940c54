"""The pruned posterior: an average over all prunings of a tree.

A pruned tree is the tree with some of its inner nodes turned into leaves. A priori each inner node
that is reached is turned into one with probability 1/2. The labels in a leaf of the pruned tree are
normal, with a mean and a variance of their own. These have the conjugate prior, normal-inverse-
gamma, centred on the mean and the variance of the labels in the node's parent. So each node has a
closed form for the marginal density of its labels, ``own``, and a Student-t distribution for a new
one. The sum over all prunings is a recursion (context-tree weighting of Willems, Shtarkov and
Tjalkens, 1995): with ``below`` the product of the children's averages,

    average = own / 2 + below / (2 k)    (own, at a leaf of the tree),

and a pruned tree that reaches a node stops there with probability (own / 2) / average.

Here k is the price of a choice. A cut that was chosen among k, because it suits the labels, must
suit them k times as well: the best of k numbers with a mean of 1 has a mean of at most k. Without
the price, forests learned from labels that are pure noise.

Labels are taken to be known up to an error of variance ``noise_variance``: otherwise a node full of
equal labels would have no variance.

``share`` of a node is the logit of the probability to stop. ``location``, ``precision`` (inverse of
the squared scale) and ``n_samples`` give the Student-t distribution. They depend on the tallies of
the node and of its parent, so they are set when the parent's tally is known. A new row changes the
nodes on its path and their siblings.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel_methods, wide
from ..arrays.tree import NO_CHILD, Records
from .exits import ExitComponents, Exits, LabelScratch, Visits
from .model import Summary

SMALLEST_NOISE = 1e-5
"""The least variance of the error of a label, as a share of the variance of all labels."""
PRIOR_COUNT = 0.25
"""How many labels the prior mean of a node is worth."""
PRIOR_SHAPE = 1.5
"""Of the inverse gamma prior of its variance: worth twice as many labels. Above 1, so that every
predictive variance is finite."""
_MANY_WAYS = 17
"""So many rows can be parted in more ways than the most candidates that a forest may have."""
_LOG_TWO = math.log(2.0)
_CONSTANT = 0.5 * math.log(PRIOR_COUNT) - math.lgamma(PRIOR_SHAPE)


@kernel_methods
class Pruned(NamedTuple):
    """The label model of the default. The first two numbers are the prior of the root."""

    prior_mean: float
    prior_scale: float
    noise_variance: float
    n_choices: float = 1.0
    """From how many cuts that of a node was chosen."""

    @classmethod
    def name(cls) -> str:
        return "pruned"

    @classmethod
    def estimate(
        cls,
        summary: Summary,
        /,
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        noise_variance: float | None = None,
    ) -> Pruned:
        """Fill in the hyperparameters that are None.

        Labels that are rounded to multiples of the resolution have an error of that size. Nothing
        else is known about the error, except that it is small.
        """
        if prior_mean is None:
            prior_mean = summary.labels.mean
        variance = summary.variance_about(prior_mean)
        if prior_scale is None:
            prior_scale = 2.0 * variance
        if noise_variance is None:
            rounding = summary.resolution * summary.resolution / 12.0
            noise_variance = max(SMALLEST_NOISE * variance, rounding)
        return cls(prior_mean, prior_scale, noise_variance, float(summary.n_choices))

    @inner_kernel
    def set_time(self, nodes: Records, node: int) -> None:
        """Do nothing: times do not matter to prunings."""

    @inner_kernel
    def set_node(self, nodes: Records, tallies: Records, node: int) -> None:
        set_children(self, nodes, tallies, node)

    @inner_kernel
    def is_sound(self, record: Any) -> bool:
        return bool(0.0 < record.precision < np.inf and not math.isnan(record.share))

    @inner_kernel
    def stops_inside(self) -> bool:
        return True

    @inner_kernel
    def stop_probability(self, record: Any) -> float:
        # np.exp, which overflows to infinity also where kernels run uncompiled
        probability: float = 1.0 / (1.0 + np.exp(-record.share))
        return probability

    @inner_kernel
    def has_local_noise(self) -> bool:
        return True

    @borrowing_kernel
    def fill_components(
        self,
        nodes: Records,
        lifetime: float,  # noqa: ARG002
        visits: Visits,
        n_visits: int,  # noqa: ARG002
        exits: Exits,
        n_exits: int,
        scratch: LabelScratch,  # noqa: ARG002
        components: ExitComponents,
    ) -> None:
        """Fill in what a label is in the node where the pruned tree ends, or a row branches off."""
        visited, _ = visits
        _, exit_visit, _, _, _ = exits
        locations, posterior_variances, branch_variances, noise_variances, all_degrees = components
        for e in range(n_exits):
            record = nodes[visited[exit_visit[e]]]
            locations[e] = record.location
            degrees = 2.0 * PRIOR_SHAPE + record.n_samples
            squared_scale = 1.0 / record.precision
            count = PRIOR_COUNT + record.n_samples
            variance = squared_scale * (degrees / (degrees - 2.0))
            posterior_variances[e] = variance / (count + 1.0)
            branch_variances[e] = 0.0
            noise_variances[e] = variance * (count / (count + 1.0))
            all_degrees[e] = degrees


@borrowing_kernel
def set_children(model: Pruned, nodes: Records, tallies: Records, node: int) -> None:
    """Set the fields of a node's children, and of the node itself if it is the root."""
    tally = tallies[node]
    left = wide(nodes[node].left_child)
    tally.evidence_below = 0.0
    tally.priced_below = 0.0
    if left != NO_CHILD:
        mean = tally.label_mean
        # The unbiased estimate: otherwise two labels, however far apart, look like two groups.
        variance = tally.squared_deviation / (tally.n_samples - 1) + model.noise_variance
        for child in range(left, left + 2):
            average, priced = _set_from_parent(model, nodes, tallies, child, mean, variance)
            tally.evidence_below += average
            tally.priced_below += priced
        tally.priced_below -= _price(model.n_choices, tally.n_samples)
    if node == 0:
        variance = 0.5 * model.prior_scale + model.noise_variance
        _set_from_parent(model, nodes, tallies, wide(0), model.prior_mean, variance)


@inner_kernel
def _price(n_choices: float, n_samples: int) -> float:
    """Return the logarithm of what a chosen cut costs: few rows can be parted in few ways."""
    if n_choices > 1.0 and n_samples < _MANY_WAYS:
        n_choices = min(n_choices, 2.0 ** (n_samples - 1) - 1.0)
    return math.log(n_choices)


@borrowing_kernel
def _set_from_parent(
    model: Pruned,
    nodes: Records,
    tallies: Records,
    node: int,
    parent_mean: float,
    parent_variance: float,
) -> tuple[float, float]:
    """Set the fields of one node; return the logarithms of its averages over prunings.

    Factors that are the same for all prunings, powers of 2 pi, are left out.
    """
    record = nodes[node]
    tally = tallies[node]
    n_samples = np.float64(tally.n_samples)
    count = PRIOR_COUNT + n_samples
    shape = PRIOR_SHAPE + 0.5 * n_samples
    prior_rate = PRIOR_SHAPE * parent_variance
    deviation = tally.label_mean - parent_mean
    rate = prior_rate + 0.5 * (
        tally.squared_deviation
        + n_samples * model.noise_variance
        + deviation * deviation * (PRIOR_COUNT * n_samples / count)
    )
    record.location = parent_mean + deviation * (n_samples / count)
    record.precision = shape * count / (rate * (count + 1.0))
    record.n_samples = tally.n_samples
    own = (
        _CONSTANT
        + math.lgamma(shape)
        + PRIOR_SHAPE * math.log(prior_rate / rate)
        - 0.5 * n_samples * math.log(rate)
        - 0.5 * math.log(count)
    )
    if record.left_child == NO_CHILD:
        record.share = np.inf
        return own, own
    record.share = own - (tally.priced_below if node == 0 else tally.evidence_below)
    return _log_mean(own, tally.evidence_below), _log_mean(own, tally.priced_below)


@inner_kernel
def _log_mean(first: float, second: float) -> float:
    """Return the logarithm of the mean of two numbers, from their logarithms."""
    larger = max(first, second)
    log_mean: float = larger + math.log1p(math.exp(-abs(first - second))) - _LOG_TWO
    return log_mean
