"""Fits in batches, and the evaluation on held-out rows."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from mondrian_forest.metrics import rmse
from mondrian_forest.tables import TableError, TableFile, TableForest, files, learning
from mondrian_forest.tables.learning import fit_batches


def table(n_rows=600):
    random = np.random.default_rng(0)
    a = random.random(n_rows)
    return pa.table({"a": a, "number": np.arange(n_rows), "y": np.sin(6 * a)})


def batches_of(path, texts, n_rows=20):
    """Write texts to a CSV file, and return its batches."""
    path.write_text("a,y\n" + "".join(f'"{t}",{k}\n' for k, t in enumerate(texts)))
    return TableFile(path).batches(n_rows)


class TestHeldOutRows:
    def test_there_are_at_most_so_many_and_all_are_learned_in_the_end(self, monkeypatch):
        monkeypatch.setattr(learning, "_MOST_HELD_OUT", 40)
        batches = [table().slice(first, 150) for first in range(0, 600, 150)]
        learned = fit_batches(batches, "y", holdout=0.3, n_estimators=3)
        assert 10 <= learned.n_held_out <= 40
        assert learned.model.forest.n_samples_seen_ == 600

    def test_they_are_scored_before_they_are_learned(self):
        """Scores on rows that the model knows are better."""
        learned = fit_batches([table(200)], "y", holdout=0.9, n_estimators=3, min_samples_split=2)
        known = learned.model.predict_distribution(table(200))
        assert rmse(table(200)["y"].to_numpy(), known) < 0.5 * learned.scores["rmse"]

    def test_without_a_holdout_there_are_no_scores(self):
        learned = fit_batches([table(50)], "y", n_estimators=1)
        assert learned.scores is None
        assert learned.n_held_out == 0

    def test_too_few_rows_are_refused(self):
        with pytest.raises(TableError, match="too few"):
            fit_batches([table(1)], "y", holdout=0.9)
        with pytest.raises(TableError, match="no rows"):
            fit_batches([table(5).slice(0, 0)], "y")


class TestStreams:
    def test_the_model_is_that_of_a_fit_and_of_updates(self):
        batches = [table().slice(first, 200) for first in range(0, 600, 200)]
        learned = fit_batches(batches, "y", n_estimators=2)
        model = TableForest.fit(batches[0], "y", n_estimators=2)
        for batch in batches[1:]:
            model.partial_fit(batch)
        np.testing.assert_array_equal(
            learned.model.predict(table())["prediction"], model.predict(table())["prediction"]
        )

    def test_columns_keep_the_types_of_the_first_batch(self, tmp_path, monkeypatch):
        """Integers, then a fraction; texts, then what looks like numbers."""
        monkeypatch.setattr(files, "_CSV_STEP", 64)
        first = "a,t,d,y\n" + "".join(f"{k},x{k % 2},2020-01-0{k % 9 + 1},{k}\n" for k in range(60))
        (tmp_path / "1.csv").write_text(first)
        (tmp_path / "2.csv").write_text("y,a,t,d\n7,0.5,001,2020-05-05\n")
        opened = [TableFile(tmp_path / f"{k}.csv") for k in (1, 2)]
        batches = itertools.chain.from_iterable(file.batches(20) for file in opened)
        learned = fit_batches(batches, "y", n_estimators=2)
        assert learned.model.forest.n_samples_seen_ == 61
        kinds = [column.kind for column in learned.model.encoder.columns]
        assert kinds == ["number", "text", "date"]

    @pytest.mark.parametrize("holdout", [0.0, 0.5])
    @pytest.mark.parametrize("row", [3, 55])
    def test_a_wrong_cell_is_named_in_any_batch(self, row, holdout, tmp_path):
        texts = [f"{k}.5" for k in range(60)]
        texts[row - 1] = "?"
        batches = batches_of(tmp_path / "t.csv", texts)
        with pytest.raises(TableError, match=rf"'\?' in row {row} of"):
            fit_batches(batches, "y", holdout=holdout, n_estimators=1)

    def test_a_mark_of_missing_values_is_known_in_any_batch(self, tmp_path):
        texts = [f"{k}.5" for k in range(60)]
        texts[54] = "?"
        batches = batches_of(tmp_path / "t.csv", texts)
        model = fit_batches(batches, "y", impute=True, missing=["?"], n_estimators=1).model
        assert model.forest.n_samples_seen_ == 60

    def test_a_column_that_begins_with_unknown_marks_of_missing_values(self, tmp_path):
        texts = ["?"] * 20 + [f"{k}.5" for k in range(40)]
        message = r"'a' was text .* looks like numbers now, such as '0.5'"
        with pytest.raises(TableError, match=message):
            fit_batches(batches_of(tmp_path / "t.csv", texts), "y", n_estimators=1)
        batches = batches_of(tmp_path / "t.csv", texts)
        model = fit_batches(batches, "y", text=["a"], n_estimators=1).model
        assert model.forest.n_samples_seen_ == 60

    def test_a_column_that_is_empty_in_the_first_batch_is_refused(self, tmp_path):
        batches = batches_of(tmp_path / "t.csv", [""] * 20 + ["1"] * 20)
        with pytest.raises(TableError, match="'a' is empty"):
            fit_batches(batches, "y", impute=True, n_estimators=1)

    def test_a_later_table_without_the_columns_is_refused(self, tmp_path):
        tables = [*batches_of(tmp_path / "t.csv", ["1", "2"]), pa.table({"b": [1], "c": [2]})]
        with pytest.raises(TableError, match="no column 'a'"):
            fit_batches(tables, "y", n_estimators=1)
