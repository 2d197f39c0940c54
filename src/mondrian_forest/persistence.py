"""Model files: safetensors with a JSON header, never pickle.

A file holds arrays, and text that describes them. Opening it runs no code, and nothing in it is
believed before it has been checked: damage is found by checksums, and arrays that would lead a
kernel astray by looking at every index. What fails ends in one ``ModelFileError``.

The text is the entry ``mondrian_forest`` of the file's metadata: a checksum (SHA-256), a space, and
the JSON object that it belongs to, which has the checksums of all arrays. Equal forests have equal
files. Format 4:

==================  =========================================================================
``sizes``           number of nodes of each tree
``nodes``           records of type ``NODE`` as bytes, for each tree, padded to the largest
``boxes``           lower and upper ends for each node
``tallies``         records of type ``TALLY`` as bytes; without rows, those of the roots alone
``row_numbers``     which rows the leaves hold
``rows, labels``    training rows as the trees see them, and their labels; empty without rows
``random_states``   the random stream of each tree
``feature_range``   lower and upper ends of the range that is mapped to [0, 1]
``feature_weights`` what each feature is multiplied by then
``trend``           level, centers, sizes and slopes of a linear trend; empty without one
``spread``          standard deviations and the factors that belong to them
``spread_record``   of the rows that the spread is learned from
``seen_range``      lower and upper ends of the rows seen
``log_likelihoods`` of the labels given each tree, if the rows that say so are left out
==================  =========================================================================

Format 3, in which the spread was one factor, format 2, in which features were numbered in 32 bits,
and format 1, which had the paper's model alone, are still read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import re
import secrets
import stat
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from ._core.check import FAULTS, find_fault
from ._core.learn import MOST_CANDIDATES, Grove, Settings, trimmed
from ._core.memory import empty
from ._core.posterior import EMPIRICAL, HIERARCHICAL, PRUNED, Hyperparameters, LabelSums
from ._core.spread import RECORD_WIDTH, Spread, record_of_constant
from ._core.tree import MOST_FEATURES, NODE, TALLY
from .trend import Trend

FORMAT_VERSION = 4
_NODE_OF_FORMAT_2 = np.dtype(
    [(name, np.int32 if name == "split_feature" else NODE[name]) for name in NODE.names or ()]
)
_ENTRY = "mondrian_forest"
_NOT_WHOLE = "it is truncated, or of another kind"

Arrays = dict[str, NDArray[Any]]

_DTYPES = {
    "sizes": "I64",
    "nodes": "U8",
    "boxes": "F32",
    "tallies": "U8",
    "row_numbers": "I32",
    "rows": "F32",
    "labels": "F64",
    "random_states": "U64",
    "feature_range": "F64",
    "feature_weights": "F64",
    "trend": "F64",
    "spread": "F64",
    "spread_record": "F64",
    "seen_range": "F64",
    "log_likelihoods": "F64",
}
_OLD_DTYPES = {"spread_scores": "F64"}
"""Of arrays that only older formats have."""
_PAPER = {
    "n_candidate_splits": 1,
    "feature_weights": None,
    "spread": 1.0,
    "trend": None,
    "hyperparameters": "heuristic",
}
"""Parameters of a forest of format 1, which did not know them."""
_NUMPY = {"I64": "<i8", "U8": "u1", "F32": "<f4", "I32": "<i4", "F64": "<f8", "U64": "<u8"}


class ModelFileError(ValueError):
    """A model file that is damaged, or is none."""


def write(path: str | os.PathLike[str], state: dict[str, Any], library_version: str) -> None:
    """Write the state of a fitted forest; until that is done, an older file stays as it is."""
    header, arrays = _pack(state)
    header["library_version"] = library_version
    header["sha256"] = {name: _checksum(array) for name, array in arrays.items()}
    with replacing(Path(path)) as unfinished:
        try:
            save_file(arrays, unfinished, {_ENTRY: _sealed(json.dumps(header, allow_nan=False))})
        except SafetensorError as error:  # of a full disk, for example
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from None


def read(path: str | os.PathLike[str], *, mapped: bool = False) -> dict[str, Any]:
    """Return the state that was written, checked.

    With ``mapped`` the arrays stay in the file until they are needed. Then their checksums are
    not computed, and the boxes of a frozen forest are not looked at: neither can lead a kernel
    astray.
    """
    try:
        header, arrays = _open(Path(path))
        version = header.get("format_version")
        if version not in range(1, FORMAT_VERSION + 1):
            raise ModelFileError(
                f"it has format {version!r}, and this version of mondrian-forest reads "
                f"1 to {FORMAT_VERSION}: install a newer one"
            )
        if not mapped:
            for name, array in arrays.items():
                if header["sha256"].get(name) != _checksum(array):
                    raise ModelFileError(f"the array {name!r} has changed since it was written")
            arrays = {name: _copy(array) for name, array in arrays.items()}
        if version == 1:
            header, arrays = _from_format_1(header, arrays)
        if version in (1, 2):
            arrays = _from_format_2(arrays)
        if version in (1, 2, 3):
            header, arrays = _from_format_3(header, arrays)
        return _unpack(header, arrays, reads_boxes=not mapped)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        what = str(error) if isinstance(error, ModelFileError) else "its description is incomplete"
        raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {what}.") from None


def _checksum(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def _sealed(text: str) -> str:
    """Put the checksum of a text before it."""
    return f"{_checksum(text.encode())} {text}"


def _copy(array: NDArray[Any]) -> NDArray[Any]:
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; put the file in place when it is complete, and on the disk."""
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(path.parent)!r}.")
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        unfinished.touch(exist_ok=False)
        # As the file that is replaced, or as any new one; the library would make it private.
        mode = (path if path.exists() else unfinished).stat().st_mode
        yield unfinished
        os.chmod(unfinished, stat.S_IMODE(mode))
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _open(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the description of a file, and its arrays as views of the file.

    The format is simple: the length of a JSON object, the object, and the arrays at the places that
    it tells. The library reads whole arrays, or opens the file by its name; but between two looks
    at a name another file may have taken its place.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        _require(size > 8, _NOT_WHOLE)
        # Copy on write: the arrays can be changed, the file never is.
        pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(pages[:8], "little")
    _require(start <= size, _NOT_WHOLE)
    try:
        entries = json.loads(pages[8:start])
    except ValueError:
        raise ModelFileError(_NOT_WHOLE) from None
    metadata = entries.pop("__metadata__", {})
    _require(_ENTRY in metadata, "it was written by other software")
    _, _, text = metadata[_ENTRY].partition(" ")
    _require(metadata[_ENTRY] == _sealed(text), "its description has changed since it was written")
    arrays = {}
    for name, entry in entries.items():
        _require(
            entry["dtype"] == (_DTYPES | _OLD_DTYPES).get(name),
            f"the array {name!r} is unknown, or of the wrong type",
        )
        dtype = np.dtype(_NUMPY[entry["dtype"]])
        shape = [_count(length) for length in entry["shape"]]
        first, last = (start + _count(offset) for offset in entry["data_offsets"])
        _require(first <= last <= size, _NOT_WHOLE)
        _require(last - first == math.prod(shape) * dtype.itemsize, _NOT_WHOLE)
        if first == last:
            arrays[name] = np.empty(shape, dtype)
        else:
            arrays[name] = np.frombuffer(pages, dtype, math.prod(shape), first).reshape(shape)
    return json.loads(text), arrays


def _pack(state: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
    grove = trimmed(state["_grove"])
    header = {
        "format_version": FORMAT_VERSION,
        "parameters": {name: _to_json(name, value) for name, value in state["parameters"].items()},
        "settings": _to_json("settings", list(state["_settings"])),
        "hyperparameters": list(state["hyperparameters"]),
        "label_sums": list(state["_label_sums"]),
        "balance": state["spread_"].balance,
        "resolution": state["_resolution"],
        "review_at": state["_review_at"],
        "has_rescaled": state["_has_rescaled"],
        "is_linked": grove.is_linked,
        "feature_names": state["feature_names"],
        "table": state["table"],
    }
    arrays = {
        "sizes": grove.sizes,
        "nodes": _as_bytes(grove.nodes),
        "boxes": grove.boxes,
        "tallies": _as_bytes(grove.tallies),
        "row_numbers": grove.row_numbers,
        "rows": state["_rows"],
        "labels": state["_labels"],
        "random_states": state["_random_states"],
        "feature_range": np.stack(state["feature_range_"]),
        "feature_weights": state["feature_weights_"],
        "trend": np.empty(0) if state["_trend"] is None else np.hstack(state["_trend"]),
        "spread": np.stack(state["spread_"][1:]),
        "spread_record": state["_spread_record"],
        "seen_range": np.stack(state["_seen_range"]),
        "log_likelihoods": state.get("_log_likelihoods", np.empty(0)),
    }
    return header, {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _from_format_1(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return what a file of format 1 would be in format 2."""
    n_features = arrays["boxes"].shape[-1]
    return (
        header
        | {
            "parameters": header["parameters"] | _PAPER,
            "settings": [*header["settings"], 1],
            "spread": 1.0,
            "resolution": 0.0,
        },
        arrays
        | {
            "nodes": _with_field(arrays["nodes"], _NODE_OF_FORMAT_2, "degrees", np.inf),
            "tallies": _with_field(arrays["tallies"], TALLY, "evidence_below", 0.0),
            "feature_weights": np.ones(n_features),
            "trend": np.empty(0),
            "spread_scores": np.ones(3),
        },
    )


def _from_format_2(arrays: Arrays) -> Arrays:
    """Return what the arrays of a file of format 2 would be in format 3."""
    old = _as_records(arrays["nodes"], _NODE_OF_FORMAT_2)
    _require(bool(np.all(np.abs(old["split_feature"]) <= MOST_FEATURES)), "a feature is unknown")
    new = empty(old.shape, NODE)
    for field in NODE.names or ():
        new[field] = old[field]
    return arrays | {"nodes": _as_bytes(new)}


def _from_format_3(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return what a file of format 3 would be today.

    What made its factor is gone. Where it was learned and learning goes on, it does so as if 200
    rows had asked for it, sure ones and others.
    """
    _require(len(arrays.pop("spread_scores")) == 3, "the array 'spread_scores' is wrong")
    factor = _number(header.pop("spread"), 1e-3)
    n_rows, _, squared_deviation = header["label_sums"]
    deviation = np.empty(0)
    if factor != 1.0 and header["parameters"]["spread"] == "auto" and len(arrays["rows"]) > 0:
        of_labels = math.sqrt(_number(squared_deviation, 0.0) / _count(n_rows, 1)) or 1.0
        deviation = of_labels * np.geomspace(0.05, 1.0, 200)
    return header | {"balance": 1.0}, arrays | {
        "spread": np.array([[1.0], [factor]]),
        "spread_record": record_of_constant(factor, deviation),
    }


def _with_field(
    content: NDArray[np.uint8], dtype: np.dtype[Any], name: str, value: float
) -> NDArray[np.uint8]:
    """Return records with one more field, the last of ``dtype``."""
    before = np.dtype([(field, dtype[field]) for field in dtype.names or () if field != name])
    old = _as_records(content, before)
    new = empty(old.shape, dtype)
    for field in before.names or ():
        new[field] = old[field]
    new[name] = value
    return _as_bytes(new)


def _as_bytes(records: NDArray[Any]) -> NDArray[np.uint8]:
    plain = np.ascontiguousarray(records)
    return plain.view(np.uint8).reshape(*plain.shape, plain.dtype.itemsize)


def _as_records(content: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    _require(content.ndim == 3 and content.shape[2] == dtype.itemsize, "an array has a wrong shape")
    n_trees, n_records, itemsize = content.shape
    return content.reshape(n_trees, n_records * itemsize).view(dtype)


def _to_json(name: str, value: Any) -> Any:
    """Return a value that JSON has; infinite numbers become text."""
    if isinstance(value, np.random.RandomState):
        kind, keys, *rest = value.get_state()
        return {"RandomState": [kind, np.asarray(keys).tolist(), *rest]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list) or hasattr(value, "__array__"):
        return [_to_json(name, entry) for entry in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    raise ValueError(f"{name}={value!r} cannot be saved: use numbers, a text or None.")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        state = np.random.RandomState()
        try:
            kind, keys, *rest = value["RandomState"]
            state.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
        except (ValueError, OverflowError):
            raise ModelFileError("the state of a random generator is wrong") from None
        return state
    if isinstance(value, list):
        return tuple(_from_json(entry) for entry in value)
    return float(value) if value in ("inf", "-inf", "nan") else value


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise ModelFileError(what)


def _number(value: Any, least: float = -math.inf) -> float:
    _require(type(value) in (int, float) and least <= value < math.inf, "a number is out of range")
    return float(value)


def _count(value: Any, least: int = 0) -> int:
    _require(type(value) is int and least <= value < 2**62, "a number is out of range")
    return int(value)


def _unpack(header: dict[str, Any], arrays: Arrays, *, reads_boxes: bool) -> dict[str, Any]:
    _require(set(arrays) == set(_DTYPES), "an array is missing")
    min_samples_split, lifetime, posterior, n_candidate_splits = _from_json(header["settings"])
    _require(posterior in (HIERARCHICAL, EMPIRICAL, PRUNED), "the posterior is unknown")
    _require(isinstance(lifetime, float) and lifetime > 0.0, "the lifetime is out of range")
    _require(n_candidate_splits <= MOST_CANDIDATES, "a number is out of range")
    mean, scale, rate, noise = header["hyperparameters"]
    n_rows, label_mean, squared_deviation = header["label_sums"]
    state: dict[str, Any] = {
        "parameters": {name: _from_json(value) for name, value in header["parameters"].items()},
        "_settings": Settings(
            _count(min_samples_split, 2), lifetime, posterior, _count(n_candidate_splits, 1)
        ),
        "spread_": _unpack_spread(header["balance"], arrays["spread"]),
        "_resolution": _number(header["resolution"], 0.0),
        "hyperparameters": Hyperparameters(
            _number(mean), *(_number(value, 5e-324) for value in (scale, rate, noise))
        ),
        "_label_sums": LabelSums(
            _count(n_rows, 1), _number(label_mean), _number(squared_deviation, 0.0)
        ),
        "_review_at": _count(header["review_at"]),
        "_has_rescaled": header["has_rescaled"] is True,
        "n_samples_seen_": n_rows,
    }
    sizes, boxes, rows, labels = (arrays[name] for name in ("sizes", "boxes", "rows", "labels"))
    n_trees, n_features = len(sizes), boxes.shape[-1]
    nodes, tallies = _as_records(arrays["nodes"], NODE), _as_records(arrays["tallies"], TALLY)
    learns = len(rows) > 0
    shapes = {
        "sizes": (n_trees,),
        "boxes": (*nodes.shape, 2, n_features),
        "row_numbers": (n_trees, n_rows if learns else 0),
        "rows": (n_rows if learns else 0, n_features),
        "labels": (n_rows if learns else 0,),
        "random_states": (n_trees, 4),
        "feature_range": (2, n_features),
        "feature_weights": (n_features,),
        "trend": (1 + 3 * n_features if len(arrays["trend"]) else 0,),
        "spread": (2, max(arrays["spread"].shape[-1], 1)),
        "spread_record": (len(arrays["spread_record"]), RECORD_WIDTH),
        "seen_range": (2, n_features),
        "log_likelihoods": (0 if learns or posterior != HIERARCHICAL else n_trees,),
    }
    for name, shape in shapes.items():
        _require(arrays[name].shape == shape, f"the array {name!r} has a wrong shape")
    _require(n_trees > 0 and n_features > 0 and len(nodes) == n_trees, "there are no trees")
    _require(
        tallies.shape == (n_trees, nodes.shape[1] if learns else 1), "an array has a wrong shape"
    )
    _require(np.all((sizes >= 1) & (sizes <= nodes.shape[1])), "the size of a tree is wrong")
    for name in shapes:
        if arrays[name].dtype.kind == "f" and name != "boxes":
            _require(np.all(np.isfinite(arrays[name])), f"the array {name!r} is not finite")
    weights = arrays["feature_weights"]
    _require(np.all(arrays["spread_record"][:, 0] > 0.0), "the array 'spread_record' is wrong")
    _require(np.all(weights >= 0.0) and weights.any(), "the array 'feature_weights' is wrong")
    for name in ("feature_range", "seen_range"):
        _require(np.all(arrays[name][0] <= arrays[name][1]), f"the array {name!r} is wrong")
    _require(arrays["random_states"].any(axis=1).all(), "the state of a random generator is wrong")
    grove = Grove(sizes, nodes, boxes, tallies, arrays["row_numbers"], header["is_linked"] is True)
    for number, size in enumerate(sizes):
        fault = find_fault(
            nodes[number, :size],
            boxes[number, :size],
            tallies[number, : size if learns else 1],
            grove.row_numbers[number],
            grove.is_linked,
            n_rows,
            reads_boxes or learns,
            posterior == PRUNED,
        )
        _require(fault == 0, f"in tree {number}, {FAULTS[fault]}")
    names = header["feature_names"]
    if names is not None:
        _require(
            isinstance(names, list)
            and len(names) == n_features
            and all(isinstance(name, str) for name in names),
            "the feature names are wrong",
        )
        state["feature_names_in_"] = np.array(names, dtype=object)
    table = header.get("table")  # files of a forest that was fitted to arrays may be without
    _require(table is None or isinstance(table, str), "its description of columns is wrong")
    state["table"] = table
    if len(arrays["log_likelihoods"]) > 0:
        state["_log_likelihoods"] = arrays["log_likelihoods"]
    return state | {
        "_grove": grove,
        "_rows": rows,
        "_labels": labels,
        "_random_states": arrays["random_states"],
        "feature_range": tuple(arrays["feature_range"]),
        "feature_weights_": weights,
        "_trend": _unpack_trend(arrays["trend"]),
        "_spread_record": arrays["spread_record"],
        "_seen_range": tuple(arrays["seen_range"]),
        "n_features_in_": n_features,
    }


def _unpack_spread(balance: Any, content: NDArray[np.float64]) -> Spread:
    deviation, factor = content
    _require(0.0 < _number(balance) <= 1e3, "a number is out of range")
    _require(
        np.all((deviation > 0.0) & (factor >= 1e-4) & (factor <= 1e3))
        and np.all(np.diff(deviation) > 0.0),
        "the array 'spread' is wrong",
    )
    return Spread(float(balance), deviation, factor)


def _unpack_trend(content: NDArray[np.float64]) -> Trend | None:
    if len(content) == 0:
        return None
    level, *rest = content.tolist()
    center, size, slope = np.reshape(rest, (3, -1))
    _require(np.all(size > 0.0), "the array 'trend' is wrong")
    return Trend(level, center, size, slope)
