"""Arrays and a text in one file, in the format of safetensors.

A file is the length of a JSON object, the object, and the arrays at the places that it tells. The
library is not used: to write, it needs a second copy of all arrays, and ends the process where
memory does not suffice; to read, it opens the file by its name, and between two looks at a name
another file may have taken its place. Its rules are kept, and enforced: the object has at most
100 MB and names nothing twice, and the arrays fill the rest of the file without holes or overlaps.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from io import FileIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.memory import empty

Arrays = dict[str, NDArray[Any]]

_NUMPY = {
    code: np.dtype(name)
    for code, name in {
        "U64": "<u8",
        "I64": "<i8",
        "F64": "<f8",
        "F32": "<f4",
        "I32": "<i4",
        "U8": "u1",
    }.items()
}
_CODES = {dtype: code for code, dtype in _NUMPY.items()}
_ENTRY = "mondrian_forest"
_NOT_WHOLE = "it is truncated, or of another kind"
_MOST_HEADER_BYTES = 100_000_000
"""The limit of safetensors. A model of a table with a million different texts has 40 MB."""
_MOST_BYTES_OUTSIDE_TEXT = 2**22
"""Of JSON that is no text. A number, a list or an object takes up to 35 times its length in memory,
a text about its length. Two ranges and weights of 32,767 features have less than 3 MB."""
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_BLOCK = 2**26
"""Bytes that are read, written or hashed between two looks at signals."""


class ModelFileError(ValueError):
    """A model file that is damaged, or is none."""


def require(condition: Any, what: str) -> None:
    """Raise a ``ModelFileError`` unless a condition holds."""
    if not condition:
        raise ModelFileError(what)


def count(value: Any, least: int = 0) -> int:
    """Return a number of things, checked."""
    require(type(value) is int and least <= value < 2**62, "a number is out of range")
    return int(value)


def parse_object(text: str) -> dict[str, Any]:
    """Return a JSON object; its text may have been made to do harm."""
    require(text.startswith("{"), _NOT_WHOLE)
    n_outside = end = 0
    for found in _TEXT.finditer(text):
        n_outside += found.start() - end + 2
        end = found.end()
        require(n_outside <= _MOST_BYTES_OUTSIDE_TEXT, "its description is too large")
    n_outside += len(text) - end
    require(n_outside <= _MOST_BYTES_OUTSIDE_TEXT, "its description is too large")
    try:
        content: dict[str, Any] = json.loads(text, object_pairs_hook=_without_repetition)
    except ModelFileError:
        raise
    except (ValueError, RecursionError):
        raise ModelFileError(_NOT_WHOLE) from None
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    require(len(found) == len(pairs), "its description has a name twice")
    return found


def checksum(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of an array."""
    found = hashlib.sha256()
    for block in _blocks(array):
        found.update(block)
    return found.hexdigest()


def _sealed(text: str) -> str:
    """Put the checksum of a text before it."""
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}"


def write_file(
    path: str | os.PathLike[str], description: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write arrays, and what is to be known about them, over an existing file.

    Arrays need not be contiguous: what has to be copied is copied in small parts.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so all are aligned
    text = json.dumps(description, allow_nan=False)
    header: dict[str, Any] = {"__metadata__": {_ENTRY: _sealed(text)}}
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    if len(content) > _MOST_HEADER_BYTES:
        raise ValueError(
            f"The names of features and the texts of the table take {len(content):,} bytes, and a "
            f"model file has room for {_MOST_HEADER_BYTES:,}: leave out columns whose texts are "
            "nearly all different."
        )
    with open(path, "wb", buffering=0) as file:
        _write(file, memoryview(len(content).to_bytes(8, "little") + content))
        for name in names:
            for block in _blocks(arrays[name]):
                _write(file, block)


def _blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """Return the bytes of an array, in their order."""
    if array.nbytes == 0:
        return
    if array.ndim > 1 and not array.flags.c_contiguous:
        for part in array:
            yield from _blocks(part)
        return
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    for start in range(0, len(content), _BLOCK):
        yield content[start : start + _BLOCK]


def _write(file: FileIO, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def read_file(
    path: str | os.PathLike[str], dtypes: Mapping[str, str], mapped: Collection[str] = ()
) -> tuple[dict[str, Any], Arrays]:
    """Return the description of a file, and its arrays in memory that nobody else can change.

    Only the arrays named in ``mapped`` stay in the file: what they hold changes when somebody
    changes the file in place. All names and types must be among ``dtypes``.
    """
    # A pipe would block until somebody writes to it.
    flags = getattr(os, "O_NONBLOCK", 0)
    with FileIO(path, "r", opener=lambda name, given: os.open(name, given | flags)) as file:
        status = os.fstat(file.fileno())
        require(stat.S_ISREG(status.st_mode), "it is a device or a pipe, not a regular file")
        size = status.st_size
        length = int.from_bytes(_read(file, np.empty(min(size, 8), np.uint8)), "little")
        start = 8 + length
        require(size >= start, _NOT_WHOLE)
        require(length <= _MOST_HEADER_BYTES, "its description is too large")
        header = _decoded(_read(file, np.empty(length, np.uint8)))
        metadata = header.pop("__metadata__", {})
        require(set(metadata) == {_ENTRY}, "it was written by other software")
        _, _, text = metadata[_ENTRY].partition(" ")
        is_same = metadata[_ENTRY] == _sealed(text)
        require(is_same, "its description has changed since it was written")
        pages = _map(file, size) if mapped else None
        arrays = {}
        end = start
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            require(
                set(entry) == {"dtype", "shape", "data_offsets"}
                and entry["dtype"] == dtypes.get(name),
                f"the array {name!r} is unknown, or of the wrong type",
            )
            dtype, shape = _NUMPY[entry["dtype"]], tuple(map(count, entry["shape"]))
            begin, past = (start + count(offset) for offset in entry["data_offsets"])
            require(begin == end, "its arrays overlap, or there is something between them")
            end = past
            require(end <= size and end - begin == math.prod(shape) * dtype.itemsize, _NOT_WHOLE)
            if name in mapped and pages is not None and begin < end:
                flat = np.frombuffer(pages, dtype, math.prod(shape), begin)
                arrays[name] = flat.reshape(shape)
            else:
                file.seek(begin)
                arrays[name] = empty(shape, dtype)
                _read(file, arrays[name])
        require(end == size, "there is something behind its arrays")
    return parse_object(text), arrays


def _decoded(content: memoryview) -> dict[str, Any]:
    try:
        text = str(content, "ascii")  # as `write_file` and all its forerunners have written it
    except UnicodeDecodeError:
        raise ModelFileError(_NOT_WHOLE) from None
    return parse_object(text)


def _map(file: FileIO, size: int) -> mmap.mmap:
    try:
        # Copy on write: the arrays can be changed, the file never is.
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError from None
        raise


def _read(file: FileIO, array: NDArray[Any]) -> memoryview:
    """Fill an array; return its bytes."""
    content = array.reshape(-1).view(np.uint8).data
    rest = content
    while rest:
        n_bytes = file.readinto(rest[:_BLOCK])
        require(n_bytes, _NOT_WHOLE)  # it was cut short since it was opened
        rest = rest[n_bytes:]
    return content
