"""A program is run again and again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import COMMAND, ENVIRONMENT, refuse_here, run_here, succeed, succeed_here
from mondrian_forest.optimize import Optimizer
from mondrian_forest.optimize.command import read_space

SPACE = """
[x]
type = "real"
low = -5.0
high = 5.0

[k]
type = "integer"
low = 1
high = 8

[mode]
type = "categorical"
values = ["flat", "steep"]

[slope]
type = "real"
low = 0.1
high = 10.0
log = true
when = { mode = "steep" }
"""
PROGRAM = """
import sys
x, k, mode, slope = sys.argv[1:]
print("so far so good")
print("value", (float(x) - 1) ** 2 + int(k) + (float(slope) if mode == "steep" else 0.5))
"""
NAMES = ("{x}", "{k}", "{mode}", "{slope}")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def optimize(*options, command=("program.py", *NAMES)):
    return ("optimize", "space.toml", *options, "--", sys.executable, *command)


def test_a_good_point_is_found_by_several_workers(folder):
    done = succeed_here(*optimize("-n", 40, "--workers", 3, "--seed", 0, "--json"), cwd=folder)
    found = json.loads(done.stdout)
    assert found["trials"] == 40
    assert found["failed"] == 0
    assert found["best value"] < 3.0
    assert found["best point"]["k"] <= 2


def test_a_journal_goes_on_where_it_stopped(folder):
    first = optimize("-n", 6, "--journal", "run.jsonl", "--seed", 0, "--json")
    more = optimize("-n", 10, "--journal", "run.jsonl", "--json")
    assert json.loads(succeed_here(*first, cwd=folder).stdout)["trials"] == 6
    assert json.loads(succeed_here(*more, cwd=folder).stdout)["trials"] == 10
    at_once = optimize("-n", 10, "--journal", "other.jsonl", "--seed", 0, "--json")
    succeed_here(*at_once, cwd=folder)
    points = [
        [json.loads(line).get("point") for line in (folder / name).read_text().splitlines()]
        for name in ("run.jsonl", "other.jsonl")
    ]
    assert points[0] == points[1]


def test_large_values_on_request(folder):
    done = succeed_here(*optimize("-n", 25, "--maximize", "--seed", 0, "--json"), cwd=folder)
    assert json.loads(done.stdout)["best value"] > 20


def test_failures_are_told_and_learned_from(folder):
    (folder / "program.py").write_text(
        "import sys\nif int(sys.argv[2]) > 4: sys.exit('too many')\nprint(sys.argv[2])"
    )
    done = succeed_here(*optimize("-n", 15, "--seed", 0, "--json"), cwd=folder)
    found = json.loads(done.stdout)
    assert 0 < found["failed"] < 15
    assert found["best value"] == 1
    assert "failed: exit code 1: too many." in done.stderr


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("", "printed nothing"),
        ("print('done')", "does not end with"),
        ("import nonsense_", "exit code 1"),
    ],
)
def test_when_every_trial_fails(program, message, folder):
    (folder / "program.py").write_text(program)
    done = run_here(*optimize("-n", 2), cwd=folder)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Every trial failed" in done.stderr
    assert "Traceback (most" not in done.stderr


@pytest.mark.parametrize(
    ("space", "command", "message"),
    [
        ("[x", NAMES, "not a TOML file"),
        ("x = " + "[" * 5000 + "]" * 5000, NAMES, "nested too deeply"),
        (
            "[x]\ntype = 'real'\nlow = 0\nhigh = 1" + "0" * 400,
            NAMES,
            "high must be a finite number",
        ),
        ("", NAMES, "describes no parameter"),
        ("x = 1", NAMES, "must be a table with a type"),
        ("[x]\ntype = 'complex'", NAMES, "its type must be one of real"),
        ("[x]\ntype = 'real'\nlow = 1", NAMES, "no 'high'"),
        ("[x]\ntype = 'real'\nlow = 1\nhigh = 0", NAMES, "low must be less than high"),
        ("[x]\ntype = 'real'\nlow = 1\nhigh = 2\nstep = 1", NAMES, "unknown entry 'step'"),
        ("[lr-2]\ntype = 'real'\nlow = 1\nhigh = 2", NAMES, "letters, digits and underscores"),
        (SPACE, ("{y}",), "no such parameter"),
        (SPACE, ("7",), "uses no parameter"),
    ],
)
def test_spaces_and_commands_with_a_fault(space, command, message, folder):
    (folder / "space.toml").write_text(space)
    assert message in refuse_here(*optimize(command=("program.py", *command)), cwd=folder)


def test_no_command_and_no_space(folder):
    refuse_here("optimize", "space.toml", code=2, cwd=folder)
    assert "none.toml" in refuse_here("optimize", "none.toml", "--", "echo", "{x}", cwd=folder)


def test_an_interrupt_ends_the_programs_too_and_loses_no_trial(folder):
    (folder / "program.py").write_text(PROGRAM + "\nimport time; time.sleep(0.2)")
    process = start(folder, "-n", 500, "--journal", "run.jsonl", "--workers", 2)
    journal = folder / "run.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_text().count('"tell"') >= 3):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in complaint
    told = journal.read_text().count('"tell"')
    more = optimize("-n", told + 1, "--journal", "run.jsonl", "--json")
    assert json.loads(succeed_here(*more, cwd=folder).stdout)["trials"] >= told + 1


FAMILY = """
import subprocess, sys, time
from pathlib import Path
patience = {patience!r}
child = subprocess.Popen([sys.executable, "-c", patience + "import time; time.sleep(300)"])
with Path("pids").open("a") as file:
    file.write(f"{{child.pid}} ")
{then}
print(1.0)
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(folder, *options):
    return subprocess.Popen(
        [*COMMAND, *map(str, optimize(*options))],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@linux
@pytest.mark.parametrize(
    ("number", "patience"),
    [
        (signal.SIGTERM, ""),
        (signal.SIGINT, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "),
        (signal.SIGHUP, ""),
    ],
)
def test_a_signal_ends_programs_with_all_that_they_have_started(folder, number, patience):
    (folder / "program.py").write_text(FAMILY.format(patience=patience, then="time.sleep(300)"))
    process = start(folder, "-n", 50, "--workers", 2, "--journal", "run.jsonl")
    wait_for(lambda: (folder / "pids").exists() and (folder / "pids").read_text().count(" ") >= 2)
    time.sleep(0.3)  # until the grandchildren ignore the signal
    process.send_signal(number)  # to the command alone, not to its group
    began = time.monotonic()
    _, complaint = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert process.returncode == 128 + number
    assert b"Traceback" not in complaint
    pids = (folder / "pids").read_text().split()
    wait_for(lambda: not any(map(is_running, pids)))
    # The trials that ran are not told: they are asked for again.
    records = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    assert [record.get("ask") for record in records[1:]] == [0, 1]


@linux
def test_a_process_that_a_program_leaves_behind_holds_nobody_up(folder):
    (folder / "program.py").write_text(FAMILY.format(patience="", then=""))
    began = time.monotonic()
    done = succeed_here(*optimize("-n", 2, "--json"), cwd=folder)
    assert time.monotonic() - began < 200
    assert json.loads(done.stdout)["best value"] == 1.0
    for pid in (folder / "pids").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def test_a_journal_in_use_is_refused_in_one_sentence(folder):
    with Optimizer(read_space(folder / "space.toml"), journal=folder / "run.jsonl"):
        complaint = refuse_here(*optimize("-n", 2, "--journal", "run.jsonl"), cwd=folder)
    assert "is using the journal" in complaint


def test_a_torn_line_is_told_in_one_sentence(folder):
    succeed_here(*optimize("-n", 2, "--journal", "run.jsonl", "--seed", 0), cwd=folder)
    journal = folder / "run.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content[:-3])
    # In a process of its own: pytest makes errors of warnings.
    done = succeed(*optimize("-n", 2, "--journal", "run.jsonl"), cwd=folder)
    assert "line 5 is incomplete" in done.stderr
    assert "Warning" not in done.stderr
    assert journal.read_bytes() == content


def test_output_of_any_size_and_kind_is_read(folder):
    (folder / "program.py").write_text(
        "import sys\nsys.stdout.buffer.write(b'\\xff' * 5_000_000 + b'\\nvalue 2.5\\n\\n')"
    )
    done = succeed_here(*optimize("-n", 1, "--json"), cwd=folder)
    assert json.loads(done.stdout)["best value"] == 2.5
