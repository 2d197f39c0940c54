"""Which rows of which file a table holds, so that errors can name the row.

The places are kept in the table's metadata. They are lost when only some of the rows are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

_KEY = b"mondrian_forest.place"


def placed(table: Any, path: str | os.PathLike[str], first_row: int) -> Any:
    """Return a table with a note that its rows come from a file, from ``first_row`` on."""
    return _with_places(table, [[os.fspath(path), first_row, len(table)]])


def placed_as(table: Any, parts: Sequence[Any]) -> Any:
    """Return a table with a note that it consists of the rows of ``parts``, in this order."""
    return _with_places(table, [place for part in parts for place in _places(part)])


def row_name(table: Any, row: int) -> str:
    """Return the name of a row for a message: its number, and its file if that is known."""
    n_before = 0
    for path, first_row, n_rows in _places(table):
        if row < n_before + n_rows:
            return f"row {first_row + row - n_before + 1:,} of {path!r}"
        n_before += n_rows
    return f"row {row + 1:,}"


def _with_places(table: Any, places: list[Any]) -> Any:
    metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(places)}
    return table.replace_schema_metadata(metadata)


def _places(table: Any) -> list[Any]:
    found: list[Any] = json.loads((table.schema.metadata or {}).get(_KEY, b"[]"))
    # A slice or a filtered table keeps the metadata of the whole table, which is then wrong.
    return found if sum(n_rows for _, _, n_rows in found) == len(table) else []
