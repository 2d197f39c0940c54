"""Choosing the spread from a record of rows that were predicted before they were learned.

- Rows with similar standard deviations share a factor. The central intervals that end at their
  labels have an average level of 1/2. This is a condition on coverage. A condition on density would
  ask for spikes where labels repeat.
- The balance is the one with the largest density.
- One correction then multiplies all factors, so that intervals of all levels cover what they should
  as nearly as the shape allows.

In trials on twelve tables the error in coverage was two thirds of that with one factor for all
rows, and CRPS and NLPD were better. Choosing factors by the CRPS, and six to ten groups of rows
instead of five, made little difference. Three groups were worse, and so was choosing factors by the
widths of intervals of given levels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays.tree import Records
from ..mixtures.neighbours import LEAST_SHARE
from .apply import LEVELS, Spread, Surroundings, constant_spread
from .blend import BLENDS, KINDS, Blend
from .record import BALANCES, DENSITY_FACTORS, FACTOR_STEP, FACTORS

_MOST_KNOTS = 5
_FEWEST_ROWS = 50
"""Rows of a knot. With fewer, chance would move its factor by more than a tenth."""
_PRIOR_OF_ALL = 20.0
"""How many rows it takes to move the factor of all rows halfway away from 1."""
_PRIOR_OF_KNOT = 5.0
"""How many rows it takes to move the factor of a knot halfway away from that of all rows."""
_LEAST_SLOPE = 0.05
"""The logarithm of the width rises at least so much with that of the standard deviation. With 0,
up to 40% of the rows had exactly the same width."""
_PRIOR_OF_CORRECTION = 20.0
"""How many rows it takes to make half of the correction that they ask for."""
_PRIOR_OF_BALANCE = 50.0
"""What the squared logarithm of a balance costs, in log density."""
_PRICE_OF_BLEND = 5.0
"""What a blend costs, in log density."""
_PRICE_OF_BLENDED_ROW = 0.02
"""And what it costs for each row. The labels near a row come from larger nodes than what the trees
predict. Where labels repeat, they win density by spikes. So their CRPS must be better, too."""
_LEAST_COVERAGE_ERROR = 0.05
"""A blend whose coverage is wrong by more, and by more than without it, is not used."""
_MOST_CHANGE = 0.5
"""Rows that were measured with a factor so far from today's factor, in logarithms, do not count for
balance and correction. The first rows of a stream are such rows."""
_CORRECTIONS = np.linspace(-0.4, 0.4, 9)
_FROM_MIDDLE = 0.1
"""The correction is at most so far from the median of the corrections that groups ask for. If the
labels of one group are exact, or of several kinds, the others would have to make up for it."""
_HIGHEST_PRICE = 0.5
"""No factor is so small that it loses more log density than this, compared with the best one. If a
few labels come as a complete surprise, coverage alone would make the distributions so narrow that
the few labels lose more than all others gain."""


def learn_factors(record: Records) -> Spread:
    """Return the factors that suit a record if shapes stay as they are, a balance of 1."""
    if len(record) == 0:
        return constant_spread(1.0)
    deviation = np.log(record["deviation"])
    of_all = _log_factor(record, 0.0, _PRIOR_OF_ALL)
    groups = _groups(deviation)
    knots = np.array([deviation[group].mean() for group in groups])
    log_factor = np.array([of_all])
    if len(groups) > 1:
        by_group = [_log_factor(record[group], of_all, _PRIOR_OF_KNOT) for group in groups]
        # A less certain prediction becomes the wider one, if only by a little.
        rest = (1.0 - _LEAST_SLOPE) * knots + np.array(by_group)
        ascending = np.maximum.accumulate(rest) + np.minimum.accumulate(rest[::-1])[::-1]
        log_factor = 0.5 * ascending - (1.0 - _LEAST_SLOPE) * knots
    return Spread(1.0, np.exp(knots), np.exp(log_factor))


def learn_spread(record: Records, far_deviation: float, n_samples: int) -> Spread:
    """Return the spread that suits a record of at least one row.

    ``far_deviation`` is that of forecasts far from all data, and ``n_samples`` the number of rows
    that the forest will have.
    """
    factors = learn_factors(record)
    change = np.log(factors.factor_at(record["deviation"])) - record["log_factor"]
    is_near = np.abs(change) <= _MOST_CHANGE
    near, change = record[is_near], change[is_near]
    scores = near["gain"].sum(axis=0) - _PRIOR_OF_BALANCE * np.log(BALANCES) ** 2
    best = int(np.argmax(scores))
    correction = 0.0
    if len(near) > 0:
        levels = near["level_below"][:, best], near["level_above"][:, best]
        intervals = np.column_stack((*levels, change))
        groups = _groups(np.log(near["deviation"]))
        middle = np.median([_correction(intervals[group]) for group in groups])
        correction = np.clip(_correction(intervals), middle - _FROM_MIDDLE, middle + _FROM_MIDDLE)
    novelty = np.quantile(_novelty_among(record, n_samples), LEVELS)
    surroundings = Surroundings(novelty, far_deviation)
    blend = _best_blend(near, best)
    if blend is not None:
        # It was measured with these factors, and a balance of 1.
        return Spread(1.0, factors.deviation, factors.factor, surroundings, blend)
    factor = np.clip(factors.factor * math.exp(correction), FACTORS[0], FACTORS[-1])
    return Spread(float(BALANCES[best]), factors.deviation, factor, surroundings)


def _novelty_among(record: Records, n_samples: int) -> NDArray[np.float64]:
    """Return about the novelty that rows would have in a forest of ``n_samples`` rows.

    These are the rows that were measured since the forest had half of its rows, or the latest ones.
    The few rows beside a row are the same number in a larger forest, so that their share falls. The
    share of the rows in a large part of space stays.
    """
    n_recent = int(np.sum(record["n_samples"] >= 0.5 * n_samples))
    recent = record[-max(n_recent, _FEWEST_ROWS) :]
    novelty = recent["novelty"]
    ratio = np.minimum(recent["n_samples"] / n_samples, 1.0)
    return np.asarray(np.clip(novelty * (ratio + (1.0 - ratio) * novelty), LEAST_SHARE, 1.0))


def _best_blend(record: Records, balance: int) -> Blend | None:
    """Return the blend with the largest density, if that is clearly larger than without one."""
    if len(record) == 0:
        return None
    gains = record["blend_gain"].sum(axis=0) - record["gain"][:, balance].sum()
    best = int(np.argmax(gains))
    if gains[best] < _PRICE_OF_BLEND + _PRICE_OF_BLENDED_ROW * len(record):
        return None
    kind = KINDS.index(BLENDS[best].is_pruned)
    if record["label_crps"][:, kind].sum() > record["crps"].sum():
        return None
    error = _coverage_error(record["blend_level"][:, best])
    middle = 0.5 * (record["level_below"] + record["level_above"])[:, balance]
    return BLENDS[best] if error <= max(_coverage_error(middle), _LEAST_COVERAGE_ERROR) else None


def _coverage_error(levels: NDArray[np.float64]) -> float:
    """Return the largest difference between a level and the share of labels that it covers."""
    expected = (np.arange(len(levels)) + 0.5) / len(levels)
    return float(np.max(np.abs(np.sort(levels) - expected)))


def _groups(deviation: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Return groups of rows with similar standard deviations, one for each knot."""
    n_groups = min(max(len(deviation) // _FEWEST_ROWS, 1), _MOST_KNOTS)
    groups: list[NDArray[np.int64]] = []
    for group in np.array_split(np.argsort(deviation, kind="stable"), n_groups):
        if groups and deviation[group].mean() - deviation[groups[-1]].mean() < 1e-6:
            groups[-1] = np.concatenate((groups[-1], group))  # knots must differ
        else:
            groups.append(group)
    return groups


def _log_factor(record: Records, centre: float, prior: float) -> float:
    """Return the logarithm of the factor that suits these rows and ``prior`` imagined ones.

    The imagined rows ask for the logarithm ``centre``. They have normal predictions and labels:
    with another factor, the average level of their intervals is
    2 / pi arctan(factor asked for / factor).
    """
    tried = np.log(FACTORS)
    excess = (record["level"] - 0.5).sum(axis=0)
    excess += prior * (2.0 / math.pi * np.arctan(np.exp(centre - tried)) - 0.5)
    # The excess falls with the factor, except for some skewed distributions.
    found = np.interp(0.0, np.maximum.accumulate(-excess), tried)
    log_density = record["log_density"].mean(axis=0)
    rising = np.maximum.accumulate(log_density)
    least = np.interp(rising[-1] - _HIGHEST_PRICE, rising, np.log(DENSITY_FACTORS))
    return float(max(found, least))


def _correction(intervals: NDArray[np.float64]) -> float:
    """Return what to add to the logarithms of factors so that intervals of all levels fit.

    The columns are the levels of intervals with a factor a step below and a step above that of the
    record, and the change of the factor since. The correction minimises the squared differences
    between level and coverage. Few rows make it smaller.
    """
    below, above, change = intervals.T
    n_rows = len(intervals)
    coverage = (np.arange(n_rows) + 0.5) / n_rows
    middle, slope = 0.5 * (above + below), (above - below) / (2.0 * FACTOR_STEP)
    errors = np.empty(len(_CORRECTIONS))
    for number, correction in enumerate(_CORRECTIONS):
        level = np.clip(middle + slope * (change + correction), 0.0, 1.0)
        errors[number] = np.mean((np.sort(level) - coverage) ** 2)
    # A parabola through the best correction and its neighbours.
    best = int(np.clip(np.argmin(errors), 1, len(errors) - 2))
    left_error, error, right_error = errors[best - 1 : best + 2]
    curvature = left_error - 2.0 * error + right_error
    offset = 0.5 * (left_error - right_error) / curvature if curvature > 0.0 else 0.0
    found = _CORRECTIONS[best] + np.clip(offset, -1.0, 1.0) * (_CORRECTIONS[1] - _CORRECTIONS[0])
    return float(found * n_rows / (n_rows + _PRIOR_OF_CORRECTION))
