"""Optimise a program: a TOML file describes its parameters, and its last output line has the value.

A space looks like this::

    [lr]
    type = "real"
    low = 1e-5
    high = 1e-1
    log = true

    [depth]
    type = "integer"
    low = 1
    high = 12

    [optimizer]
    type = "categorical"
    values = ["sgd", "adam"]

    [momentum]
    type = "real"
    low = 0.0
    high = 0.99
    when = { optimizer = "sgd" }

``type = "ordinal"`` has ``values``, too, in their order. In the command, ``{lr}`` is replaced by
the value of the parameter, and by an empty text if the parameter is inactive.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any

from .candidates import SpaceExhausted
from .optimizer import Optimizer
from .parameters import Categorical, Integer, Ordinal, Parameter, Real
from .run import OptimizationResult
from .space import Point
from .trial import Trial

_TYPES: dict[str, Callable[..., Parameter]] = {
    "real": Real,
    "integer": Integer,
    "categorical": Categorical,
    "ordinal": Ordinal,
}
GRACE = 3.0
"""Seconds between asking programs to end and ending them by force."""

_MOST_OUTPUT = 2**20
"""Number of bytes at the end of the output that are read."""
_FIELDS = {"type", "low", "high", "log", "values", "when"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(rf"\{{({_NAME.pattern})\}}")


_Outcome = tuple[Trial, float, str]
"""A trial, its value, and the reason if it failed."""


def read_space(path: str | os.PathLike[str]) -> dict[str, Parameter]:
    """Return the space that a TOML file describes."""
    name = os.fspath(path)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name!r} is not a TOML file: {error}.") from None
    except RecursionError:
        raise ValueError(f"{name!r} is nested too deeply for a space.") from None
    if not content:
        raise ValueError(f"{name!r} describes no parameter.")
    space = {}
    for parameter, entry in content.items():
        if not _NAME.fullmatch(parameter):
            raise ValueError(
                f"In {name!r}, parameter {parameter!r}: a name may have letters, digits and "
                "underscores only."
            )
        try:
            space[parameter] = _read_parameter(entry)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"In {name!r}, parameter {parameter!r}: {error}") from None
    return space


def _read_parameter(entry: Any) -> Parameter:
    if not isinstance(entry, dict):
        raise ValueError("it must be a table with a type, as in [lr].")
    kind = entry.get("type")
    if kind not in _TYPES:
        raise ValueError(f"its type must be one of {', '.join(_TYPES)}, got {kind!r}.")
    unknown = entry.keys() - _FIELDS
    if unknown:
        raise ValueError(f"it has an unknown entry {min(unknown)!r}.")
    is_number = kind in ("real", "integer")
    required = ("low", "high") if is_number else ("values",)
    for field in required:
        if field not in entry:
            raise ValueError(f"it has no {field!r}.")
    options = {field: entry[field] for field in ("log", "when") if field in entry}
    return _TYPES[kind](*(entry[field] for field in required), **options)


def check_command(command: Sequence[str], space: Mapping[str, Parameter]) -> None:
    """Raise a ValueError if the command uses an unknown parameter, or no parameter at all."""
    named = {name for word in command for name in _PLACEHOLDER.findall(word)}
    if not command:
        raise ValueError(
            "There is no command: write it after two hyphens, as in -- python train.py."
        )
    unknown = named - space.keys()
    if unknown:
        raise ValueError(
            f"The command has {{{min(unknown)}}}, but the space has no such parameter: it has "
            f"{', '.join(space)}."
        )
    if not named:
        raise ValueError(f"The command uses no parameter: write {{{next(iter(space))}}} in it.")


def fill_in(command: Sequence[str], point: Point) -> list[str]:
    """Return a command with the values of a point in the place of their names."""

    def value(match: re.Match[str]) -> str:
        found = point.get(match[1])
        return "" if found is None else str(found)

    return [_PLACEHOLDER.sub(value, word) for word in command]


class Programs:
    """Programs that run at the same time.

    Each runs in its own session, so that it can be ended together with the processes that it has
    started.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_ended = False

    def run(self, words: Sequence[str]) -> tuple[float, str]:
        """Run a program. Return the number in its last line, or NaN and the reason."""
        # Output goes to files. A process that the program leaves behind could keep a pipe open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = self._start(words, output, errors)
            except (OSError, ValueError) as error:  # a ValueError if an argument has a zero byte
                reason = error.strerror if isinstance(error, OSError) else error
                return math.nan, f"{words[0]!r} cannot be run: {reason}"
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
            if code != 0:
                return math.nan, f"exit code {code}: {_last_line(errors)}".rstrip(": ")
            return _value_in(_last_line(output))

    def _start(
        self, words: Sequence[str], output: IO[bytes], errors: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_ended:
                raise OSError(errno.ECANCELED, "the run is over")
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,  # a new session has no terminal to read from
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def end(self) -> None:
        """End all programs with all processes that they have started, and start no more."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with self._lock:
                self._is_ended = True
                processes = list(self._running)
            for process in processes:
                _signal(process, by_force=False)
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline and any(map(_is_alive, processes)):
                time.sleep(0.02)
        finally:  # after the grace period, or after a second interrupt
            for process in processes or list(self._running):
                _signal(process, by_force=True)


def _signal(process: subprocess.Popen[bytes], by_force: bool) -> None:
    """Ask a program and the processes that it has started to end, or end them by force."""
    if sys.platform == "win32":
        process.kill() if by_force else process.terminate()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # they have ended already
        os.killpg(process.pid, signal.SIGKILL if by_force else signal.SIGTERM)


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a program, or a process that it has started, still runs."""
    if sys.platform == "win32" or process.poll() is None:
        return process.poll() is None
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _last_line(file: IO[bytes]) -> str:
    """Return the last line of a file that is not blank, or the end of a very long line."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _MOST_OUTPUT))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _value_in(line: str) -> tuple[float, str]:
    if not line:
        return math.nan, "it printed nothing"
    try:
        value = float(line.split()[-1])
    except ValueError:
        return math.nan, f"its last line does not end with a number: {line[:80]!r}"
    if not math.isfinite(value):
        return math.nan, f"its value is {value}"
    return value, ""


def optimize_command(
    command: Sequence[str],
    space: Mapping[str, Parameter],
    n_trials: int,
    *,
    workers: int = 1,
    on_trial: Callable[[Optimizer, Trial, str], None] = lambda *_: None,
    **options: Any,
) -> OptimizationResult:
    """Run a command once for each trial, several at the same time.

    Parameters
    ----------
    command : sequence of str
        The words of the command, with ``{name}`` in the place of each value.
    space : mapping of str to Parameter
    n_trials : int
        Number of trials, including those in the journal.
    workers : int, default=1
        Number of programs that run at the same time.
    on_trial : callable
        Is called after every trial, with the reason if the trial failed.
    **options
        Parameters of :class:`Optimizer`.
    """
    check_command(command, space)
    errors: dict[int, str] = {}

    def report(optimizer: Optimizer, trial: Trial, error: str) -> None:
        if error:
            errors[trial.number] = error
        on_trial(optimizer, trial, error)

    programs = Programs()

    def evaluate(trial: Trial) -> _Outcome:
        return trial, *programs.run(fill_in(command, trial.point))

    with Optimizer(space, **options) as optimizer:
        executor = ThreadPoolExecutor(workers)
        try:
            _run_trials(
                optimizer, n_trials, workers, lambda trial: executor.submit(evaluate, trial), report
            )
        finally:
            try:
                programs.end()  # after an error or an interrupt; the values are not told
            finally:
                executor.shutdown(cancel_futures=True)
        return OptimizationResult(
            optimizer.best_point,
            optimizer.best_value,
            optimizer.trials,
            errors,
            optimizer.maximize,
        )


def _run_trials(
    optimizer: Optimizer,
    n_trials: int,
    workers: int,
    submit: Callable[[Trial], Future[_Outcome]],
    report: Callable[[Optimizer, Trial, str], None],
) -> None:
    """Keep all workers busy until there are enough trials, or no point is left."""
    n_started = sum(not trial.is_pending for trial in optimizer.trials)
    running: set[Future[_Outcome]] = set()
    while True:
        while len(running) < workers and n_started < n_trials:
            try:
                trial = optimizer.ask_trial()
            except SpaceExhausted:
                n_trials = n_started
                break
            n_started += 1
            running.add(submit(trial))
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            trial, value, error = future.result()
            optimizer.tell(trial.point, value)
            report(optimizer, trial, error)
