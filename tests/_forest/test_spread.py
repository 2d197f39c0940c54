"""The spread of a forest: given, or learned from held-out rows."""

import numpy as np
import pytest

from benchmarks.settings import CHOSEN, PAPER, PRUNED
from forests import friedman, share_covered, small_forest
from mondrian_forest._forest import held_out, recipe
from mondrian_forest._forest.held_out import learn_from_held_out
from mondrian_forest._forest.sharing import state_of
from mondrian_forest._forest.trees import sample_trees
from trees import check_tree_invariants


def test_a_given_factor_stretches_distributions_about_their_means():
    X, y = friedman()
    one, half = (
        small_forest(**PRUNED | {"spread": spread}).fit(X, y).predict_distribution(X[:9])
        for spread in (1.0, 0.5)
    )
    np.testing.assert_allclose(half.mean(), one.mean())
    np.testing.assert_allclose(half.std(), 0.5 * one.std())
    middle, mean = one.quantile([0.1, 0.8]), one.mean()[:, None]
    np.testing.assert_allclose(half.quantile([0.1, 0.8]), mean + 0.5 * (middle - mean))
    y = one.mean() + 0.3
    np.testing.assert_allclose(half.logpdf(one.mean() + 0.15), one.logpdf(y) + np.log(2.0))


@pytest.mark.parametrize("setting", [PAPER, CHOSEN])
def test_a_learned_spread_covers_better_than_none(setting):
    generator = np.random.default_rng(0)
    X = generator.random((1500, 4))
    y = np.sin(4 * X).sum(axis=1)  # no noise: trees err independently, a mixture is too wide
    model = small_forest(n_estimators=30, **setting | {"spread": "auto"}).fit(X[:1000], y[:1000])
    assert 0.1 < model.spread_.factor.mean() < 0.9
    found = model.predict_distribution(X[1000:])
    wide = small_forest(n_estimators=30, **setting).fit(X[:1000], y[:1000])
    wide = wide.predict_distribution(X[1000:])

    def error_of_coverage(distribution):
        return abs(share_covered(distribution, y[1000:], 0.5) - 0.5)

    assert error_of_coverage(found) < 0.5 * error_of_coverage(wide)
    # Coverage has as much of a say as the CRPS, which may pay for it a little.
    assert found.crps(y[1000:]).mean() < 1.05 * wide.crps(y[1000:]).mean()


def test_the_factor_depends_on_the_standard_deviation():
    """Half of the labels are a constant, the others have noise: one factor suits neither."""
    generator = np.random.default_rng(0)
    X = generator.random((3000, 2))
    y = np.where(X[:, 0] < 0.5, 0.0, X[:, 1] + generator.normal(0.0, 0.3, 3000))
    model = small_forest(n_estimators=30, **CHOSEN | {"spread": "auto"}).fit(X[:2000], y[:2000])
    assert model.spread_.factor[0] < 0.2
    assert model.spread_.factor[-1] > 0.5
    is_sure = X[2000:, 0] < 0.49
    found = model.predict_distribution(X[2000:])
    assert np.median(found.std()[is_sure]) < 0.01 * np.median(found.std()[~is_sure])
    covered = share_covered(found[~is_sure], y[2000:][~is_sure], 0.8)
    assert covered == pytest.approx(0.8, abs=0.08)


def test_far_from_all_data_distributions_are_not_stretched():
    generator = np.random.default_rng(0)
    X = generator.random((1000, 2))
    y = X @ [3.0, 2.0] + generator.normal(0.0, 0.1, 1000)
    model = small_forest(n_estimators=30, **CHOSEN | {"spread": "auto"}).fit(X, y)
    assert model.spread_.factor.min() < 0.7
    outside = 1e6 + X[:5]
    mean, std = model.predict(outside, return_std=True)
    np.testing.assert_allclose(mean, y.mean(), rtol=0.01)
    np.testing.assert_allclose(std, y.std(), rtol=0.01)
    np.testing.assert_allclose(model.predict_distribution(outside).std(), std, rtol=1e-6)


def test_held_out_rows_are_learned_in_the_end():
    X, y = friedman(300, 3)
    model = small_forest(**PRUNED | {"spread": "auto"}).fit(X, y)
    assert model.n_samples_seen_ == 300
    state = state_of(model)
    for number, tree in enumerate(model.trees_):
        check_tree_invariants(tree, state.rows, state.grove.rows(number), labels=state.labels)
    assert sorted(state.labels) == sorted(y)


@pytest.mark.parametrize(
    ("n_rows", "mean_function", "n_scored", "n_turns"),
    [
        (60, None, 60, 10),
        (304, None, 300, 10),
        (1600, None, 960, 6),
        (2600, None, 780, 3),
        (6000, None, 600, 1),
        (12000, None, 1000, 1),
        (300, "linear", 300, 10),
    ],
)
def test_on_small_tables_rows_are_held_out_in_turn(
    monkeypatch, n_rows, mean_function, n_scored, n_turns
):
    turns = []
    sampled_on = []

    def sample(rows, labels, n_used, *others):
        sampled_on.append({tuple(row) for row in rows[:n_used].tolist()})
        return sample_trees(rows, labels, n_used, *others)

    def learn(ensemble, record, memory, held, all_labels, far, n_jobs):
        rows, labels, _ = held
        held_out_rows = {tuple(row) for row in rows.tolist()}
        assert len(sampled_on[-1]) == n_rows - len(labels)
        assert held_out_rows.isdisjoint(sampled_on[-1])
        turns.append(labels.copy())
        assert len(memory.labels) == n_rows
        assert all_labels.n_samples == n_rows
        return learn_from_held_out(ensemble, record, memory, held, all_labels, far, n_jobs)

    monkeypatch.setattr(recipe, "sample_trees", sample)
    monkeypatch.setattr(held_out, "learn_from_held_out", learn)
    X, y = friedman(n_rows, 3)
    setting = PRUNED | {"n_estimators": 2, "spread": "auto", "mean_function": mean_function}
    small_forest(**setting).fit(X, y)
    assert len(turns) == n_turns
    scored = np.concatenate(turns)
    assert len(set(scored.tolist())) == len(scored) == n_scored


def test_no_single_label_changes_the_spread_much():
    X, y = friedman(100, 3)
    model = small_forest(**PRUNED | {"spread": "auto"}).fit(X[:10], y[:10])
    for start in range(10, 100):
        model.partial_fit(X[start : start + 1], y[start : start + 1])
        assert np.all((model.spread_.factor > 0.8) & (model.spread_.factor < 1.25))


def test_the_spread_is_learned_on_along_a_stream():
    """The trees agree more and more, as there is less and less noise."""
    X, y = friedman(4000, 3)
    model = small_forest(**PRUNED | {"spread": "auto"}).fit(X[:200], y[:200])
    before = model.spread_.factor.mean()
    for start in range(200, 4000, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert len(state_of(model).spread_record) > 100
    assert model.spread_.factor.mean() != before
    assert np.all((model.spread_.factor > 0.2) & (model.spread_.factor < 2.0))
