import numpy as np
import pytest
from sklearn.base import clone

from mondrian_forest import (
    PAPER,
    EmpiricalPosterior,
    HierarchicalPosterior,
    MondrianForestRegressor,
    PrunedPosterior,
)
from mondrian_forest._core.labels import MODELS
from mondrian_forest._forest.posteriors import CLASSES


def data(n_rows=80):
    random = np.random.default_rng(0)
    X = random.random((n_rows, 2))
    return X, X[:, 0] + 0.1 * random.normal(size=n_rows)


@pytest.mark.parametrize("name", list(CLASSES))
def test_a_name_stands_for_an_object_without_given_hyperparameters(name):
    X, y = data()
    by_name = MondrianForestRegressor(3, posterior=name, random_state=0).fit(X, y)
    by_object = MondrianForestRegressor(3, posterior=CLASSES[name](), random_state=0).fit(X, y)
    np.testing.assert_array_equal(by_name.predict(X), by_object.predict(X))
    assert by_name.posterior_ == by_object.posterior_
    assert type(by_name.posterior_) is MODELS[name]


@pytest.mark.parametrize(
    "posterior",
    [
        HierarchicalPosterior(prior_mean=1.0, prior_scale=2.0, prior_rate=0.3, noise_variance=0.4),
        EmpiricalPosterior(prior_mean=1.0, prior_scale=2.0, prior_rate=0.3, noise_variance=0.4),
        PrunedPosterior(prior_mean=1.0, prior_scale=2.0, noise_variance=0.4, prior_stop=0.3),
    ],
)
def test_given_hyperparameters_are_used_and_the_object_stays_as_it_is(posterior):
    X, y = data()
    before = posterior.get_params()
    forest = MondrianForestRegressor(3, posterior=posterior, random_state=0).fit(X, y)
    given = {name: before[name] for name in forest.posterior_._fields}
    assert forest.posterior_._asdict() == given
    assert posterior.get_params() == before


def test_a_pruned_posterior_has_no_rate():
    """What the model does not use, it does not take."""
    with pytest.raises(TypeError, match="prior_rate"):
        PrunedPosterior(prior_rate=1.0)


def test_hyperparameters_can_be_set_and_searched_by_nested_names():
    forest = MondrianForestRegressor(**PAPER | {"posterior": HierarchicalPosterior()})
    forest.set_params(posterior__noise_variance=0.25)
    other = clone(forest)
    assert other.posterior.noise_variance == 0.25
    assert other.posterior is not forest.posterior
    X, y = data()
    assert other.fit(X, y).posterior_.noise_variance == 0.25


def test_marginal_likelihood_keeps_what_is_given_and_finds_the_rest():
    X, y = data(300)
    posterior = HierarchicalPosterior(noise_variance=0.04, hyperparameters="marginal_likelihood")
    found = MondrianForestRegressor(**PAPER | {"posterior": posterior}, random_state=0).fit(X, y)
    heuristic = HierarchicalPosterior(noise_variance=0.04)
    other = MondrianForestRegressor(**PAPER | {"posterior": heuristic}, random_state=0).fit(X, y)
    assert found.posterior_.noise_variance == 0.04
    assert found.posterior_.prior_rate != other.posterior_.prior_rate
    likelihood = found.log_marginal_likelihood_.mean()
    assert likelihood > other.log_marginal_likelihood_.mean()


def test_files_keep_the_posterior(tmp_path):
    X, y = data()
    posterior = HierarchicalPosterior(prior_rate=0.7, hyperparameters="marginal_likelihood")
    forest = MondrianForestRegressor(3, **PAPER | {"posterior": posterior}).fit(X, y)
    forest.save(tmp_path / "model.mf")
    loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
    assert type(loaded.posterior) is HierarchicalPosterior
    assert loaded.posterior.get_params() == posterior.get_params()
    assert loaded.posterior_ == forest.posterior_
