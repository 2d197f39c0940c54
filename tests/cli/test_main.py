"""The help, the version, and errors before any subcommand runs."""

import subprocess
import sys

import pytest

from command import run


@pytest.mark.parametrize("arguments", [("demo", "--seed", "x"), ("nonsense",), ("demo", "--what")])
def test_wrong_arguments_exit_with_code_2_and_no_traceback(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_version_and_the_help_need_no_slow_imports():
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


def test_without_typer_a_message_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from mondrian_forest.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'mondrian-forest[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
