"""What all subcommands share: messages, faults, progress, tables on the screen."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .._printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Jobs = Annotated[int, typer.Option(help="Threads; -1 are all processors.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Between the columns of a CSV file; without it, the first line tells."),
]
BatchRows = Annotated[
    int, typer.Option(min=1, max=10**7, help="Rows that are read at a time.", show_default=True)
]


def messages() -> Console:
    """Return where messages go: the standard error, so that data can have the standard output."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def shown(text: str) -> str:
    """Return a text, which may hold names from files, as the terminal can show it."""
    encoding = sys.stdout.encoding or "utf-8"
    return printable(text).encode(encoding, "backslashreplace").decode(encoding)


def tell(message: str) -> None:
    """Print a message that may hold names from files."""
    messages().print(shown(message))


def fail(message: str, code: int = 1) -> NoReturn:
    """End with a message: the data or the model is at fault, or with code 2 the usage."""
    typer.echo(shown(" ".join(message.split())), err=True)
    raise typer.Exit(code)


def refuse_inputs(output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse to write over a file that is read."""
    if output is not None and any(is_same_file(output, path) for path in inputs):
        fail(f"{str(output)!r} is read, so nothing can be written to it: name another file.")


def is_same_file(one: Path, other: Path) -> bool:
    """Tell whether two names stand for one file, also through links."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return False


@contextmanager
def faults_told() -> Iterator[None]:
    """End with one sentence where data, model or files are at fault, and with nothing else."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()  # nobody reads any more, and that is no fault
            raise typer.Exit(0) from None
        if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
            fail("There is not enough memory: use --stream, fewer --trees or a larger "
                 "--min-samples-split.")  # fmt: skip
        where = f"{error.filename!r}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}.".replace("..", "."))
    except ModuleNotFoundError as error:
        fail(str(error))
    except ValueError as error:
        fail(str(error))


@contextmanager
def progress_shown(what: str, total: float | None, unit: str = "rows") -> Iterator[Progress]:
    """Show a bar, or what is done where the end is not known, with the rate."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    start = perf_counter()

    class Rate(TextColumn):
        def render(self, task: Any) -> Any:
            rate = task.completed / max(perf_counter() - start, 1e-9)
            self.text_format = f"{task.completed:,.0f} {unit}, {rate:,.0f} per second"
            return super().render(task)

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Rate(""),
        TimeElapsedColumn(),
        console=messages(),
        transient=True,
    ) as progress:
        progress.add_task(what, total=total)
        yield progress


def show(values: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values, for people or for machines."""
    if as_json:
        print(json.dumps(values, default=_plain))
        return
    width = max(map(len, values))
    for name, value in values.items():
        print(shown(f"{name:{width}}  {_readable(value)}"))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _readable(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_readable(one) for one in value)
    return str(value)


def split_names(text: str | None) -> list[str] | None:
    """Return the names in a text with commas between them."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
