"""What every experiment writes, as Markdown and JSON, and the index page over all of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.table import Table

FOLDER = Path(__file__).parent


@dataclass
class Report:
    """The result of one experiment."""

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    figure: Any = None
    summary: Table | None = None
    """Paper and ours side by side, for the index page."""
    seconds: float | None = None
    """What a run takes, where it shares its work with another."""

    def check(self, claim: str, holds: bool, figures: str) -> None:
        """Keep whether a claim holds, and the figures that tell."""
        self.checks.append({"claim": claim, "holds": bool(holds), "figures": figures})

    def expect(self, what: str, found: float, expected: float, tolerance: float) -> None:
        """Check a figure against the one expected."""
        self.check(
            f"{what} within {tolerance:g} of {expected:g}",
            abs(found - expected) <= tolerance,
            f"{found:.4g}",
        )

    @property
    def holds(self) -> bool:
        """Whether all checks do."""
        return all(check["holds"] for check in self.checks)

    def checks_table(self) -> Table:
        """Return the checks as a table."""
        table = Table("What must hold", ["claim", "found", "holds"])
        for check in self.checks:
            table.add(check["claim"], check["figures"], "yes" if check["holds"] else "**no**")
        return table


def progress(n_steps: int, what: str) -> Iterator[int]:
    """Count up to ``n_steps``, with a bar where somebody watches."""
    return iter(tqdm(range(n_steps), desc=what, leave=False, disable=None))


def command(name: str, run: Callable[[bool, Path | None], Report]) -> None:
    """Run one experiment as ``python -m reproduction.NAME`` does."""
    parser = argparse.ArgumentParser(prog=f"python -m reproduction.{name}")
    parser.add_argument("--quick", action="store_true", help="small sizes, within a minute")
    parser.add_argument("--data", type=Path, help="folder of the data (default: MONDRIAN_DATA)")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder for the results (default: the experiment's own; for --quick, none)",
    )
    options = parser.parse_args()
    report = perform(name, run, options.quick, options.data, options.output)
    raise SystemExit(0 if report.holds else 1)


def perform(
    name: str,
    run: Callable[[bool, Path | None], Report],
    quick: bool,
    data: Path | None,
    output: Path | None,
) -> Report:
    """Run one experiment, print its tables, and write them where they belong."""
    start = time.perf_counter()
    report = run(quick, data)
    seconds = time.perf_counter() - start if report.seconds is None else report.seconds
    folder = output if output is not None or quick else FOLDER / name
    print("\n\n".join(table.markdown() for table in [*report.tables, report.checks_table()]))
    if folder is not None:
        write(report, folder, name, quick, seconds)
        if folder == FOLDER / name:
            write_index()
        print(f"\nWritten to {folder} after {_duration(seconds)}.")
    return report


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def write(report: Report, folder: Path, name: str, quick: bool, seconds: float) -> None:
    """Write ``result.md`` and ``result.json``, and the picture, if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("mondrian-forest", "numpy", "scikit-learn")},
    }
    size = "small sizes" if quick else "full size"
    made = (
        f"Made by `python -m reproduction.{name}{' --quick' if quick else ''}`, {size}, in "
        f"{_duration(seconds)} ({', '.join(f'{k} {v}' for k, v in machine.items())})."
    )
    parts = [f"# {report.title}", report.about.strip(), made]
    if report.figure is not None:
        report.figure.savefig(folder / "figure.png", dpi=110)
        parts.append(f"![{report.title}](figure.png)")
    parts += [table.markdown() for table in [*report.tables, report.checks_table()]]
    if report.notes:
        parts += ["## Where the paper and we differ", *(f"- {note}" for note in report.notes)]
    (folder / "result.md").write_text("\n\n".join(parts) + "\n")
    content = {
        "title": report.title,
        "quick": quick,
        "seconds": round(seconds),
        "machine": machine,
        "summary": report.summary and report.summary.as_dict(),
        "checks": report.checks,
        "tables": [table.as_dict() for table in report.tables],
        "data": report.data,
    }
    (folder / "result.json").write_text(json.dumps(content, indent=1) + "\n")


def write_index(folder: Path = FOLDER) -> None:
    """Write README.md: the results of the last full runs, paper and ours side by side."""
    parts = [(folder / "introduction.md").read_text().strip()]
    for name in ("figure_2", "table_1", "table_2", "table_3"):
        path = folder / name / "result.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        checks = result["checks"]
        kept = sum(check["holds"] for check in checks)
        parts.append(f"## {result['title']}")
        if (folder / name / "figure.png").exists():
            parts.append(f"![{result['title']}]({name}/figure.png)")
        if result["summary"] is not None:
            rows = result["summary"]["rows"]
            table = Table("", list(rows[0]), [list(row.values()) for row in rows])
            parts += [result["summary"]["note"], table.markdown().removeprefix("## ").strip()]
        parts.append(
            f"`python -m reproduction.{name}`, {_duration(result['seconds'])}; {kept} of "
            f"{len(checks)} checks hold. [All figures, and where we differ]({name}/result.md)."
        )
    (folder / "README.md").write_text("\n\n".join(filter(None, parts)) + "\n")
