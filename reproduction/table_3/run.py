"""Optimise the four problems with every method, and draw how the best value grows."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestRegressor

from benchmarks.problems import branin, hartmann6
from benchmarks.table import Table
from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest.optimize import Optimizer, Real
from reproduction.methods import N_THREADS
from reproduction.report import Report, progress

CONFIGURATION = tomllib.loads((Path(__file__).parent / "configuration.toml").read_text())
LOOPS = ["MF", "MF, hierarchical", "RF", "random"]
N_INITIAL = 2

# Columns of the published grids, and whether their scale is logarithmic.
GRIDS = {
    "SVM grid": ("svm_grid.csv", {"C": True, "alpha": False, "epsilon": True}),
    "LDA grid": ("lda_grid.csv", {"kappa": False, "tau": True, "S": True}),
}


@dataclass
class Problem:
    """A table of points with their values, to be maximised."""

    name: str
    space: dict[str, Real]
    points: dict[str, np.ndarray]
    values: np.ndarray
    function: Any = None
    """Of a point, where the problem is not a table by nature."""

    @property
    def unit_points(self) -> np.ndarray:
        columns = [self.space[name].to_units(self.points[name]) for name in self.space]
        return np.column_stack(columns)

    def by_point(self) -> dict[tuple[float, ...], float]:
        rows = zip(*(self.points[name].tolist() for name in self.space), strict=True)
        return dict(zip(rows, self.values.tolist(), strict=True))


def problems(setting: dict[str, Any], data: Path | str | None) -> Iterator[list[Problem]]:
    """Yield the instances of each problem; the grids of numbers need a folder of data."""
    for function in (branin, hartmann6):
        instances = []
        for grid in range(setting["grids"]):
            unit = np.random.default_rng(grid).random((setting["grid_points"], len(function.space)))
            points = {
                name: parameter.low + unit[:, k] * (parameter.high - parameter.low)
                for k, (name, parameter) in enumerate(function.space.items())
            }
            if function.name in setting["with_optimum"]:
                for column, best in zip(points.values(), function.optimizers.T, strict=True):
                    column[: len(best)] = best
            values = function.function(np.column_stack(list(points.values())))
            instances.append(Problem(function.name, function.space, points, values, function))
        yield instances
    for name, (file, columns) in GRIDS.items():
        if data is None or not (Path(data) / file).exists():
            print(f"{name} is left out: {file} is not at hand (--data).")
            continue
        table = np.genfromtxt(Path(data) / file, delimiter=",", names=True)
        points = {column: table[column] for column in columns}
        space = {
            column: Real(points[column].min(), points[column].max(), log=log)
            for column, log in columns.items()
        }
        yield [Problem(name, space, points, table["objective_max"])]


def run(quick: bool, data: Path | str | None = None) -> Report:
    """Return the report; ``data`` is the folder of the grids."""
    setting = CONFIGURATION | (CONFIGURATION["quick"] if quick else {})
    data = data or os.environ.get("MONDRIAN_DATA")
    curves: dict[str, dict[str, list[list[float]]]] = {}
    oracles: dict[str, float] = {}
    for instances in problems(setting, data):
        name = instances[0].name
        n_evaluations = setting["evaluations"][name]
        oracles[name] = float(np.mean([problem.values.max() for problem in instances]))
        curves[name] = {}
        for method in methods():
            curves[name][method] = runs(method, instances, n_evaluations, setting["runs"])
    return build(curves, oracles, quick)


def runs(
    method: str, instances: list[Problem], n_evaluations: int, n_runs: int
) -> list[list[float]]:
    """Return the best value after each evaluation, of several runs at once."""
    return Parallel(N_THREADS)(
        delayed(best_values)(method, instances[seed % len(instances)], n_evaluations, seed)
        for seed in progress(n_runs, f"{instances[0].name}: {method}")
    )


def methods() -> list[str]:
    """Return the methods that can run here."""
    if find_spec("smac") is None:
        print("SMAC3 is left out: pip install smac.")
        return LOOPS
    return [*LOOPS, "SMAC3"]


def best_values(method: str, problem: Problem, n_evaluations: int, seed: int) -> list[float]:
    """Return the best value after each evaluation."""
    match method:
        case "MF" | "MF, hierarchical":
            found = mondrian(problem, n_evaluations, seed, is_exact=method != "MF")
        case "SMAC3":
            found = smac(problem, n_evaluations, seed)
        case _:
            found = table_search(problem, n_evaluations, seed, uses_forest=method == "RF")
    return np.maximum.accumulate(found).tolist()


def mondrian(problem: Problem, n_evaluations: int, seed: int, is_exact: bool) -> list[float]:
    settings = {
        "min_samples_split": 2,
        "posterior": "hierarchical" if is_exact else "empirical",
    }
    forest = MondrianForestRegressor(CONFIGURATION["trees"], **PAPER | settings)
    optimizer = Optimizer(
        problem.space,
        candidates=problem.points,
        maximize=True,
        n_initial=N_INITIAL,
        forest=forest,
        random_state=seed,
    )
    values = problem.by_point()
    for _ in range(n_evaluations):
        point = optimizer.ask()
        optimizer.tell(point, values[tuple(point.values())])
    return [float(trial.value) for trial in optimizer.trials if trial.value is not None]


def table_search(problem: Problem, n_evaluations: int, seed: int, uses_forest: bool) -> list[float]:
    """Try points of the table at random, or by a random forest's mean plus deviation."""
    generator = np.random.default_rng(seed)
    rows = problem.unit_points.astype(np.float32)
    is_left = np.ones(len(rows), dtype=bool)
    tried: list[int] = []
    for step in range(n_evaluations):
        left = np.flatnonzero(is_left)
        choice = generator.choice(left)
        if uses_forest and step >= N_INITIAL:
            forest = RandomForestRegressor(CONFIGURATION["trees"], random_state=seed)
            forest.fit(rows[tried], problem.values[tried])
            trees = np.stack([tree.predict(rows[left]) for tree in forest.estimators_])
            bound = trees.mean(axis=0) + trees.std(axis=0)
            choice = left[generator.choice(np.flatnonzero(bound == bound.max()))]
        is_left[choice] = False
        tried.append(int(choice))
    return problem.values[tried].tolist()


def smac(problem: Problem, n_evaluations: int, seed: int) -> list[float]:
    """Run SMAC3 on the function, or on the factors of the table."""
    import logging

    from ConfigSpace import ConfigurationSpace, Float, OrdinalHyperparameter
    from smac import HyperparameterOptimizationFacade, Scenario

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigurationSpace(seed=seed)
    table = {}
    if problem.function is None:
        for name in problem.space:
            space.add(OrdinalHyperparameter(name, sorted(set(problem.points[name].tolist()))))
        table = problem.by_point()
    else:
        for name, parameter in problem.space.items():
            space.add(Float(name, (parameter.low, parameter.high)))
    values: list[float] = []

    def loss(configuration: Any, seed: int = 0) -> float:  # noqa: ARG001
        point = {name: float(configuration[name]) for name in problem.space}
        value = problem.function(point) if not table else table[tuple(point.values())]
        values.append(float(value))
        return -float(value)

    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space, n_trials=n_evaluations, deterministic=True, seed=seed, output_directory=folder
        )
        HyperparameterOptimizationFacade(scenario, loss, overwrite=True).optimize()
    # Where it stops early, the best that it found stays what it is.
    return values + [min(values)] * (n_evaluations - len(values))


def build(
    curves: dict[str, dict[str, list[list[float]]]], oracles: dict[str, float], quick: bool
) -> Report:
    """Return the report of what was found."""
    names = sorted({method for by_method in curves.values() for method in by_method}, key=_rank)
    result = Table(
        "Largest value found, mean ± standard deviation over runs",
        ["problem", "evaluations", "largest there is", *names, "MF, paper", "SMAC, paper"],
    )
    report = Report(
        "Table 3: Bayesian optimisation",
        CONFIGURATION["about"],
        tables=[result],
        notes=CONFIGURATION["differences"],
        data={"curves": curves, "oracles": oracles},
        figure=draw(curves, oracles),
    )
    ahead = []
    for name, by_method in curves.items():
        last = {
            method: np.array([curve[-1] for curve in found]) for method, found in by_method.items()
        }
        quoted = CONFIGURATION["paper"][name]
        result.add(
            name,
            str(len(by_method["MF"][0])),
            f"{oracles[name]:.3f}",
            *(f"{last[method].mean():.3f} ± {last[method].std():.3f}" for method in names),
            quoted["MF"],
            quoted["SMAC"],
        )
        if not quick:
            target = CONFIGURATION["targets"][name]
            mean = last["MF"].mean()
            report.check(f"{name}: MF reaches {target:g} on average", mean >= target, f"{mean:.3f}")
        report.check(
            f"{name}: MF is ahead of points drawn at random",
            last["MF"].mean() > last["random"].mean(),
            f"{last['MF'].mean():.3f} against {last['random'].mean():.3f}",
        )
        if "SMAC3" in last:
            ahead.append(last["MF"].mean() > last["SMAC3"].mean())
    if ahead and not quick:
        report.check(
            "MF is ahead of SMAC3 on three of the four problems at least",
            sum(ahead) >= 3,
            f"{sum(ahead)} of {len(ahead)}",
        )
    report.summary = result
    return report


def _rank(method: str) -> int:
    return [*LOOPS, "SMAC3"].index(method)


def draw(curves: dict[str, dict[str, list[list[float]]]], oracles: dict[str, float]) -> Figure:
    """Draw the regret, the largest value less the best so far, of each method."""
    figure = Figure(figsize=(13, 3.4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(curves)))
    for ax, (name, by_method) in zip(axes, curves.items(), strict=True):
        for method, found in by_method.items():
            regret = oracles[name] - np.mean(found, axis=0)
            ax.plot(np.arange(1, len(regret) + 1), np.maximum(regret, 1e-4), label=method)
        ax.set(title=name, xlabel="evaluations", yscale="log")
    axes[0].set_ylabel("mean regret")
    axes[0].legend(fontsize="small")
    return figure
