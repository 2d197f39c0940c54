"""The label model of the pruned posterior: an average over all prunings of a tree.

A pruned tree is the tree with some of its inner nodes turned into leaves. A priori each inner node
that is reached is turned into one with probability 1/2. The labels in a leaf of the pruned tree are
normal, with a mean and a variance of their own; these have the conjugate prior, normal-inverse-
gamma, centred on the mean and the variance of the labels in the node's parent. So each node has a
closed form for the marginal density of its labels, ``own``, and a Student-t distribution for a new
one. The sum over all prunings is a recursion (context-tree weighting of Willems, Shtarkov and
Tjalkens, 1995): with ``below`` the product of the children's averages,

    average = own / 2 + below / 2    (own, at a leaf of the tree),

and a pruned tree that reaches a node stops there with probability (own / 2) / average.

Labels are taken to be known up to an error of variance ``noise_variance``: a node full of equal
labels would have no variance otherwise.

A node's fields are those of other label models, with another meaning: ``share`` is the logit of the
probability to stop, ``location``, ``precision`` (inverse of the squared scale) and ``degrees`` are
the Student-t distribution. They depend on the tallies of the node and of its parent, hence are set
when the parent's are known; a new row changes those on its path and their siblings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.kernel import kernel, wide
from ..arrays.tree import NO_CHILD, Records

if TYPE_CHECKING:
    from .posterior import Hyperparameters

PRIOR_COUNT = 0.25
"""How many labels the prior mean of a node is worth."""
PRIOR_SHAPE = 1.5
"""Of the inverse gamma prior of its variance: worth twice as many labels. Above 1, so that every
predictive variance is finite."""
_LOG_TWO = math.log(2.0)
_CONSTANT = 0.5 * math.log(PRIOR_COUNT) - math.lgamma(PRIOR_SHAPE)


@kernel
def count_of(degrees: Any) -> Any:
    """Return what the mean of a node is worth in labels, from its degrees of freedom."""
    return degrees - 2.0 * PRIOR_SHAPE + PRIOR_COUNT


@kernel
def set_pruning(
    nodes: Records, tallies: Records, hyperparameters: Hyperparameters, node: int
) -> None:
    """Set the fields of a node's children, and of the node itself if it is the root."""
    tally = tallies[node]
    noise_variance = hyperparameters.noise_variance
    left = wide(nodes[node].left_child)
    tally.evidence_below = 0.0
    if left != NO_CHILD:
        mean = tally.label_mean
        # The unbiased estimate: otherwise two labels, however far apart, look like two groups.
        variance = tally.squared_deviation / (tally.n_samples - 1) + noise_variance
        tally.evidence_below = _set_node(
            nodes, tallies, noise_variance, left, mean, variance
        ) + _set_node(nodes, tallies, noise_variance, left + 1, mean, variance)
    if node == 0:
        _set_node(
            nodes,
            tallies,
            noise_variance,
            wide(0),
            hyperparameters.prior_mean,
            0.5 * hyperparameters.prior_scale + noise_variance,
        )


@kernel
def _set_node(
    nodes: Records,
    tallies: Records,
    noise_variance: float,
    node: int,
    parent_mean: float,
    parent_variance: float,
) -> float:
    """Set the fields of one node; return the logarithm of its average over prunings.

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
        + n_samples * noise_variance
        + deviation * deviation * (PRIOR_COUNT * n_samples / count)
    )
    record.location = parent_mean + deviation * (n_samples / count)
    record.precision = shape * count / (rate * (count + 1.0))
    record.degrees = np.float32(2.0 * shape)
    own = (
        _CONSTANT
        + math.lgamma(shape)
        + PRIOR_SHAPE * math.log(prior_rate / rate)
        - 0.5 * n_samples * math.log(rate)
        - 0.5 * math.log(count)
    )
    if record.left_child == NO_CHILD:
        record.share = np.inf
        return own
    logit: float = own - tally.evidence_below
    record.share = logit
    # log(own / 2 + below / 2), from the larger of the two
    return max(own, own - logit) + math.log1p(math.exp(-abs(logit))) - _LOG_TWO
