"""The error for tables that cannot be used, and phrases that its messages share."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST_QUOTE = 40
_MOST_NAMES = 12


class TableError(ValueError):
    """A table cannot be read, or does not have the columns or values that are needed."""


def quoted(value: str) -> str:
    """Return a value or name in quotes, with escapes, and short enough for a message."""
    if len(value) > _LONGEST_QUOTE:
        value = value[: _LONGEST_QUOTE - 3] + "..."
    return repr(value)


def listed(items: Sequence[str]) -> str:
    """Return the first few items, separated by commas."""
    return ", ".join(items[:_MOST_NAMES]) + (", ..." if len(items) > _MOST_NAMES else "")


def no_such_column(name: str, names: Sequence[str], where: str) -> str:
    """Return a message that says which column is not there, and which columns there are."""
    hint = ""
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        hint = " If this should be several columns, give the delimiter (--delimiter)."
    # Thousands of names are quoted only as far as they are listed.
    known = listed([quoted(known) for known in names[: _MOST_NAMES + 1]])
    return f"There is no column {quoted(name)} in {where}. Its columns are {known}.{hint}"
