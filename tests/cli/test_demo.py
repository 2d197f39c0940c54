import os
import subprocess
import sys

import pytest

from command import COMMAND, ENVIRONMENT, run


def test_it_prints_a_table_and_saves_a_picture(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in the gap" in done.stdout
    assert "inside their 90% interval" in done.stdout
    assert (tmp_path / "mondrian-demo.png").stat().st_size > 10_000
    assert "mondrian-demo.png" in done.stderr


def test_the_seed_decides_what_it_shows(tmp_path):
    tables = [
        run("demo", "--seed", seed, "--picture", tmp_path / "p.png").stdout.split("12 trees")[0]
        for seed in (1, 1, 2)
    ]
    assert tables[0] == tables[1] != tables[2]


class TestWithoutCompiledCode:
    """The first answer should not have to wait for a compiler."""

    @pytest.fixture
    def uncompiled(self, tmp_path):
        """The demo, run with an empty cache of compiled code."""
        environment = {**ENVIRONMENT, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        environment.pop("NUMBA_DISABLE_JIT", None)
        return subprocess.run(
            [*COMMAND, "demo", "--picture", tmp_path / "p.png"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )

    def test_nothing_is_compiled(self, uncompiled, tmp_path):
        assert uncompiled.returncode == 0
        assert (tmp_path / "p.png").exists()
        assert not list((tmp_path / "cache").rglob("*.nbc"))

    def test_it_says_so_without_warnings(self, uncompiled):
        assert "without compilation" in uncompiled.stdout
        assert "Your first fit compiles the code" in uncompiled.stderr
        assert "Warning" not in uncompiled.stderr

    @pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
    def test_it_shows_the_same_as_compiled_code(self, uncompiled, tmp_path):
        code = """
import sys
sys.argv = ["mondrian", "demo"]
from mondrian_forest._core.arrays import kernel
from mondrian_forest.cli import main
kernel.has_cached_code = lambda _: True
main()
"""
        compiled = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "without compilation" not in compiled.stdout
        assert compiled.stdout.split("12 trees")[0] == uncompiled.stdout.split("12 trees")[0]

    def test_the_exit_code_is_passed_on(self, tmp_path):
        environment = {**ENVIRONMENT, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [*COMMAND, "demo", "--picture", "demo.nonsense"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "cannot be saved as" in done.stderr


@pytest.mark.parametrize("picture", ["/no/such/folder/demo.png", "/", "demo.nonsense"])
def test_a_picture_that_cannot_be_saved_ends_with_a_message(picture, tmp_path):
    done = run("demo", "--picture", picture, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be saved as" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_without_an_ending_becomes_a_png(tmp_path):
    done = run("demo", "--picture", tmp_path / "bands")
    assert done.returncode == 0
    assert (tmp_path / "bands.png").exists()
