"""Reads table files: CSV, Parquet and Arrow (Feather).

The ending of a file's name tells its type: ``.csv``, ``.tsv`` and ``.txt`` (also with ``.gz`` and
other compressions), ``.parquet`` or ``.pq``, ``.arrow``, ``.feather`` or ``.ipc``.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrow import pyarrow as pa
from .errors import TableError, no_such_column, quoted
from .places import placed, placed_as
from .texts import with_nulls

BATCH_ROWS = 100_000
CSV, PARQUET, ARROW = "CSV", "Parquet", "Arrow"
_KINDS = {
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".arrow": ARROW,
    ".feather": ARROW,
    ".ipc": ARROW,
}
COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4")
_CSV_BLOCK = 2**24
"""Bytes to parse at a time when the whole file is read. The first line must fit into one block."""
_CSV_STEP = 2**22
"""Bytes to parse at a time for batches. Arrow reads about thirty blocks ahead."""
_LARGE_CSV = 2**28
"""In files of more bytes, values may not contain line breaks. Then parsing needs little memory."""


def kind_of(path: Path) -> str:
    """Return the type of a file, by its name."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    kind = _KINDS.get(name.suffix.lower())
    if kind is None or (kind != CSV and name != path):
        raise TableError(
            f"{str(path)!r} has an unknown file type: the name of a table must end in .csv (or "
            ".csv.gz), .parquet, .arrow or .feather."
        )
    return kind


class TableFile:
    """A table in a file, read as a whole or in batches.

    All columns of a CSV file are text. ``TableEncoder`` decides what the text stands for.

    Parameters
    ----------
    path : str or path
    delimiter : str, default=None
        Delimiter of a CSV file. If None, it is the most frequent one of comma, semicolon, tab and
        bar in the first line.
    columns : sequence of str, default=None
        Columns to read. If None, all of them.
    verbatim : bool, default=False
        If True, all values of a CSV file are kept as they are written. If False, empty cells, NA
        and the like become nulls. See :meth:`with_nulls`.
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
            raise TableError(f"The delimiter must be one character, got {delimiter!r}.")
        self._columns = None if columns is None else list(dict.fromkeys(columns))
        with self._errors_explained():
            mode = self.path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise TableError(
                    f"{str(self.path)!r} is not a regular file: it could not be read twice."
                )
            self.names = self._read_names()
        counts = Counter(self.names)
        if len(counts) < len(self.names):
            twice = next(name for name, count in counts.items() if count > 1)
            raise TableError(f"{str(self.path)!r} has two columns with the name {quoted(twice)}.")
        for name in self._columns or []:
            if name not in counts:
                raise TableError(no_such_column(name, self.names, str(self.path)))

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if the file does not tell it."""
        if self.kind == PARQUET:
            with self._errors_explained():
                return int(pa.parquet.ParquetFile(self.path).metadata.num_rows)
        return None

    @property
    def row_groups(self) -> list[int | None]:
        """Lengths of a Parquet file's row groups. Another file is one group of unknown length."""
        if self.kind != PARQUET:
            return [None]
        with self._errors_explained():
            metadata = pa.parquet.ParquetFile(self.path).metadata
            return [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]

    def read_group(self, number: int) -> Any:
        """Return one row group of a Parquet file."""
        first_row = sum(length or 0 for length in self.row_groups[:number])
        with self._errors_explained(), pa.parquet.ParquetFile(self.path) as file:
            table = file.read_row_group(number, columns=self._columns)
        return placed(table, self.path, first_row)

    def read(self) -> Any:
        """Return the whole table."""
        if self.kind == CSV:
            with self._errors_explained():
                table = pa.csv.read_csv(self.path, **self._csv_options(_CSV_BLOCK))
        else:
            batches = list(self._batches(BATCH_ROWS))
            table = pa.Table.from_batches(batches, schema=self._schema())
        return placed(table, self.path, 0)

    def batches(self, n_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield tables of at most ``n_rows`` rows."""
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

    def with_nulls(self, table: Any) -> Any:
        """Return a table that was read with ``verbatim`` from this file as if read without it.

        In a CSV file, empty cells, NA and the like become nulls. Other files have nulls already.
        """
        if self.kind != CSV:
            return table
        marks = pa.array(pa.csv.ConvertOptions().null_values, pa.string())
        columns = [
            with_nulls(texts, pa.compute.is_in(texts, value_set=marks)) for texts in table.columns
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)

    def empty(self) -> Any:
        """Return a table without rows."""
        if self.kind == CSV:
            return pa.table({name: pa.array([], pa.string()) for name in self._wanted()})
        return self._schema().empty_table()

    def _wanted(self) -> list[str]:
        return self.names if self._columns is None else self._columns

    def _batches(self, n_rows: int) -> Iterator[Any]:
        with self._errors_explained():
            if self.kind == CSV:
                with pa.csv.open_csv(self.path, **self._csv_options(_CSV_STEP)) as reader:
                    yield from reader
            elif self.kind == PARQUET:
                # With pre_buffer, everything that was read ahead stays in memory until the end.
                with pa.parquet.ParquetFile(self.path, pre_buffer=False) as file:
                    yield from file.iter_batches(batch_size=n_rows, columns=self._columns)
            else:
                # The file is not mapped into memory: if another program truncates a mapped file,
                # reading it kills this process.
                with pa.OSFile(str(self.path)) as source:
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number)
                        batch.validate(full=True)  # a wrong offset would point outside the buffers
                        yield batch if self._columns is None else batch.select(self._columns)

    def _schema(self) -> Any:
        schema = self._whole_schema()
        return pa.schema([schema.field(name) for name in self._wanted()])

    def _whole_schema(self) -> Any:
        with self._errors_explained():
            if self.kind == PARQUET:
                return pa.parquet.read_schema(self.path)
            with pa.OSFile(str(self.path)) as source:
                return pa.ipc.open_file(source).schema

    def _read_names(self) -> list[str]:
        if self.kind != CSV:
            return [str(name) for name in self._whole_schema().names]
        with pa.input_stream(str(self.path), compression="detect") as stream:
            start = stream.read(2**20)
        first = re.split(r"[\r\n]", start.decode("utf-8-sig", errors="replace"), maxsplit=1)[0]
        if not start.strip():
            raise TableError(
                f"{str(self.path)!r} is empty: its first line should name the columns."
            )
        if "\0" in first:
            raise TableError(f"{str(self.path)!r} is not UTF-8 text, so it is not a CSV file.")
        if self.delimiter is None:
            unquoted = re.sub(r'"[^"]*"', "", first)
            self.delimiter = max(",;\t|", key=unquoted.count)
        with pa.csv.open_csv(self.path, **self._csv_options(_CSV_BLOCK)) as reader:
            return [str(name) for name in reader.schema.names]

    def _csv_options(self, block: int) -> dict[str, Any]:
        names = getattr(self, "names", [])  # unknown while the first line is read
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
    def _errors_explained(self) -> Iterator[None]:
        """Turn errors of the system and of Arrow into a ``TableError`` that names the file."""
        try:
            yield
        except (TableError, MemoryError):
            raise
        except FileNotFoundError:
            raise TableError(f"There is no file {str(self.path)!r}.") from None
        except IsADirectoryError:
            raise TableError(f"{str(self.path)!r} is a folder: name a file in it.") from None
        except PermissionError:
            raise TableError(f"{str(self.path)!r} cannot be read: permission denied.") from None
        except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise MemoryError(str(error)) from None
            reason = " ".join(str(error).split()).rstrip(".")
            if "invalid UTF8" in reason:
                reason = "it is not UTF-8 text"
            if "newlines_in_values" in reason:
                reason = "a large CSV file must not have line breaks inside quotes"
            raise TableError(
                f"{str(self.path)!r} is not a valid {self.kind} file: {reason}."
            ) from None


def find_files(name: str) -> list[Path]:
    """Return the file with a name, or the files that match a pattern such as ``data/*.parquet``."""
    if os.path.lexists(name) or not any(mark in name for mark in "*?["):
        return [Path(name)]
    found = sorted(Path(match) for match in glob.glob(name, recursive=True))
    if not found:
        raise TableError(f"There is no file {name!r}.")
    return found


def concatenated(tables: list[Any]) -> Any:
    """Return one table with the rows of several tables that have the same columns."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].column_names
    for table in tables[1:]:
        others = set(table.column_names)
        absent = [name for name in names if name not in others]
        if absent:
            raise TableError(f"Not all files have a column {quoted(absent[0])}.")
    try:
        together = pa.concat_tables(
            [table.select(names) for table in tables], promote_options="permissive"
        )
        return placed_as(together, tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TableError(f"The files do not fit together: {error}.") from None


def sample_rows(
    batches: Iterable[Any], most_rows: int, seed: int = 0
) -> tuple[Any, NDArray[np.int64], int]:
    """Return a random sample of at most ``most_rows`` rows, and the number of all rows.

    Between the two are the row numbers of the sample; the first row of a table is row 1.
    """
    random = np.random.default_rng(seed)
    kept: Any = None
    keys, numbers = np.empty(0), np.empty(0, np.int64)
    n_rows = 0
    for batch in batches:
        numbers = np.concatenate([numbers, n_rows + 1 + np.arange(len(batch))])
        n_rows += len(batch)
        keys = np.concatenate([keys, random.random(len(batch))])
        kept = batch if kept is None else pa.concat_tables([kept, batch])
        if len(keys) > most_rows:  # keep the rows with the smallest keys, in order
            chosen = np.sort(np.argpartition(keys, most_rows - 1)[:most_rows])
            keys, numbers, kept = keys[chosen], numbers[chosen], kept.take(chosen)
    return (pa.table({}) if kept is None else kept.combine_chunks()), numbers, n_rows
