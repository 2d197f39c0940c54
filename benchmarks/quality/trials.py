"""Fit and score each method on each split of each table, and remember the results."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from tqdm import tqdm

from .elsewhere import Elsewhere
from .methods import Method
from .scores import rounding_step, score
from .tables import Load, Split, split

SCORING = 2  # part of the key of a result: count up when scores.py or methods.py change a result
WARM_UP_ROWS = 100

Scores = dict[str, dict[str, dict[str, float]]]
"""Table -> method -> score -> mean over the splits. What was not run is absent."""


def run_all(
    tables: dict[str, Load],
    methods: list[Method],
    n_splits: int,
    quick: bool,
    cache: Path | None,
    most_test_rows: int | None = None,
) -> Scores:
    results: Scores = {}
    with tqdm(total=len(tables) * n_splits * len(methods), unit="fit") as progress:
        for name, load in tables.items():
            X, y = load()
            by_method: dict[str, list[dict[str, float]]] = {}
            for seed in range(n_splits):
                rows = split(name, X, y, seed, quick)
                if most_test_rows is not None:
                    X_test, y_test = rows.X_test[:most_test_rows], rows.y_test[:most_test_rows]
                    rows = rows._replace(X_test=X_test, y_test=y_test)
                for method in methods:
                    progress.set_description(f"{name}, split {seed}, {method.name}")
                    if len(rows.y_train) <= method.most_rows:
                        found = remembered(name, rows, method, seed, cache)
                        by_method.setdefault(method.name, []).append(found)
                    progress.update()
            results[name] = {method: _means(found) for method, found in by_method.items()}
    return results


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}


def remembered(
    table: str, rows: Split, method: Method, seed: int, cache: Path | None
) -> dict[str, float]:
    """Return a result from the cache, or find it and put it there."""
    if cache is None:
        return measure(rows, method, seed)
    data = sha256()
    for part in rows:
        data.update(np.ascontiguousarray(part))
    key: dict[str, Any] = {
        "table": table,
        "data": data.hexdigest()[:16],
        "split": seed,
        "method": method.fit.__name__,
        "settings": {name: one for name, one in method.settings.items() if name != "python"},
        "origin": method.origin,
        "scoring": SCORING,
    }
    digest = sha256(json.dumps(key, sort_keys=True, default=repr).encode()).hexdigest()[:16]
    path = cache / f"{table}-{seed}-{method.fit.__name__}-{digest}.json"
    if path.is_file():
        scores: dict[str, float] = json.loads(path.read_text())["scores"]
        return scores
    scores = measure(rows, method, seed)
    cache.mkdir(parents=True, exist_ok=True)
    # Complete or absent, also when the run is interrupted here.
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps({"key": key, "scores": scores}, indent=1, default=repr) + "\n")
    unfinished.replace(path)
    return scores


def measure(rows: Split, method: Method, seed: int) -> dict[str, float]:
    if not method.is_elsewhere:
        # Compile, import and start threads before anything is timed.
        few = slice(0, WARM_UP_ROWS)
        method.fit(rows.X_train[few], rows.y_train[few], seed, **method.settings)(rows.X_test[few])
    times = [(perf_counter(), process_time())]
    predict = method.fit(rows.X_train, rows.y_train, seed, **method.settings)
    times.append((perf_counter(), process_time()))
    prediction = predict(rows.X_test)
    times.append((perf_counter(), process_time()))
    found = predict.times if isinstance(predict, Elsewhere) else np.diff(times, axis=0)
    seconds, processor = np.asarray(found).T.tolist()
    return {
        **score(prediction, rows.y_test, rounding_step(rows.y_train)),
        "fit_seconds": seconds[0],
        "fit_processor_seconds": processor[0],
        "predict_seconds": seconds[1],
        "predict_processor_seconds": processor[1],
    }
