"""``mondrian info``: show what is inside a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import Json, errors_as_messages, print_result


def info(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    json: Json = False,
) -> None:
    """Show what a model file contains: rows seen, columns, trees, hyperparameters, sizes.

    Example: mondrian info houses.mf
    """
    with errors_as_messages():
        from mondrian_forest.tables.model import describe

        print_result(describe(model), json)
