"""``mondrian demo``, the help, and what goes wrong before any command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import run


def test_the_demo_prints_a_table_and_saves_a_picture(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in the gap" in done.stdout
    assert "inside their 90% interval" in done.stdout
    assert (tmp_path / "mondrian-demo.png").stat().st_size > 10_000
    assert "mondrian-demo.png" in done.stderr


def test_the_seed_decides_what_the_demo_shows(tmp_path):
    shown = [
        run("demo", "--seed", seed, "--picture", tmp_path / "p.png").stdout.split("12 trees")[0]
        for seed in (1, 1, 2)
    ]
    assert shown[0] == shown[1] != shown[2]


def test_it_shows_the_same_before_anything_was_compiled(tmp_path):
    """Nobody should wait for a compiler before the first answer."""
    code = """
import sys
sys.argv = ["mondrian", "demo"]
from mondrian_forest.cli import demo, main
demo._is_compiled = lambda: {is_compiled}
try:
    main()
finally:
    from mondrian_forest._core.mixtures.route import route
    assert hasattr(route, "signatures") == {is_compiled}
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    shown = [
        subprocess.run(
            [sys.executable, "-c", code.format(is_compiled=is_compiled)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        for is_compiled in (True, False)
    ]
    assert shown[0].stdout.split("12 trees")[0] == shown[1].stdout.split("12 trees")[0]
    assert "not compiled yet" in shown[1].stdout
    assert "Warning" not in shown[1].stderr
    assert "first fit compiles" in shown[1].stderr


@pytest.mark.parametrize("picture", ["/no/such/folder/demo.png", "/", "demo.nonsense"])
def test_a_picture_that_cannot_be_saved_is_one_sentence(picture, tmp_path):
    done = run("demo", "--picture", picture, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be saved as" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_without_ending_becomes_a_png(tmp_path):
    done = run("demo", "--picture", tmp_path / "bands")
    assert done.returncode == 0
    assert (tmp_path / "bands.png").exists()


@pytest.mark.parametrize("arguments", [("demo", "--seed", "x"), ("nonsense",), ("demo", "--what")])
def test_wrong_arguments_are_refused_without_a_traceback(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_version_and_the_help_come_without_slow_imports():
    assert run("--version").stdout.startswith("mondrian-forest ")
    text = run("--help").stdout
    for command in ("demo", "fit", "update", "predict", "evaluate", "optimize", "info"):
        assert f"  {command} " in text
        code = f"""
import sys
sys.argv = ["mondrian", "{command}", "--help"]
from mondrian_forest.cli import main
try:
    main()
except SystemExit:
    pass
assert not {{"numba", "sklearn", "pyarrow"}} & set(sys.modules)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Example: mondrian " in done.stdout


def test_shell_completion_is_offered():
    done = run("--show-completion", "bash")
    assert done.returncode == 0
    assert "_MONDRIAN_COMPLETE" in done.stdout or "complete" in done.stdout


def test_without_typer_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from mondrian_forest.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'mondrian-forest[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_example_runs(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "prediction_bands.py"
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prediction_bands.png").stat().st_size > 10_000
    assert "far outside" in done.stdout
