"""The paper's experiments at small sizes: they run, and what they must show holds loosely."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.table import Table
from reproduction.report import Report, write, write_index

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )


def test_figure_2_shows_what_the_paper_says(tmp_path):
    done = run("reproduction.figure_2", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["quick"]
    assert len(result["checks"]) == 6


def test_tables_1_and_2_show_what_they_must(tmp_path, data_directory):
    done = run(
        "reproduction", "table_1", "table_2", "--quick",
        "--data", data_directory, "--output", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    first = json.loads((tmp_path / "table_1" / "result.json").read_text())
    assert {row["method"] for row in first["tables"][0]["rows"]} >= {
        "MF",
        "MF, empirical",
        "RF",
        "ERT",
    }
    second = (tmp_path / "table_2" / "result.md").read_text()
    assert "| 20K / 5K, shuffled | MF, empirical |" in second


def test_table_3_shows_what_it_must(tmp_path, data_directory):
    done = run("reproduction.table_3", "--quick", "--data", data_directory, "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    result = json.loads((tmp_path / "result.json").read_text())
    rows = {row["problem"]: row for row in result["tables"][0]["rows"]}
    assert set(rows) == {"Branin", "Hartmann", "SVM grid", "LDA grid"}
    assert {"MF", "MF, hierarchical", "RF", "random"} <= set(rows["Branin"])
    assert result["data"]["curves"]["LDA grid"]["MF"]


def test_a_quick_run_leaves_the_committed_results_alone():
    before = (ROOT / "reproduction" / "figure_2" / "result.json").read_text()
    assert run("reproduction.figure_2", "--quick").returncode == 0
    assert (ROOT / "reproduction" / "figure_2" / "result.json").read_text() == before


@pytest.mark.parametrize("name", ["figure_2", "table_1", "table_2", "table_3"])
def test_the_committed_results_are_of_the_full_size_and_hold(name):
    result = json.loads((ROOT / "reproduction" / name / "result.json").read_text())
    assert not result["quick"]
    assert [check["claim"] for check in result["checks"] if not check["holds"]] == []


def test_an_unknown_experiment_is_refused():
    done = run("reproduction", "table_9")
    assert done.returncode == 2
    assert "unknown experiment 'table_9'" in done.stderr


def test_a_claim_that_does_not_hold_is_reported(tmp_path):
    report = Report("Title", "About.")
    report.expect("RMSE:", 3.0, 2.0, 0.5)
    report.expect("NLPD:", 2.4, 2.0, 0.5)
    assert not report.holds
    write(report, tmp_path, "figure_2", quick=True, seconds=1.0)
    assert "| RMSE: within 0.5 of 2 | 3 | **no** |" in (tmp_path / "result.md").read_text()


def test_the_index_holds_paper_and_ours_side_by_side(tmp_path):
    summary = Table("", ["paper", "ours"])
    summary.add(1, 2)
    report = Report("Some title", "About.", summary=summary)
    (tmp_path / "introduction.md").write_text("# Introduction\n")
    write(report, tmp_path / "table_1", "table_1", quick=False, seconds=300.0)
    write_index(tmp_path)
    index = (tmp_path / "README.md").read_text()
    assert index.startswith(
        "# Introduction\n\n## Some title\n\n| paper | ours |\n|---|---|\n| 1 | 2 |"
    )
    assert "`python -m reproduction.table_1`, 5 minutes; 0 of 0 checks hold." in index
