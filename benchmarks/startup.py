"""How long a new process needs: import, first fit and prediction, with and without the cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import mondrian_forest

from .table import Table

CHILD = """
import json
from time import perf_counter
start = perf_counter()
import mondrian_forest
package = perf_counter() - start
from mondrian_forest import MondrianForestRegressor
estimator = perf_counter() - start
import numpy as np
X = np.random.default_rng(0).random((1000, 8))
start = perf_counter()
forest = MondrianForestRegressor(10, n_jobs=2).fit(X, X[:, 0])
forest.predict(X, return_std=True)
print(json.dumps([package, estimator, perf_counter() - start]))
found = forest.predict_distribution(X[:10])
found.interval(0.9), found.cdf(X[:10, 0]), found.logpdf(X[:10, 0])  # for the demo
"""


def run(_quick: bool, _data: Path | None) -> Iterator[Table]:
    table = Table(
        "Start of a new process, seconds",
        [
            "kernels",
            "import mondrian_forest",
            "and its estimator",
            "first fit and predict",
            "mondrian demo",
        ],
        note="The default with 10 trees, 1000 rows, 8 features. Importing the estimator is mostly "
        "importing scikit-learn. `mondrian demo` compiles nothing: if there is no compiled code "
        "yet, it fits its small forest without compilation.",
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "mondrian_forest")  # that has never compiled anything
        shutil.copytree(
            Path(mondrian_forest.__file__).parent,
            copy,
            ignore=shutil.ignore_patterns("*.nbi", "*.nbc"),
        )
        environment = {**os.environ, "PYTHONPATH": folder}
        environment.pop("NUMBA_CACHE_DIR", None)
        demo = "import sys; sys.argv[1:] = ['demo']; from mondrian_forest.cli import main; main()"
        for name in ("compiled anew", "from the cache"):
            start = perf_counter()
            run_in(folder, demo, environment)
            seconds = perf_counter() - start
            table.add(name, *json.loads(run_in(folder, CHILD, environment)), seconds)
    yield table


def run_in(folder: str, code: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environment,
    ).stdout
