"""The pictures of the documentation: the law of a batch fit, a sudden change, and erasure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mondrian_forest import MondrianForestRegressor

from ..settings import ALONE
from .drift import FULL, QUICK
from .generated import drifting
from .methods import SETTINGS, SOKNL, WINDOW, Followed, followed, methods

ROLLING = 500
DRAWN = {
    "default": ("keeps all rows", "tab:blue"),
    f"default, latest {WINDOW:,} rows": (f"keeps the latest {WINDOW:,} rows", "tab:orange"),
    "default, forgets after a change": ("forgets after a change", "tab:green"),
    SOKNL: (SOKNL, "0.55"),
}


def draw(folder: Path, quick: bool, cache: Path | None) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_law(folder / "stream_law.png", quick)
    draw_change(folder / "stream_change.png", quick, cache)
    draw_erasure(folder / "stream_erasure.png", quick)


def finish(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"Saved {path}")


def draw_law(path: Path, quick: bool) -> None:
    """Draw errors while learning, and the depths of trees, beside those of batch fits."""
    import matplotlib.pyplot as plt

    n_trees, n_rows, chunk, n_test, n_law = (
        (5, 400, 100, 200, 20) if quick else (50, 6_400, 100, 2_000, 1_000)
    )
    stream = drifting(n_rows + n_test)[0]
    X, y, X_test, y_test = (
        stream.X[:n_rows],
        stream.y[:n_rows],
        stream.X[n_rows:],
        stream.y[n_rows:],
    )

    def error(forest: MondrianForestRegressor) -> float:
        return float(np.sqrt(np.mean((forest.predict(X_test) - y_test) ** 2)))

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    online = MondrianForestRegressor(n_trees, n_jobs=2, random_state=0, **ALONE)
    ends = np.arange(chunk, n_rows + 1, chunk)
    errors = [error(online.partial_fit(X[end - chunk : end], y[end - chunk : end])) for end in ends]
    left.plot(ends, errors, color="tab:blue", label=f"learned in chunks of {chunk}")
    sizes = [chunk * 2**k for k in range(20) if chunk * 2**k <= n_rows]
    batch = [
        error(MondrianForestRegressor(n_trees, n_jobs=2, random_state=1, **ALONE).fit(X[:n], y[:n]))
        for n in sizes
    ]
    left.plot(sizes, batch, "o", color="tab:orange", label="batch fits")
    left.set_xscale("log")
    left.set_xticks(sizes, [f"{n:,}" for n in sizes])
    left.minorticks_off()
    left.axhline(1.0, color="black", linewidth=0.6)
    left.annotate("noise", (sizes[0], 1.0), (0, -12), textcoords="offset points")
    left.set_ylim(bottom=0.0)
    left.set_xlabel("rows learned")
    left.set_ylabel(f"RMSE of {n_test:,} other rows")
    left.legend()
    for name, depths in depths_of_trees(X, y, n_law).items():
        numbers = np.sort(depths)
        right.step(numbers, np.arange(1, n_law + 1) / n_law, where="post", label=name)
    right.set_xlabel("mean depth of a tree's 150 rows")
    right.set_ylabel(f"share of {n_law:,} trees")
    right.legend(loc="lower right")
    finish(figure, path)


def depths_of_trees(X: np.ndarray, y: np.ndarray, n_trees: int) -> dict[str, np.ndarray]:
    """Return the mean depth of the rows in each tree, of forests that hold the same rows."""
    options = {"feature_weights": None, "spread": 1.0, "feature_range": (0.0, 1.0), "n_jobs": 2}
    held, others = slice(0, 150), slice(150, 300)

    def forest(seed: int) -> MondrianForestRegressor:
        return MondrianForestRegressor(n_trees, random_state=seed, **ALONE | options)

    online = forest(1)
    for start in range(0, 150, 10):
        online.partial_fit(X[start : start + 10], y[start : start + 10])
    lost = forest(2).fit(X[held], y[held]).partial_fit(X[others], y[others])
    lost.forget(np.arange(150, 300))
    forests = {
        "batch fits": forest(0).fit(X[held], y[held]),
        "learned in chunks of 10": online,
        "learned twice as many, forgot half": lost,
    }
    return {name: np.array([mean_depth(tree) for tree in f.trees_]) for name, f in forests.items()}


def mean_depth(tree: Any) -> float:
    """Return the depth of the leaves, weighted by their rows."""
    depth = np.zeros(tree.n_nodes)
    waiting = [0]
    total = 0.0
    while waiting:
        node = waiting.pop()
        left = int(tree.left_child[node])
        if left < 0:
            total += depth[node] * tree.n_samples[node]
        else:
            depth[left : left + 2] = depth[node] + 1
            waiting += [left, left + 1]
    return total / int(tree.n_samples[0])


def draw_erasure(path: Path, quick: bool) -> None:
    """Draw forecasts before and after faulty rows are forgotten, and those of a fit without."""
    import matplotlib.pyplot as plt

    n_trees, n_good, n_bad = (5, 60, 10) if quick else (50, 600, 60)
    random = np.random.default_rng(0)
    x = np.concatenate((random.random(n_good), random.uniform(0.55, 0.7, n_bad)))
    y = np.sin(2.0 * np.pi * x) + 0.1 * random.normal(size=len(x))
    y[n_good:] += 2.0
    faulty = np.arange(n_good, n_good + n_bad)
    forest = MondrianForestRegressor(n_trees, random_state=0, **ALONE).fit(x[:, None], y)
    fresh = MondrianForestRegressor(n_trees, random_state=1, **ALONE).fit(
        x[:n_good, None], y[:n_good]
    )
    at = np.linspace(0.0, 1.0, 300)[:, None]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, title in zip(
        axes, (f"{n_bad} rows of a faulty sensor", "forget(faulty)"), strict=True
    ):
        if axis is axes[1]:
            forest.forget(faulty)
        low, high = forest.predict_interval(at, 0.9).T
        axis.fill_between(at[:, 0], low, high, color="tab:blue", alpha=0.25, linewidth=0)
        axis.plot(at[:, 0], forest.predict(at), color="tab:blue", label="mean and 90% interval")
        held = forest.row_numbers_
        good, bad = held[held < n_good], held[held >= n_good]
        axis.plot(x[good], y[good], ".", color="0.4", markersize=2)
        axis.plot(x[bad], y[bad], ".", color="tab:red", markersize=3)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("x")
    for ends in fresh.predict_interval(at, 0.9).T:
        axes[1].plot(at[:, 0], ends, color="black", linewidth=0.7, linestyle="--")
    axes[1].plot([], [], color="black", linewidth=0.7, linestyle="--", label="a fit without them")
    axes[0].set_ylabel("y")
    axes[1].legend()
    finish(figure, path)


def draw_change(path: Path, quick: bool, cache: Path | None) -> None:
    """Draw errors, rows held and memory on the stream with a sudden change."""
    import matplotlib.pyplot as plt

    sizes, width = (QUICK, 50) if quick else (FULL, ROLLING)
    stream = next(stream for stream in drifting(sizes.n_rows) if stream.name == "sudden")
    known = methods()
    figure, (top, middle, bottom) = plt.subplots(
        3,
        1,
        figsize=(9, 7.5),
        sharex=True,
        height_ratios=(3, 1.2, 1.2),
        layout="constrained",
    )
    for name, (label, colour) in DRAWN.items():
        if name not in known:
            continue
        result = followed(name, known[name], stream, sizes, cache)
        end = np.arange(width, len(result.errors) + 1) + sizes.first
        top.plot(end, rolling_error(result, width), color=colour, label=label)
        if name in SETTINGS:
            rows_seen, held, kept = result.held.T
            middle.plot(rows_seen, held / 1e3, color=colour)
            bottom.plot(rows_seen, kept / 1e6, color=colour)
        for found, _ in result.alarms:
            for axis in (top, middle, bottom):
                axis.axvline(found, color=colour, linestyle=":", linewidth=1.2)
    for change, _ in stream.changes:
        for axis in (top, middle, bottom):
            axis.axvline(change, color="black", linestyle="--", linewidth=0.8)
    top.axhline(1.0, color="black", linewidth=0.6)
    top.annotate("noise", (sizes.n_rows, 1.0), (0, -12), textcoords="offset points", ha="right")
    top.set_ylim(bottom=0.0)
    top.set_ylabel(f"RMSE of the last {width:,} rows")
    top.legend(loc="upper left")
    middle.set_ylabel("rows held, 1,000")
    bottom.set_ylabel("memory, MB")
    bottom.set_xlabel("rows seen (dashed: the change; dotted: where it is found)")
    for axis in (middle, bottom):
        axis.set_ylim(bottom=0.0)
    bottom.xaxis.set_major_formatter("{x:,.0f}")
    finish(figure, path)


def rolling_error(result: Followed, width: int) -> np.ndarray:
    """Return the RMSE of all runs of so many rows."""
    sums = np.concatenate([[0.0], np.cumsum(result.errors**2)])
    return np.sqrt((sums[width:] - sums[:-width]) / width)
