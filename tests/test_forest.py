import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from mondrian_forest import HierarchicalPosterior
from mondrian_forest._core.arrays.grove import Grove
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.labels.hierarchical import log_marginal_likelihood
from mondrian_forest._forest.sharing import state_of, with_state
from trees import give_labels, grow, paper_forest


def waves(n_rows=300, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2.0, 5.0, (n_rows, n_features))
    y = 10.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=n_rows)
    return X, y


def test_fit_finds_the_signal():
    X, y = waves(3000)
    forest = paper_forest(random_state=0).fit(X[:2500], y[:2500])
    assert forest.score(X[2500:], y[2500:]) > 0.75


def test_fitted_attributes():
    X, y = waves()
    forest = paper_forest(7, random_state=0).fit(X, y)
    assert forest.n_samples_seen_ == 300
    assert forest.n_features_in_ == 3
    assert len(forest.trees_) == 7
    assert forest.log_marginal_likelihood_.shape == (7,)
    assert forest.posterior_.prior_mean == pytest.approx(y.mean())
    assert forest.posterior_.prior_scale == pytest.approx(y.var() / (1 / 2 + 1 / 600))
    assert forest.posterior_.noise_variance == pytest.approx(forest.posterior_.prior_scale / 600)
    assert forest.posterior_.prior_rate == pytest.approx(3 / (20 * math.log2(300)))
    np.testing.assert_array_equal(forest.feature_range_[0], X.min(axis=0))
    np.testing.assert_array_equal(forest.feature_range_[1], X.max(axis=0))


def test_given_hyperparameters_are_used():
    X, y = waves()
    given = {"prior_mean": 1.0, "prior_scale": 2.0, "prior_rate": 0.3, "noise_variance": 0.4}
    forest = paper_forest(3, random_state=0, posterior=HierarchicalPosterior(**given)).fit(X, y)
    assert forest.posterior_._asdict() == given
    mean, std = forest.predict([[1e9, 1e9, 1e9]], return_std=True)
    assert mean[0] == pytest.approx(1.0)
    assert std[0] == pytest.approx(np.sqrt(2.0 / 2 + 0.4))


def test_the_forest_is_the_average_of_its_trees():
    """Mean and total variance, from forests of one tree each."""
    X, y = waves()
    forest = paper_forest(4, random_state=3).fit(X, y)
    query = X[:50] + 0.1
    means, variances = [], []
    for number in range(4):
        single = paper_forest(1, random_state=3).fit(X, y)
        one = slice(number, number + 1)
        grove = Grove(*(array[one] for array in state_of(forest).grove[:-1]), is_linked=False)
        with_state(single, replace(state_of(single), grove=grove))
        mean, std = single.predict(query, return_std=True)
        means.append(mean)
        variances.append(std**2)
    mean, std = forest.predict(query, return_std=True)
    np.testing.assert_allclose(mean, np.mean(means, axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        std**2, np.mean(variances, axis=0) + np.var(means, axis=0), rtol=1e-10
    )


def test_log_marginal_likelihood_is_that_of_each_tree():
    X, y = waves(40)
    forest = paper_forest(2, random_state=5, feature_range=(-2.0, 5.0)).fit(X, y)
    rows = ((X + 2.0) / 7.0).astype(np.float32)
    entropy = np.random.RandomState(5).randint(2**32, size=4, dtype=np.uint64)
    states = random_states(np.random.SeedSequence(entropy.tolist()), 2)
    for state, expected in zip(states, forest.log_marginal_likelihood_, strict=True):
        tree, row_lists = grow(rows, 10, state=state)
        prior = state_of(forest).model
        give_labels(tree, row_lists, y, prior)
        assert log_marginal_likelihood(prior, tree.nodes, tree.tallies) == expected


@pytest.mark.parametrize("posterior", ["hierarchical", "empirical"])
@pytest.mark.parametrize("n_jobs", [2, -1])
def test_the_result_is_the_same_for_every_n_jobs(posterior, n_jobs):
    X, y = waves(2000)
    one = paper_forest(5, posterior=posterior, random_state=0).fit(X, y)
    more = paper_forest(5, posterior=posterior, random_state=0, n_jobs=n_jobs).fit(X, y)
    query = X[::3] * 1.1
    for left, right in zip(
        one.predict(query, return_std=True), more.predict(query, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(
        one.predict_quantiles(query, [0.1, 0.9]), more.predict_quantiles(query, [0.1, 0.9])
    )
    np.testing.assert_array_equal(one.apply(query), more.apply(query))


def test_the_seed_decides():
    X, y = waves()
    fits = [paper_forest(3, random_state=seed).fit(X, y).predict(X) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


def test_a_second_fit_forgets_the_first():
    X, y = waves()
    forest = paper_forest(3, random_state=0).fit(X, -5 * y)
    forest.fit(X[:, :2], y)
    fresh = paper_forest(3, random_state=0).fit(X[:, :2], y)
    np.testing.assert_array_equal(forest.predict(X[:, :2]), fresh.predict(X[:, :2]))
    forest.set_params(posterior="empirical").fit(X, y)
    assert not hasattr(forest, "log_marginal_likelihood_")


def test_later_changes_of_the_callers_arrays_do_not_matter():
    X, y = waves()
    forest = paper_forest(3, random_state=0).fit(X, y)
    query = X[:20].copy()
    expected = forest.predict(query)
    distribution = forest.predict_distribution(query)
    X[:], y[:] = 0.0, 0.0
    forest.predict(np.ones((5, 3)))
    np.testing.assert_array_equal(forest.predict(query), expected)
    query[:] = 7.0
    np.testing.assert_array_equal(distribution.mean(), expected)


def test_quantiles_and_intervals_are_those_of_the_distribution():
    X, y = waves()
    forest = paper_forest(5, random_state=0).fit(X, y)
    query = X[:30] + 0.3
    distribution = forest.predict_distribution(query)
    assert len(distribution) == 30
    np.testing.assert_array_equal(
        forest.predict_quantiles(query, [0.9, 0.1]), distribution.quantile([0.9, 0.1])
    )
    np.testing.assert_array_equal(forest.predict_quantiles(query, 0.3), distribution.quantile(0.3))
    np.testing.assert_array_equal(forest.predict_interval(query, 0.8), distribution.interval(0.8))
    mean, std = forest.predict(query, return_std=True)
    np.testing.assert_array_equal(distribution.mean(), mean)
    np.testing.assert_allclose(distribution.std(), std, rtol=1e-14)


def test_many_blocks_give_the_rows_back_in_order():
    X, y = waves()
    forest = paper_forest(2, random_state=0).fit(X, y)
    query = np.tile(X, (60, 1))
    np.testing.assert_array_equal(forest.predict(query), np.tile(forest.predict(X), 60))
    np.testing.assert_array_equal(
        forest.predict_quantiles(query, 0.5), np.tile(forest.predict_quantiles(X, 0.5), 60)
    )
    np.testing.assert_array_equal(
        forest.predict_distribution(query).cdf(10.0),
        np.tile(forest.predict_distribution(X).cdf(10.0), 60),
    )


def test_apply_gives_the_leaf_of_each_training_row():
    X, y = waves()
    forest = paper_forest(4, random_state=0).fit(X, y)
    leaves = forest.apply(X)
    assert leaves.shape == (300, 4)
    for tree, column in zip(forest.trees_, leaves.T, strict=True):
        numbers, counts = np.unique(column, return_counts=True)
        assert (tree.left_child[numbers] == -1).all()
        np.testing.assert_array_equal(tree.n_samples[numbers], counts)


def test_far_from_the_data_the_prediction_is_the_prior():
    X, y = waves()
    forest = paper_forest(random_state=0).fit(X, y)
    for far in (1e6, -1e200):
        distribution = forest.predict_distribution(np.full((1, 3), far))
        variance = forest.posterior_.prior_scale / 2 + forest.posterior_.noise_variance
        assert distribution.mean()[0] == pytest.approx(forest.posterior_.prior_mean, rel=1e-5)
        assert distribution.var()[0] == pytest.approx(variance, rel=1e-5)
        z = (12.0 - forest.posterior_.prior_mean) / np.sqrt(variance)
        assert distribution.cdf(12.0)[0] == pytest.approx(0.5 * math.erfc(-z / 2**0.5), rel=1e-5)


def test_the_std_grows_away_from_the_data():
    X = np.linspace(0, 1, 400).reshape(-1, 1)
    forest = paper_forest(50, random_state=0).fit(X, np.sin(6 * X[:, 0]))
    _, std = forest.predict([[0.5], [1.01], [1.1], [1e6]], return_std=True)
    assert (np.diff(std[:3]) > 0).all()
    assert std[2] == pytest.approx(std[3], rel=0.05)  # already close to the prior


def test_a_given_feature_range_decides_the_scale():
    X, y = waves()
    narrow = paper_forest(3, random_state=0, feature_range=(0.0, 1.0)).fit(X, y)
    np.testing.assert_array_equal(narrow.feature_range_[0], np.zeros(3))
    np.testing.assert_array_equal(narrow.feature_range_[1], np.ones(3))
    by_feature = (X.min(axis=0), X.max(axis=0))
    given = paper_forest(3, random_state=0, feature_range=by_feature).fit(X, y)
    default = paper_forest(3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(given.predict(X), default.predict(X))
    assert narrow.trees_[0].split_time[0] < default.trees_[0].split_time[0]


def test_parameters_set_after_the_fit_change_no_prediction():
    X, y = waves()
    forest = paper_forest(5, random_state=0).fit(X, y)
    expected = forest.predict(X + 0.3)
    forest.set_params(min_samples_split=50, posterior=HierarchicalPosterior(prior_scale=3.0))
    np.testing.assert_array_equal(forest.predict(X + 0.3), expected)


def test_scaling_features_and_moving_labels_carries_over():
    X, y = waves()
    forest = paper_forest(5, random_state=0).fit(X, y)
    mean, std = forest.predict(X[:50] + 0.2, return_std=True)
    moved = paper_forest(5, random_state=0).fit(1024.0 * X, 3.0 * y - 70.0)
    moved_mean, moved_std = moved.predict(1024.0 * (X[:50] + 0.2), return_std=True)
    np.testing.assert_allclose(moved_mean, 3.0 * mean - 70.0, rtol=1e-9)
    np.testing.assert_allclose(moved_std, 3.0 * std, rtol=1e-9)


def test_pickle_round_trip():
    X, y = waves()
    forest = paper_forest(3, random_state=0).fit(X, y)
    copy = pickle.loads(pickle.dumps(forest))
    np.testing.assert_array_equal(copy.predict(X + 0.1), forest.predict(X + 0.1))


def test_an_odd_number_of_rows_and_of_many_features():
    X, y = waves(51, n_features=19)
    assert np.isfinite(paper_forest(2, random_state=0).fit(X, y).predict(X)).all()


def test_bytes_per_node_stay_within_budget():
    X, y = waves(5000, n_features=8)
    forest = paper_forest(2, random_state=0).fit(X, y)
    n_nodes = sum(tree.n_nodes for tree in forest.trees_)
    learning = len(pickle.dumps(forest))
    assert learning <= 152 * n_nodes + (8 * 4 + 8 + 8 + 8 + 2 * 4) * 5000 + 5000
    assert len(pickle.dumps(forest.freeze())) <= 120 * n_nodes + 5000


# Degenerate but legal input


def assert_sound(forest, X):
    mean, std = forest.predict(X, return_std=True)
    distribution = forest.predict_distribution(X)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(distribution.logpdf(mean)).all()
    assert np.isfinite(distribution.quantile([0.01, 0.99])).all()
    assert np.isfinite(distribution.crps(mean)).all()


@pytest.mark.parametrize("posterior", ["hierarchical", "empirical"])
class TestDegenerateInput:
    def fit(self, X, y, posterior, **parameters):
        return paper_forest(5, posterior=posterior, random_state=0, **parameters).fit(X, y)

    def test_one_row(self, posterior):
        forest = self.fit([[1.0, 2.0]], [5.0], posterior)
        assert_sound(forest, [[1.0, 2.0], [3.0, 4.0]])
        assert forest.predict([[1.0, 2.0]])[0] == pytest.approx(5.0)

    def test_constant_labels(self, posterior):
        X, _ = waves(50)
        forest = self.fit(X, np.full(50, 0.1), posterior)
        assert_sound(forest, X)
        np.testing.assert_allclose(forest.predict(X), 0.1, rtol=1e-12)

    def test_constant_features(self, posterior):
        _, y = waves(50)
        forest = self.fit(np.full((50, 2), 3.0), y, posterior)
        assert_sound(forest, [[3.0, 3.0], [4.0, 3.0]])
        assert forest.predict([[3.0, 3.0]])[0] == pytest.approx(y.mean(), rel=1e-6)

    def test_duplicate_rows(self, posterior):
        X, y = waves(20)
        forest = self.fit(np.tile(X, (10, 1)), np.tile(y, 10), posterior, min_samples_split=2)
        assert_sound(forest, X)

    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
    def test_tiny_and_huge_features(self, posterior, scale):
        X, y = waves(200)
        forest = self.fit(scale * X, y, posterior)
        assert_sound(forest, scale * (X + 0.1))
        plain = self.fit(X, y, posterior)
        np.testing.assert_allclose(forest.predict(scale * X), plain.predict(X), rtol=1e-3)

    def test_features_that_span_the_whole_float_range(self, posterior):
        forest = self.fit([[-1.7e308], [0.0], [1.7e308]], [1.0, 2.0, 3.0], posterior)
        assert_sound(forest, [[-1.7e308], [1e307], [1.7e308]])

    def test_labels_far_from_zero(self, posterior):
        X, y = waves(500)
        near, far = self.fit(X, y - 10, posterior), self.fit(X, y - 10 + 1e8, posterior)
        assert_sound(far, X)
        query = X[:100] + 0.2
        near_mean, near_std = near.predict(query, return_std=True)
        far_mean, far_std = far.predict(query, return_std=True)
        np.testing.assert_allclose(far_mean - 1e8, near_mean, atol=1e-6)
        np.testing.assert_allclose(far_std, near_std, rtol=1e-6)

    @pytest.mark.parametrize("scale", [1e-140, 1e-80, 1e80, 1e140])
    def test_tiny_and_huge_labels(self, posterior, scale):
        X, y = waves(100)
        mean, std = self.fit(X, y, posterior).predict(X + 0.2, return_std=True)
        scaled = self.fit(X, scale * y, posterior)
        scaled_mean, scaled_std = scaled.predict(X + 0.2, return_std=True)
        np.testing.assert_allclose(scaled_mean / scale, mean, rtol=1e-9)
        np.testing.assert_allclose(scaled_std / scale, std, rtol=1e-9)
        assert_sound(scaled, X + 0.2)

    def test_constant_features_beside_one_that_spans_the_float_range(self, posterior):
        X = np.column_stack([[-1.7e308, 0.0, 1.7e308], np.ones(3)])
        wide = self.fit(X, [1.0, 2.0, 3.0], posterior)
        narrow = self.fit(X / [1e300, 1.0], [1.0, 2.0, 3.0], posterior)
        query = np.array([[0.0, 1.5]])
        np.testing.assert_allclose(wide.predict(query), narrow.predict(query), rtol=1e-6)

    def test_ten_thousand_features(self, posterior):
        generator = np.random.default_rng(0)
        X, y = generator.normal(size=(60, 10_000)), generator.normal(size=60)
        forest = self.fit(X, y, posterior)
        assert_sound(forest, X[:5])

    def test_float32_and_integer_tables(self, posterior):
        X, y = waves(50)
        assert_sound(self.fit(X.astype(np.float32), y, posterior), X)
        assert_sound(self.fit(np.round(X).astype(int), np.round(y).astype(int), posterior), X)


def test_predictions_do_not_depend_on_a_forest_with_more_features_before():
    """Both use the same scratch space, in which rows have four columns."""
    X, y = waves()
    narrow = paper_forest(2, random_state=0).fit(X[:40], y[:40])
    wide = paper_forest(2, random_state=0).fit(
        np.column_stack((X[:40], np.full(40, 7.0))) * [1, 1, 1, -100], y[:40]
    )
    expected = narrow.predict(X[:40], return_std=True)
    wide.predict(np.column_stack((X[:40], np.full(40, 7.0))), return_std=True)
    np.testing.assert_array_equal(narrow.predict(X[:40], return_std=True), expected)
