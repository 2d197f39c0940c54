"""Tables as people have them."""

import datetime as dt
import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import mondrian_forest.tables.files as files
from mondrian_forest import ModelFileError, MondrianForestRegressor
from mondrian_forest.tables import TableEncoder, TableError, TableFile, TableForest, TableWriter
from mondrian_forest.tables.files import find_files, sample_rows
from mondrian_forest.tables.learning import fit_batches


def encoded(values, y=None, **options):
    """Return the encoder and the features of a table with one column."""
    y = np.arange(len(values), dtype=float) if y is None else y
    table = pa.table({"a": values, "y": y})
    encoder, X, _ = TableEncoder.learn(table, "y", **options)
    return encoder, X


class TestEncoding:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([1, 2], [1, 2]),
            ([True, False], [1, 0]),
            (pa.array([dt.timedelta(seconds=90), dt.timedelta(days=1)]), [90, 86400]),
            (pa.array([dt.time(6, 30), dt.time(18)]), [6.5, 18]),
            (pa.array([1, 2], pa.decimal128(9, 2)), [1, 2]),
            (pa.array([3.5, 1.0]).dictionary_encode(), [3.5, 1.0]),
            (pa.array([1, 3_600_000_000_001], pa.time64("ns")), [0, 1]),
        ],
    )
    def test_numbers_of_all_kinds(self, values, expected):
        np.testing.assert_allclose(encoded(values)[1][:, 0], expected, atol=1e-9)

    def test_parts_of_dates(self):
        encoder, X = encoded([dt.datetime(2024, 3, 1, 18), dt.datetime(2023, 1, 2)])
        assert encoder.feature_names == ["a.time", "a.day_of_year", "a.day_of_week", "a.hour"]
        np.testing.assert_allclose(X[:, 1:], [[60, 4, 18], [1, 0, 0]])
        assert X[0, 0] - X[1, 0] == pytest.approx(424.75)
        encoder, X = encoded([dt.date(2024, 3, 1), dt.date(1969, 12, 31)])
        assert encoder.feature_names == ["a.time", "a.day_of_year", "a.day_of_week"]
        np.testing.assert_allclose(X[1], [-1, 364, 2])

    def test_the_clock_of_a_zone_counts(self):
        values = pa.array([0, 3_600_000_000], pa.timestamp("us", tz="Asia/Tokyo"))
        np.testing.assert_allclose(encoded(values)[1][:, 3], [9, 10])

    def test_dates_too_far_away_are_refused(self):
        with pytest.raises(TableError, match="too far away"):
            encoded(pa.array([10**14, 0], pa.timestamp("s")))

    def test_a_text_is_worth_the_labels_that_go_with_it(self):
        random = np.random.default_rng(0)
        town = random.choice(["a", "b", "c"], 300)
        y = np.select([town == "a", town == "b"], [0.0, 10.0], 20.0) + random.normal(size=300)
        encoder, X = encoded(town, y)
        codes = encoder.columns[0].codes
        assert codes["a"] < 1 < 9 < codes["b"] < 11 < 19 < codes["c"]
        assert abs(X[:, 0] - y).max() < 5
        new = encoder.features(pa.table({"a": ["c", "never seen"]}))
        np.testing.assert_allclose(new[:, 0], [codes["c"], y.mean()])

    def test_labels_cannot_be_read_from_texts_that_say_nothing(self):
        y = np.random.default_rng(0).normal(size=200)
        _, X = encoded([f"id {k}" for k in range(200)], y)
        assert abs(np.corrcoef(X[:, 0], y)[0, 1]) < 0.3

    def test_missing_values_are_refused_or_filled_for_good(self):
        table = pa.table({"a": [1.0, None, 5.0, float("nan")], "t": ["x", None, "z", "x"],
                          "y": [1.0, 2.0, 3.0, 4.0]})  # fmt: skip
        with pytest.raises(TableError, match=r"'a' \(2\), 't' \(1\)"):
            TableEncoder.learn(table, "y")
        encoder, X, _ = TableEncoder.learn(table, "y", impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 3, 5, 3])
        again = TableEncoder.from_json(encoder.to_json())
        gap = pa.table({"a": pa.array([None], pa.float64()), "t": pa.array([None], pa.string())})
        np.testing.assert_array_equal(again.features(gap)[0, 0], 3.0)
        category = pa.table({"a": pa.array(["x", None, "z"]).dictionary_encode(), "y": [1, 2, 3]})
        with pytest.raises(TableError, match="missing values in column 'a'"):
            TableEncoder.learn(category, "y")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([[1], [2]], "no number, date or text"),
            ([["a"], ["b"]], "no number, date or text"),
            ([{"s": "a"}, {"s": "b"}], "no number, date or text"),
            ([1.0, np.inf], "not finite"),
        ],
    )
    def test_columns_that_make_no_features(self, values, message):
        with pytest.raises(TableError, match=message):
            encoded(pa.array(values))

    def test_an_empty_column(self):
        with pytest.raises(TableError, match="'a' is empty"):
            encoded(pa.array([None, None], pa.float64()), impute=True)

    def test_other_types_than_at_the_fit(self):
        encoder, _ = encoded([1.0, 2.0])
        with pytest.raises(TableError, match="held numbers when the model was fitted"):
            encoder.features(pa.table({"a": [dt.date(2020, 1, 1)]}))
        with pytest.raises(TableError, match="should hold a number"):
            encoder.features(pa.table({"a": ["text"]}))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{}",
            "[1]",
            '{"target": "y", "columns": []}',
            '{"target": "y", "fills_gaps": 1, "columns": [{"name": 1}]}',
            "[" * 100_000 + "]" * 100_000,
            '{"target": "y", "fills_gaps": true, "columns": [{"name": "a", "kind": "number", '
            f'"form": "number", "fill": {10**400}}}]}}',
            '{"target": "y", "fills_gaps": true, "missing": "?", "columns": [{"name": "a", '
            '"kind": "number", "form": "number"}]}',
            '{"target": "y", "fills_gaps": true, "target_form": "word", "columns": [{"name": "a", '
            '"kind": "number", "form": "number"}]}',
        ],
    )
    def test_descriptions_that_make_no_sense(self, text):
        with pytest.raises(ValueError, match="makes no sense"):
            TableEncoder.from_json(text)


class TestFiles:
    def write(self, path, content):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return TableFile(path)

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
    )
    def test_first_lines(self, content, names, tmp_path):
        file = self.write(tmp_path / "t.csv", content)
        assert file.names == names
        assert len(file.read()) == 1

    def test_thousands_of_columns(self, tmp_path):
        names = [f"column_{k:06}" for k in range(6000)]
        line = ",".join(["1"] * 6000)
        assert self.write(tmp_path / "t.csv", ",".join(names) + f"\n{line}\n").names == names

    def test_text_that_is_not_in_utf_8(self, tmp_path):
        file = self.write(tmp_path / "t.csv", "a,y\nstraße,1\n".encode("latin-1"))
        with pytest.raises(TableError, match="no text in UTF-8"):
            file.read()
        with pytest.raises(TableError, match="no text in UTF-8"):
            list(file.batches())

    def test_batches_of_any_size_hold_all_rows(self, tmp_path):
        table = pa.table({"a": np.arange(1000)})
        pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=130)
        for size in (1, 77, 130, 500, 5000):
            batches = list(TableFile(tmp_path / "t.parquet").batches(size))
            assert max(map(len, batches)) <= size
            assert pa.concat_tables(batches)["a"].to_pylist() == list(range(1000))

    def test_a_long_file_is_not_kept_while_it_is_read(self, tmp_path):
        values = np.random.default_rng(0).random(1_000_000)  # 8 MB
        path = tmp_path / "t.parquet"
        pa.parquet.write_table(pa.table({"x": values}), path, row_group_size=50_000)
        before = pa.total_allocated_bytes()
        kept = [pa.total_allocated_bytes() - before for _ in TableFile(path).batches(10_000)]
        assert len(kept) == 100
        assert max(kept) < 3e6

    def test_a_stream_keeps_the_types_of_its_beginning(self, tmp_path, monkeypatch):
        """Whole numbers, then a fraction; texts, then what looks like numbers."""
        monkeypatch.setattr(files, "_CSV_STEP", 64)
        first = "a,t,d,y\n" + "".join(f"{k},x{k % 2},2020-01-0{k % 9 + 1},{k}\n" for k in range(60))
        (tmp_path / "1.csv").write_text(first)
        (tmp_path / "2.csv").write_text("y,a,t,d\n7,0.5,001,2020-05-05\n")
        opened = [TableFile(tmp_path / f"{k}.csv") for k in (1, 2)]
        batches = itertools.chain.from_iterable(file.batches(20) for file in opened)
        learned = fit_batches(batches, "y", n_estimators=2)
        assert learned.model.forest.n_samples_seen_ == 61
        assert [column.kind for column in learned.model.encoder.columns] == [
            "number",
            "text",
            "date",
        ]

    def test_a_name_that_looks_like_a_pattern(self, tmp_path):
        path = tmp_path / "t[1].csv"
        path.write_text("a,y\n1,2\n")
        assert find_files(str(path)) == [path]
        (tmp_path / "t1.csv").write_text("a,y\n1,2\n")
        assert find_files(str(tmp_path / "t[12].csv")) == [tmp_path / "t1.csv"]

    def test_what_is_no_file_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "t.csv")
        with pytest.raises(TableError, match="no regular file"):
            TableFile(tmp_path / "t.csv")

    def test_an_arrow_file_that_points_outside_of_itself(self, tmp_path):
        table = pa.table({"t": ["abc"] * 10})
        with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
            writer.write_table(table)
        content = (tmp_path / "t.arrow").read_bytes()
        offsets = np.arange(0, 33, 3, dtype=np.int32).tobytes()
        assert content.count(offsets) == 1
        wrong = np.full(11, 2**30, dtype=np.int32).tobytes()
        (tmp_path / "t.arrow").write_bytes(content.replace(offsets, wrong))
        with pytest.raises(TableError, match="no sound Arrow file"):
            TableFile(tmp_path / "t.arrow").read()

    def test_rows_drawn_from_batches(self):
        table = pa.table({"a": np.arange(1000)})
        batches = [table.slice(first, 90) for first in range(0, 1000, 90)]
        kept, n_rows = sample_rows(batches, 50)
        values = kept["a"].to_numpy()
        assert n_rows == 1000
        assert len(set(values.tolist())) == 50
        assert 300 < values.mean() < 700
        assert sample_rows([], 5)[1] == 0

    @pytest.mark.parametrize("kind", ["csv", "tsv", "TSV", "csv.gz", "parquet", "arrow"])
    def test_what_is_written_can_be_read(self, kind, tmp_path):
        path = tmp_path / f"t.{kind}"
        with TableWriter(path) as writer:
            for part in (["x", "y"], ["y", "z"]):
                text = pa.array(part).dictionary_encode()
                writer.write({"a": np.array([1.0, 2.0]), "t": text})
        table = TableFile(path).read()
        assert table["t"].to_pylist() == ["x", "y", "y", "z"]
        assert table["a"].cast(pa.float64()).to_pylist() == [1.0, 2.0, 1.0, 2.0]

    def test_an_error_while_writing_leaves_nothing(self, tmp_path):
        def write_and_fail():
            with TableWriter(tmp_path / "t.parquet") as writer:
                writer.write({"a": np.ones(3)})
                raise RuntimeError

        with pytest.raises(RuntimeError):
            write_and_fail()
        assert list(tmp_path.iterdir()) == []


class TestLearning:
    def table(self, n_rows=600):
        random = np.random.default_rng(0)
        a = random.random(n_rows)
        return pa.table({"a": a, "number": np.arange(n_rows), "y": np.sin(6 * a)})

    def test_held_out_rows_are_not_known_and_then_learned(self, monkeypatch):
        import mondrian_forest.tables.learning as learning

        monkeypatch.setattr(learning, "_MOST_HELD_OUT", 40)
        table = self.table()
        batches = [table.slice(first, 150) for first in range(0, 600, 150)]
        learned = fit_batches(batches, "y", holdout=0.3, n_estimators=3)
        assert 10 <= learned.n_held_out <= 40
        assert learned.model.forest.n_samples_seen_ == 600
        assert learned.scores["rmse"] > 1e-4

    def test_too_few_rows(self):
        with pytest.raises(TableError, match="too few"):
            fit_batches([self.table(1)], "y", holdout=0.9)
        with pytest.raises(TableError, match="no rows"):
            fit_batches([self.table(5).slice(0, 0)], "y")

    def test_a_model_file_holds_both(self, tmp_path):
        table = self.table()
        model = TableForest.fit(table, "y", columns=["a"], n_estimators=3)
        model.save(tmp_path / "m.mf")
        again = TableForest.load(tmp_path / "m.mf")
        one, other = (m.predict(table, std=True, quantiles=[0.5]) for m in (model, again))
        assert list(one) == ["prediction", "std", "q0.5"]
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
        again.partial_fit(table.slice(0, 10))
        assert again.forest.n_samples_seen_ == 610
        plain = MondrianForestRegressor.load(tmp_path / "m.mf")
        X = table["a"].to_numpy()[:, None]
        np.testing.assert_array_equal(plain.predict(X), one["prediction"])
        plain.save(tmp_path / "plain.mf")
        with pytest.raises(ModelFileError, match="how to read tables"):
            TableForest.load(tmp_path / "plain.mf")

    def test_names_of_quantiles_differ(self):
        model = TableForest.fit(self.table(50), "y", n_estimators=1)
        found = model.predict(self.table(5), quantiles=[0.9999999, 0.99999991])
        assert list(found) == ["prediction", "q0.9999999", "q0.99999991"]
