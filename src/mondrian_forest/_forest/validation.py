"""Checks of what users pass: numbers, levels, flags, and tables of rows with their labels.

Every ``check_`` function raises a ValueError that names the parameter, says what it may be, and
shows what was passed. Otherwise it returns the value with a plain type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, time, timedelta
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

LARGEST_LABEL = 1e150
"""Squares of larger labels, and their sums, would leave the range of float64."""

_TIMES = (date, time, timedelta, np.datetime64, np.timedelta64)
"""The types of pandas are subclasses of these, except for periods."""


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of any type. True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite real number of any type. True and False are not."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer or a fraction beyond the range of float64
        return False


def check_integer(name: str, value: object, least: int | None = None, *, instead: str = "") -> int:
    """Return an integer that is not smaller than ``least``.

    ``instead`` is for the message only: it says what else the parameter may be, as in ``"None"``.
    The caller accepts such values before it calls this function. The other checks do the same.
    """
    if is_integer(value) and (least is None or value >= least):
        return int(value)
    bound = "" if least is None else f" of at least {least}"
    raise ValueError(f"{name} must be {_or(instead)}an integer{bound}, got {value!r}.")


def check_number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    instead: str = "",
) -> float:
    """Return a finite number from ``low`` to ``high``, both included."""
    if is_number(value) and low <= value <= high:
        return float(value)
    bounds = ""
    if math.isfinite(high):
        bounds = f" from {low:g} to {high:g}"
    elif math.isfinite(low):
        bounds = f" of at least {low:g}"
    raise ValueError(f"{name} must be {_or(instead)}a number{bounds}, got {value!r}.")


def check_positive(name: str, value: object, *, instead: str = "") -> float:
    """Return a finite number above zero."""
    if is_number(value) and value > 0.0:
        return float(value)
    raise ValueError(f"{name} must be {_or(instead)}a positive number, got {value!r}.")


def check_share(name: str, value: object) -> float:
    """Return a number above 0 and below 1."""
    if is_number(value) and 0.0 < value < 1.0:
        return float(value)
    raise ValueError(f"{name} must be a number above 0 and below 1, got {value!r}.")


def check_level(name: str, value: object) -> float:
    """Return a probability: a number from 0 to 1, both included."""
    return check_number(name, value, 0.0, 1.0)


def check_levels(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return probabilities, a number or a list of numbers, as an array of the same shape."""
    levels = np.asarray(values)
    if levels.size == 0:
        levels = levels.astype(np.float64)
    if (
        levels.ndim > 1
        or levels.dtype.kind not in "iuf"
        or not np.all((levels >= 0.0) & (levels <= 1.0))
    ):
        raise ValueError(
            f"{name} must be a number or a list of numbers from 0 to 1, got {values!r}."
        )
    return levels.astype(np.float64)


def check_flag(name: str, value: object) -> bool:
    """Return True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ValueError(f"{name} must be True or False, got {value!r}.")


def check_n_jobs(n_jobs: object) -> None:
    """Refuse an ``n_jobs`` that joblib does not know."""
    if n_jobs is not None and (not is_integer(n_jobs) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}.")


def _or(instead: str) -> str:
    return f"{instead} or " if instead else ""


def check_rows_and_labels(
    estimator: Any, X: ArrayLike, y: ArrayLike, *, reset: bool
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the rows and labels of a training set as arrays.

    ``reset`` tells whether the estimator takes on the number and the names of these features, as in
    a fit. If it is False, they must be those that the estimator knows.
    """
    refuse_what_is_no_number("X", X)
    refuse_what_is_no_number("y", y)
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"{type(estimator).__name__} predicts one target but y has {shape[1]} columns: "
            "fit one forest per column, for example with "
            "sklearn.multioutput.MultiOutputRegressor."
        )
    rows, labels = validate_data(
        estimator, X, y, dtype=[np.float64, np.float32], y_numeric=True, reset=reset
    )
    labels = np.require(labels, np.float64, ["C", "W"])
    assert_all_finite(labels, input_name="y")
    if np.abs(labels).max() > LARGEST_LABEL:
        raise ValueError(f"y must not exceed {LARGEST_LABEL:g} in size: rescale y.")
    return rows, labels


def check_row_numbers(rows: ArrayLike, n_seen: int) -> NDArray[np.int64]:
    """Return the numbers of rows that are given as numbers, or as a mask of all rows learned."""
    try:
        found = np.asarray(rows)
    except (TypeError, ValueError):
        found = np.empty((0, 0), dtype=object)
    if np.ma.is_masked(rows) or (isinstance(rows, list | tuple) and _mixes_flags(rows)):
        found = np.empty((0, 0), dtype=object)
    if found.ndim == 1 and found.dtype == np.bool_:
        if len(found) == n_seen:
            return np.flatnonzero(found)
        raise ValueError(
            f"A mask of rows must have one entry for each of the {n_seen:,} rows learned, got "
            f"{len(found):,}."
        )
    if found.size == 0 and found.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(
            "rows must be row numbers, integers from 0 on in the order in which rows were learned, "
            f"or a mask, got {rows!r}."
        )
    if found.min() < 0 or found.max() >= n_seen:
        wrong = found.min() if found.min() < 0 else found.max()
        raise ValueError(
            f"There is no row {wrong}: {n_seen:,} rows have been learned, with numbers from 0 to "
            f"{n_seen - 1}."
        )
    return np.unique(found.astype(np.int64))


def _mixes_flags(values: Sequence[Any]) -> bool:
    """Return whether some of the values are True or False, and others are not."""
    n_flags = sum(isinstance(value, bool | np.bool_) for value in values)
    return 0 < n_flags < len(values)


def refuse_what_is_no_number(name: str, data: object) -> None:
    """Raise a ValueError for dates, masked entries and pandas' NA; ``name`` is that of the data.

    NumPy and scikit-learn silently convert dates to numbers. Text is left to scikit-learn: it reads
    "12" as 12, and refuses other text. Single values are inspected only if the type of the data
    does not tell what they are: in lists, and in columns of objects or categories.
    """
    if np.ma.is_masked(data):
        raise ValueError(f"{name} has masked entries: fill them in or leave these rows out.")
    types = [
        str(each)
        for found in (
            getattr(getattr(data, "schema", None), "types", ()),  # arrow tables
            *(getattr(data, attribute, ()) for attribute in ("dtypes", "dtype", "type")),
        )
        for each in (found if hasattr(found, "__iter__") else [found])
    ]
    if any(re.search("date|time|duration|period", each, re.IGNORECASE) for each in types):
        raise ValueError(f"{name} has dates or times: turn them into numbers first.")
    if not types or any(re.search("object|categor", each, re.IGNORECASE) for each in types):
        _refuse_objects(name, data)


def _refuse_objects(name: str, data: object) -> None:
    try:
        values = np.asarray(data)
    except Exception:  # scikit-learn has a message for whatever this is
        return
    classes = {values.dtype.type}
    if values.dtype == object:
        classes = {
            each.dtype.type if isinstance(each, np.ndarray) else type(each) for each in values.flat
        }
    for each in classes:
        if issubclass(each, _TIMES) or each.__name__ == "Period":
            raise ValueError(f"{name} has dates or times: turn them into numbers first.")
        if each.__name__ == "NAType":
            raise ValueError(f"{name} has missing values: fill them in or leave these rows out.")
