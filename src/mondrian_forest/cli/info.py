"""``mondrian info``: what is inside a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import Json, faults_told, show


def info(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    json: Json = False,
) -> None:
    """Tell what a model file holds: rows seen, columns, trees, hyperparameters, sizes.

    Example: mondrian info houses.mf
    """
    with faults_told():
        from mondrian_forest.tables.model import describe

        show(describe(model), json)
