"""The state of a forest as a file: safetensors with a JSON header, never pickle.

A file holds arrays, and text that describes them. Opening it runs no code, and nothing in it is
believed before it has been checked: damage is found by checksums, and arrays that would lead a
kernel astray by looking at every index. What fails ends in one ``ModelFileError``.

The text is the entry ``mondrian_forest`` of the file's metadata: a checksum (SHA-256), a space, and
the JSON object that it belongs to, which has the checksums of all arrays. Equal forests have equal
files. Format 2:

===================  ========================================================================
``sizes``            number of nodes of each tree
``nodes``            records of type ``NODE`` as bytes, for each tree, padded to the largest
``boxes``            lower and upper ends for each node
``tallies``          records of type ``TALLY`` as bytes; without rows, those of the roots alone
``row_numbers``      which rows the leaves hold
``contest_counts``   how many nodes of each tree keep their candidate cuts
``contests``         records of type ``CANDIDATE`` as bytes, for each of these nodes
``rows``, ``labels`` training rows as the trees see them, and their labels; empty without rows
``means``            what the mean function said of them
``arrivals``         how many rows had been learned before each
``ordered_labels``   labels in the order of each tree, where rows are left out and labels needed
``random_states``    the random stream of each tree
``feature_range``    lower and upper ends of the range that is mapped to [0, 1]
``knots``            values and coordinates of the points of a warp; empty without one
``knot_counts``      how many of these points each feature has
``feature_weights``  what each feature is multiplied by then
``linear``           level, centers, sizes and slopes of a linear mean function; empty without one
``boosted_nodes``    records of type ``BOOSTED_NODE`` as bytes, of a mean function of boosted trees
``boosted_trees``    their numbers: the root of each tree
``boosted_ends``     the number of trees up to the end of each boosted model
``boosted_levels``   center and unit of the labels, then the level of each model; empty without one
``spread``           standard deviations and the factors that belong to them
``novelty``          quantiles of the novelty of held-out rows; empty where none were held out
``spread_record``    what is known about the rows that the spread is learned from
``seen_range``       lower and upper ends of the rows seen
``monitor``          what watches a stream for changes; empty without it
``log_likelihoods``  of the labels given each tree, if the rows that say so are left out
===================  ========================================================================
"""

from __future__ import annotations

import math
import os
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.check import FAULTS, WRONG_VALUE, find_fault
from .._core.arrays.contests import CANDIDATE, NO_CONTEST, Contests
from .._core.arrays.grove import Grove, trimmed
from .._core.arrays.tree import NO_CHILD, NODE, TALLY
from .._core.boosted import BOOSTED_NODE
from .._core.growth import MOST_CANDIDATES, Growth
from .._core.labels import MODELS, Hierarchical, LabelModel
from .._core.labels.model import are_sound
from .._core.moments import Moments
from .._core.spread.apply import LEVELS, Spread, Surroundings
from .._core.spread.blend import Blend
from .._core.spread.record import RECORD_WIDTH, from_columns, to_columns
from .._version import __version__
from ..io.container import (
    Arrays,
    ModelFileError,
    checksum,
    count,
    read_file,
    require,
    write_file,
)
from ..io.replace import replacing
from .boosting import Boosted, check_boosted
from .label_limits import LabelLimits
from .linear import Linear
from .mean_function import SUBTRACT, USES, MeanFunction, Regression, Regressors
from .monitor import Monitor
from .posteriors import CLASSES, Posterior
from .scaling import Scaling, Warp
from .state import ForestState

FORMAT_VERSION = 3

DTYPES = {
    "sizes": "I64",
    "nodes": "U8",
    "boxes": "F32",
    "tallies": "U8",
    "row_numbers": "I32",
    "contest_counts": "I64",
    "contests": "U8",
    "rows": "F32",
    "labels": "F64",
    "means": "F64",
    "arrivals": "I64",
    "ordered_labels": "F64",
    "random_states": "U64",
    "feature_range": "F64",
    "knots": "F64",
    "knot_counts": "I64",
    "feature_weights": "F64",
    "linear": "F64",
    "boosted_nodes": "U8",
    "boosted_trees": "I64",
    "boosted_ends": "I64",
    "boosted_levels": "F64",
    "spread": "F64",
    "novelty": "F64",
    "spread_record": "F64",
    "seen_range": "F64",
    "monitor": "F64",
    "log_likelihoods": "F64",
}
_POSITIVE = 5e-324


def write(
    path: str | os.PathLike[str],
    parameters: dict[str, Any],
    state: ForestState,
    table: str | None,
) -> None:
    """Write a fitted forest; until that is done, an older file stays as it is.

    ``parameters`` are those of the estimator, and ``table`` says how tables become features.
    """
    with replacing(path) as unfinished:
        header, arrays = _pack(state)
        header["parameters"] = {name: _to_json(name, value) for name, value in parameters.items()}
        header["table"] = table
        header["library_version"] = __version__
        header["sha256"] = {name: checksum(array) for name, array in arrays.items()}
        write_file(unfinished, header, arrays)


def read(
    path: str | os.PathLike[str], *, mapped: bool = False
) -> tuple[dict[str, Any], ForestState, str | None]:
    """Return what was written, in memory that nobody else can change, checked.

    With ``mapped`` the boxes, which are most of the file, stay in it until they are needed, and
    nobody looks at them before. They cannot lead a prediction astray, since it only compares them
    with rows. Learning does rely on them, so that ``fault_of_trees`` must come first.
    """
    in_file = ("boxes",) if mapped else ()
    try:
        header, arrays = read_file(path, DTYPES, in_file)
        version = header.get("format_version")
        if version != FORMAT_VERSION:
            raise ModelFileError(
                f"it has format {version!r}, and this version of mondrian-forest reads format "
                f"{FORMAT_VERSION}: install the version that wrote it, or a newer one"
            )
        for name, array in arrays.items():
            if name not in in_file:
                is_same = header["sha256"].get(name) == checksum(array)
                require(is_same, f"the array {name!r} has changed since it was written")
        parameters = {name: _from_json(value) for name, value in header["parameters"].items()}
        table = header["table"]
        require(table is None or isinstance(table, str), "its description of columns is wrong")
        return parameters, _unpack(header, arrays, mapped=mapped), table
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


def _pack(state: ForestState) -> tuple[dict[str, Any], Arrays]:
    grove = trimmed(state.grove)
    n_stored = 0 if state.is_frozen else state.n_rows
    warp, around = state.scaling.warp, state.spread.surroundings
    likelihoods = state.log_likelihoods
    names = state.feature_names
    header = {
        "format_version": FORMAT_VERSION,
        "growth": _to_json("growth", list(state.growth)),
        "model": [state.model.name(), *state.model._asdict().values()],
        "label_moments": list(state.label_moments),
        "label_limits": _to_json("label_limits", list(state.label_limits)),
        "balance": state.spread.balance,
        "far_deviation": None if around is None else around.far_deviation,
        "blend": None if state.spread.blend is None else list(state.spread.blend),
        "resolution": state.resolution,
        "review_at": state.review_at,
        "fitted_at": state.fitted_at,
        "n_rows_fitted": state.n_rows_fitted,
        "has_rescaled": state.has_rescaled,
        "is_linked": grove.is_linked,
        "n_rows": state.n_rows,
        "n_seen": state.n_seen,
        "mean_function": _use_of(state.mean_function),
        "feature_names": None if names is None else names.tolist(),
    }
    arrays: Arrays = {
        "sizes": grove.sizes,
        "nodes": _as_bytes(grove.nodes),
        "boxes": grove.boxes,
        "tallies": _as_bytes(grove.tallies),
        "row_numbers": grove.row_numbers,
        "contest_counts": grove.contests.counts[:, 0],
        "contests": _contests_as_bytes(grove.contests.candidates),
        "rows": state.rows[:n_stored],
        "labels": state.labels[:n_stored],
        "means": state.means[:n_stored],
        "arrivals": state.arrivals[:n_stored],
        "ordered_labels": state.ordered_labels,
        "random_states": state.random_states,
        "feature_range": np.stack(state.scaling.range),
        "knots": np.empty((2, 0, 0)) if warp is None else np.stack(warp[:2]),
        "knot_counts": np.empty(0, np.int64) if warp is None else warp.counts,
        "feature_weights": state.scaling.weights,
        **_pack_regression(state.mean_function.regression if state.mean_function else None),
        "spread": np.stack((state.spread.deviation, state.spread.factor)),
        "novelty": np.empty(0) if around is None else around.novelty,
        "spread_record": to_columns(state.spread_record),
        "seen_range": np.stack(state.seen_range),
        "monitor": np.empty(0) if state.monitor is None else state.monitor.to_array(),
        "log_likelihoods": np.empty(0) if likelihoods is None else likelihoods,
    }
    return header, arrays


def _unpack(header: dict[str, Any], arrays: Arrays, *, mapped: bool) -> ForestState:
    """Return the state that header and arrays describe, or raise an error."""
    require(set(arrays) == set(DTYPES), "an array is missing")
    growth = _unpack_growth(_from_json(header["growth"]))
    n_rows = count(header["n_rows"], 1)
    nodes, tallies = _as_records(arrays["nodes"], NODE), _as_records(arrays["tallies"], TALLY)
    model = _unpack_model(header["model"])
    contests = _unpack_contests(arrays, growth)
    n_seen = count(header["n_seen"], n_rows)
    _check_shapes(arrays, nodes, tallies, n_rows, model)
    _check_values(arrays, n_seen)
    rows = arrays["rows"]
    grove = Grove(
        arrays["sizes"],
        np.full(len(arrays["sizes"]), NO_CHILD, np.int64),
        nodes,
        arrays["boxes"],
        tallies,
        arrays["row_numbers"],
        contests,
        header["is_linked"] is True,
    )
    fault = fault_of_trees(grove, rows, n_rows, model, reads_boxes=not mapped)
    require(not fault, fault)
    has_labels = len(rows) > 0 or len(arrays["ordered_labels"]) > 0
    require(has_labels or header["blend"] is None, "the labels are missing")
    likelihoods = arrays["log_likelihoods"]
    mean_function, n_features = _unpack_mean_function(header["mean_function"], arrays)
    return ForestState(
        feature_names=_unpack_names(header["feature_names"], n_features),
        scaling=Scaling(
            (arrays["feature_range"][0], arrays["feature_range"][1]),
            arrays["feature_weights"],
            _unpack_warp(arrays["knots"], arrays["knot_counts"]),
        ),
        grove=grove,
        growth=growth,
        model=model,
        mean_function=mean_function,
        spread=_unpack_spread(header, arrays["spread"], arrays["novelty"]),
        n_rows=n_rows,
        n_seen=n_seen,
        rows=rows,
        labels=arrays["labels"],
        means=arrays["means"],
        arrivals=arrays["arrivals"],
        ordered_labels=arrays["ordered_labels"],
        random_states=arrays["random_states"],
        label_moments=_unpack_moments(header["label_moments"]),
        label_limits=_unpack_limits(header["label_limits"]),
        resolution=_number(header["resolution"], 0.0),
        seen_range=(arrays["seen_range"][0], arrays["seen_range"][1]),
        spread_record=from_columns(arrays["spread_record"]),
        review_at=count(header["review_at"]),
        fitted_at=count(header["fitted_at"]),
        n_rows_fitted=count(header["n_rows_fitted"]),
        has_rescaled=header["has_rescaled"] is True,
        log_likelihoods=likelihoods if len(likelihoods) > 0 else None,
        is_mapped=mapped,
        monitor=None if len(arrays["monitor"]) == 0 else Monitor.from_array(arrays["monitor"]),
    )


def _check_shapes(
    arrays: Arrays,
    nodes: NDArray[Any],
    tallies: NDArray[Any],
    n_rows: int,
    model: LabelModel,
) -> None:
    sizes = arrays["sizes"]
    n_trees, n_features = len(sizes), arrays["boxes"].shape[-1]
    learns = len(arrays["rows"]) > 0
    n_stored = n_rows if learns else 0
    n_warped = n_features if len(arrays["knot_counts"]) else 0
    keeps_labels = not learns and len(arrays["ordered_labels"]) > 0
    has_likelihoods = not learns and isinstance(model, Hierarchical)
    shapes = {
        "sizes": (n_trees,),
        "boxes": (*nodes.shape, 2, n_features),
        "row_numbers": (n_trees, n_stored),
        "contest_counts": (n_trees,),
        "contests": (n_trees, *arrays["contests"].shape[1:]),
        "rows": (n_stored, n_features),
        "labels": (n_stored,),
        "means": (n_stored,),
        "arrivals": (n_stored,),
        "ordered_labels": (n_trees, n_rows) if keeps_labels else (0, 0),
        "random_states": (n_trees, 4),
        "feature_range": (2, n_features),
        "feature_weights": (n_features,),
        "knots": (2, n_warped, arrays["knots"].shape[-1]),
        "knot_counts": (n_warped,),
        "linear": (arrays["linear"].size,),
        "boosted_nodes": (1, len(arrays["boosted_nodes"][0]), BOOSTED_NODE.itemsize),
        "boosted_trees": (arrays["boosted_trees"].size,),
        "boosted_ends": (arrays["boosted_ends"].size,),
        "boosted_levels": (arrays["boosted_levels"].size,),
        "spread": (2, max(arrays["spread"].shape[-1], 1)),
        "novelty": (len(LEVELS) if len(arrays["novelty"]) else 0,),
        "spread_record": (len(arrays["spread_record"]), RECORD_WIDTH),
        "seen_range": (2, n_features),
        "monitor": (arrays["monitor"].size,),
        "log_likelihoods": (n_trees if has_likelihoods else 0,),
    }
    for name, shape in shapes.items():
        require(arrays[name].shape == shape, f"the array {name!r} has a wrong shape")
    require(n_trees > 0 and n_features > 0 and len(nodes) == n_trees, "there are no trees")
    require(
        tallies.shape == (n_trees, nodes.shape[1] if learns else 1), "an array has a wrong shape"
    )
    require(np.all((sizes >= 1) & (sizes <= nodes.shape[1])), "the size of a tree is wrong")


def _check_values(arrays: Arrays, n_seen: int) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != "boxes":
            require(np.all(np.isfinite(array)), f"the array {name!r} is not finite")
    arrivals = np.sort(arrays["arrivals"])
    are_sound = np.all(np.diff(arrivals) > 0) and np.all((arrivals >= 0) & (arrivals < n_seen))
    require(are_sound, "the array 'arrivals' is wrong")
    weights = arrays["feature_weights"]
    require(np.all(arrays["spread_record"][:, 0] > 0.0), "the array 'spread_record' is wrong")
    require(np.all(weights >= 0.0) and weights.any(), "the array 'feature_weights' is wrong")
    for name in ("feature_range", "seen_range"):
        require(np.all(arrays[name][0] <= arrays[name][1]), f"the array {name!r} is wrong")
    require(arrays["random_states"].any(axis=1).all(), "the state of a random generator is wrong")


def _unpack_growth(content: Any) -> Growth:
    min_samples_split, n_candidate_splits, lifetime, origin, unit, tolerance = content
    # With several candidates, the kernels that learn and forget know of no end.
    is_known = isinstance(lifetime, float) and lifetime > 0.0
    require(
        is_known and (n_candidate_splits == 1 or lifetime == math.inf),
        "the lifetime is out of range",
    )
    require(n_candidate_splits <= MOST_CANDIDATES, "a number is out of range")
    return Growth(
        count(min_samples_split, 2),
        count(n_candidate_splits, 1),
        lifetime,
        _number(origin),
        _number(unit, _POSITIVE),
        _number(tolerance, 0.0),
    )


def _unpack_contests(arrays: Arrays, growth: Growth) -> Contests:
    """Return the candidate cuts of all trees; whether they suit the trees is seen later."""
    content, n_used = arrays["contests"], arrays["contest_counts"]
    require(content.ndim == 3, "an array has a wrong shape")
    n_trees, n_places, n_bytes = content.shape
    is_empty = n_places == 0 and n_bytes == 0
    width = 0 if is_empty else growth.n_candidate_splits + 1
    require(n_bytes == width * CANDIDATE.itemsize, "an array has a wrong shape")
    require(is_empty or width > 2, "there are candidates for cuts that have none")
    require(np.all((n_used >= 0) & (n_used <= n_places)), "a number is out of range")
    counts = np.stack((n_used, np.full_like(n_used, NO_CONTEST)), axis=-1)
    candidates = content.reshape(n_trees, n_places * n_bytes).view(CANDIDATE)
    return Contests(counts, candidates.reshape(n_trees, n_places, width))


def _unpack_model(content: Any) -> LabelModel:
    name, mean, *others = content
    require(isinstance(name, str) and name in MODELS, "the posterior is unknown")
    model = MODELS[name](_number(mean), *(_number(value, _POSITIVE) for value in others))
    require(getattr(model, "prior_stop", 0.5) < 1.0, "a number is out of range")
    return model


def _unpack_moments(content: Any) -> Moments:
    n_rows, mean, squared_deviation = content
    return Moments(count(n_rows, 1), _number(mean), _number(squared_deviation, 0.0))


def _unpack_names(names: Any, n_features: int) -> NDArray[np.object_] | None:
    if names is None:
        return None
    require(
        isinstance(names, list)
        and len(names) == n_features
        and all(isinstance(name, str) for name in names),
        "the feature names are wrong",
    )
    return np.array(names, dtype=object)


def _as_bytes(records: NDArray[Any]) -> NDArray[np.uint8]:
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)


def _contests_as_bytes(candidates: NDArray[Any]) -> NDArray[np.uint8]:
    n_trees, n_places, width = candidates.shape
    plain = candidates.reshape(n_trees, n_places * width).view(np.uint8)
    return plain.reshape(n_trees, n_places, width * CANDIDATE.itemsize)


def _as_records(content: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    require(content.ndim == 3 and content.shape[2] == dtype.itemsize, "an array has a wrong shape")
    n_trees, n_records, itemsize = content.shape
    return content.reshape(n_trees, n_records * itemsize).view(dtype)


def _to_json(name: str, value: Any) -> Any:
    """Return a value that JSON has; infinite numbers become text."""
    if isinstance(value, Posterior):
        given = value.get_params()
        return {"posterior": [value.name, {key: _to_json(key, one) for key, one in given.items()}]}
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
    if isinstance(value, dict) and "posterior" in value:
        name, given = value["posterior"]
        return CLASSES[name](**{key: _from_json(one) for key, one in given.items()})
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
            grove.contests_of(number),
            grove.row_numbers[number, :n_rows],
            rows,
            grove.is_linked,
            n_rows,
            reads_boxes,
        ) or (0 if are_sound(model, grove.nodes[number, :size]) else WRONG_VALUE)
        if fault:
            return f"in tree {number}, {FAULTS[fault]}"
    return ""


def _unpack_spread(
    header: dict[str, Any], content: NDArray[np.float64], novelty: NDArray[np.float64]
) -> Spread:
    deviation, factor = content
    balance, surroundings = header["balance"], None
    require(0.0 < _number(balance) <= 1e3, "a number is out of range")
    if len(novelty) > 0:
        is_sound = novelty[0] >= 0.0 and novelty[-1] <= 1.0 and np.all(np.diff(novelty) >= 0.0)
        require(is_sound, "the array 'novelty' is wrong")
        surroundings = Surroundings(novelty, _number(header["far_deviation"], _POSITIVE))
    require(
        np.all((deviation > 0.0) & (factor >= 1e-4) & (factor <= 1e3))
        and np.all(np.diff(deviation) > 0.0),
        "the array 'spread' is wrong",
    )
    blend = None
    if header["blend"] is not None:
        share, bandwidth, is_pruned = header["blend"]
        blend = Blend(_number(share, _POSITIVE), _number(bandwidth, _POSITIVE), is_pruned is True)
        require(blend.share < 1.0, "a number is out of range")
    return Spread(float(balance), deviation, factor, surroundings, blend)


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


def _pack_regression(known: Regression | None) -> Arrays:
    if isinstance(known, Regressors):
        names = ", ".join(sorted({type(model).__name__ for model in known.models}))
        raise ValueError(
            f"A forest whose mean function is a {names} cannot be saved in a model file, which "
            "holds arrays only: pickle it, or use skops."
        )
    trees = known if isinstance(known, Boosted) else None
    empty, none = np.empty(0), np.empty(0, np.int64)
    nodes = np.empty(0, BOOSTED_NODE) if trees is None else trees.nodes
    return {
        "linear": np.hstack(known) if isinstance(known, Linear) else empty,
        "boosted_nodes": _as_bytes(nodes[None]),
        "boosted_trees": none if trees is None else trees.roots,
        "boosted_ends": none if trees is None else trees.ends,
        "boosted_levels": empty
        if trees is None
        else np.hstack((trees.center, trees.unit, trees.levels)),
    }


def _use_of(known: MeanFunction | None) -> Any:
    return None if known is None else [known.use, known.far]


def _unpack_mean_function(content: Any, arrays: Arrays) -> tuple[MeanFunction | None, int]:
    """Return the mean function, and the number of features without its own column."""
    n_columns = arrays["boxes"].shape[-1]
    linear, numbers = arrays["linear"], arrays["boosted_levels"]
    if content is None:
        require(len(linear) == len(numbers) == 0, "its mean function has no use")
        return None, n_columns
    use, far = content
    require(isinstance(use, str) and use in USES, "the use of its mean function is unknown")
    n_features = n_columns - int(use != SUBTRACT)
    require(n_features > 0, "there are no features")
    regression = _unpack_linear(linear, n_features) or _unpack_boosted(arrays, n_features)
    return MeanFunction(regression, use, _number(far, 1.0)), n_features


def _unpack_linear(content: NDArray[np.float64], n_features: int) -> Linear | None:
    if len(content) == 0:
        return None
    require(len(content) == 2 + 3 * n_features, "the array 'linear' is wrong")
    level, *rest, goes_on = content.tolist()
    center, size, slope = np.reshape(rest, (3, -1))
    require(np.all(size > 0.0) and goes_on in (0.0, 1.0), "the array 'linear' is wrong")
    return Linear(level, center, size, slope, goes_on == 1.0)


def _unpack_boosted(arrays: Arrays, n_features: int) -> Boosted:
    numbers = arrays["boosted_levels"]
    require(len(numbers) > 2, "its mean function is missing")
    (nodes,) = _as_records(arrays["boosted_nodes"], BOOSTED_NODE)
    center, unit = numbers[:2].tolist()
    known = Boosted(
        nodes, arrays["boosted_trees"], arrays["boosted_ends"], numbers[2:], center, unit
    )
    check_boosted(known, n_features)
    return known
