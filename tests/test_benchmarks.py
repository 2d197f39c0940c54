"""The benchmarks run; their times are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_speed_and_growth_run_and_write_their_tables(tmp_path):
    done = run("speed", "growth", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    tables = json.loads((tmp_path / "results.json").read_text())["tables"]
    assert [table["title"] for table in tables] == [
        "Fit 2,000 rows of 8 uniform features",
        "Predict 500 rows with these forests",
        "Predict one row, after 2,000 rows",
        "One thread against two",
        "Growth of a fit",
        "Sample a tree on 2,000 rows, for each row and level",
    ]
    assert (tmp_path / "results.md").read_text().count("\n|---") == len(tables)


def test_absent_data_is_taken_calmly(tmp_path):
    done = run("calibration", "--quick", "--data", tmp_path)
    assert done.returncode == 0
    assert "Flights are left out: 2008.csv.bz2 and plane-data.csv not found" in done.stdout
    assert done.stdout.count("| adaptive |") == 3


def test_an_unknown_job_is_refused():
    done = run("nonsense")
    assert done.returncode == 2
    assert "unknown job 'nonsense'" in done.stderr


def test_calibration_runs(data_directory):
    done = run("calibration", "--quick", "--data", data_directory)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| adaptive |") == 5


def test_optimization_runs():
    done = run("optimization", "--quick")
    assert done.returncode == 0, done.stderr
    assert "One step after 50 values" in done.stdout


def test_files_run():
    done = run("files", "--quick")
    assert done.returncode == 0, done.stderr
    assert "prediction only" in done.stdout


def test_accuracy_runs():
    done = run("accuracy", "--quick")
    assert done.returncode == 0, done.stderr
    assert "| friedman1, noise 5 | 600 |" in done.stdout
