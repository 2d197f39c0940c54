"""The spread of mixtures: how it is changed, and how it is learned from labels that came.

An equal mixture over trees is too wide where the trees err independently, and seldom of the right
shape. A ``Spread`` changes both and leaves the mean m alone. A label Y of a mixture with standard
deviation s becomes m + f (Y - m), with a factor f that depends on s: trees that agree may do so
since the labels are clear, or by chance, and only labels tell. And the distances between components
become ``balance`` times as large as they were, compared with the components themselves; the
standard deviation stays what it is. More than 1 gives lighter tails and clearer modes, less than 1
is for places where the mean of the trees is far better than each of them.

All is learned from rows that are predicted before they are learned:

- The factor of rows of similar s is such that the probability of the central interval that ends at
  the label is 1/2 on average. This is a condition on coverage, not on density, which for labels
  that repeat would ask for spikes.
- The balance is the one with the largest density.
- Then all factors are multiplied by one number, such that intervals of all levels cover what they
  should as nearly as the shape allows it.

In trials on twelve tables this gave two thirds of the error in coverage that one factor for all
rows gave, and better CRPS and NLPD. The CRPS as another criterion for the factors, and six to ten
groups of rows instead of five, made little difference; three groups were worse, and so were the
widths of intervals of given levels as the criterion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import kernel
from ..mixtures.mixture import (
    Degrees,
    Mixture,
    Sorted,
    allocate_sorted,
    degrees_of,
    mixture_at,
    sort_components,
)
from ..mixtures.predict import ForestMoments
from ..mixtures.student import density_at_zero, student_log_density

FACTORS = np.geomspace(0.0005, 3.0, 28)
"""The factors that are tried; the one in use is found between them."""
BALANCES = 2.0 ** np.arange(-1.0, 2.5, 0.5)
_EVEN = int(np.flatnonzero(BALANCES == 1.0)[0])

_DENSITY_EVERY = 3
"""The density is looked at for each so-manieth factor only: it costs more than an interval."""

# What follows is part of the format of model files, as are FACTORS and BALANCES.
# A row of a record: the standard deviation of the prediction; the logarithm of the factor that
# suited a balance of 1 when it was predicted; for each factor the probability of the central
# interval that ends at the label; for some factors the log density there, in units of the standard
# deviation; for each balance the probability with a little less and with a little more than that
# factor; for each balance what it adds to the log density with that factor.
_DEVIATION, _LOG_FACTOR = 0, 1
_INSIDE = slice(2, 2 + len(FACTORS))
_LOG_DENSITY = slice(_INSIDE.stop, _INSIDE.stop + len(FACTORS[::_DENSITY_EVERY]))
_BELOW = slice(_LOG_DENSITY.stop, _LOG_DENSITY.stop + len(BALANCES))
_ABOVE = slice(_BELOW.stop, _BELOW.stop + len(BALANCES))
_GAIN = slice(_ABOVE.stop, _ABOVE.stop + len(BALANCES))
RECORD_WIDTH = _GAIN.stop

_MOST_KNOTS = 5
_FEWEST_ROWS = 50
"""Of a knot. Fewer would move it by more than a tenth by chance."""
_PRIOR_OF_ALL = 20.0
"""How many rows it takes to move the factor of all rows away from 1 halfway."""
_PRIOR_OF_ONE = 5.0
"""The same for the factor of a knot, away from that of all rows."""
_PRIOR_OF_CORRECTION = 20.0
"""The same for the correction of all factors, away from none."""
_MOST_CHANGE = 0.5
"""Rows that were measured with a factor so far from that of today (in logarithms), as the first
ones of a stream, have no say in balance and correction."""
_CORRECTIONS = np.linspace(-0.4, 0.4, 9)
_LITTLE = 0.15
_FROM_MIDDLE = 0.1
"""The correction is at most so far from the median of those of the groups: where labels of a group
are exact, or of several kinds, others would have to make up for it."""
_PRIOR_OF_BALANCE = 50.0
"""What the squared logarithm of a balance costs, in log density."""
_HIGHEST_PRICE = 0.5
"""No factor is so small that it costs more log density than this, compared with the best one: where
a few labels come as a complete surprise and all others do not, coverage alone would make the
distributions so narrow that the few cost more than the others gain."""
_FAR = 1.05
"""A standard deviation is beyond what was seen if it is so many times as large."""
_MOST_OF_ONE = 200.0
"""So much log density can a row win or lose at most, else it could decide alone."""
_FARTHEST = 20.0
"""Standard deviations from the mean beyond which a label counts as if it were there."""
_NORMAL_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
_NEGLIGIBLE = 40.0
"""Components whose log density is so far below the largest are left out."""


class Spread(NamedTuple):
    """How predictive distributions are stretched about their means.

    Attributes
    ----------
    balance : float
        How many times as large the distances between components become, compared with the
        components themselves. It leaves standard deviations as they are.
    deviation : ndarray of shape (n_knots,)
        Standard deviations of unchanged predictions, ascending.
    factor : ndarray of shape (n_knots,)
        What they are multiplied by; between these, and beyond them, as ``factor_at`` says.
    """

    balance: float
    deviation: NDArray[np.float64]
    factor: NDArray[np.float64]

    def factor_at(self, deviation: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factors for predictions of these standard deviations.

        Between two knots they are a power of the standard deviation, beyond the outermost ones they
        are constant.
        """
        if len(self.factor) == 1:
            return np.full(len(deviation), self.factor[0])
        return np.exp(np.interp(np.log(deviation), np.log(self.deviation), np.log(self.factor)))

    def changes_nothing(self) -> bool:
        """Return whether distributions stay as they are."""
        return self.balance == 1.0 and bool(np.all(self.factor == 1.0))


def constant_spread(factor: float) -> Spread:
    """Return the spread that has one factor for all rows."""
    return Spread(1.0, np.ones(1), np.array([factor]))


def stretch(mixture: Mixture, moments: ForestMoments, spread: Spread) -> ForestMoments:
    """Stretch mixtures about their means, in place, and return their moments."""
    mean, posterior, branching, between_trees, noise = moments
    total = posterior + branching + between_trees + noise
    factor = spread.factor_at(np.sqrt(total))
    scaling = np.empty(len(mean))
    _stretch(mixture, mean, spread.balance, factor, scaling)
    within, between = scaling**2, (spread.balance * scaling) ** 2
    if spread.balance == 1.0:
        branching = between * branching
    else:
        # Components differ in location and in what lies between their place and the row; the rest
        # of the variance, which is known, is the sum of both.
        known = within * (posterior + noise) + between * between_trees
        branching = np.maximum(factor**2 * total - known, 0.0)
    return ForestMoments(
        mean, within * posterior, branching, between * between_trees, within * noise
    )


@kernel
def _variances(mixture: Mixture, i: int, mean: float) -> tuple[float, float]:
    """Return the variance within the components of mixture i, and between them."""
    offset, weights, locations, scales, all_degrees = mixture
    within = between = 0.0
    for k in range(offset[i], offset[i + 1]):
        from_mean = locations[k] - mean
        square = scales[k] * scales[k]
        if len(all_degrees) > 0:
            square *= all_degrees[k] / (all_degrees[k] - 2.0)
        within += weights[k] * square
        between += weights[k] * from_mean * from_mean
    return within, between


@kernel
def _scaling(within: float, between: float, balance: float) -> float:
    """Return the factor of the scales with which a balance leaves the variance as it is."""
    if balance == 1.0:
        return 1.0
    return math.sqrt((within + between) / (within + balance * balance * between))


@kernel
def _stretch(
    mixture: Mixture,
    mean: NDArray[np.float64],
    balance: float,
    factor: NDArray[np.float64],
    scaling: NDArray[np.float64],
) -> None:
    """Stretch each mixture; ``scaling`` becomes what the scales were multiplied by."""
    offset, _, locations, scales, _ = mixture
    for i in range(len(mean)):
        within, between = _variances(mixture, i, mean[i])
        scaling[i] = factor[i] * _scaling(within, between, balance)
        for k in range(offset[i], offset[i + 1]):
            locations[k] = mean[i] + balance * scaling[i] * (locations[k] - mean[i])
            scales[k] *= scaling[i]


def measure(
    mixture: Mixture,
    mean: NDArray[np.float64],
    y: NDArray[np.float64],
    even: Spread,
    record: NDArray[np.float64],
) -> None:
    """Fill in the record of labels that have come after mixtures were predicted.

    ``even`` is what ``even_spread`` has found so far: balances are judged with its factors. If it
    were those of the balance in use, that one would look better than it is.
    """
    deviation = record[:, _DEVIATION]
    _deviations(mixture, mean, deviation)
    record[:, _LOG_FACTOR] = np.log(even.factor_at(deviation))
    _measure(mixture, degrees_of(mixture), mean, y, record)
    density, gain = record[:, _LOG_DENSITY], record[:, _GAIN]
    np.maximum(density, density.max(axis=1, keepdims=True) - _MOST_OF_ONE, out=density)
    gain -= gain[:, [_EVEN]]
    np.clip(gain, -_MOST_OF_ONE, _MOST_OF_ONE, out=gain)


@kernel
def _deviations(
    mixture: Mixture, mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> None:
    for i in range(len(mean)):
        within, between = _variances(mixture, i, mean[i])
        deviation[i] = math.sqrt(within + between)


@kernel
def _balanced(
    mixture: Mixture,
    degrees: Degrees,
    i: int,
    mean: float,
    balance: float,
    out: Sorted,
) -> tuple[int, int, int]:
    """Copy the components of mixture i with another balance; return where each kind ends."""
    within, between = _variances(mixture, i, mean)
    scaling = _scaling(within, between, balance)
    ends = sort_components(mixture, degrees, i, out)
    _, locations, inverse_scales, _ = out
    for k in range(ends[2]):
        locations[k] = mean + balance * scaling * (locations[k] - mean)
        inverse_scales[k] /= scaling
    return ends


@kernel
def _log_density_at(
    components: Sorted,
    degrees: Degrees,
    end: int,
    y: float,
    log_heights: NDArray[np.float64],
    terms: NDArray[np.float64],
) -> float:
    """Return the log density of a mixture far out, too, where that of ``mixture_at`` ends.

    ``log_heights`` are of the components' densities at their centres, but for their scales.
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


@kernel
def _measure(
    mixture: Mixture,
    degrees: Degrees,
    mean: NDArray[np.float64],
    y: NDArray[np.float64],
    record: NDArray[np.float64],
) -> None:
    components = allocate_sorted(mixture.offset, degrees)
    weights, _, _, sorted_degrees = components
    log_heights, terms = np.empty(len(weights)), np.empty(len(weights))
    for i in range(len(y)):
        deviation, factor = record[i, 0], math.exp(record[i, 1])
        farthest = _FARTHEST * deviation
        from_mean = min(max(y[i] - mean[i], -farthest), farthest)
        ends = sort_components(mixture, degrees, i, components)
        for k in range(ends[2]):
            at_zero = _NORMAL_AT_ZERO if degrees is None else density_at_zero(sorted_degrees[k])
            log_heights[k] = math.log(weights[k] * at_zero * deviation)
        column = 2
        for f in range(len(FACTORS)):
            point = mean[i] + from_mean / FACTORS[f]
            below, _ = mixture_at(components, degrees, ends, point)
            record[i, column] = abs(2.0 * below - 1.0)
            column += 1
        for f in range(0, len(FACTORS), _DENSITY_EVERY):
            point = mean[i] + from_mean / FACTORS[f]
            density = _log_density_at(components, degrees, ends[2], point, log_heights, terms)
            record[i, column] = density - math.log(FACTORS[f])
            column += 1
        n_balances = len(BALANCES)
        for b in range(n_balances):
            _balanced(mixture, degrees, i, mean[i], BALANCES[b], components)
            for side in range(2):
                point = mean[i] + from_mean / (factor * math.exp((2 * side - 1) * _LITTLE))
                below, _ = mixture_at(components, degrees, ends, point)
                record[i, column + side * n_balances + b] = abs(2.0 * below - 1.0)
            record[i, column + 2 * n_balances + b] = _log_density_at(
                components, degrees, ends[2], mean[i] + from_mean / factor, log_heights, terms
            )


def even_spread(record: NDArray[np.float64]) -> Spread:
    """Return the factors that suit a record where shapes are left as they are."""
    if len(record) == 0:
        return constant_spread(1.0)
    deviation = np.log(record[:, _DEVIATION])
    of_all = _log_factor(record, 0.0, _PRIOR_OF_ALL)
    groups = _groups(deviation)
    knots = np.array([deviation[group].mean() for group in groups])
    log_factor = np.array([of_all])
    if len(groups) > 1:
        by_group = [_log_factor(record[group], of_all, _PRIOR_OF_ONE) for group in groups]
        # What is less certain is not to become the narrower one.
        width = knots + np.array(by_group)
        ascending = np.maximum.accumulate(width) + np.minimum.accumulate(width[::-1])[::-1]
        log_factor = 0.5 * ascending - knots
    return Spread(1.0, np.exp(knots), np.exp(log_factor))


def learn_spread(record: NDArray[np.float64], far_deviation: float) -> Spread:
    """Return the spread that suits a record of at least one row.

    ``far_deviation`` is the standard deviation of predictions far from all data. If it is beyond
    what the record has seen, the factor there is at least 1: such a prediction is that of all
    labels, in which there is no error of trees that their mean would be without.
    """
    even = even_spread(record)
    log_factor = np.log(even.factor_at(record[:, _DEVIATION]))
    change = log_factor - record[:, _LOG_FACTOR]
    is_near = np.abs(change) <= _MOST_CHANGE
    near, change = record[is_near], change[is_near]
    scores = near[:, _GAIN].sum(axis=0) - _PRIOR_OF_BALANCE * np.log(BALANCES) ** 2
    best = int(np.argmax(scores))
    correction = 0.0
    if len(near) > 0:
        intervals = np.column_stack((near[:, _BELOW][:, best], near[:, _ABOVE][:, best], change))
        groups = _groups(np.log(near[:, _DEVIATION]))
        middle = np.median([_correction(intervals[group]) for group in groups])
        correction = np.clip(_correction(intervals), middle - _FROM_MIDDLE, middle + _FROM_MIDDLE)
    deviation = even.deviation
    factor = np.clip(even.factor * math.exp(correction), FACTORS[0], FACTORS[-1])
    # Not the largest of all: one row could be far off itself.
    largest = max(np.quantile(record[:, _DEVIATION], 0.99), (1.0 + 1e-6) * deviation[-1])
    if factor[-1] < 1.0 and far_deviation > _FAR * largest:
        deviation = np.concatenate((deviation, [largest, far_deviation]))
        factor = np.concatenate((factor, [factor[-1], 1.0]))
    return Spread(float(BALANCES[best]), deviation, factor)


def _groups(deviation: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Return groups of rows of similar standard deviations, each a knot."""
    n_groups = min(max(len(deviation) // _FEWEST_ROWS, 1), _MOST_KNOTS)
    groups: list[NDArray[np.int64]] = []
    for group in np.array_split(np.argsort(deviation, kind="stable"), n_groups):
        if groups and deviation[group].mean() - deviation[groups[-1]].mean() < 1e-6:
            groups[-1] = np.concatenate((groups[-1], group))  # one knot for equal ones
        else:
            groups.append(group)
    return groups


def _log_factor(record: NDArray[np.float64], centre: float, prior: float) -> float:
    """Return the logarithm of the factor of these rows, and of prior ones that ask for ``centre``.

    The prior rows are normal labels of predictions that are too wide or narrow by that factor: on
    average the probability of their intervals is 2 / pi arctan(factor wanted / factor).
    """
    tried = np.log(FACTORS)
    excess = (record[:, _INSIDE] - 0.5).sum(axis=0)
    excess += prior * (2.0 / math.pi * np.arctan(np.exp(centre - tried)) - 0.5)
    # It falls with the factor, if not for every skewed distribution.
    found = np.interp(0.0, np.maximum.accumulate(-excess), tried)
    log_density = record[:, _LOG_DENSITY].mean(axis=0)
    rising = np.maximum.accumulate(log_density)
    least = np.interp(rising[-1] - _HIGHEST_PRICE, rising, tried[::_DENSITY_EVERY])
    return float(max(found, least))


def _correction(intervals: NDArray[np.float64]) -> float:
    """Return what to add to the logarithms of factors, so that intervals of all levels fit.

    The columns are the probabilities of intervals with factors a little below and a little above
    those of the record, and by how much the factors have changed since. The sum of the squared
    differences between level and coverage becomes as small as the shape allows; too few rows cannot
    tell it.
    """
    below, above, change = intervals.T
    n_rows = len(intervals)
    levels = (np.arange(n_rows) + 0.5) / n_rows
    middle, slope = 0.5 * (above + below), (above - below) / (2.0 * _LITTLE)
    errors = np.empty(len(_CORRECTIONS))
    for number, correction in enumerate(_CORRECTIONS):
        probability = np.clip(middle + slope * (change + correction), 0.0, 1.0)
        errors[number] = np.mean((np.sort(probability) - levels) ** 2)
    best = int(np.clip(np.argmin(errors), 1, len(errors) - 2))
    left_error, error, right_error = errors[best - 1 : best + 2]
    curvature = left_error - 2.0 * error + right_error
    offset = 0.5 * (left_error - right_error) / curvature if curvature > 0.0 else 0.0
    found = _CORRECTIONS[best] + np.clip(offset, -1.0, 1.0) * (_CORRECTIONS[1] - _CORRECTIONS[0])
    return float(found * n_rows / (n_rows + _PRIOR_OF_CORRECTION))


def record_of_constant(factor: float, deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a record of rows that ask for one factor, whatever the standard deviation."""
    record = np.zeros((len(deviation), RECORD_WIDTH))
    record[:, _DEVIATION] = deviation
    record[:, _LOG_FACTOR] = math.log(factor)
    record[:, _INSIDE] = 2.0 / math.pi * np.arctan(factor / FACTORS)
    record[:, _BELOW] = 2.0 / math.pi * math.atan(math.exp(_LITTLE))
    record[:, _ABOVE] = 2.0 / math.pi * math.atan(math.exp(-_LITTLE))
    return record
