"""``mondrian demo``, the help, and what goes wrong before any command."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from command import ENVIRONMENT, close_figures, refuse_here, run, run_here, succeed_here

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_prints_a_table_and_saves_a_picture(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in the gap" in done.stdout
    assert "inside their 90% interval" in done.stdout
    assert (tmp_path / "mondrian-demo.png").stat().st_size > 10_000
    assert "mondrian-demo.png" in done.stderr


def test_the_seed_decides_what_the_demo_shows(tmp_path):
    shown = [
        succeed_here("demo", "--seed", seed, "--picture", tmp_path / "p.png").stdout
        for seed in (1, 1, 2)
    ]
    tables = [text.split("12 trees")[0] for text in shown]
    assert tables[0] == tables[1] != tables[2]


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
    from mondrian_forest._core.mixtures.predict import route
    assert hasattr(route, "signatures") == {is_compiled}
"""
    environment = {
        name: value for name, value in ENVIRONMENT.items() if name != "NUMBA_DISABLE_JIT"
    }
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
    done = run_here("demo", "--picture", picture, cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be saved as" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_without_ending_becomes_a_png(tmp_path):
    succeed_here("demo", "--picture", tmp_path / "bands")
    assert (tmp_path / "bands.png").exists()


@pytest.mark.parametrize("arguments", [("demo", "--seed", "x"), ("nonsense",), ("demo", "--what")])
def test_wrong_arguments_are_refused_without_a_traceback(arguments):
    refuse_here(*arguments, code=2)


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


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "prediction_bands.py"), run_name="__main__")
    close_figures()
    assert (tmp_path / "prediction_bands.png").stat().st_size > 10_000
    assert "far outside" in capsys.readouterr().out
