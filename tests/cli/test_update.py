import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command import COMMAND, ENVIRONMENT, refuse_here, succeed_here
from mondrian_forest.tables import TableForest


def test_new_rows_are_learned_in_place(folder, tmp_path):
    model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
    found = json.loads(succeed_here("update", model, folder / "more.csv", "--json").stdout)
    assert found["rows learned"] == 100
    assert found["rows"] == 500
    assert TableForest.load(model).forest.n_samples_seen_ == 500
    assert os.listdir(tmp_path) == ["m.mf"]


def test_an_error_leaves_the_model_as_it_was(folder, tmp_path):
    model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
    (tmp_path / "t.csv").write_text("sold,town,area,garden,price\n2020-01-01,Wien,1,true,\n")
    before = Path(model).read_bytes()
    assert "missing values" in refuse_here("update", model, tmp_path / "t.csv")
    assert Path(model).read_bytes() == before


@pytest.mark.parametrize("moment", [1.0, 2.0, 3.0])
def test_an_interrupt_leaves_nothing_half_written(moment, folder, tmp_path):
    model = shutil.copy(folder / "houses.mf", tmp_path / "m.mf")
    process = subprocess.Popen(
        [*COMMAND, "update", model, folder / "houses.csv", "--batch-rows", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert b"Traceback" not in message
    assert os.listdir(tmp_path) == ["m.mf"]
    assert TableForest.load(model).forest.n_samples_seen_ in (400, 800)


def test_two_updates_of_a_model_at_the_same_time_are_refused(small_model, tmp_path):
    fcntl = pytest.importorskip("fcntl", reason="this system has no file locks")
    with open(small_model, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        message = refuse_here("update", small_model, tmp_path / "t.csv")
        assert "is being updated by another process" in message
        succeed_here("update", small_model, tmp_path / "t.csv", "-o", tmp_path / "other.mf")
    succeed_here("update", small_model, tmp_path / "t.csv")
    assert TableForest.load(small_model).forest.n_samples_seen_ == 80
