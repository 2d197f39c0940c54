"""Model files: safetensors with a JSON header, never pickle.

A file holds arrays, and text that describes them. Opening it runs no code, and nothing in it is
believed before it has been checked: damage is found by checksums, and arrays that would lead a
kernel astray by looking at every index. What fails ends in one ``ModelFileError``.

The text is the entry ``mondrian_forest`` of the file's metadata: a checksum (SHA-256), a space, and
the JSON object that it belongs to, which has the checksums of all arrays. Equal forests have equal
files. Format 5:

==================  =========================================================================
``sizes``           number of nodes of each tree
``nodes``           records of type ``NODE`` as bytes, for each tree, padded to the largest
``boxes``           lower and upper ends for each node
``tallies``         records of type ``TALLY`` as bytes; without rows, those of the roots alone
``row_numbers``     which rows the leaves hold
``rows, labels``    training rows as the trees see them, and their labels; empty without rows
``random_states``   the random stream of each tree
``feature_range``   lower and upper ends of the range that is mapped to [0, 1]
``knots``           values and coordinates of the points of a warp; empty without one
``knot_counts``     how many of these points each feature has
``feature_weights`` what each feature is multiplied by then
``trend``           level, centers, sizes and slopes of a linear trend; empty without one
``spread``          standard deviations and the factors that belong to them
``spread_record``   of the rows that the spread is learned from
``seen_range``      lower and upper ends of the rows seen
``log_likelihoods`` of the labels given each tree, if the rows that say so are left out
==================  =========================================================================

Format 4, which had no warp, format 3, in which the spread was one factor, format 2, in which
features were numbered in 32 bits, and format 1, which had the paper's model alone, are still read.
"""

from __future__ import annotations

import math
import os
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.check import FAULTS, WRONG_VALUE, find_fault
from .._core.arrays.grove import Grove, trimmed
from .._core.arrays.memory import empty
from .._core.arrays.tree import MOST_FEATURES, NODE, TALLY
from .._core.growth import MOST_CANDIDATES, Growth
from .._core.labels import Empirical, Hierarchical, LabelModel, Pruned
from .._core.labels.model import are_sound
from .._core.moments import Moments
from .._core.spread.apply import Spread
from .._core.spread.record import RECORD_WIDTH, from_columns, record_of_constant, to_columns
from ..io.container import Arrays, ModelFileError, checksum, count, read_file, require, write_file
from ..io.replace import replacing
from .mean_function import Trend
from .outliers import LabelLimits, Warp

__all__ = ["ModelFileError", "fault_of_trees", "read", "write"]

FORMAT_VERSION = 5
_NODE_OF_FORMAT_2 = np.dtype(
    [(name, np.int32 if name == "split_feature" else NODE[name]) for name in NODE.names or ()]
)

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
    "knots": "F64",
    "knot_counts": "I64",
    "feature_weights": "F64",
    "trend": "F64",
    "spread": "F64",
    "spread_record": "F64",
    "seen_range": "F64",
    "log_likelihoods": "F64",
}
_MODELS = (Hierarchical, Empirical, Pruned)
"""Label models by their number in a file."""
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


def write(path: str | os.PathLike[str], state: dict[str, Any], library_version: str) -> None:
    """Write the state of a fitted forest; until that is done, an older file stays as it is."""
    with replacing(path) as unfinished:
        header, arrays = _pack(state)
        header["library_version"] = library_version
        header["sha256"] = {name: checksum(array) for name, array in arrays.items()}
        write_file(unfinished, header, arrays)


def read(path: str | os.PathLike[str], *, mapped: bool = False) -> dict[str, Any]:
    """Return the state that was written, in memory that nobody else can change, checked.

    With ``mapped`` the boxes, which are most of the file, stay in it until they are needed, and
    nobody looks at them before. They cannot lead a prediction astray, since it only compares them
    with rows. Learning does rely on them, so that ``fault_of_trees`` must come first.
    """
    in_file = ("boxes",) if mapped else ()
    try:
        header, arrays = read_file(path, _DTYPES | _OLD_DTYPES, in_file)
        version = header.get("format_version")
        if version not in range(1, FORMAT_VERSION + 1):
            raise ModelFileError(
                f"it has format {version!r}, and this version of mondrian-forest reads "
                f"1 to {FORMAT_VERSION}: install a newer one"
            )
        for name, array in arrays.items():
            if name not in in_file:
                is_same = header["sha256"].get(name) == checksum(array)
                require(is_same, f"the array {name!r} has changed since it was written")
        if version == 1:
            header, arrays = _from_format_1(header, arrays)
        if version in (1, 2):
            arrays = _from_format_2(arrays)
        if version in (1, 2, 3):
            header, arrays = _from_format_3(header, arrays)
        if version in (1, 2, 3, 4):
            header, arrays = _from_format_4(header, arrays)
        return _unpack(header, arrays, reads_boxes=not mapped) | {"_is_mapped": mapped}
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


def _pack(state: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
    grove = trimmed(state["_grove"])
    warp = state["_warp"]
    header = {
        "format_version": FORMAT_VERSION,
        "parameters": {name: _to_json(name, value) for name, value in state["parameters"].items()},
        "settings": _to_json("settings", _pack_settings(state)),
        "hyperparameters": list(state["label_model"]),
        "label_sums": list(state["_label_sums"]),
        "label_limits": _to_json("label_limits", list(state["_label_limits"])),
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
        "knots": np.empty((2, 0, 0)) if warp is None else np.stack(warp[:2]),
        "knot_counts": np.empty(0, np.int64) if warp is None else warp.counts,
        "feature_weights": state["feature_weights_"],
        "trend": np.empty(0) if state["_trend"] is None else np.hstack(state["_trend"]),
        "spread": np.stack(state["spread_"][1:]),
        "spread_record": to_columns(state["_spread_record"]),
        "seen_range": np.stack(state["_seen_range"]),
        "log_likelihoods": state.get("_log_likelihoods", np.empty(0)),
    }
    return header, arrays


def _pack_settings(state: dict[str, Any]) -> list[Any]:
    growth: Growth = state["_growth"]
    number = _MODELS.index(type(state["label_model"]))
    return [growth.min_samples_split, growth.lifetime, number, growth.n_candidate_splits]


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
    require(bool(np.all(np.abs(old["split_feature"]) <= MOST_FEATURES)), "a feature is unknown")
    new = empty(old.shape, NODE)
    for field in NODE.names or ():
        new[field] = old[field]
    return arrays | {"nodes": _as_bytes(new)}


def _from_format_3(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return what a file of format 3 would be today.

    What made its factor is gone. Where it was learned and learning goes on, it does so as if 200
    rows had asked for it, sure ones and others.
    """
    require(len(arrays.pop("spread_scores")) == 3, "the array 'spread_scores' is wrong")
    factor = _number(header.pop("spread"), 1e-3)
    n_rows, _, squared_deviation = header["label_sums"]
    deviation = np.empty(0)
    if factor != 1.0 and header["parameters"]["spread"] == "auto" and len(arrays["rows"]) > 0:
        of_labels = math.sqrt(_number(squared_deviation, 0.0) / count(n_rows, 1)) or 1.0
        deviation = of_labels * np.geomspace(0.05, 1.0, 200)
    return header | {"balance": 1.0}, arrays | {
        "spread": np.array([[1.0], [factor]]),
        "spread_record": to_columns(record_of_constant(factor, deviation)),
    }


def _from_format_4(header: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Return what a file of format 4 would be today: no single value was kept from ruling it."""
    return header | {
        "parameters": header["parameters"] | {"robust": False},
        "label_limits": ["-inf", "inf"],
    }, arrays | {"knots": np.empty((2, 0, 0)), "knot_counts": np.empty(0, np.int64)}


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
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)


def _as_records(content: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    require(content.ndim == 3 and content.shape[2] == dtype.itemsize, "an array has a wrong shape")
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


def _number(value: Any, least: float = -math.inf) -> float:
    require(type(value) in (int, float) and least <= value < math.inf, "a number is out of range")
    return float(value)


def _unpack(header: dict[str, Any], arrays: Arrays, *, reads_boxes: bool) -> dict[str, Any]:
    require(set(arrays) == set(_DTYPES), "an array is missing")
    min_samples_split, lifetime, posterior, n_candidate_splits = _from_json(header["settings"])
    require(posterior in range(len(_MODELS)), "the posterior is unknown")
    require(isinstance(lifetime, float) and lifetime > 0.0, "the lifetime is out of range")
    require(n_candidate_splits <= MOST_CANDIDATES, "a number is out of range")
    model_class = _MODELS[posterior]
    mean, *others = header["hyperparameters"]
    if model_class is Pruned and len(others) == 3:  # older files have a rate, too
        del others[1]
    label_model = model_class(_number(mean), *(_number(value, 5e-324) for value in others))
    n_rows, label_mean, squared_deviation = header["label_sums"]
    state: dict[str, Any] = {
        "parameters": {name: _from_json(value) for name, value in header["parameters"].items()},
        "_growth": Growth(count(min_samples_split, 2), count(n_candidate_splits, 1), lifetime),
        "spread_": _unpack_spread(header["balance"], arrays["spread"]),
        "_resolution": _number(header["resolution"], 0.0),
        "label_model": label_model,
        "_label_sums": Moments(
            count(n_rows, 1), _number(label_mean), _number(squared_deviation, 0.0)
        ),
        "_review_at": count(header["review_at"]),
        "_has_rescaled": header["has_rescaled"] is True,
        "n_samples_seen_": n_rows,
    }
    sizes, boxes, rows, labels = (arrays[name] for name in ("sizes", "boxes", "rows", "labels"))
    n_trees, n_features = len(sizes), boxes.shape[-1]
    nodes, tallies = _as_records(arrays["nodes"], NODE), _as_records(arrays["tallies"], TALLY)
    learns = len(rows) > 0
    n_warped = n_features if len(arrays["knot_counts"]) else 0
    shapes = {
        "sizes": (n_trees,),
        "boxes": (*nodes.shape, 2, n_features),
        "row_numbers": (n_trees, n_rows if learns else 0),
        "rows": (n_rows if learns else 0, n_features),
        "labels": (n_rows if learns else 0,),
        "random_states": (n_trees, 4),
        "feature_range": (2, n_features),
        "feature_weights": (n_features,),
        "knots": (2, n_warped, arrays["knots"].shape[-1]),
        "knot_counts": (n_warped,),
        "trend": (1 + 3 * n_features if len(arrays["trend"]) else 0,),
        "spread": (2, max(arrays["spread"].shape[-1], 1)),
        "spread_record": (len(arrays["spread_record"]), RECORD_WIDTH),
        "seen_range": (2, n_features),
        "log_likelihoods": (0 if learns or model_class is not Hierarchical else n_trees,),
    }
    for name, shape in shapes.items():
        require(arrays[name].shape == shape, f"the array {name!r} has a wrong shape")
    require(n_trees > 0 and n_features > 0 and len(nodes) == n_trees, "there are no trees")
    require(
        tallies.shape == (n_trees, nodes.shape[1] if learns else 1), "an array has a wrong shape"
    )
    require(np.all((sizes >= 1) & (sizes <= nodes.shape[1])), "the size of a tree is wrong")
    for name in shapes:
        if arrays[name].dtype.kind == "f" and name != "boxes":
            require(np.all(np.isfinite(arrays[name])), f"the array {name!r} is not finite")
    weights = arrays["feature_weights"]
    require(np.all(arrays["spread_record"][:, 0] > 0.0), "the array 'spread_record' is wrong")
    require(np.all(weights >= 0.0) and weights.any(), "the array 'feature_weights' is wrong")
    for name in ("feature_range", "seen_range"):
        require(np.all(arrays[name][0] <= arrays[name][1]), f"the array {name!r} is wrong")
    require(arrays["random_states"].any(axis=1).all(), "the state of a random generator is wrong")
    grove = Grove(sizes, nodes, boxes, tallies, arrays["row_numbers"], header["is_linked"] is True)
    fault = fault_of_trees(grove, rows, n_rows, label_model, reads_boxes=reads_boxes)
    require(not fault, fault)
    names = header["feature_names"]
    if names is not None:
        require(
            isinstance(names, list)
            and len(names) == n_features
            and all(isinstance(name, str) for name in names),
            "the feature names are wrong",
        )
        state["feature_names_in_"] = np.array(names, dtype=object)
    table = header.get("table")  # files of a forest that was fitted to arrays may be without
    require(table is None or isinstance(table, str), "its description of columns is wrong")
    state["table"] = table
    if len(arrays["log_likelihoods"]) > 0:
        state["_log_likelihoods"] = arrays["log_likelihoods"]
    return state | {
        "_grove": grove,
        "_rows": rows,
        "_labels": labels,
        "_random_states": arrays["random_states"],
        "feature_range_": tuple(arrays["feature_range"]),
        "_warp": _unpack_warp(arrays["knots"], arrays["knot_counts"]),
        "_label_limits": _unpack_limits(header["label_limits"]),
        "feature_weights_": weights,
        "_trend": _unpack_trend(arrays["trend"]),
        "_spread_record": from_columns(arrays["spread_record"]),
        "_seen_range": tuple(arrays["seen_range"]),
        "n_features_in_": n_features,
    }


def fault_of_trees(
    grove: Grove,
    rows: NDArray[np.float32],
    n_rows: int,
    model: LabelModel,
    *,
    reads_boxes: bool = True,
) -> str:
    """Say what could lead a kernel astray in trees from a file; nothing if they are sound.

    ``rows`` are the ``n_rows`` that they have learned, with room for more, or none if the trees are
    frozen.
    """
    for number, size in enumerate(grove.sizes):
        fault = find_fault(
            grove.nodes[number, :size],
            grove.boxes[number, :size],
            grove.tallies[number, : size if len(rows) > 0 else 1],
            grove.row_numbers[number, :n_rows],
            rows,
            grove.is_linked,
            n_rows,
            reads_boxes,
        ) or (0 if are_sound(model, grove.nodes[number, :size]) else WRONG_VALUE)
        if fault:
            return f"in tree {number}, {FAULTS[fault]}"
    return ""


def _unpack_spread(balance: Any, content: NDArray[np.float64]) -> Spread:
    deviation, factor = content
    require(0.0 < _number(balance) <= 1e3, "a number is out of range")
    require(
        np.all((deviation > 0.0) & (factor >= 1e-4) & (factor <= 1e3))
        and np.all(np.diff(deviation) > 0.0),
        "the array 'spread' is wrong",
    )
    return Spread(float(balance), deviation, factor)


def _unpack_warp(points: NDArray[np.float64], counts: NDArray[np.int64]) -> Warp | None:
    if len(counts) == 0:
        return None
    require(np.all((counts >= 2) & (counts <= points.shape[2])), "the array 'knots' is wrong")
    for one in points:
        for values, n_knots in zip(one, counts, strict=True):
            # Halved, as the kernel does: it divides by the differences.
            require(np.all(np.diff(0.5 * values[:n_knots]) > 0.0), "the array 'knots' is wrong")
    return Warp(points[0], points[1], counts)


def _unpack_limits(content: Any) -> LabelLimits:
    low, high = (float(end) if end in ("-inf", "inf") else _number(end) for end in content)
    require(low < high, "a number is out of range")
    return LabelLimits(low, high)


def _unpack_trend(content: NDArray[np.float64]) -> Trend | None:
    if len(content) == 0:
        return None
    level, *rest = content.tolist()
    center, size, slope = np.reshape(rest, (3, -1))
    require(np.all(size > 0.0), "the array 'trend' is wrong")
    return Trend(level, center, size, slope)
