"""The command as a user runs it: in a process of its own, or here, which is much faster.

``run``, ``succeed`` and ``refuse`` start a process, which takes seconds. They are for signals,
pipes, environment variables, absent packages and exit codes. All else is tested with ``run_here``,
``succeed_here`` and ``refuse_here``.
"""

import contextlib
import io
import os
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

CODE = "import sys; sys.argv[0] = 'mondrian'; from mondrian_forest.cli import main; main()"
COMMAND = [sys.executable, "-c", CODE]
TERMINAL = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
NOT_OURS = (
    "FORCE_COLOR",
    "TTY_COMPATIBLE",
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD",  # which only our tests set
)
"""Variables of whoever runs the tests that would change what a command prints or does."""


def with_our_terminal(environment):
    """Return an environment for commands, the same on every machine."""
    kept = {name: value for name, value in environment.items() if name not in NOT_OURS}
    return {**kept, **TERMINAL}


ENVIRONMENT = with_our_terminal(os.environ)


def run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        **options,
    )


def succeed(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def refuse(*arguments, code=1, **options):
    """Run what must fail: one sentence, no traceback. Returns it."""
    done = run(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


class Outcome(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_here(*arguments, cwd="."):
    """Run the command in this process, and leave nothing behind in it."""
    from mondrian_forest.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["mondrian", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, with_our_terminal(os.environ), clear=True),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            close_figures()
    out.flush()
    err.flush()
    return Outcome(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


def close_figures():
    """Close the plots that a command leaves open: Matplotlib warns when there are many."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


def refuse_here(*arguments, code=1, **options):
    """Run what must fail in this process, with nothing on the standard output.

    It must say one line. Wrong usage, which has code 2, may come with a line on how to use it.
    """
    done = run_here(*arguments, **options)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.strip().count("\n") == 0, done.stderr
    return done.stderr


def succeed_here(*arguments, **options):
    done = run_here(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done
