import os
import subprocess
import sys

import pytest

needs_compiler = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)
CODE = """
import numpy as np
from mondrian_forest._core.arrays.kernel import doubled, has_cached_code
print(has_cached_code(doubled))
doubled(np.ones((2, 1)))
print(has_cached_code(doubled))
"""


def run(**environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@needs_compiler
def test_a_kernel_has_cached_code_once_it_was_compiled(tmp_path):
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == ["False", "True"]
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == ["True", "True"]


@needs_compiler
def test_a_damaged_cache_counts_as_empty(tmp_path):
    run(NUMBA_CACHE_DIR=str(tmp_path))
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(b"nonsense")
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[0] == "False"


def test_plain_functions_have_no_cached_code(tmp_path):
    assert run(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="1") == ["False", "False"]
