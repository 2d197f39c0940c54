"""What the text in a table stands for: never guessed silently, and always the same."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mondrian_forest.tables import TableEncoder, TableError, TableFile, TableForest
from mondrian_forest.tables.files import concatenated
from mondrian_forest.tables.learning import fit_batches

STRING_TYPES = [pa.string(), pa.large_string()]
if int(pa.__version__.split(".")[0]) >= 18:  # the first one that computes with views
    STRING_TYPES.append(pa.string_view())


def learn(values, **options):
    """Return the encoder and the features of a table with one column of text."""
    table = pa.table({"a": pa.array(values), "y": np.arange(len(values), dtype=float)})
    encoder, X, _ = TableEncoder.learn(table, "y", **options)
    return encoder, X


def numbers_but_one(n_rows=30, wrong="?", row=17):
    texts = [f"{k}.5" for k in range(n_rows)]
    texts[row - 1] = wrong
    return texts


def csv(path, texts, name="a"):
    path.write_text(f"{name},y\n" + "".join(f'"{t}",{k}\n' for k, t in enumerate(texts)))
    return path


class TestMixedColumns:
    def test_one_wrong_cell_is_named(self, tmp_path):
        path = csv(tmp_path / "t.csv", numbers_but_one())
        with pytest.raises(TableError, match="looks like numbers") as error:
            TableForest.fit(TableFile(path).read(), "y", n_estimators=1)
        complaint = str(error.value)
        assert f"'?' in row 17 of {str(path)!r}" in complaint
        assert "--missing '?'" in complaint
        assert "--text" in complaint

    @pytest.mark.parametrize(
        ("texts", "what"),
        [
            (numbers_but_one(), "numbers"),
            (["?"] * 20 + ["1.5", "2.5", "3.5"], "numbers"),  # more than half are missing
            (["1", "2", "none", "1", "2"], "numbers"),
            (["1,5", "2,5", "3,25"], "numbers"),
            (["1,234.5", "999"], "numbers"),
            (["12 %", "7 %"], "numbers"),
            (["$3", "$4.50"], "numbers"),
            (["0x10", "5"], "numbers"),
            ([" ", "5", "6"], "numbers"),
            (["2020-01-01", "2020-01-02", "never"], "dates"),
            (["2021-02-28", "2021-02-30"], "dates"),
            (["31.12.2020", "1.1.2021"], "dates"),
            (["12/31/2020", "01/01/2021"], "dates"),
            (["2020-01-01 10:00", "2020-01-01T10:00Z", "2020-01-01 11:00"], "dates"),
            (["12:30", "1:30 pm", "13:00"], "times"),
        ],
    )
    def test_what_is_nearly_numbers_or_dates_is_refused(self, texts, what):
        with pytest.raises(TableError, match=f"looks like {what}"):
            learn(texts)

    @pytest.mark.parametrize(
        "texts",
        [
            ["A1", "B2", "C3"],
            ["north", "south", "7"],
            ["1.2.3", "1.2.4"],
            ["a-1", "-", "b"],
            ["", "x", "y"],
            ["true", "false", "perhaps"],
        ],
    )
    def test_text_is_text(self, texts):
        assert learn(texts)[0].columns[0].kind == "text"

    def test_how_many_are_wrong(self):
        with pytest.raises(TableError, match="3 of 7 values are none, the first is '#' in row 2"):
            learn(["1", "#", "2", "3", "#", "5", "#"])

    def test_a_value_cannot_write_to_the_terminal_nor_fill_the_screen(self):
        with pytest.raises(TableError) as error:
            learn(["1", "2", "\x1b[31m" + "x" * 1000])
        assert "\\x1b[31m" in str(error.value)
        assert len(str(error.value)) < 400

    def test_the_target(self):
        table = pa.table({"a": [1, 2, 3], "y": ["1", "?", "3"]})
        with pytest.raises(TableError, match=r"'y' looks like numbers, but '\?' in row 2"):
            TableEncoder.learn(table, "y")
        with pytest.raises(TableError, match="1 missing values: leave these rows out"):
            TableEncoder.learn(table, "y", missing=["?"])

    def test_several_files(self, tmp_path):
        paths = [
            csv(tmp_path / "1.csv", ["1", "2", "3"]),
            csv(tmp_path / "2.csv", ["4", "?"]),
        ]
        table = concatenated([TableFile(path).read() for path in paths])
        with pytest.raises(TableError, match=r"'\?' in row 2 of '.*2.csv'"):
            TableForest.fit(table, "y")

    def test_of_some_of_the_rows_no_file_is_named(self, tmp_path):
        table = TableFile(csv(tmp_path / "t.csv", numbers_but_one())).read()
        with pytest.raises(TableError, match=r"'\?' in row 7 is none"):
            TableForest.fit(table.slice(10), "y")


class TestStreams:
    def batches(self, path, texts, n_rows=20):
        return TableFile(csv(path, texts)).batches(n_rows)

    @pytest.mark.parametrize("holdout", [0.0, 0.5])
    @pytest.mark.parametrize("row", [3, 55])
    def test_a_wrong_cell_is_named_wherever_it_is(self, row, holdout, tmp_path):
        batches = self.batches(tmp_path / "t.csv", numbers_but_one(60, "?", row))
        with pytest.raises(TableError, match=rf"'\?' in row {row} of"):
            fit_batches(batches, "y", holdout=holdout, n_estimators=1)

    def test_it_is_missing_if_asked(self, tmp_path):
        batches = self.batches(tmp_path / "t.csv", numbers_but_one(60, "?", 55))
        model = fit_batches(batches, "y", impute=True, missing=["?"], n_estimators=1).model
        assert model.forest.n_samples_seen_ == 60

    def test_text_that_turns_out_to_be_numbers(self, tmp_path):
        """A column that begins with marks of missing values, and nothing else."""
        batches = self.batches(tmp_path / "t.csv", ["?"] * 20 + [f"{k}.5" for k in range(40)])
        with pytest.raises(TableError, match=r"'a' was text .* looks like numbers now, as '0.5'"):
            fit_batches(batches, "y", n_estimators=1)
        batches = self.batches(tmp_path / "t.csv", ["?"] * 20 + [f"{k}.5" for k in range(40)])
        model = fit_batches(batches, "y", text=["a"], n_estimators=1).model
        assert model.forest.n_samples_seen_ == 60

    def test_an_empty_beginning(self, tmp_path):
        batches = self.batches(tmp_path / "t.csv", [""] * 20 + ["1"] * 20)
        with pytest.raises(TableError, match="'a' is empty"):
            fit_batches(batches, "y", impute=True, n_estimators=1)

    def test_a_later_file_without_the_columns(self, tmp_path):
        tables = [*self.batches(tmp_path / "t.csv", ["1", "2"]), pa.table({"b": [1], "c": [2]})]
        with pytest.raises(TableError, match="no column 'a'"):
            fit_batches(tables, "y", n_estimators=1)


class TestMissing:
    @pytest.mark.parametrize(
        ("values", "missing"),
        [
            (["1", "?", "5"], ["?"]),
            (["1", " ? ", "5"], ["?"]),
            (["1", "-999", "5"], ["-999"]),
            (["1", "-999.0", "5"], ["-999"]),
            ([1, -999, 5], ["-999"]),
            ([1.0, -999.0, 5.0], ["?", "-999"]),
        ],
    )
    def test_it_is_filled_at_the_fit_and_later(self, values, missing):
        with pytest.raises(TableError, match=r"missing values in column 'a' \(1\)"):
            learn(values, missing=missing)
        encoder, X = learn(values, missing=missing, impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 3, 5])
        again = TableEncoder.from_json(encoder.to_json())
        np.testing.assert_array_equal(again.features(pa.table({"a": values}))[:, 0], [1, 3, 5])

    def test_among_texts_it_is_a_text_of_its_own(self):
        encoder, _ = learn(["x", "?", "y"], missing=["?"], impute=True)
        assert set(encoder.columns[0].codes) == {"x", "y", "\0gap"}

    def test_models_of_before_know_no_marks(self):
        encoder, _ = learn(["1", "2"])
        text = encoder.to_json().replace('"missing": [], ', "").replace(', "zone": null', "")
        assert "zone" not in text
        assert TableEncoder.from_json(text).missing == []


class TestText:
    def test_leading_zeros_are_numbers_unless_told(self):
        encoder, X = learn(["01234", "98765"])
        assert encoder.columns[0].kind == "number"
        np.testing.assert_array_equal(X[:, 0], [1234, 98765])
        encoder, _ = learn(["01234", "98765"], text=["a"])
        assert set(encoder.columns[0].codes) == {"01234", "98765"}

    def test_whole_numbers_may_be_text(self):
        encoder, _ = learn([7, 8, 7], text=["a"])
        assert set(encoder.columns[0].codes) == {"7", "8"}
        np.testing.assert_array_equal(
            encoder.features(pa.table({"a": [8]})), encoder.features(pa.table({"a": ["8"]}))
        )
        for values in ([7.5, 8.0], [dt.date(2020, 1, 1)] * 2):
            with pytest.raises(TableError, match="cannot be text"):
                learn(values, text=["a"])

    def test_what_is_not_learned_from_cannot_be_text(self):
        for name in ("y", "b"):
            with pytest.raises(TableError, match=f"'{name}' cannot be text"):
                learn(["1", "2"], text=[name])

    def test_text_does_not_become_numbers_later(self):
        encoder, _ = learn(["x", "1"], text=["a"])
        with pytest.raises(TableError, match=r"was text .* holds double such as '1.5' now"):
            encoder.features(pa.table({"a": [1.5]}))

    def test_objects_of_pandas_that_are_digits(self):
        frame = pd.DataFrame({"a": pd.Series(["1", "2.5"], dtype=object), "y": [1.0, 2.0]})
        encoder, X, _ = TableEncoder.learn(pa.Table.from_pandas(frame), "y")
        assert encoder.columns[0].kind == "number"
        np.testing.assert_array_equal(X[:, 0], [1, 2.5])
        frame["a"] = frame["a"].astype("category")
        encoder, _, _ = TableEncoder.learn(pa.Table.from_pandas(frame), "y")
        assert encoder.columns[0].kind == "text"

    @pytest.mark.parametrize("type_", STRING_TYPES)
    def test_all_types_of_text(self, type_):
        encoder, X = learn(pa.array([" 1", "?"], type_), missing=["?"], impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 1])
        with pytest.raises(TableError, match="'!' in row 1"):
            encoder.features(pa.table({"a": pa.array(["!"], type_)}))


class TestTheSameAtTheFitAndLater:
    @pytest.mark.parametrize(
        ("texts", "form"),
        [
            (["1", " 2 ", "+3", "1e5"], "number"),
            (["9" * 30, "1"], "number"),
            (["true", "False", "1"], "truth"),
            (["12:30", "18:45:30.5", "00:00"], "time"),
            (["2020-01-01", "2020-01-02 10:30"], "date"),
            (["2020-01-01 00:00:00.123456789", "0001-01-01", "9999-12-31T23:59:59"], "date"),
            (["2020-01-01T00:00:00.1234567Z", "2020-01-01 00:00+02:00"], "zoned date"),
        ],
    )
    def test_all_forms(self, texts, form, tmp_path):
        encoder, X = learn(texts)
        assert encoder.columns[0].form == form
        np.testing.assert_array_equal(encoder.features(pa.table({"a": texts})), X)
        read = TableFile(csv(tmp_path / "t.csv", texts)).read()
        np.testing.assert_array_equal(encoder.features(read), X)

    def test_the_target_may_be_true_or_false(self):
        table = pa.table({"a": [1, 2], "y": ["true", "false"]})
        encoder, _, y = TableEncoder.learn(table, "y")
        again = TableEncoder.from_json(encoder.to_json())
        np.testing.assert_array_equal(again.labels(table), y)

    @pytest.mark.parametrize(
        ("texts", "wrong", "message"),
        [
            (["1", "2"], ["3", "?"], r"should hold a number .* '\?' in row 2"),
            (["12:30", "13:00"], ["13"], "should hold a time of day"),
            (["true", "false"], ["yes"], "should hold true or false"),
            (["2020-01-01"] * 2, ["2020-02-30"], "should hold a date .* '2020-02-30' in row 1"),
            (["2020-01-01"] * 2, ["2020-01-01T00:00Z"], "should hold a date"),
        ],
    )
    def test_a_wrong_cell_is_named(self, texts, wrong, message):
        with pytest.raises(TableError, match=message):
            learn(texts)[0].features(pa.table({"a": wrong}))

    def test_no_text_at_all(self):
        ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
        wrong = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xffa")])
        with pytest.raises(TableError, match="no text in UTF-8"):
            learn(wrong)


class TestDates:
    ZONED = pa.array([0, 3_600_000_000], pa.timestamp("us", tz="Asia/Tokyo"))

    def test_the_clock_is_that_of_the_fit(self):
        encoder, X = learn(self.ZONED)
        elsewhere = self.ZONED.cast(pa.timestamp("ns", tz="UTC"))
        np.testing.assert_array_equal(encoder.features(pa.table({"a": elsewhere})), X)
        texts = ["1970-01-01T00:00Z", "1970-01-01 10:00+09:00"]
        np.testing.assert_array_equal(encoder.features(pa.table({"a": texts})), X)

    def test_with_and_without_a_zone(self):
        naive = pa.array([0, 1], pa.timestamp("us"))
        for then, now in ((self.ZONED, naive), (naive, self.ZONED)):
            with pytest.raises(TableError, match=r"held dates with.* a time zone"):
                learn(then)[0].features(pa.table({"a": now}))

    @pytest.mark.parametrize(("zone", "hour"), [("+01:30", 13.5), ("-0200", 10), ("UTC", 12)])
    def test_the_clock_is_that_of_the_time_zone(self, zone, hour):
        noon = dt.datetime(2024, 5, 17, 12, tzinfo=dt.UTC)
        later = noon + dt.timedelta(days=3, hours=1)
        encoder, X = learn(pa.array([noon, later], pa.timestamp("ms", tz=zone)))
        hours = X[:, encoder.feature_names.index("a.hour")]
        np.testing.assert_allclose(hours, [hour, hour + 1])

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "+01:00", "No/Where"])
    @pytest.mark.parametrize("value", [1, -(10**14), 10**17, 2**63 - 1, -(2**63) + 1])
    def test_any_date_gives_features_or_one_sentence(self, unit, zone, value):
        dates = pa.array([value, 0], pa.timestamp(unit, tz=zone))
        number, _ = learn([1.0, 2.0])
        with pytest.raises(TableError, match="held numbers"):
            number.features(pa.table({"a": dates}))
        with pytest.raises(TableError, match="does not hold numbers"):
            TableEncoder.learn(pa.table({"a": [1, 2], "y": dates}), "y")
        complaint = ""
        try:
            X = learn(dates)[1]
        except TableError as error:
            complaint = str(error)
        if complaint:
            assert "too far away" in complaint or "'No/Where' is not known" in complaint
        else:
            assert np.isfinite(X).all()

    def test_a_long_duration(self):
        _, X = learn(pa.array([2**62, 5], pa.duration("s")))
        np.testing.assert_array_equal(X[:, 0], [2.0**62, 5.0])

    def test_a_time_of_day_is_no_number(self):
        encoder, _ = learn([1.0, 2.0])
        with pytest.raises(TableError, match="held numbers"):
            encoder.features(pa.table({"a": [dt.time(6, 30)]}))


class TestManyColumns:
    def test_the_names_are_not_listed_for_each_of_them(self):
        """Listing 10,000 names takes a millisecond; doing it for each column took minutes."""

        class Watched:
            n_listed = 0

            def __init__(self, table):
                self.table = table

            def __getattr__(self, name):
                Watched.n_listed += name == "column_names"
                return getattr(self.table, name)

        table = pa.table({**{f"c{k}": [1.0, 2.0] for k in range(300)}, "y": [1.0, 2.0]})
        encoder, _, _ = TableEncoder.learn(Watched(table), "y")
        encoder.features(Watched(table))
        encoder.labels(Watched(table))
        encoder.typed(Watched(table))
        assert Watched.n_listed < 30
