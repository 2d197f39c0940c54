"""What the package adds to the paper's model, as a user meets it."""

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.base import clone
from sklearn.datasets import make_friedman1

from benchmarks.settings import CHOSEN, PAPER, PRUNED
from mondrian_forest import MondrianForestRegressor
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._core.growth.sample import allocate_cut_scratch, choose_cut
from mondrian_forest.optimize.acquisition import (
    expected_improvement,
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
)
from trees import check_tree_invariants, grow


def forest(**parameters):
    return MondrianForestRegressor(**{"n_estimators": 8, "random_state": 0} | parameters)


def friedman(n_rows=400, n_features=10, seed=0):
    X, y = make_friedman1(n_rows, max(n_features, 5), noise=1.0, random_state=seed)
    return np.ascontiguousarray(X[:, :n_features]), y


def error(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


class TestPruned:
    def test_is_more_accurate_than_the_paper_where_labels_are_noisy(self):
        X, y = friedman(1200, 5)
        paper, pruned = (
            forest(n_estimators=25, **setting).fit(X[:1000], y[:1000])
            for setting in (PAPER, PRUNED)
        )
        test = X[1000:], y[1000:]
        assert error(pruned, *test) < 0.9 * error(paper, *test)
        densities = [
            model.predict_distribution(test[0]).logpdf(test[1]).mean() for model in (paper, pruned)
        ]
        assert densities[1] > densities[0]

    def test_moments_cdf_quantiles_and_draws_agree(self):
        X, y = friedman()
        model = forest(**PRUNED).fit(X, y)
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

    def test_noise_differs_from_place_to_place(self):
        generator = np.random.default_rng(0)
        X = generator.random((2000, 1))
        y = np.where(X[:, 0] < 0.5, 0.1, 2.0) * generator.normal(size=2000)
        parts = forest(**PRUNED).fit(X, y).predict_distribution([[0.25], [0.75]]).decompose()
        assert np.sqrt(parts.noise[0]) == pytest.approx(0.1, rel=0.3)
        assert np.sqrt(parts.noise[1]) == pytest.approx(2.0, rel=0.3)

    def test_is_as_wide_as_all_labels_far_away(self):
        X, y = friedman()
        mean, std = forest(**PRUNED).fit(X, y).predict(X[:1] + 1e6, return_std=True)
        assert mean[0] == pytest.approx(y.mean(), abs=0.1 * y.std())
        assert std[0] == pytest.approx(y.std(), rel=0.1)

    @pytest.mark.parametrize("chunk", [1, 40])
    @pytest.mark.parametrize("setting", [PRUNED, CHOSEN])
    def test_any_stream_ends_in_what_a_full_recomputation_gives(self, chunk, setting):
        X, y = friedman(200, 3)
        model = forest(n_estimators=2, **setting)
        for start in range(0, 200, chunk):
            model.partial_fit(X[start : start + chunk], y[start : start + chunk])
        for number, tree in enumerate(model.trees_):
            check_tree_invariants(tree, model._rows[:200], model._grove.rows(number), 2, labels=y)
            kept = tree.nodes.copy()
            renew(model._grove, number, model._label_model())
            for name in ("share", "location", "precision", "degrees"):
                np.testing.assert_allclose(kept[name], tree.nodes[name], rtol=1e-9, atol=1e-9)

    def test_repeated_labels_keep_a_density_within_their_resolution(self):
        generator = np.random.default_rng(0)
        X = generator.random((500, 2))
        y = np.round(3 * X[:, 0])
        model = forest(**PRUNED).fit(X, y)
        assert model.noise_variance_ == pytest.approx(1 / 12)
        # No density of labels that are rounded to integers is far above one.
        assert model.predict_distribution(X).logpdf(y).max() < 0.5
        fine = forest(**PRUNED).fit(X, X[:, 0])
        assert fine.noise_variance_ < 1e-4 * X[:, 0].var()

    def test_equal_labels_have_a_finite_density(self):
        X = np.random.default_rng(0).random((60, 2))
        found = forest(**PRUNED).fit(X, np.full(60, 3.0)).predict_distribution(X)
        np.testing.assert_allclose(found.mean(), 3.0)
        assert np.all(np.isfinite(found.logpdf(3.0)))

    @pytest.mark.parametrize("n_rows", [1, 2, 3])
    def test_few_rows_are_enough(self, n_rows):
        X, y = friedman(n_rows, 5)
        found = forest(**CHOSEN | {"spread": "auto", "feature_weights": "auto"}).fit(X, y)
        assert np.all(np.isfinite(found.predict_distribution(X + 0.1).logpdf(y)))

    def test_survives_a_file_with_all_additions(self, tmp_path):
        X, y = friedman()
        setting = CHOSEN | {"spread": "auto", "feature_weights": "auto", "trend": "linear"}
        model = forest(**setting).fit(X[:300], y[:300])
        model.save(tmp_path / "model.mf")
        loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
        for part in (model, loaded):
            part.partial_fit(X[300:], y[300:])
        np.testing.assert_array_equal(
            loaded.predict_quantiles(X, 0.9), model.predict_quantiles(X, 0.9)
        )
        assert loaded.spread_.balance == model.spread_.balance
        np.testing.assert_array_equal(loaded.spread_[1:], model.spread_[1:])
        model.save(tmp_path / "small.mf", rows=False)
        frozen = MondrianForestRegressor.load(tmp_path / "small.mf", mmap=True)
        np.testing.assert_array_equal(frozen.predict(X), model.predict(X))

    def test_improvements_are_those_of_draws(self):
        X, y = friedman()
        found = forest(**PRUNED).fit(X, y).predict_distribution(X[:4])
        best = found.mean().max()
        draws = found.sample(20_000, random_state=0)
        np.testing.assert_allclose(
            expected_improvement(found, best), np.maximum(draws - best, 0).mean(axis=1), rtol=0.1
        )
        np.testing.assert_allclose(
            probability_of_improvement(found, best), (draws > best).mean(axis=1), atol=0.015
        )

    def test_what_was_fitted_counts_not_what_is_set_later(self):
        X, y = friedman(200, 3)
        model = forest(**PRUNED).fit(X, y)
        draw = thompson_sample(model, X[:5], 0)
        model.set_params(
            posterior="hierarchical", hyperparameters="marginal_likelihood", lifetime=0.1
        )
        np.testing.assert_array_equal(thompson_sample(model, X[:5], 0), draw)
        before = model.noise_variance_
        model.partial_fit(X, y)
        assert model.noise_variance_ == pytest.approx(before, rel=0.5)

    def test_tiny_improvements_are_told_apart(self):
        X, y = friedman(3000, 5)
        found = forest(**PRUNED).fit(X, y).predict_distribution(X[:3] + 1e6)
        values = [log_expected_improvement(found, best) for best in (1e2, 1e3, 1e5)]
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values, axis=0) < 0.0)

    def test_thompson_draws_have_the_mean_of_the_forest(self):
        X, y = friedman(200, 3)
        model = forest(**PRUNED).fit(X, y)
        draws = np.array([thompson_sample(model, X[:5], seed) for seed in range(600)])
        np.testing.assert_allclose(draws.mean(axis=0), model.predict(X[:5]), atol=0.5)


class TestSmallestNodes:
    @pytest.mark.parametrize(("n_rows", "expected"), [(49_999, 2), (50_000, 5)])
    def test_many_rows_are_split_less_far(self, n_rows, expected):
        X = np.random.default_rng(0).random((n_rows, 1))
        model = forest(n_estimators=1, feature_weights=None, spread=1.0).fit(X, X[:, 0])
        assert model.min_samples_split_ == expected
        (tree,) = model.trees_
        assert tree.n_samples[tree.left_child != -1].min() == expected

    def test_a_stream_keeps_what_it_began_with(self):
        X = np.random.default_rng(0).random((50_100, 1))
        model = forest(n_estimators=1, feature_weights=None, spread=1.0)
        model.partial_fit(X[:100], X[:100, 0]).partial_fit(X[100:], X[100:, 0])
        assert model.min_samples_split_ == 2
        assert model.fit(X, X[:, 0]).min_samples_split_ == 5

    def test_a_given_number_is_kept(self):
        X, y = friedman(60, 3)
        assert forest(min_samples_split=7).fit(X, y).min_samples_split_ == 7


class TestCandidateSplits:
    def test_the_cut_that_separates_labels_best_is_chosen(self):
        generator = np.random.default_rng(0)
        rows = generator.random((30, 4)).astype(np.float32)
        labels = 1e8 + generator.normal(size=30)
        boxes = np.stack([rows.min(axis=0), rows.max(axis=0)])[None]
        cuts = allocate_cut_scratch(5, 4, 30)
        state = random_states(np.random.SeedSequence(0), 1)[0]
        order = generator.permutation(30).astype(np.int32)
        permuted = np.ascontiguousarray(rows[order])
        for _ in range(20):
            chosen = choose_cut(state, boxes, 0, permuted, order, labels, 0, 30, 5, cuts)
            between = []
            for feature, threshold in zip(cuts.feature[:5], cuts.threshold[:5], strict=True):
                left = rows[:, feature] <= threshold
                parts = labels[left], labels[~left]
                between.append(sum(len(p) * (p.mean() - labels.mean()) ** 2 for p in parts))
            best = int(np.argmax(between))
            assert chosen[0] == cuts.feature[best]
            assert chosen[1] == pytest.approx(cuts.threshold[best], rel=1e-6)

    def test_the_time_of_a_cut_keeps_its_law(self):
        rows = np.random.default_rng(0).random((40, 3)).astype(np.float32)
        labels = rows[:, 0].astype(float)
        extent = float((rows.max(axis=0) - rows.min(axis=0)).sum())
        states = random_states(np.random.SeedSequence(1), 300)
        times, features = [], []
        for state in states:
            tree, _ = grow(rows, state=state, labels=labels, n_candidate_splits=4)
            times.append(tree.split_time[0])
            features.append(tree.split_feature[0])
        assert kstest(np.array(times) * extent, "expon").pvalue > 1e-3
        assert np.mean(np.array(features) == 0) > 0.6

    def test_irrelevant_features_are_cut_less(self):
        X, y = friedman(1000, 10)
        plain, chosen = (forest(**setting).fit(X[:800], y[:800]) for setting in (PRUNED, CHOSEN))
        assert error(chosen, X[800:], y[800:]) < error(plain, X[800:], y[800:])


class TestFeatureWeights:
    def test_are_units_of_the_features(self):
        """A weight of two is a feature stretched to twice its length."""
        X, y = friedman(200, 3)
        X = X * [1.0, 2.0, 3.0]
        weighted = forest(
            feature_weights=[1.0, 2.0, 3.0],
            feature_range=(0.0, 4.0),
            **{k: v for k, v in PRUNED.items() if k != "feature_weights"},
        ).fit(X, y)
        assert weighted.feature_weights_.mean() == pytest.approx(1.0)
        stretched = forest(**PRUNED | {"feature_range": (0.0, 4.0)}).fit(
            X * weighted.feature_weights_, y
        )
        np.testing.assert_allclose(
            weighted.predict(X + 0.3),
            stretched.predict((X + 0.3) * weighted.feature_weights_),
            rtol=1e-5,
        )

    def test_a_feature_of_weight_zero_does_not_matter(self):
        X, y = friedman(200, 3)
        model = forest(**PRUNED | {"feature_weights": [1.0, 0.0, 1.0]}).fit(X, y)
        moved = X + np.array([0.0, 0.7, 0.0])
        np.testing.assert_array_equal(model.predict(X), model.predict(moved))
        model.partial_fit(X * [1.0, 50.0, 1.0], y)
        assert not model._has_rescaled  # the range of that feature does not matter either
        model.partial_fit(X[:, ::-1] * 9.0, y)  # here the range is widened
        assert model._has_rescaled
        assert np.all(np.isfinite(model.predict(X)))

    def test_are_learned_where_most_features_do_not_matter(self):
        """The paper's second failure: 5 features that matter among 100."""
        X, y = friedman(1400, 100)
        train, test = (X[:1000], y[:1000]), (X[1000:], y[1000:])
        few = forest(n_estimators=25, **CHOSEN).fit(train[0][:, :5], train[1])
        paper = forest(n_estimators=25, **PAPER).fit(*train)
        learned = forest(n_estimators=25, **CHOSEN | {"feature_weights": "auto"}).fit(*train)
        assert learned.feature_importances_[:5].sum() > 0.3  # of 100 equal ones it would be 0.05
        assert error(paper, *test) > 1.9 * error(few, test[0][:, :5], test[1])
        assert error(learned, *test) < 1.25 * error(few, test[0][:, :5], test[1])

    def test_a_feature_that_has_not_moved_yet_is_not_written_off(self):
        generator = np.random.default_rng(0)
        X = generator.random((900, 3))
        y = np.where(np.arange(900) < 300, np.sin(5 * X[:, 0]), 5 * X[:, 2])
        X[:300, 2] = 0.5
        model = forest(**CHOSEN | {"feature_weights": "auto"}).fit(X[:300], y[:300])
        assert model.feature_weights_.min() > 0.0
        model.partial_fit(X[300:], y[300:])
        assert error(model, X[300:], y[300:]) < 0.7

    def test_are_learned_again_while_a_stream_is_short(self):
        """It begins with fewer rows than weights are learned from, and one feature matters."""
        generator = np.random.default_rng(0)
        X = generator.uniform(-3.0, 5.0, (260, 6))
        y = np.sin(2 * X[:, 4])
        model = forest(**CHOSEN | {"feature_weights": "auto"}, feature_range=(-3.0, 5.0))
        found = []
        for start in range(0, 260, 10):
            model.partial_fit(X[start : start + 10], y[start : start + 10])
            found.append(model.feature_weights_)
        np.testing.assert_array_equal(found[0], 1.0)
        changes = [k for k in range(1, 26) if not np.array_equal(found[k], found[k - 1])]
        assert changes == [4, 19]  # at 50 and 200 rows
        assert model.feature_weights_.argmax() == 4
        assert model.feature_importances_[4] > 0.4
        np.testing.assert_allclose(model._rows[:260], model._scale(X), rtol=1e-5)
        for number, tree in enumerate(model.trees_):
            check_tree_invariants(
                tree, model._rows[:260], model._grove.rows(number), 2, labels=model._labels[:260]
            )

    def test_stay_equal_where_labels_say_nothing(self):
        X = np.random.default_rng(0).random((100, 3))
        model = forest(**CHOSEN | {"feature_weights": "auto"}).fit(X, np.ones(100))
        np.testing.assert_array_equal(model.feature_weights_, 1.0)


class TestSpread:
    def test_a_number_contracts_about_the_mean(self):
        X, y = friedman()
        one, half = (
            forest(**PRUNED | {"spread": spread}).fit(X, y).predict_distribution(X[:9])
            for spread in (1.0, 0.5)
        )
        np.testing.assert_allclose(half.mean(), one.mean())
        np.testing.assert_allclose(half.std(), 0.5 * one.std())
        middle, mean = one.quantile([0.1, 0.8]), one.mean()[:, None]
        np.testing.assert_allclose(half.quantile([0.1, 0.8]), mean + 0.5 * (middle - mean))
        y = one.mean() + 0.3
        np.testing.assert_allclose(half.logpdf(one.mean() + 0.15), one.logpdf(y) + np.log(2.0))

    @pytest.mark.parametrize("setting", [PAPER, CHOSEN])
    def test_is_learned_on_rows_that_are_predicted_first(self, setting):
        generator = np.random.default_rng(0)
        X = generator.random((1500, 4))
        y = np.sin(4 * X).sum(axis=1)  # no noise: trees err independently, a mixture is too wide
        model = forest(n_estimators=30, **setting | {"spread": "auto"}).fit(X[:1000], y[:1000])
        assert 0.1 < model.spread_.factor.mean() < 0.9
        found = model.predict_distribution(X[1000:])
        wide = forest(n_estimators=30, **setting).fit(X[:1000], y[:1000])
        wide = wide.predict_distribution(X[1000:])

        def off(distribution):
            low, high = distribution.interval(0.5).T
            return abs(np.mean((low <= y[1000:]) & (y[1000:] <= high)) - 0.5)

        assert off(found) < 0.5 * off(wide)
        # Coverage has as much of a say as the CRPS, which may pay for it a little.
        assert found.crps(y[1000:]).mean() < 1.05 * wide.crps(y[1000:]).mean()

    def test_is_learned_for_sure_rows_and_others_apart(self):
        """Half of the labels are a constant, the others have noise: one factor suits neither."""
        generator = np.random.default_rng(0)
        X = generator.random((3000, 2))
        y = np.where(X[:, 0] < 0.5, 0.0, X[:, 1] + generator.normal(0.0, 0.3, 3000))
        model = forest(n_estimators=30, **CHOSEN | {"spread": "auto"}).fit(X[:2000], y[:2000])
        assert model.spread_.factor[0] < 0.2
        assert model.spread_.factor[-1] > 0.5
        is_sure = X[2000:, 0] < 0.49
        found = model.predict_distribution(X[2000:])
        assert np.median(found.std()[is_sure]) < 0.01 * np.median(found.std()[~is_sure])
        low, high = found[~is_sure].interval(0.8).T
        label = y[2000:][~is_sure]
        assert np.mean((low <= label) & (label <= high)) == pytest.approx(0.8, abs=0.08)

    def test_is_none_far_from_all_data(self):
        generator = np.random.default_rng(0)
        X = generator.random((1000, 2))
        y = X @ [3.0, 2.0] + generator.normal(0.0, 0.1, 1000)
        model = forest(n_estimators=30, **CHOSEN | {"spread": "auto"}).fit(X, y)
        assert model.spread_.factor.min() < 0.7
        outside = 1e6 + X[:5]
        mean, std = model.predict(outside, return_std=True)
        np.testing.assert_allclose(mean, y.mean(), rtol=0.01)
        np.testing.assert_allclose(std, y.std(), rtol=0.01)
        np.testing.assert_allclose(model.predict_distribution(outside).std(), std, rtol=1e-6)

    def test_all_rows_are_learned(self):
        X, y = friedman(300, 3)
        model = forest(**PRUNED | {"spread": "auto"}).fit(X, y)
        assert model.n_samples_seen_ == 300
        for number, tree in enumerate(model.trees_):
            check_tree_invariants(
                tree, model._rows, model._grove.rows(number), 2, labels=model._labels
            )
        assert sorted(model._labels) == sorted(y)

    @pytest.mark.parametrize(
        ("n_rows", "trend", "n_scored", "n_turns"),
        [
            (60, None, 60, 10),
            (304, None, 300, 10),
            (1600, None, 960, 6),
            (2600, None, 780, 3),
            (6000, None, 600, 1),
            (12000, None, 1000, 1),
            (300, "linear", 60, 1),  # which has seen all labels that were not held back at first
        ],
    )
    def test_few_rows_are_held_back_in_turn(self, monkeypatch, n_rows, trend, n_scored, n_turns):
        turns = []
        learn_spread = MondrianForestRegressor._learn_spread

        def remember(model, rows, labels):
            assert model._grove.n_rows(0) == n_rows - len(labels)
            held = {tuple(row) for row in rows.tolist()}
            assert held.isdisjoint(tuple(row) for row in model._rows[: -len(rows)].tolist())
            turns.append(labels.copy())
            learn_spread(model, rows, labels)

        monkeypatch.setattr(MondrianForestRegressor, "_learn_spread", remember)
        X, y = friedman(n_rows, 3)
        forest(**PRUNED | {"n_estimators": 2, "spread": "auto", "trend": trend}).fit(X, y)
        assert len(turns) == n_turns
        scored = np.concatenate(turns)
        assert len(set(scored.tolist())) == len(scored) == n_scored

    def test_one_label_does_not_decide(self):
        X, y = friedman(100, 3)
        model = forest(**PRUNED | {"spread": "auto"}).fit(X[:10], y[:10])
        for start in range(10, 100):
            model.partial_fit(X[start : start + 1], y[start : start + 1])
            assert np.all((model.spread_.factor > 0.8) & (model.spread_.factor < 1.25))

    def test_keeps_up_with_a_stream(self):
        """The trees agree more and more, as there is less and less noise."""
        X, y = friedman(4000, 3)
        model = forest(**PRUNED | {"spread": "auto"}).fit(X[:200], y[:200])
        before = model.spread_.factor.mean()
        for start in range(200, 4000, 100):
            model.partial_fit(X[start : start + 100], y[start : start + 100])
        assert len(model._spread_record) > 100
        assert model.spread_.factor.mean() != before
        assert np.all((model.spread_.factor > 0.2) & (model.spread_.factor < 2.0))


class TestTrend:
    def test_is_subtracted_and_added_exactly(self):
        generator = np.random.default_rng(0)
        X = generator.normal(size=(300, 3)) * [1.0, 10.0, 0.0]
        y = 5.0 + X @ [2.0, -3.0, 1.0] + np.sin(X[:, 0])
        model = forest(**PRUNED | {"trend": "linear"}).fit(X[:200], y[:200])
        slope = np.linalg.lstsq(np.column_stack([np.ones(200), X[:200, :2]]), y[:200], rcond=None)[
            0
        ]
        trend = model._trend.at(X)
        np.testing.assert_allclose(trend, slope[0] + X[:, :2] @ slope[1:], rtol=0.01, atol=0.1)
        residual = y - trend
        model.set_params(noise_variance=model.noise_variance_)
        plain = forest(**PRUNED | {"noise_variance": model.noise_variance_}).fit(
            X[:200], residual[:200]
        )
        model.partial_fit(X[200:], y[200:])
        plain.partial_fit(X[200:], residual[200:])
        np.testing.assert_allclose(model.predict(X), plain.predict(X) + trend, atol=1e-8)
        np.testing.assert_allclose(
            model.predict_quantiles(X, 0.9), plain.predict_quantiles(X, 0.9) + trend, atol=1e-8
        )

    def test_extrapolates(self):
        """The paper's first failure: beyond the data a forest is flat."""
        X = np.random.default_rng(0).random((500, 2))
        y = 10.0 * X[:, 0] + np.sin(9 * X[:, 1])
        far = X + np.array([2.0, 0.0])
        flat, rising = (forest(**PRUNED | {"trend": trend}).fit(X, y) for trend in (None, "linear"))
        truth = y + 20.0
        assert error(rising, far, truth) < 0.1 * error(flat, far, truth)

    def test_features_that_say_the_same_share_a_slope(self):
        X = np.random.default_rng(0).random((100, 1))
        model = forest(**PRUNED | {"trend": "linear"}).fit(np.hstack([X, X]), X[:, 0])
        np.testing.assert_allclose(model._trend.slope[0], model._trend.slope[1])
        np.testing.assert_allclose(model._trend.at([[0.0, 0.0], [1.0, 1.0]]), [0.0, 1.0], atol=1e-6)

    @pytest.mark.parametrize("n_features", [50, 80])
    def test_few_rows_for_many_features_are_not_explained_away(self, n_features):
        generator = np.random.default_rng(0)
        X, y = generator.normal(size=(260, n_features)), generator.normal(size=260)
        model = forest(**PRUNED | {"trend": "linear", "spread": "auto"}).fit(X[:60], y[:60])
        low, high = model.predict_interval(X[60:], 0.9).T
        assert np.mean((low <= y[60:]) & (y[60:] <= high)) > 0.7

    def test_a_given_range_and_extreme_units_do_no_harm(self):
        generator = np.random.default_rng(0)
        X = generator.random((300, 2)) * [100.0, 1.0] + [1e8, 0.0]
        y = 0.1 * (X[:, 0] - 1e8) + X[:, 1]
        model = forest(**PRUNED | {"trend": "linear", "feature_range": (0.0, 1e10)}).fit(X, y)
        np.testing.assert_allclose(model._trend.at(X), y, atol=1e-3)
        for unit in (1e300, 1e-300):
            rows = (X - [1e8, 0.0]) * unit
            tiny = forest(**PRUNED | {"trend": "linear"}).fit(rows, y)
            np.testing.assert_allclose(tiny.predict(rows), y, atol=0.1)

    def test_labels_keep_their_resolution(self):
        X = np.random.default_rng(0).random((300, 2))
        y = np.round(20 * X[:, 0])
        model = forest(**PRUNED | {"trend": "linear"}).fit(X, y)
        assert model.noise_variance_ == pytest.approx(1 / 12)


class TestMarginalLikelihood:
    def test_is_higher_than_with_the_heuristic(self):
        X, y = friedman(500, 5)
        heuristic = forest(**PAPER).fit(X, y)
        fitted = forest(**PAPER | {"hyperparameters": "marginal_likelihood"}).fit(X, y)
        gain = fitted.log_marginal_likelihood_ - heuristic.log_marginal_likelihood_
        assert gain.mean() > 50.0
        X_test, y_test = friedman(500, 5, seed=1)
        assert error(fitted, X_test, y_test) < error(heuristic, X_test, y_test)

    def test_an_interrupt_leaves_all_trees_with_the_same_hyperparameters(self, monkeypatch):
        X, y = friedman(300, 5)
        model = forest(**PAPER | {"hyperparameters": "marginal_likelihood"}).fit(X[:150], y[:150])
        calls = []

        def interrupted(*arguments):
            calls.append(1)
            if len(calls) == model.n_estimators + 3:  # after the trees have learned the rows
                raise KeyboardInterrupt
            renew(*arguments)

        monkeypatch.setattr("mondrian_forest.forest.renew", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[150:], y[150:])
        found = model.predict(X)
        for number in range(model.n_estimators):
            renew(model._grove, number, model._label_model())
        np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)

    def test_given_ones_stay_and_a_stream_goes_on(self):
        X, y = friedman(300, 5)
        setting = PAPER | {"hyperparameters": "marginal_likelihood", "noise_variance": 2.0}
        model = forest(**setting).fit(X[:150], y[:150])
        before = model.prior_rate_
        model.partial_fit(X[150:], y[150:])
        assert model.noise_variance_ == 2.0
        assert model.prior_rate_ != before
        np.testing.assert_allclose(
            model.log_marginal_likelihood_,
            clone(model)
            .set_params(random_state=0)
            .fit(X[:150], y[:150])
            .partial_fit(X[150:], y[150:])
            .log_marginal_likelihood_,
        )


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
        ("trend", "cubic", "trend must be"),
        ("hyperparameters", "mcmc", "hyperparameters must be"),
        ("hyperparameters", "marginal_likelihood", 'needs posterior="hierarchical"'),
    ],
)
def test_wrong_parameters_are_named(parameter, value, message):
    X, y = friedman(30, 5)
    with pytest.raises(ValueError, match=message):
        forest(**PRUNED | {parameter: value}).fit(X[:, :3], y)
