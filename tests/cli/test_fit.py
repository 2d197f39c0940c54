import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from command import refuse, refuse_here, succeed, succeed_here
from mondrian_forest.tables import TableForest

FIT = ("--target", "price", "--trees", 3)


class TestFit:
    def test_held_out_rows_are_scored_and_then_learned(self, folder, tmp_path):
        done = succeed_here(
            "fit", folder / "houses.csv", *FIT, "--drop", "id", "--holdout", 0.25, "--json",
            "-o", tmp_path / "m.mf",
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert found["rows"] == 400
        assert 60 < found["rows held out"] < 140
        assert 15 < found["rmse"] < 80  # the noise is 20, the labels' deviation 180
        assert 0.5 < found["coverage_90"] <= 1.0

    def test_the_result_is_printed_as_text(self, folder, tmp_path):
        done = succeed_here("fit", folder / "houses.csv", *FIT, "-o", tmp_path / "m.mf")
        assert "rows      400" in done.stdout
        assert "Next: mondrian predict" in done.stderr

    @pytest.mark.parametrize("kind", ["csv.gz", "parquet", "feather", "tsv", "semicolon.csv"])
    def test_all_file_types_give_the_same_model(self, kind, folder, tmp_path):
        table = pa.csv.read_csv(folder / "houses.csv")
        path = tmp_path / f"houses.{kind}"
        if kind == "csv.gz":
            path.write_bytes(gzip.compress((folder / "houses.csv").read_bytes()))
        elif kind == "parquet":
            pa.parquet.write_table(table, path)
        elif kind == "feather":
            pa.feather.write_feather(table, path, compression="uncompressed")
        else:
            delimiter = "\t" if kind == "tsv" else ";"
            pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter=delimiter))
        succeed_here("fit", path, *FIT, "--columns", "area,town,sold", "-o", tmp_path / "m.mf")
        model = TableForest.load(tmp_path / "m.mf")
        expected = TableForest.fit(
            table, "price", columns=["area", "town", "sold"], n_estimators=3, n_jobs=-1
        )
        np.testing.assert_array_equal(
            model.predict(table)["prediction"], expected.predict(table)["prediction"]
        )

    def test_a_stream_is_learned_in_batches(self, folder, tmp_path):
        done = succeed_here(
            "fit", folder / "houses.csv", *FIT, "--drop", "id", "--stream", "--batch-rows", 90,
            "--holdout", 0.2, "--json", "-o", tmp_path / "m.mf",
        )  # fmt: skip
        assert json.loads(done.stdout)["rows"] == 400
        assert json.loads(done.stdout)["rmse"] < 100

    def test_the_model_of_the_paper(self, folder, tmp_path):
        succeed_here("fit", folder / "houses.csv", *FIT, "--paper", "-o", tmp_path / "m.mf")
        found = json.loads(succeed_here("info", tmp_path / "m.mf", "--json").stdout)
        assert found["posterior"] == "hierarchical"
        assert found["min_samples_split"] == 10

    def test_missing_values_are_refused_by_name_or_filled(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,b,y\n" + "1,x,1\n,,2\n3,z,3\n" * 5)
        message = refuse_here("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.mf")
        assert "'a' (5), 'b' (5)" in message
        assert "--impute" in message
        succeed_here("fit", tmp_path / "t.csv", "-t", "y", "--impute", "-o", tmp_path / "m.mf")
        (tmp_path / "new.csv").write_text("b,a\n,\nnever,2\n")
        done = succeed_here("predict", tmp_path / "m.mf", tmp_path / "new.csv")
        assert len(done.stdout.splitlines()) == 3

    def test_without_rows_the_model_cannot_learn_more(self, folder, tmp_path):
        succeed_here("fit", folder / "houses.csv", *FIT, "--no-rows", "-o", tmp_path / "m.mf")
        message = refuse_here("update", tmp_path / "m.mf", folder / "more.csv")
        assert "cannot learn more" in message


@pytest.fixture(scope="module")
def files(folder, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    table = pa.csv.read_csv(folder / "houses.csv")
    pa.parquet.write_table(table.slice(0, 250), files / "a.parquet", row_group_size=100)
    pa.parquet.write_table(table.slice(250), files / "b.parquet")
    return files


class TestManyFiles:
    def test_a_pattern_stands_for_all_files_that_match(self, files, tmp_path):
        fitted = "fit", files / "*.parquet", *FIT, "--json", "-o", tmp_path / "m.mf"
        assert json.loads(succeed_here(*fitted).stdout)["rows"] == 400
        assert json.loads(succeed_here(*fitted, "--stream").stdout)["rows"] == 400
        assert "There is no file" in refuse_here("fit", files / "*.csv", *FIT)

    def test_dask_worker_processes(self, files, tmp_path):
        pytest.importorskip("distributed", reason="Dask is not installed")
        fitted = "fit", files / "*.parquet", *FIT, "--drop", "id", "-o", tmp_path / "m.mf"
        assert json.loads(succeed(*fitted, "--workers", 2, "--json").stdout)["rows"] == 400
        found = json.loads(
            succeed("evaluate", tmp_path / "m.mf", files / "b.parquet", "--json").stdout
        )
        assert found["rmse"] < 60
        refuse(*fitted, "--workers", 2, "--holdout", 0.1, code=2)
        assert "no Dask scheduler" in refuse(*fitted, "--dask", "tcp://127.0.0.1:1")

    def test_files_with_different_columns_are_refused(self, tmp_path):
        (tmp_path / "a.csv").write_text("x,price\n1,2\n")
        (tmp_path / "b.csv").write_text("z,price\n1,2\n")
        message = refuse_here("fit", tmp_path / "*.csv", *FIT, "-o", tmp_path / "m.mf")
        assert "Not all files have a column 'x'" in message


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "is empty"),
            ("x,price\n", "has no rows"),
            ("x,price\n1,a\n2,b\n", "does not hold numbers"),
            ("x,price\n1,2\n3,\n", "has 1 missing values"),
            ("x,price\n1,2\n3,inf\n", "not finite"),
            ("x,price\ninf,2\n3,4\n", "'x' has values that are not finite"),
            ("x,price\n1,2\n3\n", "not a valid CSV file"),
            ("x,x,price\n1,2,3\n", "two columns with the name 'x'"),
            ("price\n1\n2\n", "no column to learn from"),
            ("x;price\n1;2\n", None),
            ("x,price\n1,2\n", None),
        ],
        ids=["empty", "no rows", "text target", "missing target", "infinite target", "infinite",
             "short line", "twice", "target only", "semicolon", "one row"],
    )  # fmt: skip
    def test_invalid_tables(self, content, message, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text(content)
        model = tmp_path / "m.mf"
        if message is None:
            succeed_here("fit", path, "-t", "price", "-o", model)
        else:
            assert message in refuse_here("fit", path, "-t", "price", "-o", model)
            assert os.listdir(tmp_path) == ["t.csv"]

    def test_a_wrong_delimiter(self, tmp_path):
        (tmp_path / "t.csv").write_text("x,price\n1,2\n")
        message = refuse_here("fit", tmp_path / "t.csv", "-t", "price", "--delimiter", ";")
        assert "give the delimiter (--delimiter)" in message

    def test_columns_that_do_not_exist(self, folder):
        assert "Its columns are 'id', 'sold'" in refuse_here(
            "fit", folder / "houses.csv", "-t", "prize"
        )
        assert "'pool'" in refuse_here("fit", folder / "houses.csv", *FIT, "--columns", "pool")
        assert "'pool'" in refuse_here("fit", folder / "houses.csv", *FIT, "--drop", "pool")

    def test_files_that_are_not_tables(self, tmp_path, folder):
        assert "There is no file" in refuse_here("fit", tmp_path / "t.csv", *FIT)
        assert "unknown file type" in refuse_here("fit", folder / "houses.mf", *FIT)
        (tmp_path / "t.parquet").write_bytes((folder / "more.parquet").read_bytes()[:900])
        assert "not a valid Parquet file" in refuse_here("fit", tmp_path / "t.parquet", *FIT)
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"x,price\n1,2\n" * 99)[:-20])
        assert "not a valid CSV file" in refuse_here("fit", tmp_path / "t.csv.gz", *FIT)
        (tmp_path / "t.csv").write_bytes(b"\x00\x01\x02\n" * 50)
        assert "not UTF-8 text" in refuse_here("fit", tmp_path / "t.csv", *FIT)

    def test_a_model_that_cannot_be_written(self, folder, tmp_path):
        assert "cannot be saved" in refuse_here("fit", folder / "houses.csv", *FIT, "-o", tmp_path)
        nowhere = tmp_path / "no" / "m.mf"
        assert "cannot be saved" in refuse_here("fit", folder / "houses.csv", *FIT, "-o", nowhere)

    def test_wrong_usage(self, folder):
        refuse_here("fit", folder / "houses.csv", code=2)
        refuse_here("fit", folder / "houses.csv", "-t", "price", "--holdout", 2, code=2)
        refuse_here("fit", folder / "houses.csv", "-t", "price", "--trees", 0, code=2)


class TestTextInColumns:
    def test_a_wrong_cell_is_named(self, write_table, small_fit, tmp_path):
        table = write_table(tmp_path / "t.csv", cell="?")
        for options in ([], ["--stream", "--batch-rows", 7], ["--holdout", 0.5]):
            message = refuse_here("fit", table, *small_fit, *options, "-o", tmp_path / "m.mf")
            assert f"'?' in row 20 of {str(table)!r} is not a number" in message
        assert os.listdir(tmp_path) == ["t.csv"]

    def test_marks_of_missing_values_are_kept_in_the_model(self, write_table, small_fit, tmp_path):
        table, model = write_table(tmp_path / "t.csv", cell="?"), tmp_path / "m.mf"
        fit = "fit", table, *small_fit, "-o", model, "--missing", "?", "--missing", "none"
        assert "missing values in column 'a' (1)" in refuse_here(*fit)
        succeed_here(*fit, "--impute")
        found = json.loads(succeed_here("info", model, "--json").stdout)
        assert found["columns"] == {"a": "number", "b": "number"}
        assert found["missing"] == ["?", "none"]
        other = write_table(tmp_path / "other.csv", cell="none")
        out = succeed_here("predict", model, other).stdout.splitlines()
        assert len(out) == 41
        assert '"none"' in out[20]  # copied as it is written
        succeed_here("evaluate", model, other, "--json")
        succeed_here("update", model, other)
        wrong = write_table(tmp_path / "wrong.csv", cell="-")
        for command in ("predict", "evaluate", "update"):
            assert "'-' in row 20 of" in refuse_here(command, model, wrong)

    def test_a_column_may_be_declared_text(self, write_table, small_fit, tmp_path):
        table, model = write_table(tmp_path / "t.csv", cell="?"), tmp_path / "m.mf"
        succeed_here("fit", table, *small_fit, "--text", "a", "-o", model)
        found = json.loads(succeed_here("info", model, "--json").stdout)
        assert found["columns"] == {"a": "text", "b": "number"}
        message = refuse_here("fit", table, *small_fit, "--text", "c", "-o", model)
        assert "'c' cannot be text" in message

    def test_a_mark_of_missing_values_does_not_ruin_the_model(self, small_fit, tmp_path):
        a = np.random.default_rng(7).random(600)
        y = np.sin(6 * a)
        cells = [f"{value:.4f}" for value in a]
        cells[300] = "?"
        lines = [f"{cell},{label:.4f}\n" for cell, label in zip(cells, y, strict=True)]
        (tmp_path / "t.csv").write_text("a,y\n" + "".join(lines))
        done = succeed_here(
            "fit", tmp_path / "t.csv", *small_fit, "--missing", "?", "--impute", "--holdout", 0.3,
            "--json", "-o", tmp_path / "m.mf",
        )  # fmt: skip
        assert json.loads(done.stdout)["rmse"] < 0.15

    def test_times_of_day_are_read_at_the_fit_and_later(self, small_fit, tmp_path):
        lines = [f"{k % 24:02}:30,{k % 24}\n" for k in range(48)]
        (tmp_path / "t.csv").write_text("at,y\n" + "".join(lines))
        succeed_here("fit", tmp_path / "t.csv", *small_fit, "-o", tmp_path / "m.mf")
        assert len(succeed_here("predict", tmp_path / "m.mf", tmp_path / "t.csv").stdout) > 0


def test_a_forest_around_boosted_trees(folder, tmp_path):
    succeed_here(
        "fit", folder / "houses.csv", "--target", "price", "--trees", 3, "-o", tmp_path / "m.mf",
        "--mean-function", "boosting",
    )  # fmt: skip
    told = succeed_here("info", tmp_path / "m.mf").stdout
    assert "mean function      boosting, subtract" in told
    succeed_here("predict", tmp_path / "m.mf", folder / "more.csv", "-o", tmp_path / "out.csv")


def test_mean_functions_that_are_not_there_are_refused(folder):
    options = "--target", "price", "--mean-function", "cubic"
    done = refuse_here("fit", folder / "houses.csv", *options, code=2)
    assert "--mean-function must be one of auto, none, linear, boosting, got 'cubic'" in done
