"""Run parts of the benchmark of streams, or draw its picture.

python -m benchmarks.streams online cost        some of its tables
python -m benchmarks.streams drift --cache DIR  keep how each method followed each stream
python -m benchmarks.streams pictures FOLDER    draw the pictures of the documentation
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import PARTS, run
from .picture import draw

PICTURES = "pictures"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help=f"which to run: {', '.join(PARTS)} (default: all), or {PICTURES} and a folder",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("MONDRIAN_DATA"),
        help="folder of the real data (default: the environment variable MONDRIAN_DATA)",
    )
    parser.add_argument("--cache", type=Path, help="folder that keeps how streams were followed")
    options = parser.parse_args()
    if options.parts[:1] == [PICTURES]:
        if len(options.parts) != 2:
            parser.error("pictures needs the name of one folder")
        draw(Path(options.parts[1]), options.quick, options.cache)
        return
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    data = None if options.data is None else Path(options.data)
    for table in run(options.quick, data, tuple(options.parts) or PARTS, options.cache):
        print(table.markdown(), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
