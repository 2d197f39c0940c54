"""What the default says away from the data, about odd shapes, and about noise."""

import numpy as np
import pytest
from scipy.stats import norm

from mondrian_forest import PAPER, ModelFileError, MondrianForestRegressor, PrunedPosterior
from mondrian_forest._forest.pruning import PRIORS
from mondrian_forest._forest.sharing import state_of


def wave(n_rows=300, seed=0):
    """Return rows in a square; the second feature says how noisy the labels are."""
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 2))
    return X, np.sin(6 * X[:, 0]) + (0.05 + X[:, 1]) * generator.normal(size=n_rows)


def two_modes(n_rows, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 2))
    side = generator.choice([-1.0, 1.0], n_rows)
    return X, side * (1 + X[:, 0]) + 0.2 * generator.normal(size=n_rows)


@pytest.fixture(scope="module")
def forest():
    return MondrianForestRegressor(20, random_state=0).fit(*wave())


@pytest.fixture(scope="module")
def blended():
    forest = MondrianForestRegressor(20, random_state=0).fit(*two_modes(1200))
    assert forest.spread_.blend is not None
    return forest


FAR = np.array([[1e6, 0.5], [-1e6, -1e6], [0.5, 1e9]])


class TestFarFromTheData:
    @pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
    def test_mean_and_deviation_are_those_of_all_labels(self, scale):
        X, y = wave()
        found = MondrianForestRegressor(10, random_state=0).fit(X, scale * y + 3.0)
        mean, std = found.predict(FAR, return_std=True)
        np.testing.assert_allclose(std, scale * y.std(), rtol=1e-3)
        np.testing.assert_allclose(mean, scale * y.mean() + 3.0, atol=0.02 * scale * y.std())

    def test_the_distribution_has_the_same_moments(self, forest):
        distribution = forest.predict_distribution(FAR)
        np.testing.assert_allclose(distribution.std(), forest.predict(FAR, return_std=True)[1])
        np.testing.assert_allclose(sum(distribution.decompose()), distribution.var())

    def test_of_blended_labels_too(self, blended):
        _, y = two_modes(1200)
        distribution = blended.predict_distribution(FAR)
        np.testing.assert_allclose(distribution.std(), y.std(), rtol=1e-3)
        assert (distribution.pdf(0.0) < 0.5 * distribution.pdf(1.5)).all()

    @pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
    def test_deviations_never_fall_on_the_way_out(self, forest, direction):
        start = np.array([0.5, 0.5]) + 0.6 * np.sign(direction)
        distance = np.geomspace(0.01, 1e4, 200)
        _, std = forest.predict(start + distance[:, None] * direction, return_std=True)
        # The corner of the data is as wide as can be. What is left is a thousandth.
        assert (np.diff(std) > -1e-3 * std[0]).all()

    def test_wide_forecasts_become_narrower_as_soon_as_rows_are_strange(self, forest):
        around = forest.spread_.surroundings
        usual = around.novelty[98:99] * 1.01
        width = around.width_at(np.array([3.0 * around.far_deviation]), usual)
        assert width[0] < 1.05 * around.far_deviation

    def test_with_a_given_spread_the_trees_decide(self):
        X, y = wave()
        found = MondrianForestRegressor(10, spread=0.5, random_state=0).fit(X, y)
        _, std = found.predict(FAR, return_std=True)
        assert found.spread_.surroundings is None
        np.testing.assert_allclose(std, 0.5 * y.std(), rtol=0.05)

    def test_a_stream_ends_with_the_labels_that_it_has_seen(self):
        X, y = wave(600)
        found = MondrianForestRegressor(5, random_state=0).fit(X[:100], y[:100])
        for start in range(100, 600, 50):
            found.partial_fit(X[start : start + 50], 2.0 * y[start : start + 50])
        _, std = found.predict(FAR, return_std=True)
        np.testing.assert_allclose(std, np.append(y[:100], 2 * y[100:]).std(), rtol=0.1)


class TestNovelty:
    def test_is_small_in_the_data_and_one_far_away(self, forest):
        X, _ = wave()
        found = forest.novelty(X)
        assert found.shape == (300,)
        assert np.median(found) < 2 / 300
        np.testing.assert_allclose(forest.novelty(FAR), 1.0)

    def test_ranks_rows_among_those_held_out(self, forest):
        new, _ = wave(2000, seed=1)
        rank = forest.novelty(new, rank=True)
        assert 0.4 < np.mean(rank < 0.5) < 0.6
        assert np.mean(rank > 0.99) < 0.02
        assert (forest.novelty(new + 3.0, rank=True) == 1.0).all()

    def test_ranks_rows_of_a_stream_that_has_grown(self):
        """Rows were held out when the forest was small, and had much larger novelties then."""
        X, y = wave(1600)
        found = MondrianForestRegressor(10, random_state=0)
        for start in range(0, 1600, 50):
            found.partial_fit(X[start : start + 50], y[start : start + 50])
        rank = found.novelty(wave(1000, seed=1)[0], rank=True)
        assert 0.35 < rank.mean() < 0.7
        assert np.mean(rank > 0.99) < 0.05

    def test_of_rows_that_are_all_equal_ranks_in_the_middle(self):
        found = MondrianForestRegressor(5, random_state=0).fit(np.ones((80, 2)), np.arange(80.0))
        assert found.novelty(np.ones((1, 2)), rank=True) == pytest.approx(0.5, abs=0.02)

    def test_has_no_rank_without_held_out_rows(self):
        X, y = wave()
        found = MondrianForestRegressor(5, **PAPER).fit(X, y)
        assert found.novelty(FAR).min() > 0.99
        with pytest.raises(ValueError, match="No rows were held out"):
            found.novelty(X, rank=True)

    def test_does_not_depend_on_threads_or_on_other_rows(self, forest):
        X, _ = wave(3000, seed=2)
        found = forest.novelty(X)
        np.testing.assert_array_equal(found[:7], forest.novelty(X[:7]))
        many = MondrianForestRegressor(20, random_state=0, n_jobs=2).fit(*wave())
        np.testing.assert_array_equal(found, many.novelty(X))

    def test_is_kept_by_freezing_and_files(self, forest, tmp_path):
        X, _ = wave(50, seed=3)
        forest.save(tmp_path / "model.mf", rows=False)
        loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
        for rank in (False, True):
            np.testing.assert_array_equal(
                loaded.novelty(X, rank=rank), forest.novelty(X, rank=rank)
            )


class TestShape:
    def test_labels_with_two_modes_are_predicted_as_such(self, blended):
        new, labels = two_modes(500, seed=1)
        distribution = blended.predict_distribution(new)
        centre = 1 + new[:, 0]
        true = 0.5 * (norm.pdf(labels, centre, 0.2) + norm.pdf(labels, -centre, 0.2))
        assert -distribution.logpdf(labels).mean() < -np.log(true).mean() + 0.25
        assert (distribution.pdf(0.0) < 0.3 * distribution.pdf(centre)).all()

    def test_means_and_deviations_are_those_of_the_distribution(self, blended):
        new, _ = two_modes(100, seed=1)
        distribution = blended.predict_distribution(new)
        mean, std = blended.predict(new, return_std=True)
        np.testing.assert_array_equal(mean, blended.predict(new))
        np.testing.assert_allclose(mean, distribution.mean(), atol=1e-12)
        np.testing.assert_allclose(std, distribution.std(), rtol=1e-12)
        np.testing.assert_allclose(sum(distribution.decompose()), std**2)
        draws = distribution.sample(4000, random_state=0)
        np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)

    def test_a_frozen_forest_keeps_the_labels_that_it_needs(self, blended, tmp_path):
        new, _ = two_modes(60, seed=1)
        expected = blended.predict_quantiles(new, [0.1, 0.5])
        blended.save(tmp_path / "small.mf", rows=False)
        frozen = MondrianForestRegressor.load(tmp_path / "small.mf")
        assert state_of(frozen).is_frozen
        assert len(state_of(frozen).rows) == 0
        np.testing.assert_array_equal(frozen.predict_quantiles(new, [0.1, 0.5]), expected)

    def test_absurd_rows_are_the_same_for_a_frozen_forest(self, blended, tmp_path):
        rows = np.array([[1e300, -1e300], [1e17, 0.3], [-1e25, 1e25], [50.0, -70.0]])
        expected = blended.predict(rows)
        assert np.isfinite(expected).all()
        blended.save(tmp_path / "small.mf", rows=False)
        frozen = MondrianForestRegressor.load(tmp_path / "small.mf", mmap=True)
        np.testing.assert_array_equal(frozen.predict(rows), expected)

    def test_a_forest_without_a_blend_keeps_none(self, forest, tmp_path):
        forest.save(tmp_path / "small.mf", rows=False)
        frozen = MondrianForestRegressor.load(tmp_path / "small.mf")
        assert state_of(frozen).ordered_labels.size == 0

    def test_a_forest_that_learns_on_finds_the_labels_of_new_rows(self):
        X, y = two_modes(1000)
        found = MondrianForestRegressor(10, random_state=0).fit(X[:900], y[:900])
        assert found.spread_.blend is not None
        found.partial_fit(X[900:], y[900:] + 8.0)
        mean = found.predict(X[900:])
        assert mean.mean() > 1.0
        np.testing.assert_array_equal(mean, found.freeze().predict(X[900:]))

    def test_normal_labels_are_not_blended(self, forest):
        assert forest.spread_.blend is None


class TestNoise:
    @pytest.mark.parametrize("n_features", [2, 12])
    def test_of_labels_costs_nothing(self, n_features):
        generator = np.random.default_rng(n_features)
        X, new = generator.random((600, n_features)), generator.random((2000, n_features))
        y = generator.normal(size=600)
        found = MondrianForestRegressor(20, random_state=0).fit(X, y)
        assert found.posterior_.prior_stop >= 0.5
        # The error of a forecast is that of the mean, and this distance.
        assert np.sqrt(np.mean((found.predict(new) - y.mean()) ** 2)) < 0.07 * y.std()

    def test_of_exact_labels_is_not_assumed(self):
        generator = np.random.default_rng(0)
        X = generator.random((600, 2))
        found = MondrianForestRegressor(20, random_state=0).fit(X, X[:, 0] + X[:, 1] ** 2)
        assert found.posterior_.prior_stop < 0.5

    def test_pruning_can_be_given(self):
        X, y = wave()
        posterior = PrunedPosterior(prior_stop=0.4)
        found = MondrianForestRegressor(5, posterior=posterior, random_state=0).fit(X, y)
        assert found.posterior_.prior_stop == 0.4
        found.partial_fit(X, y)
        assert found.posterior_.prior_stop == 0.4

    @pytest.mark.parametrize("value", [0.0, 1.0, -1, np.nan, "half", True])
    def test_a_prior_that_is_no_probability_is_refused(self, value):
        with pytest.raises(ValueError, match="prior_stop must be None or between 0 and 1"):
            MondrianForestRegressor(posterior=PrunedPosterior(prior_stop=value)).fit(*wave(20))

    def test_few_rows_have_the_prior_of_a_coin(self):
        found = MondrianForestRegressor(5, random_state=0).fit(*wave(19))
        assert found.posterior_.prior_stop == PRIORS[0] == 0.5

    def test_a_stream_learns_the_pruning_again(self):
        generator = np.random.default_rng(0)
        X = generator.random((260, 2))
        found = MondrianForestRegressor(5, random_state=0, mean_function=None)
        found.fit(X[:10], X[:10, 0])
        assert found.posterior_.prior_stop == 0.5
        found.partial_fit(X[10:], X[10:, 0])
        assert found.posterior_.prior_stop < 0.5


class TestTies:
    def test_different_rows_have_different_deviations(self, forest):
        new, _ = wave(500, seed=5)
        _, std = forest.predict(new, return_std=True)
        assert len(np.unique(std)) == 500

    def test_equal_rows_have_equal_deviations(self, blended):
        _, std = blended.predict(np.repeat([[0.3, 0.4]], 5, axis=0), return_std=True)
        assert len(np.unique(std)) == 1


@pytest.mark.parametrize("robust", [True, False])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_the_unit_of_a_constant_feature_is_its_value(unit, robust):
    """Whatever it is measured in, twice the value is one range away."""
    X, y = wave(100)
    constant = np.full(100, 7.0 * unit)
    found = MondrianForestRegressor(5, robust=robust, feature_weights=None, random_state=0)
    found.fit(np.column_stack((X, constant)), y)
    scaling = state_of(found).scaling
    rows = scaling.apply(np.array([[0.5, 0.5, 7.0 * unit], [0.5, 0.5, 14.0 * unit]]))
    assert rows[1, 2] - rows[0, 2] == pytest.approx(1.0)


def test_a_file_that_lacks_the_labels_of_a_blend_is_refused(blended, tmp_path):
    from mondrian_forest._forest import model_file

    state = state_of(blended).frozen()
    without = state.but(ordered_labels=np.empty((0, 0)))
    model_file.write(tmp_path / "model.mf", blended.get_params(), without, None)
    with pytest.raises(ModelFileError, match="the labels are missing"):
        MondrianForestRegressor.load(tmp_path / "model.mf")
