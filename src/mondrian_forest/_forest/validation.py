"""What would pass as a number unnoticed."""

from __future__ import annotations

import math
import re
from datetime import date, time, timedelta
from numbers import Integral, Real

import numpy as np

_TIMES = (date, time, timedelta, np.datetime64, np.timedelta64)
"""Those of pandas are subclasses of these, but for periods."""


def refuse_what_is_no_number(name: str, data: object) -> None:
    """Raise a ValueError for dates, masked entries and pandas' NA; ``name`` is that of the data.

    NumPy and scikit-learn make numbers of dates without a word. Text is left to scikit-learn, which
    reads "12" as 12, and refuses what is no number. Values are looked at where their type does not
    tell: in lists, and in columns of objects or categories.
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
    except Exception:  # whatever it is, scikit-learn has a message for it
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


def check_integer(what: str, value: object, least: int) -> None:
    """Raise a ValueError if a value is no integer of at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} an integer of at least {least}, got {value!r}.")


def is_finite_number(value: object) -> bool:
    """Return whether a value is a real number, and finite; truth values are not."""
    try:
        return (
            isinstance(value, Real)
            and not isinstance(value, bool | np.bool_)
            and math.isfinite(float(value))
        )
    except OverflowError:  # an integer beyond the floats
        return False


def check_n_jobs(n_jobs: object) -> None:
    """Raise a ValueError if ``n_jobs`` is none of joblib's."""
    if n_jobs is not None and (
        not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}.")
