"""Draw prediction bands of the default and of the paper's model, wider away from the data.

Run it with ``python examples/prediction_bands.py``. It saves ``prediction_bands.png``.
"""

import matplotlib.pyplot as plt

from mondrian_forest import PAPER, HierarchicalPosterior, MondrianForestRegressor
from mondrian_forest.datasets import make_gap_wave
from mondrian_forest.plots import PredictionBandDisplay

X, y = make_gap_wave(1000, random_state=0)

figure, axes = plt.subplots(2, 1, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
settings = {
    "default": {},
    # The noise is known here. The paper's heuristic gives a smaller value, see docs/model.md.
    "**PAPER, noise_variance=0.0225": PAPER
    | {"posterior": HierarchicalPosterior(noise_variance=0.15**2)},
}
for ax, (name, setting) in zip(axes, settings.items(), strict=True):
    forest = MondrianForestRegressor(100, random_state=0, **setting).fit(X, y)
    PredictionBandDisplay.from_estimator(forest, X, y, ax=ax)
    ax.set_title(name)
axes[0].set_xlabel("")

figure.savefig("prediction_bands.png", dpi=120)
print("Saved prediction_bands.png")

# The sources of the uncertainty, as numbers. ``forest`` is the paper's model here.
parts = forest.predict_distribution([[-2.0], [0.0], [9.0]]).decompose()
for i, place in enumerate(("in the data", "between the data", "far outside")):
    shares = ", ".join(f"{name} {part[i]:.4f}" for name, part in parts._asdict().items())
    print(f"{place:16}: variance = {shares}")
