"""The linear trend: ridge regression with a penalty by generalised cross-validation."""

import numpy as np
import pytest

from mondrian_forest._forest.linear import fit_linear

PENALTIES = [*np.geomspace(1e-12, 1e6, 73), np.inf]


def fitted(X, y, is_used=None, block=1000):
    """Return the trend of a table that is read in blocks."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    is_used = np.ones(len(y), dtype=bool) if is_used is None else is_used
    slices = [slice(start, start + block) for start in range(0, len(y), block)]
    blocks = ((rows, X[rows]) for rows in slices)
    return fit_linear(blocks, y, is_used, (X.min(axis=0), X.max(axis=0)))


def table(n_rows=60, n_features=4, noise=0.5, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, n_features)) + random.normal(size=(n_rows, 1))
    return X, 3.0 + X @ np.arange(n_features) + noise * random.normal(size=n_rows)


def dense_ridge(X, y, queries):
    """Return the predictions of ridge regression, by a dense solve for each penalty."""
    n_rows, n_features = X.shape
    center, deviation = X.mean(axis=0), np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=0))
    Z, residual = (X - center) / deviation, y - y.mean()
    gram = Z.T @ Z
    mean_eigenvalue = np.trace(gram) / np.linalg.matrix_rank(gram)
    best, slope = np.inf, None
    for penalty in PENALTIES:
        if np.isinf(penalty):
            hat = np.zeros((n_features, n_rows))
        else:
            hat = np.linalg.solve(gram + penalty * mean_eigenvalue * np.eye(n_features), Z.T)
        rest = residual - Z @ (hat @ residual)
        score = (rest @ rest) / (n_rows - 1 - np.trace(Z @ hat)) ** 2
        if score < best:
            best, slope = score, hat @ residual
    return y.mean() + (queries - center) / deviation @ slope


@pytest.mark.parametrize(("n_rows", "n_features"), [(60, 1), (60, 4), (30, 12), (12, 8)])
def test_the_trend_is_ridge_regression_by_a_dense_solve(n_rows, n_features):
    X, y = table(n_rows, n_features, noise=2.0)
    queries = table(20, n_features, seed=1)[0]
    np.testing.assert_allclose(fitted(X, y).at(queries), dense_ridge(X, y, queries), rtol=1e-6)


def test_without_noise_the_trend_is_the_linear_function_even_far_away():
    X, y = table(noise=0.0)
    far = 1e4 * table(seed=1)[0]
    np.testing.assert_allclose(fitted(X, y).at(far), 3.0 + far @ np.arange(4), rtol=1e-6)


def test_blocks_of_any_size_give_the_same_trend():
    X, y = table()
    np.testing.assert_allclose(fitted(X, y, block=7).at(X), fitted(X, y).at(X), rtol=1e-12)


def test_only_the_used_rows_count():
    X, y = table()
    is_used = np.arange(len(y)) % 3 > 0
    other = np.where(is_used, y, 1e6)
    np.testing.assert_array_equal(fitted(X, y, is_used).at(X), fitted(X, other, is_used).at(X))
    np.testing.assert_allclose(
        fitted(X, y, is_used).at(X), fitted(X[is_used], y[is_used]).at(X), rtol=1e-9
    )


@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1e9, 1e300])
def test_units_of_the_features_do_not_matter(unit):
    X, y = table()
    queries = table(seed=1)[0]
    scale, shift = np.array([1.0, unit, 1.0, 1.0]), np.array([0.0, 0.0, 5.0, -100.0])
    moved = fitted(X * scale + shift, y).at(queries * scale + shift)
    np.testing.assert_allclose(moved, fitted(X, y).at(queries), rtol=1e-9)


@pytest.mark.parametrize(("unit", "shift"), [(1e-6, 0.0), (-2.0, 7.0), (1e6, -1e3)])
def test_the_trend_has_the_unit_of_the_labels(unit, shift):
    X, y = table()
    np.testing.assert_allclose(
        fitted(X, unit * y + shift).at(X), unit * fitted(X, y).at(X) + shift, rtol=1e-8
    )


def test_a_constant_column_has_no_slope_and_no_influence():
    X, y = table()
    with_constant = np.insert(X, 2, 1e7, axis=1)
    trend = fitted(with_constant, y)
    assert trend.slope[2] == 0.0
    np.testing.assert_allclose(trend.at(with_constant), fitted(X, y).at(X), rtol=1e-9)
    moved = with_constant + np.array([0.0, 0.0, 1e3, 0.0, 0.0])
    np.testing.assert_array_equal(trend.at(moved), trend.at(with_constant))


def test_a_table_of_constant_columns_gives_the_mean():
    trend = fitted(np.ones((5, 2)), [1.0, 2.0, 3.0, 4.0, 5.0])
    np.testing.assert_array_equal(trend.at([[1.0, 1.0], [9.0, -9.0]]), [3.0, 3.0])


def test_a_single_row_gives_its_label():
    trend = fitted([[2.0, 3.0]], [7.0])
    np.testing.assert_array_equal(trend.at([[2.0, 3.0], [-50.0, 0.0]]), [7.0, 7.0])


def test_constant_labels_give_a_flat_trend():
    X, _ = table()
    np.testing.assert_allclose(fitted(X, np.full(60, 4.0)).at(100 * X), 4.0, rtol=1e-12)


def test_equal_columns_share_the_slope_of_one():
    X, y = table(n_features=2)
    single = fitted(X, y)
    double = fitted(np.column_stack([X[:, 0], X[:, 1], X[:, 1]]), y)
    assert double.slope[1] == pytest.approx(double.slope[2], rel=1e-9)
    assert double.slope[1] + double.slope[2] == pytest.approx(single.slope[1], rel=0.1)


@pytest.mark.parametrize("n_features", [20, 40, 55, 58, 60, 80, 400])
def test_labels_without_a_trend_are_not_explained_by_many_features(n_features):
    """Least squares would explain most of them, or all."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, n_features)), random.normal(size=60)
    trend = fitted(X, y)
    assert trend.at(X).var() < 0.3 * y.var()
    assert trend.at(random.normal(size=(1000, n_features))).var() < 0.3


def test_features_may_span_the_range_of_float64():
    X = np.linspace(-1.0, 1.0, 21)[:, None] * np.finfo(float).max
    y = np.linspace(-3.0, 5.0, 21)
    np.testing.assert_allclose(fitted(X, y).at(X), y, atol=1e-6)
