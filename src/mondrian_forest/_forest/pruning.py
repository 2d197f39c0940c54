"""How far trees are pruned: the prior probability that a node is not cut, learned from the rows.

One tree by itself is best with the prior of a coin, or with more where cuts are chosen by labels
that are noise. The mean of many trees averages over their noise, so that deeper trees suit it
better where labels are smooth. Which of this holds, only held-out rows can tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

LOG_ODDS = (0.0, 1.0, 2.0, 4.0, -1.0, -2.0, -3.0, -4.0)
"""Logarithms of the odds that are tried. The first is that of a coin."""
COIN = 0.5
ENOUGH_ROWS = 1000
"""So many rows are predicted, in up to five turns of a fifth each."""
FEWEST_ROWS = 20
"""With fewer rows the prior is a coin."""
_N_TURNS = 5
_FACTORS = np.geomspace(0.1, 1.5, 20)
"""What standard deviations are multiplied by before they are judged, as the spread would do."""
_SCORE_AT_ZERO = 1.0 / np.sqrt(np.pi)

Forecast = tuple[NDArray[np.float64], NDArray[np.float64]]
Learn = Callable[
    [NDArray[np.float64], NDArray[np.float64]], Callable[[float, NDArray[np.float64]], Forecast]
]


def learn_prior_stop(rows: NDArray[np.float64], labels: NDArray[np.float64], learn: Learn) -> float:
    """Return the prior probability of stopping with which rows are predicted best.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        The rows, in random order.
    labels : ndarray of shape (n_rows,)
    learn : callable
        Takes rows and labels, and fits a small forest. Returns a function that takes a prior
        probability and rows, and returns their means and standard deviations.
    """
    priors = expit(np.array(LOG_ODDS))
    if len(rows) < FEWEST_ROWS:
        return COIN
    scores = np.zeros((len(priors), len(_FACTORS)))
    n_held = len(rows) // _N_TURNS
    for turn in range(min(-(-ENOUGH_ROWS // n_held), _N_TURNS)):
        held = np.zeros(len(rows), dtype=bool)
        held[turn * n_held : (turn + 1) * n_held] = True
        forecast = learn(rows[~held], labels[~held])
        for number, prior in enumerate(priors):
            mean, std = forecast(float(prior), rows[held])
            widths = _FACTORS[:, None] * std
            scores[number] += _crps_of_normal(labels[held] - mean, widths).sum(axis=1)
    return float(priors[int(np.argmin(scores.min(axis=1)))])


def _crps_of_normal(error: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    standard = error / width
    density = np.exp(-0.5 * standard * standard) / np.sqrt(2.0 * np.pi)
    found: NDArray[np.float64] = width * (
        standard * (2.0 * ndtr(standard) - 1.0) + 2.0 * density - _SCORE_AT_ZERO
    )
    return found
