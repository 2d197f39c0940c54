"""Where compiled code cannot be kept, or was damaged, everything works all the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mondrian_forest
from mondrian_forest._core.arrays.kernel import IS_COMPILED

PACKAGE = Path(mondrian_forest.__file__).parent
USE = """
import numpy as np
from mondrian_forest import MondrianForestRegressor
from mondrian_forest._core.arrays.kernel import doubled
for dtype in (np.float64, np.int32):
    assert doubled(np.ones((2, 3), dtype))[:2].tolist() == [[1, 1, 1], [1, 1, 1]]
"""

needs_compiler = pytest.mark.skipif(not IS_COMPILED, reason="compilation is off")


def python(code, **variables):
    """Run ``code`` in a process of its own, and return what it wrote to the standard error."""
    names = ("NUMBA_CACHE_DIR", "PYTHONPATH", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(PACKAGE.parent), **environment, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def sealed(tmp_path):
    """Variables for a copy of the package where no code can be kept, not even by root.

    Files stand where Numba would make folders: a superuser may write to read-only folders.
    """
    package = shutil.copytree(
        PACKAGE, tmp_path / "site" / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    for place in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (place / "__pycache__").touch()
    (tmp_path / "home").touch()
    return {"PYTHONPATH": str(package.parent), "HOME": str(tmp_path / "home")}


@needs_compiler
def test_an_installation_without_any_writable_folder_works_and_says_so_once(sealed):
    said = python(USE, **sealed)
    assert said.count("NUMBA_CACHE_DIR") == 1
    assert len(said.splitlines()) == 1


@needs_compiler
def test_a_cache_folder_that_is_named_is_used_where_there_is_no_other(sealed, tmp_path):
    assert python(USE, **sealed, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == ""
    assert list((tmp_path / "cache").rglob("kernel.doubled-*.nbc"))


def test_importing_the_package_compiles_and_says_nothing(sealed):
    assert python("import mondrian_forest", **sealed) == ""


def test_the_demo_runs_where_nothing_can_be_kept(sealed, tmp_path):
    code = "import sys; sys.argv[1:] = ['demo']; from mondrian_forest.cli import main; main()"
    said = python(f"import os; os.chdir({str(tmp_path)!r}); {code}", **sealed)
    assert (tmp_path / "mondrian-demo.png").exists()
    assert "NUMBA_CACHE_DIR" not in said


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache folder with the code of a kernel for two types of numbers."""
    cache = tmp_path_factory.mktemp("cache")
    python(USE, NUMBA_CACHE_DIR=str(cache))
    return cache


@needs_compiler
@pytest.mark.parametrize(("ending", "share"), [("nbi", 0.0), ("nbi", 0.5), ("nbc", 0.5)])
def test_damaged_compiled_code_is_replaced(ending, share, compiled, tmp_path):
    cache = shutil.copytree(compiled, tmp_path / "cache")
    sizes = {path: path.stat().st_size for path in cache.rglob(f"*.{ending}")}
    for path, size in sizes.items():
        os.truncate(path, int(share * size))
    assert python(USE, NUMBA_CACHE_DIR=str(cache)) == ""
    assert {path: path.stat().st_size for path in sizes} == pytest.approx(sizes, rel=0.1)


@needs_compiler
def test_compiled_code_of_other_types_is_not_used(compiled, tmp_path):
    """Two processes that compile at the same time can leave each other's files."""
    cache = shutil.copytree(compiled, tmp_path / "cache")
    one, two = cache.rglob("kernel.doubled-*.nbc")
    shutil.move(one, cache / "other")
    shutil.move(two, one)
    shutil.move(cache / "other", two)
    assert python(USE, NUMBA_CACHE_DIR=str(cache)) == ""


@needs_compiler
def test_a_cache_that_cannot_be_written_any_more_costs_nothing_but_time(tmp_path):
    code = USE.replace(
        "\nfor",
        f"""
import shutil
from pathlib import Path
for folder in Path({str(tmp_path)!r}).iterdir():
    shutil.rmtree(folder)
    folder.touch()
for""",
    )
    said = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert said.count("NUMBA_CACHE_DIR") == 1
    assert str(tmp_path) in said
