"""A record of a run that survives a crash: one JSON object a line, appended as things happen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FORMAT = 1


class JournalError(ValueError):
    """The file is no journal, or that of another run."""


class Journal:
    """An append-only file; what a crash left of a last line is dropped when it is opened again.

    Parameters
    ----------
    path : path
        Created if absent.
    header : dict
        What the run is: a file with another header is refused, except for the seed, which is taken
        from the file where the header has None.
    """

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
        self.path = Path(path)
        self.header = {"format": FORMAT, **header}
        self.entries: list[dict[str, Any]] = []
        if not self.is_new:
            self._read()

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines()
        try:
            records = [json.loads(line) for line in lines]
        except ValueError:
            number = next(n for n, line in enumerate(lines, 1) if not _is_json(line))
            raise JournalError(f"{self.path}: line {number} is no JSON.") from None
        if records:
            found = records[0]
            if not isinstance(found, dict) or "format" not in found:
                raise JournalError(f"{self.path} is no journal of an optimiser.")
            if found["format"] != FORMAT:
                raise JournalError(
                    f"{self.path} has format {found['format']!r}, and this version reads {FORMAT}."
                )
            asked = dict(self.header)
            if asked.get("seed") is None:
                asked["seed"] = found.get("seed")
            for name in asked:
                if found.get(name) != json.loads(json.dumps(asked[name])):
                    raise JournalError(
                        f"{self.path} is the journal of another run: its {name} is "
                        f"{found.get(name)!r}, not {asked[name]!r}; name another file."
                    )
            self.header = asked
            self.entries = records[1:]
        if whole < len(content):
            with self.path.open("r+b") as file:
                file.truncate(whole)

    @property
    def is_new(self) -> bool:
        """Whether nothing has been written yet."""
        return not self.path.exists() or self.path.stat().st_size == 0

    def append(self, entry: dict[str, Any]) -> None:
        """Write one line, and the header before the first."""
        lines = [self.header, entry] if self.is_new else [entry]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        with self.path.open("ab") as file:
            file.write(text.encode())


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
