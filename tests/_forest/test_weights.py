"""Feature weights: how they are learned from slopes, which round counts, and gains of cuts."""

import numpy as np
import pytest

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._forest.weights import FEWEST_ROWS, LEAST, STEP, gains, learn_weights


def table(n_rows=200, n_features=3, seed=0):
    random = np.random.default_rng(seed)
    return random.random((n_rows, n_features))


def weights_of(function, rows, labels=None):
    """Return the weights if every forest predicts a given function of the rows."""

    def learn(_weights, rows, _labels):
        return function, np.ones(rows.shape[1])

    labels = function(rows) if labels is None else labels
    return learn_weights(rows, labels, np.ones(rows.shape[1]), learn, np.random.default_rng(0))


def test_weights_are_proportional_to_the_slopes_and_have_the_mean_1():
    found = weights_of(lambda rows: rows @ [3.0, -1.0, 0.5], table())
    np.testing.assert_allclose(found, np.array([3.0, 1.0, 0.5]) / 1.5, rtol=1e-9)


def test_the_slope_is_the_root_mean_square_over_rows():
    """The slope of x ** 2 is 2 x, whose root mean square over a uniform x is 2 / sqrt(3)."""
    found = weights_of(lambda rows: rows[:, 0] ** 2 + rows[:, 1], table(20_000, 2))
    assert found[0] / found[1] == pytest.approx(2.0 / np.sqrt(3.0), rel=0.02)


def test_an_irrelevant_feature_keeps_a_small_weight():
    found = weights_of(lambda rows: rows @ [2.0, 0.0, 0.0], table())
    np.testing.assert_allclose(found / found[0], [1.0, LEAST, LEAST], rtol=1e-9)


def test_a_constant_feature_gets_the_mean_weight_of_the_others():
    rows = table()
    rows[:, 1] = 0.5
    found = weights_of(lambda rows: rows @ [3.0, 7.0, 1.0], rows)
    np.testing.assert_allclose(found, [1.5, 1.0, 0.5], rtol=1e-9)


def test_the_weights_follow_a_permutation_of_the_features():
    order = [2, 0, 1]
    rows = table()

    def function(rows):
        return np.sin(5 * rows[:, 0]) + rows[:, 1] * rows[:, 2]

    found = weights_of(function, rows)
    permuted = weights_of(lambda rows: function(rows[:, np.argsort(order)]), rows[:, order])
    np.testing.assert_allclose(permuted, found[order], rtol=1e-9)


@pytest.mark.parametrize("function", [lambda rows: np.zeros(len(rows)), lambda rows: rows[:, 0]])
def test_weights_are_equal_if_the_prediction_is_flat_or_no_feature_moves(function):
    rows = np.full((50, 3), 0.25)
    np.testing.assert_array_equal(weights_of(function, rows), np.ones(3))


def test_few_rows_have_equal_weights_without_a_forest():
    def learn(*_):
        raise AssertionError("no forest is needed")

    rows = table(FEWEST_ROWS - 1)
    found = learn_weights(rows, rows[:, 0], np.ones(rows.shape[1]), learn, np.random.default_rng(0))
    np.testing.assert_array_equal(found, np.ones(3))


def test_forests_do_not_learn_the_rows_that_compare_the_rounds():
    rows = table()
    seen = []

    def learn(_weights, learned, labels):
        seen.append((learned, labels))
        return (lambda queries: queries[:, 0]), np.ones(3)

    learn_weights(rows, rows[:, 0], np.ones(rows.shape[1]), learn, np.random.default_rng(0))
    for learned, labels in seen:
        np.testing.assert_array_equal(learned, rows[40:])
        np.testing.assert_array_equal(labels, rows[40:, 0])


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        ([1.0, 2.0, 2.0, 2.0], 0),
        ([2.0, 1.0, 3.0, 3.0], 1),
        ([2.0, 1.0, 1.004, 3.0], 2),  # nearly equal errors: the later round counts
        ([2.0, 1.0, 1.02, 3.0], 1),
        ([1.0, 1.0, 1.0, 1.0], 3),
    ],
)
def test_the_round_with_the_smallest_error_on_held_out_rows_counts(errors, best):
    """Errors are root mean squares; squared ones within 1% are equal."""
    rows, tried = table(), []

    def learn(weights, _rows, _labels):
        error = errors[len(tried)]
        tried.append(weights)
        slopes = 1.0 + np.arange(3) * len(tried)
        at_zero = rows[:40] @ slopes

        def predict(queries):
            if len(queries) == 40:  # the held-out rows
                return queries @ slopes - at_zero + error
            return queries @ slopes

        return predict, np.ones(3)

    found = learn_weights(
        rows, np.zeros(200), np.ones(rows.shape[1]), learn, np.random.default_rng(0)
    )
    assert len(tried) == 4
    np.testing.assert_array_equal(found, tried[best])


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

        weights = learn_weights(rows, labels, np.ones(rows.shape[1]), learn, generator)
        assert weights.argmax() == 0
    assert asked[3000] == asked[300]


class TestSteps:
    def steps(self, rows):
        """Return the distance between the two queries for each row, along each feature."""
        found = []

        def learn(_weights, _rows, _labels):
            def predict(queries):
                if len(queries) > 100:  # not the held-out rows
                    pairs = queries.reshape(2, -1, rows.shape[1])
                    found.append(np.abs(np.diff(pairs, axis=0)).max(axis=(0, 1)).max())
                return queries.sum(axis=1)

            return predict, np.ones(rows.shape[1])

        learn_weights(
            rows, rows.sum(axis=1), np.ones(rows.shape[1]), learn, np.random.default_rng(0)
        )
        return np.array(found[: rows.shape[1]])

    def test_a_step_is_a_share_of_the_standard_deviation(self):
        rows = table(500, 2) * [1.0, 7.0]
        np.testing.assert_allclose(self.steps(rows), 2 * STEP * rows.std(axis=0), rtol=0.05)

    def test_one_extreme_value_does_not_change_the_steps(self):
        rows = table(500, 2)
        rows[0, 0] = 1000.0
        assert self.steps(rows)[0] == pytest.approx(2 * STEP * rows[1:, 0].std(), rel=0.1)

    def test_a_feature_that_is_almost_always_the_same_has_a_step(self):
        rows = table(500, 2)
        rows[:, 0] = 0.0
        rows[:2, 0] = 1.0  # fewer than those that count as extreme
        assert self.steps(rows)[0] == pytest.approx(2 * STEP * rows[:, 0].std())


def unscaled_forest(X, y, **parameters):
    """Return a forest of the paper whose trees have the coordinates of the rows."""
    settings = PAPER | {"feature_range": (0.0, 1.0), "min_samples_split": 2} | parameters
    return MondrianForestRegressor(3, random_state=0, **settings).fit(X, y)


def naive_gains(tree, X, y, node=0):
    """Return the gains of all cuts below a node, by sending the rows down the tree."""
    found = np.zeros(X.shape[1])
    left = tree.left_child[node]
    if left < 0:
        return found
    feature = tree.split_feature[node]
    is_left = X[:, feature] <= tree.threshold[node]
    sides = [(X[side], y[side]) for side in (is_left, ~is_left)]
    below = sum(((labels - labels.mean()) ** 2).sum() for _, labels in sides)
    found[feature] = ((y - y.mean()) ** 2).sum() - below
    return found + sum(naive_gains(tree, *side, left + k) for k, side in enumerate(sides))


class TestGains:
    def test_two_rows_have_one_cut_that_explains_all(self):
        forest = unscaled_forest([[0.5, 0.2], [0.5, 0.9]], [1.0, 4.0])
        # Each of three trees: (1 - 2.5)^2 + (4 - 2.5)^2.
        np.testing.assert_allclose(gains(forest.trees_, 2), [0.0, 3 * 4.5])

    @pytest.mark.parametrize("min_samples_split", [2, 7])
    def test_gains_are_those_of_rows_sent_down_the_trees(self, min_samples_split):
        random = np.random.default_rng(0)
        X = random.random((60, 4)).astype(np.float32).astype(np.float64)
        X[:, 1] = np.float32(0.5)  # constant
        X[:, 2] = np.round(4 * X[:, 2]) / 4  # ties
        X[30:40] = X[:10]  # duplicate rows with other labels
        y = X @ [1.0, 0.0, 2.0, 0.0] + random.normal(size=60)
        forest = unscaled_forest(X, y, min_samples_split=min_samples_split)
        rows = X.astype(np.float32)
        expected = sum(naive_gains(tree, rows, y) for tree in forest.trees_)
        found = gains(forest.trees_, 4)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert found[1] == 0.0
        assert (found[[0, 2, 3]] > 0.0).all()


def test_a_forest_finds_the_relevant_feature_among_ties_and_duplicates():
    random = np.random.default_rng(0)
    X = np.round(random.random((400, 6)), 1)  # most values are tied
    X[200:] = X[:200]
    y = np.sin(6 * X[:, 4]) + 0.1 * random.normal(size=400)
    forest = MondrianForestRegressor(5, random_state=0, spread=1.0).fit(X, y)
    weights = forest.feature_weights_
    assert weights.argmax() == 4
    assert weights[4] > 3 * np.delete(weights, 4).max()
    assert weights.mean() == pytest.approx(1.0)
