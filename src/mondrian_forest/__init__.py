"""Mondrian forests for regression, with a full predictive distribution.

Names are imported on first use, because scikit-learn alone takes about a second.
"""

from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from ._forest.model_file import ModelFileError
    from .conformal import CalibratedDistribution, ConformalForest
    from .distribution import PredictiveDistribution, VarianceParts
    from .forest import PAPER, MondrianForestRegressor

__all__ = [
    "PAPER",
    "CalibratedDistribution",
    "ConformalForest",
    "ModelFileError",
    "MondrianForestRegressor",
    "PredictiveDistribution",
    "VarianceParts",
    "__version__",
]

_HOME = {
    "PAPER": "forest",
    "CalibratedDistribution": "conformal",
    "ConformalForest": "conformal",
    "ModelFileError": "_forest.model_file",
    "MondrianForestRegressor": "forest",
    "PredictiveDistribution": "distribution",
    "VarianceParts": "distribution",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
