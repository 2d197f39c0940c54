"""How long a new process needs: import, first fit and prediction, with and without the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
MondrianForestRegressor(10, n_jobs=2).fit(X, X[:, 0]).predict(X, return_std=True)
print(json.dumps([package, estimator, perf_counter() - start]))
"""


def run(_quick: bool, _data: Path | None) -> Iterator[Table]:
    table = Table(
        "Start of a new process, seconds",
        ["kernels", "import mondrian_forest", "and its estimator", "first fit and predict"],
        note="1000 rows, 8 features, 10 trees. The estimator's import is mostly scikit-learn's.",
    )
    with tempfile.TemporaryDirectory() as cache:
        for name in ("compiled anew", "from the cache"):
            output = subprocess.run(
                [sys.executable, "-c", CHILD],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
            ).stdout
            table.add(name, *json.loads(output))
    yield table
