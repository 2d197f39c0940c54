"""How far trees are pruned: the prior probability that a node is not cut, learned from the rows.

One tree by itself is best with a prior probability of 1/2, or with more where cuts are chosen by
labels that are noise. The mean of many trees averages over their noise, so that deeper trees suit
it better where labels are smooth. Which of this holds, only held-out rows can tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .._core.mixtures.crps import crps_of_normals

COIN = 0.5
PRIORS = (COIN, 0.73, 0.88, 0.98, 0.27, 0.12, 0.05, 0.02)
"""The prior probabilities that are tried. Of equally good ones the first is used."""
ENOUGH_ROWS = 1000
"""So many rows are predicted, in up to five turns of a fifth each."""
FEWEST_ROWS = 20
"""With fewer rows the prior probability is 1/2."""
_N_TURNS = 5
FACTORS = np.geomspace(0.1, 1.5, 20)
"""What standard deviations are multiplied by before they are judged, as the spread would do."""

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
    if len(rows) < FEWEST_ROWS:
        return COIN
    totals = np.zeros((len(PRIORS), len(FACTORS)))
    n_held = len(rows) // _N_TURNS
    for turn in range(min(-(-ENOUGH_ROWS // n_held), _N_TURNS)):
        held = np.zeros(len(rows), dtype=bool)
        held[turn * n_held : (turn + 1) * n_held] = True
        forecast = learn(rows[~held], labels[~held])
        for number, prior in enumerate(PRIORS):
            mean, std = forecast(prior, rows[held])
            totals[number] += scores_of(labels[held] - mean, std).sum(axis=0)
    return PRIORS[int(np.argmin(totals.min(axis=1)))]


def scores_of(errors: NDArray[np.float64], std: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the CRPS of normal distributions, by row and by the factor of their deviations."""
    scores = np.empty((len(errors), len(FACTORS)))
    crps_of_normals(errors, std, FACTORS, scores)
    return scores
