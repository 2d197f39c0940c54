"""Table files, read in batches and written in batches: CSV, Parquet and Arrow (Feather).

Which of them a file is, its name tells: ``.csv``, ``.tsv`` and ``.txt`` (also with ``.gz`` and
other compressions), ``.parquet`` or ``.pq``, ``.arrow``, ``.feather`` or ``.ipc``.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..persistence import replacing
from ._arrow import pyarrow as pa

BATCH_ROWS = 100_000
_CSV, _PARQUET, _ARROW = "CSV", "Parquet", "Arrow"
_KINDS = {
    ".csv": _CSV,
    ".tsv": _CSV,
    ".txt": _CSV,
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
    ".arrow": _ARROW,
    ".feather": _ARROW,
    ".ipc": _ARROW,
}
_COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4")
_CSV_BLOCK = 2**24
"""Bytes that are parsed at a time; types that are not given are found in the first block."""


class TableError(ValueError):
    """A table that cannot be read, or does not have what it should."""


def kind_of(path: Path) -> str:
    """Return the kind of file that a name stands for."""
    name = path.with_suffix("") if path.suffix.lower() in _COMPRESSIONS else path
    kind = _KINDS.get(name.suffix.lower())
    if kind is None or (kind != _CSV and name != path):
        raise TableError(
            f"{str(path)!r} is of an unknown kind: a table's name ends in .csv (or .csv.gz), "
            ".parquet, .arrow or .feather."
        )
    return kind


class TableFile:
    """A file that holds a table, read batch by batch.

    Parameters
    ----------
    path : str or path
    delimiter : str, default=None
        Between the columns of a CSV file. None: the one of comma, semicolon, tab and bar that is
        most frequent in the first line.
    types : mapping from column to pyarrow type, default=None
        Of CSV columns. None: found by looking at the values; whole numbers count as numbers.
    columns : sequence of str, default=None
        Which columns to read. None: all.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        delimiter: str | None = None,
        types: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.kind = kind_of(self.path)
        self.delimiter = delimiter
        if delimiter is not None and len(delimiter) != 1:
            raise TableError(f"A delimiter is one character, got {delimiter!r}.")
        self._types = dict(types or {})
        self._columns = None if columns is None else list(columns)
        with self._told():
            self.names = self._read_names()
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise TableError(f"{str(self.path)!r} has two columns with the name {twice!r}.")
        missing = [name for name in self._columns or [] if name not in self.names]
        if missing:
            raise TableError(missing_column(missing[0], self.names, str(self.path)))

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where the file tells it."""
        if self.kind == _PARQUET:
            with self._told():
                return int(pa.parquet.ParquetFile(self.path).metadata.num_rows)
        return None

    @property
    def n_row_groups(self) -> int:
        """The number of parts that can be read by themselves: of a Parquet file its row groups."""
        if self.kind == _PARQUET:
            with self._told():
                return max(int(pa.parquet.ParquetFile(self.path).num_row_groups), 1)
        return 1

    def read_group(self, number: int) -> Any:
        """Return one row group of a Parquet file."""
        with self._told(), pa.parquet.ParquetFile(self.path) as file:
            return file.read_row_group(number, columns=self._columns)

    def read(self) -> Any:
        """Return the whole table."""
        if self.kind == _CSV:  # which finds types by looking at all values
            with self._told():
                return pa.csv.read_csv(self.path, **self._csv_options(whole=True))
        return pa.Table.from_batches(list(self._batches(BATCH_ROWS)), schema=self._schema())

    def batches(self, n_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield tables of at most so many rows."""
        waiting: list[Any] = []
        n_waiting = 0
        for batch in self._batches(n_rows):
            for first in range(0, len(batch), n_rows):
                part = batch.slice(first, n_rows)
                if n_waiting + len(part) > n_rows:
                    yield pa.Table.from_batches(waiting)
                    waiting, n_waiting = [], 0
                waiting.append(part)
                n_waiting += len(part)
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _batches(self, n_rows: int) -> Iterator[Any]:
        with self._told():
            if self.kind == _CSV:
                with pa.csv.open_csv(self.path, **self._csv_options(whole=False)) as reader:
                    yield from reader
            elif self.kind == _PARQUET:
                with pa.parquet.ParquetFile(self.path) as file:
                    yield from file.iter_batches(batch_size=n_rows, columns=self._columns)
            else:
                with pa.memory_map(str(self.path)) as source:
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number)
                        yield batch if self._columns is None else batch.select(self._columns)

    def _schema(self) -> Any:
        with self._told():
            if self.kind == _PARQUET:
                schema = pa.parquet.read_schema(self.path)
            else:
                with pa.memory_map(str(self.path)) as source:
                    schema = pa.ipc.open_file(source).schema
        if self._columns is not None:
            schema = pa.schema([schema.field(name) for name in self._columns])
        return schema

    def _read_names(self) -> list[str]:
        if self.kind != _CSV:
            return [str(name) for name in self._schema().names]
        with pa.input_stream(str(self.path), compression="detect") as stream:
            start = stream.read(2**16)
        first = start.decode("utf-8-sig", errors="replace").split("\n", 1)[0].rstrip("\r")
        if not first.strip():
            raise TableError(
                f"{str(self.path)!r} is empty: its first line should name the columns."
            )
        if "\0" in first:
            raise TableError(f"{str(self.path)!r} is no text, so no CSV file.")
        if self.delimiter is None:
            self.delimiter = max(",;\t|", key=first.count)
        return next(csv.reader([first], delimiter=self.delimiter))

    def _csv_options(self, *, whole: bool) -> dict[str, Any]:
        types = {name: type_ for name, type_ in self._types.items() if name in self.names}
        if not whole:
            types = self._first_types(widens=not types) | types
        return {
            "read_options": pa.csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=whole),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=not self._is_large()
            ),
            "convert_options": pa.csv.ConvertOptions(
                column_types=types,
                strings_can_be_null=True,
                include_columns=self._columns,
            ),
        }

    def _is_large(self) -> bool:
        """Where values may contain line ends, a file is parsed by one thread only."""
        return self.path.stat().st_size > 2**28

    def _first_types(self, *, widens: bool) -> dict[str, Any]:
        """Return the types of columns as the first block has them.

        With ``widens``, whole numbers count as numbers: there may be a fraction in the next block.
        """
        options = {
            "read_options": pa.csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False),
            "parse_options": pa.csv.ParseOptions(delimiter=self.delimiter),
            "convert_options": pa.csv.ConvertOptions(strings_can_be_null=True),
        }
        with pa.csv.open_csv(self.path, **options) as reader:
            schema = reader.schema
        return {
            field.name: pa.float64()
            if widens and (pa.types.is_integer(field.type) or pa.types.is_null(field.type))
            else field.type
            for field in schema
        }

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what goes wrong with a file into one sentence that names it."""
        try:
            yield
        except TableError:
            raise
        except FileNotFoundError:
            raise TableError(f"There is no file {str(self.path)!r}.") from None
        except IsADirectoryError:
            raise TableError(f"{str(self.path)!r} is a folder: name a file in it.") from None
        except PermissionError:
            raise TableError(f"{str(self.path)!r} may not be read: permission denied.") from None
        except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise TableError(
                f"{str(self.path)!r} is no sound {self.kind} file: {reason}."
            ) from None


def find_files(name: str) -> list[Path]:
    """Return the files that a name, or a pattern such as ``data/*.parquet``, stands for."""
    if not any(mark in name for mark in "*?["):
        return [Path(name)]
    found = sorted(Path(match) for match in glob.glob(name, recursive=True))
    if not found:
        raise TableError(f"There is no file {name!r}.")
    return found


def concatenated(tables: list[Any]) -> Any:
    """Return one table of several with the same columns."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].column_names
    for table in tables[1:]:
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise TableError(f"Not all files have a column {missing[0]!r}.")
    try:
        return pa.concat_tables(
            [table.select(names) for table in tables], promote_options="permissive"
        )
    except pa.ArrowException as error:
        raise TableError(f"The files do not fit together: {error}.") from None


def sample_rows(batches: Iterable[Any], most_rows: int, seed: int = 0) -> tuple[Any, int]:
    """Return at most so many rows, drawn at random from all, and how many there are in all."""
    random = np.random.default_rng(seed)
    kept: Any = None
    keys = np.empty(0)
    n_rows = 0
    for batch in batches:
        n_rows += len(batch)
        keys = np.concatenate([keys, random.random(len(batch))])
        kept = batch if kept is None else pa.concat_tables([kept, batch])
        if len(keys) > most_rows:  # those with the smallest keys, in their order
            chosen = np.sort(np.argpartition(keys, most_rows - 1)[:most_rows])
            keys, kept = keys[chosen], kept.take(chosen)
    return (pa.table({}) if kept is None else kept.combine_chunks()), n_rows


def missing_column(name: str, names: Sequence[str], where: str) -> str:
    """Say that there is no such column, and which there are."""
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    hint = ""
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        hint = " If that is not one column, name the delimiter."
    return f"There is no column {name!r} in {where}, which has {shown}.{hint}"


class TableWriter:
    """Writes a table batch by batch; the file is in its place when all of it is written.

    Use it in a ``with`` statement. Without a path, CSV goes to the standard output.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._kind = _CSV if self.path is None else kind_of(self.path)
        self._writer: Any = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> TableWriter:
        if self.path is None:
            self._sink: Any = pa.PythonFile(sys.stdout.buffer, mode="w")
        else:
            unfinished = str(self._stack.enter_context(replacing(self.path)))
            compressed = self.path.suffix.lower() in _COMPRESSIONS
            self._sink = self._stack.enter_context(
                pa.output_stream(
                    unfinished,
                    compression=pa.Codec.detect(str(self.path)).name if compressed else None,
                )
            )
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append rows, given as columns; they are the same each time."""
        table = pa.table(dict(columns))
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table.cast(self._writer_schema))

    def _open(self, schema: Any) -> Any:
        self._writer_schema = schema
        if self._kind == _PARQUET:
            return pa.parquet.ParquetWriter(self._sink, schema)
        if self._kind == _ARROW:
            return pa.ipc.new_file(self._sink, schema)
        return pa.csv.CSVWriter(
            self._sink,
            schema,
            write_options=pa.csv.WriteOptions(
                delimiter="\t" if self.path is not None and ".tsv" in self.path.suffixes else ","
            ),
        )

    def __exit__(self, *error: Any) -> bool | None:
        if error[0] is not None:
            with contextlib.suppress(Exception):
                self._close()
            return self._stack.__exit__(*error)
        with self._stack:  # which removes the unfinished file if closing fails, on a full disk
            self._close()
        return None

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._sink.flush()
