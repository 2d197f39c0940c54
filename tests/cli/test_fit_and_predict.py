"""From a table to a model, to predictions, to a better model."""

import csv
import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from command import COMMAND, ENVIRONMENT, refuse, refuse_here, run_here, succeed, succeed_here
from mondrian_forest.tables import TableFile, TableForest

FIT = ("--target", "price", "--trees", 3)


class TestFit:
    def test_an_honest_evaluation_before_all_rows_are_learned(self, folder, tmp_path):
        done = succeed_here(
            "fit", folder / "houses.csv", *FIT, "--drop", "id", "--holdout", 0.25, "--json",
            "-o", tmp_path / "m.mf",
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert found["rows"] == 400
        assert 60 < found["rows held out"] < 140
        assert 15 < found["rmse"] < 80  # the noise is 20, the labels' deviation 180
        assert 0.5 < found["coverage_90"] <= 1.0

    def test_for_people_it_prints_names_and_values(self, folder, tmp_path):
        done = succeed_here("fit", folder / "houses.csv", *FIT, "-o", tmp_path / "m.mf")
        assert "rows      400" in done.stdout
        assert "Next: mondrian predict" in done.stderr

    @pytest.mark.parametrize("kind", ["csv.gz", "parquet", "feather", "tsv", "semicolon.csv"])
    def test_all_kinds_of_tables_give_the_same_model(self, kind, folder, tmp_path):
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

    def test_the_papers_model(self, folder, tmp_path):
        succeed_here("fit", folder / "houses.csv", *FIT, "--paper", "-o", tmp_path / "m.mf")
        found = json.loads(succeed_here("info", tmp_path / "m.mf", "--json").stdout)
        assert found["posterior"] == "hierarchical"
        assert found["min_samples_split"] == 10

    def test_missing_values_are_refused_by_name_or_filled(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,b,y\n" + "1,x,1\n,,2\n3,z,3\n" * 5)
        complaint = refuse_here("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.mf")
        assert "'a' (5), 'b' (5)" in complaint
        assert "--impute" in complaint
        succeed_here("fit", tmp_path / "t.csv", "-t", "y", "--impute", "-o", tmp_path / "m.mf")
        (tmp_path / "new.csv").write_text("b,a\n,\nnever,2\n")
        done = succeed_here("predict", tmp_path / "m.mf", tmp_path / "new.csv")
        assert len(done.stdout.splitlines()) == 3

    def test_without_rows_the_model_cannot_learn_more(self, folder, tmp_path):
        succeed_here("fit", folder / "houses.csv", *FIT, "--no-rows", "-o", tmp_path / "m.mf")
        complaint = refuse_here("update", tmp_path / "m.mf", folder / "more.csv")
        assert "cannot learn more" in complaint


@pytest.fixture(scope="module")
def files(folder, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    table = pa.csv.read_csv(folder / "houses.csv")
    pa.parquet.write_table(table.slice(0, 250), files / "a.parquet", row_group_size=100)
    pa.parquet.write_table(table.slice(250), files / "b.parquet")
    return files


class TestManyFiles:
    def test_a_pattern_stands_for_all_of_them(self, files, tmp_path):
        fitted = "fit", files / "*.parquet", *FIT, "--json", "-o", tmp_path / "m.mf"
        assert json.loads(succeed_here(*fitted).stdout)["rows"] == 400
        assert json.loads(succeed_here(*fitted, "--stream").stdout)["rows"] == 400
        assert "There is no file" in refuse_here("fit", files / "*.csv", *FIT)

    def test_processes_of_dask(self, files, tmp_path):
        pytest.importorskip("distributed", reason="Dask is not installed")
        fitted = "fit", files / "*.parquet", *FIT, "--drop", "id", "-o", tmp_path / "m.mf"
        assert json.loads(succeed(*fitted, "--workers", 2, "--json").stdout)["rows"] == 400
        found = json.loads(
            succeed_here("evaluate", tmp_path / "m.mf", files / "b.parquet", "--json").stdout
        )
        assert found["rmse"] < 60
        refuse_here(*fitted, "--workers", 2, "--holdout", 0.1, code=2)

    @pytest.mark.filterwarnings("ignore")  # Dask warns of its own when it finds no scheduler
    def test_a_scheduler_that_is_not_there(self, files, tmp_path, monkeypatch):
        pytest.importorskip("distributed", reason="Dask is not installed")
        from mondrian_forest.distributed import collections

        def impatient(address, timeout, client=collections.Client):
            return client(address, timeout=timeout / 50)

        monkeypatch.setattr(collections, "Client", impatient)
        fitted = "fit", files / "*.parquet", *FIT, "-o", tmp_path / "m.mf"
        assert "no Dask scheduler" in refuse_here(*fitted, "--dask", "tcp://127.0.0.1:1")

    def test_files_that_do_not_fit_together(self, tmp_path):
        (tmp_path / "a.csv").write_text("x,price\n1,2\n")
        (tmp_path / "b.csv").write_text("z,price\n1,2\n")
        complaint = refuse_here("fit", tmp_path / "*.csv", *FIT, "-o", tmp_path / "m.mf")
        assert "Not all files have a column 'x'" in complaint


class TestFitRefuses:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "is empty"),
            ("x,price\n", "has no rows"),
            ("x,price\n1,a\n2,b\n", "does not hold numbers"),
            ("x,price\n1,2\n3,\n", "has 1 missing values"),
            ("x,price\n1,2\n3,inf\n", "not finite"),
            ("x,price\ninf,2\n3,4\n", "'x' has values that are not finite"),
            ("x,price\n1,2\n3\n", "no sound CSV file"),
            ("x,x,price\n1,2,3\n", "two columns with the name 'x'"),
            ("price\n1\n2\n", "no column to learn from"),
            ("x;price\n1;2\n", None),
            ("x,price\n1,2\n", None),
        ],
        ids=["empty", "no rows", "text target", "missing target", "infinite target", "infinite",
             "short line", "twice", "target only", "semicolon", "one row"],
    )  # fmt: skip
    def test_tables_with_a_fault(self, content, message, tmp_path):
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
        complaint = refuse_here("fit", tmp_path / "t.csv", "-t", "price", "--delimiter", ";")
        assert "name the delimiter" in complaint

    def test_names_that_are_not_there(self, folder):
        assert "which has 'id', 'sold'" in refuse_here("fit", folder / "houses.csv", "-t", "prize")
        assert "'pool'" in refuse_here("fit", folder / "houses.csv", *FIT, "--columns", "pool")
        assert "'pool'" in refuse_here("fit", folder / "houses.csv", *FIT, "--drop", "pool")

    def test_files_that_are_none(self, tmp_path, folder):
        assert "There is no file" in refuse_here("fit", tmp_path / "t.csv", *FIT)
        assert "unknown kind" in refuse_here("fit", folder / "houses.mf", *FIT)
        (tmp_path / "t.parquet").write_bytes((folder / "more.parquet").read_bytes()[:900])
        assert "no sound Parquet file" in refuse_here("fit", tmp_path / "t.parquet", *FIT)
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"x,price\n1,2\n" * 99)[:-20])
        assert "no sound CSV file" in refuse_here("fit", tmp_path / "t.csv.gz", *FIT)
        (tmp_path / "t.csv").write_bytes(b"\x00\x01\x02\n" * 50)
        assert "no text" in refuse_here("fit", tmp_path / "t.csv", *FIT)

    def test_a_model_that_cannot_be_written(self, folder, tmp_path):
        assert "cannot be saved" in refuse_here("fit", folder / "houses.csv", *FIT, "-o", tmp_path)
        nowhere = tmp_path / "no" / "m.mf"
        assert "cannot be saved" in refuse_here("fit", folder / "houses.csv", *FIT, "-o", nowhere)

    def test_usage(self, folder):
        refuse_here("fit", folder / "houses.csv", code=2)
        refuse_here("fit", folder / "houses.csv", "-t", "price", "--holdout", 2, code=2)
        refuse_here("fit", folder / "houses.csv", "-t", "price", "--trees", 0, code=2)


class TestPredict:
    def test_columns_are_appended_and_others_passed_on(self, folder, tmp_path):
        out = tmp_path / "out.parquet"
        succeed_here(
            "predict", folder / "houses.mf", folder / "more.csv", "-o", out, "--std",
            "--quantiles", "0.05,0.5,0.95", "--batch-rows", 30,
        )  # fmt: skip
        found = pa.parquet.read_table(out)
        assert found.column_names == [
            "id", "sold", "town", "area", "garden", "price",
            "prediction", "std", "q0.05", "q0.5", "q0.95",
        ]  # fmt: skip
        assert found["id"].to_pylist() == [str(10**16 + k) for k in range(100)]  # as it stood there
        model = TableForest.load(folder / "houses.mf")
        expected = model.predict(pa.parquet.read_table(folder / "more.parquet"), quantiles=[0.05])
        np.testing.assert_array_equal(found["prediction"], expected["prediction"])
        np.testing.assert_allclose(found["q0.05"], expected["q0.05"])

    def test_csv_goes_to_the_standard_output(self, folder):
        done = succeed_here("predict", folder / "houses.mf", folder / "more.parquet", "--only")
        lines = done.stdout.splitlines()
        assert lines[0] == '"prediction"'
        assert len(lines) == 101
        float(lines[1])

    def test_what_the_model_does_not_know_stays_as_it_stands(self, folder, tmp_path):
        line = '2020-01-01,Wien,30,true,00123,12345678901234567890,NA,"a, ""b"""'
        (tmp_path / "t.csv").write_text(f"sold,town,area,garden,zip,big,null,text\n{line}\n")
        done = succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv")
        found = list(csv.reader(done.stdout.splitlines()))
        assert found[1][:-1] == next(csv.reader([line]))

    def test_a_target_that_is_not_known_yet_is_no_fault(self, folder, tmp_path):
        content = "sold,town,area,garden,price\n2020-01-01,Wien,30,true,to be seen\n"
        (tmp_path / "t.csv").write_text(content)
        done = succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv")
        assert "to be seen" in done.stdout

    @pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
    def test_a_table_without_rows(self, kind, folder, tmp_path):
        (tmp_path / "t.csv").write_text("sold,town,area,garden\n")
        out = tmp_path / f"out.{kind}"
        succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv", "-o", out)
        assert TableFile(out).names == ["sold", "town", "area", "garden", "prediction"]

    def test_columns_in_another_order(self, folder, tmp_path):
        table = TableFile(folder / "more.csv").read()
        other = table.select(["garden", "town", "area", "sold"])
        pa.csv.write_csv(other, tmp_path / "other.csv")
        one, two = (
            succeed_here("predict", folder / "houses.mf", path, "--only").stdout
            for path in (folder / "more.csv", tmp_path / "other.csv")
        )
        assert one == two

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("sold,town,area\n2020-01-01,Wien,30\n", "no column 'garden'"),
            ("sold,town,area,garden\n2020-01-01,Wien,large,true\n", "large"),
            ("sold,town,area,garden\nnever,Wien,30,true\n", "'sold' should hold a date"),
            ("sold,town,area,garden\n2020-01-01,Wien,,true\n", "missing values in column 'area'"),
            ("sold,town,area,garden\n2020-01-01,Wien,inf,true\n", "not finite"),
            ("sold,town,area,garden,std\n2020-01-01,Wien,1,true,1\n", "a column 'std' already"),
        ],
        ids=["missing", "text", "no date", "missing value", "infinite", "taken"],
    )
    def test_tables_that_do_not_fit_the_model(self, content, message, folder, tmp_path):
        (tmp_path / "t.csv").write_text(content)
        out = tmp_path / "out.csv"
        arguments = folder / "houses.mf", tmp_path / "t.csv", "--std", "-o", out
        assert message in refuse_here("predict", *arguments)
        assert os.listdir(tmp_path) == ["t.csv"]

    def test_a_text_that_was_never_seen(self, folder, tmp_path):
        (tmp_path / "t.csv").write_text("sold,town,area,garden\n2020-01-01,Rom,100,true\n")
        done = succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv", "--only")
        assert 150 < float(done.stdout.splitlines()[1]) < 600

    def test_models_that_are_none(self, folder, tmp_path):
        assert "'model.mf'" in refuse_here("predict", "model.mf", folder / "more.csv", cwd=tmp_path)
        (tmp_path / "m.mf").write_bytes((folder / "houses.mf").read_bytes()[:-100])
        complaint = refuse_here("predict", tmp_path / "m.mf", folder / "more.csv")
        assert "no sound model file" in complaint

    def test_usage(self, folder):
        arguments = "predict", folder / "houses.mf", folder / "more.csv", "--quantiles"
        assert "between 0 and 1" in refuse_here(*arguments, "0.5,2", code=2)
        assert "between 0 and 1" in refuse_here(*arguments, "half", code=2)

    def test_an_output_that_cannot_be_written(self, folder, tmp_path):
        arguments = "predict", folder / "houses.mf", folder / "more.csv", "-o"
        assert "no folder" in refuse_here(*arguments, tmp_path / "no" / "out.csv")
        assert "unknown kind" in refuse_here(*arguments, tmp_path / "out.xlsx")

    def test_a_reader_that_leaves_is_no_fault(self, folder):
        process = subprocess.Popen(
            [*COMMAND, "predict", folder / "houses.mf", folder / "more.csv"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        process.stdout.close()
        with process.stderr as complaints:
            assert b"Traceback" not in complaints.read()
        process.wait()


class TestUpdate:
    def test_new_rows_are_learned_in_place(self, folder, tmp_path):
        model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
        found = json.loads(succeed_here("update", model, folder / "more.csv", "--json").stdout)
        assert found["rows learned"] == 100
        assert found["rows"] == 500
        assert TableForest.load(model).forest.n_samples_seen_ == 500
        assert os.listdir(tmp_path) == ["m.mf"]

    def test_a_fault_leaves_the_model_as_it_was(self, folder, tmp_path):
        model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
        (tmp_path / "t.csv").write_text("sold,town,area,garden,price\n2020-01-01,Wien,1,true,\n")
        before = Path(model).read_bytes()
        assert "missing values" in refuse_here("update", model, tmp_path / "t.csv")
        assert Path(model).read_bytes() == before

    @pytest.mark.parametrize("moment", [1.0, 2.0, 3.0])
    def test_an_interrupt_leaves_nothing_half_written(self, moment, folder, tmp_path):
        model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
        process = subprocess.Popen(
            [*COMMAND, "update", model, folder / "houses.csv", "--batch-rows", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        assert b"Traceback" not in complaint
        assert os.listdir(tmp_path) == ["m.mf"]
        assert TableForest.load(model).forest.n_samples_seen_ in (400, 800)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a disk needs root"
)
def test_a_full_disk(folder, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk])
    if mounted.returncode != 0:
        pytest.skip("this machine does not allow mounting a small disk")
    try:
        complaint = refuse("fit", folder / "houses.csv", *FIT, "-o", disk / "m.mf")
        assert "space" in complaint
        (disk / "filler").write_bytes(b"x" * 60_000)
        arguments = "predict", folder / "houses.mf", folder / "more.csv", "-o"
        for name in ("out.csv", "out.parquet", "out.feather"):
            assert "space" in refuse(*arguments, disk / name)
        assert os.listdir(disk) == ["filler"]
    finally:
        subprocess.run(["umount", disk], check=True)


class TestInfo:
    def test_what_is_inside(self, folder):
        text = succeed_here("info", folder / "houses.mf").stdout
        assert "target             price" in text
        assert "sold date, town text, area number, garden number" in text
        found = json.loads(succeed_here("info", folder / "houses.mf", "--json").stdout)
        assert found["rows seen"] == 400
        assert found["trees"] == 5
        assert found["ranges"]["area"] == [30.0, 199.0]
        assert sum(found["importances"].values()) == pytest.approx(1.0)

    def test_a_model_of_arrays(self, tmp_path):
        from mondrian_forest import MondrianForestRegressor

        X = np.random.default_rng(0).random((30, 2))
        MondrianForestRegressor(2, random_state=0).fit(X, X[:, 0]).save(tmp_path / "m.mf")
        assert "target" not in succeed_here("info", tmp_path / "m.mf").stdout
        (tmp_path / "t.csv").write_text("a,b\n1,2\n")
        complaint = refuse_here("predict", tmp_path / "m.mf", tmp_path / "t.csv")
        assert "does not say how to read tables" in complaint

    def test_no_model(self, tmp_path):
        assert "'m.mf'" in refuse_here("info", "m.mf", cwd=tmp_path)
        assert run_here("info").returncode == 2
