"""Run an objective to the end, with a bar to watch and a result to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._progress import progress_bar
from .optimizer import Optimizer, SpaceExhausted
from .space import Parameter, Point
from .trial import Trial


@dataclass
class OptimizationResult:
    """What came out of an optimisation.

    Attributes
    ----------
    best_point : dict or None
        None if every trial failed.
    best_value : float
        NaN if every trial failed.
    history : list of Trial
        All trials, with number, point and value, which is NaN for a failure.
    errors : dict
        Messages of the exceptions that failed trials raised, by number.
    maximize : bool
    """

    best_point: Point | None
    best_value: float
    history: list[Trial] = field(repr=False)
    errors: dict[int, str] = field(repr=False)
    maximize: bool

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of all trials, NaN for failures."""
        return np.array(
            [math.nan if trial.value is None else trial.value for trial in self.history]
        )

    def best_so_far(self) -> NDArray[np.float64]:
        """Return the best value after each trial, NaN before the first success."""
        best = np.fmax if self.maximize else np.fmin
        return np.asarray(best.accumulate(self.values))

    def plot(self, ax: Any = None) -> Any:
        """Draw values and the best so far over the trials; returns a ConvergenceDisplay."""
        from ..plots import ConvergenceDisplay

        return ConvergenceDisplay.from_result(self, ax=ax)


def minimize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_calls: int = 100,
    *,
    progress: bool = True,
    **options: Any,
) -> OptimizationResult:
    """Find a point at which an objective is small.

    Parameters
    ----------
    objective : callable
        Takes a point, a dict of names to values, and returns a number. An exception, NaN or
        infinity is a failed trial, from which the forest learns too.
    space : mapping of str to Real, Integer, Categorical or Ordinal
    n_calls : int, default=100
        Number of trials; fewer if a finite space has no more points. With a journal, those that it
        already holds count.
    progress : bool, default=True
        Whether to show a bar (on a terminal, with tqdm installed).
    **options
        As for :class:`Optimizer`: ``journal``, ``acquisition``, ``constraint``, ``random_state``...

    Returns
    -------
    OptimizationResult

    Examples
    --------
    >>> from mondrian_forest.optimize import Integer, Real, minimize
    >>> space = {"x": Real(-5.0, 5.0), "k": Integer(1, 8)}
    >>> result = minimize(lambda p: (p["x"] - 1) ** 2 + p["k"], space, 60, random_state=0)
    >>> result.best_point["k"]
    1
    """
    return _optimize(objective, space, n_calls, False, progress, options)


def maximize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_calls: int = 100,
    *,
    progress: bool = True,
    **options: Any,
) -> OptimizationResult:
    """Find a point at which an objective is large; as :func:`minimize` in all else."""
    return _optimize(objective, space, n_calls, True, progress, options)


def _optimize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_calls: int,
    is_maximized: bool,
    progress: bool,
    options: dict[str, Any],
) -> OptimizationResult:
    if not callable(objective):
        raise ValueError(f"objective must be a function of a point, got {objective!r}.")
    if not isinstance(n_calls, int) or isinstance(n_calls, bool) or n_calls < 1:
        raise ValueError(f"n_calls must be a positive integer, got {n_calls!r}.")
    errors: dict[int, str] = {}
    with Optimizer(space, maximize=is_maximized, **options) as optimizer:
        bar = progress_bar(n_calls, progress, "trial")
        n_done = sum(not trial.is_pending for trial in optimizer.trials)
        bar.update(n_done)
        for _ in range(n_done, n_calls):
            try:
                trial = optimizer.ask_trial()
            except SpaceExhausted:
                break
            try:
                value = objective(dict(trial.point))
            except Exception as error:
                errors[trial.number] = f"{type(error).__name__}: {error}"
                value = math.nan
            optimizer.tell(trial.point, value)
            bar.update(1)
            bar.set_postfix_str(f"best {optimizer.best_value:.6g}", refresh=False)
        bar.close()
    return OptimizationResult(
        optimizer.best_point, optimizer.best_value, optimizer.trials, errors, is_maximized
    )
