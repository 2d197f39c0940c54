"""From tables to arrays of features and labels, always in the same way.

``columns`` says how each kind of column becomes features, and ``texts`` what text stands for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrow import pyarrow as pa
from .columns import Column, learn_columns
from .errors import TableError, listed, no_such_column, quoted
from .texts import FORMS, infer_columns, read_columns
from .values import NUMBER, as_float, count_missing, description, form_of, kind_of


class TableEncoder:
    """Turns tables into arrays of features and labels. Create it with :meth:`learn`.

    Parameters
    ----------
    target : str
        The column of labels.
    columns : list of Column
        How each other column becomes features.
    impute : bool
        Whether missing values are filled. If False, they are refused.
    missing : sequence of str, default=()
        Texts that mark a missing value, such as ``?``.
    target_form : str, default="number"
        How labels are written as text.
    """

    def __init__(
        self,
        target: str,
        columns: list[Column],
        impute: bool,
        missing: Sequence[str] = (),
        target_form: str = "number",
    ) -> None:
        self.target = target
        self.columns = columns
        self.impute = impute
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
            The column of labels.
        columns : sequence of str, default=None
            Columns to learn from. If None, all except the target.
        impute : bool, default=False
            Fill missing values, in this table and in later ones. If False, they are refused.
        text : sequence of str, default=()
            Columns that are text, even if their values look like numbers or dates.
        missing : sequence of str, default=()
            Texts that mark a missing value, such as ``?``, in addition to nulls.
        random_state : int, default=0
            Seed of the folds in which the codes of texts are learned.

        Returns
        -------
        encoder : TableEncoder
        X : ndarray of shape (n_rows, n_features)
        y : ndarray of shape (n_rows,)
        """
        found = inferred_columns(table, target, columns=columns, text=text, missing=missing)
        labels = found.pop(target)
        encoder = cls(target, [], impute, missing, form_of(labels.type))
        y = encoder._as_labels(labels)
        encoder._refuse_missing(found)
        learned = learn_columns(found, y, random_state)
        for name, (column, _) in learned.items():
            column.is_declared_text = name in text
        encoder.columns = [column for column, _ in learned.values()]
        return encoder, np.column_stack([features for _, features in learned.values()]), y

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order."""
        return [name for column in self.columns for name in column.features]

    def typed(self, table: Any) -> Any:
        """Return the columns that this encoder knows, with text converted to numbers and dates.

        Convert a table before you take some of its rows. Only a whole table of a ``TableFile`` has
        row numbers for error messages.
        """
        forms = self._forms(table)
        if self.target in table.column_names:
            forms[self.target] = self.target_form
        return pa.table(read_columns(table, forms, self.missing))

    def features(self, table: Any) -> NDArray[np.float64]:
        """Return the features of a table's rows. Its columns may have any order."""
        values = read_columns(table, self._forms(table), self.missing)
        self._refuse_missing(values)
        return np.column_stack([column.encode(values[column.name]) for column in self.columns])

    def labels(self, table: Any) -> NDArray[np.float64]:
        """Return the labels of a table's rows."""
        if self.target not in table.column_names:
            raise TableError(no_such_column(self.target, table.column_names, "the table"))
        values = read_columns(table, {self.target: self.target_form}, self.missing)
        return self._as_labels(values[self.target])

    def to_json(self) -> str:
        """Return a description that ``from_json`` can read."""
        description = {
            "target": self.target,
            "target_form": self.target_form,
            "impute": self.impute,
            "missing": self.missing,
            "columns": [asdict(column) for column in self.columns],
        }
        return json.dumps(description)

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """Return the encoder of a description. An invalid description raises a ValueError."""
        try:
            content = json.loads(text)
            columns = [Column(**entry) for entry in content["columns"]]
            target, target_form = content["target"], content["target_form"]
            impute, missing = content["impute"], content["missing"]
            is_valid = (
                columns
                and all(column.is_valid() for column in columns)
                and target_form in FORMS
                and isinstance(impute, bool)
                and isinstance(missing, list)
                and all(isinstance(name, str) for name in (target, *missing))
            )
            if not is_valid:
                raise ValueError(content)
            return cls(target, columns, impute, missing, target_form)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ValueError("its description of columns makes no sense") from None

    def _forms(self, table: Any) -> dict[str, str]:
        known = set(table.column_names)
        for column in self.columns:
            if column.name not in known:
                raise TableError(no_such_column(column.name, table.column_names, "the table"))
        return {column.name: column.form for column in self.columns}

    def _as_labels(self, values: Any) -> NDArray[np.float64]:
        target = f"The target {quoted(self.target)}"
        if kind_of(values.type) != NUMBER:
            raise TableError(f"{target} does not hold numbers, but {description(values)}.")
        n_missing = count_missing(values)
        if n_missing > 0:
            raise TableError(f"{target} has {n_missing:,} missing values: remove these rows.")
        labels = as_float(values)
        if not np.all(np.isfinite(labels)):
            raise TableError(f"{target} has values that are not finite: remove these rows.")
        return labels

    def _refuse_missing(self, columns: dict[str, Any]) -> None:
        """Raise an error if values are missing and should not be filled."""
        if self.impute:
            return
        counts = {name: count_missing(values) for name, values in columns.items()}
        found = [f"{quoted(name)} ({count:,})" for name, count in counts.items() if count > 0]
        if found:
            raise TableError(
                f"There are missing values in {'column' if len(found) == 1 else 'columns'} "
                f"{listed(found)}: fill them in, leave these columns out (--drop), or use medians "
                "(--impute)."
            )


def inferred_columns(
    table: Any,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the columns to learn from, and the target, with the types that their values suggest.

    The parameters are those of ``TableEncoder.learn``.
    """
    names = dict.fromkeys(table.column_names if columns is None else columns)
    if columns is None:
        names.pop(target, None)
    elif target in names:
        raise TableError(f"The target {quoted(target)} cannot be one of the columns.")
    known = set(table.column_names)
    for name in (target, *names):
        if name not in known:
            raise TableError(no_such_column(name, table.column_names, "the table"))
    for name in text:
        if name not in names:
            raise TableError(
                f"Column {quoted(name)} cannot be text: it is not one of the columns to learn from."
            )
    if not names:
        raise TableError("There is no column to learn from besides the target.")
    return infer_columns(table, [*names, target], text=text, missing=missing)
