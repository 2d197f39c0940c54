"""Hyperparameters that maximise the marginal likelihood of the labels."""

import numpy as np
import pytest
from sklearn.base import clone

from forests import friedman, rmse, small_forest
from mondrian_forest import PAPER, HierarchicalPosterior
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._forest import trees
from mondrian_forest._forest.sharing import state_of

LIKELIEST = PAPER | {"posterior": HierarchicalPosterior(hyperparameters="marginal_likelihood")}


def test_the_likelihood_is_higher_than_with_the_heuristic():
    X, y = friedman(500, 5)
    heuristic = small_forest(**PAPER).fit(X, y)
    fitted = small_forest(**LIKELIEST).fit(X, y)
    gain = fitted.log_marginal_likelihood_ - heuristic.log_marginal_likelihood_
    assert gain.mean() > 50.0
    X_test, y_test = friedman(500, 5, seed=1)
    assert rmse(fitted, X_test, y_test) < rmse(heuristic, X_test, y_test)


def test_an_interrupt_leaves_all_trees_with_the_same_hyperparameters(monkeypatch):
    X, y = friedman(300, 5)
    model = small_forest(**LIKELIEST).fit(X[:150], y[:150])
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == model.n_estimators + 3:  # after the trees have learned the rows
            raise KeyboardInterrupt
        renew(*arguments)

    monkeypatch.setattr(trees, "renew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[150:], y[150:])
    found = model.predict(X)
    state = state_of(model)
    for number in range(model.n_estimators):
        renew(state.grove, number, state.model)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)


def test_given_hyperparameters_stay_and_others_are_found_again_along_a_stream():
    X, y = friedman(300, 5)
    posterior = HierarchicalPosterior(noise_variance=2.0, hyperparameters="marginal_likelihood")
    model = small_forest(**PAPER | {"posterior": posterior}).fit(X[:150], y[:150])
    before = model.posterior_.prior_rate
    model.partial_fit(X[150:], y[150:])
    assert model.posterior_.noise_variance == 2.0
    assert model.posterior_.prior_rate != before
    np.testing.assert_allclose(
        model.log_marginal_likelihood_,
        clone(model)
        .set_params(random_state=0)
        .fit(X[:150], y[:150])
        .partial_fit(X[150:], y[150:])
        .log_marginal_likelihood_,
    )
