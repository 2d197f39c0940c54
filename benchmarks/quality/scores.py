"""Predictive distributions of the competitors, and how good they are.

All labels are standardised, so a floor is a share of the standard deviation of the label.

A density can be made as large as one likes on labels that are rounded (pol has 11 values, wine
steps of 0.09): there the best NLPD goes to whoever repeats a label exactly. Nobody's density
therefore counts for more than one over the rounding step, or than that of a Gaussian of a standard
deviation of 0.01 where the labels are finer. The other scores need no such blur, and have none.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from mondrian_forest.metrics import checked

LEAST_STD = 0.01
# Tails beyond the outermost quantile are our addition to a competitor: where its quantiles agree,
# a label outside of them shall not ruin it. The mass of a tail is given, so this costs nothing.
LEAST_TAIL = 0.1
LEVELS = np.array([*(k / 10 for k in range(1, 10)), 0.95])


class Distribution(Protocol):
    def mean(self) -> np.ndarray: ...
    def logpdf(self, y: np.ndarray) -> np.ndarray: ...
    def cdf(self, y: np.ndarray) -> np.ndarray: ...
    def crps(self, y: np.ndarray) -> np.ndarray: ...


class Gaussian(NamedTuple):
    mean: np.ndarray
    std: np.ndarray


class Quantiles(NamedTuple):
    """Levels of shape (k,), values of shape (n_rows, k) in any order."""

    levels: np.ndarray
    values: np.ndarray


Prediction = Gaussian | Quantiles | Distribution


class Blur(NamedTuple):
    """How sharp a distribution may be: its highest density, the least scale of its tails."""

    highest: float
    least_tail: float


SHARP = Blur(1e6, 1e-6)  # no blur, but nothing is divided by zero


def rounding_step(y_train: np.ndarray) -> float:
    """Return the median gap between different labels."""
    return float(np.median(np.diff(np.unique(y_train))))


def blur_of_labels(step: float) -> Blur:
    """Allow a density of one over the rounding step."""
    return Blur(1.0 / max(step, LEAST_STD * math.sqrt(2.0 * math.pi)), LEAST_TAIL)


def as_distribution(prediction: Prediction, blur: Blur) -> Distribution:
    """Return the distribution of a prediction, wide enough for the blur.

    The library's own predictions stay as they are; ``score`` cuts their density.
    """
    if isinstance(prediction, Quantiles):
        return QuantileDistribution(*prediction, blur)
    if isinstance(prediction, Gaussian):
        std = np.maximum(prediction.std, 1.0 / (blur.highest * math.sqrt(2.0 * math.pi)))
        # The Gaussian of the library's metrics, in the way that is public.
        return checked(prediction.mean, (prediction.mean, std))[1]
    return prediction


class QuantileDistribution:
    """Distributions from their quantiles.

    The quantile function is linear between the given levels. Beyond the outermost ones are
    exponential tails, each through the median and the outermost quantile: heavier than a Gaussian,
    which is kind to outliers. Tied quantiles are spread about their place, so that the density
    there is the highest allowed and the cdf in the middle of a tie is the middle of its levels.

    Parameters
    ----------
    levels : array of shape (k,)
        Ascending and symmetric about 0.5, which is one of them.
    quantiles : array of shape (n_rows, k)
        In any order: crossing quantiles are sorted.
    blur : Blur
    """

    def __init__(self, levels: np.ndarray, quantiles: np.ndarray, blur: Blur) -> None:
        self.levels = np.asarray(levels)
        # Least distances, as places: at least as far apart after both passes, so also their mean.
        least = np.concatenate(([0.0], np.cumsum(np.diff(self.levels)))) / blur.highest
        excess = np.sort(quantiles, axis=1) - least
        upward = np.maximum.accumulate(excess, axis=1)
        downward = np.minimum.accumulate(excess[:, ::-1], axis=1)[:, ::-1]
        self.quantiles = 0.5 * (upward + downward) + least
        self.tail = self.levels[0]
        median = self.quantiles[:, len(self.levels) // 2]
        per_scale = math.log(0.5 / self.tail)
        low, high = median - self.quantiles[:, 0], self.quantiles[:, -1] - median
        self.low_scale = np.maximum(low / per_scale, blur.least_tail)
        self.high_scale = np.maximum(high / per_scale, blur.least_tail)

    def mean(self) -> np.ndarray:
        middle = 0.5 * (self.quantiles[:, 1:] + self.quantiles[:, :-1]) @ np.diff(self.levels)
        ends = self.quantiles[:, 0] - self.low_scale + self.quantiles[:, -1] + self.high_scale
        return middle + self.tail * ends

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        below, above = self._beyond(y)
        bin_, width = self._bin(y)
        inside = np.log(np.diff(self.levels)[bin_] / width)
        low = np.log(self.tail / self.low_scale) - below / self.low_scale
        high = np.log(self.tail / self.high_scale) - above / self.high_scale
        return np.where(below > 0.0, low, np.where(above > 0.0, high, inside))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        below, above = self._beyond(y)
        bin_, width = self._bin(y)
        rows = np.arange(len(y))
        share = np.clip((y - self.quantiles[rows, bin_]) / width, 0.0, 1.0)
        inside = self.levels[bin_] + share * np.diff(self.levels)[bin_]
        low = self.tail * np.exp(-below / self.low_scale)
        high = 1.0 - self.tail * np.exp(-above / self.high_scale)
        return np.where(below > 0.0, low, np.where(above > 0.0, high, inside))

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Integrate (cdf - step at y)^2, which is quadratic in each bin."""
        left, right = self.quantiles[:, :-1], self.quantiles[:, 1:]
        cut = np.clip(y[:, None], left, right)
        at_left, at_right = self.levels[:-1], self.levels[1:]
        at_cut = at_left + (cut - left) / (right - left) * (at_right - at_left)
        before = (cut - left) * _mean_square(at_left, at_cut)
        after = (right - cut) * _mean_square(1.0 - at_cut, 1.0 - at_right)
        score = np.sum(before + after, axis=1)
        for distance, scale in zip(self._beyond(y), (self.low_scale, self.high_scale), strict=True):
            missed = distance - 2.0 * self.tail * scale * -np.expm1(-distance / scale)
            score += missed + 0.5 * self.tail**2 * scale
        return score

    def _beyond(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far y lies below the lowest and above the highest quantile, or zero."""
        below = np.maximum(self.quantiles[:, 0] - y, 0.0)
        return below, np.maximum(y - self.quantiles[:, -1], 0.0)

    def _bin(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the bin of y, or the nearest one, and its width."""
        bin_ = np.sum(self.quantiles[:, 1:-1] <= y[:, None], axis=1)
        rows = np.arange(len(y))
        return bin_, self.quantiles[rows, bin_ + 1] - self.quantiles[rows, bin_]


def _mean_square(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the mean of the square of what goes from start to end in a line."""
    return (start * start + start * end + end * end) / 3.0


def coverage_error(pit: np.ndarray) -> float:
    """Return the largest difference between a level and the share of labels in its interval."""
    inside = np.abs(pit - 0.5)[:, None] <= 0.5 * LEVELS
    return float(np.abs(inside.mean(axis=0) - LEVELS).max())


def pit_of_rounded(distribution: Distribution, y: np.ndarray, step: float) -> np.ndarray:
    """Return PIT values of labels that stand for anything within half a step.

    Each is drawn between the values at the two ends (Czado, Gneiting and Held, "Predictive model
    assessment for count data", 2009): those of a perfect forecast are uniform then, where at the
    labels themselves they gather in the middle, the more so the surer the forecast is.
    """
    low, high = distribution.cdf(y - 0.5 * step), distribution.cdf(y + 0.5 * step)
    return low + np.random.default_rng(0).random(len(y)) * (high - low)


def score(prediction: Prediction, y: np.ndarray, step: float) -> dict[str, float]:
    """Return all scores; of each, smaller is better. Only the density is blurred.

    ``step`` is the rounding step of the labels.
    """
    blur = blur_of_labels(step)
    log_density = as_distribution(prediction, blur).logpdf(y)
    log_density = np.minimum(log_density, math.log(blur.highest))
    distribution = as_distribution(prediction, SHARP)
    return {
        "rmse": math.sqrt(np.mean((distribution.mean() - y) ** 2)),
        "nlpd": -float(np.mean(log_density)),
        "crps": float(np.mean(distribution.crps(y))),
        "coverage_error": coverage_error(distribution.cdf(y)),
        "rounded_coverage_error": coverage_error(pit_of_rounded(distribution, y, step)),
    }
