"""What all subcommands promise: inputs stay, terminals are safe, errors are one line."""

import errno
import os
import re
import shutil
import subprocess

import pyarrow as pa
import pyarrow.csv
import pytest

from command import refuse_here, run_here, succeed_here
from mondrian_forest.tables import TableForest


class TestInputsAreNotOverwritten:
    def refused(self, path, *arguments):
        before = path.read_bytes()
        assert "is an input file" in refuse_here(*arguments)
        assert path.read_bytes() == before

    def test_by_fit(self, write_table, small_fit, tmp_path):
        table = write_table(tmp_path / "t.csv")
        self.refused(table, "fit", table, *small_fit, "-o", table)
        self.refused(table, "fit", tmp_path / "*.csv", *small_fit, "-o", tmp_path / "." / "t.csv")

    @pytest.mark.parametrize("link", [os.symlink, os.link])
    def test_through_links(self, link, write_table, small_fit, tmp_path):
        table = write_table(tmp_path / "t.csv")
        link(table, tmp_path / "other.csv")
        self.refused(table, "fit", table, *small_fit, "-o", tmp_path / "other.csv")
        self.refused(table, "fit", tmp_path / "other.csv", *small_fit, "-o", table)

    def test_by_predict_evaluate_and_update(self, small_model, tmp_path):
        model = small_model
        table = tmp_path / "t.csv"
        self.refused(table, "predict", model, table, "-o", table)
        self.refused(model, "predict", model, table, "-o", model)
        self.refused(model, "evaluate", model, table, "--report", model)
        self.refused(table, "evaluate", model, table, "--report", table)
        self.refused(table, "update", model, table, "-o", table)
        succeed_here("update", model, table, "-o", model)
        assert TableForest.load(model).forest.n_samples_seen_ == 80


class TestTerminals:
    NAME = "\x1b[31mred\x07\u202e"

    def test_control_characters_in_names_are_escaped(self, write_table, small_fit, tmp_path):
        table = write_table(tmp_path / "t.csv", f"{self.NAME},b,y")
        model = tmp_path / "\x1b[2Jm.mf"
        outputs = [
            succeed_here("fit", table, *small_fit, "-o", model),
            succeed_here("info", model),
            succeed_here("evaluate", model, table, "--report", tmp_path / "\x1b[2J.html"),
            succeed_here("predict", model, table, "-o", tmp_path / "\x1b[2J.csv"),
            run_here("fit", table, "-t", self.NAME + "!", "-o", model),
            run_here("fit", table, "-t", "y", "--drop", self.NAME + "!", "-o", model),
            run_here("predict", model, write_table(tmp_path / "other.csv", "x,b,y")),
            run_here("info", tmp_path / "\x1b.mf"),
        ]
        for done in outputs:
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)
        assert "\\x1b[31mred\\x07\\u202e number" in outputs[1].stdout
        assert "\x1b" not in (tmp_path / "\x1b[2J.html").read_text()

    def test_control_characters_in_lines_of_a_file_are_escaped(self, small_fit, tmp_path):
        (tmp_path / "t.csv").write_text("a,y\n1,2\n\x07,2,3\n")
        message = refuse_here("fit", tmp_path / "t.csv", *small_fit, "-o", tmp_path / "m.mf")
        assert "\x07" not in message
        assert "\\x07" in message

    def test_names_of_emojis_are_not_replaced(self, write_table, small_fit, tmp_path):
        table = write_table(tmp_path / "t.csv")
        done = succeed_here("fit", table, *small_fit, "-o", tmp_path / ":smile:.mf")
        assert ":smile:.mf" in done.stderr


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
def test_too_little_memory_ends_with_advice(
    error, place, write_table, small_fit, tmp_path, monkeypatch
):
    def fail(*_arguments, **_options):
        raise error

    table = write_table(tmp_path / "t.csv")
    monkeypatch.setattr(pa.csv, place, fail)
    message = refuse_here("fit", table, *small_fit, "-o", tmp_path / "m.mf")
    assert "not enough memory" in message


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a disk needs root"
)
def test_a_full_disk_ends_with_a_message_and_leaves_no_file(folder, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk])
    if mounted.returncode != 0:
        pytest.skip("this machine does not allow mounting a small disk")
    try:
        fit = "fit", folder / "houses.csv", "-t", "price", "--trees", 3, "-o", disk / "m.mf"
        assert "space" in refuse_here(*fit)
        (disk / "filler").write_bytes(b"x" * 60_000)
        arguments = "predict", folder / "houses.mf", folder / "more.csv", "-o"
        for name in ("out.csv", "out.parquet", "out.feather"):
            assert "space" in refuse_here(*arguments, disk / name)
        assert os.listdir(disk) == ["filler"]
    finally:
        subprocess.run(["umount", disk], check=True)
