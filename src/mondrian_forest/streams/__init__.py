"""Streams: a forest for river, and evaluation by predicting each row before it is learned."""

from typing import TYPE_CHECKING

from .evaluation import Prequential, PrequentialResult, prequential

if TYPE_CHECKING:
    from .river_forest import RiverForest

__all__ = ["Prequential", "PrequentialResult", "RiverForest", "prequential"]


def __getattr__(name: str) -> object:
    """Import what needs river on first use: the rest works without it."""
    if name != "RiverForest":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .river_forest import RiverForest

    return RiverForest
