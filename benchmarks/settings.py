"""Settings of our forest that several benchmarks compare."""

from __future__ import annotations

from typing import Any

from mondrian_forest import PAPER

DEFAULT: dict[str, Any] = {}
ALONE: dict[str, Any] = {"mean_function": None}
"""The default without a mean function."""
PRUNED = PAPER | {"posterior": "pruned", "min_samples_split": 2}
CHOSEN = PRUNED | {"n_candidate_splits": "n_features"}
