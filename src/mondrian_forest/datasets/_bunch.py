"""The result of a loader: scikit-learn's Bunch, with arrays or a pandas frame."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

EXTRA = "pip install 'mondrian-forest[datasets]'"


def needed(module: str, purpose: str) -> ModuleType:
    """Import a module of the extra ``datasets``, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {module}: {EXTRA}.") from error


def bunch(
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    *,
    feature_names: list[str],
    target_name: str,
    description: str,
    return_X_y: bool,
    as_frame: bool,
) -> Any:
    """Return a data set in the form that scikit-learn's loaders use."""
    data: Any = X
    target: Any = y
    frame = None
    if as_frame:
        pandas = needed("pandas", "as_frame=True")
        frame = pandas.DataFrame(X, columns=feature_names)
        frame[target_name] = y
        data, target = frame[feature_names], frame[target_name]
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        frame=frame,
        feature_names=feature_names,
        target_names=[target_name],
        DESCR=description,
    )
