"""Forecast a trend beyond the data, with and without a linear mean function.

Run it with ``python examples/trend.py``. It saves ``trend.png``.
"""

import matplotlib.pyplot as plt
import numpy as np

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.plots import PredictionBandDisplay

random = np.random.default_rng(0)


def draw(first, last, n_rows):
    """Return rows between two places, and labels with a trend, a wave and noise."""
    x = random.uniform(first, last, n_rows)
    return x[:, None], 2.0 * x + np.cos(2.0 * np.pi * x) + 0.3 * random.normal(size=n_rows)


X, y = draw(0.0, 6.0, 600)
X_later, y_later = draw(6.0, 12.0, 300)

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), sharex=True, sharey=True, layout="constrained")
for ax, kind in zip(axes, (None, "linear"), strict=True):
    forest = MondrianForestRegressor(100, mean_function=kind, random_state=0).fit(X, y)
    PredictionBandDisplay.from_estimator(forest, X, y, margin=1.0, ax=ax)
    ax.plot(X_later[:, 0], y_later, ".", color="tab:red", markersize=2, label="later rows")
    low, high = forest.predict_interval(X_later, 0.9).T
    covered = np.mean((low <= y_later) & (y_later <= high))
    ax.set(title=f"mean_function={kind!r}", xlabel="x", xlim=(-1.0, 12.0))
    ax.text(11.8, -4.0, f"90% intervals cover {covered:.0%} of later rows", ha="right")
    ax.legend(loc="upper left")
    print(f"{kind}: 90% intervals cover {covered:.0%} of the rows beyond the data")

figure.savefig("trend.png", dpi=110)
print("Saved trend.png")
