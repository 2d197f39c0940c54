"""Minimise or maximise a function in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._forest.validation import check_integer
from .._progress import progress_bar
from .candidates import SpaceExhausted
from .optimizer import Optimizer
from .parameters import Parameter
from .space import Point
from .trial import Trial


@dataclass
class OptimizationResult:
    """The result of an optimisation.

    Attributes
    ----------
    best_point : dict or None
        None if every trial failed.
    best_value : float
        NaN if every trial failed.
    trials : list of Trial
        All trials, with number, point and value. The value is NaN for a failure.
    errors : dict
        The messages of failed trials, by their number.
    maximize : bool
    """

    best_point: Point | None
    best_value: float
    trials: list[Trial] = field(repr=False)
    errors: dict[int, str] = field(repr=False)
    maximize: bool

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of all trials; NaN for failures."""
        return np.array([math.nan if trial.value is None else trial.value for trial in self.trials])

    def best_so_far(self) -> NDArray[np.float64]:
        """Return the best value after each trial; NaN before the first success."""
        best = np.fmax if self.maximize else np.fmin
        return np.asarray(best.accumulate(self.values))

    def plot(self, ax: Any = None) -> Any:
        """Plot all values and the best value so far. Returns a ConvergenceDisplay."""
        from ..plots import ConvergenceDisplay

        return ConvergenceDisplay.from_result(self, ax=ax)


def minimize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_trials: int = 100,
    *,
    progress: bool = True,
    **options: Any,
) -> OptimizationResult:
    """Find a point at which an objective is small.

    Parameters
    ----------
    objective : callable
        Takes a point, a dict of names to values, and returns a number. If it raises an exception,
        or returns NaN or infinity, the trial has failed. The forest learns from failures, too.
    space : mapping of str to Real, Integer, Categorical or Ordinal
    n_trials : int, default=100
        Number of trials, including those in the journal. There are fewer if a finite space has no
        more points.
    progress : bool, default=True
        Whether to show a progress bar (on a terminal, if tqdm is installed).
    **options
        Parameters of :class:`Optimizer`: ``journal``, ``acquisition``, ``constraint``,
        ``random_state`` and others.

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
    return _optimize(objective, space, n_trials, False, progress, options)


def maximize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_trials: int = 100,
    *,
    progress: bool = True,
    **options: Any,
) -> OptimizationResult:
    """Find a point at which an objective is large. All else is as for :func:`minimize`."""
    return _optimize(objective, space, n_trials, True, progress, options)


def _optimize(
    objective: Callable[[Point], float],
    space: Mapping[str, Parameter],
    n_trials: int,
    is_maximized: bool,
    progress: bool,
    options: dict[str, Any],
) -> OptimizationResult:
    if not callable(objective):
        raise ValueError(f"objective must be a function of a point, got {objective!r}.")
    n_trials = check_integer("n_trials", n_trials, 1)
    errors: dict[int, str] = {}
    with Optimizer(space, maximize=is_maximized, **options) as optimizer:
        bar = progress_bar(n_trials, progress, "trial")
        n_done = sum(not trial.is_pending for trial in optimizer.trials)
        bar.update(n_done)
        for _ in range(n_done, n_trials):
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
