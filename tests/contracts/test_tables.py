"""Tables of pandas, polars and arrow give the same result as arrays; their names are checked."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mondrian_forest import MondrianForestRegressor

NAMES = ["length", "time of day", "date"]
MAKE = {
    "pandas": lambda X, names: pd.DataFrame(X, columns=names),
    "polars": lambda X, names: pl.DataFrame(X, schema=names),
    "arrow": lambda X, names: pa.table(dict(zip(names, X.T, strict=True))),
}
COLUMN = {"pandas": pd.Series, "polars": pl.Series, "arrow": pa.array}


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    X = generator.random((100, 3))
    return X, X[:, 0] + X[:, 1]


@pytest.mark.parametrize("kind", MAKE)
def test_a_table_gives_the_same_result_as_an_array(kind, data):
    X, y = data
    plain = MondrianForestRegressor(3, random_state=0).fit(X, y)
    table = MAKE[kind](X, NAMES)
    named = MondrianForestRegressor(3, random_state=0).fit(table, COLUMN[kind](y))
    np.testing.assert_array_equal(named.predict(table), plain.predict(X))
    np.testing.assert_array_equal(named.feature_names_in_, NAMES)


@pytest.mark.parametrize("kind", MAKE)
def test_columns_with_other_names_are_refused(kind, data):
    X, y = data
    forest = MondrianForestRegressor(3, random_state=0).fit(MAKE[kind](X, NAMES), y)
    with pytest.raises(ValueError, match="feature names should match"):
        forest.predict(MAKE[kind](X, ["length", "date", "colour"]))
    with pytest.raises(ValueError, match=r"feature names should match|2 features"):
        forest.predict(MAKE[kind](X[:, :2], NAMES[:2]))


@pytest.mark.parametrize("kind", MAKE)
def test_integer_columns_give_the_same_result_as_an_array(kind, data):
    X, y = data
    counts = (10 * X).astype(np.int64)
    forest = MondrianForestRegressor(3, random_state=0).fit(MAKE[kind](counts, NAMES), y)
    plain = MondrianForestRegressor(3, random_state=0).fit(counts, y)
    np.testing.assert_array_equal(forest.predict(MAKE[kind](counts, NAMES)), plain.predict(counts))
