"""Bayesian optimisation by asking and telling, with a forest that learns each value as it comes."""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..distribution import PredictiveDistribution
from ..forest import PAPER, MondrianForestRegressor
from .acquisition import (
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
)
from .journal import Journal, JournalError
from .space import Parameter, Point, Space

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


@dataclass(eq=False)  # a trial equals itself alone, and arrays do not compare
class Trial:
    """One point and what became of it.

    Attributes
    ----------
    number : int
    point : dict
        Names and values of the active parameters.
    value : float or None
        None while the trial is pending; NaN if it failed.
    """

    number: int
    point: Point
    value: float | None = None
    unit: NDArray[np.float64] = field(repr=False, default_factory=lambda: np.empty(0))

    @property
    def is_pending(self) -> bool:
        """Whether no value has been told yet."""
        return self.value is None

    @property
    def is_failed(self) -> bool:
        """Whether there will never be a value."""
        return self.value is not None and math.isnan(self.value)


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
        never stopped; points that were asked for and not told are asked for again.
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
        self.trials: list[Trial] = []
        self._n_cells = CELLS_PER_TRIAL
        self._taken: set[bytes] = set()
        self._pool = self._make_pool(candidates)
        default = 2 if candidates is not None else 2 * len(self.space)
        self.n_initial = default if n_initial is None else int(n_initial)
        header: dict[str, Any] = {
            "seed": _seed(random_state),
            "maximize": bool(maximize),
            "space": self.space.describe(),
        }
        self._journal = None if journal is None else Journal(journal, header)
        seed = header["seed"] if self._journal is None else self._journal.header["seed"]
        self.seed = int(np.random.SeedSequence().generate_state(1)[0] if seed is None else seed)
        if self._journal is not None:
            self._journal.header["seed"] = self.seed
        self._forest = self._make_forest(forest)
        self._fantasy: MondrianForestRegressor | None = None
        self._n_imagined = 0
        self._pending: dict[bytes, Trial] = {}
        self._failures: list[Trial] = []
        self._best: list[Trial] = []
        self._worst = math.inf
        self._to_be_asked_again: list[Trial] = []
        self._design = _Design(self.space, self.n_initial, self.seed)
        if self._journal is not None:
            self._replay(self._journal.entries)

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
            as bad as the worst value known, and the point is not asked for again.
        """
        unit = self.space.to_unit(point)
        number = _checked_value(value)
        with self._lock:
            trial = self._pending.get(self._key(unit)) or self._add_trial(dict(point))
            if self._journal is not None:
                told = None if math.isnan(number) else number
                self._journal.append({"tell": trial.number, "point": trial.point, "value": told})
            self._learn(trial, number)

    def _learn(self, trial: Trial, value: float) -> None:
        trial.value = value
        self._pending.pop(self._key(trial.unit), None)
        if trial in self._to_be_asked_again:
            self._to_be_asked_again.remove(trial)
        self._fantasy = None
        if math.isnan(value):
            self._failures.append(trial)
        else:
            self._extend(self._forest, trial.unit, self._sign * value)
            self._worst = min(self._worst, self._sign * value)
            self._best.append(trial)
            self._best.sort(key=lambda t: -self._sign * _value(t))
            del self._best[N_LOCAL:]
        if self._best:  # otherwise nobody knows yet how bad a failure is
            for failed in self._failures:
                self._extend(self._forest, failed.unit, self._worst)
            self._failures.clear()

    def _extend(self, forest: MondrianForestRegressor, unit: NDArray[np.float64], y: float) -> None:
        forest.partial_fit(self.space.features(unit[None]), np.array([y]))

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
            kept = self._pending, self._taken
            self._fantasy = None
            self._pending = {self._key(u): Trial(-1, {}, None, u) for u in units}
            if units:
                self._taken = self._taken | set(self._cells(np.array(units)))
            try:
                return self._propose(number, np.random.default_rng([self.seed, number]))
            finally:
                self._pending, self._taken = kept
                self._fantasy = None

    def ask_trial(self) -> Trial:
        """Return a trial: the point of :meth:`ask`, with its number."""
        with self._lock:
            if self._to_be_asked_again:
                return self._to_be_asked_again.pop(0)
            number = len(self.trials)
            # A stream for each trial: what is asked for depends on what was told, not on the past
            # of the generator, so that a run that was interrupted goes on as it would have.
            random = np.random.default_rng([self.seed, number])
            trial = self._add_trial(self._propose(number, random))
            if self._journal is not None:
                self._journal.append({"ask": trial.number, "point": trial.point})
            return trial

    def _add_trial(self, point: Point) -> Trial:
        # The unit row is taken from the point, not the other way round: telling the same point
        # gives the same row then, to the last bit.
        unit = self.space.to_unit(point)
        trial = Trial(len(self.trials), point, None, unit)
        self.trials.append(trial)
        key = self._key(unit)
        if len(self.trials) * CELLS_PER_TRIAL > self._n_cells:
            self._n_cells *= 2
            self._taken.clear()
            self._taken.update(self._cells(np.array([trial.unit for trial in self.trials])))
        self._taken.update(self._cells(unit[None]))
        self._pending[key] = trial
        if self._pool is not None:
            self._pool.take(key)
        return trial

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
        return self._pool.point(places[_argmax(values, random)])

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
        near = _neighbours([trial.unit for trial in self._best], half, random, _UNIT_SCALES)
        units = np.concatenate([self._draw(half, random), self._open(near)])
        values = self._evaluate(forest, self.space.features(units))
        for scale in _UNIT_SCALES:
            top = np.argsort(-values, kind="stable")[:N_LOCAL]
            near = self._open(_neighbours(list(units[top]), half // 8 + 1, random, (scale,)))
            units = np.concatenate([units[top], near])
            values = np.concatenate(
                [values[top], self._evaluate(forest, self.space.features(near))]
            )
        return np.asarray(units[_argmax(values, random)])

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
        if self._fantasy is None:
            self._fantasy = copy.deepcopy(self._forest)
            self._n_imagined = 0
        for trial in pending[self._n_imagined :]:
            imagined = self._fantasy.predict(self.space.features(trial.unit[None]))
            self._extend(self._fantasy, trial.unit, float(imagined[0]))
        self._n_imagined = len(pending)
        return self._fantasy

    def _make_pool(self, candidates: Mapping[str, Iterable[Any]] | None) -> _Pool | None:
        """Return all points of the search, where they are given or few."""
        points: list[Point]
        if candidates is not None:
            points = _checked_candidates(self.space, candidates)
        elif self.space.n_points is not None and self.space.n_points <= ENUMERATED:
            points = [self.space.from_unit(unit) for unit in self.space.all_units()]
        else:
            return None
        pool = _Pool(self.space, [point for point in points if self._is_allowed(point)])
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

    def _replay(self, entries: list[dict[str, Any]]) -> None:
        """Bring back the state after what a journal holds."""
        for place, entry in enumerate(entries, 2):
            try:
                number = entry["ask"] if "ask" in entry else entry["tell"]
                if number == len(self.trials):
                    self._add_trial(entry["point"])
                trial = self.trials[number]
                if "tell" in entry:
                    self._learn(trial, _checked_value(entry["value"]))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise JournalError(
                    f"line {place} of the journal makes no sense: {error}."
                ) from None
        self._to_be_asked_again = [trial for trial in self.trials if trial.is_pending]

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


class _Pool:
    """Points that can be looked at one and all, and which of them have been taken."""

    def __init__(self, space: Space, points: list[Point]) -> None:
        units = space.to_units(points)
        # A point that is given twice counts once.
        self._place: dict[bytes, int] = {}
        kept: list[int] = []
        for number, key in enumerate(space.keys(units)):
            if key not in self._place:
                self._place[key] = len(kept)
                kept.append(number)
        self._points = [points[number] for number in kept]
        self.features = space.features(units[kept])
        self._is_left = np.ones(len(kept), dtype=bool)

    def __len__(self) -> int:
        return len(self._points)

    def point(self, place: int) -> Point:
        return dict(self._points[place])

    def take(self, key: bytes) -> None:
        if key in self._place:
            self._is_left[self._place[key]] = False

    def left(self, pending: Iterable[bytes]) -> NDArray[np.int64]:
        is_left = self._is_left.copy()
        is_left[[self._place[key] for key in pending if key in self._place]] = False
        return np.flatnonzero(is_left)


class _Design:
    """Points of a scrambled Sobol sequence, snapped to the space."""

    def __init__(self, space: Space, n_points: int, seed: int) -> None:
        # The balance of the sequence asks for a power of two; a prefix of it is what is used.
        sequence = qmc.Sobol(len(space), scramble=True, seed=np.random.default_rng([seed]))
        exponent = math.ceil(math.log2(max(n_points, 1)))
        self._units = space.snap(sequence.random_base2(exponent))

    def __getitem__(self, number: int) -> NDArray[np.float64]:
        return np.asarray(self._units[number])


def _neighbours(
    units: list[NDArray[np.float64]],
    n: int,
    random: np.random.Generator,
    scales: tuple[float, ...],
) -> NDArray[np.float64]:
    """Return ``n`` rows near given ones: some coordinates moved, by one of the scales."""
    if not units:
        return np.empty((0, 0))
    chosen = np.array(units)[random.integers(len(units), size=n)]
    n_parameters = chosen.shape[1]
    steps = random.choice(scales, size=(n, 1)) * random.standard_normal(chosen.shape)
    moved = random.random(chosen.shape) < max(0.5, 1.0 / n_parameters)
    moved[np.arange(n), random.integers(n_parameters, size=n)] = True
    # A step takes a discrete parameter out of its cell only if the cell is small: some are drawn
    # anew, and so are those that have just become active.
    anew = random.random(chosen.shape) < 0.1
    drawn = random.random(chosen.shape)
    near = np.where(moved, np.where(anew, drawn, chosen + steps), chosen)
    return np.where(np.isnan(near), drawn, near)


def _argmax(values: NDArray[np.float64], random: np.random.Generator) -> int:
    """Return the place of the largest value, one of them at random."""
    values = np.where(np.isnan(values), -np.inf, values)
    return int(random.choice(np.flatnonzero(values == values.max())))


def _checked_candidates(space: Space, candidates: Mapping[str, Iterable[Any]]) -> list[Point]:
    """Return the points of a table; inactive parameters are left out of them."""
    if not isinstance(candidates, Mapping) or set(candidates) != set(space.names):
        raise ValueError(
            f"candidates must have a list of values for each parameter: {', '.join(space.names)}."
        )
    columns = {name: list(candidates[name]) for name in space.names}
    lengths = {len(column) for column in columns.values()}
    if lengths == {0} or len(lengths) > 1:
        raise ValueError(f"candidates must have lists of one length, got {sorted(lengths)}.")
    try:
        return space.points(columns)
    except ValueError as error:
        raise ValueError(f"in the candidates, {error}") from None


_LARGEST_VALUE = 1e100
"""What is larger, infinity included, counts as a failure: no forest could learn it."""


def _checked_value(value: object) -> float:
    """Return a number, NaN for what is a failure."""
    if value is None:
        return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(
            f"a value must be a number, or None if the evaluation failed, got {value!r}."
        ) from None
    return number if abs(number) <= _LARGEST_VALUE else math.nan


def _seed(random_state: Any) -> int | None:
    if random_state is None or isinstance(random_state, Integral):
        return None if random_state is None else int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _value(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
