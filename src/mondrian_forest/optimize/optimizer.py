"""Bayesian optimisation by asking and telling, with a forest that learns each value as it comes."""

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

from ..distribution import PredictiveDistribution
from ..forest import PAPER, MondrianForestRegressor
from .acquisition import (
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
)
from .candidates import Design, Pool, argmax, checked_candidates, neighbours
from .journal import Journal, JournalError
from .space import Parameter, Point, Space
from .trial import Trial, checked_value

Acquisition = Callable[[PredictiveDistribution, float], NDArray[np.float64]]
Constraint = Callable[[Point], Any]

CELLS_PER_TRIAL = 10
"""No two points share a cell of a grid that gets finer with the number of trials, at least so many
cells a side for each. A forest is constant near a point that it knows, and would come back to its
neighbourhood for ever."""

ENUMERATED = 20_000
"""Finite spaces up to this size are searched whole; in larger ones candidates are sampled."""

N_LOCAL = 5
"""Best points and best candidates whose neighbourhoods are searched."""

_UNIT_SCALES = (0.2, 0.05, 0.01, 0.002)
_MOST_DRAWS = 100


class SpaceExhausted(RuntimeError):  # noqa: N818 - the end of a search is no error of anybody's
    """Every point of a finite space has been asked for."""


class Optimizer:
    """Bayesian optimisation with a Mondrian forest as its model.

    ``ask`` for a point, evaluate it wherever and however long it takes, and ``tell`` its value. The
    forest learns each value in time that grows like the logarithm of their number. Points that are
    asked for and not told yet are taken to have the values that the forest predicts.

    Parameters
    ----------
    space : mapping of str to Real, Integer, Categorical or Ordinal
    candidates : mapping of str to list of values, default=None
        Restricts the search to these points: row i is the point of all the i-th values.
    maximize : bool, default=False
        Whether large values are good.
    acquisition : {"ucb", "ei", "pi", "thompson"} or callable, default="ucb"
        What is maximised to find the next point: the upper confidence bound, the expected
        improvement, the probability of improvement, a function drawn from the posterior, or
        ``f(distribution, best)`` for a predictive distribution of values to be maximised.
    kappa : float, default=1.0
        Number of standard deviations in the upper confidence bound.
    n_initial : int, default=None
        Points of a scrambled Sobol sequence that are asked for first; by default twice the number
        of parameters, and two with ``candidates``, which are drawn at random.
    n_candidates : int, default=2000
        Points at which the acquisition is evaluated, where there are more than that.
    constraint : callable, default=None
        Takes a point; returns whether it is allowed, or numbers of which none may be negative.
    forest : MondrianForestRegressor, default=None
        The model, unfitted; by default 10 trees with ``min_samples_split=2`` and the empirical
        posterior, as in the paper. That posterior is certain near what it knows, where an
        improvement is to be looked for: for ``"ei"`` and ``"pi"`` the default is the hierarchical
        one with ``min_samples_split=5``.
    journal : path, default=None
        File that keeps every ask and tell. If it exists, its run goes on, exactly as if it had
        never stopped; points that were asked for and not told are asked for again. Nobody else can
        use the file until ``close``, the end of a ``with`` block, or the end of the process.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    trials : list of Trial
        In the order in which they were asked for.

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

    # What a journal decides: set by _replay.
    trials: list[Trial]
    _n_cells: int
    _taken: set[bytes]
    _pending: dict[bytes, Trial]
    _failures: list[Trial]
    _best: list[Trial]
    _worst: float
    _forest: MondrianForestRegressor
    _fantasy: tuple[MondrianForestRegressor, int] | None
    """The forest with values imagined for pending trials, and the number of these."""
    _is_whole: bool
    """Whether no call has been cut short by an error or an interrupt."""

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
        self.maximize = maximize
        self.acquisition = acquisition
        self.kappa = kappa
        self.n_candidates = n_candidates
        self.constraint = constraint
        self._check_parameters(acquisition, n_initial)
        self._lock = threading.RLock()  # workers may ask and tell from threads of their own
        self._pool = self._make_pool(candidates)
        default = 2 if candidates is not None else 2 * len(self.space)
        self.n_initial = default if n_initial is None else int(n_initial)
        header: dict[str, Any] = {
            "seed": _seed(random_state),
            "maximize": bool(maximize),
            "space": self.space.describe(),
        }
        self._journal = Journal(journal, header)
        try:
            seed = self._journal.header["seed"]
            self.seed = int(np.random.SeedSequence().generate_state(1)[0] if seed is None else seed)
            self._journal.header["seed"] = self.seed
            self._design = Design(self.space, self.n_initial, self.seed)
            self._unfitted = self._make_forest(forest)
            self._given: set[int] = set()  # numbers of pending trials that somebody works on
            self._replay()
        except BaseException:
            self.close()  # a traceback would keep the journal locked
            raise

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes use the journal; the next ask or tell takes it again."""
        self._journal.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def best_point(self) -> Point | None:
        """The point with the best value told so far; None before there is one."""
        return dict(self._best[0].point) if self._best else None

    @property
    def best_value(self) -> float:
        """The best value told so far; NaN before there is one."""
        return _value(self._best[0]) if self._best else math.nan

    @overload
    def ask(self, n: None = None) -> Point: ...
    @overload
    def ask(self, n: int) -> list[Point]: ...

    def ask(self, n: int | None = None) -> Point | list[Point]:
        """Return a point to try, or a list of ``n`` points to try at once.

        Parameters
        ----------
        n : int, default=None

        Returns
        -------
        dict, or list of dicts for a given n

        Raises
        ------
        SpaceExhausted
            If every point of a finite space has been asked for; a list is shorter before that.
        """
        if n is None:
            return dict(self.ask_trial().point)
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
            raise ValueError(f"n must be a positive integer, got {n!r}.")
        points: list[Point] = []
        for _ in range(n):
            try:
                points.append(dict(self.ask_trial().point))
            except SpaceExhausted:
                if not points:
                    raise
                break
        return points

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Give the value of a point, asked for or not.

        Parameters
        ----------
        point : dict
        value : float or None
            NaN, infinity (or 1e100) or None if the evaluation failed: the forest learns that it was
            as bad as the worst value known, and the point is not asked for again. To the forest,
            values are equal if they differ by less than 4e-121.

        Raises
        ------
        OSError, JournalError
            If the journal cannot be written; then the value is not told, in memory neither.
        """
        unit = self.space.to_unit(point)
        number = checked_value(value)
        with self._lock:
            self._mend()
            trial = self._pending.get(self._key(unit)) or self._new_trial(point)
            told = None if math.isnan(number) else number
            self._is_whole = False
            self._learn(trial, number)  # before anything is written: the forest may refuse it
            self._journal.append({"tell": trial.number, "point": trial.point, "value": told})
            self._keep(trial)
            self._keep_value(trial, number)
            self._is_whole = True

    def _learn(self, trial: Trial, value: float) -> None:
        """Extend the forest by a value, or by failures once it is known how bad they are."""
        self._fantasy = None
        if math.isnan(value):
            if self._best:
                self._extend(self._forest, trial.unit, self._worst)
            return
        signed = self._sign * value
        self._extend(self._forest, trial.unit, signed)
        for failed in self._failures:
            self._extend(self._forest, failed.unit, min(self._worst, signed))

    def _extend(self, forest: MondrianForestRegressor, unit: NDArray[np.float64], y: float) -> None:
        if abs(y) < _FINE:
            y = round(y / _RESOLUTION) * _RESOLUTION
        forest.partial_fit(self.space.features(unit[None]), np.array([y]))

    def _keep_value(self, trial: Trial, value: float) -> None:
        """Take up a value that the forest and the journal have."""
        trial.value = value
        self._pending.pop(self._key(trial.unit), None)
        self._given.discard(trial.number)
        if math.isnan(value):
            if not self._best:  # nobody knows yet how bad a failure is
                self._failures.append(trial)
            return
        self._failures.clear()
        self._worst = min(self._worst, self._sign * value)
        self._best.append(trial)
        self._best.sort(key=lambda t: -self._sign * _value(t))
        del self._best[N_LOCAL:]

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    def _cells(self, units: NDArray[np.float64]) -> list[bytes]:
        return self.space.keys(units, self._n_cells)

    def _key(self, unit: NDArray[np.float64]) -> bytes:
        return self.space.keys(unit[None])[0]

    def suggest(self, number: int, pending: list[Point]) -> Point:
        """Return a point without keeping a trial, for frameworks that keep their own.

        Parameters
        ----------
        number : int
            Of the trial: the same number, after the same values, gives the same point.
        pending : list of dicts
            Points under evaluation elsewhere.
        """
        units = [self.space.to_unit(point) for point in pending]
        with self._lock:
            self._mend()
            self._is_whole = False
            kept = self._pending, self._taken
            try:
                self._fantasy = None
                self._pending = {self._key(u): Trial(-1, {}, None, u) for u in units}
                if units:
                    self._taken = self._taken | set(self._cells(np.array(units)))
                return self._propose(number, np.random.default_rng([self.seed, number]))
            finally:
                self._pending, self._taken = kept
                self._fantasy = None
                self._is_whole = True

    def ask_trial(self) -> Trial:
        """Return a trial: the point of :meth:`ask`, with its number."""
        with self._lock:
            self._mend()
            trial = next((t for t in self._pending.values() if t.number not in self._given), None)
            if trial is None:
                number = len(self.trials)
                # A stream for each trial: what is asked for depends on what was told, not on the
                # past of the generator, so that a run that was interrupted goes on as it would
                # have.
                random = np.random.default_rng([self.seed, number])
                trial = self._new_trial(self._propose(number, random))
                self._is_whole = False
                self._journal.append({"ask": trial.number, "point": trial.point})
                self._keep(trial)
                self._is_whole = True
            self._given.add(trial.number)
            return trial

    def _new_trial(self, point: Mapping[str, Any]) -> Trial:
        # The unit row is taken from the point, not the other way round: telling the same point
        # gives the same row then, to the last bit.
        plain = self.space.plain(point)
        return Trial(len(self.trials), plain, None, self.space.to_unit(plain))

    def _keep(self, trial: Trial) -> None:
        """Take up a new trial; one that is there already stays."""
        if trial.number < len(self.trials):
            return
        self.trials.append(trial)
        key = self._key(trial.unit)
        if len(self.trials) * CELLS_PER_TRIAL > self._n_cells:
            self._n_cells *= 2
            self._taken.clear()
            self._taken.update(self._cells(np.array([trial.unit for trial in self.trials])))
        self._taken.update(self._cells(trial.unit[None]))
        self._pending[key] = trial
        if self._pool is not None:
            self._pool.take(key)

    def _propose(self, number: int, random: np.random.Generator) -> Point:
        """Return the next point."""
        has_model = hasattr(self._forest, "n_features_in_")
        is_initial = number < self.n_initial or not has_model
        if self._pool is None:
            if is_initial:
                return self.space.from_unit(self._initial(number, random))
            return self.space.from_unit(self._search(self._forest_with_pending(), random))
        places = self._pool.left(self._pending)
        if len(places) == 0:
            raise SpaceExhausted(
                f"all {len(self._pool)} points have been asked for: there is nothing left to try."
            )
        if is_initial:
            return self._pool.point(random.choice(places))
        values = self._evaluate(self._forest_with_pending(), self._pool.features[places])
        return self._pool.point(places[argmax(values, random)])

    def _initial(self, number: int, random: np.random.Generator) -> NDArray[np.float64]:
        if number < self.n_initial:
            unit = self._design[number]
            if self._is_open(unit[None])[0]:
                return unit
        return np.asarray(self._draw(1, random)[0])

    def _search(
        self, forest: MondrianForestRegressor, random: np.random.Generator
    ) -> NDArray[np.float64]:
        """Maximise the acquisition: global draws, neighbours of the best, then of what is found."""
        half = max(1, self.n_candidates // 2)
        near = neighbours([trial.unit for trial in self._best], half, random, _UNIT_SCALES)
        units = np.concatenate([self._draw(half, random), self._open(near)])
        values = self._evaluate(forest, self.space.features(units))
        for scale in _UNIT_SCALES:
            top = np.argsort(-values, kind="stable")[:N_LOCAL]
            near = self._open(neighbours(list(units[top]), half // 8 + 1, random, (scale,)))
            units = np.concatenate([units[top], near])
            values = np.concatenate(
                [values[top], self._evaluate(forest, self.space.features(near))]
            )
        return np.asarray(units[argmax(values, random)])

    def _draw(self, n: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Return unit rows of open points, ``n`` of them if they are not hard to find."""
        found: list[NDArray[np.float64]] = []
        n_found = 0
        for _ in range(_MOST_DRAWS):
            units = self._open(random.random((n, len(self.space))))
            found.append(units)
            n_found += len(units)
            if n_found >= n:
                break
        if n_found == 0:
            raise SpaceExhausted(
                f"none of {n * _MOST_DRAWS} points drawn at random is allowed and new: the "
                "constraint leaves hardly any, or all have been asked for."
            )
        return np.concatenate(found)[:n]

    def _open(self, units: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return those rows, snapped and without repetition, that may be asked for."""
        if len(units) == 0:
            return units
        units = self.space.snap(units)
        return units[self._is_open(units)]

    def _is_open(self, units: NDArray[np.float64]) -> NDArray[np.bool_]:
        seen: set[bytes] = set()
        is_open = np.zeros(len(units), dtype=bool)
        for i, key in enumerate(self._cells(units)):
            if key in self._taken or key in seen:
                continue
            seen.add(key)
            is_open[i] = self.constraint is None or self._is_allowed(self.space.from_unit(units[i]))
        return is_open

    def _is_allowed(self, point: Point) -> bool:
        if self.constraint is None:
            return True
        answer = np.asarray(self.constraint(dict(point)))
        return bool(answer.all()) if answer.dtype == bool else bool((answer >= 0).all())

    def _evaluate(
        self,
        forest: MondrianForestRegressor,
        features: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the acquisition at some rows."""
        if len(features) == 0:
            return np.empty(0)
        if self.acquisition == "ucb":
            mean, std = forest.predict(features, return_std=True)
            return np.asarray(mean + self.kappa * std)
        if self.acquisition == "thompson":
            # One function for all that is evaluated in one proposal.
            seed = int(np.random.default_rng([self.seed, len(self.trials), 1]).integers(2**31))
            return thompson_sample(forest, features, seed)
        limit = self._sign * self.best_value
        distribution = forest.predict_distribution(features)
        if self.acquisition == "ei":
            return log_expected_improvement(distribution, limit)
        if self.acquisition == "pi":
            return probability_of_improvement(distribution, limit)
        assert callable(self.acquisition)
        return np.asarray(self.acquisition(distribution, limit), dtype=np.float64)

    def _forest_with_pending(self) -> MondrianForestRegressor:
        """Return the forest, or a copy that takes pending points to be as it predicts them."""
        pending = list(self._pending.values())
        if not pending:
            return self._forest
        # Out of sight while it changes: after an interrupt it is made anew.
        fantasy, n_imagined = self._fantasy or (copy.deepcopy(self._forest), 0)
        self._fantasy = None
        for trial in pending[n_imagined:]:
            imagined = fantasy.predict(self.space.features(trial.unit[None]))
            self._extend(fantasy, trial.unit, float(imagined[0]))
        self._fantasy = fantasy, len(pending)
        return fantasy

    def _make_pool(self, candidates: Mapping[str, Iterable[Any]] | None) -> Pool | None:
        """Return all points of the search, where they are given or few."""
        points: list[Point]
        if candidates is not None:
            points = checked_candidates(self.space, candidates)
        elif self.space.n_points is not None and self.space.n_points <= ENUMERATED:
            points = [self.space.from_unit(unit) for unit in self.space.all_units()]
        else:
            return None
        pool = Pool(self.space, [point for point in points if self._is_allowed(point)])
        if len(pool) == 0:
            raise ValueError("the constraint allows no point at all.")
        return pool

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

    def _mend(self) -> None:
        """Make up for an earlier call that an error or an interrupt has cut short."""
        if not self._is_whole:
            self._replay()

    def _replay(self) -> None:
        """Set the state to what the journal holds."""
        self._is_whole = False
        self.trials = []
        self._n_cells = CELLS_PER_TRIAL
        self._taken = set()
        self._pending = {}
        self._failures = []
        self._best = []
        self._worst = math.inf
        self._forest = clone(self._unfitted)
        self._fantasy = None
        if self._pool is not None:
            self._pool.restore()
        for line, entry in enumerate(self._journal.entries, 2):
            try:
                self._replay_entry(entry)
            except (ValueError, RecursionError) as error:
                fault = str(error).rstrip(".")
                raise JournalError(
                    f"{self._journal.path}: line {line} of the journal makes no sense: {fault}."
                ) from None
        self._is_whole = True

    def _replay_entry(self, entry: Any) -> None:
        fields = set(entry) if isinstance(entry, dict) else set()
        if fields not in _ENTRIES:
            raise ValueError("it is neither an ask nor a tell")
        kind = "ask" if "ask" in entry else "tell"
        number, unit = entry[kind], self.space.to_unit(entry["point"])
        if type(number) is not int or not 0 <= number <= len(self.trials):
            raise ValueError(f"its number is {number!r}, and {len(self.trials)} is the next")
        if number == len(self.trials):
            trial = self._new_trial(entry["point"])
            if self._key(unit) in self._pending:
                raise ValueError("its point is pending already")
        else:
            trial = self.trials[number]
            if kind == "ask":
                raise ValueError(f"trial {number} is asked for twice")
            if not trial.is_pending:
                raise ValueError(f"trial {number} is told twice")
            if self._key(unit) != self._key(trial.unit):
                raise ValueError(f"its point is not that of trial {number}")
        if kind == "ask":
            self._keep(trial)
            return
        told = entry["value"]
        if isinstance(told, bool | str):
            raise ValueError(f"its value is {told!r}")
        value = checked_value(told)
        if told is not None and math.isnan(value):
            raise ValueError(f"its value is {told!r}")
        self._learn(trial, value)
        self._keep(trial)
        self._keep_value(trial, value)

    def _check_parameters(self, acquisition: Any, n_initial: Any) -> None:
        if not callable(acquisition) and acquisition not in ("ucb", "ei", "pi", "thompson"):
            raise ValueError(
                f"acquisition must be ucb, ei, pi, thompson or a function, got {acquisition!r}."
            )
        if not isinstance(self.maximize, bool | np.bool_):
            raise ValueError(f"maximize must be True or False, got {self.maximize!r}.")
        if not isinstance(self.kappa, int | float) or not 0 <= self.kappa < math.inf:
            raise ValueError(f"kappa must be a number from 0 on, got {self.kappa!r}.")
        if n_initial is not None and not _is_positive_integer(n_initial):
            raise ValueError(f"n_initial must be a positive integer, got {n_initial!r}.")
        if not _is_positive_integer(self.n_candidates):
            raise ValueError(f"n_candidates must be a positive integer, got {self.n_candidates!r}.")
        if self.constraint is not None and not callable(self.constraint):
            raise ValueError(f"constraint must be a function of a point, got {self.constraint!r}.")


_ENTRIES = ({"ask", "point"}, {"tell", "point", "value"})
"""What the two kinds of lines in a journal have."""

_RESOLUTION = 2.0**-400
_FINE = 2.0**-347
"""The forest sees values to within 4e-121: the squares of smaller differences are no numbers any
more. From 3e-105 on a value is a multiple of the resolution anyway."""


def _seed(random_state: Any) -> int | None:
    if random_state is None or isinstance(random_state, Integral):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _value(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
