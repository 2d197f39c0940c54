import csv
import os
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from command import COMMAND, ENVIRONMENT, refuse_here, succeed_here
from mondrian_forest.tables import TableFile, TableForest


def test_columns_are_appended_and_others_copied(folder, tmp_path):
    out = tmp_path / "out.parquet"
    succeed_here(
        "predict", folder / "houses.mf", folder / "more.csv", "-o", out, "--std",
        "--quantiles", "0.05,0.5,0.95", "--novelty", "--batch-rows", 30,
    )  # fmt: skip
    found = pa.parquet.read_table(out)
    assert found.column_names == [
        "id", "sold", "town", "area", "garden", "price",
        "prediction", "std", "q0.05", "q0.5", "q0.95", "novelty",
    ]  # fmt: skip
    assert found["id"].to_pylist() == [str(10**16 + k) for k in range(100)]  # as it was written
    model = TableForest.load(folder / "houses.mf")
    more = pa.parquet.read_table(folder / "more.parquet")
    expected = model.predict(more, quantiles=[0.05])
    np.testing.assert_array_equal(found["prediction"], expected["prediction"])
    np.testing.assert_allclose(found["q0.05"], expected["q0.05"])
    novelty = model.forest.novelty(model.encoder.features(more))
    np.testing.assert_array_equal(found["novelty"], novelty)


def test_csv_goes_to_the_standard_output(folder):
    done = succeed_here("predict", folder / "houses.mf", folder / "more.parquet", "--only")
    lines = done.stdout.splitlines()
    assert lines[0] == '"prediction"'
    assert len(lines) == 101
    float(lines[1])


def test_other_columns_of_a_csv_file_are_copied_as_they_are_written(folder, tmp_path):
    line = '2020-01-01,Wien,30,true,00123,12345678901234567890,NA,"a, ""b"""'
    (tmp_path / "t.csv").write_text(f"sold,town,area,garden,zip,big,null,text\n{line}\n")
    done = succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv")
    found = list(csv.reader(done.stdout.splitlines()))
    assert found[1][:-1] == next(csv.reader([line]))


def test_the_target_need_not_be_known(folder, tmp_path):
    content = "sold,town,area,garden,price\n2020-01-01,Wien,30,true,to be seen\n"
    (tmp_path / "t.csv").write_text(content)
    assert "to be seen" in succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv").stdout


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_a_table_without_rows(kind, folder, tmp_path):
    (tmp_path / "t.csv").write_text("sold,town,area,garden\n")
    out = tmp_path / f"out.{kind}"
    succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv", "-o", out)
    assert TableFile(out).names == ["sold", "town", "area", "garden", "prediction"]
    succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv", "--novelty", "-o", out)
    assert TableFile(out).names[-2:] == ["prediction", "novelty"]


def test_the_novelty_of_rows_near_the_training_data_and_far_from_them(folder, tmp_path):
    header, first = (folder / "houses.csv").read_text().splitlines()[:2]
    far = "1,2020-01-01,Wien,1000000,true,0"
    (tmp_path / "t.csv").write_text("\n".join([header, first, far]))
    arguments = folder / "houses.mf", tmp_path / "t.csv", "--only", "--novelty"
    found = succeed_here("predict", *arguments)
    names, near, far = csv.reader(found.stdout.splitlines())
    assert names == ["prediction", "novelty"]
    assert float(near[1]) < 0.02
    assert float(far[1]) > 0.98


def test_novelty_needs_no_held_out_rows(small_model):
    table = small_model.parent / "t.csv"
    lines = succeed_here("predict", small_model, table, "--only", "--novelty").stdout.splitlines()
    assert len(lines) == 41
    assert all(0.0 < float(line.split(",")[1]) < 1.0 for line in lines[1:])


def test_columns_in_another_order(folder, tmp_path):
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
        ("sold,town,area,garden\nnever,Wien,30,true\n", "'sold' must hold a date"),
        ("sold,town,area,garden\n2020-01-01,Wien,,true\n", "missing values in column 'area'"),
        ("sold,town,area,garden\n2020-01-01,Wien,inf,true\n", "not finite"),
        ("sold,town,area,garden,std\n2020-01-01,Wien,1,true,1\n", "already has a column 'std'"),
    ],
    ids=["missing", "text", "no date", "missing value", "infinite", "taken"],
)
def test_a_table_that_does_not_fit_the_model_is_refused(content, message, folder, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    out = tmp_path / "out.csv"
    arguments = folder / "houses.mf", tmp_path / "t.csv", "--std", "-o", out
    assert message in refuse_here("predict", *arguments)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_text_that_the_training_set_does_not_have(folder, tmp_path):
    (tmp_path / "t.csv").write_text("sold,town,area,garden\n2020-01-01,Rom,100,true\n")
    done = succeed_here("predict", folder / "houses.mf", tmp_path / "t.csv", "--only")
    assert 150 < float(done.stdout.splitlines()[1]) < 600


def test_files_that_are_not_models_are_refused(folder, tmp_path):
    assert "'model.mf'" in refuse_here("predict", "model.mf", folder / "more.csv", cwd=tmp_path)
    (tmp_path / "m.mf").write_bytes((folder / "houses.mf").read_bytes()[:-100])
    message = refuse_here("predict", tmp_path / "m.mf", folder / "more.csv")
    assert "no sound model file" in message


def test_wrong_usage(folder):
    arguments = "predict", folder / "houses.mf", folder / "more.csv", "--quantiles"
    assert "between 0 and 1" in refuse_here(*arguments, "0.5,2", code=2)
    assert "between 0 and 1" in refuse_here(*arguments, "half", code=2)


def test_an_output_that_cannot_be_written_is_refused(folder, tmp_path):
    arguments = "predict", folder / "houses.mf", folder / "more.csv", "-o"
    assert "no folder" in refuse_here(*arguments, tmp_path / "no" / "out.csv")
    assert "unknown file type" in refuse_here(*arguments, tmp_path / "out.xlsx")


def test_a_reader_that_stops_reading_is_not_an_error(folder):
    process = subprocess.Popen(
        [*COMMAND, "predict", folder / "houses.mf", folder / "more.csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    process.stdout.close()
    with process.stderr as messages:
        assert b"Traceback" not in messages.read()
    process.wait()


def test_a_column_may_have_the_name_of_a_prediction_that_is_not_asked_for(
    write_table, small_fit, tmp_path
):
    table, model = write_table(tmp_path / "t.csv", "std,q0.5,y"), tmp_path / "m.mf"
    succeed_here("fit", table, *small_fit, "-o", model)
    assert succeed_here("predict", model, table).stdout.startswith('"std","q0.5","y","predic')
    assert "already has a column 'std'" in refuse_here("predict", model, table, "--std")
    message = refuse_here("predict", model, table, "--quantiles", "0.5")
    assert "already has a column 'q0.5'" in message
    table = write_table(tmp_path / "t.csv", "std,q0.5,novelty")
    message = refuse_here("predict", model, table, "--novelty")
    assert "already has a column 'novelty'" in message
    succeed_here("predict", model, table, "--novelty", "--only")


def test_columns_that_csv_cannot_hold_are_refused(small_model, tmp_path):
    intervals = pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval())
    for values in (pa.array([[1], [2], [3]]), intervals):
        table = pa.table({"a": [0.1, 0.2, 0.3], "b": [0.1, 0.2, 0.3], "list": values})
        path = tmp_path / "t.arrow"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        message = refuse_here("predict", small_model, path, "-o", tmp_path / "out.csv")
        assert "Some columns cannot be written as CSV" in message
        succeed_here("predict", small_model, path, "-o", tmp_path / "out.arrow")


def test_dates_too_far_away_are_refused_as_numbers(small_model, tmp_path):
    dates = pa.array([2**62, 0], pa.timestamp("us"))
    table = pa.table({"a": dates, "b": [1.0, 2.0], "y": [1, 2]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert "held numbers" in refuse_here("predict", small_model, tmp_path / "t.parquet")
    assert "does not hold numbers" in refuse_here(
        "fit", tmp_path / "t.parquet", "-t", "a", "-o", tmp_path / "n.mf"
    )
