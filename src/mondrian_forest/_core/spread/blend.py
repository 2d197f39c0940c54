"""The labels near a row as a distribution, blended with what the trees predict.

A component of a tree is one Student-t or Gaussian for all labels of a node. Labels with two modes,
or with flat noise, are not like that. The labels themselves are: each gets a Gaussian about it, as
wide as a share of their standard deviation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..mixtures.mixture import Mixture
from ..mixtures.reduce import ForestMoments
from ..mixtures.student import normal_at


class Blend(NamedTuple):
    """How the labels near a row are mixed in."""

    share: float
    """The weight of these labels in the forecast."""
    bandwidth: float
    """The standard deviation of the Gaussian about a label, relative to that of these labels."""
    is_pruned: bool
    """Whether they are the labels of the nodes where the label model lets rows stop, with the mean
    and the standard deviation that the trees predict."""


# Model files depend on these.
SHARES = np.array([0.5, 0.5, 0.95, 0.95])
BANDWIDTHS = np.array([0.05, 0.15, 0.05, 0.15])
KINDS = (False, True)
"""Of labels, see ``Blend.is_pruned``."""
BLENDS = [
    Blend(float(share), float(bandwidth), kind)
    for kind in KINDS
    for share, bandwidth in zip(SHARES, BANDWIDTHS, strict=True)
]
"""The blends that are tried."""


def least_width(noise_variance: float) -> float:
    """Return the least standard deviation of the Gaussian about a label.

    If labels are rounded, it is half of their resolution. Then the sum over rounded labels that are
    equally frequent is flat, and does not win density by having spikes.
    """
    return math.sqrt(3.0 * noise_variance)


def with_moments(
    labels: NDArray[np.float64], mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return labels with the mean and the standard deviation that the trees predict for each row.

    For the labels of the nodes where rows stop: there, the trees know both without the error of a
    sample, and only the shape is taken from the labels.
    """
    centre, own = labels.mean(axis=1), labels.std(axis=1)
    ratio = np.where(own > 0.0, deviation / np.where(own > 0.0, own, 1.0), 1.0)
    return np.asarray(mean[:, None] + (labels - centre[:, None]) * ratio[:, None])


def blend_labels(
    mixture: Mixture,
    moments: ForestMoments,
    labels: NDArray[np.float64],
    blend: Blend,
    least: float,
) -> tuple[ForestMoments, Mixture]:
    """Return mixtures that are blended with the labels near each row, and their moments.

    Parameters
    ----------
    mixture : Mixture
    moments : ForestMoments
    labels : ndarray of shape (n_rows, n_labels)
        Ascending along each row.
    blend : Blend
    least : float
        The least standard deviation of the Gaussian about a label.
    """
    centre, deviation = labels.mean(axis=1), labels.std(axis=1)
    width = np.maximum(blend.bandwidth * deviation, least)
    labels = labels.copy()
    _shrink(labels, centre, deviation, width)
    counts = np.empty(len(labels), np.int64)
    _count_groups(labels, width, counts)
    offset = np.concatenate(([0], np.cumsum(np.diff(mixture.offset) + counts)))
    n_degrees = offset[-1] if len(mixture.degrees) > 0 else 0
    lengths = (offset[-1], offset[-1], offset[-1], n_degrees)
    blended = Mixture(offset, *(np.empty(length) for length in lengths))
    _fill(mixture, labels, width, blend.share, blended)

    other = 1.0 - blend.share
    distance = centre - moments.mean
    return (
        ForestMoments(
            moments.mean + blend.share * distance,
            other * moments.posterior,
            other * moments.branching + blend.share * other * distance**2,
            other * moments.between_trees,
            other * moments.noise + blend.share * np.maximum(deviation, width) ** 2,
        ),
        blended,
    )


@kernel
def shrinkage(deviation: float, width: float) -> float:
    """Return the factor of the distances of labels from their mean that keeps their variance.

    The Gaussians about them add variance of their own.
    """
    return math.sqrt(1.0 - (width / deviation) ** 2) if width < deviation else 0.0


@kernel
def _shrink(
    labels: NDArray[np.float64],
    centre: NDArray[np.float64],
    deviation: NDArray[np.float64],
    width: NDArray[np.float64],
) -> None:
    """Move the labels near each row to their mean."""
    for i in range(len(labels)):
        factor = shrinkage(deviation[i], width[i])
        for k in range(labels.shape[1]):
            labels[i, k] = centre[i] + factor * (labels[i, k] - centre[i])


@kernel
def _count_groups(
    labels: NDArray[np.float64], width: NDArray[np.float64], counts: NDArray[np.int64]
) -> None:
    """Count groups of neighbouring labels that share a Gaussian: they differ by half a width."""
    for i in range(len(labels)):
        counts[i] = 1
        first = labels[i, 0]
        for k in range(1, labels.shape[1]):
            if labels[i, k] - first > 0.5 * width[i]:
                counts[i] += 1
                first = labels[i, k]


@kernel
def _fill(
    mixture: Mixture,
    labels: NDArray[np.float64],
    width: NDArray[np.float64],
    share: float,
    out: Mixture,
) -> None:
    """Write the components of ``mixture``, and one Gaussian for each group of labels."""
    offset, weights, locations, scales, all_degrees = mixture
    has_degrees = len(all_degrees) > 0
    n_labels = labels.shape[1]
    for i in range(len(labels)):
        place = out.offset[i]
        for k in range(offset[i], offset[i + 1]):
            out.weight[place] = (1.0 - share) * weights[k]
            out.location[place] = locations[k]
            out.scale[place] = scales[k]
            if has_degrees:
                out.degrees[place] = all_degrees[k]
            place += 1
        start = 0
        while start < n_labels:
            first = labels[i, start]
            total = squares = 0.0
            stop = start
            while stop < n_labels and labels[i, stop] - first <= 0.5 * width[i]:
                total += labels[i, stop] - first
                squares += (labels[i, stop] - first) ** 2
                stop += 1
            mean = total / (stop - start)
            variance = max(squares / (stop - start) - mean * mean, 0.0)
            out.weight[place] = share * (stop - start) / n_labels
            out.location[place] = first + mean
            out.scale[place] = math.sqrt(variance + width[i] * width[i])
            if has_degrees:
                out.degrees[place] = np.inf
            place += 1
            start = stop


@kernel
def crps_of_labels(labels: NDArray[np.float64], i: int, y: float) -> float:
    """Return the CRPS of the labels near row i, which are ascending."""
    n_labels = labels.shape[1]
    away = within = 0.0
    for k in range(n_labels):
        away += abs(y - labels[i, k])
        within += (2 * k + 1 - n_labels) * (labels[i, k] - labels[i, 0])
    crps: float = away / n_labels - within / (n_labels * n_labels)
    return crps


@kernel
def labels_at(
    labels: NDArray[np.float64], i: int, centre: float, factor: float, width: float, y: float
) -> tuple[float, float]:
    """Return distribution function and density at ``y`` of Gaussians about the labels near row i.

    The distances of labels from their centre are multiplied by a factor.
    """
    below = density = 0.0
    for k in range(labels.shape[1]):
        place = centre + factor * (labels[i, k] - centre)
        lower, at = normal_at((y - place) / width)
        below += lower
        density += at
    return below / labels.shape[1], density / (labels.shape[1] * width)
