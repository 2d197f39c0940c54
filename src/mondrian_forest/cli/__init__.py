"""The ``mondrian`` command. Each subcommand has a file of its own."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer
    except ModuleNotFoundError:
        sys.exit("The mondrian command needs typer and rich: pip install 'mondrian-forest[cli]'.")

    from .._version import __version__
    from .demo import demo
    from .evaluate import evaluate
    from .fit import fit
    from .info import info
    from .optimize import optimize
    from .predict import predict
    from .update import update

    app = typer.Typer(
        help="Mondrian forests: regression with a full predictive distribution.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(invoke_without_command=True)
    def _version(
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            typer.echo(f"mondrian-forest {__version__}")
            raise typer.Exit

    for command in (demo, fit, update, predict, evaluate, optimize, info):
        app.command()(command)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
