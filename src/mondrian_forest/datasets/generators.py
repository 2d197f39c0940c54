"""Generated data sets with a known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._forest.validation import check_integer, check_number


def make_gap_wave(
    n_samples: int = 300, *, noise: float = 0.15, random_state: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Generate a noisy wave over one feature, with a region without data.

    The feature lies in [-3, -1] or in [1, 3]. The label is ``sin(2 x) + x / 2`` plus Gaussian
    noise. A good predictive distribution is narrow where there are data, and wide between -1 and 1.

    Parameters
    ----------
    n_samples : int, default=300
    noise : float, default=0.15
        Standard deviation of the noise.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    Examples
    --------
    >>> from mondrian_forest.datasets import make_gap_wave
    >>> X, y = make_gap_wave(50, random_state=0)
    >>> X.shape, y.shape
    ((50, 1), (50,))
    """
    check_integer("n_samples", n_samples, 1)
    check_number("noise", noise, 0.0)
    random = check_random_state(random_state)
    x = random.uniform(-2.0, 2.0, n_samples)
    x += np.copysign(1.0, x)
    y = np.sin(2.0 * x) + 0.5 * x + noise * random.standard_normal(n_samples)
    return x.reshape(-1, 1), y
