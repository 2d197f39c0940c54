"""Optimise a program: its parameters come from a TOML file, its value from its last line of output.

A space is written like this::

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

``type = "ordinal"`` has ``values`` too, in order. In the command, ``{lr}`` stands for a value; that
of a parameter that does not apply is an empty text.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from .optimizer import Optimizer, SpaceExhausted, Trial
from .run import OptimizationResult
from .space import Categorical, Integer, Ordinal, Parameter, Point, Real

_TYPES: dict[str, Callable[..., Parameter]] = {
    "real": Real,
    "integer": Integer,
    "categorical": Categorical,
    "ordinal": Ordinal,
}
_FIELDS = {"type", "low", "high", "log", "values", "when"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(rf"\{{({_NAME.pattern})\}}")


def read_space(path: str | os.PathLike[str]) -> dict[str, Parameter]:
    """Return the space that a TOML file describes."""
    name = os.fspath(path)
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name!r} is no TOML file: {error}.") from None
    if not content:
        raise ValueError(f"{name!r} describes no parameter.")
    space = {}
    for parameter, entry in content.items():
        if not _NAME.fullmatch(parameter):
            raise ValueError(
                f"In {name!r}, parameter {parameter!r}: a name has letters, digits and "
                "underscores only."
            )
        try:
            space[parameter] = _read_parameter(entry)
        except (TypeError, ValueError) as error:
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
    """Raise a ValueError if the command names a parameter that there is not, or none at all."""
    named = {name for word in command for name in _PLACE.findall(word)}
    if not command:
        raise ValueError("There is no command: write it after two hyphens, -- python train.py.")
    unknown = named - space.keys()
    if unknown:
        raise ValueError(
            f"The command has {{{min(unknown)}}}, but the space has no such parameter: it has "
            f"{', '.join(space)}."
        )
    if not named:
        raise ValueError(f"The command uses no parameter: write {{{next(iter(space))}}} in it.")


def fill_in(command: Sequence[str], point: Point) -> list[str]:
    """Return a command with the values of a point in it."""

    def value(match: re.Match[str]) -> str:
        found = point.get(match[1])
        return "" if found is None else str(found)

    return [_PLACE.sub(value, word) for word in command]


def run_command(words: Sequence[str], children: set[subprocess.Popen[str]]) -> tuple[float, str]:
    """Run a command; return the number in its last line, or NaN and why there is none."""
    try:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as error:
        return math.nan, f"{words[0]!r} cannot be run: {error.strerror}"
    children.add(process)
    try:
        output, complaints = process.communicate()
    finally:
        children.discard(process)
    if process.returncode != 0:
        last = (complaints.strip().splitlines() or [""])[-1]
        return math.nan, f"exit code {process.returncode}: {last}".rstrip(": ")
    lines = output.strip().splitlines()
    if not lines:
        return math.nan, "it printed nothing"
    try:
        value = float(lines[-1].split()[-1])
    except (ValueError, IndexError):
        return math.nan, f"its last line is no number: {lines[-1][:80]!r}"
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
    """Run a command for each trial, several at once, until there are enough.

    Parameters
    ----------
    command : sequence of str
        With ``{name}`` where the value of a parameter belongs.
    space : mapping of str to Parameter
    n_trials : int
        Those that a journal holds count.
    workers : int, default=1
    on_trial : callable
        Is told of every trial that ends, with the reason if it failed.
    **options
        Of :class:`Optimizer`.
    """
    check_command(command, space)
    optimizer = Optimizer(space, **options)
    errors: dict[int, str] = {}
    children: set[subprocess.Popen[str]] = set()
    n_started = sum(not trial.is_pending for trial in optimizer.trials)

    def evaluate(trial: Trial) -> tuple[Trial, float, str]:
        return trial, *run_command(fill_in(command, trial.point), children)

    running: set[Future[tuple[Trial, float, str]]] = set()
    executor = ThreadPoolExecutor(workers)
    try:
        while True:
            while len(running) < workers and n_started < n_trials:
                try:
                    trial = optimizer.ask_trial()
                except SpaceExhausted:
                    n_trials = n_started
                    break
                n_started += 1
                running.add(executor.submit(evaluate, trial))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                trial, value, error = future.result()
                optimizer.tell(trial.point, value)
                if error:
                    errors[trial.number] = error
                on_trial(optimizer, trial, error)
    except BaseException:
        for process in list(children):  # which would go on without us
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
    return OptimizationResult(
        optimizer.best_point,
        optimizer.best_value,
        optimizer.trials,
        errors,
        bool(optimizer.maximize),
    )
