"""The forests of the golden record: how each is made, and what is written down about it."""

import hashlib
import json

import numpy as np

from mondrian_forest import (
    PAPER,
    HierarchicalPosterior,
    MondrianForestRegressor,
    PrunedPosterior,
)

N_ROWS, N_NEW, N_FEATURES, N_TREES = 160, 60, 3, 4
QUANTILES = [0.02, 0.25, 0.5, 0.9]

# Each posterior with and without candidate cuts, weights, spread, trend, given and found
# hyperparameters, one and two threads.
CASES = {
    "default": {},
    "default two threads": {"n_jobs": 2},
    "default 25 trees": {"n_estimators": 25, "n_jobs": 2},
    "paper": dict(PAPER),
    "paper two threads": {**PAPER, "n_jobs": 2},
    "paper, evidence": {
        **PAPER, "posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood"),
    },
    "paper, given": {
        **PAPER,
        "posterior": HierarchicalPosterior(
            prior_mean=0.3, prior_scale=2.0, prior_rate=0.4, noise_variance=0.05
        ),
    },
    "paper, some given, evidence": {
        **PAPER,
        "posterior": HierarchicalPosterior(
            noise_variance=0.05, hyperparameters="marginal_likelihood"
        ),
    },
    "hierarchical, all else default": {"posterior": "hierarchical"},
    "empirical": {**PAPER, "posterior": "empirical"},
    "empirical, all else default": {"posterior": "empirical", "min_samples_split": 5},
    "pruned alone": {**PAPER, "posterior": "pruned", "min_samples_split": 2},
    "pruned, given": {
        "posterior": PrunedPosterior(prior_mean=0.5, prior_scale=3.0, noise_variance=0.01),
    },
    "not robust": {"robust": False},
    "given range": {"feature_range": (-1.0, 2.0)},
    "given weights": {"feature_weights": [1.0, 0.0, 3.0]},
    "equal weights": {"feature_weights": None},
    "seven candidates": {"n_candidate_splits": 7, "spread": 1.5},
    "linear": {"mean_function": "linear"},
    "linear, paper": {**PAPER, "mean_function": "linear"},
    "linear, empirical": {"posterior": "empirical", "mean_function": "linear", "robust": False},
    "boosting, both": {"mean_function": "boosting", "mean_use": "both"},
    "linear, feature": {"mean_function": "linear", "mean_use": "feature"},
    "auto": {"mean_function": "auto"},
    "larger leaves": {"min_samples_split": 8},
}  # fmt: skip


def forest_of(case, **more):
    """Return the unfitted forest of a case."""
    parameters = {"n_estimators": N_TREES, "random_state": 7} | CASES[case] | more
    return MondrianForestRegressor(**parameters)


def table(n_rows, seed):
    """Return rows with ties, a rounded feature, an outlier in each of X and y, and their labels."""
    random = np.random.default_rng(seed)
    X = random.random((n_rows, N_FEATURES))
    X[:, 1] = np.round(X[:, 1], 1)
    X[: n_rows // 8] = X[n_rows // 8 : 2 * (n_rows // 8)]
    X[n_rows // 2, 2] = 30.0
    y = np.sin(5 * X[:, 0]) + 2 * X[:, 1] + 0.1 * random.normal(size=n_rows)
    y[3] = 500.0
    return X, y


def queries():
    """Return rows inside of the data, at its edge, outside of it, and far away."""
    random = np.random.default_rng(99)
    X = random.random((12, N_FEATURES))
    X[8], X[9], X[10], X[11] = table(N_ROWS, 0)[0][5], 1.4, -3.0, 1e6
    return X


def described(forest, y):
    """Return what a forest predicts, and what it keeps, as named arrays."""
    X = queries()
    mean, std = forest.predict(X, return_std=True)
    distribution = forest.predict_distribution(X)
    found = {
        "mean": mean,
        "std": std,
        "quantiles": forest.predict_quantiles(X, QUANTILES),
        "interval": forest.predict_interval(X, 0.8),
        "leaves": forest.apply(X).astype(np.int64),
        "logpdf": distribution.logpdf(y[: len(X)]),
        "cdf": distribution.cdf(y[: len(X)]),
        "crps": distribution.crps(y[: len(X)]),
        "draws": distribution.sample(3, random_state=1),
        "parts": np.array(distribution.decompose()),
        "components": digest(*distribution.components()),
        "weights": forest.feature_weights_,
        "spread": np.array([forest.spread_.balance, *forest.spread_.factor]),
        "range": np.array(forest.feature_range_),
        "trees": digest(*(part for tree in forest.trees_ for part in parts_of(tree))),
    }
    if forest_is_hierarchical(forest):
        found["likelihood"] = forest.log_marginal_likelihood_
    return found


def forest_is_hierarchical(forest):
    return hasattr(forest, "log_marginal_likelihood_")


def parts_of(tree):
    """Return all that a tree has, but for fields that its label model does not use."""
    numbers = (tree.tallies[name] for name in ("n_samples", "height", "label_mean"))
    return tree.nodes, tree.boxes, *numbers, tree.tallies["squared_deviation"]


def digest(*arrays):
    """Return the SHA-256 of arrays as 32 bytes."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(whole.digest(), np.uint8)


TREE_ARRAYS = ("sizes", "nodes", "boxes", "tallies", "row_numbers", "rows", "labels")


def arrays_of_file(path):
    """Return digests of the arrays of a model file that hold trees and rows."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    start = 8 + length
    found = {}
    for name in TREE_ARRAYS:
        first, stop = header[name]["data_offsets"]
        found[name] = digest(np.frombuffer(content[start + first : start + stop], np.uint8))
    return found
