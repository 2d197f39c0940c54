"""Compare the quality of predictions with that of other packages, on real tables.

python -m benchmarks.quality --data DIR                     everything, hours
python -m benchmarks.quality --quick                        tiny sizes, within seconds
python -m benchmarks.quality --data DIR --cache C           goes on where it was interrupted
python -m benchmarks.quality --data DIR --methods ours,RandomForest --tables regression
python -m benchmarks.quality --data DIR --environments E    with PGBM, BART and Treeffuser, too

When other programs use the machine, set OMP_WAIT_POLICY=passive and OPENBLAS_NUM_THREADS=1, or its
threads wait for each other in loops (GP on housing: 42 s instead of 8 s).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..__main__ import write
from . import UnknownName, run
from .tables import N_SPLITS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one split")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("MONDRIAN_DATA"),
        help="folder of the real data (default: the environment variable MONDRIAN_DATA)",
    )
    parser.add_argument("--tables", default="", help="names or groups: regression, flights, large")
    parser.add_argument("--methods", default="", help="names or groups: ours, peers, ablation")
    parser.add_argument(
        "--cache", type=Path, help="folder where each result is kept for the next run"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        help="folder for peers that need an environment of their own (PGBM, BART, Treeffuser)",
    )
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="random splits of each table")
    parser.add_argument("--test-rows", type=int, help="predict only so many rows of each split")
    parser.add_argument(
        "--output", type=Path, help="folder for results.md and results.json (default: none)"
    )
    options = parser.parse_args()
    if options.data is not None and not options.data.is_dir():
        parser.error(f"{options.data} is not a folder")
    tables, methods = (
        [name.strip() for name in text.split(",") if name.strip()]
        for text in (options.tables, options.methods)
    )
    found = []
    try:
        for table in run(
            options.quick,
            options.data,
            tables,
            methods,
            options.cache,
            options.environments,
            options.splits,
            options.test_rows,
        ):
            print(table.markdown(), end="\n\n", flush=True)
            found.append(table)
    except UnknownName as error:
        parser.error(str(error))
    if options.output is not None:
        write(found, options.output)


if __name__ == "__main__":
    main()
