import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mondrian_forest.tables import TableError, TableFile
from mondrian_forest.tables.files import find_files, sample_rows


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return TableFile(path)


class TestCSV:
    @pytest.mark.parametrize(
        ("content", "names"),
        [
            ("a,b\n1,2\n", ["a", "b"]),
            ("a;b\n1,5;2\n", ["a", "b"]),
            ("a\tb|c\n1\t2\n", ["a", "b|c"]),
            ('"a;b;c;d",y\n1,2\n', ["a;b;c;d", "y"]),
            ("\ufeffa,b\n1,2\n", ["a", "b"]),
            ("a,b\r1,2\r", ["a", "b"]),
            ("a,b\r\n1,2\r\n", ["a", "b"]),
        ],
        ids=["comma", "semicolon", "tab", "quotes", "byte order mark", "CR", "CR LF"],
    )
    def test_the_first_line_tells_the_delimiter_and_the_names(self, content, names, tmp_path):
        file = write(tmp_path / "t.csv", content)
        assert file.names == names
        assert len(file.read()) == 1

    def test_thousands_of_columns(self, tmp_path):
        names = [f"column_{k:06}" for k in range(6000)]
        line = ",".join(["1"] * 6000)
        assert write(tmp_path / "t.csv", ",".join(names) + f"\n{line}\n").names == names

    def test_text_that_is_not_utf_8_is_refused(self, tmp_path):
        file = write(tmp_path / "t.csv", "a,y\nstraße,1\n".encode("latin-1"))
        with pytest.raises(TableError, match="not UTF-8 text"):
            file.read()
        with pytest.raises(TableError, match="not UTF-8 text"):
            list(file.batches())

    def test_empty_cells_and_the_like_are_missing_values(self, tmp_path):
        table = write(tmp_path / "t.csv", 'a,b\n1,x\n,NA\nnull," "\n').read()
        assert table["a"].to_pylist() == ["1", None, None]
        assert table["b"].to_pylist() == ["x", None, " "]


class TestVerbatim:
    CONTENT = "a,b\n1,x\n,NA\nnull,007\n"

    def test_values_are_kept_as_they_are_written(self, tmp_path):
        write(tmp_path / "t.csv", self.CONTENT)
        table = TableFile(tmp_path / "t.csv", verbatim=True).read()
        assert table.to_pydict() == {"a": ["1", "", "null"], "b": ["x", "NA", "007"]}

    @pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 3)], ids=["all rows", "a slice"])
    def test_with_nulls_they_are_as_if_read_normally(self, rows, tmp_path):
        normal = write(tmp_path / "t.csv", self.CONTENT).read()
        file = TableFile(tmp_path / "t.csv", verbatim=True)
        n_rows = rows.stop - rows.start
        found = file.with_nulls(file.read().slice(rows.start, n_rows))
        assert found.to_pydict() == normal.slice(rows.start, n_rows).to_pydict()

    def test_text_in_a_parquet_file_is_never_a_missing_value(self, tmp_path):
        pa.parquet.write_table(pa.table({"a": ["NA", "", None]}), tmp_path / "t.parquet")
        file = TableFile(tmp_path / "t.parquet", verbatim=True)
        assert file.with_nulls(file.read())["a"].to_pylist() == ["NA", "", None]


class TestBatches:
    def test_batches_of_any_size_contain_all_rows(self, tmp_path):
        table = pa.table({"a": np.arange(1000)})
        pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=130)
        for size in (1, 77, 130, 500, 5000):
            batches = list(TableFile(tmp_path / "t.parquet").batches(size))
            assert max(map(len, batches)) <= size
            assert pa.concat_tables(batches)["a"].to_pylist() == list(range(1000))

    def test_batches_that_were_read_do_not_stay_in_memory(self, tmp_path):
        values = np.random.default_rng(0).random(1_000_000)  # 8 MB
        path = tmp_path / "t.parquet"
        pa.parquet.write_table(pa.table({"x": values}), path, row_group_size=50_000)
        before = pa.total_allocated_bytes()
        allocated = [pa.total_allocated_bytes() - before for _ in TableFile(path).batches(10_000)]
        assert len(allocated) == 100
        assert max(allocated) < 3e6

    def test_a_sample_is_drawn_from_all_batches(self):
        table = pa.table({"a": np.arange(1000)})
        batches = [table.slice(first, 90) for first in range(0, 1000, 90)]
        sample, numbers, n_rows = sample_rows(batches, 50)
        values = sample["a"].to_numpy()
        assert n_rows == 1000
        assert len(set(values.tolist())) == 50
        assert 300 < values.mean() < 700
        np.testing.assert_array_equal(numbers, values + 1)

    def test_a_sample_of_nothing_is_empty(self):
        assert sample_rows([], 5)[2] == 0


def test_a_file_whose_name_looks_like_a_pattern_is_found(tmp_path):
    path = tmp_path / "t[1].csv"
    path.write_text("a,y\n1,2\n")
    assert find_files(str(path)) == [path]
    (tmp_path / "t1.csv").write_text("a,y\n1,2\n")
    assert find_files(str(tmp_path / "t[12].csv")) == [tmp_path / "t1.csv"]


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(TableError, match="not a regular file"):
        TableFile(tmp_path / "t.csv")


def test_an_arrow_file_with_offsets_outside_of_its_buffers_is_refused(tmp_path):
    table = pa.table({"t": ["abc"] * 10})
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    content = (tmp_path / "t.arrow").read_bytes()
    offsets = np.arange(0, 33, 3, dtype=np.int32).tobytes()
    assert content.count(offsets) == 1
    wrong = np.full(11, 2**30, dtype=np.int32).tobytes()
    (tmp_path / "t.arrow").write_bytes(content.replace(offsets, wrong))
    with pytest.raises(TableError, match="not a valid Arrow file"):
        TableFile(tmp_path / "t.arrow").read()
