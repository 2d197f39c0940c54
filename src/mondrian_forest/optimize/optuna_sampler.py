"""A sampler for Optuna: the same model and search, driven by Optuna's studies."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "MondrianSampler needs Optuna: pip install 'mondrian-forest[optuna]'."
    ) from None

from .optimizer import Optimizer, SpaceExhausted
from .space import Categorical, Integer, Ordinal, Parameter, Point, Real, Space


class MondrianSampler(optuna.samplers.BaseSampler):  # type: ignore[misc]
    """Suggest parameters by a Mondrian forest that learns from the trials of a study.

    Every parameter that finished trials have is searched jointly, those of other branches of a
    conditional objective too: what a trial does not ask for is ignored, and what it lacks is no
    value to the forest (see ``Optimizer``). Trials that run elsewhere are taken to have the values
    predicted for them, so parallel workers spread out. Failed trials, and values that are NaN,
    count as bad as the worst value known.

    Parameters
    ----------
    n_startup_trials : int, default=10
        Trials that are drawn at random before the forest decides.
    seed : int, default=None
    **options
        As for :class:`Optimizer`: ``acquisition``, ``kappa``, ``n_candidates``, ``forest``.

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
        Optimizer({"x": Real(0.0, 1.0)}, **options)  # says at once what makes no sense
        self._n_startup_trials = n_startup_trials
        self._options = options
        self._independent = optuna.samplers.RandomSampler(seed=seed)
        self._seed = _new_seed() if seed is None else seed
        self._lock = threading.Lock()
        # By study: the optimiser, the distributions it was made for, and the trials it has seen.
        self._known: dict[Any, tuple[Optimizer, dict[str, Any], set[int]]] = {}

    def reseed_rng(self) -> None:
        """Take other random numbers, as Optuna asks for in each of several workers."""
        self._independent.reseed_rng()
        with self._lock:
            self._seed = _new_seed()
            self._known.clear()

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Return all parameters of finished trials, as the last trial with each declared it."""
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
        """Return values for all parameters of the search space."""
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
        """Return the study's optimiser, told of all finished trials."""
        known = self._known.get(study._study_id)
        if known is None or known[1] != search_space:
            optimizer = Optimizer(
                Space({name: _parameter(search_space[name]) for name in search_space}),
                maximize=study.direction == optuna.study.StudyDirection.MAXIMIZE,
                random_state=self._seed,
                n_initial=1,
                **self._options,
            )
            known = self._known[study._study_id] = (optimizer, dict(search_space), set())
        optimizer, _, seen = known
        for trial in finished:
            if trial.number not in seen:
                point = _point(trial, search_space)
                if point:
                    optimizer.tell(point, _value(trial))
                seen.add(trial.number)  # last: what an interrupt cuts short is told again
        return optimizer

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def _new_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


def _parameter(distribution: BaseDistribution) -> Parameter:
    """Return our parameter for Optuna's; any trial may lack it."""
    parameter: Parameter
    if isinstance(distribution, CategoricalDistribution):
        parameter = Categorical(list(range(len(distribution.choices))))
    elif isinstance(distribution, IntDistribution) and distribution.step == 1:
        parameter = Integer(distribution.low, distribution.high, log=distribution.log)
    elif isinstance(distribution, IntDistribution | FloatDistribution) and distribution.step:
        n_steps = round((distribution.high - distribution.low) / distribution.step)
        # Not a list of all steps: there may be billions.
        parameter = Integer(0, n_steps) if n_steps else Ordinal([0])
    else:
        parameter = Real(distribution.low, distribution.high, log=distribution.log)
    parameter.is_optional = True
    return parameter


def _point(trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]) -> Point:
    """Return what a trial has of the search space."""
    return {
        name: _internal(distribution, trial.params[name])
        for name, distribution in search_space.items()
        if name in trial.params
        and type(trial.distributions[name]) is type(distribution)
        and distribution._contains(trial.distributions[name].to_internal_repr(trial.params[name]))
    }


def _internal(distribution: BaseDistribution, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    if distribution.step and not (
        isinstance(distribution, IntDistribution) and distribution.step == 1
    ):
        return round((value - distribution.low) / distribution.step)
    return value


def _external(distribution: BaseDistribution, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    if distribution.step and not (
        isinstance(distribution, IntDistribution) and distribution.step == 1
    ):
        return min(distribution.low + value * distribution.step, distribution.high)
    return value


def _value(trial: FrozenTrial) -> float | None:
    """Return the value of a trial, the last intermediate one if it was pruned, or None."""
    if trial.state == TrialState.COMPLETE:
        return float(trial.value)
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
        return None if math.isnan(value) else float(value)
    return None
