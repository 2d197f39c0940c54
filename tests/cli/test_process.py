"""Each command once in a process of its own, as a user runs it.

The other tests run commands in the process of pytest. Here the two ways are compared.
"""

import json
import logging
import os
import shutil
import signal
import sys
import warnings

import matplotlib.pyplot
import pytest
import rich.console

from command import run, run_here

SPACE = "[x]\ntype = 'real'\nlow = 0.0\nhigh = 1.0\n"
CASES = {
    "fit": ("fit", "houses.csv", "-t", "price", "--trees", 2, "-o", "new.mf", "--json"),
    "update": ("update", "houses.mf", "more.csv", "-o", "new.mf", "--json"),
    "predict": ("predict", "houses.mf", "more.parquet", "--quantiles", "0.1,0.9"),
    "evaluate": ("evaluate", "houses.mf", "more.csv", "--report", "report.html"),
    "info": ("info", "houses.mf"),
    "optimize": ("optimize", "space.toml", "-n", 2, "--seed", 0, "--json", "--",
                 sys.executable, "-c", "print(-{x})"),
    "fault": ("fit", "houses.csv", "-t", "prize"),
    "usage": ("predict", "houses.mf"),
}  # fmt: skip


def without_time(text):
    """Return JSON without the time that it took; other text as it is."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    values.pop("seconds", None)
    return values


@pytest.fixture
def place(folder, tmp_path):
    """Return how to make folders with all files of the cases."""

    def new(name):
        copied = shutil.copytree(folder, tmp_path / name)
        (copied / "space.toml").write_text(SPACE)
        return copied

    return new


@pytest.mark.parametrize("case", CASES)
def test_a_process_says_and_writes_what_is_said_and_written_here(case, place):
    found = {}
    for way in (run, run_here):
        cwd = place(way.__name__)
        done = way(*CASES[case], cwd=cwd)
        files = {path.name: path.read_bytes() for path in cwd.iterdir()}
        found[way] = done.returncode, without_time(done.stdout), done.stderr, files
    assert found[run] == found[run_here]
    assert found[run][0] == {"fault": 1, "usage": 2}.get(case, 0)


@pytest.mark.parametrize("case", CASES)
def test_results_are_on_the_standard_output_when_messages_are_on_a_terminal(
    case, place, monkeypatch
):
    """As with ``mondrian evaluate ... > file``."""
    expected = run_here(*CASES[case], cwd=place("a")).stdout
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)
    found = run_here(*CASES[case], cwd=place("b")).stdout
    assert without_time(found) == without_time(expected)


def surroundings():
    """Return what all tests of a process share, and a command could change."""
    return {
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "arguments": list(sys.argv),
        "streams": [sys.stdin, sys.stdout, sys.stderr],
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "filters of warnings": list(warnings.filters),
        "handlers of logs": list(logging.root.handlers),
        "backend of plots": matplotlib.get_backend(),
        "plots": matplotlib.pyplot.get_fignums(),
    }


@pytest.mark.parametrize("case", [*CASES, "demo"])
def test_a_command_that_runs_here_leaves_nothing_behind(case, place):
    cwd = place("place")
    before = surroundings()
    run_here(*CASES.get(case, [case]), cwd=cwd)
    assert surroundings() == before
