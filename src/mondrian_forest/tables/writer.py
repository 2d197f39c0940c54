"""Writes table files: CSV, Parquet and Arrow (Feather)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..io.replace import replacing
from ._arrow import pyarrow as pa
from .errors import TableError
from .files import ARROW, COMPRESSIONS, CSV, PARQUET, kind_of


class TableWriter:
    """Writes a table to a file in batches. Use it in a ``with`` statement.

    The file appears under its name when all of it is written. An error leaves the old file.

    Parameters
    ----------
    path : str, path or None
        File to write. If None, CSV goes to the standard output.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._kind = CSV if self.path is None else kind_of(self.path)
        self._writer: Any = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> TableWriter:
        if self.path is None:
            self._sink: Any = pa.PythonFile(sys.stdout.buffer, mode="w")
        else:
            unfinished = str(self._stack.enter_context(replacing(self.path)))
            compressed = self.path.suffix.lower() in COMPRESSIONS
            self._sink = self._stack.enter_context(
                pa.output_stream(
                    unfinished,
                    compression=pa.Codec.detect(str(self.path)).name if compressed else None,
                )
            )
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows, given as columns by name. All calls must have the same columns."""
        table = pa.table(
            {  # categories are written as values: each batch may number them differently
                name: values.cast(values.type.value_type)
                if pa.types.is_dictionary(getattr(values, "type", pa.null()))
                else values
                for name, values in columns.items()
            }
        )
        try:
            if self._writer is None:
                self._schema = table.schema
                self._writer = self._open(table.schema)
            self._writer.write_table(table.cast(self._schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise TableError(f"Some columns cannot be written as {self._kind}: {reason}.") from None

    def _open(self, schema: Any) -> Any:
        if self._kind == PARQUET:
            return pa.parquet.ParquetWriter(self._sink, schema)
        if self._kind == ARROW:
            return pa.ipc.new_file(self._sink, schema)
        is_tabbed = self.path is not None and ".tsv" in self.path.name.lower()
        options = pa.csv.WriteOptions(delimiter="\t" if is_tabbed else ",")
        return pa.csv.CSVWriter(self._sink, schema, write_options=options)

    def __exit__(self, *error: Any) -> bool | None:
        if error[0] is not None:
            with contextlib.suppress(Exception):
                self._close()
            return self._stack.__exit__(*error)
        with self._stack:  # if closing fails, on a full disk, this removes the unfinished file
            self._close()
        return None

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._sink.flush()
