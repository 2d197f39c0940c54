"""Decides whether a column of text holds numbers, booleans, dates, times of day, or just text.

All values of a CSV file are text at first, and any other table may have columns of text, too. One
parser reads all of them, when a model is fitted and whenever it is used. So the same cell always
has the same meaning.

A column of text is read as numbers, dates or times only if all of its values can be read that way.
If only most of them can, the column is refused: one ``?`` must not silently turn numbers into text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._arrow import pyarrow as pa
from .errors import TableError, quoted
from .places import row_name

_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?"


class Form(NamedTuple):
    """What the text of a column can stand for."""

    type: Any
    """The Arrow type of the values."""
    pattern: str
    """How a value must be written."""
    one: str
    """A value, in words."""
    many: str
    """Several values, in words."""


FORMS = {
    "": Form(pa.string(), "", "text", "text"),
    "number": Form(
        pa.float64(),
        r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$",
        "a number",
        "numbers",
    ),
    "boolean": Form(pa.bool_(), r"(?i)^(true|false|0|1)$", "true or false", "true or false"),
    "date": Form(
        pa.timestamp("us"),
        rf"^{_DAY}([ T]{_CLOCK})?$",
        "a date such as 2024-12-31 or 2024-12-31 18:00",
        "dates such as 2024-12-31 or 2024-12-31 18:00",
    ),
    "zoned date": Form(
        pa.timestamp("us", tz="UTC"),
        rf"^{_DAY}[ T]{_CLOCK} ?(Z|[+-]\d\d(:?\d\d)?)$",
        "a date with a time zone such as 2024-12-31T18:00Z",
        "dates with a time zone such as 2024-12-31T18:00Z",
    ),
    "time": Form(
        pa.time64("us"), rf"^{_CLOCK}$", "a time of day such as 18:00", "times of day such as 18:00"
    ),
}
"""All forms, in the order in which they are tried. The first is text that stands for itself."""


class _Likeness(NamedTuple):
    """Text that a person would read as numbers, dates or times, even if we cannot read it."""

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


def is_text(type_: Any) -> bool:
    """Tell whether an Arrow type is text. Categories are not."""
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or str(type_) == "string_view"
    )


def infer_columns(
    table: Any, names: Iterable[str], *, text: Sequence[str] = (), missing: Sequence[str] = ()
) -> dict[str, Any]:
    """Return columns of a table, with text converted to the type that its values suggest.

    Parameters
    ----------
    table : pyarrow.Table
    names : iterable of str
        Columns to return.
    text : sequence of str
        Columns that are text, whatever their values look like.
    missing : sequence of str
        Texts that mark a missing value, such as ``?``.

    Returns
    -------
    dict of str to pyarrow.ChunkedArray
        Columns that stay text are returned as categories, so that they are not inferred again.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True))
    found = {}
    for name in names:
        values = nulls_for_marks(columns[name], missing)
        if name in text:
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if not (is_text(values.type) or pa.types.is_integer(values.type)):
                raise TableError(f"Column {quoted(name)} cannot be text: it holds {values.type}.")
            values = values.cast(pa.string()).dictionary_encode()
        elif is_text(values.type):
            values = nulls_for_marks(_infer(name, values, table), missing)
        found[name] = values
    return found


def read_columns(table: Any, forms: Mapping[str, str], missing: Sequence[str]) -> dict[str, Any]:
    """Return columns of a table, with text read as the given forms.

    A value that cannot be read raises a ``TableError`` that names the row.

    Parameters
    ----------
    table : pyarrow.Table
    forms : mapping of str to str
        For each column to return, a key of ``FORMS``.
    missing : sequence of str
        Texts that mark a missing value.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True))
    found = {}
    for name, form in forms.items():
        values = nulls_for_marks(columns[name], missing)
        if form and is_text(values.type):
            texts = _trimmed(name, values)
            read = _read(texts, form)
            if read is None:
                cells = _wrong_cells(table, values, texts, form)
                raise TableError(
                    f"Column {quoted(name)} must hold {FORMS[form].one} in every row, but "
                    f"{cells.sentence}: correct {cells.them}, or fit again with --missing "
                    f"{cells.example} or, if the column is text, with --text."
                )
            values = nulls_for_marks(read, missing)
        found[name] = values
    return found


def nulls_for_marks(values: Any, missing: Sequence[str]) -> Any:
    """Return the values of a column, with nulls in place of marks of missing values.

    Blanks around a text do not matter. A mark that is a number matches equal numbers, however they
    are written.
    """
    marks = [mark.strip() for mark in missing]
    if marks and is_text(values.type):
        texts = pa.compute.ascii_trim_whitespace(values.cast(pa.string()))
        is_missing = pa.compute.is_in(texts, value_set=pa.array(marks, pa.string()))
        return with_nulls(values.cast(pa.string()), is_missing)
    numbers = [float(mark) for mark in marks if re.fullmatch(FORMS["number"].pattern, mark)]
    if numbers and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        floats = values.cast(pa.float64(), safe=False)
        return with_nulls(values, pa.compute.is_in(floats, value_set=pa.array(numbers)))
    return values


def with_nulls(values: Any, is_missing: Any) -> Any:
    """Return values with nulls where ``is_missing`` is true."""
    # With a scalar null instead of an array of nulls, Arrow up to version 20 computes wrong offsets
    # if the values are a slice.
    return pa.compute.if_else(is_missing, pa.nulls(len(values), values.type), values)


def likeness(texts: Iterable[str]) -> str:
    """Return what at least half of the texts look like: numbers, dates, times, or else ""."""
    values = pa.array(texts, pa.string())
    for name, pattern, _ in _LIKENESSES:
        if len(values) > 0 and 2 * _count(_matches(values, pattern)) >= len(values):
            return name
    return ""


def _infer(name: str, values: Any, table: Any) -> Any:
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
    """Refuse a column if half of its values, or of its distinct values, are more than just text.

    Distinct values count because a column of numbers may have more missing values than numbers.
    """
    distinct = texts.drop_null().value_counts()
    counts = distinct.field(1).to_numpy(zero_copy_only=False)
    for what, pattern, forms in _LIKENESSES:
        is_alike = _matches(distinct.field(0), pattern).to_numpy(zero_copy_only=False)
        if 2 * is_alike.sum() < len(counts) and 2 * counts[is_alike].sum() < counts.sum():
            continue
        form = max(forms, key=lambda form: _count(_matches(texts, FORMS[form].pattern)))
        cells = _wrong_cells(table, values, texts, form)
        raise TableError(
            f"Column {quoted(name)} looks like {what}, but {cells.sentence}: correct {cells.them}, "
            f"treat {cells.them} as missing (--missing {cells.example}), or treat the column as "
            "text (--text)."
        )


class _WrongCells(NamedTuple):
    """Values of a column that cannot be read, in words."""

    sentence: str
    them: str
    example: str


def _wrong_cells(table: Any, values: Any, texts: Any, form: str) -> _WrongCells:
    is_right = pa.compute.fill_null(_matches(texts, FORMS[form].pattern), True)
    wrong = np.flatnonzero(~is_right.to_numpy(zero_copy_only=False))
    # A value can match the pattern of a date and still be none, such as February 30.
    first = int(wrong[0]) if len(wrong) > 0 else _first_unreadable(texts, form)
    example = quoted(values[first].as_py())
    row = row_name(table, first)
    if len(wrong) > 1:
        n_values = len(texts) - texts.null_count
        count = f"{len(wrong):,} of {n_values:,} values are not {FORMS[form].many}"
        return _WrongCells(f"{count} (the first is {example} in {row})", "them", example)
    return _WrongCells(f"{example} in {row} is not {FORMS[form].one}", "it", example)


def _first_unreadable(texts: Any, form: str) -> int:
    """Return the index of the first text that cannot be read, by bisection."""
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
    try:  # casting to text checks the encoding
        texts = values.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise TableError(f"Column {quoted(name)} is not UTF-8 text.") from None
    return pa.compute.ascii_trim_whitespace(texts)


def _read(texts: Any, form: str) -> Any:
    """Return the values that trimmed texts stand for, or None if one of them cannot be read."""
    try:
        if form == "time":
            if _count(_matches(texts, FORMS[form].pattern)) < len(texts) - texts.null_count:
                return None
            times = pa.compute.binary_join_element_wise("1970-01-01 ", texts, "")
            return _read(times, "date").cast(FORMS[form].type)
        if "date" in form and _count(_matches(texts, r"\.\d{7}")) > 0:
            # Dates are kept in microseconds, so further digits are cut off.
            texts = pa.compute.replace_substring_regex(texts, r"(\.\d{6})\d{1,3}", r"\1")
        return texts.cast(FORMS[form].type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _matches(texts: Any, pattern: str) -> Any:
    return pa.compute.match_substring_regex(texts, pattern)


def _count(is_true: Any) -> int:
    return int(pa.compute.sum(is_true).as_py() or 0)
