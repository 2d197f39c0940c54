"""A sampler for Optuna: the same model and search, for Optuna's studies."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        IntDistribution,
    )
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "MondrianSampler needs Optuna: pip install 'mondrian-forest[optuna]'."
    ) from None

from .candidates import SpaceExhausted
from .optimizer import Optimizer
from .parameters import Categorical, Integer, Ordinal, Parameter, Real
from .space import Point, Space


class MondrianSampler(optuna.samplers.BaseSampler):  # type: ignore[misc]
    """Suggest parameters with a Mondrian forest that learns from the trials of a study.

    All parameters of finished trials are searched jointly, including those of other branches of a
    conditional objective. Values that a trial does not ask for are ignored, and a parameter that a
    trial lacks is inactive (see ``Space``). Trials that run elsewhere are assumed to have the
    predicted values, so that parallel workers try different points. Failed trials and NaN values
    count as the worst value so far.

    Parameters
    ----------
    n_startup_trials : int, default=10
        Number of random trials before the forest decides.
    seed : int, default=None
    **options
        Parameters of :class:`Optimizer`: ``acquisition``, ``kappa``, ``n_candidates``, ``forest``.

    Examples
    --------
    >>> import optuna
    >>> from mondrian_forest.optimize.optuna_sampler import MondrianSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=MondrianSampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 2) ** 2, n_trials=40)
    >>> abs(study.best_params["x"] - 2) < 0.2
    True
    """

    def __init__(
        self, *, n_startup_trials: int = 10, seed: int | None = None, **options: Any
    ) -> None:
        if "journal" in options:
            raise ValueError("a sampler has no journal: the storage of the study keeps its trials.")
        Optimizer({"x": Real(0.0, 1.0)}, **options)  # raises an error for invalid options
        self._n_startup_trials = n_startup_trials
        self._options = options
        self._independent = optuna.samplers.RandomSampler(seed=seed)
        self._seed = _new_seed() if seed is None else seed
        self._lock = threading.Lock()
        self._known: dict[str, _Study] = {}

    def reseed_rng(self) -> None:
        """Use other random numbers. Optuna calls this in each of several workers."""
        self._independent.reseed_rng()
        with self._lock:
            self._seed = _new_seed()
            self._known.clear()

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Return all parameters of finished trials, each as in the last trial that has it."""
        found: dict[str, BaseDistribution] = {}
        for finished in study.get_trials(deepcopy=False, states=_FINISHED):
            found |= finished.distributions
        return {name: found[name] for name in sorted(found) if not found[name].single()}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return a value for each parameter of the search space."""
        self._raise_error_if_multi_objective(study)
        finished = study.get_trials(deepcopy=False, states=_FINISHED)
        if not search_space or len(finished) < self._n_startup_trials:
            return {}
        with self._lock:
            optimizer = self._informed_optimizer(study, search_space, finished)
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        pending = [_point(other, search_space) for other in running if other.number != trial.number]
        try:
            point = optimizer.suggest(trial.number, [point for point in pending if point])
        except SpaceExhausted:
            return {}
        return {name: _external(search_space[name], point[name]) for name in search_space}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value for a parameter that no finished trial has."""
        self._raise_error_if_multi_objective(study)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _informed_optimizer(
        self,
        study: optuna.Study,
        search_space: dict[str, BaseDistribution],
        finished: list[FrozenTrial],
    ) -> Optimizer:
        """Return the optimiser of a study, after it was told all finished trials."""
        known = self._known.get(study.study_name)
        if known is None or known.search_space != search_space:
            optimizer = Optimizer(
                Space({name: _parameter(search_space[name]) for name in search_space}),
                maximize=study.direction == optuna.study.StudyDirection.MAXIMIZE,
                random_state=self._seed,
                n_initial=1,
                **self._options,
            )
            known = self._known[study.study_name] = _Study(optimizer, dict(search_space), set())
        for trial in finished:
            if trial.number not in known.told:
                point = _point(trial, search_space)
                if point:
                    known.optimizer.tell(point, _value(trial))
                known.told.add(trial.number)  # last, so that an interrupted trial is told again
        return known.optimizer

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


class _Study(NamedTuple):
    """What the sampler keeps for a study."""

    optimizer: Optimizer
    search_space: dict[str, BaseDistribution]
    told: set[int]
    """The numbers of the trials that the optimiser knows."""


_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def _new_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


def _parameter(distribution: BaseDistribution) -> Parameter:
    """Return our parameter for one of Optuna's. Any trial may lack it."""
    parameter: Parameter
    if isinstance(distribution, CategoricalDistribution):
        parameter = Categorical(list(range(len(distribution.choices))))
    elif _has_steps(distribution):
        # Not an Ordinal with a list of all steps, because there may be billions.
        n_steps = round((distribution.high - distribution.low) / distribution.step)
        parameter = Integer(0, n_steps) if n_steps else Ordinal([0])
    elif isinstance(distribution, IntDistribution):
        parameter = Integer(distribution.low, distribution.high, log=distribution.log)
    else:
        parameter = Real(distribution.low, distribution.high, log=distribution.log)
    parameter.is_optional = True
    return parameter


def _has_steps(distribution: BaseDistribution) -> bool:
    """Return whether a number has steps other than those of all integers."""
    is_every_integer = isinstance(distribution, IntDistribution) and distribution.step == 1
    return bool(distribution.step) and not is_every_integer


def _point(trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]) -> Point:
    """Return the values of a trial that are in the search space."""
    point = {}
    for name, distribution in search_space.items():
        if name in trial.params and type(trial.distributions[name]) is type(distribution):
            value = _internal(distribution, trial.params[name])
            if value is not None:
                point[name] = value
    return point


def _internal(distribution: BaseDistribution, value: Any) -> Any:
    """Return our value for one of Optuna's; None if the distribution does not contain it."""
    if isinstance(distribution, CategoricalDistribution):
        try:
            return int(distribution.to_internal_repr(value))
        except ValueError:
            return None
    if not distribution.low <= value <= distribution.high:
        return None
    if not _has_steps(distribution):
        return value
    steps = (value - distribution.low) / distribution.step
    return round(steps) if abs(steps - round(steps)) < 1e-8 else None


def _external(distribution: BaseDistribution, value: Any) -> Any:
    """Return Optuna's value for one of ours; undoes ``_internal``."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    if _has_steps(distribution):
        return min(distribution.low + value * distribution.step, distribution.high)
    return value


def _value(trial: FrozenTrial) -> float | None:
    """Return the value of a trial, its last intermediate value if it was pruned, or None."""
    if trial.state == TrialState.COMPLETE:
        return float(trial.value)
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
        return None if math.isnan(value) else float(value)
    return None
