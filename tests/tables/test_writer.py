import numpy as np
import pyarrow as pa
import pytest

from mondrian_forest.tables import TableError, TableFile, TableWriter


@pytest.mark.parametrize("ending", ["csv", "tsv", "TSV", "csv.gz", "parquet", "arrow"])
def test_a_written_table_can_be_read(ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    with TableWriter(path) as writer:
        for part in (["x", "y"], ["y", "z"]):
            text = pa.array(part).dictionary_encode()
            writer.write({"a": np.array([1.0, 2.0]), "t": text})
    table = TableFile(path).read()
    assert table["t"].to_pylist() == ["x", "y", "y", "z"]
    assert table["a"].cast(pa.float64()).to_pylist() == [1.0, 2.0, 1.0, 2.0]


def test_an_error_while_writing_leaves_no_file(tmp_path):
    def write_and_fail():
        with TableWriter(tmp_path / "t.parquet") as writer:
            writer.write({"a": np.ones(3)})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_columns_that_the_file_type_cannot_hold_are_refused(tmp_path):
    with (
        pytest.raises(TableError, match="Some columns cannot be written as CSV"),
        TableWriter(tmp_path / "t.csv") as writer,
    ):
        writer.write({"a": pa.array([[1], [2]])})
    assert list(tmp_path.iterdir()) == []
