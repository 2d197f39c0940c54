"""Names and values from files, made safe to show on a terminal, in a plot or in a message."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape invisible characters. A terminal could take some of them for a command."""
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape", "surrogatepass").decode()
        for mark in text
    )


MOST_LETTERS = 60
"""Longest label in a plot. A figure grows with its labels: one of 5,000 letters took 10 GB."""


def as_label(name: object) -> str:
    """Return a name as a label that matplotlib shows as it is. Dollars would begin a formula."""
    text = str(name)
    if len(text) > MOST_LETTERS:
        text = text[: MOST_LETTERS - 3] + "..."
    return printable(text).replace("$", r"\$")
