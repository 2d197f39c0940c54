"""A table of results, as Markdown and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    title: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    note: str = ""

    def add(self, *values: Any) -> None:
        self.rows.append(list(values))

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(_text(value) for value in row) + " |" for row in self.rows]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "note": self.note,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
