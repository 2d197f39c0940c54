"""The ``mondrian`` command: one file for each subcommand."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer
    except ModuleNotFoundError:
        sys.exit("The mondrian command needs typer and rich: pip install 'mondrian-forest[cli]'.")

    from .demo import demo

    app = typer.Typer(
        help="Mondrian forests: regression with a full predictive distribution.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)  # keeps subcommands apart while there is only one
    app.command()(demo)
    app()
