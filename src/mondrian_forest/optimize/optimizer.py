"""Bayesian optimisation by ask and tell, with a forest that learns each value as it comes.

A call of ``ask`` or ``tell`` changes three things: the journal, the forest and the list of trials.
The journal has the last word. If an error or an interrupt stops a call halfway, the next call first
replays the journal, and everything agrees again.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._forest.validation import check_flag, check_integer, check_number
from ..distribution import PredictiveDistribution
from ..forest import PAPER, MondrianForestRegressor
from .acquisition import (
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
)
from .candidates import (
    MOST_LISTED,
    N_LOCAL,
    Constraint,
    ListedPoints,
    SampledPoints,
    SpaceExhausted,
    checked_candidates,
    is_allowed,
    sobol_design,
)
from .journal import Journal, JournalError
from .parameters import Parameter
from .space import Point, Space
from .trial import Trial, checked_value

Acquisition = Callable[[PredictiveDistribution, float], NDArray[np.float64]]

_RESOLUTION = 2.0**-400
_FINE = 2.0**-347
"""The forest sees values rounded to multiples of the resolution, 4e-121, because the squares of
smaller differences underflow. From 3e-105 on every float64 number is such a multiple."""

_JOURNAL_FIELDS = ({"ask", "point"}, {"tell", "point", "value"})
"""The fields of the two kinds of entries in a journal."""


class Optimizer:
    """Bayesian optimisation with a Mondrian forest as its model.

    ``ask`` for a point, evaluate the objective there, and ``tell`` its value. The evaluation may
    run anywhere, and take any time. The forest learns each value in time that grows with the
    logarithm of the number of values. A point is pending while it has been asked for and has no
    value yet. The forest assumes that pending points have the values that it predicts for them.

    Parameters
    ----------
    space : mapping of str to Real, Integer, Categorical or Ordinal
    candidates : mapping of str to list of values, default=None
        Restricts the search to these points. Point i has the i-th value of each list.
    maximize : bool, default=False
        Whether large values are good.
    acquisition : {"ucb", "ei", "pi", "thompson"} or callable, default="ucb"
        The function that the next point maximises: the upper confidence bound, the expected
        improvement, the probability of improvement, or a function drawn from the posterior. A
        callable ``f(distribution, best)`` gets the predictive distributions of the candidates and
        the best value, with the sign of the values changed if they are minimised.
    kappa : float, default=1.0
        Number of standard deviations in the upper confidence bound.
    n_initial : int, default=None
        Number of points that are asked for before the forest decides. They are a scrambled Sobol
        sequence; in a finite space and with ``candidates`` they are random. None: two with
        ``candidates``, otherwise twice the number of parameters.
    n_candidates : int, default=2000
        Number of points at which the acquisition is evaluated, if the space has more points.
    constraint : callable, default=None
        Takes a point. Returns whether the point is allowed, or numbers of which none may be
        negative.
    forest : MondrianForestRegressor, default=None
        The model, unfitted. None: 10 trees with ``min_samples_split=2`` and the empirical
        posterior, as in the paper. This posterior is certain near the points that it knows, so
        that it would see no improvement there. For ``"ei"`` and ``"pi"`` the default is therefore
        the hierarchical posterior with ``min_samples_split=5``.
    journal : path, default=None
        A file that records every ask and tell. If it exists, its run continues exactly as if it had
        never stopped, and pending points are asked for again. No other process can use the file
        until ``close``, the end of a ``with`` block, or the end of this process.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    trials : list of Trial
        All trials, in the order in which they were asked for.

    Examples
    --------
    >>> from mondrian_forest.optimize import Optimizer, Real
    >>> optimizer = Optimizer({"x": Real(-5.0, 5.0)}, random_state=0)
    >>> for _ in range(40):
    ...     point = optimizer.ask()
    ...     optimizer.tell(point, (point["x"] - 2.0) ** 2)
    >>> abs(optimizer.best_point["x"] - 2.0) < 0.1
    True
    """

    # The journal determines all of these. _replay sets them.
    trials: list[Trial]
    _pending: dict[bytes, Trial]
    _failures: list[Trial]
    """Failed trials that the forest has not learned, because no value was known yet."""
    _best: list[Trial]
    """The best trials, best first."""
    _worst: float
    """The worst value, with the sign of ``_signed``."""
    _forest: MondrianForestRegressor
    _forest_and_pending: tuple[MondrianForestRegressor, int] | None
    """A copy of the forest that has learned predicted values of the first pending trials, and the
    number of these trials."""
    _is_whole: bool
    """False while a call changes the state, and after an error or an interrupt has stopped it."""

    def __init__(
        self,
        space: Mapping[str, Parameter] | Space,
        *,
        candidates: Mapping[str, Iterable[Any]] | None = None,
        maximize: bool = False,
        acquisition: Literal["ucb", "ei", "pi", "thompson"] | Acquisition = "ucb",
        kappa: float = 1.0,
        n_initial: int | None = None,
        n_candidates: int = 2000,
        constraint: Constraint | None = None,
        forest: MondrianForestRegressor | None = None,
        journal: str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        self.maximize = check_flag("maximize", maximize)
        self.acquisition = _checked_acquisition(acquisition)
        self.kappa = check_number("kappa", kappa, 0.0)
        if n_initial is None:
            n_initial = 2 if candidates is not None else 2 * len(self.space)
        self.n_initial = check_integer("n_initial", n_initial, 1)
        self.n_candidates = check_integer("n_candidates", n_candidates, 1)
        if constraint is not None and not callable(constraint):
            raise ValueError(f"constraint must be a function of a point, got {constraint!r}.")
        self.constraint = constraint
        self._lock = threading.RLock()  # several threads may ask and tell
        listed = self._list_points(candidates)
        header: dict[str, Any] = {
            "seed": _seed(random_state),
            "maximize": self.maximize,
            "space": self.space.describe(),
        }
        self._journal = Journal(journal, header)
        try:
            seed = self._journal.header["seed"]
            self.seed = int(np.random.SeedSequence().generate_state(1)[0] if seed is None else seed)
            self._journal.header["seed"] = self.seed
            design = sobol_design(self.space, self.n_initial, self.seed)
            self._points = (
                SampledPoints(self.space, constraint, self.n_candidates, design)
                if listed is None
                else listed
            )
            self._unfitted = self._make_forest(forest)
            self._given: set[int] = set()  # numbers of the pending trials that ask has returned
            self._replay()
        except BaseException:
            self.close()  # a traceback that refers to the journal would keep it locked
            raise

    def _list_points(self, candidates: Mapping[str, Iterable[Any]] | None) -> ListedPoints | None:
        """Return all points, if they are given or few."""
        points: list[Point]
        if candidates is not None:
            points = checked_candidates(self.space, candidates)
        elif self.space.n_points is not None and self.space.n_points <= MOST_LISTED:
            points = [self.space.from_unit(unit) for unit in self.space.all_units()]
        else:
            return None
        points = [point for point in points if is_allowed(self.constraint, point)]
        if not points:
            raise ValueError("the constraint allows no point at all.")
        return ListedPoints(self.space, points)

    def _make_forest(self, forest: MondrianForestRegressor | None) -> MondrianForestRegressor:
        if forest is None:
            is_improvement = self.acquisition in ("ei", "pi")
            settings = {
                "min_samples_split": 5 if is_improvement else 2,
                "posterior": "hierarchical" if is_improvement else "empirical",
            }
            forest = MondrianForestRegressor(10, **PAPER | settings)
        model: MondrianForestRegressor = clone(forest)
        model.set_params(feature_range=self.space.feature_range(), random_state=self.seed % 2**32)
        return model

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes use the journal. The next ask or tell locks it again."""
        self._journal.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def best_point(self) -> Point | None:
        """The point with the best value; None before the first value."""
        return dict(self._best[0].point) if self._best else None

    @property
    def best_value(self) -> float:
        """The best value; NaN before the first value."""
        return _value_of(self._best[0]) if self._best else math.nan

    @overload
    def ask(self, n: None = None) -> Point: ...
    @overload
    def ask(self, n: int) -> list[Point]: ...

    def ask(self, n: int | None = None) -> Point | list[Point]:
        """Return a point to evaluate, or a list of ``n`` points to evaluate at the same time.

        Parameters
        ----------
        n : int, default=None

        Returns
        -------
        dict, or list of dicts if n is given
            The list is shorter than n if a finite space has fewer points left.

        Raises
        ------
        SpaceExhausted
            If there is no point left to ask for.
        """
        if n is None:
            return dict(self.ask_trial().point)
        points: list[Point] = []
        for _ in range(check_integer("n", n, 1)):
            try:
                points.append(dict(self.ask_trial().point))
            except SpaceExhausted:
                if not points:
                    raise
                break
        return points

    def ask_trial(self) -> Trial:
        """Return a new trial. Its point is that of :meth:`ask`."""
        with self._lock:
            self._repair()
            trial = next((t for t in self._pending.values() if t.number not in self._given), None)
            if trial is None:
                number = len(self.trials)
                point = self._propose(number, self._points, self._forest_for_ask)
                trial = self._new_trial(point)
                self._is_whole = False
                self._journal.append({"ask": trial.number, "point": trial.point})
                self._add(trial)
                self._is_whole = True
            self._given.add(trial.number)
            return trial

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Report the value of a point. The point need not have been asked for.

        Parameters
        ----------
        point : dict
        value : float or None
            NaN, None or a number above 1e100 in size if the evaluation failed. The forest learns
            that the point is as bad as the worst value so far, and the point is not asked for
            again. To the forest, two values are equal if they differ by less than 4e-121.

        Raises
        ------
        OSError, JournalError
            If the journal cannot be written. Then the optimiser does not know the value either.
        """
        unit = self.space.to_unit(point)
        value = checked_value(value)
        with self._lock:
            self._repair()
            trial = self._pending.get(self._key(unit)) or self._new_trial(point)
            written = None if math.isnan(value) else value
            self._is_whole = False
            self._learn(trial, value)  # first, because the forest may refuse the value
            self._journal.append({"tell": trial.number, "point": trial.point, "value": written})
            self._add(trial)
            self._set_value(trial, value)
            self._is_whole = True

    def suggest(self, number: int, pending: list[Point]) -> Point:
        """Return a point without a trial, for frameworks that have trials of their own.

        Parameters
        ----------
        number : int
            The number of the trial. The same number after the same values gives the same point.
        pending : list of dicts
            Points that are evaluated elsewhere.
        """
        units = [self.space.to_unit(point) for point in pending]
        units = list({self._key(unit): unit for unit in units}.values())
        with self._lock:
            self._repair()
            points = self._points.without(units)
            return self._propose(number, points, lambda: self._forest_for_suggest(units))

    # How the next point is found.

    def _propose(
        self,
        number: int,
        points: ListedPoints | SampledPoints,
        make_forest: Callable[[], MondrianForestRegressor],
    ) -> Point:
        """Return the point of a trial. The forest is made only if it is needed."""
        # Each trial has its own stream of random numbers. So the point depends on the values told
        # before, but not on earlier draws, and an interrupted run can continue as if it had not
        # been interrupted.
        random = np.random.default_rng([self.seed, number])
        knows_a_value = hasattr(self._forest, "n_features_in_")
        if number < self.n_initial or not knows_a_value:
            return points.first(number, random)
        forest = make_forest()
        best = [trial.unit for trial in self._best]
        return points.best(lambda features: self._evaluate(forest, features), best, random)

    def _evaluate(
        self, forest: MondrianForestRegressor, features: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the acquisition at some rows."""
        if self.acquisition == "thompson":
            # The same function for all rows that are evaluated for one proposal.
            seed = int(np.random.default_rng([self.seed, len(self.trials), 1]).integers(2**31))
            return thompson_sample(forest, features, seed)
        if self.acquisition == "ucb":
            mean, std = forest.predict(features, return_std=True)
            return np.asarray(mean + self.kappa * std)
        best = self._signed(self.best_value)
        distribution = forest.predict_distribution(features)
        if self.acquisition == "ei":
            return log_expected_improvement(distribution, best)
        if self.acquisition == "pi":
            return probability_of_improvement(distribution, best)
        assert callable(self.acquisition)
        return np.asarray(self.acquisition(distribution, best), dtype=np.float64)

    def _forest_for_suggest(self, pending: list[NDArray[np.float64]]) -> MondrianForestRegressor:
        """Return a forest that has learned predicted values of the pending unit rows."""
        if not pending:
            return self._forest
        forest = copy.deepcopy(self._forest)
        self._imagine(forest, pending)
        return forest

    def _forest_for_ask(self) -> MondrianForestRegressor:
        """Return a forest that has learned predicted values of the pending trials.

        It is a copy, and is kept: until a value is told, the next ask has the same pending trials
        and some more.
        """
        pending = list(self._pending.values())
        if not pending:
            return self._forest
        forest, n_learned = self._forest_and_pending or (copy.deepcopy(self._forest), 0)
        self._forest_and_pending = None  # an interrupt must not leave a half-changed copy behind
        self._imagine(forest, [trial.unit for trial in pending[n_learned:]])
        self._forest_and_pending = forest, len(pending)
        return forest

    def _imagine(self, forest: MondrianForestRegressor, units: list[NDArray[np.float64]]) -> None:
        """Let a forest learn its own predictions at points without a value."""
        for unit in units:
            predicted = forest.predict(self.space.features(unit[None]))
            self._extend(forest, unit, float(predicted[0]))

    # How a trial and its value are recorded.

    def _new_trial(self, point: Mapping[str, Any]) -> Trial:
        # The unit row is computed from the point, so that telling the same point later gives the
        # same row to the last bit.
        plain = self.space.plain(point)
        return Trial(len(self.trials), plain, None, self.space.to_unit(plain))

    def _add(self, trial: Trial) -> None:
        """Add a trial, unless it is already there."""
        if trial.number < len(self.trials):
            return
        self.trials.append(trial)
        self._points.take(trial.unit)
        self._pending[self._key(trial.unit)] = trial

    def _learn(self, trial: Trial, value: float) -> None:
        """Let the forest learn the value of a trial.

        A failure counts as the worst value. Failures before the first value wait for it.
        """
        self._forest_and_pending = None
        if math.isnan(value):
            if self._best:
                self._extend(self._forest, trial.unit, self._worst)
            return
        signed_value = self._signed(value)
        self._extend(self._forest, trial.unit, signed_value)
        for failed in self._failures:
            self._extend(self._forest, failed.unit, min(self._worst, signed_value))

    def _set_value(self, trial: Trial, value: float) -> None:
        """Set the value of a trial, after the forest and the journal have it."""
        trial.value = value
        self._pending.pop(self._key(trial.unit), None)
        self._given.discard(trial.number)
        if math.isnan(value):
            if not self._best:
                self._failures.append(trial)
            return
        self._failures.clear()
        self._worst = min(self._worst, self._signed(value))
        self._best.append(trial)
        self._best.sort(key=lambda t: -self._signed(_value_of(t)))
        del self._best[N_LOCAL:]

    def _extend(
        self, forest: MondrianForestRegressor, unit: NDArray[np.float64], signed_value: float
    ) -> None:
        if abs(signed_value) < _FINE:
            signed_value = round(signed_value / _RESOLUTION) * _RESOLUTION
        forest.partial_fit(self.space.features(unit[None]), np.array([signed_value]))

    def _signed(self, value: float) -> float:
        """Return a value with the sign that makes large values good."""
        return value if self.maximize else -value

    def _key(self, unit: NDArray[np.float64]) -> bytes:
        return self.space.keys(unit[None])[0]

    # How the state is rebuilt from the journal.

    def _repair(self) -> None:
        """Replay the journal if an error or an interrupt has stopped an earlier call halfway."""
        if not self._is_whole:
            self._replay()

    def _replay(self) -> None:
        """Set the state to that after all entries of the journal."""
        self._is_whole = False
        self.trials = []
        self._pending = {}
        self._failures = []
        self._best = []
        self._worst = math.inf
        self._forest = clone(self._unfitted)
        self._forest_and_pending = None
        self._points.restore()
        for line, entry in enumerate(self._journal.entries, 2):
            try:
                self._replay_entry(entry)
            except (ValueError, RecursionError) as error:
                reason = str(error).rstrip(".")
                raise JournalError(
                    f"{self._journal.path}: line {line} of the journal is not valid: {reason}."
                ) from None
        self._is_whole = True

    def _replay_entry(self, entry: Any) -> None:
        fields = set(entry) if isinstance(entry, dict) else set()
        if fields not in _JOURNAL_FIELDS:
            raise ValueError("it is neither an ask nor a tell")
        is_ask = "ask" in fields
        trial = self._trial_of(entry, is_ask)
        if is_ask:
            self._add(trial)
            return
        written = entry["value"]
        if isinstance(written, bool | str):
            raise ValueError(f"its value is {written!r}")
        value = checked_value(written)
        if written is not None and math.isnan(value):
            raise ValueError(f"its value is {written!r}")
        self._learn(trial, value)
        self._add(trial)
        self._set_value(trial, value)

    def _trial_of(self, entry: dict[str, Any], is_ask: bool) -> Trial:
        """Return the trial of a journal entry, new or known, if the entry fits those before it."""
        number, unit = entry["ask" if is_ask else "tell"], self.space.to_unit(entry["point"])
        n_trials = len(self.trials)
        if type(number) is not int or not 0 <= number <= n_trials:
            raise ValueError(f"its number is {number!r}, but the next number is {n_trials}")
        if number == n_trials:
            if self._key(unit) in self._pending:
                raise ValueError("its point is pending already")
            return self._new_trial(entry["point"])
        trial = self.trials[number]
        if is_ask:
            raise ValueError(f"trial {number} is asked for twice")
        if not trial.is_pending:
            raise ValueError(f"trial {number} is told twice")
        if self._key(unit) != self._key(trial.unit):
            raise ValueError(f"its point is not that of trial {number}")
        return trial


def _checked_acquisition(acquisition: Any) -> Any:
    if not callable(acquisition) and acquisition not in ("ucb", "ei", "pi", "thompson"):
        raise ValueError(
            f'acquisition must be "ucb", "ei", "pi", "thompson" or a function, got {acquisition!r}.'
        )
    return acquisition


def _seed(random_state: Any) -> int | None:
    if random_state is None or isinstance(random_state, Integral):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _value_of(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value
