"""What the text in a table stands for: numbers, truth values, dates, times of day, or just text.

All values of a CSV file are text at first, and a column of text may come from any other table, too.
One parser reads all of them, when a model is fitted and whenever it is used, so that the same cell
always means the same.

A column of text is read as numbers, dates or times only if all of its values can be read so. If
only most of them can, the column is refused: one ``?`` must not turn numbers into text silently.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._arrow import pyarrow as pa

FORMS = {
    "": pa.string(),
    "number": pa.float64(),
    "truth": pa.bool_(),
    "date": pa.timestamp("us"),
    "zoned date": pa.timestamp("us", tz="UTC"),
    "time": pa.time64("us"),
}
"""What text can stand for. The order is that in which the forms of a column are tried."""

_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?"
_PATTERNS = {
    "number": r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$",
    "truth": r"(?i)^(true|false|0|1)$",
    "date": rf"^{_DAY}([ T]{_CLOCK})?$",
    "zoned date": rf"^{_DAY}[ T]{_CLOCK} ?(Z|[+-]\d\d(:?\d\d)?)$",
    "time": rf"^{_CLOCK}$",
}
"""How values are written that can be read."""
_WORDS = {
    "number": "a number",
    "truth": "true or false",
    "date": "a date such as 2024-12-31 or 2024-12-31 18:00",
    "zoned date": "a date with a time zone such as 2024-12-31T18:00Z",
    "time": "a time of day such as 18:00",
}


class _Likeness(NamedTuple):
    """Values that people take for numbers, dates or times, however they are written."""

    name: str
    pattern: str
    forms: tuple[str, ...]


_LIKENESSES = (
    _Likeness(
        "numbers",  # also 1,5 and 1,234.5 and 1 234 and 12 % and $3
        r"(?i)^[+-]?[$€£]?\s?((\d+|\d{1,3}([,.' ]\d{3})+)([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?"
        r"\s?[%$€£]?$",
        ("number",),
    ),
    _Likeness(
        "dates",  # also 31.12.2020 and 12/31/20
        r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4}))([ T]\d.*)?$",
        ("date", "zoned date"),
    ),
    _Likeness("times", r"(?i)^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?$", ("time",)),
)
_PLACE = b"mondrian_forest.place"
_LONGEST_SHOWN = 40


class TableError(ValueError):
    """A table that cannot be read, or does not have what it should."""


def shown(value: str) -> str:
    """Return a value or name in quotes, with escapes, and not too long for a message."""
    if len(value) > _LONGEST_SHOWN:
        value = value[: _LONGEST_SHOWN - 3] + "..."
    return repr(value)


def placed(table: Any, path: str | os.PathLike[str], first_row: int) -> Any:
    """Note in a table which rows of which file it holds, so that errors can name them."""
    return _with_places(table, [[os.fspath(path), first_row, len(table)]])


def placed_as(table: Any, parts: Sequence[Any]) -> Any:
    """Note in a table that it consists of the rows of others, one after the other."""
    return _with_places(table, [place for part in parts for place in _places(part)])


def _with_places(table: Any, places: list[Any]) -> Any:
    metadata = {**(table.schema.metadata or {}), _PLACE: json.dumps(places)}
    return table.replace_schema_metadata(metadata)


def _places(table: Any) -> list[Any]:
    found: list[Any] = json.loads((table.schema.metadata or {}).get(_PLACE, b"[]"))
    # Of some of the rows, nobody knows which.
    return found if sum(n_rows for _, _, n_rows in found) == len(table) else []


def _row_name(table: Any, row: int) -> str:
    before = 0
    for path, first_row, n_rows in _places(table):
        if row < before + n_rows:
            return f"row {first_row + row - before + 1:,} of {path!r}"
        before += n_rows
    return f"row {row + 1:,}"


def is_text(type_: Any) -> bool:
    """Tell whether the values of a column are text, and not categories."""
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or str(type_) == "string_view"
    )


def typed(
    table: Any, names: Iterable[str], *, text: Sequence[str] = (), missing: Sequence[str] = ()
) -> dict[str, Any]:
    """Return columns of a table with the types that their values suggest.

    Parameters
    ----------
    table : pyarrow.Table
    names : iterable of str
        Which columns.
    text : sequence of str
        Columns that are text, whatever their values look like.
    missing : sequence of str
        What stands for a missing value, such as ``?``.

    Returns
    -------
    dict of str to pyarrow.ChunkedArray
        Text comes out as categories, so that nobody asks again what it stands for.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True))
    found = {}
    for name in names:
        values = without(columns[name], missing)
        if name in text:
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if not (is_text(values.type) or pa.types.is_integer(values.type)):
                raise TableError(f"Column {shown(name)} cannot be text: it holds {values.type}.")
            values = values.cast(pa.string()).dictionary_encode()
        elif is_text(values.type):
            values = without(_typed(name, values, table), missing)
        found[name] = values
    return found


def parsed(table: Any, forms: Mapping[str, str], missing: Sequence[str]) -> dict[str, Any]:
    """Return columns whose forms are known; it raises a ``TableError`` that names a wrong cell.

    Parameters
    ----------
    table : pyarrow.Table
    forms : mapping of str to str
        One of ``FORMS`` for each column to return.
    missing : sequence of str
        What stands for a missing value.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True))
    found = {}
    for name, form in forms.items():
        values = without(columns[name], missing)
        if form and is_text(values.type):
            texts = _trimmed(name, values)
            read = _read(texts, form)
            if read is None:
                cells = _wrong_cells(table, values, texts, form)
                raise TableError(
                    f"Column {shown(name)} should hold {_WORDS[form]} in every row, but "
                    f"{cells.sentence}: correct {cells.them}, or fit again with --missing "
                    f"{cells.example} or, if the column is text, with --text."
                )
            values = without(read, missing)
        found[name] = values
    return found


def without(values: Any, missing: Sequence[str]) -> Any:
    """Return the values of a column, null where they stand for a missing value.

    Blanks around a text do not matter, and a number may be written in any way.
    """
    marks = [mark.strip() for mark in missing]
    if marks and is_text(values.type):
        texts = pa.compute.ascii_trim_whitespace(values.cast(pa.string()))
        is_missing = pa.compute.is_in(texts, value_set=pa.array(marks, pa.string()))
        # With a scalar instead of an array, Arrow up to 20 makes wrong offsets of a slice.
        nulls = pa.nulls(len(values), pa.string())
        return pa.compute.if_else(is_missing, nulls, values.cast(pa.string()))
    numbers = [float(mark) for mark in marks if re.fullmatch(_PATTERNS["number"], mark)]
    if numbers and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        floats = values.cast(pa.float64(), safe=False)
        is_missing = pa.compute.is_in(floats, value_set=pa.array(numbers))
        return pa.compute.if_else(is_missing, pa.nulls(len(values), values.type), values)
    return values


def likeness(texts: Iterable[str]) -> str:
    """Return what most of some texts look like: numbers, dates, times, or nothing, ""."""
    values = pa.array(texts, pa.string())
    for name, pattern, _ in _LIKENESSES:
        if len(values) > 0 and 2 * _count(_matches(values, pattern)) >= len(values):
            return name
    return ""


def _typed(name: str, values: Any, table: Any) -> Any:
    """Return the values of a column of text with the type that all of them suggest."""
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values))])
    texts = _trimmed(name, values)
    for form in FORMS:
        found = _read(texts, form) if form else None
        if found is not None:
            return found
    _refuse_mixture(name, values, texts, table)
    return values.cast(pa.string()).dictionary_encode()


def _refuse_mixture(name: str, values: Any, texts: Any, table: Any) -> None:
    """Refuse a column if half of its values, or of its distinct values, are not just text.

    Distinct values count because a column of numbers may have more missing values than numbers.
    """
    distinct = texts.drop_null().value_counts()
    counts = distinct.field(1).to_numpy(zero_copy_only=False)
    for what, pattern, forms in _LIKENESSES:
        is_alike = _matches(distinct.field(0), pattern).to_numpy(zero_copy_only=False)
        if 2 * is_alike.sum() < len(counts) and 2 * counts[is_alike].sum() < counts.sum():
            continue
        form = max(forms, key=lambda form: _count(_matches(texts, _PATTERNS[form])))
        cells = _wrong_cells(table, values, texts, form)
        raise TableError(
            f"Column {shown(name)} looks like {what}, but {cells.sentence}: correct {cells.them}, "
            f"treat {cells.them} as missing (--missing {cells.example}), or say that the column is "
            "text (--text)."
        )


class _WrongCells(NamedTuple):
    """Cells of a column that cannot be read, in words."""

    sentence: str
    them: str
    example: str


def _wrong_cells(table: Any, values: Any, texts: Any, form: str) -> _WrongCells:
    is_written = pa.compute.fill_null(_matches(texts, _PATTERNS[form]), True)
    wrong = np.flatnonzero(~is_written.to_numpy(zero_copy_only=False))
    # What is written like a date may still be none, as the 30th of February.
    first = int(wrong[0]) if len(wrong) > 0 else _first_unreadable(texts, form)
    example = shown(values[first].as_py())
    row = _row_name(table, first)
    if len(wrong) > 1:
        n_values = len(texts) - texts.null_count
        count = f"{len(wrong):,} of {n_values:,} values are none, the first is {example} in {row}"
        return _WrongCells(count, "them", example)
    return _WrongCells(f"{example} in {row} is none", "it", example)


def _first_unreadable(texts: Any, form: str) -> int:
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        if _read(texts.slice(low, middle - low), form) is None:
            high = middle
        else:
            low = middle
    return low


def _trimmed(name: str, values: Any) -> Any:
    """Return texts without the blanks around them."""
    try:  # which looks whether they are text at all
        texts = values.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise TableError(f"Column {shown(name)} is no text in UTF-8.") from None
    return pa.compute.ascii_trim_whitespace(texts)


def _read(texts: Any, form: str) -> Any:
    """Return what texts without blanks around them stand for, None if one does not."""
    try:
        if form == "time":
            if _count(_matches(texts, _PATTERNS[form])) < len(texts) - texts.null_count:
                return None
            times = pa.compute.binary_join_element_wise("1970-01-01 ", texts, "")
            return _read(times, "date").cast(FORMS[form])
        if "date" in form and _count(_matches(texts, r"\.\d{7}")) > 0:  # microseconds will do
            texts = pa.compute.replace_substring_regex(texts, r"(\.\d{6})\d{1,3}", r"\1")
        return texts.cast(FORMS[form])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _matches(texts: Any, pattern: str) -> Any:
    return pa.compute.match_substring_regex(texts, pattern)


def _count(is_so: Any) -> int:
    return int(pa.compute.sum(is_so).as_py() or 0)
