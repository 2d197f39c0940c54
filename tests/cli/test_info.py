import json

import numpy as np
import pytest

from command import refuse_here, run, succeed_here
from mondrian_forest import MondrianForestRegressor
from mondrian_forest._forest.files import save_forest
from mondrian_forest.tables import TableForest


def test_a_model_of_a_table(folder):
    text = succeed_here("info", folder / "houses.mf").stdout
    assert "target             price" in text
    assert "sold date, town text, area number, garden number" in text
    found = json.loads(succeed_here("info", folder / "houses.mf", "--json").stdout)
    assert found["rows seen"] == 400
    assert found["trees"] == 5
    assert found["ranges"]["area"] == [30.0, 199.0]
    assert list(found["rates of cuts"]) == list(found["ranges"])
    assert np.mean(list(found["rates of cuts"].values())) == pytest.approx(1.0)


def test_a_model_of_arrays(tmp_path):
    X = np.random.default_rng(0).random((30, 2))
    MondrianForestRegressor(2, random_state=0).fit(X, X[:, 0]).save(tmp_path / "m.mf")
    assert "target" not in succeed_here("info", tmp_path / "m.mf").stdout
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    message = refuse_here("predict", tmp_path / "m.mf", tmp_path / "t.csv")
    assert "does not say how to read tables" in message


def test_a_file_that_does_not_exist(tmp_path):
    assert "'m.mf'" in refuse_here("info", "m.mf", cwd=tmp_path)
    assert run("info").returncode == 2


def test_a_deeply_nested_description_of_columns_is_refused(small_model, tmp_path):
    known = TableForest.load(small_model)
    depth = 100_000
    save_forest(known.forest, tmp_path / "deep.mf", rows=True, table="[" * depth + "]" * depth)
    for command in (["info"], ["predict"], ["evaluate"], ["update"]):
        rest = [] if command == ["info"] else [tmp_path / "t.csv"]
        message = refuse_here(*command, tmp_path / "deep.mf", *rest)
        assert "no sound model file: its description of columns makes no sense" in message
