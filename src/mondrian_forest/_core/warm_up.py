"""Compile ahead: the kernels of prediction, without a forest to predict with.

The first fit after an installation compiles for some ten seconds, the first prediction for as long
again. A process of its own can do the second while the first goes on:

    python -m mondrian_forest._core.warm_up

Both leave the machine code in Numba's cache, where the other finds it.
"""

from __future__ import annotations

import numpy as np

from .learn import allocate_grove
from .posterior import PRUNED, Hyperparameters
from .predict import Ensemble, predict_mixture
from .spread import contract, score_spreads, scores_before
from .tree import NO_CHILD


def compile_prediction() -> None:
    """Predict with a tree that is a single leaf, as forests of the default do."""
    grove = allocate_grove(1, 1, 1, is_linked=False)
    grove.sizes[0] = 1
    for array in (grove.nodes, grove.boxes, grove.tallies):
        array[:] = np.zeros(1, array.dtype)[0]
    leaf = grove.nodes[0, 0]
    leaf["left_child"], leaf["precision"], leaf["degrees"] = NO_CHILD, 1.0, 3.0
    ensemble = Ensemble(
        grove.sizes,
        grove.nodes,
        grove.boxes,
        0,
        PRUNED,
        Hyperparameters(0.0, 1.0, 1.0, 1.0),
        np.inf,
    )
    moments, mixture = predict_mixture(ensemble, np.zeros((1, 1), np.float32))
    score_spreads(mixture, moments.mean, np.zeros(1), scores_before(1))
    contract(mixture, moments.mean, 1.0)


if __name__ == "__main__":
    compile_prediction()
