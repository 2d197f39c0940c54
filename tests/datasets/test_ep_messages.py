import numpy as np
import pandas as pd
import pytest

from mondrian_forest.datasets import load_ep_messages


@pytest.mark.parametrize(
    ("subset", "rows"), [("train", 4012), ("test_red", 500), ("test_blue", 500)]
)
def test_subsets_have_the_published_sizes(subset, rows):
    loaded = load_ep_messages(subset)
    assert loaded.data.shape == (rows, 2)
    assert loaded.target.shape == (rows,)
    assert loaded.frame is None
    assert "MIT licence" in loaded.DESCR


def test_rows_are_those_of_the_source(data_directory):
    source = pd.read_csv(data_directory / "ep_logistic.csv")
    for subset, target in (
        ("train", "y_mean_published"), ("test_red", "y_mean_exact"), ("test_blue", "y_mean_exact")
    ):  # fmt: skip
        rows = source[source["split"] == subset]
        X, y = load_ep_messages(subset, return_X_y=True)
        np.testing.assert_allclose(X, rows[["x1_mean", "x2_logprec"]], rtol=1e-9)
        np.testing.assert_allclose(y, rows[target], rtol=1e-9)


def test_the_frame_contains_the_same_rows():
    loaded = load_ep_messages("test_red", as_frame=True)
    assert list(loaded.frame.columns) == [*loaded.feature_names, *loaded.target_names]
    X, y = load_ep_messages("test_red", as_frame=True, return_X_y=True)
    pd.testing.assert_frame_equal(X, loaded.data)
    pd.testing.assert_series_equal(y, loaded.target)
    np.testing.assert_array_equal(X, load_ep_messages("test_red").data)


def test_an_unknown_subset_is_refused():
    with pytest.raises(ValueError, match="subset must be one of train, test_red, test_blue"):
        load_ep_messages("test")
