"""From the columns of a table to the features of a forest.

- Numbers and truth values are features as they are.
- A date becomes up to four features: ``time`` in days, ``day_of_year``, ``day_of_week`` and, if
  there is a time of day, ``hour``. A time of day alone becomes its hour, a duration its seconds.
- A text becomes a number: the mean label of the rows with that text, shrunken towards the mean of
  all labels the more, the fewer there are (scikit-learn's ``TargetEncoder``). In the rows that it
  is learned from, the number of a text comes from other rows, so that a forest cannot read their
  labels from it. A text that was never seen gets the mean of all labels.
- Gaps are refused, or filled: with the median of a column of numbers or dates; in text, a gap is a
  text of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from ._arrow import pyarrow as pa
from .files import TableError, missing_column

NUMBER, DATE, TEXT = "number", "date", "text"
_PARTS = ("time", "day_of_year", "day_of_week", "hour")
_GAP = "\0gap"
"""Stands for a gap among texts."""
_FEWEST_ROWS_FOR_FOLDS = 20
_FORMS = {
    "": pa.string(),
    "number": pa.float64(),
    "truth": pa.bool_(),
    "time": pa.time64("us"),
    "date": pa.timestamp("us"),
    "zoned date": pa.timestamp("us", tz="UTC"),
}


@dataclass
class Column:
    """How one column becomes features."""

    name: str
    kind: str
    form: str = ""
    """What text must look like that stands for a value, in CSV files: one of ``_FORMS``."""
    parts: list[str] = field(default_factory=list)
    """Of a date."""
    fill: float | None = None
    """What stands in for a gap in numbers and dates; a gap in text has its own code."""
    codes: dict[str, float] = field(default_factory=dict)
    """Of texts."""
    other_code: float = 0.0
    """Of a text that was never seen."""

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [f"{self.name}.{part}" for part in self.parts] if self.parts else [self.name]


class TableEncoder:
    """Turns tables into arrays of numbers, all in the same way.

    Parameters
    ----------
    target : str
        The column of labels.
    columns : list of Column
    fills_gaps : bool
        Whether gaps are filled, or refused.

    See :meth:`learn`.
    """

    def __init__(self, target: str, columns: list[Column], fills_gaps: bool) -> None:
        self.target = target
        self.columns = columns
        self.fills_gaps = fills_gaps

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        impute: bool = False,
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
            Fill gaps, now and from then on.
        random_state : int, default=0
            Which rows the codes of a text are learned from.

        Returns
        -------
        encoder : TableEncoder
        X : ndarray of shape (n_rows, n_features)
        y : ndarray of shape (n_rows,)
        """
        names = [name for name in table.column_names if name != target]
        if columns is not None:
            names = list(dict.fromkeys(columns))
            if target in names:
                raise TableError(f"The target {target!r} cannot be one of the columns.")
        for name in (target, *names):
            if name not in table.column_names:
                raise TableError(missing_column(name, table.column_names, "the table"))
        if not names:
            raise TableError("There is no column to learn from beside the target.")
        encoder = cls(target, [], impute)
        y = encoder.labels(table)
        encoder._refuse_gaps(table, names)
        blocks = []
        for name in names:
            column, block = _learn_column(name, table.column(name), y, random_state)
            encoder.columns.append(column)
            blocks.append(block)
        return encoder, np.column_stack(blocks), y

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in their order."""
        return [name for column in self.columns for name in column.features]

    def features(self, table: Any) -> NDArray[np.float64]:
        """Return the features of a table's rows; the order of its columns does not matter."""
        for column in self.columns:
            if column.name not in table.column_names:
                raise TableError(missing_column(column.name, table.column_names, "the table"))
        self._refuse_gaps(table, [column.name for column in self.columns])
        return np.column_stack(
            [_encode(column, table.column(column.name)) for column in self.columns]
        )

    def labels(self, table: Any) -> NDArray[np.float64]:
        """Return the labels of a table's rows."""
        if self.target not in table.column_names:
            raise TableError(missing_column(self.target, table.column_names, "the table"))
        values = table.column(self.target)
        if self.columns and pa.types.is_string(values.type):  # from a CSV file
            values = _parsed(self.target, "number", values)
        if _kind(values.type) != NUMBER:
            example = next((str(value) for value in values.slice(0, 1).to_pylist()), "")
            raise TableError(
                f"The target {self.target!r} does not hold numbers, but {values.type} "
                f"such as {example!r}."
            )
        if values.null_count > 0:
            raise TableError(
                f"The target {self.target!r} has {values.null_count} gaps: leave these rows out."
            )
        labels = _as_float(values)
        if not np.all(np.isfinite(labels)):
            raise TableError(
                f"The target {self.target!r} has values that are not finite: leave these rows out."
            )
        return labels

    def to_json(self) -> str:
        """Return a text that ``from_json`` understands."""
        columns = [asdict(column) for column in self.columns]
        return json.dumps(
            {"target": self.target, "fills_gaps": self.fills_gaps, "columns": columns}
        )

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """Return the encoder that a text describes; it raises a ValueError if it does not."""
        try:
            content = json.loads(text)
            columns = [Column(**entry) for entry in content["columns"]]
            for column in columns:
                is_sound = (
                    isinstance(column.name, str)
                    and column.kind in (NUMBER, DATE, TEXT)
                    and column.form in _FORMS
                    and set(column.parts) <= set(_PARTS)
                    and (column.kind == DATE) == bool(column.parts)
                    and all(
                        isinstance(value, float) and math.isfinite(value)
                        for value in (*column.codes.values(), column.other_code)
                    )
                    and (column.fill is None or math.isfinite(column.fill))
                )
                if not is_sound:
                    raise ValueError(column)
            if not (columns and isinstance(content["target"], str)):
                raise ValueError(content)
            return cls(content["target"], columns, content["fills_gaps"] is True)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ValueError("its description of columns makes no sense") from None

    def _refuse_gaps(self, table: Any, names: list[str]) -> None:
        if self.fills_gaps:
            return
        gaps = {name: _count_gaps(table.column(name)) for name in names}
        gaps = {name: count for name, count in gaps.items() if count > 0}
        if gaps:
            shown = ", ".join(f"{name!r} ({count:,})" for name, count in gaps.items())
            raise TableError(
                f"There are gaps in {'column' if len(gaps) == 1 else 'columns'} {shown}: fill "
                "them in, leave these columns out, or have them filled by imputation (--impute)."
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
    if pa.types.is_string(type_) or str(type_) in ("large_string", "string_view"):
        return TEXT
    return ""


def _form(type_: Any) -> str:
    """Return how values of a type are written in a CSV file."""
    if pa.types.is_timestamp(type_):
        return "date" if type_.tz is None else "zoned date"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_time(type_):
        return "time"
    return "truth" if pa.types.is_boolean(type_) else "number"


def _parsed(name: str, form: str, values: Any) -> Any:
    """Return the values that text stands for."""
    try:
        return values.cast(_FORMS[form])
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise TableError(f"Column {name!r} should hold a {form} in every row: {reason}.") from None


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
        seconds = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return _as_float(seconds) / 1e6
    if pa.types.is_time(type_):
        return _as_float(values.cast(pa.time64("us"), safe=False).cast(pa.int64())) / 3.6e9
    if pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers, dtype=np.float64)


def _as_text(values: Any) -> NDArray[np.object_]:
    texts = values.cast(pa.string()).to_numpy(zero_copy_only=False).astype(object)
    texts[[text is None for text in texts]] = _GAP
    return np.asarray(texts)


def _as_days(values: Any) -> NDArray[np.float64]:
    """Return days since 1970, of the clock where it was written down, NaN where there are none."""
    type_ = values.type
    if pa.types.is_dictionary(type_):
        return _as_days(values.cast(type_.value_type))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        values = pa.compute.local_timestamp(values)
    # Nanoseconds are cut off; what is too far away is not to be taken for something near.
    is_fine = pa.types.is_timestamp(type_) and type_.unit == "ns"
    try:
        microseconds = values.cast(pa.timestamp("us"), safe=not is_fine).cast(pa.int64())
    except pa.ArrowException:
        raise TableError("There are dates too far away to be counted in microseconds.") from None
    return _as_float(microseconds) / 8.64e10


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


def _learn_column(
    name: str, values: Any, y: NDArray[np.float64], random_state: int
) -> tuple[Column, NDArray[np.float64]]:
    kind = _kind(values.type)
    if not kind:
        raise TableError(
            f"Column {name!r} holds {values.type}, which is no number, date or text: leave it out."
        )
    if kind == TEXT:
        return _learn_text(name, values, y, random_state)
    column = Column(name, kind, _form(values.type))
    numbers = _as_days(values) if kind == DATE else _as_float(values)
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0:
        raise TableError(f"Column {name!r} is empty: leave it out.")
    column.fill = float(np.median(known))
    if kind == DATE:
        has_hours = bool(np.any(np.mod(known, 1.0) != 0.0))
        column.parts = list(_PARTS if has_hours else _PARTS[:3])
    return column, _encode(column, values)


def _learn_text(
    name: str, values: Any, y: NDArray[np.float64], random_state: int
) -> tuple[Column, NDArray[np.float64]]:
    texts = _as_text(values)[:, None]
    encoder = TargetEncoder(target_type="continuous").fit(texts, y)
    codes = encoder.transform(texts)
    if len(y) >= _FEWEST_ROWS_FOR_FOLDS:
        folds = KFold(5, shuffle=True, random_state=random_state)
        for others, rows in folds.split(texts):
            fitted = TargetEncoder(target_type="continuous").fit(texts[others], y[others])
            codes[rows] = fitted.transform(texts[rows])
    found = dict(
        zip(map(str, encoder.categories_[0]), map(float, encoder.encodings_[0]), strict=True)
    )
    column = Column(name, TEXT, codes=found, other_code=float(encoder.target_mean_))
    return column, np.asarray(codes, dtype=np.float64)


def _encode(column: Column, values: Any) -> NDArray[np.float64]:
    """Return the features of a column, shape (n_rows, n_features)."""
    if column.kind != TEXT and pa.types.is_string(values.type):  # from a CSV file
        values = _parsed(column.name, column.form, values)
    kind = _kind(values.type)
    if column.kind == TEXT:
        if kind == DATE or not kind:
            raise TableError(
                f"Column {column.name!r} was text when the model was fitted, and holds "
                f"{values.type} now."
            )
        texts = _as_text(values)
        return np.array([[column.codes.get(text, column.other_code)] for text in texts])
    if kind != column.kind and not pa.types.is_null(values.type):
        kinds = {NUMBER: "numbers", DATE: "dates"}
        example = next((str(value) for value in values.slice(0, 1).to_pylist()), "")
        raise TableError(
            f"Column {column.name!r} held {kinds[column.kind]} when the model was fitted, and "
            f"holds {values.type} such as {example!r} now."
        )
    if column.kind == DATE and pa.types.is_null(values.type):
        values = values.cast(pa.timestamp("us"))
    numbers = _as_days(values) if column.kind == DATE else _as_float(values)
    if column.fill is not None:
        numbers[np.isnan(numbers)] = column.fill
    if not np.all(np.isfinite(numbers)):
        raise TableError(f"Column {column.name!r} has values that are not finite.")
    return _date_parts(numbers, column.parts) if column.kind == DATE else numbers[:, None]
