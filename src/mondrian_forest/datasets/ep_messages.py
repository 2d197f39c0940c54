"""Messages of expectation propagation: the data set of the paper's Figure 2."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any, Literal, get_args

import numpy as np

from ._bunch import bunch

Subset = Literal["train", "test_red", "test_blue"]

DESCRIPTION = """\
Messages of expectation propagation at a logistic factor.

The factor z = 1 / (1 + exp(-x)) receives a Gaussian message for x and a Beta message for z, and
sends a Gaussian message back. A row is one pair of incoming messages. The features are the mean
(x1) and the logarithm of the precision (x2) of the Gaussian message. The target is the mean of the
tilted distribution. There are 4,012 training rows and two test sets of 500 rows each. The rows of a
test set lie on a line that leaves the region of the training rows: the red line stays near, the
blue line goes far.

Source: Jitkrittum et al., Kernel-Based Just-In-Time Learning for Passing Expectation Propagation
Messages (UAI 2015), file demo_uncertainty_msgs3.mat of github.com/wittawatj/kernel-ep, MIT licence,
copyright 2014-2015 Wittawat Jitkrittum (the notice is in ep_messages.LICENSE beside the data). The
targets of the training rows are the published ones, estimated by importance sampling. The targets
of the test rows were computed by quadrature. Numbers are rounded to ten significant digits.
"""


def load_ep_messages(
    subset: Subset = "train", *, return_X_y: bool = False, as_frame: bool = False
) -> Any:
    """Load messages of expectation propagation, with two test sets away from the training rows.

    This is the data set of the paper's Figure 2. It is part of the package.

    Parameters
    ----------
    subset : {"train", "test_red", "test_blue"}, default="train"
        4,012 training rows, or 500 test rows that stay near them (red) or go far away (blue).
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Return pandas objects instead of arrays.

    Returns
    -------
    Bunch with ``data`` of shape (n_samples, 2), ``target``, ``frame`` (with ``as_frame=True``),
    ``feature_names``, ``target_names`` and ``DESCR``; or ``(data, target)``.

    Examples
    --------
    >>> from mondrian_forest.datasets import load_ep_messages
    >>> X, y = load_ep_messages(return_X_y=True)
    >>> X.shape, y.shape
    ((4012, 2), (4012,))
    """
    if subset not in get_args(Subset):
        raise ValueError(f"subset must be one of {', '.join(get_args(Subset))}, got {subset!r}.")
    with as_file(files(__package__) / "ep_messages.csv.gz") as path:
        table = np.loadtxt(path, delimiter=",", skiprows=1)
    rows = table[table[:, 0] == get_args(Subset).index(subset), 1:]
    return bunch(
        np.ascontiguousarray(rows[:, :2]),
        rows[:, 2].copy(),
        feature_names=["x1", "x2"],
        target_name="y",
        description=DESCRIPTION,
        return_X_y=return_X_y,
        as_frame=as_frame,
    )
