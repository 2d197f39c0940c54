"""Values of Arrow columns: which kind they are of, and what they are as numbers, texts or days."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._printable import printable
from ._arrow import pyarrow as pa
from .errors import TableError, quoted
from .texts import is_text

NUMBER, DATE, TEXT = "number", "date", "text"
MISSING_TEXT = "\0missing"
"""Stands for a missing value among texts."""
_FIXED_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
"""A time zone that is a fixed offset from UTC, such as +01:00."""
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_MICROSECONDS_PER_DAY = 8.64e10
_MICROSECONDS_PER_MINUTE = 6e7


def value_type(type_: Any) -> Any:
    """Return the type of the values; for categories, the type of the categories."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def kind_of(type_: Any) -> str:
    """Return NUMBER, DATE or TEXT, or "" for a type that cannot become features."""
    type_ = value_type(type_)
    if (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_duration(type_)
        or pa.types.is_time(type_)
        or pa.types.is_null(type_)
    ):
        return NUMBER
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return DATE
    return TEXT if is_text(type_) else ""


def form_of(type_: Any) -> str:
    """Return how values of a type are written as text: a key of ``FORMS``."""
    type_ = value_type(type_)
    if is_text(type_):
        return ""
    if pa.types.is_timestamp(type_):
        return "date" if type_.tz is None else "zoned date"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_time(type_):
        return "time"
    return "boolean" if pa.types.is_boolean(type_) else "number"


def zone_of(type_: Any) -> str | None:
    """Return the time zone of a type, or None."""
    type_ = value_type(type_)
    return type_.tz if pa.types.is_timestamp(type_) else None


def description(values: Any) -> str:
    """Return the type of values for a message, with an example."""
    type_ = value_type(values.type)
    name = printable("text" if is_text(type_) else str(type_))
    try:  # as text: a Python object cannot hold every date
        example = next(iter(values.slice(0, 1).cast(pa.string()).to_pylist()), None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        example = None
    return name if example is None else f"{name} such as {quoted(example)}"


def count_missing(values: Any) -> int:
    """Return the number of missing values: nulls and NaNs."""
    values = _without_categories(values)
    n_missing = int(values.null_count)
    if pa.types.is_floating(values.type):
        n_missing += int(np.isnan(as_float(values.drop_null())).sum())
    return n_missing


def as_float(values: Any) -> NDArray[np.float64]:
    """Return values as numbers, NaN for nulls. Durations are in seconds, times of day in hours."""
    values = _without_categories(values)
    type_ = values.type
    if pa.types.is_duration(type_):
        return as_float(values.cast(pa.int64())) / _PER_SECOND[type_.unit]
    if pa.types.is_time(type_):
        whole = pa.int32() if pa.types.is_time32(type_) else pa.int64()
        return as_float(values.cast(whole)) / (3600.0 * _PER_SECOND[type_.unit])
    if pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers, dtype=np.float64)


def as_text(values: Any) -> NDArray[np.object_]:
    """Return values as texts, ``MISSING_TEXT`` for nulls."""
    texts = values.cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
    texts[[text is None for text in texts]] = MISSING_TEXT
    return np.asarray(texts)


def as_days(name: str, values: Any, zone: str | None) -> NDArray[np.float64]:
    """Return dates as days since 1970, NaN for nulls.

    Dates with a time zone are told by the clock of ``zone`` or, if that is None, of their own zone.
    """
    values = _without_categories(values)
    type_ = values.type
    shift = 0.0  # of the clock, in microseconds
    try:
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            clock = zone or type_.tz
            if offset := _FIXED_OFFSET.fullmatch(clock):
                # PyArrow up to version 21 does not know the clock of a fixed offset.
                sign, hours, minutes = offset.groups()
                shift = float(f"{sign}1") * (60 * int(hours) + int(minutes))
                shift *= _MICROSECONDS_PER_MINUTE
                clock = "UTC"
            values = values.cast(pa.timestamp(type_.unit, tz=clock))
            values = pa.compute.local_timestamp(values)
        # The cast may cut off nanoseconds. With other units it must be safe: a date that is too far
        # away for microseconds would wrap around to another date.
        is_nanoseconds = pa.types.is_timestamp(type_) and type_.unit == "ns"
        microseconds = values.cast(pa.timestamp("us"), safe=not is_nanoseconds).cast(pa.int64())
    except pa.ArrowInvalid as error:
        reason = "a date is too far away to be counted in microseconds"
        if "timezone" in str(error):
            reason = f"the time zone {quoted(zone or type_.tz)} is not known"
        raise TableError(f"Column {quoted(name)} cannot be read: {reason}.") from None
    return (as_float(microseconds) + shift) / _MICROSECONDS_PER_DAY


def _without_categories(values: Any) -> Any:
    return values.cast(value_type(values.type)) if pa.types.is_dictionary(values.type) else values
