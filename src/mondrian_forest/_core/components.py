"""The Gaussian components of a prediction: what a label model says where a row leaves the tree.

``predict.route`` finds these places and their weights from the structure alone; the functions here
add location and variance, for the hierarchical posterior (section 3) and for the empirical one
(appendix C).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from .kernel import kernel
from .posterior import (
    EMPIRICAL,
    Hyperparameters,
    message_precision,
    remaining_share,
)
from .tree import Records

Vector = NDArray[np.float64]


def _power_series(function: Callable[[Vector], Vector], degree: int) -> Vector:
    """Return coefficients of a near-minimax polynomial for ``function`` on [0, 1/2].

    A Taylor series would need three times as many terms for the same accuracy.
    """
    fitted = Chebyshev.interpolate(function, degree, domain=[0.0, 0.5])
    return np.asarray(fitted.convert(kind=Polynomial, domain=[-1.0, 1.0]).coef, dtype=np.float64)


_SERIES = _power_series(lambda y: 1.0 / (1.0 - y), 13)
_SQUARED_SERIES = _power_series(lambda y: 1.0 / (1.0 - y) ** 2, 13)


class Visits(NamedTuple):
    """The nodes that some row of a block passes through; a parent stands before its children."""

    node: NDArray[np.int32]
    parent: NDArray[np.int32]
    """Position of the parent's visit; -1 at the root."""


class Exits(NamedTuple):
    """Where rows leave the tree: above a node, by branching off, or in a leaf."""

    row: NDArray[np.int32]
    visit: NDArray[np.int32]
    weight: NDArray[np.float64]
    """Probability that the row leaves the tree here, w_j in the paper."""
    branch_off: NDArray[np.float64]
    """The same for a row that has come this far."""
    distance: NDArray[np.float64]
    """L1 distance between the row and the node's box, eta in the paper; 0: it ends in the leaf."""


class Components(NamedTuple):
    """A Gaussian for each exit; its variance is the sum of two parts and the noise."""

    location: NDArray[np.float64]
    posterior_variance: NDArray[np.float64]
    """Of the mean at the place where the row leaves the tree."""
    branch_variance: NDArray[np.float64]
    """Of what lies between this place and the row: the fresh branch, and when it branches off."""


class MessagesFromAbove(NamedTuple):
    """The downward half of belief propagation, for visited nodes only."""

    mean: NDArray[np.float64]
    """Of the message that reaches the node's parent from all but this node's subtree."""
    variance: NDArray[np.float64]


@kernel
def fill_components(
    nodes: Records,
    posterior: int,
    hyperparameters: Hyperparameters,
    lifetime: float,
    visits: Visits,
    exits: Exits,
    messages: MessagesFromAbove,
    components: Components,
) -> None:
    """Fill in the component of every exit under the given label model."""
    if posterior == EMPIRICAL:
        empirical_components(nodes, visits, exits, components)
        return
    send_messages_down(nodes, hyperparameters, visits, messages)
    hierarchical_components(nodes, hyperparameters, lifetime, visits, messages, exits, components)


@kernel
def send_messages_down(
    nodes: Records,
    hyperparameters: Hyperparameters,
    visits: Visits,
    messages: MessagesFromAbove,
) -> None:
    """Fill in the message from above at each visited node.

    At the root it is the prior mean itself. For a child of node j it is the message at j, carried
    across j's edge and multiplied with the message of the child's sibling.
    """
    prior_scale = hyperparameters.prior_scale
    for visit in range(len(visits.node)):
        node = visits.node[visit]
        above = visits.parent[visit]
        if above < 0:
            messages.mean[visit] = hyperparameters.prior_mean
            messages.variance[visit] = 0.0
            continue
        parent = visits.node[above]
        grandparent_share = 0.5
        if visits.parent[above] >= 0:
            grandparent_share = nodes[visits.node[visits.parent[above]]].share
        share = nodes[parent].share
        variance = messages.variance[above] + prior_scale * (grandparent_share - share)
        left = nodes[parent].left_child
        sibling = left + left + 1 - node
        precision = message_precision(
            nodes[sibling].precision, prior_scale * (share - nodes[sibling].share)
        )
        gain = 1.0 + precision * variance
        shift = nodes[sibling].location - messages.mean[above]
        messages.mean[visit] = messages.mean[above] + shift * (precision * variance / gain)
        messages.variance[visit] = variance / gain


@kernel
def hierarchical_components(
    nodes: Records,
    hyperparameters: Hyperparameters,
    lifetime: float,
    visits: Visits,
    messages: MessagesFromAbove,
    exits: Exits,
    components: Components,
) -> None:
    """Fill in the components of the hierarchical posterior, with exact mean and variance.

    A row that branches off above a node, after the variance x has accumulated on the node's edge,
    hangs on a point whose mean is known through the product of the message from above and the
    node's evidence, both carried to x. Location and variance there are linear and quadratic in x;
    the fresh branch adds the rest of the prior variance.
    """
    prior_scale = hyperparameters.prior_scale
    prior_rate = hyperparameters.prior_rate
    last_share = remaining_share(prior_rate, lifetime)  # nothing branches off after the lifetime
    for e in range(len(exits.row)):
        visit = exits.visit[e]
        node = visits.node[visit]
        parent_share = 0.5
        if visits.parent[visit] >= 0:
            parent_share = nodes[visits.node[visits.parent[visit]]].share
        above_mean = messages.mean[visit]
        above_variance = messages.variance[visit]
        edge_variance = prior_scale * (parent_share - nodes[node].share)
        precision = nodes[node].precision
        # Change of the location for each unit of variance between the point and what is above.
        slope = (nodes[node].location - above_mean) * (
            precision / (1.0 + precision * (above_variance + edge_variance))
        )
        if exits.distance[e] == 0.0:  # ends in the leaf: the leaf's own posterior
            node_variance = above_variance + edge_variance
            components.location[e] = above_mean + slope * node_variance
            components.posterior_variance[e] = node_variance / (1.0 + precision * node_variance)
            components.branch_variance[e] = 0.0
            continue
        # 1 - exp(-gamma_2 duration) of the edge, by the shares at its ends
        end_share = max(nodes[node].share, last_share)
        progress = 1.0
        if parent_share > 0.0:
            progress = (parent_share - end_share) / (parent_share * (1.0 - end_share))
        mean, variance = branch_variance_moments(
            parent_share, exits.distance[e] / prior_rate, progress, exits.branch_off[e]
        )
        mean *= prior_scale
        # Never the square of prior_scale, which may be out of range where its products are not.
        components.location[e] = above_mean + slope * (above_variance + mean)
        at_mean = (above_variance + mean) * (1.0 + precision * (edge_variance - mean))
        correction = (precision * prior_scale) * (prior_scale * variance)
        components.posterior_variance[e] = max(at_mean - correction, 0.0) / (
            1.0 + precision * (above_variance + edge_variance)
        )
        components.branch_variance[e] = (
            max(prior_scale * parent_share - mean, 0.0) + (slope * prior_scale) ** 2 * variance
        )


@kernel
def branch_variance_moments(
    start_share: float, rate_ratio: float, progress: float, branch_off: float
) -> tuple[float, float]:
    """Mean and variance of the prior variance that is accumulated until a row branches off.

    The branch time t is exponential with rate eta, truncated to the edge from time p to time j.
    In units of gamma_1 the variance accumulated since p is, with c = sigmoid(-gamma_2 p)
    (``start_share``) and s = 1 - exp(-gamma_2 (t - p)),

        x = c - sigmoid(-gamma_2 t) = c (1 - c) s / (1 - c s),

    where c <= 1/2 and s <= 1. So x is a polynomial in s, and its square another one, with a
    relative error of 4e-11 and 8e-10 (``_SERIES``, ``_SQUARED_SERIES``), and the
    moments of s obey a two-term recursion (integrate by parts; a = eta / gamma_2 is
    ``rate_ratio``, S = 1 - exp(-gamma_2 (j - p)) is ``progress``, q is the probability
    ``branch_off`` that t falls on the edge at all):

        (a + k) E[s^k] = k E[s^(k-1)] - a (1 - q) / q S^k.

    A Gauss-Legendre rule on the probability scale needs a logarithm and an exponential per node,
    and at leaves, where the integrand has an algebraic singularity, it converges slowly: the mean
    is off by up to 0.9 % with 8 nodes and by 0.06 % with 32.
    """
    boundary = rate_ratio * (1.0 - branch_off) / branch_off
    first = 0.0  # E[s / (1 - c s)]
    second = 0.0  # E[(s / (1 - c s))^2]
    if branch_off + progress > 0.01:
        progress_power = progress
        moment = (1.0 - boundary * progress) / (rate_ratio + 1.0)
        share_power = 1.0
        for k in range(len(_SERIES)):
            first += _SERIES[k] * share_power * moment  # here moment is E[s^(k+1)]
            progress_power *= progress
            # Divisions stay off the chain from one moment to the next.
            inverse = 1.0 / (rate_ratio + (k + 2))
            moment = moment * ((k + 2) * inverse) - (boundary * progress_power) * inverse
            term = _SQUARED_SERIES[k] * share_power * moment
            second += term
            share_power *= start_share
            if abs(term) <= 1e-12 * second:
                break
    else:
        # Where both S and q are small, the recursion loses digits upwards. Downwards it damps the
        # error of a crude start by 1e-9; moment is E[(s / S)^k], and the sums are Horner's.
        ratio = start_share * progress
        moment = 1.0 / 7.0  # k = 6, s uniform
        for k in range(6, 1, -1):
            first = first * ratio + moment
            second = second * ratio + (k - 1) * moment
            moment = progress * ((rate_ratio + k) * moment + boundary) * (1.0 / k)
        first = progress * (first * ratio + moment)
        second *= progress * progress
    factor = start_share * (1.0 - start_share)
    largest = factor * progress / (1.0 - start_share * progress)
    # Within the bounds of any variable from 0 to `largest`: else rounding could give a component
    # less variance than a leaf has, or a negative one.
    mean = min(factor * first, largest)
    variance = min(factor * factor * second - mean * mean, mean * (largest - mean))
    return mean, max(variance, 0.0)


@kernel
def empirical_components(
    nodes: Records, visits: Visits, exits: Exits, components: Components
) -> None:
    """Fill in the components of appendix C: mean and variance of the labels in the node."""
    for e in range(len(exits.row)):
        record = nodes[visits.node[exits.visit[e]]]
        components.location[e] = record.location
        components.posterior_variance[e] = 1.0 / record.precision
        components.branch_variance[e] = 0.0
