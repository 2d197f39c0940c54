"""Draw prediction bands that widen away from the data.

Run it with ``python examples/prediction_bands.py``; the picture is ``prediction_bands.png``.
"""

import matplotlib.pyplot as plt

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.datasets import make_gap_wave
from mondrian_forest.plots import PredictionBandDisplay

X, y = make_gap_wave(1000, random_state=0)

figure, axes = plt.subplots(2, 1, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, posterior in zip(axes, ("hierarchical", "empirical"), strict=True):
    forest = MondrianForestRegressor(100, posterior=posterior, random_state=0).fit(X, y)
    PredictionBandDisplay.from_estimator(forest, X, y, ax=ax)
    ax.set_title(f'posterior="{posterior}"')

figure.savefig("prediction_bands.png", dpi=120)

# The same numbers without a picture: where does the uncertainty come from?
forest = MondrianForestRegressor(100, random_state=0).fit(X, y)
parts = forest.predict_distribution([[-2.0], [0.0], [9.0]]).decompose()
for i, place in enumerate(("in the data", "in the gap", "far outside")):
    shares = ", ".join(f"{name} {part[i]:.4f}" for name, part in parts._asdict().items())
    print(f"{place:12}: variance = {shares}")
