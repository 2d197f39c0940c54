"""What a journal guarantees: one writer, complete lines, nothing skipped."""

import copy
import errno
import json
import math
import os
import pickle
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest

from mondrian_forest import PAPER, HierarchicalPosterior, MondrianForestRegressor
from mondrian_forest.optimize import (
    Categorical,
    Integer,
    JournalError,
    Optimizer,
    Real,
    minimize,
)
from mondrian_forest.optimize import journal as journal_module

SPACE = {"x": Real(0.0, 1.0), "k": Integer(1, 9), "c": Categorical(["a", "b"])}


def make(path, **options):
    return Optimizer(SPACE, journal=path, **{"n_candidates": 20, "random_state": 3} | options)


def run_trials(optimizer, n):
    for _ in range(n):
        point = optimizer.ask()
        optimizer.tell(point, point["x"] + point["k"])


def state(optimizer):
    return [(trial.number, trial.point, trial.value) for trial in optimizer.trials]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


class TestOneWriter:
    def test_a_second_optimizer_of_the_process_is_refused_until_the_first_is_closed(self, path):
        first = make(path)
        with pytest.raises(JournalError, match="another optimiser of this process"):
            make(path)
        first.close()
        make(path).close()

    def test_only_one_of_several_threads_can_open_a_journal(self, path):
        found, barrier = [], threading.Barrier(4)

        def work():
            barrier.wait()
            try:
                found.append(make(path))
            except JournalError as error:
                found.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(one, Optimizer) for one in found) == 1

    def test_a_deleted_optimizer_unlocks_the_journal(self, path):
        optimizer = make(path)
        run_trials(optimizer, 2)
        del optimizer
        assert len(make(path).trials) == 2

    def test_a_failed_start_and_an_interrupted_run_unlock_the_journal(self, path):
        def objective(_):
            raise KeyboardInterrupt

        # The tracebacks, which refer to the frames, stay alive.
        with pytest.raises(KeyboardInterrupt) as stopped:
            minimize(objective, SPACE, 5, journal=path, random_state=3)
        with pytest.raises(JournalError) as refused:
            make(path, random_state=4)
        assert len(make(path).trials) == 1
        assert stopped.value is not refused.value

    def test_a_closed_optimizer_continues_unless_the_journal_has_changed(self, path):
        first = make(path)
        run_trials(first, 2)
        first.close()
        run_trials(first, 1)
        first.close()
        with make(path) as second:
            assert len(second.trials) == 3
            with pytest.raises(JournalError, match="another optimiser of this process"):
                first.ask()
            run_trials(second, 1)
        with pytest.raises(JournalError, match="was changed by another program"):
            first.ask()
        assert len(make(path).trials) == 4

    @pytest.mark.parametrize("replicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
    def test_a_copy_can_write_after_the_original_is_closed(self, path, replicate):
        first = make(path)
        run_trials(first, 2)
        second = replicate(first)
        with pytest.raises(JournalError, match="another optimiser of this process"):
            second.ask()
        first.close()
        run_trials(second, 1)
        second.close()
        assert state(make(path)) == state(second)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_is_refused_and_does_not_keep_the_lock(self, path):
        first = make(path)
        run_trials(first, 2)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                first.ask()
                os.write(tell, b"asked")
            except JournalError as error:
                os.write(tell, str(error).encode())
            finally:
                threading.Event().wait(60)  # until after the parent has closed the journal
                os._exit(0)
        try:
            answer = os.read(told, 1000).decode()
            assert "is using the journal" in answer
            run_trials(first, 1)
            first.close()
            assert len(make(path).trials) == 3
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(told)
            os.close(tell)

    def test_a_replaced_changed_or_removed_file_is_refused(self, path, tmp_path):
        first = make(path)
        run_trials(first, 2)
        content = path.read_bytes()
        with path.open("ab") as file:
            file.write(b'{"ask": 2, "point": {}}\n')
        with pytest.raises(JournalError, match="was changed by another program"):
            first.ask()
        path.write_bytes(content)
        run_trials(first, 1)
        (tmp_path / "other").write_bytes(path.read_bytes())
        os.replace(tmp_path / "other", path)
        with pytest.raises(JournalError, match="was moved or replaced"):
            first.ask()
        path.unlink()
        with pytest.raises(FileNotFoundError):
            first.ask()
        assert not path.exists()

    def test_a_file_that_cannot_be_locked_gives_a_warning(self, path, monkeypatch):
        def lock(_):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(journal_module, "_lock", lock)
        with pytest.warns(RuntimeWarning, match="cannot be locked"):
            first = make(path)
        run_trials(first, 2)
        with pytest.warns(RuntimeWarning, match="cannot be locked"):
            second = make(path)
        run_trials(second, 1)
        with pytest.raises(JournalError, match="was changed by another program"):
            first.ask()

    @pytest.mark.skipif(sys.platform == "win32", reason="has no device files")
    def test_a_file_that_is_not_regular_is_refused(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        for name in ("/dev/null", tmp_path / "fifo", tmp_path):
            with pytest.raises(JournalError, match="not a regular file"):
                make(name)


class TestCompleteLines:
    def test_every_line_is_on_the_disk_before_a_call_returns(self, path, monkeypatch):
        synced = []
        monkeypatch.setattr(
            journal_module.os, "fsync", lambda _: synced.append(path.read_bytes().count(b"\n"))
        )
        optimizer = make(path)
        synced.clear()  # the folder was synchronised, too
        run_trials(optimizer, 2)
        assert synced == [2, 3, 4, 5]

    @pytest.mark.parametrize("n_written", [0, 10, 10_000])
    def test_a_failed_write_leaves_neither_a_line_nor_a_change_in_memory(
        self, path, monkeypatch, n_written
    ):
        optimizer = make(path)
        run_trials(optimizer, 5)
        point = optimizer.ask()
        before, content = state(optimizer), path.read_bytes()
        write = os.write

        def fail(fd, data):
            write(fd, data[:n_written])
            raise OSError(errno.ENOSPC, "No space left on device")

        for call in (optimizer.ask, lambda: optimizer.tell(point, 1.0)):
            with monkeypatch.context() as patch:
                patch.setattr(journal_module.os, "write", fail)
                with pytest.raises(OSError, match="No space left") as raised:
                    call()
            assert raised.value.filename == str(path)
            assert path.read_bytes() == content
            assert state(optimizer) == before
        optimizer.tell(point, 1.0)
        run_trials(optimizer, 3)
        optimizer.close()
        again = make(path)
        assert state(again) == state(optimizer)
        assert again.ask() == optimizer.space.from_unit(again.trials[-1].unit)

    def test_an_incomplete_line_that_cannot_be_removed_is_removed_later(self, path, monkeypatch):
        optimizer = make(path)
        run_trials(optimizer, 2)
        content = path.read_bytes()
        write = os.write

        def fail(*arguments):
            if len(arguments[1:]) and isinstance(arguments[1], bytes):
                write(arguments[0], arguments[1][:7])
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(journal_module.os, "write", fail)
            patch.setattr(journal_module.os, "ftruncate", fail)
            with pytest.raises(OSError, match="Input/output"):
                optimizer.ask()
        assert len(path.read_bytes()) == len(content) + 7
        run_trials(optimizer, 1)
        optimizer.close()
        assert path.read_bytes().startswith(content + b'{"ask": 2')
        assert state(make(path)) == state(optimizer)

    def test_an_incomplete_line_gives_a_warning_and_stays_until_it_is_replaced(self, path):
        with make(path) as optimizer:
            run_trials(optimizer, 2)
        content = path.read_bytes()
        path.write_bytes(content[:-5])
        with pytest.warns(RuntimeWarning, match="line 5 is incomplete"):
            again = make(path)
        assert path.read_bytes() == content[:-5]
        run_trials(again, 1)
        assert path.read_bytes() == content


class TestReplay:
    @pytest.fixture
    def lines(self, path):
        with make(path) as optimizer:
            run_trials(optimizer, 3)
            optimizer.ask()
        # header, ask 0, tell 0, ask 1, tell 1, ask 2, tell 2, ask 3
        return path.read_bytes().splitlines(keepends=True)

    def refused(self, path, lines, match):
        path.write_bytes(b"".join(lines))
        with pytest.raises(JournalError, match=match) as raised:
            make(path)
        assert str(raised.value).startswith(str(path))
        assert path.read_bytes() == b"".join(lines)

    def test_a_value_with_another_point_is_refused(self, path, lines):
        first, second = json.loads(lines[2]), json.loads(lines[4])
        lines[4] = json.dumps(second | {"point": first["point"]}).encode() + b"\n"
        self.refused(path, lines, "line 5 .* its point is not that of trial 1")

    @pytest.mark.parametrize(
        ("order", "match"),
        [
            ([0, 1, 2, 2], "line 4 .* trial 0 is told twice"),
            ([0, 1, 1], "line 3 .* trial 0 is asked for twice"),
            ([0, 1, 2, 5], "line 4 .* its number is 2, but the next number is 1"),
            ([0, 2, 1], "line 3 .* trial 0 is asked for twice"),
            ([0, 0], "line 2 .* neither an ask nor a tell"),
        ],
    )
    def test_entries_that_do_not_fit_those_before_are_refused(self, path, lines, order, match):
        self.refused(path, [lines[k] for k in order], match)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"value": "3"}, "its value is '3'"),
            ({"value": True}, "its value is True"),
            ({"value": math.inf}, "its value is inf"),
            ({"value": 1e101}, r"its value is 1e\+101"),
            ({"value": [1]}, "a value must be a number"),
            ({"tell": True}, "its number is True"),
            ({"tell": -1}, "its number is -1"),
            ({"tell": None}, "its number is None"),
            ({"point": []}, "a point must be a dict"),
            ({"point": {"x": 0.5}}, "the point lacks 'k'"),
            ({"other": 1}, "neither an ask nor a tell"),
        ],
    )
    def test_the_message_names_the_line_and_what_is_wrong(self, path, lines, change, match):
        lines[2] = json.dumps(json.loads(lines[2]) | change).encode() + b"\n"
        self.refused(path, lines, f"line 3 .*{match}")

    @pytest.mark.parametrize(
        ("line", "match"),
        [
            (b"7\n", "line 9 .* neither an ask nor a tell"),
            (b"\n", "line 9 is not valid JSON"),
            (b'{"ask": 4, "ask": 4, "point": {}}\n', "line 9 is not valid JSON"),
            (b"[" * 100_000 + b"\n", "line 9 is nested too deeply"),
            (b'{"ask": 4, "point": {"x": ' + b"[" * 500 + b"]" * 500 + b"}}\n", "line 9"),
            (b'{"ask": 4, "point": "\xff"}\n', "line 9 is not valid JSON"),
        ],
    )
    def test_the_message_names_a_line_that_is_not_an_entry(self, path, lines, line, match):
        self.refused(path, [*lines, line], match)

    def test_numpy_values_and_fractions_can_be_told_and_read_again(self, path):
        with make(path) as optimizer:
            point = {"x": Fraction(1, 4), "k": np.int64(3), "c": np.str_("b")}
            optimizer.tell(point, np.float32(0.5))
        assert make(path).trials[0].point == {"x": 0.25, "k": 3, "c": "b"}


@pytest.mark.parametrize("acquisition", ["ucb", "ei", "pi", "thompson"])
@pytest.mark.parametrize(
    "values",
    [
        [1e-300, 2e-300, 0.0, 5e-324],
        [1e-130, 1.0000001e-130, 1e-121, 3e-121],
        [1e-104, math.nextafter(1e-104, 1.0), 1e-104],
        [1e100, 1e-100, -1e100, 0.0],
    ],
)
def test_tiny_and_huge_values_are_learned_and_read_again(path, values, acquisition):
    optimizer = make(path, acquisition=acquisition)
    for k in range(12):
        optimizer.tell(optimizer.ask(), values[k % len(values)])
    optimizer.close()
    again = make(path, acquisition=acquisition)
    assert state(again) == state(optimizer)
    assert again.best_value == min(values)
    assert again.ask() == optimizer_without_journal(values, acquisition).ask()


def optimizer_without_journal(values, acquisition):
    optimizer = make(None, acquisition=acquisition)
    for k in range(12):
        optimizer.tell(optimizer.ask(), values[k % len(values)])
    return optimizer


def test_thompson_sampling_works_with_huge_values(path):
    forest = MondrianForestRegressor(3, **PAPER)
    optimizer = make(path, acquisition="thompson", forest=forest)
    for k in range(12):
        optimizer.tell(optimizer.ask(), (-1) ** k * 1e100)
    assert len(optimizer.trials) == 12


def test_a_value_that_the_forest_refuses_is_not_written(path):
    forest = MondrianForestRegressor(
        3, **PAPER | {"posterior": HierarchicalPosterior(prior_scale=1e-200)}
    )
    optimizer = make(path, forest=forest)
    point = optimizer.ask()
    content = path.read_bytes()
    with pytest.raises(ValueError, match="prior_scale"):
        optimizer.tell(point, 1.0)
    assert path.read_bytes() == content
    assert optimizer.trials[0].is_pending
    optimizer.close()
    assert make(path).ask() == point


def test_an_integer_beyond_float64_is_a_failure(path):
    optimizer = make(path)
    optimizer.tell(optimizer.ask(), 10**400)
    assert optimizer.trials[0].is_failed
