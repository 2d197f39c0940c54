"""What would pass as a number unnoticed."""

from __future__ import annotations

import re
from datetime import date, time, timedelta

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
