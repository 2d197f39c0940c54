"""What a forest says where it cannot know: far from the data, about strange rows, about noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.metrics import roc_auc_score

from mondrian_forest import PAPER, MondrianForestRegressor

from .quality.tables import find
from .quality.tables import split as split_table
from .table import Table

MOST_TRAIN_ROWS, MOST_TEST_ROWS = 1_500, 500
DISTANCES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
BEYOND = 1.0
FARTHEST = 1e4
"""In ranges of the features; the mean of a prediction there is that of all labels."""
SHIFTS = {
    "all by 0.3": ("all", 0.3),
    "all by 10": ("all", 10.0),
    "one by 1": ("one", 1.0),
    "one by 10": ("one", 10.0),
    "permuted": ("permuted", 0.0),
}
TARGETS = {
    "default, std": (0.95, 0.97, 0.90, 0.95, 0.82),
    "default, novelty": (0.97, 0.97, 0.97, 0.97, 0.85),
}
N_RAYS = 200


GENERATED = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "friedman1": lambda: make_friedman1(2_000, noise=1.0, random_state=0),
}
"""Further tables, for the first of the results only. Features of friedman1 are independent, so that
permuting them changes nothing."""


def run(quick: bool, data: Path | None) -> Iterator[Table]:
    tables = {name: samples(name, load, quick) for name, load in regression_tables(quick, data)}
    forests = {name: default(quick).fit(*rows[:2]) for name, rows in tables.items()}
    yield far_from_the_data(tables, forests)
    yield shifted_rows(tables, forests, quick)
    yield two_modes(quick)
    yield pure_noise(quick)


def default(quick: bool, seed: int = 0, **options) -> MondrianForestRegressor:
    return MondrianForestRegressor(10 if quick else 50, n_jobs=2, random_state=seed, **options)


def regression_tables(quick: bool, data: Path | None):
    for name, load in find(data, quick).items():
        if "flights" not in name:
            yield name, load
    if not quick:
        yield from GENERATED.items()


def samples(name, load, quick: bool):
    rows = split_table(name, *load(), 0, quick)
    n, m = MOST_TRAIN_ROWS, MOST_TEST_ROWS
    return rows.X_train[:n], rows.y_train[:n], rows.X_test[:m], rows.y_test[:m]


def far_from_the_data(tables, forests) -> Table:
    table = Table(
        "Far from the data",
        [
            "table",
            "far std / std of labels",
            "largest fall of the mean std",
            "largest fall of one std",
            "rows with tied std",
        ],
        note=f"`MondrianForestRegressor()`. At most {MOST_TRAIN_ROWS:,} rows to train, and "
        f"{MOST_TEST_ROWS} to test. All features are moved by {FARTHEST:,.0f} ranges for the first "
        f"figure. Rays start at {N_RAYS} rows to test. They move all features up, all down, each "
        "feature up or down at random, or one feature. A fall is below the largest standard "
        f"deviation so far: of the mean of the {N_RAYS} rays of a kind, at {DISTANCES[0]:g} to "
        f"{DISTANCES[-1]:g} ranges, and of each ray, from {BEYOND:g} range on. Ties are among rows "
        "to test that differ.",
    )
    for name, (X, y, queries, _) in tables.items():
        forest = forests[name]
        size = X.max(axis=0) - X.min(axis=0)
        _, far = forest.predict(queries + FARTHEST * size, return_std=True)
        ratios = far / y.std()
        worst = max(ratios, key=lambda ratio: abs(ratio - 1.0))
        _, std = forest.predict(np.unique(queries, axis=0), return_std=True)
        table.add(
            name,
            f"{worst:.3f}",
            *(f"{fall:.1%}" for fall in largest_falls(forest, queries, size)),
            f"{1.0 - len(np.unique(std)) / len(std):.1%}",
        )
    return table


def largest_falls(forest, queries, size) -> tuple[float, float]:
    """Return by how much mean and single standard deviations fall along any of some rays."""
    random = np.random.default_rng(0)
    origins = queries[:N_RAYS]
    signs = random.choice((-1.0, 1.0), origins.shape)
    one = random.choice(np.flatnonzero(size > 0), len(origins))
    alone = np.zeros(origins.shape)
    alone[np.arange(len(origins)), one] = random.choice((-1.0, 1.0), len(origins))
    of_means, of_rows = [], []
    for direction in (np.ones(origins.shape), -np.ones(origins.shape), signs, alone):
        widths = np.array(
            [
                forest.predict(origins + distance * size * direction, return_std=True)[1]
                for distance in DISTANCES
            ]
        )
        of_means.append(fall(widths.mean(axis=1)))
        of_rows.append(fall(widths[DISTANCES.index(BEYOND) :]))
    return max(of_means), max(of_rows)


def fall(widths: np.ndarray) -> float:
    """Return the largest fall along the first axis, relative to the largest value so far."""
    return float(np.max(1.0 - widths / np.maximum.accumulate(widths, axis=0)))


def shifted_rows(tables, forests, quick: bool) -> Table:
    table = Table(
        "Telling shifted rows from others",
        ["score", *SHIFTS],
        note="Area under the ROC curve, mean over the tables: rows to test against the same rows, "
        "moved by so many ranges of all features, or of one feature that is chosen at random for "
        "each row; or with the values of each column permuted. Mean of the tables that come from "
        "files. The targets were set before the work began.",
    )
    found = {}
    for name, (X, y, queries, _) in tables.items():
        if name in GENERATED:
            continue
        forest = forests[name]
        paper = default(quick, **PAPER).fit(X, y)
        trees = ExtraTreesRegressor(10 if quick else 100, n_jobs=2, random_state=0).fit(X, y)
        size = X.max(axis=0) - X.min(axis=0)
        scores = {
            "default, std": lambda rows, forest=forest: forest.predict(rows, return_std=True)[1],
            "default, novelty": forest.novelty,
            "paper's model, std": lambda rows, paper=paper: paper.predict(rows, return_std=True)[1],
            "paper's model, novelty": paper.novelty,
            "ExtraTrees, std of the trees": lambda rows, trees=trees: np.std(
                [tree.predict(rows) for tree in trees.estimators_], axis=0
            ),
        }
        for score, of in scores.items():
            usual = of(queries)
            found.setdefault(score, []).append(
                [area(usual, of(moved(queries, size, *shift))) for shift in SHIFTS.values()]
            )
    for score, areas in found.items():
        table.add(score, *(f"{area:.3f}" for area in np.mean(areas, axis=0)))
        if score in TARGETS:
            table.add("target", *TARGETS[score])
    return table


def moved(rows: np.ndarray, size: np.ndarray, which: str, distance: float) -> np.ndarray:
    """Return rows that are moved by so many ranges of their features."""
    random = np.random.default_rng(0)
    if which == "permuted":
        return random.permuted(rows, axis=0)
    if which == "all":
        return rows + distance * size
    one = random.choice(np.flatnonzero(size > 0), len(rows))
    shifted = rows.copy()
    shifted[np.arange(len(rows)), one] += distance * size[one]
    return shifted


def area(usual: np.ndarray, strange: np.ndarray) -> float:
    """Return the area under the ROC curve of a score."""
    is_strange = np.repeat([False, True], [len(usual), len(strange)])
    return float(roc_auc_score(is_strange, np.concatenate((usual, strange))))


def two_modes_rows(n_rows: int, seed: int):
    """Return rows whose labels have two modes, and the two centres."""
    random = np.random.default_rng(seed)
    X = random.random((n_rows, 3))
    side = random.choice((-1.0, 1.0), n_rows)
    return X, side * (1.0 + X[:, 0]) + 0.2 * random.normal(size=n_rows)


def two_modes(quick: bool) -> Table:
    table = Table(
        "Labels with two modes",
        ["method", "NLPD", "CRPS"],
        note="y = s (1 + x1) + 0.2 noise, where s is -1 or 1 at random; 4,000 rows of 3 features. "
        "The target is an NLPD of 0.65 and a CRPS of 0.82.",
    )
    X, y = two_modes_rows(300 if quick else 4_000, 0)
    queries, labels = two_modes_rows(100 if quick else 2_000, 1)
    table.add("the true density", *truth(queries, labels))
    ours = {"default": default(quick), "paper's model": default(quick, **PAPER)}
    for name, forest in ours.items():
        found = forest.fit(X, y).predict_distribution(queries)
        table.add(name, float(-found.logpdf(labels).mean()), float(found.crps(labels).mean()))
    try:
        from quantile_forest import RandomForestQuantileRegressor
    except ModuleNotFoundError:
        return table
    peer = RandomForestQuantileRegressor(
        50, min_samples_leaf=20, max_samples_leaf=None, n_jobs=2, random_state=0
    ).fit(X, y)
    levels = (np.arange(199) + 0.5) / 199
    quantiles = peer.predict(queries, quantiles=levels.tolist())
    error = labels[:, None] - quantiles
    crps = 2.0 * np.mean(np.maximum(levels * error, (levels - 1.0) * error))
    table.add("quantile-forest, all labels of leaves of 20", "", float(crps))
    return table


def truth(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return mean NLPD and CRPS of the true densities, which are known in closed form."""
    centre = 1.0 + X[:, 0]
    density = 0.5 * (norm.pdf(y, centre, 0.2) + norm.pdf(y, -centre, 0.2))
    far = 0.5 * (mean_distance(y - centre, 0.2) + mean_distance(y + centre, 0.2))
    between = 0.25 * (mean_distance(0.0, 0.2 * 2**0.5) + mean_distance(2 * centre, 0.2 * 2**0.5))
    return float(-np.log(density).mean()), float((far - between).mean())


def mean_distance(centre, scale: float):
    """Return the mean of the absolute value of a normal number."""
    standard = centre / scale
    return 2.0 * scale * norm.pdf(standard) + centre * (2.0 * norm.cdf(standard) - 1.0)


def pure_noise(quick: bool) -> Table:
    table = Table(
        "Labels that are noise",
        ["features", "default", "one candidate cut", "RandomForest"],
        note="Labels are N(0, 1), whatever the features are; 1,000 rows. RMSE on 5,000 rows, "
        "relative to that of the mean of the labels; mean of three tables. The target is 1.005.",
    )
    for n_features in (4, 20):
        ratios = []
        for seed in range(1 if quick else 3):
            random = np.random.default_rng(seed)
            X, queries = random.random((1_000, n_features)), random.random((5_000, n_features))
            y, labels = random.normal(size=1_000), random.normal(size=5_000)
            if quick:
                X, y = X[:100], y[:100]
            constant = np.sqrt(np.mean((y.mean() - labels) ** 2))
            models = (
                default(quick, seed),
                default(quick, seed, n_candidate_splits=1),
                RandomForestRegressor(10 if quick else 100, n_jobs=2, random_state=seed),
            )
            ratios.append(
                [
                    np.sqrt(np.mean((model.fit(X, y).predict(queries) - labels) ** 2)) / constant
                    for model in models
                ]
            )
        table.add(n_features, *(f"{ratio:.4f}" for ratio in np.mean(ratios, axis=0)))
    return table
