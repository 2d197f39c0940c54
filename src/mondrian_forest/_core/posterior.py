"""The label model over a given tree: moments, hyperparameters, upward messages.

The structure of a tree never depends on the labels, and nothing here changes it. Two label models
share the moments: the hierarchical Gaussian prior of section 3 and the empirical approximation of
appendix C.

Only the upward half of belief propagation is stored (``Evidence``). The message from above is
carried along the path during prediction, so that a new row changes one path and not every node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel
from .tree import NO_CHILD, Tree


class Hyperparameters(NamedTuple):
    """The paper's mu_H, gamma_1, gamma_2 and sigma_y^2."""

    prior_mean: float
    prior_scale: float
    prior_rate: float
    noise_variance: float


class LabelMoments(NamedTuple):
    """Moments of the labels in each node (the count is ``Tree.n_samples``)."""

    mean: NDArray[np.float64]
    squared_deviation: NDArray[np.float64]
    """Sum of squared deviations from the mean: never a difference of large sums."""


class Evidence(NamedTuple):
    """What the labels below a node say of its mean: the upward half of belief propagation."""

    mean: NDArray[np.float64]
    precision: NDArray[np.float64]
    share: NDArray[np.float64]
    """``remaining_share`` at the node's time: kept, since prediction would need an exponential for
    each node that it passes, and one for the sibling."""


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


def label_moments(
    tree: Tree,
    labels: NDArray[np.float64],
    row_order: NDArray[np.int32],
    first_row: NDArray[np.int32],
) -> LabelMoments:
    """Return the moments of the labels in every node."""
    moments = LabelMoments(np.empty(tree.n_nodes), np.empty(tree.n_nodes))
    _fill_moments(tree, labels, row_order, first_row, moments)
    return moments


@kernel
def _fill_moments(
    tree: Tree,
    labels: NDArray[np.float64],
    row_order: NDArray[np.int32],
    first_row: NDArray[np.int32],
    moments: LabelMoments,
) -> None:
    for node in range(len(tree.left_child) - 1, -1, -1):  # children before parents
        left = tree.left_child[node]
        if left == NO_CHILD:
            # Two passes over a handful of labels: more accurate than one pass, and faster than
            # Welford's division for each label.
            first = first_row[node]
            stop = first + tree.n_samples[node]
            total = 0.0
            for i in range(first, stop):
                total += labels[row_order[i]]
            mean = total / (stop - first)
            squared_deviation = 0.0
            correction = 0.0
            for i in range(first, stop):
                deviation = labels[row_order[i]] - mean
                correction += deviation
                squared_deviation += deviation * deviation
            moments.mean[node] = mean + correction / (stop - first)
            moments.squared_deviation[node] = squared_deviation
        else:
            right = left + 1
            share_of_right = tree.n_samples[right] / tree.n_samples[node]
            difference = moments.mean[right] - moments.mean[left]
            moments.mean[node] = moments.mean[left] + difference * share_of_right
            moments.squared_deviation[node] = (
                moments.squared_deviation[left]
                + moments.squared_deviation[right]
                + difference * difference * tree.n_samples[left] * share_of_right
            )


@kernel
def remaining_share(prior_rate: float, time: float) -> float:
    """Return the share of ``prior_scale`` that is still to come: sigmoid(-rate time).

    Differences of this function keep their digits where the sigmoid itself is close to one.
    """
    # np.exp, which overflows to infinity also where kernels run uncompiled
    share: float = 1.0 / (1.0 + np.exp(prior_rate * time))
    return share


@kernel
def message_precision(precision: float, edge_variance: float) -> float:
    """Return the precision of the message that crosses an edge: 1 / (1 / precision + variance).

    Written without the reciprocal of the precision, which is zero where there are no labels.
    """
    return precision / (1.0 + precision * edge_variance)


@kernel
def _log_normal_density(deviation: float, variance: float) -> float:
    return -0.5 * (math.log(2.0 * math.pi * variance) + deviation * deviation / variance)


def upward_pass(
    tree: Tree, moments: LabelMoments, hyperparameters: Hyperparameters
) -> tuple[Evidence, float]:
    """Return the evidence of every node and the log marginal likelihood of all labels."""
    evidence = Evidence(*(np.empty(tree.n_nodes) for _ in Evidence._fields))
    return evidence, _fill_evidence(tree, moments, hyperparameters, evidence)


@kernel
def _fill_evidence(
    tree: Tree, moments: LabelMoments, hyperparameters: Hyperparameters, evidence: Evidence
) -> float:
    """Pass messages from the leaves to the root (section 3.1); return log p(labels | tree).

    A product of two Gaussian messages is a Gaussian times the density of their difference; the
    logarithms of these factors, and of what the labels of a leaf leave over, add up to the
    logarithm of the marginal likelihood.
    """
    prior_scale = hyperparameters.prior_scale
    prior_rate = hyperparameters.prior_rate
    noise_variance = hyperparameters.noise_variance
    log_likelihood = 0.0
    for node in range(len(tree.left_child) - 1, -1, -1):  # children before parents
        left = tree.left_child[node]
        share = remaining_share(prior_rate, tree.split_time[node])
        evidence.share[node] = share
        if left == NO_CHILD:
            n_samples = tree.n_samples[node]
            evidence.mean[node] = moments.mean[node]
            evidence.precision[node] = n_samples / noise_variance
            if n_samples > 0:
                # prod_i N(y_i | mu, s) = N(mean | mu, s / n) * what is added here
                log_likelihood -= 0.5 * (
                    (n_samples - 1) * math.log(2.0 * math.pi * noise_variance)
                    + math.log(n_samples)
                    + moments.squared_deviation[node] / noise_variance
                )
            continue
        right = left + 1
        left_precision = message_precision(
            evidence.precision[left], prior_scale * (share - evidence.share[left])
        )
        right_precision = message_precision(
            evidence.precision[right], prior_scale * (share - evidence.share[right])
        )
        precision = left_precision + right_precision
        difference = evidence.mean[right] - evidence.mean[left]
        evidence.precision[node] = precision
        if precision > 0.0:
            evidence.mean[node] = evidence.mean[left] + difference * (right_precision / precision)
        else:
            evidence.mean[node] = evidence.mean[left]
        if left_precision > 0.0 and right_precision > 0.0:
            variance = 1.0 / left_precision + 1.0 / right_precision
            log_likelihood += _log_normal_density(difference, variance)
    root_variance = prior_scale * (0.5 - evidence.share[0])
    return log_likelihood + _log_normal_density(
        evidence.mean[0] - hyperparameters.prior_mean, 1.0 / evidence.precision[0] + root_variance
    )
