"""``mondrian optimize``: find good parameters for a program."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import Json, errors_as_messages, messages, print_result

if TYPE_CHECKING:
    from rich.table import Table

    from mondrian_forest.optimize import Optimizer, Trial
    from mondrian_forest.optimize.run import OptimizationResult

N_SHOWN = 8


def optimize(
    space: Annotated[Path, typer.Argument(help="TOML file that describes the parameters.")],
    command: Annotated[
        list[str],
        typer.Argument(help="Program to run, after --. {name} stands for a parameter's value."),
    ],
    trials: Annotated[
        int, typer.Option("--trials", "-n", min=1, help="Number of trials, with earlier ones.")
    ] = 100,
    workers: Annotated[int, typer.Option(min=1, help="Number of trials to run at once.")] = 1,
    maximize: Annotated[
        bool,
        typer.Option("--maximize/--minimize", help="Whether large or small values are better."),
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="File that records all trials. If it exists, its run is continued."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Random seed.")] = None,
    json: Json = False,
) -> None:
    """Run a program again and again to find its best parameters.

    The value of a trial is the last word of the last line that the program prints. A trial fails if
    the program fails or prints no number. The search avoids parameters like those of failed trials.

    Example: mondrian optimize space.toml -n 50 --journal run.jsonl -- python train.py --lr {lr}
    """
    with errors_as_messages(), signals_raise():
        from rich.live import Live

        from mondrian_forest.optimize.command import optimize_command, read_space

        parameters = read_space(space)
        console = messages()
        with (
            warnings.catch_warnings(),
            Live(console=console, refresh_per_second=4, transient=True) as live,
        ):
            warnings.showwarning = lambda message, *_, **__: console.print(str(message))

            def on_trial(optimizer: Optimizer, trial: Trial, error: str) -> None:
                if error:
                    console.print(f"Trial {trial.number} failed: {error}.")
                live.update(best_trials(optimizer, trials))

            result = optimize_command(
                command,
                parameters,
                trials,
                workers=workers,
                on_trial=on_trial,
                maximize=maximize,
                journal=journal,
                random_state=seed,
            )
        _print_best(result, json)


def _print_best(result: OptimizationResult, as_json: bool) -> None:
    """Print the best trial, or exit with code 1 if there is none."""
    found: dict[str, Any] = {
        "trials": sum(not trial.is_pending for trial in result.trials),
        "failed": sum(trial.value != trial.value for trial in result.trials),
    }
    if result.best_point is None:
        print_result(found, as_json)
        typer.echo("Every trial failed.", err=True)
        raise typer.Exit(1)
    point = {name: value for name, value in result.best_point.items() if value is not None}
    print_result({**found, "best value": result.best_value, "best point": point}, as_json)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Raise SystemExit on signals that would end this process, so that clean-up code can run.

    The clean-up ends the programs that were started. They run in sessions of their own, and get no
    signal from the terminal. Exit codes follow the shell: 130 for SIGINT, 143 for SIGTERM.
    """

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    # Signals that are ignored stay ignored, such as SIGHUP under nohup.
    former = {
        number: signal.signal(number, end)
        for number in (getattr(signal, name) for name in names if hasattr(signal, name))
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def best_trials(optimizer: Optimizer, n_trials: int) -> Table:
    """Return a table of the best trials so far."""
    from rich.table import Table

    done = [trial for trial in optimizer.trials if not trial.is_pending]
    successful = [trial for trial in done if trial.value == trial.value]
    successful.sort(key=lambda trial: float(trial.value or 0.0), reverse=bool(optimizer.maximize))
    names = list(optimizer.space.describe())
    table = Table(title=f"{len(done)} of {n_trials} trials")
    for heading in ("trial", "value", *names):
        table.add_column(heading, justify="right")
    for trial in successful[:N_SHOWN]:
        cells = (_cell(trial.point.get(name)) for name in names)
        table.add_row(str(trial.number), f"{trial.value:.6g}", *cells)
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)
