"""Feature weights: how often each feature is cut, learned from the labels.

A feature should be cut more often if the prediction changes more along it. In each round a small
forest is fitted with the current weights. The next weights are proportional to the root mean square
of the derivative of its prediction, in units of the feature's range, and give better derivatives in
the next round. This is the diagonal case of the method of Baptista, O'Reilly and Xie, "TrIM:
Transformed Iterative Mondrian Forests for Gradient-based Dimension Reduction and High-Dimensional
Regression" (arXiv 2407.09964). Derivatives from few rows are inaccurate, and equal weights are
better if all features matter. So the weights of the round with the best predictions of held-out
rows are used, possibly the equal weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.tree import NO_CHILD, Tree

N_ROUNDS = 3
MOST_ROWS = 2500
"""Number of rows from which weights are learned. A fifth of them is held out to compare rounds."""
FEWEST_ROWS = 20
"""With fewer rows weights are equal."""
MOST_QUERIES = 20_000
"""Number of predictions in each round."""
MOST_FEATURES = 200
"""Derivatives are computed for this number of features: those whose cuts explain most of the
labels. The time of a prediction grows with the number of features. With predictions for each
feature, the time of a round would grow with its square."""
STEP = 0.25
"""Length of the step to either side of a row, in standard deviations of the feature."""
TAIL = 0.01
"""Share of the rows at either end of a feature that the standard deviation ignores."""

TOLERANCE = 0.01
"""If squared errors differ by a smaller share than this, the later round counts as better."""
LEAST = 1e-3
"""The smallest weight as a share of the largest. With a weight of zero, a feature could never
recover."""

Predict = Callable[[NDArray[np.float64]], NDArray[np.float64]]
Learn = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    tuple[Predict, NDArray[np.float64]],
]


def given_weights(
    given: NDArray[np.float64] | None, n_features: int, n_columns: int
) -> NDArray[np.float64]:
    """Return the rate of each feature as it is given, or equal ones.

    A mean function that is one column more is cut at the mean rate of the others.
    """
    if given is None:
        return np.ones(n_columns)
    if given.shape != (n_features,):
        raise ValueError(
            f"feature_weights must have one number for each of the {n_features} features, "
            f"got shape {given.shape}."
        )
    return np.append(given / given.mean(), np.ones(n_columns - n_features))


def learn_weights(
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    learn: Learn,
    random: np.random.Generator,
    n_rounds: int = N_ROUNDS,
) -> NDArray[np.float64]:
    """Return the weight of each feature. The mean of all weights is 1.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        The rows, in random order and in units of the range of each feature.
    labels : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_features,)
        Those of the first round. They are returned if no others are better.
    learn : callable
        Takes weights, rows and labels. Fits a small forest, and returns its prediction as a
        function, with the gain of each feature.
    random : Generator
    n_rounds : int
    """
    if len(rows) < FEWEST_ROWS:
        return weights
    n_kept = len(rows) // 5
    tried, errors = [], []
    for number in range(n_rounds + 1):
        predict, gain = learn(weights, rows[n_kept:], labels[n_kept:])
        tried.append(weights)
        errors.append(np.mean((predict(rows[:n_kept]) - labels[:n_kept]) ** 2))
        found = next_weights(rows, predict, gain, random) if number < n_rounds else None
        if found is None:
            break
        weights = found
    is_good = np.array(errors) <= (1.0 + TOLERANCE) * min(errors)
    return tried[int(np.flatnonzero(is_good)[-1])]


def next_weights(
    rows: NDArray[np.float64],
    predict: Predict,
    gain: NDArray[np.float64],
    random: np.random.Generator,
    n_queries: int = MOST_QUERIES,
) -> NDArray[np.float64] | None:
    """Return weights proportional to the slopes of a prediction; None if it has no slope."""
    slopes = _root_mean_square_slopes(rows, predict, gain, random, n_queries)
    if not np.nanmax(slopes, initial=0.0) > 0.0:
        return None
    slopes = np.maximum(slopes, LEAST * np.nanmax(slopes))
    slopes[np.isnan(slopes)] = np.nanmean(slopes)
    return np.asarray(slopes / slopes.mean())


def gains(trees: list[Tree], n_features: int) -> NDArray[np.float64]:
    """Return how much the cuts of each feature reduce the squared deviation of the labels."""
    found = np.zeros(n_features)
    for tree in trees:
        inner = np.flatnonzero(tree.left_child != NO_CHILD)
        left = tree.left_child[inner]
        deviation = tree.tallies["squared_deviation"]
        gain = deviation[inner] - deviation[left] - deviation[left + 1]
        found += np.bincount(tree.split_feature[inner], gain, n_features)
    return found


def _root_mean_square_slopes(
    rows: NDArray[np.float64],
    predict: Predict,
    gain: NDArray[np.float64],
    random: np.random.Generator,
    n_queries: int,
) -> NDArray[np.float64]:
    """Return the root mean square slope of a prediction along each feature.

    Slopes are differences around some of the rows. A feature that is constant in these rows has the
    slope NaN, because nothing is known about it. A feature has the slope zero if its cuts explain
    too little to be one of those whose derivatives are computed.
    """
    n_rows, n_features = rows.shape
    steps = STEP * _usual_deviations(rows)
    moves = steps > 0.0
    slopes = np.where(moves, 0.0, np.nan)
    chosen = np.flatnonzero(moves)
    if len(chosen) > MOST_FEATURES:
        chosen = np.sort(chosen[np.argsort(-gain[chosen], kind="stable")[:MOST_FEATURES]])
    if len(chosen) == 0:
        return slopes
    n_points = min(n_rows, max(n_queries // (2 * len(chosen)), FEWEST_ROWS))
    points = rows[random.choice(n_rows, n_points, replace=False)]
    for feature in chosen:
        moved = np.repeat(points[None], 2, axis=0)
        moved[0, :, feature] -= steps[feature]
        moved[1, :, feature] += steps[feature]
        below, above = predict(moved.reshape(-1, n_features)).reshape(2, -1)
        slopes[feature] = np.sqrt(np.mean((above - below) ** 2)) / (2.0 * steps[feature])
    return slopes


def _usual_deviations(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of each feature without the influence of extreme values."""
    low, high = np.quantile(rows, (TAIL, 1.0 - TAIL), axis=0)
    usual = np.clip(rows, low, high).std(axis=0)
    with np.errstate(over="ignore"):
        return np.asarray(np.where(usual > 0.0, usual, rows.std(axis=0)))
