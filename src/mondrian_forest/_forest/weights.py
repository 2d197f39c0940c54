"""Rates of the features, learned from the labels: where to cut often, and where hardly ever.

A feature along which the prediction changes much should be cut more often than one along which it
does not change at all. The rates are set in proportion to the root mean square of the derivative of
a forest's prediction, in units of the feature's range, and the next forest, which has these rates,
gives better derivatives: the diagonal of the method of Baptista, O'Reilly and Xie, "TrIM:
Transformed Iterative Mondrian Forests for Gradient-based Dimension Reduction and High-Dimensional
Regression" (arXiv 2407.09964). Derivatives from few rows are rough, and where all features matter,
equal rates are better: of all rounds, the one counts that predicts rows best that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.tree import NO_CHILD, Tree

N_ROUNDS = 3
MOST_ROWS = 2500
"""Of the table on which derivatives are learned; a fifth is kept for the comparison."""
FEWEST_ROWS = 20
MOST_QUERIES = 20_000
"""Points at which the forest is asked for its prediction, in each round."""
MOST_FEATURES = 200
"""Whose derivatives are found, those whose cuts explain most of the labels. A query takes time in
proportion to the number of features, so that queries for each of them would take its square."""
STEP = 0.25
"""On either side of a row, in standard deviations of the feature."""
TAIL = 0.01
"""The share of rows at either end of a feature that has no say in its standard deviation."""

TOLERANCE = 0.01
"""Of squared errors that differ by a smaller share, the later round's counts as the smaller one."""
LEAST = 1e-3
"""The smallest rate, as a share of the largest: nothing is written off for good."""

Predict = Callable[[NDArray[np.float64]], NDArray[np.float64]]
Learn = Callable[
    [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    tuple[Predict, NDArray[np.float64]],
]


def learn_weights(
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    learn: Learn,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the rate of each feature; their mean is 1.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        In random order, and in units of the range of each feature.
    labels : ndarray of shape (n_rows,)
    learn : callable
        Takes rates, rows and labels, and returns the prediction of a small forest as a function,
        with the gain of each feature.
    random : Generator
    """
    weights = np.ones(rows.shape[1])
    if len(rows) < FEWEST_ROWS:
        return weights
    n_kept = len(rows) // 5
    tried, errors = [], []
    for _ in range(N_ROUNDS + 1):
        predict, gain = learn(weights, rows[n_kept:], labels[n_kept:])
        tried.append(weights)
        errors.append(np.mean((predict(rows[:n_kept]) - labels[:n_kept]) ** 2))
        slopes = _root_mean_square_slopes(rows, predict, gain, random)
        if not np.nanmax(slopes, initial=0.0) > 0.0:
            break
        slopes = np.maximum(slopes, LEAST * np.nanmax(slopes))
        slopes[np.isnan(slopes)] = np.nanmean(slopes)
        weights = slopes / slopes.mean()
    is_good = np.array(errors) <= (1.0 + TOLERANCE) * min(errors)
    return tried[int(np.flatnonzero(is_good)[-1])]


def gains(trees: list[Tree], n_features: int) -> NDArray[np.float64]:
    """Return by how much the cuts of each feature reduce the squared deviation of the labels."""
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
) -> NDArray[np.float64]:
    """Return how steep a prediction is along each feature, by differences about some rows.

    NaN for those that do not move in these rows: that says nothing about others. Zero for those
    that explain too little to be looked at.
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
    n_points = min(n_rows, max(MOST_QUERIES // (2 * len(chosen)), FEWEST_ROWS))
    points = rows[random.choice(n_rows, n_points, replace=False)]
    for feature in chosen:
        moved = np.repeat(points[None], 2, axis=0)
        moved[0, :, feature] -= steps[feature]
        moved[1, :, feature] += steps[feature]
        below, above = predict(moved.reshape(-1, n_features)).reshape(2, -1)
        slopes[feature] = np.sqrt(np.mean((above - below) ** 2)) / (2.0 * steps[feature])
    return slopes


def _usual_deviations(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of each feature, in which no single value has much say."""
    low, high = np.quantile(rows, (TAIL, 1.0 - TAIL), axis=0)
    usual = np.clip(rows, low, high).std(axis=0)
    with np.errstate(over="ignore"):
        return np.asarray(np.where(usual > 0.0, usual, rows.std(axis=0)))
