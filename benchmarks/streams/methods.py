"""The methods that follow a stream: each row is predicted before it is learned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor

from ..settings import ALONE
from .generated import Stream
from .memory import bytes_learning

LEVEL = 0.95
WINDOW = 2_000
"""Rows that the forests with ``max_rows`` keep."""
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "default, forgets after a change": {"forgetting": "change"},
    f"default, latest {WINDOW:,} rows": {"max_rows": WINDOW},
    "paper's model": PAPER,
    "paper's model, forgets after a change": PAPER | {"forgetting": "change"},
    f"paper's model, latest {WINDOW:,} rows": PAPER | {"max_rows": WINDOW},
}
SOKNL = "CapyMOA SOKNL"


@dataclass(frozen=True)
class Sizes:
    n_rows: int
    first: int
    """Rows of the first fit, which nobody has to predict."""
    chunk: int
    n_trees: int

    @property
    def window(self) -> int:
        return min(WINDOW, self.n_rows // 4)


@dataclass(frozen=True)
class Followed:
    """What a method made of a stream, for the rows after the first fit."""

    errors: np.ndarray
    inside: np.ndarray
    """Whether the label was inside the 95% interval; empty for methods without intervals."""
    alarms: np.ndarray
    """Shape (n, 2): the number of rows learned when a change was found, and where it was found."""
    held: np.ndarray
    """Shape (n, 3): rows learned, rows held, and bytes kept, after each chunk; empty for peers."""
    seconds: float

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Followed:
        with np.load(path) as found:
            return cls(
                **{name: found[name] for name in found.files if name != "seconds"}
                | {"seconds": float(found["seconds"])}
            )


Method = Callable[[Stream, Sizes], Followed]


def methods() -> dict[str, Method]:
    """Return ours, and the peers that are installed."""
    ours = {name: partial(follow_forest, options) for name, options in SETTINGS.items()}
    return ours | dict(river_methods()) | dict(capymoa_methods())


def followed(
    name: str, method: Method, stream: Stream, sizes: Sizes, cache: Path | None
) -> Followed:
    """Follow a stream, or read what was found before."""
    if cache is None:
        return method(stream, sizes)
    words = f"{stream.name} {sizes.n_rows} {sizes.chunk} {sizes.n_trees} {name}"
    path = cache / ("".join(c if c.isalnum() else "_" for c in words) + ".npz")
    if not path.exists():
        method(stream, sizes).save(path)
    return Followed.load(path)


def follow_forest(options: dict[str, Any], stream: Stream, sizes: Sizes) -> Followed:
    X, y, first = stream.X, stream.y, sizes.first
    if "max_rows" in options:
        options = options | {"max_rows": sizes.window}
    begin = perf_counter()
    forest = MondrianForestRegressor(sizes.n_trees, n_jobs=2, random_state=0, **ALONE | options)
    forest.fit(X[:first], y[:first])
    errors, inside, alarms, held = [], [], [], []
    n_changes = len(forest.changes_)
    for start in range(first, len(y), sizes.chunk):
        rows = slice(start, start + sizes.chunk)
        found = forest.predict_distribution(X[rows])
        low, high = found.interval(LEVEL).T
        errors.append(y[rows] - found.mean())
        inside.append((low <= y[rows]) & (y[rows] <= high))
        forest.partial_fit(X[rows], y[rows])
        alarms += [(forest.n_samples_seen_, place) for place in forest.changes_[n_changes:]]
        n_changes = len(forest.changes_)
        n_bytes = sum(bytes_learning(forest).values())
        held.append((forest.n_samples_seen_, forest.n_rows_, n_bytes))
    return Followed(
        np.concatenate(errors),
        np.concatenate(inside),
        np.array(alarms, dtype=np.int64).reshape(-1, 2),
        np.array(held, dtype=np.int64),
        perf_counter() - begin,
    )


def follow_rows(
    predict: Callable[[int], tuple[float, float, float]],
    learn: Callable[[int], Any],
    stream: Stream,
    sizes: Sizes,
) -> Followed:
    """Follow a stream row by row. ``predict`` returns mean, and low and high end of an interval."""
    begin = perf_counter()
    predicted = np.empty((len(stream.y), 3))
    for i in range(len(stream.y)):
        predicted[i] = predict(i)
        learn(i)
    mean, low, high = predicted[sizes.first :].T
    y = stream.y[sizes.first :]
    has_intervals = not np.isnan(low).any()
    return Followed(
        y - mean,
        (low <= y) & (y <= high) if has_intervals else np.empty(0, dtype=bool),
        np.empty((0, 2), dtype=np.int64),
        np.empty((0, 3), dtype=np.int64),
        perf_counter() - begin,
    )


def river_methods() -> Iterator[tuple[str, Method]]:
    try:
        from river.forest import AMFRegressor, ARFRegressor
    except ModuleNotFoundError:
        print("river is not installed: left out")
        return

    def follow(make: Callable[[int], Any], stream: Stream, sizes: Sizes) -> Followed:
        model = make(sizes.n_trees)
        rows, labels = [dict(enumerate(row)) for row in stream.X.tolist()], stream.y.tolist()
        return follow_rows(
            lambda i: (model.predict_one(rows[i]), np.nan, np.nan),
            lambda i: model.learn_one(rows[i], labels[i]),
            stream,
            sizes,
        )

    yield "river ARFRegressor", partial(follow, lambda n: ARFRegressor(n_models=n, seed=0))
    yield "river AMFRegressor", partial(follow, lambda n: AMFRegressor(n_estimators=n, seed=0))


def capymoa_methods() -> Iterator[tuple[str, Method]]:
    """Yield CapyMOA's forests, with twice the trees: 100, their default, where ours has 50."""
    # By default, Java leaves 8 GB of garbage before it collects any; half a GB is in use.
    os.environ.setdefault("CAPYMOA_JVM_ARGS", "-Xmx2g -Xss10M")
    try:
        from capymoa import regressor
        from capymoa.stream import NumpyStream
        from capymoa.uncertainty import AdaPI
    except Exception as error:  # without Java, the import fails in one of several ways
        print(f"CapyMOA is left out: {type(error).__name__}")
        return

    def follow(kind: Any, stream: Stream, sizes: Sizes) -> Followed:
        source = NumpyStream(stream.X, stream.y, dataset_name="rows", target_type="numeric")
        schema = source.get_schema()
        learner = kind(schema, ensemble_size=2 * sizes.n_trees)
        model = AdaPI(schema, base_learner=learner, confidence_level=LEVEL)
        rows = [source.next_instance() for _ in range(len(stream.y))]

        def predict(i: int) -> tuple[float, float, float]:
            low, mean, high = model.predict(rows[i])
            return mean, low, high

        return follow_rows(predict, lambda i: model.train(rows[i]), stream, sizes)

    yield SOKNL, partial(follow, regressor.SOKNL)
    yield "CapyMOA ARF-FIMT-DD", partial(follow, regressor.AdaptiveRandomForestRegressor)
