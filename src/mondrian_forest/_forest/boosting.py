"""A mean function of boosted trees: scikit-learn grows them, and we evaluate and store them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .._core.boosted import BOOSTED_NODE, NO_CHILD, add_boosted, fault_of_boosted
from ..io.container import require
from .parallel import n_threads
from .scaling import slices

SETTINGS: dict[str, Any] = {
    "max_iter": 400,
    "min_samples_leaf": 5,
    "early_stopping": True,
    "validation_fraction": 0.1,
    "n_iter_no_change": 10,
}
"""Of scikit-learn's HistGradientBoostingRegressor."""
_MOST_FOR_ONE_THREAD = 20_000
_BLOCK = 4096
"""Rows that go through all trees together."""


class Boosted(NamedTuple):
    """The mean of several boosted models."""

    nodes: NDArray[Any]
    """Of type ``BOOSTED_NODE``, of all trees one after the other."""
    roots: NDArray[np.int64]
    """The first node of each tree."""
    ends: NDArray[np.int64]
    """The number of trees up to the end of each model."""
    levels: NDArray[np.float64]
    """What each model predicts before its first tree."""
    center: float
    """The models are of labels less the center, in this unit."""
    unit: float

    def at(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return the function at some rows, shape (n_rows,)."""
        found = np.empty(len(table))
        for part in slices(len(table), _BLOCK):
            plain = np.require(table[part], np.float64, ["C", "W"])
            total = np.zeros(len(plain))
            start = 0
            for level, end in zip(self.levels, self.ends, strict=True):
                values = np.full(len(plain), level)
                add_boosted(plain, self.nodes, self.roots, start, int(end), values)
                total += values
                start = int(end)
            found[part] = self.center + self.unit * (total / len(self.levels))
        return found


def fit_boosted(
    table: NDArray[np.float64], labels: NDArray[np.float64], seed: int, n_jobs: int | None = None
) -> Any:
    """Return scikit-learn's model of some rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    has_enough = len(labels) * SETTINGS["validation_fraction"] >= 10
    settings = SETTINGS if has_enough else {"max_iter": 50}
    model = HistGradientBoostingRegressor(random_state=seed, **settings)
    # scikit-learn's threads wait in loops for each other: on a busy machine, two threads took ten
    # times as long as one. On a quiet one, with up to 20,000 rows, they were no faster.
    n_used = n_threads(n_jobs) if len(labels) > _MOST_FOR_ONE_THREAD else 1
    limits = threadpool_limits(n_used, "openmp")
    with limits, np.errstate(all="ignore"):  # halves of huge values
        try:
            return model.fit(table, labels)
        except Exception as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from error
            raise


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error began as an interrupt: NumPy turns some into a ValueError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def boosted(models: list[Any], center: float, unit: float) -> Boosted:
    """Return the mean of scikit-learn's models, as arrays."""
    nodes, roots, ends, levels = [], [], [], []
    n_nodes = 0
    for model in models:
        # Nothing that is public has the trees.
        levels.append(float(model._baseline_prediction[0, 0]))  # noqa: SLF001
        for (tree,) in model._predictors:  # noqa: SLF001
            known = tree.nodes
            own = np.empty(len(known), BOOSTED_NODE)
            is_leaf = known["is_leaf"].astype(bool)
            own["left"] = np.where(is_leaf, NO_CHILD, known["left"].astype(np.int64) + n_nodes)
            own["right"] = np.where(is_leaf, NO_CHILD, known["right"].astype(np.int64) + n_nodes)
            own["feature"] = np.where(is_leaf, 0, known["feature_idx"])
            own["threshold"] = np.where(is_leaf, 0.0, known["num_threshold"])
            own["value"] = known["value"]
            nodes.append(own)
            roots.append(n_nodes)
            n_nodes += len(known)
        ends.append(len(roots))
    return Boosted(
        np.concatenate(nodes) if nodes else np.empty(0, BOOSTED_NODE),
        np.array(roots, np.int64),
        np.array(ends, np.int64),
        np.array(levels),
        center,
        unit,
    )


def check_boosted(known: Boosted, n_features: int) -> None:
    """Raise a ModelFileError for trees from a file that make no sense."""
    fault = fault_of_boosted(known.nodes, known.roots, n_features)
    require(not fault, fault)
    ends = known.ends
    are_counts = len(ends) > 0 and ends[0] >= 0 and np.all(np.diff(ends) >= 0)
    require(are_counts and ends[-1] == len(known.roots), "the number of boosted trees is wrong")
    require(len(known.levels) == len(ends), "the number of boosted models is wrong")
    require(known.unit > 0.0, "the unit of boosted trees is wrong")
