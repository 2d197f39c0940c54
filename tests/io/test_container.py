"""Arrays in files: the rules of safetensors are kept, and enforced."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from mondrian_forest import ModelFileError, MondrianForestRegressor
from mondrian_forest._forest.model_file import DTYPES
from mondrian_forest.io.container import _sealed, checksum, read_file, write_file
from mondrian_forest.tables import TableForest


def small_forest():
    X = np.random.default_rng(0).random((60, 3))
    return MondrianForestRegressor(2, random_state=0).fit(X, X[:, 0])


def test_safetensors_reads_our_files(tmp_path):
    path = tmp_path / "model.mf"
    small_forest().save(path)
    _, expected = read_file(path, DTYPES)
    found = load_file(path)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    with safe_open(path, "numpy") as file:
        assert file.metadata().keys() == {"mondrian_forest"}


def test_arrays_that_are_not_contiguous_are_written_as_they_are(tmp_path):
    whole = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    arrays = {"boxes": whole[:, 1:3, ::2], "labels": np.arange(9.0)[::3], "rows": whole[:0, 0]}
    (tmp_path / "file").touch()
    write_file(tmp_path / "file", {}, arrays)
    for mapped in ((), ("boxes",)):
        header, found = read_file(tmp_path / "file", DTYPES, mapped)
        assert header == {}
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert checksum(found[name]) == checksum(array)


def taken_apart(path):
    whole = Path(path).read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    return json.loads(whole[8:start]), whole[start:]


def put_together(path, header, rest):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + rest)


def shift(header, rest, by):
    """Move all arrays but the first."""
    offsets = sorted(entry["data_offsets"] for name, entry in header.items() if name[0] != "_")
    for name, entry in header.items():
        if name[0] != "_" and entry["data_offsets"] != offsets[0]:
            entry["data_offsets"] = [offset + by for offset in entry["data_offsets"]]
    end = offsets[0][1]
    return header, rest[:end] + bytes(max(by, 0)) + rest[end + max(-by, 0) :]


def sealed_in(header, text):
    return header | {"__metadata__": {"mondrian_forest": _sealed(text)}}


def inner(header):
    return header["__metadata__"]["mondrian_forest"].partition(" ")[2]


BREACHES = {
    "overlap": lambda header, rest: shift(header, rest, -8),
    "hole": lambda header, rest: shift(header, rest, 8),
    "something behind": lambda header, rest: (header, rest + b"12345678"),
    "too short": lambda header, rest: (header, rest[:-1]),
    "the same array twice": lambda header, rest: (
        json.dumps(header).replace('"rows":', '"rows": 1, "rows":').encode(),
        rest,
    ),
    "a name twice in the description": lambda header, rest: (
        sealed_in(header, '{"label_moments": 1, ' + inner(header)[1:]),
        rest,
    ),
    "a name twice deep in the description": lambda header, rest: (
        sealed_in(header, inner(header).replace('"n_jobs"', '"n_jobs": 1, "n_jobs"')),
        rest,
    ),
    "a space before": lambda header, rest: (b" " + json.dumps(header).encode(), rest),
    "no object": lambda _, rest: (b"[]", rest),
    "deep lists": lambda header, rest: (
        json.dumps(header)[:-1].encode() + b', "x": ' + b"[" * 10**6 + b"]" * 10**6 + b"}",
        rest,
    ),
    "deep lists in the description": lambda header, rest: (
        sealed_in(header, inner(header)[:-1] + ', "x": ' + "[" * 10**6 + "]" * 10**6 + "}"),
        rest,
    ),
    "deep lists in the table": lambda header, rest: (
        sealed_in(header, json.dumps(json.loads(inner(header)) | {"table": "[" * 10**6})),
        rest,
    ),
    "a number of many digits": lambda header, rest: (
        sealed_in(header, inner(header)[:-1] + ', "x": ' + "1" * 10**5 + "}"),
        rest,
    ),
    "not ASCII": lambda header, rest: (
        json.dumps(header | {"\u00fc": 1}, ensure_ascii=False).encode(),
        rest,
    ),
    "more entries": lambda header, rest: (
        header | {"rows": header["rows"] | {"more": 1}},
        rest,
    ),
    "more texts": lambda header, rest: (
        header | {"__metadata__": header["__metadata__"] | {"more": "1"}},
        rest,
    ),
    "no metadata": lambda header, rest: (
        {name: entry for name, entry in header.items() if name != "__metadata__"},
        rest,
    ),
    "metadata that are a list": lambda header, rest: (header | {"__metadata__": [1]}, rest),
    "an array that is a number": lambda header, rest: (header | {"rows": 1}, rest),
    "offsets that are texts": lambda header, rest: (
        header | {"rows": header["rows"] | {"data_offsets": ["0", "8"]}},
        rest,
    ),
    "three offsets": lambda header, rest: (
        header | {"rows": header["rows"] | {"data_offsets": [*header["rows"]["data_offsets"], 0]}},
        rest,
    ),
}


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("breach", BREACHES)
def test_the_rules_of_the_format_are_enforced(tmp_path, breach, mmap):
    path = tmp_path / "model.mf"
    x = np.random.default_rng(0).random(40)
    table = pa.table({"x": x, "label": np.sin(x)})
    TableForest.fit(table, "label", n_estimators=2, random_state=0).save(path)
    header, rest = taken_apart(path)
    put_together(path, header, rest)
    TableForest.load(path, mmap=mmap)
    put_together(path, *BREACHES[breach](header, rest))
    with pytest.raises(ModelFileError, match="is no sound model file") as found:
        TableForest.load(path, mmap=mmap)
    assert len(str(found.value)) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda n_bytes: b'{"x":[' + b"[]," * (n_bytes // 3) + b"[]]}",
        lambda n_bytes: b'{"x":[' + b'"ab",' * (n_bytes // 5) + b"1]}",
        lambda n_bytes: b'{"x":"' + b"\\n" * (n_bytes // 2) + b'"}',
        lambda n_bytes: b'{"x":"' + b"n" * n_bytes + b'"}',
        lambda n_bytes: b'"' * n_bytes,
    ],
)
def test_a_large_description_takes_a_few_times_its_size_in_memory(tmp_path, make, monkeypatch):
    monkeypatch.setattr("mondrian_forest.io.container._MOST_BYTES_OUTSIDE_TEXT", 2**18)  # for speed
    path = tmp_path / "model.mf"
    n_bytes = 20_000_000
    put_together(path, make(n_bytes), b"")
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            MondrianForestRegressor.load(path)
        assert tracemalloc.get_traced_memory()[1] < 6 * n_bytes
    finally:
        tracemalloc.stop()


def test_a_description_beyond_the_limit_is_neither_read_nor_written(tmp_path, monkeypatch):
    path = tmp_path / "model.mf"
    with open(path, "wb") as file:  # takes no room on the disk
        file.write((100_000_008).to_bytes(8, "little"))
        file.truncate(200_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="its description is too large"):
            MondrianForestRegressor.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    path.unlink()
    monkeypatch.setattr("mondrian_forest.io.container._MOST_HEADER_BYTES", 1000)
    with pytest.raises(ValueError, match="leave out columns whose texts are nearly all different"):
        small_forest().save(path)
    assert list(tmp_path.iterdir()) == []
