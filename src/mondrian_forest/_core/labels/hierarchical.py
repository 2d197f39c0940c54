"""The hierarchical Gaussian prior of section 3, with its exact posterior.

The labels below a node say something about its mean: the evidence, a Gaussian message that goes up
the tree. ``location`` and ``precision`` of a node are this upward half of belief propagation. The
message from above is computed on the way down during a prediction, so that a new row changes the
nodes of one path and not all nodes. ``share`` is ``remaining_share`` at the node's time. It is kept
because a prediction would need an exponential for each node that it passes, and one for the
sibling.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel_methods, wide
from ..arrays.tree import NO_CHILD, Records
from .branching import BLOCK, Branches, branch_variance_moments
from .exits import ExitComponents, Exits, LabelScratch, Messages, Visits
from .model import Summary


@borrowing_kernel
def remaining_share(prior_rate: float, time: float) -> float:
    """Return the share of ``prior_scale`` that is still to come: sigmoid(-rate time).

    Differences of this function keep their digits where the sigmoid itself is close to one.
    """
    # np.exp, which overflows to infinity also where kernels run uncompiled
    share: float = 1.0 / (1.0 + np.exp(prior_rate * time))
    return share


@inner_kernel
def set_share(nodes: Records, node: int, prior_rate: float) -> None:
    """Set the remaining share of a node. All its components are Gaussian."""
    record = nodes[node]
    record.share = remaining_share(prior_rate, record.split_time)


@inner_kernel
def is_gaussian_node_sound(record: Any) -> bool:
    return bool(0.0 <= record.share <= 0.5 and record.precision >= 0.0)


@inner_kernel
def message_precision(precision: float, edge_variance: float) -> float:
    """Return the precision of the message that crosses an edge: 1 / (1 / precision + variance).

    Written without the reciprocal of the precision, which is zero where there are no labels.
    """
    return precision / (1.0 + precision * edge_variance)


@inner_kernel
def edge_precision(nodes: Records, prior_scale: float, node: int, child: int) -> float:
    """Return the precision of the message from a child to its parent."""
    edge_variance = prior_scale * (nodes[node].share - nodes[child].share)
    return message_precision(nodes[child].precision, edge_variance)


@kernel_methods
class Hierarchical(NamedTuple):
    """The paper's label model, with its mu_H, gamma_1, gamma_2 and sigma_y^2."""

    prior_mean: float
    prior_scale: float
    prior_rate: float
    noise_variance: float

    @classmethod
    def name(cls) -> str:
        return "hierarchical"

    @classmethod
    def estimate(
        cls,
        summary: Summary,
        /,
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        prior_rate: float | None = None,
        noise_variance: float | None = None,
    ) -> Hierarchical:
        """Fill in the hyperparameters that are None by the heuristic of appendix B.

        The heuristic is extended where it is undefined: labels without any spread are given unit
        variance, and one row counts as two in ``log2 N``.
        """
        n_rows = summary.labels.n_samples
        noise_ratio = min(2000, 2 * n_rows)  # K in the paper
        if prior_mean is None:
            prior_mean = summary.labels.mean
        if prior_scale is None:
            prior_scale = summary.variance_about(prior_mean) / (0.5 + 1.0 / noise_ratio)
        if prior_rate is None:
            prior_rate = summary.n_features / (20.0 * math.log2(max(n_rows, 2)))
        if noise_variance is None:
            noise_variance = prior_scale / noise_ratio
        return cls(prior_mean, prior_scale, prior_rate, noise_variance)

    @inner_kernel
    def set_time(self, nodes: Records, node: int) -> None:
        set_share(nodes, node, self.prior_rate)

    @inner_kernel
    def set_node(self, nodes: Records, tallies: Records, node: int) -> None:
        """Set the evidence: at a leaf from its labels, else the product of two messages."""
        record = nodes[node]
        tally = tallies[node]
        record.n_samples = tally.n_samples
        left = wide(record.left_child)
        if left == NO_CHILD:
            record.location = tally.label_mean
            record.precision = tally.n_samples / self.noise_variance
        else:
            left_precision = edge_precision(nodes, self.prior_scale, node, left)
            right_precision = edge_precision(nodes, self.prior_scale, node, left + 1)
            precision = left_precision + right_precision
            record.precision = precision
            record.location = nodes[left].location
            if precision > 0.0:
                difference = nodes[left + 1].location - nodes[left].location
                record.location += difference * (right_precision / precision)

    @inner_kernel
    def is_sound(self, record: Any) -> bool:
        return is_gaussian_node_sound(record)

    @inner_kernel
    def uses_times(self) -> bool:
        return True

    @inner_kernel
    def stops_inside(self) -> bool:
        return False

    @inner_kernel
    def stop_probability(self, record: Any) -> float:  # noqa: ARG002
        return 0.0

    @inner_kernel
    def has_local_noise(self) -> bool:
        return False

    @borrowing_kernel
    def fill_components(
        self,
        nodes: Records,
        lifetime: float,
        visits: Visits,
        n_visits: int,
        exits: Exits,
        n_exits: int,
        scratch: LabelScratch,
        components: ExitComponents,
    ) -> None:
        messages, _ = scratch
        send_messages_down(self, nodes, visits, n_visits, messages)
        fill_from_messages(self, nodes, lifetime, visits, exits, n_exits, scratch, components)


@borrowing_kernel
def send_messages_down(
    model: Hierarchical, nodes: Records, visits: Visits, n_visits: int, messages: Messages
) -> None:
    """Fill in the message from above at each visited node.

    At the root it is the prior mean itself. For a child of node j it is the message at j, carried
    across j's edge and multiplied with the message of the child's sibling.
    """
    prior_scale = model.prior_scale
    visited, parents = visits
    means, variances = messages
    for visit in range(n_visits):
        node = visited[visit]
        above = parents[visit]
        if above < 0:
            means[visit] = model.prior_mean
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


@borrowing_kernel
def fill_from_messages(
    model: Hierarchical,
    nodes: Records,
    lifetime: float,
    visits: Visits,
    exits: Exits,
    n_exits: int,
    scratch: LabelScratch,
    components: ExitComponents,
) -> None:
    """Fill in the components, with exact mean and variance.

    A row that branches off above a node, after the variance x has accumulated on the node's edge,
    hangs on a point whose mean is known through the product of the message from above and the
    node's evidence, both carried to x. Location and variance there are linear and quadratic in x;
    the fresh branch adds the rest of the prior variance. Rows that branch off wait for each other
    until a block of them is full.
    """
    prior_scale = model.prior_scale
    last_share = remaining_share(model.prior_rate, lifetime)  # nothing branches off later
    messages, branches = scratch
    visited, parents = visits
    above_means, above_variances = messages
    _, exit_visit, _, exit_branch_off, exit_distance = exits
    locations, posterior_variances, branch_variances, _, _ = components
    start_shares, rate_ratios, progresses, branch_offs, _, _, waiting, edges, _ = branches
    n_waiting = 0
    for e in range(n_exits):
        visit = exit_visit[e]
        record = nodes[visited[visit]]
        parent_share = 0.5
        if parents[visit] >= 0:
            parent_share = nodes[visited[parents[visit]]].share
        above_variance = above_variances[visit]
        edge_variance = prior_scale * (parent_share - record.share)
        precision = record.precision
        # Change of the location for each unit of variance between the point and what is above.
        slope = (record.location - above_means[visit]) * (
            precision / (1.0 + precision * (above_variance + edge_variance))
        )
        if exit_distance[e] == 0.0:  # ends in the leaf: the leaf's own posterior
            node_variance = above_variance + edge_variance
            locations[e] = above_means[visit] + slope * node_variance
            posterior_variances[e] = node_variance / (1.0 + precision * node_variance)
            branch_variances[e] = 0.0
        else:
            waiting[n_waiting] = e
            edges[0, n_waiting] = edge_variance
            edges[1, n_waiting] = precision
            edges[2, n_waiting] = slope
            start_shares[n_waiting] = parent_share
            rate_ratios[n_waiting] = exit_distance[e] / model.prior_rate
            progresses[n_waiting] = _progress(parent_share, max(record.share, last_share))
            branch_offs[n_waiting] = exit_branch_off[e]
            n_waiting += 1
        if n_waiting == BLOCK or (e == n_exits - 1 and n_waiting > 0):
            branch_variance_moments(branches)
            _fill_branches(prior_scale, branches, n_waiting, exits, messages, components)
            n_waiting = 0


@inner_kernel
def _progress(start_share: float, end_share: float) -> float:
    """Return 1 - exp(-gamma_2 duration) of an edge, by the shares at its ends."""
    if start_share > 0.0:
        return (start_share - end_share) / (start_share * (1.0 - end_share))
    return 1.0


@inner_kernel
def _fill_branches(
    prior_scale: float,
    branches: Branches,
    n_branches: int,
    exits: Exits,
    messages: Messages,
    components: ExitComponents,
) -> None:
    """Fill in the components of the rows that branch off."""
    start_shares, _, _, _, means, variances, branch_exits, edges, _ = branches
    _, exit_visit, _, _, _ = exits
    above_means, above_variances = messages
    locations, posterior_variances, branch_variances, _, _ = components
    for k in range(n_branches):
        e = branch_exits[k]
        visit = exit_visit[e]
        above_variance = above_variances[visit]
        edge_variance, precision, slope = edges[0, k], edges[1, k], edges[2, k]
        mean = prior_scale * means[k]
        # Never the square of prior_scale, which may be out of range where its products are not.
        locations[e] = above_means[visit] + slope * (above_variance + mean)
        at_mean = (above_variance + mean) * (1.0 + precision * (edge_variance - mean))
        correction = (precision * prior_scale) * (prior_scale * variances[k])
        posterior_variances[e] = max(at_mean - correction, 0.0) / (
            1.0 + precision * (above_variance + edge_variance)
        )
        branch_variances[e] = (
            max(prior_scale * start_shares[k] - mean, 0.0)
            + (slope * prior_scale) ** 2 * variances[k]
        )


@borrowing_kernel
def _log_normal_density(deviation: float, variance: float) -> float:
    return -0.5 * (math.log(2.0 * math.pi * variance) + deviation * deviation / variance)


@borrowing_kernel
def log_marginal_likelihood(model: Hierarchical, nodes: Records, tallies: Records) -> float:
    """Return log p(labels | tree), the by-product of message passing.

    A product of two Gaussian messages is a Gaussian times the density of their difference. The
    logarithms of these factors, and of what the labels of a leaf leave over, add up to the
    logarithm of the marginal likelihood.
    """
    noise_variance = model.noise_variance
    total = _log_normal_density(
        nodes[0].location - model.prior_mean,
        1.0 / nodes[0].precision + model.prior_scale * (0.5 - nodes[0].share),
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
        left_precision = edge_precision(nodes, model.prior_scale, node, left)
        right_precision = edge_precision(nodes, model.prior_scale, node, left + 1)
        if left_precision > 0.0 and right_precision > 0.0:
            total += _log_normal_density(
                nodes[left + 1].location - nodes[left].location,
                1.0 / left_precision + 1.0 / right_precision,
            )
    return total
