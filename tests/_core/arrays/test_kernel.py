import os
import subprocess
import sys

import pytest

from mondrian_forest._core.arrays.kernel import IS_COMPILED

needs_compiler = pytest.mark.skipif(not IS_COMPILED, reason="compilation is off")
CODE = """
import numpy as np
from mondrian_forest._core.arrays.kernel import doubled, has_cached_code
print(has_cached_code(doubled))
doubled(np.ones((2, 1)))
print(has_cached_code(doubled))
"""


def printed(**variables):
    """Return whether there was cached code before and after a call, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@needs_compiler
def test_a_kernel_has_cached_code_once_it_was_compiled(tmp_path):
    assert printed(NUMBA_CACHE_DIR=str(tmp_path)) == ["False", "True"]
    assert printed(NUMBA_CACHE_DIR=str(tmp_path)) == ["True", "True"]


@needs_compiler
def test_a_damaged_cache_has_no_code(tmp_path):
    printed(NUMBA_CACHE_DIR=str(tmp_path))
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(b"nonsense")
    assert printed(NUMBA_CACHE_DIR=str(tmp_path))[0] == "False"


def test_plain_functions_have_no_cached_code(tmp_path):
    found = printed(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="1")
    assert found == ["False", "False"]
