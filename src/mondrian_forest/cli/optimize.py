"""``mondrian optimize``: find good parameters of a program."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import Json, faults_told, messages, show

if TYPE_CHECKING:
    from rich.table import Table

    from mondrian_forest.optimize import Optimizer, Trial

N_SHOWN = 8


def optimize(
    space: Annotated[Path, typer.Argument(help="A TOML file that describes the parameters.")],
    command: Annotated[
        list[str], typer.Argument(help="The program, after --, with {name} for values.")
    ],
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="How many.")] = 100,
    workers: Annotated[int, typer.Option(min=1, help="Trials that run at once.")] = 1,
    maximize: Annotated[
        bool, typer.Option("--maximize/--minimize", help="What is wanted.")
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="File that keeps all trials; if it exists, its run goes on."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Random seed.")] = None,
    json: Json = False,
) -> None:
    """Run a program again and again, with parameters that promise most.

    The value of a trial is the last word of the program's last line of output. A program that
    fails, or prints no number, is a failed trial, from which is learned too.

    Example: mondrian optimize space.toml -n 50 --journal run.jsonl -- python train.py --lr {lr}
    """
    with faults_told(), signals_raise():
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
        found: dict[str, Any] = {
            "trials": sum(not trial.is_pending for trial in result.trials),
            "failed": len([trial for trial in result.trials if trial.value != trial.value]),
        }
        if result.best_point is None:
            show(found, json)
            typer.echo("Every trial failed.", err=True)
            raise typer.Exit(1)
        point = {name: value for name, value in result.best_point.items() if value is not None}
        show({**found, "best value": result.best_value, "best point": point}, json)


@contextmanager
def signals_raise() -> Iterator[None]:
    """End by an exception where a signal would end the process: programs run that must end too.

    They are in sessions of their own, and get no signal from the terminal. The exit codes are those
    of a shell: 130 for SIGINT, 143 for SIGTERM.
    """

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    # What is ignored stays ignored, as under nohup.
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
    """Return the best trials so far, as a table."""
    from rich.table import Table

    done = [trial for trial in optimizer.trials if not trial.is_pending]
    told = [trial for trial in done if trial.value == trial.value]
    told.sort(key=lambda trial: float(trial.value or 0.0), reverse=bool(optimizer.maximize))
    names = list(optimizer.space.describe())
    table = Table(title=f"{len(done)} of {n_trials} trials")
    for heading in ("trial", "value", *names):
        table.add_column(heading, justify="right")
    for trial in told[:N_SHOWN]:
        values = (trial.point.get(name) for name in names)
        shown = (
            f"{v:.5g}" if isinstance(v, float) else "" if v is None else str(v) for v in values
        )
        table.add_row(str(trial.number), f"{trial.value:.6g}", *shown)
    return table
