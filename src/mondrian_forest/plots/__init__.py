"""Plots of predictions, as scikit-learn displays. Matplotlib is imported when a plot is drawn."""

from .bands import PredictionBandDisplay
from .convergence import ConvergenceDisplay
from .density import DensityDisplay
from .errors import ErrorDisplay
from .partition import PartitionDisplay
from .pit import PITDisplay
from .reliability import ReliabilityDisplay

__all__ = [
    "ConvergenceDisplay",
    "DensityDisplay",
    "ErrorDisplay",
    "PITDisplay",
    "PartitionDisplay",
    "PredictionBandDisplay",
    "ReliabilityDisplay",
]
