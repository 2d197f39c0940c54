"""What the text in a column stands for. It is never guessed silently, and always the same."""

import numpy as np
import pyarrow as pa
import pytest

from mondrian_forest.tables import TableEncoder, TableError, TableFile, TableForest
from mondrian_forest.tables.files import concatenated

STRING_TYPES = [pa.string(), pa.large_string()]
if int(pa.__version__.split(".")[0]) >= 18:  # older versions cannot compute with views
    STRING_TYPES.append(pa.string_view())


def learn(values, **options):
    """Return the encoder and the features of a table with one column of text, ``a``."""
    table = pa.table({"a": pa.array(values), "y": np.arange(len(values), dtype=float)})
    encoder, X, _ = TableEncoder.learn(table, "y", **options)
    return encoder, X


def numbers_but_one(n_rows=30, wrong="?", row=17):
    texts = [f"{k}.5" for k in range(n_rows)]
    texts[row - 1] = wrong
    return texts


def csv(path, texts):
    path.write_text("a,y\n" + "".join(f'"{t}",{k}\n' for k, t in enumerate(texts)))
    return path


class TestMixedColumns:
    def test_one_wrong_cell_is_named_with_advice(self, tmp_path):
        path = csv(tmp_path / "t.csv", numbers_but_one())
        with pytest.raises(TableError, match="looks like numbers") as error:
            TableForest.fit(TableFile(path).read(), "y", n_estimators=1)
        message = str(error.value)
        assert f"'?' in row 17 of {str(path)!r} is not a number" in message
        assert "--missing '?'" in message
        assert "--text" in message

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
    def test_a_column_of_almost_numbers_or_dates_is_refused(self, texts, what):
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
    def test_other_columns_are_text(self, texts):
        assert learn(texts)[0].columns[0].kind == "text"

    def test_wrong_cells_are_counted(self):
        message = r"3 of 7 values are not numbers \(the first is '#' in row 2\)"
        with pytest.raises(TableError, match=message):
            learn(["1", "#", "2", "3", "#", "5", "#"])

    def test_values_in_messages_are_escaped_and_short(self):
        with pytest.raises(TableError) as error:
            learn(["1", "2", "\x1b[31m" + "x" * 1000])
        assert "\\x1b[31m" in str(error.value)
        assert len(str(error.value)) < 400

    def test_the_row_is_counted_in_its_own_file(self, tmp_path):
        paths = [
            csv(tmp_path / "1.csv", ["1", "2", "3"]),
            csv(tmp_path / "2.csv", ["4", "?"]),
        ]
        table = concatenated([TableFile(path).read() for path in paths])
        with pytest.raises(TableError, match=r"'\?' in row 2 of '.*2.csv'"):
            TableForest.fit(table, "y")

    def test_no_file_is_named_for_a_part_of_its_rows(self, tmp_path):
        table = TableFile(csv(tmp_path / "t.csv", numbers_but_one())).read()
        with pytest.raises(TableError, match=r"'\?' in row 7 is not a number"):
            TableForest.fit(table.slice(10), "y")


class TestForms:
    @pytest.mark.parametrize(
        ("texts", "form"),
        [
            (["1", " 2 ", "+3", "1e5"], "number"),
            (["9" * 30, "1"], "number"),
            (["true", "False", "1"], "boolean"),
            (["12:30", "18:45:30.5", "00:00"], "time"),
            (["2020-01-01", "2020-01-02 10:30"], "date"),
            (["2020-01-01 00:00:00.123456789", "0001-01-01", "9999-12-31T23:59:59"], "date"),
            (["2020-01-01T00:00:00.1234567Z", "2020-01-01 00:00+02:00"], "zoned date"),
        ],
    )
    def test_text_means_the_same_at_the_fit_and_later(self, texts, form, tmp_path):
        encoder, X = learn(texts)
        assert encoder.columns[0].form == form
        np.testing.assert_array_equal(encoder.features(pa.table({"a": texts})), X)
        read = TableFile(csv(tmp_path / "t.csv", texts)).read()
        np.testing.assert_array_equal(encoder.features(read), X)

    @pytest.mark.parametrize(
        ("texts", "wrong", "message"),
        [
            (["1", "2"], ["3", "?"], r"must hold a number .* '\?' in row 2"),
            (["12:30", "13:00"], ["13"], "must hold a time of day"),
            (["true", "false"], ["yes"], "must hold true or false"),
            (["2020-01-01"] * 2, ["2020-02-30"], "must hold a date .* '2020-02-30' in row 1"),
            (["2020-01-01"] * 2, ["2020-01-01T00:00Z"], "must hold a date"),
        ],
    )
    def test_a_wrong_cell_in_a_later_table_is_named(self, texts, wrong, message):
        with pytest.raises(TableError, match=message):
            learn(texts)[0].features(pa.table({"a": wrong}))

    def test_leading_zeros_are_numbers_unless_the_column_is_declared_text(self):
        encoder, X = learn(["01234", "98765"])
        assert encoder.columns[0].kind == "number"
        np.testing.assert_array_equal(X[:, 0], [1234, 98765])
        encoder, _ = learn(["01234", "98765"], text=["a"])
        assert set(encoder.columns[0].codes) == {"01234", "98765"}

    @pytest.mark.parametrize("type_", STRING_TYPES, ids=str)
    def test_all_arrow_types_of_text_are_read(self, type_):
        encoder, X = learn(pa.array([" 1", "?"], type_), missing=["?"], impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 1])
        with pytest.raises(TableError, match="'!' in row 1"):
            encoder.features(pa.table({"a": pa.array(["!"], type_)}))

    def test_text_that_is_not_utf_8_is_refused(self):
        ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
        wrong = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xffa")])
        with pytest.raises(TableError, match="not UTF-8 text"):
            learn(wrong)
