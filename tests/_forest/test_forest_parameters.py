"""Parameters of a forest: which are refused, what "auto" becomes, and which count after a fit."""

import numpy as np
import pytest

from benchmarks.settings import PRUNED
from forests import friedman, small_forest
from mondrian_forest import HierarchicalPosterior
from mondrian_forest.optimize import thompson_sample


@pytest.mark.parametrize(("n_rows", "expected"), [(49_999, 2), (50_000, 5)])
def test_nodes_of_few_rows_are_not_split_if_there_are_many_rows(n_rows, expected):
    X = np.random.default_rng(0).random((n_rows, 1))
    model = small_forest(n_estimators=1, feature_weights=None, spread=1.0).fit(X, X[:, 0])
    assert model.min_samples_split_ == expected
    (tree,) = model.trees_
    assert tree.n_samples[tree.left_child != -1].min() == expected


@pytest.mark.parametrize(("posterior", "in_stream"), [("empirical", 2), ("pruned", 5)])
def test_a_stream_keeps_the_smallest_node_of_its_latest_fit(posterior, in_stream):
    """Pruning is learned when there are more rows: then, the forest is fitted again."""
    X = np.random.default_rng(0).random((50_100, 1))
    model = small_forest(
        n_estimators=1, feature_weights=None, spread=1.0, posterior=posterior, mean_function=None
    )
    model.partial_fit(X[:100], X[:100, 0]).partial_fit(X[100:], X[100:, 0])
    assert model.min_samples_split_ == in_stream
    assert model.fit(X, X[:, 0]).min_samples_split_ == 5


def test_a_given_smallest_node_is_used():
    X, y = friedman(60, 3)
    assert small_forest(min_samples_split=7).fit(X, y).min_samples_split_ == 7


OTHER = HierarchicalPosterior(hyperparameters="marginal_likelihood")


def test_a_posterior_that_is_set_after_the_fit_does_not_change_draws():
    X, y = friedman(200, 3)
    model = small_forest(**PRUNED).fit(X, y)
    draw = thompson_sample(model, X[:5], 0)
    model.set_params(posterior=OTHER)
    np.testing.assert_array_equal(thompson_sample(model, X[:5], 0), draw)


def test_a_posterior_that_is_set_after_the_fit_does_not_change_the_model_of_a_stream():
    X, y = friedman(200, 3)
    model = small_forest(**PRUNED).fit(X, y)
    before = model.posterior_.noise_variance
    model.set_params(posterior=OTHER).partial_fit(X, y)
    assert model.posterior_.noise_variance == pytest.approx(before, rel=0.5)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("n_candidate_splits", 0, 'n_candidate_splits must be "n_features" or an integer'),
        ("n_candidate_splits", "sqrt", 'n_candidate_splits must be "n_features"'),
        ("n_candidate_splits", 2.5, "n_candidate_splits must be"),
        ("feature_weights", [1.0], "one number for each of the 3 features"),
        ("feature_weights", [1.0, -1.0, 1.0], "none is negative"),
        ("feature_weights", [0.0, 0.0, 0.0], "not all are zero"),
        ("feature_weights", [np.nan, 1.0, 1.0], "feature_weights must be"),
        ("feature_weights", "learn", "feature_weights must be"),
        ("spread", 0.0, "spread must be"),
        ("spread", "wide", "spread must be"),
        ("spread", np.nan, "spread must be"),
        ("mean_function", "cubic", "mean_function must be"),
        ("posterior", "mcmc", "posterior must be"),
        ("posterior", HierarchicalPosterior(hyperparameters="mcmc"), "hyperparameters must be"),
    ],
)
def test_a_wrong_parameter_is_named(parameter, value, message):
    X, y = friedman(30, 5)
    with pytest.raises(ValueError, match=message):
        small_forest(**PRUNED | {parameter: value}).fit(X[:, :3], y)
