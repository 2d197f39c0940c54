"""Feature weights in a forest: what given ones do, and when they are learned."""

import numpy as np
import pytest

from benchmarks.settings import CHOSEN, PAPER, PRUNED
from forests import friedman, rmse, small_forest
from mondrian_forest._forest.sharing import state_of
from trees import check_tree_invariants


def test_weights_stretch_the_features():
    """A weight of two is a feature stretched to twice its length."""
    X, y = friedman(200, 3)
    X = X * [1.0, 2.0, 3.0]
    weighted = small_forest(
        feature_weights=[1.0, 2.0, 3.0],
        feature_range=(0.0, 4.0),
        **{k: v for k, v in PRUNED.items() if k != "feature_weights"},
    ).fit(X, y)
    assert weighted.feature_weights_.mean() == pytest.approx(1.0)
    stretched = small_forest(**PRUNED | {"feature_range": (0.0, 4.0)}).fit(
        X * weighted.feature_weights_, y
    )
    np.testing.assert_allclose(
        weighted.predict(X + 0.3),
        stretched.predict((X + 0.3) * weighted.feature_weights_),
        rtol=1e-5,
    )


def test_a_feature_of_weight_zero_has_no_influence():
    X, y = friedman(200, 3)
    model = small_forest(**PRUNED | {"feature_weights": [1.0, 0.0, 1.0]}).fit(X, y)
    moved = X + np.array([0.0, 0.7, 0.0])
    np.testing.assert_array_equal(model.predict(X), model.predict(moved))
    model.partial_fit(X * [1.0, 50.0, 1.0], y)
    assert not state_of(model).has_rescaled  # the range of that feature does not matter either
    model.partial_fit(X[:, ::-1] * 9.0, y)  # here the range is widened
    assert state_of(model).has_rescaled
    assert np.all(np.isfinite(model.predict(X)))


def test_weights_are_learned_if_most_features_are_irrelevant():
    """The paper's second failure: 5 features that matter among 100."""
    X, y = friedman(1400, 100)
    train, test = (X[:1000], y[:1000]), (X[1000:], y[1000:])
    few = small_forest(n_estimators=25, **CHOSEN).fit(train[0][:, :5], train[1])
    paper = small_forest(n_estimators=25, **PAPER).fit(*train)
    learned = small_forest(n_estimators=25, **CHOSEN | {"feature_weights": "auto"}).fit(*train)
    assert learned.feature_weights_[:5].mean() > 6.0  # of 100 features
    assert rmse(paper, *test) > 1.9 * rmse(few, test[0][:, :5], test[1])
    assert rmse(learned, *test) < 1.25 * rmse(few, test[0][:, :5], test[1])


def test_a_feature_that_was_constant_at_first_can_matter_later():
    generator = np.random.default_rng(0)
    X = generator.random((900, 3))
    y = np.where(np.arange(900) < 300, np.sin(5 * X[:, 0]), 5 * X[:, 2])
    X[:300, 2] = 0.5
    model = small_forest(**CHOSEN | {"feature_weights": "auto"}).fit(X[:300], y[:300])
    assert model.feature_weights_.min() > 0.0
    model.partial_fit(X[300:], y[300:])
    assert rmse(model, X[300:], y[300:]) < 0.7


def test_weights_are_learned_again_at_50_and_200_rows_of_a_stream():
    """It begins with fewer rows than weights are learned from, and one feature matters."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-3.0, 5.0, (260, 6))
    y = np.sin(2 * X[:, 4])
    model = small_forest(**CHOSEN | {"feature_weights": "auto"}, feature_range=(-3.0, 5.0))
    found = []
    for start in range(0, 260, 10):
        model.partial_fit(X[start : start + 10], y[start : start + 10])
        found.append(model.feature_weights_)
    np.testing.assert_array_equal(found[0], 1.0)
    changes = [k for k in range(1, 26) if not np.array_equal(found[k], found[k - 1])]
    assert changes == [4, 19]  # at 50 and 200 rows
    assert model.feature_weights_.argmax() == 4
    assert model.feature_weights_[4] > 0.4 * model.feature_weights_.sum()
    state = state_of(model)
    rows, labels = state.rows[:260], state.labels[:260]
    np.testing.assert_allclose(rows, state.scaling.apply(X), rtol=1e-5)
    for number, tree in enumerate(model.trees_):
        check_tree_invariants(tree, rows, state.grove.rows(number), labels=labels)


def test_weights_are_equal_if_labels_are_constant():
    X = np.random.default_rng(0).random((100, 3))
    model = small_forest(**CHOSEN | {"feature_weights": "auto"}).fit(X, np.ones(100))
    np.testing.assert_array_equal(model.feature_weights_, 1.0)
