"""Peers whose requirements clash with ours: each works in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

from .scores import Gaussian, Prediction, Quantiles

WORKER = Path(__file__).with_name("worker.py")
REQUIREMENTS = {
    "treeffuser": ("treeffuser==0.2.0", "numpy<2"),
    "pgbm": ("pgbm==2.3.0", "numpy<2", "scikit-learn==1.5.2"),
    "stochtree": ("stochtree==0.4.5",),
}
LEVELS = np.arange(1, 20) / 20


def environment(name: str, folder: Path) -> Path | None:
    """Return the interpreter of a peer, installed now if need be; None if that fails."""
    home = folder / name
    interpreter = home / "bin" / "python"
    if interpreter.is_file():
        return interpreter
    print(f"{name} is being installed in an environment of its own.", flush=True)
    venv.create(home, with_pip=True)
    command = [str(interpreter), "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]]
    if subprocess.run(command, check=False).returncode == 0:
        return interpreter
    interpreter.unlink()
    print(f"{name} is left out: it cannot be installed here.")
    return None


class Elsewhere:
    """A peer that is fitted when it predicts, in a process of its own.

    ``times`` has the wall and processor seconds of fit and prediction afterwards.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, seed: int, name: str, python: str) -> None:
        self._given = {"X_train": X, "y_train": y, "seed": np.array(seed)}
        self._name, self._python = name, python
        self.times: np.ndarray | None = None

    def __call__(self, rows: np.ndarray) -> Prediction:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.savez(folder / "rows.npz", X_test=rows, **self._given)
            command = [self._python, str(WORKER), self._name, name]
            subprocess.run(command, check=True, stdout=sys.stderr)
            with np.load(folder / "found.npz") as found:
                self.times = found["times"]
                if "draws" in found:
                    return Quantiles(LEVELS, np.quantile(found["draws"], LEVELS, axis=1).T)
                return Gaussian(found["mean"], found["std"])
