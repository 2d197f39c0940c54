"""Fit, predict and learn on a Dask cluster: forests with the same law as on one machine."""

from .collections import ClusterLost
from .fit import fit
from .predict import learn, predict

__all__ = ["ClusterLost", "fit", "learn", "predict"]
