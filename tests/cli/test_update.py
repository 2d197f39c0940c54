import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from command import COMMAND, ENVIRONMENT, refuse_here, run_here, succeed_here
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


def held(model):
    """Return the numbers of the rows that a model file holds, and its forest."""
    forest = TableForest.load(model).forest
    return forest.row_numbers_.tolist(), forest


def test_rows_are_forgotten_by_number_and_range(small_model):
    found = json.loads(
        succeed_here("update", small_model, "--forget", "1, 5-7,40", "--json").stdout
    )
    assert (found["rows learned"], found["rows forgotten"], found["rows"]) == (0, 5, 35)
    numbers, forest = held(small_model)
    assert numbers == [n for n in range(40) if n not in (0, 4, 5, 6, 39)]
    assert forest.n_samples_seen_ == 40


def test_nothing_of_a_forgotten_row_is_in_the_file(write_table, small_fit, tmp_path):
    table = write_table(tmp_path / "strange.csv", cell="0.123456")
    model = tmp_path / "strange.mf"
    succeed_here("fit", table, *small_fit, "-o", model)
    secret = np.float32(0.123456)
    scaling = held(model)[1].feature_range_
    stored = np.float32((0.123456 - scaling[0][0]) / (scaling[1][0] - scaling[0][0])).tobytes()
    assert stored in model.read_bytes()
    succeed_here("update", model, "--forget", 20)
    after = model.read_bytes()
    assert stored not in after
    assert secret.tobytes() not in after
    assert np.float64(0.123456).tobytes() not in after


def test_rows_are_forgotten_before_others_are_learned(small_model, tmp_path):
    succeed_here("update", small_model, tmp_path / "t.csv", "--forget", "1-10")
    assert held(small_model)[0] == list(range(10, 80))


@pytest.mark.parametrize("rows", ["0", "41", "3-2", "1-41", "2,50"])
def test_rows_that_were_never_learned_are_refused(rows, small_model):
    before = small_model.read_bytes()
    message = refuse_here("update", small_model, "--forget", rows)
    assert "the model has learned rows 1 to 40" in message
    assert small_model.read_bytes() == before


@pytest.mark.parametrize("rows", ["", "x", "1-", "-3", "1.5", "1;2", "1--2"])
def test_what_is_no_row_number_is_refused(rows, small_model):
    message = refuse_here("update", small_model, f"--forget={rows}", code=2)
    assert "numbers and ranges such as '3,40-59'" in message


def test_a_model_cannot_forget_all_of_its_rows(small_model):
    assert "at least one row" in refuse_here("update", small_model, "--forget", "1-40")
    assert len(held(small_model)[0]) == 40


def test_a_window_is_kept_from_then_on_until_it_is_lifted(small_model, tmp_path):
    succeed_here("update", small_model, tmp_path / "t.csv", "--max-rows", 50)
    assert held(small_model)[0] == list(range(30, 80))
    succeed_here("update", small_model, tmp_path / "t.csv")
    assert held(small_model)[0] == list(range(70, 120))
    succeed_here("update", small_model, tmp_path / "t.csv", "--max-rows", 0)
    assert held(small_model)[0] == list(range(70, 160))


def test_a_random_sample_is_kept(small_model, tmp_path):
    succeed_here(
        "update", small_model, tmp_path / "t.csv", "--max-rows", 50, "--forgetting", "random"
    )
    numbers, forest = held(small_model)
    assert len(numbers) == 50
    assert numbers != list(range(30, 80))
    assert forest.forgetting == "random"


def test_the_latest_setting_is_kept_in_the_model(small_model):
    succeed_here("update", small_model, "--forgetting", "change")
    assert held(small_model)[1].forgetting == "change"


def test_an_unknown_way_to_forget_is_refused(small_model):
    message = refuse_here("update", small_model, "--forgetting", "newest", code=2)
    assert "oldest, random or change" in message


def test_an_update_of_nothing_is_refused(small_model):
    assert "nothing to do" in refuse_here("update", small_model, code=2)


def test_a_checkpoint_is_where_a_second_update_goes_on(small_model, tmp_path, write_table):
    whole = shutil.copy(small_model, tmp_path / "whole.mf")
    table = write_table(tmp_path / "new.csv", n_rows=30)
    lines = table.read_text().splitlines()
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*lines[:23], "0.5,,0.5", *lines[24:]]) + "\n")
    options = ("--batch-rows", 5, "--checkpoint-every", 10)
    done = run_here("update", small_model, broken, *options)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "Saved after row 20. To go on from there, update" in said
    assert said.count("with --skip-rows 20.") == 1
    assert len(held(small_model)[0]) == 60
    succeed_here("update", small_model, table, *options, "--skip-rows", 20)
    succeed_here("update", whole, table, *options)
    assert held(small_model)[0] == held(whole)[0] == list(range(70))
    X = np.random.default_rng(1).random((5, 2))
    assert np.array_equal(held(small_model)[1].predict(X), held(whole)[1].predict(X))


def test_a_table_that_is_skipped_as_a_whole_is_refused(small_model, tmp_path):
    before = small_model.read_bytes()
    message = refuse_here("update", small_model, tmp_path / "t.csv", "--skip-rows", 41)
    assert "has 40 rows" in message
    assert small_model.read_bytes() == before
