"""The pruned posterior: an average over all prunings of a tree.

A pruned tree is the tree with some of its inner nodes turned into leaves. A priori each inner node
that is reached is turned into one with probability ``prior_stop``. The labels in a leaf of the
pruned tree are normal, with a mean and a variance of their own. These have the conjugate prior,
normal-inverse-gamma, centred on the mean and the variance of the labels in the node's parent. So
each node has a closed form for the marginal density of its labels, and a Student-t distribution for
a new one.

The children's priors know the parent's labels, so the product of the children's densities is no
density of these labels. But given mean and variance of the labels in the parent, it is one up to a
constant, and mean and variance of a node that is cut have a prior of their own: that of a leaf,
flattened. So a cut is judged by

    cut = density(left) density(right) / (own^(1 - FLATTENING) self^FLATTENING constant),

where ``own`` is the density of the node's labels as a leaf, ``self`` is what it would be with a
prior centred on their own mean and variance, and the constant, a function of the numbers of rows,
makes ``own cut`` a density of the labels. The sum over all prunings is a recursion (context-tree
weighting of Willems, Shtarkov and Tjalkens, 1995):

    gain = cut average(left) average(right)
    average = prior_stop + (1 - prior_stop) gain     (1, at a leaf of the tree),

so that ``own average`` is the density of the labels in a node, and a pruned tree that reaches the
node stops there with probability prior_stop / average.

Cuts that are chosen among k by the labels fit too well: the best of k numbers whose means are 1 has
a mean of up to k. And the mean of many trees wants deeper trees than each of them does. So
``prior_stop`` is learned from held-out rows, see ``_forest.pruning``.

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
from numpy.typing import NDArray

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
FLATTENING = 0.3
"""How much flatter the prior of a node that is cut is. With 0, nodes in which labels repeat are not
cut, and their distributions are too wide: on twelve tables the mean NLPD was -0.25 with 0, -0.30
with 0.3 and -0.28 with 1, for which there is no constant."""
_SMALLER = np.log(np.array([1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0]))
_RATIO = np.log(np.array([1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0]))
_EXCESS = np.array(
    [
        (-0.0867, -0.0933, -0.1000, -0.0863, -0.0483, 0.0221, 0.1004, 0.0894, 0.0184),
        (-0.1438, -0.1489, -0.1404, -0.1114, -0.0536, 0.0355, 0.1171, 0.0959, 0.0187),
        (-0.1701, -0.1704, -0.1580, -0.1215, -0.0548, 0.0416, 0.1235, 0.0983, 0.0188),
        (-0.1965, -0.1927, -0.1750, -0.1308, -0.0555, 0.0473, 0.1290, 0.1002, 0.0189),
        (-0.2220, -0.2134, -0.1904, -0.1388, -0.0558, 0.0521, 0.1334, 0.1017, 0.0191),
        (-0.2433, -0.2300, -0.2026, -0.1449, -0.0561, 0.0555, 0.1364, 0.1028, 0.0194),
        (-0.2521, -0.2366, -0.2073, -0.1472, -0.0562, 0.0568, 0.1375, 0.1032, 0.0197),
        (-0.2556, -0.2392, -0.2092, -0.1481, -0.0562, 0.0573, 0.1380, 0.1038, 0.0282),
    ]
)
"""By the logarithms of the number of rows in the smaller child, and of how many times as many the
larger one has: the logarithm of the mean of density(left) density(right) over all labels with the
parent's mean and variance, less that of the density of the parent's labels under the same prior.
The tests compute it by quadrature."""
_INVERSE = np.array([0.0, 1.0 / 9.0, 0.25, 1.0 / 3.0, 0.5, 1.0])
_FLATNESS = np.array([0.3793, 0.4171, 0.4697, 0.5041, 0.5795, 0.8694])
"""By 1 / (n - 1) for n rows: the logarithm of the mean of (self / own)^FLATTENING over all labels
that a leaf may have. The tests compute it by quadrature as well."""
_CONSTANT = 0.5 * math.log(PRIOR_COUNT) - math.lgamma(PRIOR_SHAPE)


@kernel_methods
class Pruned(NamedTuple):
    """The label model of the default. The first two numbers are the prior of the root."""

    prior_mean: float
    prior_scale: float
    noise_variance: float
    prior_stop: float
    """Prior probability that an inner node is turned into a leaf."""

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
        prior_stop: float | None = None,
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
        if prior_stop is None:
            prior_stop = summary.prior_stop
        return cls(prior_mean, prior_scale, noise_variance, prior_stop)

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
    tally.log_gain = 0.0
    if left != NO_CHILD:
        n_samples = np.float64(tally.n_samples)
        # The unbiased estimate: otherwise two labels, however far apart, look like two groups.
        variance = tally.squared_deviation / (n_samples - 1.0) + model.noise_variance
        squares = tally.squared_deviation + n_samples * model.noise_variance
        centred = _log_density(n_samples, squares, PRIOR_SHAPE * variance)
        log_gain = -FLATTENING * centred - _log_constant(tallies, left)
        for child in range(left, left + 2):
            log_gain += _set_from_parent(model, nodes, tallies, child, tally.label_mean, variance)
        tally.log_gain = log_gain
    if node == 0:
        variance = 0.5 * model.prior_scale + model.noise_variance
        _set_from_parent(model, nodes, tallies, wide(0), model.prior_mean, variance)


@inner_kernel
def _log_average(prior_stop: float, log_gain: float) -> float:
    """Return the logarithm of the average over the prunings of a subtree, from its gain."""
    larger = max(0.0, log_gain)
    stopping, going_on = math.exp(-larger), math.exp(log_gain - larger)
    log_average: float = larger + math.log(prior_stop * stopping + (1.0 - prior_stop) * going_on)
    return log_average


@inner_kernel
def _set_from_parent(
    model: Pruned,
    nodes: Records,
    tallies: Records,
    node: int,
    parent_mean: float,
    parent_variance: float,
) -> float:
    """Set the fields of a node; return the log density of the labels in and below it."""
    record, tally = nodes[node], tallies[node]
    n_samples = np.float64(tally.n_samples)
    count = PRIOR_COUNT + n_samples
    shape = PRIOR_SHAPE + 0.5 * n_samples
    deviation = tally.label_mean - parent_mean
    squares = (
        tally.squared_deviation
        + n_samples * model.noise_variance
        + deviation * deviation * (PRIOR_COUNT * n_samples / count)
    )
    prior_rate = PRIOR_SHAPE * parent_variance
    rate = prior_rate + 0.5 * squares
    record.location = parent_mean + deviation * (n_samples / count)
    record.precision = shape * count / (rate * (count + 1.0))
    record.n_samples = tally.n_samples
    own = _log_density(n_samples, squares, prior_rate)
    if record.left_child == NO_CHILD:
        record.share = np.inf
        return own
    log_gain = tally.log_gain - (1.0 - FLATTENING) * own
    record.share = math.log(model.prior_stop / (1.0 - model.prior_stop)) - log_gain
    return own + _log_average(model.prior_stop, log_gain)


@inner_kernel
def _log_density(n_samples: float, squares: float, prior_rate: float) -> float:
    """Return the log marginal density of labels, without the power of 2 pi.

    ``squares`` is the sum of their squared deviations from their mean, with what the distance of
    this mean from the prior mean adds.
    """
    count = PRIOR_COUNT + n_samples
    shape = PRIOR_SHAPE + 0.5 * n_samples
    rate = prior_rate + 0.5 * squares
    log_density: float = (
        _CONSTANT
        + math.lgamma(shape)
        + PRIOR_SHAPE * math.log(prior_rate / rate)
        - 0.5 * n_samples * math.log(rate)
        - 0.5 * math.log(count)
    )
    return log_density


@inner_kernel
def _log_constant(tallies: Records, left: int) -> float:
    """Return the logarithm of the constant of a cut, from the numbers of rows of its children."""
    n_left, n_right = tallies[left].n_samples, tallies[left + 1].n_samples
    return log_excess(n_left, n_right) + log_flatness(n_left + n_right)


@borrowing_kernel
def log_flatness(n_samples: int) -> float:
    """Return an entry of ``_FLATNESS``, interpolated between the numbers that it has."""
    inverse = 1.0 / (np.float64(n_samples) - 1.0)
    i = _place(_INVERSE, inverse)
    p = (inverse - _INVERSE[i]) / (_INVERSE[i + 1] - _INVERSE[i])
    flatness: float = (1.0 - p) * _FLATNESS[i] + p * _FLATNESS[i + 1]
    return flatness


@borrowing_kernel
def log_excess(n_left: int, n_right: int) -> float:
    """Return an entry of ``_EXCESS``, interpolated between the numbers that it has."""
    smaller = math.log(np.float64(min(n_left, n_right)))
    ratio = math.log(np.float64(max(n_left, n_right))) - smaller
    i = _place(_SMALLER, smaller)
    j = _place(_RATIO, ratio)
    p = min((smaller - _SMALLER[i]) / (_SMALLER[i + 1] - _SMALLER[i]), 1.0)
    q = min((ratio - _RATIO[j]) / (_RATIO[j + 1] - _RATIO[j]), 1.0)
    low = (1.0 - q) * _EXCESS[i, j] + q * _EXCESS[i, j + 1]
    high = (1.0 - q) * _EXCESS[i + 1, j] + q * _EXCESS[i + 1, j + 1]
    excess: float = (1.0 - p) * low + p * high
    return excess


@inner_kernel
def _place(points: NDArray[np.float64], value: float) -> int:
    """Return the number of the interval between ascending points that holds a value."""
    i = wide(0)
    while i < len(points) - 2 and points[i + 1] <= value:
        i += 1
    return i
