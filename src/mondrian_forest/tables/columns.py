"""How one column of a table becomes features: what is learned at the fit, and how it is used.

- Numbers and booleans are features as they are.
- A date becomes up to four features: ``time`` in days, ``day_of_year``, ``day_of_week`` and, if
  there is a time of day, ``hour``. A time of day alone becomes its hour, a duration its seconds.
- A text becomes a number, its code: the mean label of the rows with this text, shrunken towards the
  mean of all labels if there are few such rows (scikit-learn's ``TargetEncoder``). In the training
  set, the code of a row is computed from other rows. Otherwise the forest could read the row's
  label from its code. A text that the training set does not have gets the mean of all labels.
- A missing number or date becomes the median of the column. A missing text is a text of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from .._printable import printable
from ._arrow import pyarrow as pa
from .errors import TableError, quoted
from .texts import FORMS, is_text, likeness
from .values import (
    DATE,
    MISSING_TEXT,
    NUMBER,
    TEXT,
    as_days,
    as_float,
    as_text,
    description,
    form_of,
    kind_of,
    value_type,
    zone_of,
)

_PARTS = ("time", "day_of_year", "day_of_week", "hour")
_COMPATIBLE = {
    "": "text",
    "number": "numbers",
    "boolean": "numbers",
    "date": "dates without a time zone",
    "zoned date": "dates with a time zone",
    "time": "times of day",
}
"""For each form, which values a model accepts for it, in words."""
_FEWEST_ROWS_FOR_FOLDS = 20
_MOST_TEXTS_AT_ONCE = 1_000_000
_FEWEST_NEW_TEXTS = 20
"""With fewer new texts, a column is not checked for having turned into numbers or dates."""


@dataclass
class Column:
    """How one column becomes features."""

    name: str
    kind: str
    """NUMBER, DATE or TEXT."""
    form: str = ""
    """How its values are written as text: a key of ``FORMS``."""
    parts: list[str] = field(default_factory=list)
    """The features of a date, some of ``_PARTS``."""
    zone: str | None = None
    """The time zone whose clock tells the parts of a date."""
    fill: float | None = None
    """What replaces a missing number or date. A missing text has a code instead."""
    codes: dict[str, float] = field(default_factory=dict)
    """The number for each text."""
    other_code: float = 0.0
    """The number for a text that the training set does not have."""
    is_declared_text: bool = False
    """Whether the user said that the column is text."""

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [f"{self.name}.{part}" for part in self.parts] if self.parts else [self.name]

    def is_valid(self) -> bool:
        """Tell whether all fields have values that make sense. They may come from a file."""
        numbers = (*self.codes.values(), self.other_code)
        return (
            isinstance(self.name, str)
            and self.kind in (NUMBER, DATE, TEXT)
            and self.form in FORMS
            and isinstance(self.parts, list)
            and set(self.parts) <= set(_PARTS)
            and (self.kind == DATE) == bool(self.parts)
            and isinstance(self.zone, str | None)
            and isinstance(self.is_declared_text, bool)
            and all(isinstance(value, float) and math.isfinite(value) for value in numbers)
            and (self.fill is None or math.isfinite(self.fill))
        )

    def encode(self, values: Any) -> NDArray[np.float64]:
        """Return the features of a column's values, shape (n_rows, n_features)."""
        return _encode_text(self, values) if self.kind == TEXT else _encode_numbers(self, values)


def learn_columns(
    table: Mapping[str, Any], y: NDArray[np.float64], random_state: int
) -> dict[str, tuple[Column, NDArray[np.float64]]]:
    """Learn how columns become features. Return this, with the features of the training set."""
    texts = {name: values for name, values in table.items() if kind_of(values.type) == TEXT}
    learned = _learn_texts(texts, y, random_state)
    return {
        name: learned[name] if name in learned else _learn_numbers(name, values)
        for name, values in table.items()
    }


def _learn_numbers(name: str, values: Any) -> tuple[Column, NDArray[np.float64]]:
    """Learn a column of numbers or dates."""
    kind = kind_of(values.type)
    if not kind:
        raise TableError(
            f"Column {quoted(name)} holds {printable(str(values.type))}, which is not a number, "
            "date or text: leave it out."
        )
    column = Column(name, kind, form_of(values.type))
    column.zone = zone_of(values.type)
    numbers = _as_numbers(column, values)
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0:
        raise TableError(f"Column {quoted(name)} is empty: leave it out.")
    column.fill = float(np.median(known))
    if kind == DATE:
        has_hours = bool(np.any(np.mod(known, 1.0) != 0.0))
        column.parts = list(_PARTS if has_hours else _PARTS[:3])
    return column, column.encode(values)


def _learn_texts(
    columns: dict[str, Any], y: NDArray[np.float64], random_state: int
) -> dict[str, tuple[Column, NDArray[np.float64]]]:
    """Learn the codes of texts.

    Many short columns are learned together, because each fit of a ``TargetEncoder`` takes
    milliseconds.
    """
    found = {}
    names = list(columns)
    at_once = max(1, _MOST_TEXTS_AT_ONCE // max(len(y), 1))
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        texts = np.column_stack([as_text(columns[name]) for name in some])
        encoder = TargetEncoder(target_type="continuous").fit(texts, y)
        codes = np.asarray(encoder.transform(texts), dtype=np.float64)
        if len(y) >= _FEWEST_ROWS_FOR_FOLDS:
            folds = KFold(5, shuffle=True, random_state=random_state)
            for others, rows in folds.split(texts):
                fitted = TargetEncoder(target_type="continuous").fit(texts[others], y[others])
                codes[rows] = fitted.transform(texts[rows])
        for k, name in enumerate(some):
            known = map(str, encoder.categories_[k])
            code = dict(zip(known, map(float, encoder.encodings_[k]), strict=True))
            column = Column(name, TEXT, codes=code, other_code=float(encoder.target_mean_))
            found[name] = column, codes[:, k : k + 1]
    return found


def _encode_numbers(column: Column, values: Any) -> NDArray[np.float64]:
    """Return the features of a column of numbers or dates."""
    if pa.types.is_null(values.type):
        values = values.cast(FORMS[column.form].type)
    is_compatible = _COMPATIBLE.get(form_of(values.type)) == _COMPATIBLE[column.form]
    if kind_of(values.type) != column.kind or not is_compatible:
        raise TableError(
            f"Column {quoted(column.name)} held {_COMPATIBLE[column.form]} when the model was "
            f"fitted, and holds {description(values)} now."
        )
    numbers = _as_numbers(column, values)
    if column.fill is not None:
        numbers[np.isnan(numbers)] = column.fill
    if not np.all(np.isfinite(numbers)):
        raise TableError(f"Column {quoted(column.name)} has values that are not finite.")
    return _date_parts(numbers, column.parts) if column.kind == DATE else numbers[:, None]


def _as_numbers(column: Column, values: Any) -> NDArray[np.float64]:
    """Return numbers, or dates as days, with NaN for missing values."""
    return as_days(column.name, values, column.zone) if column.kind == DATE else as_float(values)


def _date_parts(days: NDArray[np.float64], parts: Sequence[str]) -> NDArray[np.float64]:
    whole = np.floor(days).astype("datetime64[D]")
    of_year = (whole - whole.astype("datetime64[Y]")).astype(np.float64)
    found = {
        "time": days,
        "day_of_year": of_year,
        "day_of_week": np.mod(np.floor(days) + 3, 7),  # Monday is 0: 1970 began on a Thursday
        "hour": 24.0 * np.mod(days, 1.0),
    }
    return np.column_stack([found[part] for part in parts])


def _encode_text(column: Column, values: Any) -> NDArray[np.float64]:
    """Return the codes of a column of text."""
    type_ = value_type(values.type)
    if not (is_text(type_) or pa.types.is_integer(type_) or pa.types.is_null(type_)):
        raise TableError(
            f"Column {quoted(column.name)} was text when the model was fitted, and holds "
            f"{description(values)} now."
        )
    texts = as_text(values)
    _refuse_what_is_not_text(column, texts)
    return np.array([[column.codes.get(text, column.other_code)] for text in texts]).reshape(-1, 1)


def _refuse_what_is_not_text(column: Column, texts: NDArray[np.object_]) -> None:
    """Refuse texts that look like numbers or dates, if those of the training set did not.

    A stream may begin with rows in which all values of a column are missing, written as some text
    that was not declared to mean this. Then the column is taken for text.
    """
    new = [text for text in texts if text not in column.codes and text != MISSING_TEXT]
    if column.is_declared_text or len(new) < _FEWEST_NEW_TEXTS or 2 * len(new) < len(texts):
        return
    what = likeness(new)
    if what and not likeness(column.codes):
        raise TableError(
            f"Column {quoted(column.name)} was text when the model was fitted, and looks like "
            f"{what} now, such as {quoted(new[0])}: fit again with --missing, if the earlier text "
            "stands for missing values, or with --text, if the column is text."
        )
