"""What each held-out row says about the spread, once its label is known."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..arrays.tree import Records
from ..mixtures.crps import crps_of_normal
from ..mixtures.mixture import (
    Degrees,
    Mixture,
    SortedComponents,
    allocate_sorted,
    degrees_of,
    mixture_at,
    sort_components,
)
from ..mixtures.neighbours import Neighbours
from ..mixtures.student import density_at_zero, student_log_density
from .apply import Spread, balanced_scaling, variances
from .blend import (
    BANDWIDTHS,
    BLENDS,
    KINDS,
    SHARES,
    crps_of_labels,
    labels_at,
    shrinkage,
)

# Model files depend on FACTORS, DENSITY_FACTORS, BALANCES, SHARES, FACTOR_STEP and RECORD.
FACTORS = np.geomspace(0.0005, 3.0, 28)
"""The factors that are tried; the one in use is found between them."""
DENSITY_FACTORS = FACTORS[::3].copy()
"""The factors for which the density is computed: it costs more than a probability."""
BALANCES = 2.0 ** np.arange(-1.0, 2.5, 0.5)
FACTOR_STEP = 0.15
"""Balances are tried with factors that are less and more than the one in use by so much, in
logarithms."""

RECORD = np.dtype(
    (
        np.record,
        [
            # The standard deviation of the prediction.
            ("deviation", np.float64),
            # How many rows had been learned before the row.
            ("arrival", np.float64),
            # The novelty of the row, and the number of rows in the trees.
            ("novelty", np.float64),
            ("n_samples", np.float64),
            # The logarithm of the factor that was in use for a balance of 1.
            ("log_factor", np.float64),
            # By factor: the level of the central interval that ends at the label.
            ("level", np.float64, FACTORS.shape),
            # By density factor: the log density at the label, in units of the standard deviation.
            ("log_density", np.float64, DENSITY_FACTORS.shape),
            # By balance: the level with a factor a step below, and a step above, the one in use.
            ("level_below", np.float64, BALANCES.shape),
            ("level_above", np.float64, BALANCES.shape),
            # By balance: what it adds to the log density with the factor in use.
            ("gain", np.float64, BALANCES.shape),
            # By blend: what it adds to the same, and the level of the central interval.
            ("blend_gain", np.float64, len(BLENDS)),
            ("blend_level", np.float64, len(BLENDS)),
            # The CRPS of a normal distribution of mean and standard deviation in use, and of the
            # labels near the row, by their kind.
            ("crps", np.float64),
            ("label_crps", np.float64, len(KINDS)),
        ],
    )
)
RECORD_WIDTH = RECORD.itemsize // np.dtype(np.float64).itemsize

_BALANCE_OF_ONE = int(np.flatnonzero(BALANCES == 1.0)[0])
_MOST_GAIN = 200.0
"""One row can win or lose at most so much log density. Otherwise it could decide alone."""
_MOST_DEVIATIONS = 20.0
"""Labels that are more standard deviations away from the mean count as if they were there."""
_NEGLIGIBLE = 40.0
"""Components whose log density is so far below the largest are left out."""
_NORMAL_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)


def to_columns(record: Records) -> NDArray[np.float64]:
    """Return a record as plain numbers, shape (n_rows, RECORD_WIDTH), as model files store it."""
    return record.view(np.float64).reshape(len(record), RECORD_WIDTH)


def from_columns(columns: NDArray[np.float64]) -> Records:
    """Return the record that ``to_columns`` has turned into plain numbers."""
    return np.ascontiguousarray(columns).view(RECORD)[:, 0]


def measure(
    mixture: Mixture,
    mean: NDArray[np.float64],
    neighbours: list[Neighbours],
    y: NDArray[np.float64],
    factors: Spread,
    least: float,
    n_samples: int,
    record: Records,
) -> None:
    """Fill in the record of rows, from their mixtures and the labels that came after.

    ``factors`` is what ``learn_factors`` has found so far, for a balance of 1: balances are judged
    with these factors. Factors of the balance in use would favour that balance. ``neighbours`` has
    one entry for each of ``KINDS``, the first of which tells the novelty. ``least`` is the least
    standard deviation of a blend's Gaussians, and ``n_samples`` the number of rows in the trees.
    """
    record["novelty"] = neighbours[0].novelty
    record["n_samples"] = n_samples
    deviation = record["deviation"]
    _set_deviations(mixture, mean, deviation)
    record["log_factor"] = np.log(factors.factor_at(deviation))
    _measure(mixture, degrees_of(mixture), mean, y, record)
    for kind, one in enumerate(neighbours):
        _measure_blends(mixture, degrees_of(mixture), mean, y, one.labels, least, kind, record)
    density, gain = record["log_density"], record["gain"]
    np.maximum(density, density.max(axis=1, keepdims=True) - _MOST_GAIN, out=density)
    gain -= gain[:, [_BALANCE_OF_ONE]]
    for field in (gain, record["blend_gain"]):
        np.clip(field, -_MOST_GAIN, _MOST_GAIN, out=field)


@kernel
def _set_deviations(
    mixture: Mixture, mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> None:
    for i in range(len(mean)):
        within, between = variances(mixture, i, mean[i])
        deviation[i] = math.sqrt(within + between)


@kernel
def _measure(
    mixture: Mixture,
    degrees: Degrees,
    mean: NDArray[np.float64],
    y: NDArray[np.float64],
    record: Records,
) -> None:
    """Fill in all that depends on the labels."""
    components = allocate_sorted(mixture.offset, degrees)
    weights, _, _, sorted_degrees = components
    log_heights, terms = np.empty(len(weights)), np.empty(len(weights))
    for i in range(len(y)):
        row = record[i]
        factor = math.exp(row.log_factor)
        farthest = _MOST_DEVIATIONS * row.deviation
        from_mean = min(max(y[i] - mean[i], -farthest), farthest)
        ends = sort_components(mixture, degrees, i, components)
        for k in range(ends[2]):
            at_zero = _NORMAL_AT_ZERO if degrees is None else density_at_zero(sorted_degrees[k])
            log_heights[k] = math.log(weights[k] * at_zero * row.deviation)
        for f in range(len(FACTORS)):
            point = mean[i] + from_mean / FACTORS[f]
            below, _ = mixture_at(components, degrees, ends, point)
            row.level[f] = abs(2.0 * below - 1.0)
        for f in range(len(DENSITY_FACTORS)):
            point = mean[i] + from_mean / DENSITY_FACTORS[f]
            density = _log_density_at(components, degrees, ends[2], point, log_heights, terms)
            row.log_density[f] = density - math.log(DENSITY_FACTORS[f])
        for b in range(len(BALANCES)):
            _copy_balanced(mixture, degrees, i, mean[i], BALANCES[b], components)
            point = mean[i] + from_mean / (factor * math.exp(-FACTOR_STEP))
            below, _ = mixture_at(components, degrees, ends, point)
            row.level_below[b] = abs(2.0 * below - 1.0)
            point = mean[i] + from_mean / (factor * math.exp(FACTOR_STEP))
            below, _ = mixture_at(components, degrees, ends, point)
            row.level_above[b] = abs(2.0 * below - 1.0)
            point = mean[i] + from_mean / factor
            row.gain[b] = _log_density_at(components, degrees, ends[2], point, log_heights, terms)


@kernel
def _measure_blends(
    mixture: Mixture,
    degrees: Degrees,
    mean: NDArray[np.float64],
    y: NDArray[np.float64],
    labels: NDArray[np.float64],
    least: float,
    kind: int,
    record: Records,
) -> None:
    """Fill in what blends with one kind of labels say, after ``_measure``."""
    components = allocate_sorted(mixture.offset, degrees)
    n_labels = labels.shape[1]
    for i in range(len(y)):
        row = record[i]
        width = row.deviation * math.exp(row.log_factor)
        farthest = _MOST_DEVIATIONS * row.deviation
        from_mean = min(max(y[i] - mean[i], -farthest), farthest)
        ends = sort_components(mixture, degrees, i, components)
        point = mean[i] + from_mean / math.exp(row.log_factor)
        below, _ = mixture_at(components, degrees, ends, point)
        row.crps = width * crps_of_normal(from_mean / width)
        row.label_crps[kind] = row.crps
        centre = deviation = 0.0
        if n_labels > 0:
            row.label_crps[kind] = crps_of_labels(labels, i, mean[i] + from_mean)
            centre, deviation = _mean_and_deviation(labels, i)
        for b in range(len(SHARES)):
            lower, gain = below, 0.0
            if n_labels > 0:
                own = max(BANDWIDTHS[b] * deviation, least)
                shrink = shrinkage(deviation, own)
                lower, density = labels_at(labels, i, centre, shrink, own, mean[i] + from_mean)
                log_ratio = math.log(density * width + 1e-300) - row.gain[_BALANCE_OF_ONE]
                ratio = math.exp(min(log_ratio, 600.0))
                gain = math.log(1.0 - SHARES[b] + SHARES[b] * ratio)
            mixed = (1.0 - SHARES[b]) * below + SHARES[b] * lower
            row.blend_gain[kind * len(SHARES) + b] = gain
            row.blend_level[kind * len(SHARES) + b] = abs(2.0 * mixed - 1.0)


@kernel
def _mean_and_deviation(labels: NDArray[np.float64], i: int) -> tuple[float, float]:
    """Return mean and standard deviation of the labels near row i."""
    n_labels = labels.shape[1]
    centre = square = 0.0
    for k in range(n_labels):
        centre += (labels[i, k] - labels[i, 0]) / n_labels
    for k in range(n_labels):
        square += (labels[i, k] - labels[i, 0] - centre) ** 2 / n_labels
    return labels[i, 0] + centre, math.sqrt(square)


@kernel
def _copy_balanced(
    mixture: Mixture,
    degrees: Degrees,
    i: int,
    mean: float,
    balance: float,
    out: SortedComponents,
) -> None:
    """Copy the components of mixture i, sorted by kind, with another balance."""
    within, between = variances(mixture, i, mean)
    scaling = balanced_scaling(within, between, balance)
    ends = sort_components(mixture, degrees, i, out)
    _, locations, inverse_scales, _ = out
    for k in range(ends[2]):
        locations[k] = mean + balance * scaling * (locations[k] - mean)
        inverse_scales[k] /= scaling


@kernel
def _log_density_at(
    components: SortedComponents,
    degrees: Degrees,
    end: int,
    y: float,
    log_heights: NDArray[np.float64],
    terms: NDArray[np.float64],
) -> float:
    """Return the log density of a mixture, also far out where ``mixture_at`` underflows.

    ``log_heights`` are the logarithms of each component's weight and density at its centre, without
    its scale. ``terms`` is scratch space.
    """
    _, locations, inverse_scales, sorted_degrees = components
    largest = -np.inf
    for k in range(end):
        standard = (y - locations[k]) * inverse_scales[k]
        if degrees is None:
            terms[k] = log_heights[k] - 0.5 * standard * standard
        else:
            terms[k] = log_heights[k] + student_log_density(standard, sorted_degrees[k])
        largest = max(largest, terms[k])
    total = 0.0
    for k in range(end):
        if terms[k] > largest - _NEGLIGIBLE:
            total += inverse_scales[k] * math.exp(terms[k] - largest)
    return largest + math.log(total)
