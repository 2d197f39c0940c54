"""What the subcommands share: options, messages, errors, progress and printed results.

A subcommand imports slow modules inside functions, so that its help appears at once.
"""

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

Jobs = Annotated[
    int, typer.Option(help="Number of threads; -1 uses all processors.", show_default=True)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Delimiter of a CSV file; by default it is found in the first line."),
]
BatchRows = Annotated[
    int, typer.Option(min=1, max=10**7, help="Number of rows to read at a time.", show_default=True)
]


def messages() -> Console:
    """Return a console on the standard error. The standard output is for data."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def shown(text: str) -> str:
    """Return a text that may contain names from files in a form that is safe on a terminal."""
    encoding = sys.stdout.encoding or "utf-8"
    return printable(text).encode(encoding, "backslashreplace").decode(encoding)


def tell(message: str) -> None:
    """Print a message. It may contain names from files."""
    messages().print(shown(message))


def fail(message: str, code: int = 1) -> NoReturn:
    """Print a message and exit.

    Exit code 1 means that the data or the model is at fault, 2 that the usage is wrong.
    """
    typer.echo(shown(" ".join(message.split())), err=True)
    raise typer.Exit(code)


def check_can_save(what: str, path: Path) -> None:
    """Exit with a message if ``path`` is a folder, or its folder does not exist."""
    if path.is_dir():
        fail(f"The {what} cannot be saved as {str(path)!r}: that is a folder.")
    if not path.parent.is_dir():
        fail(
            f"The {what} cannot be saved as {str(path)!r}: there is no folder {str(path.parent)!r}."
        )


def refuse_to_overwrite(inputs: Iterable[Path], output: Path | None) -> None:
    """Exit with a message if the output is one of the files that are read."""
    if output is not None and any(is_same_file(output, path) for path in inputs):
        fail(f"{str(output)!r} is an input file: choose another name for the output.")


def is_same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths lead to the same file, also through links."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return False


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn errors of data, models and files into a message of one line, without a traceback."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of the output has left. That is not an error.
            sys.stderr.close()
            raise typer.Exit(0) from None
        if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
            fail("There is not enough memory: use --stream, fewer --trees or a larger "
                 "--min-samples-split.")  # fmt: skip
        where = f"{error.filename!r}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}.".replace("..", "."))
    except (ModuleNotFoundError, ValueError) as error:
        fail(str(error))


@contextmanager
def progress_shown(what: str, total: float | None) -> Iterator[Progress]:
    """Show a progress bar with the number of rows and the rate; ``total`` may be unknown."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    start = perf_counter()

    class Rate(TextColumn):
        def render(self, task: Any) -> Any:
            rate = task.completed / max(perf_counter() - start, 1e-9)
            self.text_format = f"{task.completed:,.0f} rows, {rate:,.0f} per second"
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


def print_result(values: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values on the standard output, as aligned text or as JSON."""
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
    """Return the names in a comma-separated text."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]
