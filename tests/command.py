"""The command as a user runs it: in a process of its own."""

import contextlib
import io
import os
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

COMMAND = [sys.executable, "-c", "from mondrian_forest.cli import main; main()"]
ENVIRONMENT = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}


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
    code: int
    stdout: str
    stderr: str


def run_here(*arguments):
    """Run the command in this process, which is much faster."""
    from mondrian_forest.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv = ["mondrian", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    out.flush()
    err.flush()
    return Outcome(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


def refuse_here(*arguments, code=1):
    """Run what must fail in this process: one line, and nothing on the standard output."""
    done = run_here(*arguments)
    assert (done.code, done.stdout) == (code, ""), done
    assert done.stderr.strip().count("\n") == 0, done.stderr
    return done.stderr


def succeed_here(*arguments):
    done = run_here(*arguments)
    assert done.code == 0, done.stderr
    return done
