import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_prediction_bands(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "prediction_bands.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prediction_bands.png").stat().st_size > 10_000
    assert "far outside" in done.stdout
