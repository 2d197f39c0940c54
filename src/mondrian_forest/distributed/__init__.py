"""Past one machine: fit, predict and learn with Dask, the same forests by the same law."""

from .collections import ClusterLost
from .fit import fit
from .predict import learn, predict

__all__ = ["ClusterLost", "fit", "learn", "predict"]
