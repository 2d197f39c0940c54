"""Names and values from files, as they may be shown on a terminal, in a plot or in a message."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape what a terminal would take for a command, and what nobody can see."""
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape", "surrogatepass").decode()
        for mark in text
    )


MOST_LETTERS = 60
"""Of a label in a plot: a figure grows with its labels, and one of 5,000 letters took 10 GB."""


def as_label(name: object) -> str:
    """Return a name as a label that matplotlib shows as it is: dollars would begin a formula."""
    text = str(name)
    if len(text) > MOST_LETTERS:
        text = text[: MOST_LETTERS - 3] + "..."
    return printable(text).replace("$", r"\$")
