"""Feature weights: how they are learned, and at what cost."""

import numpy as np
import pytest

from mondrian_forest import MondrianForestRegressor
from mondrian_forest._forest.weights import gains, learn_weights


def test_queries_do_not_grow_with_the_number_of_features():
    generator = np.random.default_rng(0)
    asked = {}
    for n_features in (300, 3000):
        rows, labels = generator.random((40, n_features)), generator.random(40)
        asked[n_features] = 0

        def learn(_weights, _rows, _labels, n_features=n_features):
            def predict(queries):
                asked[n_features] += len(queries)
                return queries[:, 0]

            return predict, np.arange(n_features, 0.0, -1.0)

        weights = learn_weights(rows, labels, learn, generator)
        assert weights.argmax() == 0
    assert asked[3000] == asked[300]


def test_gains_are_the_squared_deviation_that_cuts_explain():
    generator = np.random.default_rng(0)
    X = generator.random((200, 3))
    y = 5.0 * X[:, 1]
    forest = MondrianForestRegressor(3, random_state=0, feature_weights=None, spread=1.0).fit(X, y)
    found = gains(forest.trees_, 3)
    assert found.argmax() == 1
    total = sum(
        tree.tallies["squared_deviation"][0]
        - tree.tallies["squared_deviation"][tree.left_child < 0].sum()
        for tree in forest.trees_
    )
    np.testing.assert_allclose(found.sum(), total)


def test_one_extreme_value_does_not_change_the_steps():
    generator = np.random.default_rng(0)
    rows = generator.random((500, 2))
    rows[0, 0] = 1000.0
    steps = []

    def learn(_weights, _rows, _labels):
        def predict(queries):
            if len(queries) > 100:  # not the rows that are kept
                steps.append(np.abs(np.diff(queries.reshape(2, -1, 2), axis=0)).max(axis=(0, 1)))
            return queries.sum(axis=1)

        return predict, np.ones(2)

    learn_weights(rows, rows.sum(axis=1), learn, generator)
    assert steps[0][0] == pytest.approx(0.5 * rows[1:, 0].std(), rel=0.1)
