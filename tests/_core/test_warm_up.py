import os
import subprocess
import sys

from mondrian_forest._core.warm_up import compile_prediction

CODE = """
import numpy as np
from mondrian_forest import MondrianForestRegressor
from mondrian_forest._core.predict import _add_tree_moments, route
from mondrian_forest._core.spread import score_spreads
from mondrian_forest._core.warm_up import compile_prediction

compile_prediction()
kernels = [route, _add_tree_moments, score_spreads]
before = [kernel.signatures for kernel in kernels]
X = np.random.default_rng(0).random((60, 1))
MondrianForestRegressor(2, random_state=0).fit(X, X[:, 0]).predict_distribution(X)
assert [kernel.signatures for kernel in kernels] == before != [[], [], []]
"""


def test_it_compiles_what_a_forest_needs():
    """For other types it would be of no use, and nobody would notice."""
    compile_prediction()
    compiled = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", CODE], check=True, env=compiled)
