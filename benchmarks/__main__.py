"""Run the benchmarks: print tables, and write them as Markdown and JSON.

python -m benchmarks                       all of them, about ten minutes
python -m benchmarks speed startup         some of them
python -m benchmarks --quick               tiny sizes, to see that everything runs
python -m benchmarks speed --data DIR      with the folder that holds the flight data
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

from . import (
    accuracy,
    calibration,
    command,
    distributed,
    files,
    growth,
    honesty,
    mean_functions,
    online,
    optimization,
    outliers,
    speed,
    startup,
    streams,
)
from .table import Table

JOBS = {
    "speed": speed.run,
    "growth": growth.run,
    "online": online.run,
    "streams": streams.run,
    "startup": startup.run,
    "files": files.run,
    "command": command.run,
    "optimization": optimization.run,
    "accuracy": accuracy.run,
    "calibration": calibration.run,
    "outliers": outliers.run,
    "honesty": honesty.run,
    "mean_functions": mean_functions.run,
    "distributed": distributed.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "jobs", nargs="*", metavar="job", help=f"which to run: {', '.join(JOBS)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("MONDRIAN_DATA"),
        help="folder of the real data (default: the environment variable MONDRIAN_DATA)",
    )
    parser.add_argument(
        "--output", type=Path, help="folder for results.md and results.json (default: none)"
    )
    options = parser.parse_args()
    if options.data is not None and not Path(options.data).is_dir():
        parser.error(f"{options.data} is not a folder")
    unknown = [job for job in options.jobs if job not in JOBS]
    if unknown:
        parser.error(f"unknown job {unknown[0]!r}: choose from {', '.join(JOBS)}")

    tables: list[Table] = []
    for job in options.jobs or JOBS:
        for table in JOBS[job](options.quick, options.data):
            print(table.markdown(), end="\n\n", flush=True)
            tables.append(table)
    if options.output is not None:
        write(tables, options.output)


def write(tables: list[Table], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    machine = {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("mondrian-forest", "numba", "numpy", "scikit-learn")},
    }
    lines = ["# Results", "", ", ".join(f"{name} {value}" for name, value in machine.items())]
    (folder / "results.md").write_text(
        "\n\n".join(["\n".join(lines), *(table.markdown() for table in tables)]) + "\n"
    )
    content = {"machine": machine, "tables": [table.as_dict() for table in tables]}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
