"""A forest with the pruned posterior: its predictions agree with each other and with the data."""

import numpy as np
import pytest

from benchmarks.settings import CHOSEN, PAPER, PRUNED
from forests import friedman, rmse, small_forest
from mondrian_forest import MondrianForestRegressor
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._forest.sharing import state_of
from trees import check_tree_invariants


def test_noisy_labels_are_predicted_better_than_by_the_paper():
    X, y = friedman(1200, 5)
    paper, pruned = (
        small_forest(n_estimators=25, **setting).fit(X[:1000], y[:1000])
        for setting in (PAPER, PRUNED)
    )
    test = X[1000:], y[1000:]
    assert rmse(pruned, *test) < 0.9 * rmse(paper, *test)
    densities = [
        model.predict_distribution(test[0]).logpdf(test[1]).mean() for model in (paper, pruned)
    ]
    assert densities[1] > densities[0]


def test_moments_cdf_quantiles_and_draws_agree():
    X, y = friedman()
    model = small_forest(**PRUNED).fit(X, y)
    query = np.vstack([X[:20], X[:5] + 3.0])
    found = model.predict_distribution(query)
    mean, std = model.predict(query, return_std=True)
    np.testing.assert_allclose(found.mean(), mean)
    np.testing.assert_allclose(found.std(), std)
    weight, location, scale, df, offset = found.components()
    assert np.all(df > 3.0)
    rows = np.repeat(np.arange(25), np.diff(offset))
    variance = weight * (scale**2 * df / (df - 2) + (location - mean[rows]) ** 2)
    np.testing.assert_allclose(np.add.reduceat(variance, offset[:-1]), std**2, rtol=1e-6)
    levels = [0.001, 0.3, 0.5, 0.99]
    for level, quantile in zip(levels, found.quantile(levels).T, strict=True):
        np.testing.assert_allclose(found.cdf(quantile), level, rtol=1e-8)
    draws = found.sample(4000, random_state=0)
    assert draws.shape == (25, 4000)
    inside = np.mean(draws < found.quantile(0.3)[:, None], axis=1)
    np.testing.assert_allclose(inside, 0.3, atol=0.04)
    # The CRPS is that of the draws.
    label = mean[:3] + 1.0
    sampled = np.abs(draws[:3] - label[:, None]).mean(axis=1) - 0.5 * np.abs(
        draws[:3] - draws[:3, ::-1]
    ).mean(axis=1)
    np.testing.assert_allclose(found[:3].crps(label), sampled, rtol=0.1)


def test_the_noise_may_differ_from_place_to_place():
    generator = np.random.default_rng(0)
    X = generator.random((2000, 1))
    y = np.where(X[:, 0] < 0.5, 0.1, 2.0) * generator.normal(size=2000)
    parts = small_forest(**PRUNED).fit(X, y).predict_distribution([[0.25], [0.75]]).decompose()
    assert np.sqrt(parts.noise[0]) == pytest.approx(0.1, rel=0.3)
    assert np.sqrt(parts.noise[1]) == pytest.approx(2.0, rel=0.3)


def test_far_away_it_is_as_wide_as_all_labels():
    X, y = friedman()
    mean, std = small_forest(**PRUNED).fit(X, y).predict(X[:1] + 1e6, return_std=True)
    assert mean[0] == pytest.approx(y.mean(), abs=0.1 * y.std())
    assert std[0] == pytest.approx(y.std(), rel=0.1)


@pytest.mark.parametrize("chunk", [1, 40])
@pytest.mark.parametrize("setting", [PRUNED, CHOSEN])
def test_a_stream_gives_the_nodes_that_a_full_recomputation_gives(chunk, setting):
    X, y = friedman(200, 3)
    model = small_forest(n_estimators=2, **setting)
    for start in range(0, 200, chunk):
        model.partial_fit(X[start : start + chunk], y[start : start + chunk])
    state = state_of(model)
    for number, tree in enumerate(model.trees_):
        check_tree_invariants(tree, state.rows[:200], state.grove.rows(number), labels=y)
        kept = tree.nodes.copy()
        renew(state.grove, number, state.model)
        for name in ("share", "location", "precision", "n_samples"):
            np.testing.assert_allclose(kept[name], tree.nodes[name], rtol=1e-9, atol=1e-9)


def test_the_density_of_rounded_labels_stays_within_their_resolution():
    generator = np.random.default_rng(0)
    X = generator.random((500, 2))
    y = np.round(3 * X[:, 0])
    model = small_forest(**PRUNED).fit(X, y)
    assert model.posterior_.noise_variance == pytest.approx(1 / 12)
    # No density of labels that are rounded to integers is far above one.
    assert model.predict_distribution(X).logpdf(y).max() < 0.5
    fine = small_forest(**PRUNED).fit(X, X[:, 0])
    assert fine.posterior_.noise_variance < 1e-4 * X[:, 0].var()


def test_equal_labels_have_a_finite_density():
    X = np.random.default_rng(0).random((60, 2))
    found = small_forest(**PRUNED).fit(X, np.full(60, 3.0)).predict_distribution(X)
    np.testing.assert_allclose(found.mean(), 3.0)
    assert np.all(np.isfinite(found.logpdf(3.0)))


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_very_few_rows_can_be_fitted(n_rows):
    X, y = friedman(n_rows, 5)
    found = small_forest(**CHOSEN | {"spread": "auto", "feature_weights": "auto"}).fit(X, y)
    assert np.all(np.isfinite(found.predict_distribution(X + 0.1).logpdf(y)))


def test_a_file_keeps_weights_spread_and_mean_function(tmp_path):
    X, y = friedman()
    setting = CHOSEN | {"spread": "auto", "feature_weights": "auto", "mean_function": "linear"}
    model = small_forest(**setting).fit(X[:300], y[:300])
    model.save(tmp_path / "model.mf")
    loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
    for part in (model, loaded):
        part.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(loaded.predict_quantiles(X, 0.9), model.predict_quantiles(X, 0.9))
    assert loaded.spread_.balance == model.spread_.balance
    for name in ("deviation", "factor"):
        np.testing.assert_array_equal(getattr(loaded.spread_, name), getattr(model.spread_, name))
    around, other = loaded.spread_.surroundings, model.spread_.surroundings
    np.testing.assert_array_equal(around.novelty, other.novelty)
    assert around.far_deviation == other.far_deviation
    model.save(tmp_path / "small.mf", rows=False)
    frozen = MondrianForestRegressor.load(tmp_path / "small.mf", mmap=True)
    np.testing.assert_array_equal(frozen.predict(X), model.predict(X))
