"""Small forests and tables that tests of fitted forests share."""

import numpy as np
from sklearn.datasets import make_friedman1

from mondrian_forest import MondrianForestRegressor


def small_forest(**parameters):
    return MondrianForestRegressor(**{"n_estimators": 8, "random_state": 0} | parameters)


def friedman(n_rows=400, n_features=10, seed=0):
    """Return rows of which the first five features matter, and labels with noise of deviation 1."""
    X, y = make_friedman1(n_rows, max(n_features, 5), noise=1.0, random_state=seed)
    return np.ascontiguousarray(X[:, :n_features]), y


def rmse(forest, X, y):
    return np.sqrt(np.mean((forest.predict(X) - y) ** 2))


def share_covered(distribution, y, level):
    """Return the share of labels inside the central intervals of a level."""
    low, high = distribution.interval(level).T
    return np.mean((low <= y) & (y <= high))
