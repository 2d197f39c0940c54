"""Forests in model files: an estimator with its state, and how tables become its features."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from ..io.container import ModelFileError
from . import model_file
from .parameters import parameters_of
from .sharing import read, with_state
from .state import ForestState

Forest = TypeVar("Forest")


def save_forest(
    forest: Any,
    path: str | os.PathLike[str],
    *,
    rows: bool = True,
    table: str | None = None,
) -> None:
    """Save an estimator, with a text that says how tables become features."""

    def look(state: ForestState) -> None:
        parameters_of(forest)  # set after the fit, they might be refused when it is loaded
        kept = state if rows else state.frozen()
        model_file.write(path, forest.get_params(deep=False), kept, table)

    read(forest, look)


def load_forest(
    estimator: type[Forest], path: str | os.PathLike[str], *, mmap: bool = False
) -> tuple[Forest, str | None]:
    """Return the estimator of a file, and what the file says about tables."""
    parameters, state, table = model_file.read(path, mapped=mmap)
    try:
        forest = estimator(**parameters)
        parameters_of(forest)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {error}") from None
    return with_state(forest, state), table
