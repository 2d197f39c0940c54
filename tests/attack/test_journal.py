"""Attacks on the optimiser's journal: kills, two writers, full disks, damaged bytes, interrupts.

MONDRIAN_ATTACK multiplies the number of attacks.
"""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mondrian_forest.optimize import Categorical, JournalError, Optimizer, Real

SCALE = int(os.environ.get("MONDRIAN_ATTACK", "1"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs forks and POSIX signals")

COMMON = """
import json, os, random, resource, signal, sys, time, warnings
from pathlib import Path
from mondrian_forest.optimize import Categorical, JournalError, Optimizer, Real
SPACE = {"x": Real(0.0, 1.0), "c": Categorical(["a", "b", "c"])}
def make(path):
    return Optimizer(SPACE, journal=path, n_candidates=20, random_state=5)
def objective(point):
    return (point["x"] - 0.3) ** 2 + "abc".index(point["c"])
def go_on(optimizer, n_trials):
    while sum(not trial.is_pending for trial in optimizer.trials) < n_trials:
        point = optimizer.ask()
        optimizer.tell(point, objective(point))
def reference(path, n_trials):
    with make(path) as optimizer:
        go_on(optimizer, n_trials)
    return path.read_bytes()
folder, scale = Path(sys.argv[1]), int(sys.argv[2])
path = folder / "journal.jsonl"
"""


def attack(script, folder):
    """Run a script in a process of its own; it forks children that need not import anything."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script, str(folder), str(SCALE)],
        capture_output=True,
        text=True,
        timeout=300 * SCALE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_killed_process_leaves_whole_lines_and_the_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    report = attack(
        """
n_trials, n_kills, n_torn, n_runs = 25, 0, 0, 0
whole = reference(folder / "reference.jsonl", n_trials)
random = random.Random(0)
while n_kills < 20 * scale:
    begin = path.stat().st_size if path.exists() else 0
    child = os.fork()
    if child == 0:
        with make(path) as optimizer:
            go_on(optimizer, n_trials)
        os._exit(0)
    time.sleep(random.uniform(0.0, 0.12))
    os.kill(child, signal.SIGKILL)
    n_kills += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    found = path.read_bytes() if path.exists() else b""
    assert whole.startswith(found), found[-200:]
    n_torn += not (found == b"" or found.endswith(b"\\n"))
    if found == whole:  # a run is over: the next one
        path.unlink()
        n_runs += 1
with make(path) as optimizer:
    go_on(optimizer, n_trials)
assert path.read_bytes() == whole
print(json.dumps({"kills": n_kills, "torn": n_torn, "runs": n_runs}))
""",
        tmp_path,
    )
    assert report["kills"] == 20 * SCALE
    assert report["torn"] == 0


def test_of_two_processes_on_one_journal_one_is_told_who_the_other_is(tmp_path):
    attack(
        """
whole = reference(folder / "reference.jsonl", 15)
for _ in range(5 * scale):
    path.unlink(missing_ok=True)
    begin, reports = time.time() + 0.02, []
    for who in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            time.sleep(max(0.0, begin - time.time()))
            try:
                with make(path) as optimizer:
                    go_on(optimizer, 15)
                    time.sleep(0.3)
                os.write(write, b"done")
            except JournalError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        reports.append((child, read))
    texts = []
    for child, read in reports:
        texts.append((child, os.read(read, 10_000).decode()))
        os.close(read)
        os.waitpid(child, 0)
    winner = [child for child, text in texts if text == "done"]
    refused = [text for _, text in texts if text != "done"]
    assert len(winner) == 1 and len(refused) == 1, texts
    assert "is using the journal: wait until it ends" in refused[0], texts
    if sys.platform == "linux":
        assert f"another process (pid {winner[0]})" in refused[0], (texts, winner)
    assert path.read_bytes() == whole
print("{}")
""",
        tmp_path,
    )


def test_a_full_disk_costs_no_line_and_the_run_goes_on_when_there_is_room_again(tmp_path):
    report = attack(
        """
whole = reference(folder / "reference.jsonl", 12)
random, n_failed = random.Random(1), 0
for _ in range(12 * scale):
    path.unlink(missing_ok=True)
    limit = random.randrange(1, len(whole))
    optimizer = make(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for attempt in range(3):  # the disk stays full for a while
        try:
            if attempt == 0:
                go_on(optimizer, 12)
            elif point is None:
                optimizer.ask()
            else:
                optimizer.tell(point, objective(point))
            raise AssertionError("there should be no room")
        except OSError as error:
            assert error.filename == str(path), error
            n_failed += 1
        content = path.read_bytes()
        assert content == b"" or content.endswith(b"\\n")
        assert whole.startswith(content)
        pending = [trial.point for trial in optimizer.trials if trial.is_pending]
        point = pending[0] if pending else None
        n_told = sum(trial.value is not None for trial in optimizer.trials)
        assert content.count(b'"tell"') == n_told  # the memory has what the file has
        assert content.count(b'"ask"') == len(optimizer.trials)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if point is not None:
        optimizer.tell(point, objective(point))
    go_on(optimizer, 12)
    optimizer.close()
    assert path.read_bytes() == whole
print(json.dumps({"failed": n_failed}))
""",
        tmp_path,
    )
    assert report["failed"] == 36 * SCALE


SPACE = {"x": Real(0.0, 1.0), "c": Categorical(["a", "b", "c"])}


def make(path):
    return Optimizer(SPACE, journal=path, n_candidates=10, random_state=5)


def objective(point):
    return (point["x"] - 0.3) ** 2 + "abc".index(point["c"])


def ask_and_tell(optimizer, n_trials):
    while sum(not trial.is_pending for trial in optimizer.trials) < n_trials:
        point = optimizer.ask()
        optimizer.tell(point, objective(point))


def state(optimizer):
    return [(trial.number, trial.point, trial.value) for trial in optimizer.trials]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The journal of a run with a failure, and with a point that is pending."""
    path = tmp_path_factory.mktemp("journal") / "whole.jsonl"
    with make(path) as optimizer:
        ask_and_tell(optimizer, 5)
        optimizer.tell(optimizer.ask(), None)
        optimizer.tell({"x": 0.5, "c": "b"}, 1e-300)
        optimizer.ask()
    return path.read_bytes()


def mutations():
    place, few = st.integers(0, 10_000), st.integers(0, 40)
    pieces = st.one_of(
        st.binary(min_size=1, max_size=3),
        st.sampled_from(
            [b"\n", b"\r", b"\0", b"{", b"[" * 20_000, b"NaN", b"1e999", b"-1", b"true"]
        ),
        st.sampled_from([b"null", b'"', b"9" * 400, b'{"ask": 3, "point": {}}\n', b"\xff"]),
    )
    return st.lists(st.tuples(place, few, pieces, st.integers(0, 4)), min_size=1, max_size=3)


def mutate(content, mutation):
    place, few, piece, kind = mutation
    lines = content.split(b"\n")
    place %= len(content) + 1
    line = place % len(lines)
    if kind == 0:
        return content[:place] + piece + content[place + len(piece) :]
    if kind == 1:
        return content[:place] + piece + content[place:]
    if kind == 2:
        return content[:place] + content[place + few :]
    if kind == 3:
        return b"\n".join([*lines[:line], *lines[line + 1 :]])
    return b"\n".join([*lines[:line], lines[few % len(lines)], *lines[line:]])


@settings(
    max_examples=150 * SCALE,
    deadline=None,
    derandomize=SCALE == 1,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(mutations=mutations())
def test_damaged_bytes_are_refused_or_a_sound_run_goes_on(content, tmp_path_factory, mutations):
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    for mutation in mutations:
        content = mutate(content, mutation)
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            optimizer, fault = make(path), ""
        except JournalError as error:
            optimizer, fault = None, str(error)
    if optimizer is None:
        assert fault.startswith(str(path))
        assert "\n" not in fault
        assert len(fault) < 2000
        assert path.read_bytes() == content
        return
    # Whatever is no whole line is told, and every whole line counts.
    kept = content[: content.rfind(b"\n") + 1]
    with optimizer:
        assert bool(caught) == (kept != content)
        records = [json.loads(line) for line in kept.split(b"\n")[1:-1]]
        assert sum("tell" in record for record in records) == sum(
            not trial.is_pending for trial in optimizer.trials
        )
        assert {record.get("ask", record.get("tell")) for record in records} == set(
            range(len(optimizer.trials))
        )
        optimizer.tell(optimizer.ask(), 0.5)
    assert path.read_bytes().startswith(kept)
    with make(path) as again:
        assert state(again) == state(optimizer)


class _Interrupt:
    """Raise KeyboardInterrupt at one of the bytecodes of the package's optimiser."""

    def __init__(self, at):
        self.at, self.n_seen = at, 0

    def __call__(self, frame, event, _):
        if "mondrian_forest/optimize" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.n_seen += 1
            if self.n_seen == self.at:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_bytecode_leaves_journal_and_memory_in_agreement(tmp_path):
    path, copy = tmp_path / "journal.jsonl", tmp_path / "copy.jsonl"

    def steps(optimizer):
        for _ in range(2):
            point = optimizer.ask()
            optimizer.tell(point, objective(point))

    def begin():
        path.unlink(missing_ok=True)
        optimizer = make(path)
        ask_and_tell(optimizer, 4)
        return optimizer

    def traced(optimizer, at):
        interrupt = _Interrupt(at)
        former = sys.gettrace()
        sys.settrace(interrupt)
        try:
            steps(optimizer)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(former)
        return interrupt.n_seen

    optimizer = begin()
    ask_and_tell(optimizer, 8)
    optimizer.close()
    whole = path.read_bytes()
    optimizer = begin()
    n_bytecodes = traced(optimizer, -1)
    optimizer.close()
    n_points = 60 * SCALE
    for k in range(n_points):
        optimizer = begin()
        traced(optimizer, 1 + (k * n_bytecodes) // n_points)
        copy.write_bytes(path.read_bytes())
        with make(copy) as resumed:  # as after the end of the process
            ask_and_tell(resumed, 8)
        assert copy.read_bytes() == whole
        optimizer.tell({"x": 0.5, "c": "b"}, 1.0)  # the same process goes on
        optimizer.close()
        copy.write_bytes(path.read_bytes())
        with make(copy) as resumed:
            assert state(resumed) == state(optimizer)
            rows = resumed.space.features(
                resumed.space.snap(np.random.default_rng(0).random((9, 2)))
            )
            assert (resumed._forest.predict(rows) == optimizer._forest.predict(rows)).all()
