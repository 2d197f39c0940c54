"""Cost of one step of Bayesian optimisation: ask for a point, tell its value."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mondrian_forest.optimize import Optimizer

from .problems import hartmann6
from .table import Table

N_CANDIDATES = 2_000


def run(quick: bool, _data: Path | None) -> Iterator[Table]:
    sizes, n_peers, n_steps = (
        ([50, 100], 50, 3) if quick else ([100, 1_000, 2_000, 5_000, 10_000], 2_000, 50)
    )
    points = np.random.default_rng(0).random((max(sizes), 6))
    values = hartmann6.function(points)
    growth = Table(
        "Ask and tell, by the number of values known",
        ["values known", "ask, ms", "tell, ms"],
        note="The optimiser's default forest, 10 trees. Hartmann's function of six variables, "
        f"{N_CANDIDATES:,} candidates. Medians of {n_steps} steps.",
    )
    ours = {}
    for size in sizes:
        ask, tell = time_ours(points[:size], values[:size], n_steps)
        ours[size] = ask + tell
        growth.add(f"{size:,}", f"{1e3 * ask:.2f}", f"{1e3 * tell:.3f}")
    yield growth

    table = Table(
        f"One step after {n_peers:,} values",
        ["method", "seconds", "times ours"],
        note="Six variables. The time for one suggestion includes what the method does after a new "
        "value. Optuna's sampler needs PyTorch.",
    )
    table.add("mondrian-forest", f"{ours[n_peers]:.4f}", "1")
    for name, measure in PEERS.items():
        seconds = measure(points[:n_peers], values[:n_peers])
        if seconds is None:
            table.add(name, "not installed", "")
        else:
            table.add(name, f"{seconds:.3f}", f"{seconds / ours[n_peers]:,.1f}")
    yield table


def time_ours(points: np.ndarray, values: np.ndarray, n_steps: int) -> tuple[float, float]:
    optimizer = Optimizer(hartmann6.space, maximize=True, n_candidates=N_CANDIDATES, random_state=0)
    for row, value in zip(points, values, strict=True):
        optimizer.tell(dict(zip(hartmann6.space, row.tolist(), strict=True)), value)
    point = optimizer.ask()  # compiles
    optimizer.tell(point, hartmann6(point))
    asks, tells = [], []
    for _ in range(n_steps):
        start = time.perf_counter()
        point = optimizer.ask()
        asked = time.perf_counter()
        optimizer.tell(point, hartmann6(point))
        tells.append(time.perf_counter() - asked)
        asks.append(asked - start)
    return float(np.median(asks)), float(np.median(tells))


def time_scikit_learn(points: np.ndarray, values: np.ndarray) -> float:
    candidates = np.random.default_rng(1).random((N_CANDIDATES, 6))
    kernel = ConstantKernel() * RBF(np.full(6, 0.5)) + WhiteKernel(1e-3)
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hyperparameters at a bound
        process.fit(points, values)
    process.predict(candidates, return_std=True)
    return time.perf_counter() - start


def time_optuna(points: np.ndarray, values: np.ndarray) -> float | None:
    if find_spec("optuna") is None or find_spec("torch") is None:
        return None
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sampler is experimental
        sampler = optuna.samplers.GPSampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {name: optuna.distributions.FloatDistribution(0, 1) for name in hartmann6.space}
    study.add_trials(
        [
            optuna.create_trial(
                params=dict(zip(distributions, row.tolist(), strict=True)),
                distributions=distributions,
                value=value,
            )
            for row, value in zip(points, values, strict=True)
        ]
    )
    start = time.perf_counter()
    study.ask(distributions)
    return time.perf_counter() - start


def time_smac(points: np.ndarray, values: np.ndarray) -> float | None:
    if find_spec("smac") is None:
        return None
    import logging
    import tempfile

    from ConfigSpace import Configuration, ConfigurationSpace
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory import TrialInfo, TrialValue

    def unused(configuration: Any, seed: int = 0) -> float:
        raise NotImplementedError

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigurationSpace(dict.fromkeys(hartmann6.space, (0.0, 1.0)), seed=0)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space, n_trials=10**6, deterministic=True, output_directory=Path(folder)
        )
        facade: Any = HyperparameterOptimizationFacade(scenario, unused, overwrite=True)
        first = facade.ask()  # its trials have a seed of their own
        for row, value in zip(points, values, strict=True):
            values_by_name = dict(zip(hartmann6.space, row.tolist(), strict=True))
            info = TrialInfo(Configuration(space, values=values_by_name), seed=first.seed)
            facade.tell(info, TrialValue(cost=-float(value)), save=False)
        times = []
        for _ in range(10):  # some of its points are drawn at random, and cost nothing
            start = time.perf_counter()
            asked = facade.ask()
            facade.tell(asked, TrialValue(cost=-hartmann6(dict(asked.config))), save=False)
            times.append(time.perf_counter() - start)
        return float(np.mean(times))


PEERS = {
    "scikit-learn's GaussianProcessRegressor, fitted again": time_scikit_learn,
    "Optuna's GPSampler": time_optuna,
    "SMAC3": time_smac,
}
