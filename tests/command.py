"""The command as a user runs it: in a process of its own."""

import os
import subprocess
import sys

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
