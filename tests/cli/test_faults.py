"""What must not happen: files lost, cells misread, terminals taken over, memory gone in silence."""

import errno
import json
import os
import re

import matplotlib.figure
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from command import refuse_here, run_here, succeed_here
from mondrian_forest._printable import as_label
from mondrian_forest.tables import TableForest

FIT = ("-t", "y", "--trees", 2, "--paper", "--jobs", 1)


def write(path, names="a,b,y", n_rows=40, cell=None):
    """Write a table of numbers; ``cell`` stands in for the first value of row 20."""
    random = np.random.default_rng(0)
    rows = [[f"{value:.4f}" for value in line] for line in random.random((n_rows, 3))]
    if cell is not None:
        rows[19][0] = cell
    path.write_text(names + "\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


@pytest.fixture
def model(tmp_path):
    succeed_here("fit", write(tmp_path / "t.csv"), *FIT, "-o", tmp_path / "m.mf")
    return tmp_path / "m.mf"


class TestInputsAreKept:
    def refused(self, path, *arguments):
        before = path.read_bytes()
        assert "is read, so nothing can be written to it" in refuse_here(*arguments)
        assert path.read_bytes() == before

    def test_fit(self, tmp_path):
        table = write(tmp_path / "t.csv")
        self.refused(table, "fit", table, *FIT, "-o", table)
        self.refused(table, "fit", tmp_path / "*.csv", *FIT, "-o", tmp_path / "." / "t.csv")

    @pytest.mark.parametrize("link", [os.symlink, os.link])
    def test_links(self, link, tmp_path):
        table = write(tmp_path / "t.csv")
        link(table, tmp_path / "other.csv")
        self.refused(table, "fit", table, *FIT, "-o", tmp_path / "other.csv")
        self.refused(table, "fit", tmp_path / "other.csv", *FIT, "-o", table)

    def test_predict_evaluate_and_update(self, model, tmp_path):
        table = tmp_path / "t.csv"
        self.refused(table, "predict", model, table, "-o", table)
        self.refused(model, "predict", model, table, "-o", model)
        self.refused(model, "evaluate", model, table, "--report", model)
        self.refused(table, "evaluate", model, table, "--report", table)
        self.refused(table, "update", model, table, "-o", table)
        succeed_here("update", model, table, "-o", model)
        assert TableForest.load(model).forest.n_samples_seen_ == 80


class TestMixedColumns:
    def test_fit_names_the_cell(self, tmp_path):
        table = write(tmp_path / "t.csv", cell="?")
        for options in ([], ["--stream", "--batch-rows", 7], ["--holdout", 0.5]):
            complaint = refuse_here("fit", table, *FIT, *options, "-o", tmp_path / "m.mf")
            assert f"'?' in row 20 of {str(table)!r} is none" in complaint
        assert os.listdir(tmp_path) == ["t.csv"]

    def test_missing_is_kept_in_the_model(self, tmp_path):
        table, model = write(tmp_path / "t.csv", cell="?"), tmp_path / "m.mf"
        fit = "fit", table, *FIT, "-o", model, "--missing", "?", "--missing", "none"
        assert "missing values in column 'a' (1)" in refuse_here(*fit)
        succeed_here(*fit, "--impute")
        found = json.loads(succeed_here("info", model, "--json").stdout)
        assert found["columns"] == {"a": "number", "b": "number"}
        assert found["missing"] == ["?", "none"]
        other = write(tmp_path / "other.csv", cell="none")
        out = succeed_here("predict", model, other).stdout.splitlines()
        assert len(out) == 41
        assert '"none"' in out[20]  # passed on as it stands
        succeed_here("evaluate", model, other, "--json")
        succeed_here("update", model, other)
        wrong = write(tmp_path / "wrong.csv", cell="-")
        for command in ("predict", "evaluate", "update"):
            assert "'-' in row 20 of" in refuse_here(command, model, wrong)

    def test_it_may_be_text(self, tmp_path):
        table, model = write(tmp_path / "t.csv", cell="?"), tmp_path / "m.mf"
        succeed_here("fit", table, *FIT, "--text", "a", "-o", model)
        found = json.loads(succeed_here("info", model, "--json").stdout)
        assert found["columns"] == {"a": "text", "b": "number"}
        assert "'c' cannot be text" in refuse_here("fit", table, *FIT, "--text", "c", "-o", model)

    def test_one_wrong_cell_does_not_ruin_the_model(self, tmp_path):
        a = np.random.default_rng(7).random(600)
        y = np.sin(6 * a)
        cells = [f"{value:.4f}" for value in a]
        cells[300] = "?"
        lines = [f"{cell},{label:.4f}\n" for cell, label in zip(cells, y, strict=True)]
        (tmp_path / "t.csv").write_text("a,y\n" + "".join(lines))
        done = succeed_here(
            "fit", tmp_path / "t.csv", *FIT, "--missing", "?", "--impute", "--holdout", 0.3,
            "--json", "-o", tmp_path / "m.mf",
        )  # fmt: skip
        assert json.loads(done.stdout)["rmse"] < 0.15

    def test_a_time_of_day_is_read_again(self, tmp_path):
        lines = [f"{k % 24:02}:30,{k % 24}\n" for k in range(48)]
        (tmp_path / "t.csv").write_text("at,y\n" + "".join(lines))
        succeed_here("fit", tmp_path / "t.csv", *FIT, "-o", tmp_path / "m.mf")
        assert len(succeed_here("predict", tmp_path / "m.mf", tmp_path / "t.csv").stdout) > 0


class TestTerminals:
    NAME = "\x1b[31mred\x07\u202e"

    def test_names_are_shown_with_escapes(self, tmp_path):
        table = write(tmp_path / "t.csv", f"{self.NAME},b,y")
        model = tmp_path / "\x1b[2Jm.mf"
        outputs = [
            succeed_here("fit", table, *FIT, "-o", model),
            succeed_here("info", model),
            succeed_here("evaluate", model, table, "--report", tmp_path / "\x1b[2J.html"),
            succeed_here("predict", model, table, "-o", tmp_path / "\x1b[2J.csv"),
            run_here("fit", table, "-t", self.NAME + "!", "-o", model),
            run_here("fit", table, "-t", "y", "--drop", self.NAME + "!", "-o", model),
            run_here("predict", model, write(tmp_path / "other.csv", "x,b,y")),
            run_here("info", tmp_path / "\x1b.mf"),
        ]
        for done in outputs:
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)
        assert "\\x1b[31mred\\x07\\u202e number" in outputs[1].stdout
        assert "\x1b" not in (tmp_path / "\x1b[2J.html").read_text()

    def test_a_line_of_the_file_in_a_message(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,y\n1,2\n\x07,2,3\n")
        complaint = refuse_here("fit", tmp_path / "t.csv", *FIT, "-o", tmp_path / "m.mf")
        assert "\x07" not in complaint
        assert "\\x07" in complaint

    def test_smileys_are_left_alone(self, tmp_path):
        table = write(tmp_path / "t.csv")
        done = succeed_here("fit", table, *FIT, "-o", tmp_path / ":smile:.mf")
        assert ":smile:.mf" in done.stderr


@pytest.mark.parametrize("name", ["$x$", "a$", r"\$x\$", "$$", r"a\$b$c$"])
def test_labels_are_no_formulas(name):
    figure = matplotlib.figure.Figure()
    FigureCanvasAgg(figure)
    literal = figure.text(0, 0, name, parse_math=False).get_window_extent()
    label = figure.text(0, 0, as_label(name)).get_window_extent()
    assert label.bounds == literal.bounds


@pytest.mark.parametrize("name", ["$x$", "$", r"$\frac{1}$", "a_$b^$", "\u65e5\u4ed8", "x" * 5000])
def test_any_name_can_be_in_a_report(name, tmp_path):
    table, model = write(tmp_path / "t.csv", f"{name},b,{name}y"), tmp_path / "m.mf"
    succeed_here("fit", table, "-t", f"{name}y", *FIT[2:], "-o", model)
    succeed_here("evaluate", model, table, "--report", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert text.count("data:image/png") == 4
    assert name[:20] in text


class TestPredict:
    def test_only_columns_that_are_written_are_taken(self, tmp_path):
        table, model = write(tmp_path / "t.csv", "std,q0.5,y"), tmp_path / "m.mf"
        succeed_here("fit", table, *FIT, "-o", model)
        assert succeed_here("predict", model, table).stdout.startswith('"std","q0.5","y","predic')
        assert "a column 'std' already" in refuse_here("predict", model, table, "--std")
        complaint = refuse_here("predict", model, table, "--quantiles", "0.5")
        assert "a column 'q0.5' already" in complaint

    def test_what_cannot_be_written_as_csv(self, model, tmp_path):
        intervals = pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval())
        for values in (pa.array([[1], [2], [3]]), intervals):
            table = pa.table({"a": [0.1, 0.2, 0.3], "b": [0.1, 0.2, 0.3], "list": values})
            path = tmp_path / "t.arrow"
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
            complaint = refuse_here("predict", model, path, "-o", tmp_path / "out.csv")
            assert "Not all columns can be written as CSV" in complaint
            succeed_here("predict", model, path, "-o", tmp_path / "out.arrow")


def test_dates_too_far_away(model, tmp_path):
    dates = pa.array([2**62, 0], pa.timestamp("us"))
    table = pa.table({"a": dates, "b": [1.0, 2.0], "y": [1, 2]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert "held numbers" in refuse_here("predict", model, tmp_path / "t.parquet")
    assert "does not hold numbers" in refuse_here(
        "fit", tmp_path / "t.parquet", "-t", "a", "-o", tmp_path / "n.mf"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory", "t.csv"),
        pa.ArrowMemoryError(),
    ],
    ids=["Python", "system", "Arrow"],
)
@pytest.mark.parametrize("place", ["read_csv", "open_csv"])
def test_out_of_memory(error, place, tmp_path, monkeypatch):
    def fail(*_arguments, **_options):
        raise error

    table = write(tmp_path / "t.csv")
    monkeypatch.setattr(pa.csv, place, fail)
    complaint = refuse_here("fit", table, *FIT, "-o", tmp_path / "m.mf")
    assert "not enough memory" in complaint


def test_one_update_at_a_time(model, tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="there are no locks of files")
    with open(model, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        complaint = refuse_here("update", model, tmp_path / "t.csv")
        assert "is being updated by another process" in complaint
        succeed_here("update", model, tmp_path / "t.csv", "-o", tmp_path / "other.mf")
    succeed_here("update", model, tmp_path / "t.csv")
    assert TableForest.load(model).forest.n_samples_seen_ == 80


def test_a_description_without_end(model, tmp_path):
    known = TableForest.load(model)
    depth = 100_000
    known.forest._save(tmp_path / "deep.mf", rows=True, table="[" * depth + "]" * depth)
    for command in (["info"], ["predict"], ["evaluate"], ["update"]):
        rest = [] if command == ["info"] else [tmp_path / "t.csv"]
        complaint = refuse_here(*command, tmp_path / "deep.mf", *rest)
        assert "no sound model file: its description of columns makes no sense" in complaint
