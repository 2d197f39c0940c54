"""Table files, read in batches and written in batches: CSV, Parquet and Arrow (Feather).

Which of them a file is, its name tells: ``.csv``, ``.tsv`` and ``.txt`` (also with ``.gz`` and
other compressions), ``.parquet`` or ``.pq``, ``.arrow``, ``.feather`` or ``.ipc``.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..io.replace import replacing
from ._arrow import pyarrow as pa
from .texts import TableError, placed, placed_as, shown

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
"""Bytes that are parsed at a time where the whole file is read; the first line must fit in."""
_CSV_STEP = 2**22
"""Bytes that are parsed at a time for batches; some thirty times as many are read ahead."""
_LARGE_CSV = 2**28
"""Bytes from which on values may not contain line ends, so that parsing needs little memory."""


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

    The columns of a CSV file are text; what it stands for, ``TableEncoder`` finds out.

    Parameters
    ----------
    path : str or path
    delimiter : str, default=None
        Between the columns of a CSV file. None: the one of comma, semicolon, tab and bar that is
        most frequent in the first line.
    columns : sequence of str, default=None
        Which columns to read. None: all.
    verbatim : bool, default=False
        Leave all values of a CSV file as they stand there. Otherwise NA and the like, and nothing,
        are missing values.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        delimiter: str | None = None,
        columns: Sequence[str] | None = None,
        verbatim: bool = False,
    ) -> None:
        self.path = Path(path)
        self.kind = kind_of(self.path)
        self.delimiter = delimiter
        self.verbatim = verbatim
        if delimiter is not None and len(delimiter) != 1:
            raise TableError(f"A delimiter is one character, got {delimiter!r}.")
        self._columns = None if columns is None else list(dict.fromkeys(columns))
        with self._told():
            mode = self.path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise TableError(
                    f"{str(self.path)!r} is no regular file, so that it cannot be read twice."
                )
            self.names = self._read_names()
        counts = Counter(self.names)
        if len(counts) < len(self.names):
            twice = next(name for name, count in counts.items() if count > 1)
            raise TableError(f"{str(self.path)!r} has two columns with the name {shown(twice)}.")
        for name in self._columns or []:
            if name not in counts:
                raise TableError(missing_column(name, self.names, str(self.path)))

    @property
    def is_csv(self) -> bool:
        """Whether all values are text."""
        return self.kind == _CSV

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where the file tells it."""
        if self.kind == _PARQUET:
            with self._told():
                return int(pa.parquet.ParquetFile(self.path).metadata.num_rows)
        return None

    @property
    def row_groups(self) -> list[int | None]:
        """Lengths of the row groups of a Parquet file; of others, one length that is not known."""
        if self.kind != _PARQUET:
            return [None]
        with self._told():
            metadata = pa.parquet.ParquetFile(self.path).metadata
            return [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]

    def read_group(self, number: int) -> Any:
        """Return one row group of a Parquet file."""
        first_row = sum(length or 0 for length in self.row_groups[:number])
        with self._told(), pa.parquet.ParquetFile(self.path) as file:
            table = file.read_row_group(number, columns=self._columns)
        return placed(table, self.path, first_row)

    def read(self) -> Any:
        """Return the whole table."""
        if self.kind == _CSV:
            with self._told():
                table = pa.csv.read_csv(self.path, **self._csv_options(_CSV_BLOCK))
        else:
            batches = list(self._batches(BATCH_ROWS))
            table = pa.Table.from_batches(batches, schema=self._schema())
        return placed(table, self.path, 0)

    def batches(self, n_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield tables of at most so many rows."""
        waiting: list[Any] = []
        n_waiting = n_before = 0
        for batch in self._batches(n_rows):
            for first in range(0, len(batch), n_rows):
                part = batch.slice(first, n_rows)
                if n_waiting + len(part) > n_rows:
                    yield placed(pa.Table.from_batches(waiting), self.path, n_before)
                    n_before += n_waiting
                    waiting, n_waiting = [], 0
                waiting.append(part)
                n_waiting += len(part)
        if waiting:
            yield placed(pa.Table.from_batches(waiting), self.path, n_before)

    def empty(self) -> Any:
        """Return a table without rows."""
        if self.kind == _CSV:
            return pa.table({name: pa.array([], pa.string()) for name in self._wanted()})
        return self._schema().empty_table()

    def _wanted(self) -> list[str]:
        return self.names if self._columns is None else self._columns

    def _batches(self, n_rows: int) -> Iterator[Any]:
        with self._told():
            if self.kind == _CSV:
                with pa.csv.open_csv(self.path, **self._csv_options(_CSV_STEP)) as reader:
                    yield from reader
            elif self.kind == _PARQUET:
                # What is read ahead would be kept until the end of the file.
                with pa.parquet.ParquetFile(self.path, pre_buffer=False) as file:
                    yield from file.iter_batches(batch_size=n_rows, columns=self._columns)
            else:
                # Not mapped into memory: who changes a mapped file ends the process.
                with pa.OSFile(str(self.path)) as source:
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number)
                        batch.validate(full=True)  # a wrong offset would lead out of the buffers
                        yield batch if self._columns is None else batch.select(self._columns)

    def _schema(self) -> Any:
        schema = self._whole_schema()
        return pa.schema([schema.field(name) for name in self._wanted()])

    def _whole_schema(self) -> Any:
        with self._told():
            if self.kind == _PARQUET:
                return pa.parquet.read_schema(self.path)
            with pa.OSFile(str(self.path)) as source:
                return pa.ipc.open_file(source).schema

    def _read_names(self) -> list[str]:
        if self.kind != _CSV:
            return [str(name) for name in self._whole_schema().names]
        with pa.input_stream(str(self.path), compression="detect") as stream:
            start = stream.read(2**20)
        first = re.split(r"[\r\n]", start.decode("utf-8-sig", errors="replace"), maxsplit=1)[0]
        if not start.strip():
            raise TableError(
                f"{str(self.path)!r} is empty: its first line should name the columns."
            )
        if "\0" in first:
            raise TableError(f"{str(self.path)!r} is no text in UTF-8, so no CSV file.")
        if self.delimiter is None:
            unquoted = re.sub(r'"[^"]*"', "", first)
            self.delimiter = max(",;\t|", key=unquoted.count)
        with pa.csv.open_csv(self.path, **self._csv_options(_CSV_BLOCK)) as reader:
            return [str(name) for name in reader.schema.names]

    def _csv_options(self, block: int) -> dict[str, Any]:
        names = getattr(self, "names", [])  # not known yet when the first line is read
        return {
            "read_options": pa.csv.ReadOptions(block_size=block, use_threads=bool(names)),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=self.path.stat().st_size <= _LARGE_CSV,
            ),
            "convert_options": pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=not self.verbatim,
                include_columns=self._columns if names else None,
            ),
        }

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what goes wrong with a file into one sentence that names it."""
        try:
            yield
        except (TableError, MemoryError):
            raise
        except FileNotFoundError:
            raise TableError(f"There is no file {str(self.path)!r}.") from None
        except IsADirectoryError:
            raise TableError(f"{str(self.path)!r} is a folder: name a file in it.") from None
        except PermissionError:
            raise TableError(f"{str(self.path)!r} may not be read: permission denied.") from None
        except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise MemoryError(str(error)) from None
            reason = " ".join(str(error).split()).rstrip(".")
            if "invalid UTF8" in reason:
                reason = "it is no text in UTF-8"
            if "newlines_in_values" in reason:
                reason = "it has line ends within quotes, which large CSV files may not have"
            raise TableError(
                f"{str(self.path)!r} is no sound {self.kind} file: {reason}."
            ) from None


def with_missing_values(table: Any) -> Any:
    """Return a table of text with nulls for what stands for nothing in a CSV file, such as NA."""
    nulls = pa.array(pa.csv.ConvertOptions().null_values, pa.string())
    # With a scalar in place of an array of nulls, Arrow up to 20 makes wrong offsets of a slice.
    columns = [
        pa.compute.if_else(
            pa.compute.is_in(texts, value_set=nulls), pa.nulls(len(texts), texts.type), texts
        )
        for texts in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def find_files(name: str) -> list[Path]:
    """Return the files that a name, or a pattern such as ``data/*.parquet``, stands for."""
    if os.path.lexists(name) or not any(mark in name for mark in "*?["):
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
        others = set(table.column_names)
        missing = [name for name in names if name not in others]
        if missing:
            raise TableError(f"Not all files have a column {shown(missing[0])}.")
    try:
        together = pa.concat_tables(
            [table.select(names) for table in tables], promote_options="permissive"
        )
        return placed_as(together, tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
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
    known = ", ".join(map(shown, names[:12])) + (", ..." if len(names) > 12 else "")
    hint = ""
    if len(names) == 1 and any(mark in names[0] for mark in ";,\t|"):
        hint = " If that is not one column, name the delimiter."
    return f"There is no column {shown(name)} in {where}, which has {known}.{hint}"


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
        table = pa.table(
            {  # categories may be numbered differently in each batch
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
            raise TableError(f"Not all columns can be written as {self._kind}: {reason}.") from None

    def _open(self, schema: Any) -> Any:
        if self._kind == _PARQUET:
            return pa.parquet.ParquetWriter(self._sink, schema)
        if self._kind == _ARROW:
            return pa.ipc.new_file(self._sink, schema)
        is_tabbed = self.path is not None and ".tsv" in self.path.name.lower()
        options = pa.csv.WriteOptions(delimiter="\t" if is_tabbed else ",")
        return pa.csv.CSVWriter(self._sink, schema, write_options=options)

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
