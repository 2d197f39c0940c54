"""Run the experiments: python -m reproduction [figure_2 table_1 ...] [--quick] [--data DIR]."""

from __future__ import annotations

import argparse
from pathlib import Path

from .figure_2.run import run as figure_2
from .report import perform
from .table_1.run import run as table_1
from .table_2.run import run as table_2
from .table_3.run import run as table_3

EXPERIMENTS = {
    "figure_2": figure_2,
    "table_1": table_1,
    "table_2": table_2,
    "table_3": table_3,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="small sizes, within a minute")
    parser.add_argument("--data", type=Path, help="folder of the data (default: MONDRIAN_DATA)")
    parser.add_argument("--output", type=Path, help="folder for the results")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"unknown experiment {unknown[0]!r}: choose from {', '.join(EXPERIMENTS)}")
    reports = [
        perform(
            name,
            EXPERIMENTS[name],
            options.quick,
            options.data,
            options.output and options.output / name,
        )
        for name in options.names or EXPERIMENTS
    ]
    raise SystemExit(0 if all(report.holds for report in reports) else 1)


if __name__ == "__main__":
    main()
