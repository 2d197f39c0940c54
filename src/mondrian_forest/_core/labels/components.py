"""The components of a prediction: what a label model says where a row leaves the tree.

``predict.route`` finds these places and their weights; the functions here add location and
variance, for the hierarchical posterior (section 3), for the empirical one (appendix C) and for
the pruned one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..arrays.tree import Records
from ..mixtures.series import power_series
from .posterior import (
    EMPIRICAL,
    Hyperparameters,
    message_precision,
    remaining_share,
)
from .pruned import count_of

_SERIES = power_series(lambda y: 1.0 / (1.0 - y), 13, 0.5)
_SQUARED_SERIES = power_series(lambda y: 1.0 / (1.0 - y) ** 2, 13, 0.5)


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
    """A Gaussian for each exit; its variance is the sum of two parts and the noise.

    Under the pruned posterior it is a Student-t, with a noise of its own.
    """

    location: NDArray[np.float64]
    posterior_variance: NDArray[np.float64]
    """Of the mean at the place where the row leaves the tree."""
    branch_variance: NDArray[np.float64]
    """Of what lies between this place and the row: the fresh branch, and when it branches off."""
    noise_variance: NDArray[np.float64]
    """Of a label about its mean; filled in for the pruned posterior only, as are the degrees."""
    degrees: NDArray[np.float64]


BLOCK = 16


class Branches(NamedTuple):
    """Rows that branch off on some edge, ``BLOCK`` of them: see ``branch_variance_moments``."""

    start_share: NDArray[np.float64]
    rate_ratio: NDArray[np.float64]
    progress: NDArray[np.float64]
    branch_off: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


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
    n_visits: int,
    exits: Exits,
    n_exits: int,
    messages: MessagesFromAbove | None,
    components: Components,
) -> None:
    """Fill in the component of every exit under the given label model.

    There are messages under the hierarchical posterior only. Since None is a type, the code for
    messages is not compiled, which takes seconds, before somebody needs it.
    """
    if messages is None:
        if posterior == EMPIRICAL:
            empirical_components(nodes, visits, exits, n_exits, components)
        else:
            pruned_components(nodes, visits, exits, n_exits, components)
    else:
        send_messages_down(nodes, hyperparameters, visits, n_visits, messages)
        hierarchical_components(
            nodes, hyperparameters, lifetime, visits, messages, exits, n_exits, components
        )


@kernel
def send_messages_down(
    nodes: Records,
    hyperparameters: Hyperparameters,
    visits: Visits,
    n_visits: int,
    messages: MessagesFromAbove,
) -> None:
    """Fill in the message from above at each visited node.

    At the root it is the prior mean itself. For a child of node j it is the message at j, carried
    across j's edge and multiplied with the message of the child's sibling.
    """
    prior_scale = hyperparameters.prior_scale
    visited, parents = visits
    means, variances = messages
    for visit in range(n_visits):
        node = visited[visit]
        above = parents[visit]
        if above < 0:
            means[visit] = hyperparameters.prior_mean
            variances[visit] = 0.0
            continue
        parent = visited[above]
        grandparent_share = 0.5
        if parents[above] >= 0:
            grandparent_share = nodes[visited[parents[above]]].share
        share = nodes[parent].share
        variance = variances[above] + prior_scale * (grandparent_share - share)
        left = nodes[parent].left_child
        sibling = left + left + 1 - node
        precision = message_precision(
            nodes[sibling].precision, prior_scale * (share - nodes[sibling].share)
        )
        gain = 1.0 + precision * variance
        shift = nodes[sibling].location - means[above]
        means[visit] = means[above] + shift * (precision * variance / gain)
        variances[visit] = variance / gain


@kernel
def hierarchical_components(
    nodes: Records,
    hyperparameters: Hyperparameters,
    lifetime: float,
    visits: Visits,
    messages: MessagesFromAbove,
    exits: Exits,
    n_exits: int,
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
    # Unpacked, since an array taken out of a tuple costs atomic reference counts each time.
    visited, parents = visits
    above_means, above_variances = messages
    _, exit_visit, _, exit_branch_off, exit_distance = exits
    locations, posterior_variances, branch_variances, _, _ = components
    branches = Branches(
        np.full(BLOCK, 0.5),
        np.full(BLOCK, 0.5),
        np.full(BLOCK, 0.5),
        np.full(BLOCK, 0.5),
        np.empty(BLOCK),
        np.empty(BLOCK),
    )
    start_shares, rate_ratios, progresses, branch_offs, means, variances = branches
    scratch = np.empty((9, BLOCK))
    waiting = np.empty(BLOCK, dtype=np.int64)
    edges = np.empty((BLOCK, 3))  # variance of the edge, precision below it, slope
    n_waiting = 0
    for e in range(n_exits):
        visit = exit_visit[e]
        record = nodes[visited[visit]]
        parent_share = 0.5
        if parents[visit] >= 0:
            parent_share = nodes[visited[parents[visit]]].share
        above_mean = above_means[visit]
        above_variance = above_variances[visit]
        edge_variance = prior_scale * (parent_share - record.share)
        precision = record.precision
        # Change of the location for each unit of variance between the point and what is above.
        slope = (record.location - above_mean) * (
            precision / (1.0 + precision * (above_variance + edge_variance))
        )
        if exit_distance[e] == 0.0:  # ends in the leaf: the leaf's own posterior
            node_variance = above_variance + edge_variance
            locations[e] = above_mean + slope * node_variance
            posterior_variances[e] = node_variance / (1.0 + precision * node_variance)
            branch_variances[e] = 0.0
        else:
            # 1 - exp(-gamma_2 duration) of the edge, by the shares at its ends
            end_share = max(record.share, last_share)
            progress = 1.0
            if parent_share > 0.0:
                progress = (parent_share - end_share) / (parent_share * (1.0 - end_share))
            waiting[n_waiting] = e
            edges[n_waiting, 0] = edge_variance
            edges[n_waiting, 1] = precision
            edges[n_waiting, 2] = slope
            start_shares[n_waiting] = parent_share
            rate_ratios[n_waiting] = exit_distance[e] / prior_rate
            progresses[n_waiting] = progress
            branch_offs[n_waiting] = exit_branch_off[e]
            n_waiting += 1
        if n_waiting < BLOCK and e < n_exits - 1:
            continue
        branch_variance_moments(branches, scratch)
        for k in range(n_waiting):
            place = waiting[k]
            visit = exit_visit[place]
            above_variance = above_variances[visit]
            edge_variance, precision, slope = edges[k, 0], edges[k, 1], edges[k, 2]
            mean = prior_scale * means[k]
            # Never the square of prior_scale, which may be out of range where its products are not.
            locations[place] = above_means[visit] + slope * (above_variance + mean)
            at_mean = (above_variance + mean) * (1.0 + precision * (edge_variance - mean))
            correction = (precision * prior_scale) * (prior_scale * variances[k])
            posterior_variances[place] = max(at_mean - correction, 0.0) / (
                1.0 + precision * (above_variance + edge_variance)
            )
            branch_variances[place] = (
                max(prior_scale * start_shares[k] - mean, 0.0)
                + (slope * prior_scale) ** 2 * variances[k]
            )
        n_waiting = 0


@kernel
def branch_variance_moments(branches: Branches, scratch: NDArray[np.float64]) -> None:
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

    A block of branches at a time, in vector registers: 18 ns for each, 57 ns one by one. For this
    LLVM must see that the rows of ``scratch``, shape (9, BLOCK), do not overlap.
    """
    start_shares, rate_ratios, progresses, branch_offs, means, variances = branches
    for j in range(BLOCK):
        rate_ratio, progress, branch_off = rate_ratios[j], progresses[j], branch_offs[j]
        boundary = rate_ratio * (1.0 - branch_off) / branch_off
        scratch[0, j] = start_shares[j]
        scratch[1, j] = rate_ratio
        scratch[2, j] = progress
        scratch[3, j] = boundary
        scratch[4, j] = progress  # S^(k+1)
        scratch[5, j] = (1.0 - boundary * progress) / (rate_ratio + 1.0)  # E[s^(k+1)]
        scratch[6, j] = 1.0  # c^k
        scratch[7, j] = 0.0  # E[s / (1 - c s)]
        scratch[8, j] = 0.0  # E[(s / (1 - c s))^2]
    for k in range(len(_SERIES)):
        coefficient, squared_coefficient = _SERIES[k], _SQUARED_SERIES[k]
        order = np.float64(k + 2)
        for j in range(BLOCK):
            share_power = scratch[6, j]
            moment = scratch[5, j]
            scratch[7, j] += coefficient * share_power * moment
            progress_power = scratch[4, j] * scratch[2, j]
            scratch[4, j] = progress_power
            # Divisions stay off the chain from one moment to the next.
            inverse = 1.0 / (scratch[1, j] + order)
            moment = moment * (order * inverse) - (scratch[3, j] * progress_power) * inverse
            scratch[5, j] = moment
            scratch[8, j] += squared_coefficient * share_power * moment
            scratch[6, j] = share_power * scratch[0, j]
    for j in range(BLOCK):
        start_share, rate_ratio, progress, boundary = (
            scratch[0, j],
            scratch[1, j],
            scratch[2, j],
            scratch[3, j],
        )
        first, second = scratch[7, j], scratch[8, j]
        if branch_offs[j] + progress <= 0.01:
            # Where both S and q are small, the recursion loses digits upwards. Downwards it damps
            # the error of a crude start by 1e-9; moment is E[(s / S)^k], and the sums are Horner's.
            ratio = start_share * progress
            first = second = 0.0
            moment = 1.0 / 7.0  # k = 6, s uniform
            for k in range(6, 1, -1):
                first = first * ratio + moment
                second = second * ratio + (k - 1) * moment
                moment = progress * ((rate_ratio + k) * moment + boundary) * (1.0 / k)
            first = progress * (first * ratio + moment)
            second *= progress * progress
        factor = start_share * (1.0 - start_share)
        largest = factor * progress / (1.0 - start_share * progress)
        # Within the bounds of any variable from 0 to `largest`: else rounding could give a
        # component less variance than a leaf has, or a negative one.
        mean = min(factor * first, largest)
        variance = min(factor * factor * second - mean * mean, mean * (largest - mean))
        means[j] = mean
        variances[j] = max(variance, 0.0)


@kernel
def empirical_components(
    nodes: Records, visits: Visits, exits: Exits, n_exits: int, components: Components
) -> None:
    """Fill in the components of appendix C: mean and variance of the labels in the node."""
    for e in range(n_exits):
        record = nodes[visits.node[exits.visit[e]]]
        components.location[e] = record.location
        components.posterior_variance[e] = 1.0 / record.precision
        components.branch_variance[e] = 0.0


@kernel
def pruned_components(
    nodes: Records, visits: Visits, exits: Exits, n_exits: int, components: Components
) -> None:
    """Fill in what a label is in the node where the pruned tree ends, or the row branches off."""
    visited, _ = visits
    _, exit_visit, _, _, _ = exits
    locations, posterior_variances, branch_variances, noise_variances, all_degrees = components
    for e in range(n_exits):
        record = nodes[visited[exit_visit[e]]]
        locations[e] = record.location
        degrees = np.float64(record.degrees)
        squared_scale = 1.0 / record.precision
        count = count_of(degrees)
        variance = squared_scale * (degrees / (degrees - 2.0))
        posterior_variances[e] = variance / (count + 1.0)
        branch_variances[e] = 0.0
        noise_variances[e] = variance * (count / (count + 1.0))
        all_degrees[e] = degrees
