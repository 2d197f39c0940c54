"""Fit and ask one peer, in an environment of its own: this file imports nothing of the project.

The arguments are the name of the peer and a folder. ``rows.npz`` in it has X_train, y_train,
X_test and the seed. ``found.npz`` will have the seconds of fit and prediction, and for each test
row the mean and the standard deviation, or draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

N_THREADS = 2
N_DRAWS = 50
MOST_AT_A_TIME = 1_000
Predict = Callable[[np.ndarray], dict[str, np.ndarray]]


def fit_treeffuser(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    from treeffuser import Treeffuser

    model = Treeffuser(seed=seed, n_jobs=N_THREADS)
    model.fit(X, y)

    def predict(rows: np.ndarray) -> dict[str, np.ndarray]:
        draws = [
            model.sample(rows[start : start + MOST_AT_A_TIME], n_samples=N_DRAWS, seed=seed)
            for start in range(0, len(rows), MOST_AT_A_TIME)
        ]
        return {"draws": np.concatenate([np.reshape(one, (N_DRAWS, -1)).T for one in draws])}

    return predict


def fit_pgbm(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    from pgbm.sklearn import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=seed).fit(X, y)

    def predict(rows: np.ndarray) -> dict[str, np.ndarray]:
        mean, std = model.predict(rows, return_std=True)
        return {"mean": mean, "std": std}

    return predict


def fit_bart(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    from stochtree import BARTModel

    model = BARTModel()
    model.sample(X, y, general_params={"random_seed": seed, "num_threads": N_THREADS})
    random = np.random.default_rng(seed)

    def predict(rows: np.ndarray) -> dict[str, np.ndarray]:
        means = np.asarray(model.predict(rows, terms="y_hat", type="posterior"))
        noise = np.sqrt(np.asarray(model.global_var_samples))
        return {"draws": means + noise * random.standard_normal(means.shape)}

    return predict


FITS: dict[str, Callable[[np.ndarray, np.ndarray, int], Predict]] = {
    "treeffuser": fit_treeffuser,
    "pgbm": fit_pgbm,
    "stochtree": fit_bart,
}


def main(name: str, folder: Path) -> None:
    given = np.load(folder / "rows.npz")
    X, y, seed = given["X_train"], given["y_train"], int(given["seed"])
    fit: Any = FITS[name]
    fit(X[:100], y[:100], seed)(given["X_test"][:2])  # imports, compiles, starts threads
    times = [(perf_counter(), process_time())]
    predict = fit(X, y, seed)
    times.append((perf_counter(), process_time()))
    found = predict(given["X_test"])
    times.append((perf_counter(), process_time()))
    np.savez(folder / "found.npz", times=np.diff(times, axis=0), **found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
