"""How columns become features and labels, at the fit and later."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mondrian_forest.tables import TableEncoder, TableError


def learn(values, y=None, **options):
    """Return the encoder and the features of a table with one column, ``a``."""
    y = np.arange(len(values), dtype=float) if y is None else y
    table = pa.table({"a": values, "y": y})
    encoder, X, _ = TableEncoder.learn(table, "y", **options)
    return encoder, X


class TestNumbers:
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
            (pa.array([2**62, 5], pa.duration("s")), [2.0**62, 5.0]),
        ],
        ids=["integers", "booleans", "durations", "times", "decimals", "categories",
             "nanoseconds", "long duration"],
    )  # fmt: skip
    def test_types_that_become_one_feature(self, values, expected):
        np.testing.assert_allclose(learn(values)[1][:, 0], expected, atol=1e-9)

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([[1], [2]], "not a number, date or text"),
            ([["a"], ["b"]], "not a number, date or text"),
            ([{"s": "a"}, {"s": "b"}], "not a number, date or text"),
            ([1.0, np.inf], "not finite"),
        ],
    )
    def test_columns_that_cannot_become_features_are_refused(self, values, message):
        with pytest.raises(TableError, match=message):
            learn(pa.array(values))

    def test_an_empty_column_is_refused(self):
        with pytest.raises(TableError, match="'a' is empty"):
            learn(pa.array([None, None], pa.float64()), impute=True)

    def test_a_column_must_keep_its_type(self):
        encoder, _ = learn([1.0, 2.0])
        for value in (dt.date(2020, 1, 1), dt.time(6, 30)):
            with pytest.raises(TableError, match="held numbers when the model was fitted"):
                encoder.features(pa.table({"a": [value]}))
        with pytest.raises(TableError, match="must hold a number"):
            encoder.features(pa.table({"a": ["text"]}))


class TestDates:
    ZONED = pa.array([0, 3_600_000_000], pa.timestamp("us", tz="Asia/Tokyo"))

    def test_a_date_becomes_its_parts(self):
        encoder, X = learn([dt.datetime(2024, 3, 1, 18), dt.datetime(2023, 1, 2)])
        assert encoder.feature_names == ["a.time", "a.day_of_year", "a.day_of_week", "a.hour"]
        np.testing.assert_allclose(X[:, 1:], [[60, 4, 18], [1, 0, 0]])
        assert X[0, 0] - X[1, 0] == pytest.approx(424.75)

    def test_dates_without_a_time_of_day_have_no_hour(self):
        encoder, X = learn([dt.date(2024, 3, 1), dt.date(1969, 12, 31)])
        assert encoder.feature_names == ["a.time", "a.day_of_year", "a.day_of_week"]
        np.testing.assert_allclose(X[1], [-1, 364, 2])

    def test_parts_are_told_by_the_clock_of_the_time_zone(self):
        np.testing.assert_allclose(learn(self.ZONED)[1][:, 3], [9, 10])

    @pytest.mark.parametrize(("zone", "hour"), [("+01:30", 13.5), ("-0200", 10), ("UTC", 12)])
    def test_the_time_zone_may_be_a_fixed_offset(self, zone, hour):
        noon = dt.datetime(2024, 5, 17, 12, tzinfo=dt.UTC)
        later = noon + dt.timedelta(days=3, hours=1)
        encoder, X = learn(pa.array([noon, later], pa.timestamp("ms", tz=zone)))
        hours = X[:, encoder.feature_names.index("a.hour")]
        np.testing.assert_allclose(hours, [hour, hour + 1])

    def test_the_clock_stays_that_of_the_fit(self):
        encoder, X = learn(self.ZONED)
        elsewhere = self.ZONED.cast(pa.timestamp("ns", tz="UTC"))
        np.testing.assert_array_equal(encoder.features(pa.table({"a": elsewhere})), X)
        texts = ["1970-01-01T00:00Z", "1970-01-01 10:00+09:00"]
        np.testing.assert_array_equal(encoder.features(pa.table({"a": texts})), X)

    def test_dates_with_and_without_a_time_zone_are_not_mixed(self):
        naive = pa.array([0, 1], pa.timestamp("us"))
        for then, now in ((self.ZONED, naive), (naive, self.ZONED)):
            with pytest.raises(TableError, match=r"held dates with.* a time zone"):
                learn(then)[0].features(pa.table({"a": now}))

    def test_a_date_too_far_away_is_refused(self):
        with pytest.raises(TableError, match="too far away"):
            learn(pa.array([10**14, 0], pa.timestamp("s")))

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "+01:00", "No/Where"])
    @pytest.mark.parametrize("value", [1, -(10**14), 10**17, 2**63 - 1, -(2**63) + 1])
    def test_any_date_gives_finite_features_or_a_message(self, unit, zone, value):
        dates = pa.array([value, 0], pa.timestamp(unit, tz=zone))
        number, _ = learn([1.0, 2.0])
        with pytest.raises(TableError, match="held numbers"):
            number.features(pa.table({"a": dates}))
        with pytest.raises(TableError, match="does not hold numbers"):
            TableEncoder.learn(pa.table({"a": [1, 2], "y": dates}), "y")
        message = ""
        try:
            X = learn(dates)[1]
        except TableError as error:
            message = str(error)
        if message:
            assert "too far away" in message or "'No/Where' is not known" in message
        else:
            assert np.isfinite(X).all()


class TestTexts:
    def test_the_code_of_a_text_is_the_mean_label_of_its_rows(self):
        random = np.random.default_rng(0)
        town = random.choice(["a", "b", "c"], 300)
        y = np.select([town == "a", town == "b"], [0.0, 10.0], 20.0) + random.normal(size=300)
        encoder, X = learn(town, y)
        codes = encoder.columns[0].codes
        assert codes["a"] < 1 < 9 < codes["b"] < 11 < 19 < codes["c"]
        assert abs(X[:, 0] - y).max() < 5
        new = encoder.features(pa.table({"a": ["c", "never seen"]}))
        np.testing.assert_allclose(new[:, 0], [codes["c"], y.mean()])

    def test_labels_cannot_be_read_from_the_codes_of_unique_texts(self):
        y = np.random.default_rng(0).normal(size=200)
        _, X = learn([f"id {k}" for k in range(200)], y)
        assert abs(np.corrcoef(X[:, 0], y)[0, 1]) < 0.3

    def test_integers_may_be_declared_text(self):
        encoder, _ = learn([7, 8, 7], text=["a"])
        assert set(encoder.columns[0].codes) == {"7", "8"}
        np.testing.assert_array_equal(
            encoder.features(pa.table({"a": [8]})), encoder.features(pa.table({"a": ["8"]}))
        )

    def test_other_types_cannot_be_declared_text(self):
        for values in ([7.5, 8.0], [dt.date(2020, 1, 1)] * 2):
            with pytest.raises(TableError, match="cannot be text"):
                learn(values, text=["a"])

    def test_a_column_that_is_not_learned_from_cannot_be_declared_text(self):
        for name in ("y", "b"):
            with pytest.raises(TableError, match=f"'{name}' cannot be text"):
                learn(["1", "2"], text=[name])

    def test_text_cannot_become_numbers_later(self):
        encoder, _ = learn(["x", "1"], text=["a"])
        with pytest.raises(TableError, match=r"was text .* holds double such as '1.5' now"):
            encoder.features(pa.table({"a": [1.5]}))

    def test_digits_in_pandas_objects_are_numbers_and_in_categories_text(self):
        frame = pd.DataFrame({"a": pd.Series(["1", "2.5"], dtype=object), "y": [1.0, 2.0]})
        encoder, X, _ = TableEncoder.learn(pa.Table.from_pandas(frame), "y")
        assert encoder.columns[0].kind == "number"
        np.testing.assert_array_equal(X[:, 0], [1, 2.5])
        frame["a"] = frame["a"].astype("category")
        encoder, _, _ = TableEncoder.learn(pa.Table.from_pandas(frame), "y")
        assert encoder.columns[0].kind == "text"


class TestMissingValues:
    TABLE = pa.table(
        {
            "a": [1.0, None, 5.0, float("nan")],
            "t": ["x", None, "z", "x"],
            "y": [1.0, 2.0, 3.0, 4.0],
        }
    )

    def test_they_are_refused_by_default(self):
        with pytest.raises(TableError, match=r"'a' \(2\), 't' \(1\)"):
            TableEncoder.learn(self.TABLE, "y")
        category = pa.table({"a": pa.array(["x", None, "z"]).dictionary_encode(), "y": [1, 2, 3]})
        with pytest.raises(TableError, match="missing values in column 'a'"):
            TableEncoder.learn(category, "y")

    def test_they_are_filled_with_the_median_of_the_training_set_also_later(self):
        encoder, X, _ = TableEncoder.learn(self.TABLE, "y", impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 3, 5, 3])
        again = TableEncoder.from_json(encoder.to_json())
        new = pa.table({"a": pa.array([None], pa.float64()), "t": pa.array([None], pa.string())})
        np.testing.assert_array_equal(again.features(new)[0, 0], 3.0)

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
    def test_marks_are_missing_values_at_the_fit_and_later(self, values, missing):
        with pytest.raises(TableError, match=r"missing values in column 'a' \(1\)"):
            learn(values, missing=missing)
        encoder, X = learn(values, missing=missing, impute=True)
        np.testing.assert_array_equal(X[:, 0], [1, 3, 5])
        again = TableEncoder.from_json(encoder.to_json())
        np.testing.assert_array_equal(again.features(pa.table({"a": values}))[:, 0], [1, 3, 5])

    def test_a_missing_text_is_a_text_of_its_own(self):
        y = np.repeat([0.0, 10.0, 20.0], 20)
        encoder, _ = learn(["x"] * 20 + ["?"] * 20 + ["y"] * 20, y, missing=["?"], impute=True)
        codes = encoder.features(pa.table({"a": ["x", "?", None, "y", "never seen"]}))[:, 0]
        np.testing.assert_allclose(codes, [0, 10, 10, 20, 10], atol=0.5)
        y = np.repeat([0.0, 10.0, 50.0], 20)
        encoder, _ = learn(["x"] * 20 + ["?"] * 20 + ["y"] * 20, y, missing=["?"], impute=True)
        codes = encoder.features(pa.table({"a": [None, "never seen"]}))[:, 0]
        np.testing.assert_allclose(codes, [10, 20], atol=0.5)


class TestTheTarget:
    def test_its_wrong_cells_are_named(self):
        table = pa.table({"a": [1, 2, 3], "y": ["1", "?", "3"]})
        with pytest.raises(TableError, match=r"'y' looks like numbers, but '\?' in row 2"):
            TableEncoder.learn(table, "y")

    def test_it_must_not_have_missing_values(self):
        table = pa.table({"a": [1, 2, 3], "y": ["1", "?", "3"]})
        with pytest.raises(TableError, match="1 missing values: remove these rows"):
            TableEncoder.learn(table, "y", missing=["?"])

    def test_it_may_be_true_or_false(self):
        table = pa.table({"a": [1, 2], "y": ["true", "false"]})
        encoder, _, y = TableEncoder.learn(table, "y")
        again = TableEncoder.from_json(encoder.to_json())
        np.testing.assert_array_equal(again.labels(table), y)


NUMBER = '{"name": "a", "kind": "number", "form": "number"}'


class TestDescriptions:
    def description(self, **changes):
        fields = {
            "target": '"y"',
            "target_form": '"number"',
            "impute": "true",
            "missing": "[]",
            "columns": f"[{NUMBER}]",
        } | changes
        return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"

    def test_a_valid_one(self):
        encoder = TableEncoder.from_json(self.description())
        assert encoder.target == "y"
        assert encoder.feature_names == ["a"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"columns": "[]"},
            {"columns": '[{"name": 1}]'},
            {"columns": '[{"name": "a", "kind": "number", "form": "number", "colour": 1}]'},
            {"columns": f"[{NUMBER[:-1]}, \"fill\": {10**400}}}]"},
            {"target": "1"},
            {"target_form": '"word"'},
            {"impute": "1"},
            {"missing": '"?"'},
        ],
    )  # fmt: skip
    def test_one_with_a_wrong_field_is_refused(self, changes):
        with pytest.raises(ValueError, match="makes no sense"):
            TableEncoder.from_json(self.description(**changes))

    @pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000 + "]" * 100_000])
    def test_anything_else_is_refused(self, text):
        with pytest.raises(ValueError, match="makes no sense"):
            TableEncoder.from_json(text)


def test_column_names_are_not_listed_once_for_each_column():
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
