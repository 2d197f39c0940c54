"""From the columns of a table to the features of a forest.

- Numbers and truth values are features as they are.
- A date becomes up to four features: ``time`` in days, ``day_of_year``, ``day_of_week`` and, if
  there is a time of day, ``hour``. A time of day alone becomes its hour, a duration its seconds.
- A text becomes a number: the mean label of the rows with that text, shrunken towards the mean of
  all labels the more, the fewer there are (scikit-learn's ``TargetEncoder``). In the rows that it
  is learned from, the number of a text comes from other rows, so that a forest cannot read their
  labels from it. A text that was never seen gets the mean of all labels.
- Missing values are refused, or filled: with the median of a column of numbers or dates; in text, a
  missing value is a text of its own.

What the text in a column stands for, ``texts`` finds out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from .._printable import printable
from ._arrow import pyarrow as pa
from .files import missing_column
from .texts import FORMS, TableError, is_text, likeness, parsed, shown, typed

NUMBER, DATE, TEXT = "number", "date", "text"
_PARTS = ("time", "day_of_year", "day_of_week", "hour")
_GAP = "\0gap"
"""Stands for a missing value among texts."""
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
"""A time zone that is a fixed offset, as +01:00."""
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_ALIKE = {
    "": "text",
    "number": "numbers",
    "truth": "numbers",
    "date": "dates without a time zone",
    "zoned date": "dates with a time zone",
    "time": "times of day",
}
"""Forms of values that a model takes for each other, in words."""
_FEWEST_ROWS_FOR_FOLDS = 20
_MOST_TEXTS_AT_ONCE = 1_000_000
_FEWEST_NEW_TEXTS = 20
"""Texts that were never seen, from which on it is asked whether they are text at all."""


@dataclass
class Column:
    """How one column becomes features."""

    name: str
    kind: str
    form: str = ""
    """What text stands for, in CSV files: one of ``FORMS``."""
    parts: list[str] = field(default_factory=list)
    """Of a date."""
    zone: str | None = None
    """Whose clock tells the parts of a date."""
    fill: float | None = None
    """What stands in for a missing number or date; a missing text has its own code."""
    codes: dict[str, float] = field(default_factory=dict)
    """Of texts."""
    other_code: float = 0.0
    """Of a text that was never seen."""
    is_told: bool = False
    """Whether somebody said that it is text."""

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [f"{self.name}.{part}" for part in self.parts] if self.parts else [self.name]


class TableEncoder:
    """Turns tables into arrays of numbers, all in the same way. See :meth:`learn`.

    Parameters
    ----------
    target : str
        The column of labels.
    columns : list of Column
    fills_gaps : bool
        Whether missing values are filled, or refused.
    missing : sequence of str, default=()
        What stands for a missing value, such as ``?``.
    target_form : str, default="number"
        What text stands for in the column of labels.
    """

    def __init__(
        self,
        target: str,
        columns: list[Column],
        fills_gaps: bool,
        missing: Sequence[str] = (),
        target_form: str = "number",
    ) -> None:
        self.target = target
        self.columns = columns
        self.fills_gaps = fills_gaps
        self.missing = list(missing)
        self.target_form = target_form

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        impute: bool = False,
        text: Sequence[str] = (),
        missing: Sequence[str] = (),
        random_state: int = 0,
    ) -> tuple[TableEncoder, NDArray[np.float64], NDArray[np.float64]]:
        """Decide how a table is encoded, and encode it.

        Parameters
        ----------
        table : pyarrow.Table
        target : str
        columns : sequence of str, default=None
            Which columns to learn from. None: all but the target.
        impute : bool, default=False
            Fill missing values, now and from then on.
        text : sequence of str, default=()
            Columns that are text, even if their values look like numbers or dates.
        missing : sequence of str, default=()
            What stands for a missing value, such as ``?``, beside nulls.
        random_state : int, default=0
            Which rows the codes of a text are learned from.

        Returns
        -------
        encoder : TableEncoder
        X : ndarray of shape (n_rows, n_features)
        y : ndarray of shape (n_rows,)
        """
        found = typed_columns(table, target, columns=columns, text=text, missing=missing)
        labels = found.pop(target)
        encoder = cls(target, [], impute, missing, _form(labels.type))
        y = encoder._as_labels(labels)
        encoder._refuse_gaps(found)
        texts = {name: values for name, values in found.items() if _kind(values.type) == TEXT}
        learned = _learn_texts(texts, y, random_state)
        for name, values in found.items():
            if name not in learned:
                learned[name] = _learn_column(name, values)
            learned[name][0].is_told = name in text
        encoder.columns = [learned[name][0] for name in found]
        return encoder, np.column_stack([learned[name][1] for name in found]), y

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in their order."""
        return [name for column in self.columns for name in column.features]

    def typed(self, table: Any) -> Any:
        """Return the columns that this encoder knows, with text read as what it stands for.

        An error names the row of the file, as long as the table is one that a ``TableFile`` gave.
        """
        forms = self._forms(table)
        if self.target in table.column_names:
            forms[self.target] = self.target_form
        return pa.table(parsed(table, forms, self.missing))

    def features(self, table: Any) -> NDArray[np.float64]:
        """Return the features of a table's rows; the order of its columns does not matter."""
        values = parsed(table, self._forms(table), self.missing)
        self._refuse_gaps(values)
        return np.column_stack([_encode(column, values[column.name]) for column in self.columns])

    def _forms(self, table: Any) -> dict[str, str]:
        known = set(table.column_names)
        for column in self.columns:
            if column.name not in known:
                raise TableError(missing_column(column.name, table.column_names, "the table"))
        return {column.name: column.form for column in self.columns}

    def labels(self, table: Any) -> NDArray[np.float64]:
        """Return the labels of a table's rows."""
        if self.target not in table.column_names:
            raise TableError(missing_column(self.target, table.column_names, "the table"))
        values = parsed(table, {self.target: self.target_form}, self.missing)
        return self._as_labels(values[self.target])

    def _as_labels(self, values: Any) -> NDArray[np.float64]:
        if _kind(values.type) != NUMBER:
            raise TableError(
                f"The target {shown(self.target)} does not hold numbers, but {_described(values)}."
            )
        n_missing = _count_gaps(values)
        if n_missing > 0:
            raise TableError(
                f"The target {shown(self.target)} has {n_missing:,} missing values: leave these "
                "rows out."
            )
        labels = _as_float(values)
        if not np.all(np.isfinite(labels)):
            raise TableError(
                f"The target {shown(self.target)} has values that are not finite: leave these "
                "rows out."
            )
        return labels

    def to_json(self) -> str:
        """Return a text that ``from_json`` understands."""
        description = {
            "target": self.target,
            "target_form": self.target_form,
            "fills_gaps": self.fills_gaps,
            "missing": self.missing,
            "columns": [asdict(column) for column in self.columns],
        }
        return json.dumps(description)

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """Return the encoder that a text describes; it raises a ValueError if it does not."""
        try:
            content = json.loads(text)
            columns = [Column(**entry) for entry in content["columns"]]
            target, missing = content["target"], content.get("missing", [])
            target_form = content.get("target_form", "number")
            is_sound = (
                columns
                and all(map(_is_sound, columns))
                and target_form in FORMS
                and isinstance(missing, list)
                and all(isinstance(name, str) for name in (target, *missing))
            )
            if not is_sound:
                raise ValueError(content)
            return cls(target, columns, content["fills_gaps"] is True, missing, target_form)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ValueError("its description of columns makes no sense") from None

    def _refuse_gaps(self, columns: dict[str, Any]) -> None:
        if self.fills_gaps:
            return
        counts = {name: _count_gaps(values) for name, values in columns.items()}
        gaps = [f"{shown(name)} ({count:,})" for name, count in counts.items() if count > 0]
        if gaps:
            listed = ", ".join(gaps[:12]) + (", ..." if len(gaps) > 12 else "")
            raise TableError(
                f"There are missing values in {'column' if len(gaps) == 1 else 'columns'} {listed}:"
                " fill them in, leave these columns out, or have them filled (--impute)."
            )


def typed_columns(
    table: Any,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the columns to learn from, and the target, with the types that they suggest.

    The parameters are those of ``TableEncoder.learn``.
    """
    names = dict.fromkeys(table.column_names if columns is None else columns)
    if columns is None:
        names.pop(target, None)
    elif target in names:
        raise TableError(f"The target {shown(target)} cannot be one of the columns.")
    known = set(table.column_names)
    for name in (target, *names):
        if name not in known:
            raise TableError(missing_column(name, table.column_names, "the table"))
    for name in text:
        if name not in names:
            raise TableError(f"Column {shown(name)} cannot be text: it is not learned from.")
    if not names:
        raise TableError("There is no column to learn from beside the target.")
    return typed(table, [*names, target], text=text, missing=missing)


def _is_sound(column: Column) -> bool:
    numbers = (*column.codes.values(), column.other_code)
    return (
        isinstance(column.name, str)
        and column.kind in (NUMBER, DATE, TEXT)
        and column.form in FORMS
        and isinstance(column.parts, list)
        and set(column.parts) <= set(_PARTS)
        and (column.kind == DATE) == bool(column.parts)
        and isinstance(column.zone, str | None)
        and isinstance(column.is_told, bool)
        and all(isinstance(value, float) and math.isfinite(value) for value in numbers)
        and (column.fill is None or math.isfinite(column.fill))
    )


def _kind(type_: Any) -> str:
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
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
    if is_text(type_):
        return TEXT
    return ""


def _form(type_: Any) -> str:
    """Return how values of a type are written in a CSV file."""
    if pa.types.is_dictionary(type_):
        return _form(type_.value_type)
    if is_text(type_):
        return ""
    if pa.types.is_timestamp(type_):
        return "date" if type_.tz is None else "zoned date"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_time(type_):
        return "time"
    return "truth" if pa.types.is_boolean(type_) else "number"


def _described(values: Any) -> str:
    """Return the type of values, with an example."""
    type_ = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    name = "text" if is_text(type_) else str(type_)
    try:  # not as an object of Python, which cannot hold any date
        example = next(iter(values.slice(0, 1).cast(pa.string()).to_pylist()), None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        example = None
    return printable(name) if example is None else f"{printable(name)} such as {shown(example)}"


def _count_gaps(values: Any) -> int:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    gaps = int(values.null_count)
    if pa.types.is_floating(values.type):
        gaps += int(np.isnan(_as_float(values.drop_null())).sum())
    return gaps


def _as_float(values: Any) -> NDArray[np.float64]:
    """Return numbers, NaN where there are none: seconds of a duration, hours of a time."""
    type_ = values.type
    if pa.types.is_dictionary(type_):
        return _as_float(values.cast(type_.value_type))
    if pa.types.is_duration(type_):
        return _as_float(values.cast(pa.int64())) / _PER_SECOND[type_.unit]
    if pa.types.is_time(type_):
        whole = pa.int32() if pa.types.is_time32(type_) else pa.int64()
        return _as_float(values.cast(whole)) / (3600.0 * _PER_SECOND[type_.unit])
    if pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers, dtype=np.float64)


def _as_text(values: Any) -> NDArray[np.object_]:
    texts = values.cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
    texts[[text is None for text in texts]] = _GAP
    return np.asarray(texts)


def _as_days(name: str, values: Any, zone: str | None) -> NDArray[np.float64]:
    """Return days since 1970, by the clock of a zone if there is one, NaN where there are none."""
    type_ = values.type
    if pa.types.is_dictionary(type_):
        return _as_days(name, values.cast(type_.value_type), zone)
    shift = 0.0  # of the clock, in microseconds
    try:
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            clock = zone or type_.tz
            if offset := _OFFSET.fullmatch(clock):
                # PyArrow 21 and older do not know the clock of a fixed offset.
                sign, hours, minutes = offset.groups()
                shift = float(f"{sign}1") * (60 * int(hours) + int(minutes)) * 6e7
                clock = "UTC"
            values = values.cast(pa.timestamp(type_.unit, tz=clock))
            values = pa.compute.local_timestamp(values)
        # Nanoseconds are cut off; what is too far away is not to be taken for something near.
        is_fine = pa.types.is_timestamp(type_) and type_.unit == "ns"
        microseconds = values.cast(pa.timestamp("us"), safe=not is_fine).cast(pa.int64())
    except pa.ArrowInvalid as error:
        reason = "a date is too far away to be counted in microseconds"
        if "timezone" in str(error):
            reason = f"the time zone {shown(zone or type_.tz)} is not known"
        raise TableError(f"Column {shown(name)} cannot be read: {reason}.") from None
    return (_as_float(microseconds) + shift) / 8.64e10


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


def _learn_column(name: str, values: Any) -> tuple[Column, NDArray[np.float64]]:
    kind = _kind(values.type)
    if not kind:
        raise TableError(
            f"Column {shown(name)} holds {printable(str(values.type))}, which is no number, date "
            "or text: leave it out."
        )
    column = Column(name, kind, _form(values.type))
    column.zone = _zone(values.type)
    numbers = _as_days(name, values, column.zone) if kind == DATE else _as_float(values)
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0:
        raise TableError(f"Column {shown(name)} is empty: leave it out.")
    column.fill = float(np.median(known))
    if kind == DATE:
        has_hours = bool(np.any(np.mod(known, 1.0) != 0.0))
        column.parts = list(_PARTS if has_hours else _PARTS[:3])
    return column, _encode(column, values)


def _learn_texts(
    columns: dict[str, Any], y: NDArray[np.float64], random_state: int
) -> dict[str, tuple[Column, NDArray[np.float64]]]:
    """Learn the codes of texts, of many short columns at a time: a fit takes milliseconds."""
    found = {}
    names = list(columns)
    at_once = max(1, _MOST_TEXTS_AT_ONCE // max(len(y), 1))
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        texts = np.column_stack([_as_text(columns[name]) for name in some])
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


def _zone(type_: Any) -> str | None:
    if pa.types.is_dictionary(type_):
        return _zone(type_.value_type)
    return type_.tz if pa.types.is_timestamp(type_) else None


def _encode(column: Column, values: Any) -> NDArray[np.float64]:
    """Return the features of a column, shape (n_rows, n_features)."""
    if column.kind == TEXT:
        return _encode_text(column, values)
    if pa.types.is_null(values.type):
        values = values.cast(FORMS[column.form])
    is_like_then = _ALIKE.get(_form(values.type)) == _ALIKE[column.form]
    if _kind(values.type) != column.kind or not is_like_then:
        raise TableError(
            f"Column {shown(column.name)} held {_ALIKE[column.form]} when the model was fitted, "
            f"and holds {_described(values)} now."
        )
    is_date = column.kind == DATE
    numbers = _as_days(column.name, values, column.zone) if is_date else _as_float(values)
    if column.fill is not None:
        numbers[np.isnan(numbers)] = column.fill
    if not np.all(np.isfinite(numbers)):
        raise TableError(f"Column {shown(column.name)} has values that are not finite.")
    return _date_parts(numbers, column.parts) if is_date else numbers[:, None]


def _encode_text(column: Column, values: Any) -> NDArray[np.float64]:
    type_ = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (is_text(type_) or pa.types.is_integer(type_) or pa.types.is_null(type_)):
        raise TableError(
            f"Column {shown(column.name)} was text when the model was fitted, and holds "
            f"{_described(values)} now."
        )
    texts = _as_text(values)
    new = [text for text in texts if text not in column.codes and text != _GAP]
    # It may have begun with what stands for missing values, and nothing else.
    if len(new) >= _FEWEST_NEW_TEXTS and 2 * len(new) >= len(texts) and not column.is_told:
        alike = likeness(new)
        if alike and not likeness(column.codes):
            raise TableError(
                f"Column {shown(column.name)} was text when the model was fitted, and looks like "
                f"{alike} now, as {shown(new[0])}: fit again with --missing, if that text stands "
                "for missing values, or with --text, if it is text."
            )
    return np.array([[column.codes.get(text, column.other_code)] for text in texts]).reshape(-1, 1)
