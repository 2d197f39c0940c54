"""Settings of our forest that several benchmarks compare."""

from __future__ import annotations

from typing import Any

PAPER: dict[str, Any] = {
    "posterior": "hierarchical",
    "min_samples_split": 10,
    "n_candidate_splits": 1,
    "feature_weights": None,
    "spread": 1.0,
}
PRUNED = PAPER | {"posterior": "pruned", "min_samples_split": 2}
CHOSEN = PRUNED | {"n_candidate_splits": "n_features"}
BEST = CHOSEN | {"feature_weights": "auto", "spread": "auto"}
