"""Label models, and what they share."""

from __future__ import annotations

from .empirical import Empirical
from .hierarchical import Hierarchical
from .model import LabelModel
from .pruned import Pruned

__all__ = ["MODELS", "Empirical", "Hierarchical", "LabelModel", "ModelClass", "Pruned"]

ModelClass = type[Hierarchical] | type[Empirical] | type[Pruned]

_CLASSES: tuple[ModelClass, ...] = (Hierarchical, Empirical, Pruned)
MODELS = {one.name(): one for one in _CLASSES}
"""The label models by the names that users know them by."""
