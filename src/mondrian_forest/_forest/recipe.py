"""The one fit, over a source of rows: arrays in memory, or the collections of a cluster.

Survey the rows, choose those that are held out and those from which weights are learned, limit the
labels, subtract a mean function, learn scaling and weights, grow the trees, learn the spread on the
rows that were held out, and let these join.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._core.arrays.grove import Grove, linked
from .._core.arrays.rng import random_states
from .._core.arrays.tree import MOST_FEATURES
from .._core.growth import MOST_CANDIDATES, Growth, with_label_unit
from .._core.labels import LabelModel
from .._core.labels.model import Summary
from .._core.mixtures.neighbours import LabelMemory, label_memory
from .._core.moments import Moments
from .._core.spread.apply import Spread, constant_spread
from . import held_out
from .choice import Choice, Known, fit_mean_function
from .held_out import HeldOut
from .intake import Survey, label_moments, resolution_of, survey
from .label_limits import LabelLimits, learn_limits, warn_of_limits
from .mean_function import MeanFunction, is_auto, residuals
from .parameters import Parameters
from .pruning import COIN
from .scaling import MOST_ROWS as MOST_SCALING_ROWS
from .scaling import Scaling, learn_scaling
from .state import ForestState, ensemble_of
from .trees import finish, sample_trees, with_joining, with_most_evidence
from .trials import Found, asks_for_trials, try_forests
from .weights import MOST_ROWS as MOST_TRIAL_ROWS
from .weights import given_weights

_MANY_ROWS = 50_000
"""From this many rows on, leaves of single rows do harm to the density where labels are noisy, and
the mean gains next to nothing; without any noise it is better by 6% with them. RMSE and NLPD of
60,000 rows with 2 and with 5 (`python -m benchmarks accuracy`): friedman1 without noise 0.083,
-1.03 and 0.087, -1.00, with noise 5 0.724, 1.12 and 0.723, 1.11."""

_ENOUGH_HELD = 200
"""From so many held-out rows, the spread around a mean of models is learned from these alone. With
further rows, 80% intervals around five regression trees (4,000 rows) covered 86%."""

Numbers = NDArray[np.int64]
Rows = tuple[NDArray[Any], NDArray[np.float64]]
NO_ROWS: Numbers = np.empty(0, dtype=np.int64)


class Source(ABC):
    """Rows to fit a forest to, by their numbers from first to last."""

    n_turns: int
    """One in so many rows is held out at a time."""
    takes_turns: bool
    """Whether further rows are held out in turn, if the first are few."""

    @abstractmethod
    def survey(self) -> Survey:
        """Look over all rows and labels once."""

    @abstractmethod
    def rows_for_scaling(self, parameters: Parameters, random: np.random.Generator) -> Numbers:
        """Choose the rows from which a warp is learned."""

    @abstractmethod
    def rows_for_trials(self, held: Numbers, random: np.random.Generator) -> Numbers:
        """Choose the rows that small forests are tried on; none that are held out."""

    @abstractmethod
    def fetch(self, *numbers: Numbers) -> None:
        """Bring the rows here that ``pick`` will be asked for."""

    @abstractmethod
    def pick(self, numbers: Numbers) -> Rows:
        """Return some rows, with their labels as the trees learn them."""

    @abstractmethod
    def some_labels(self, scaling_rows: Numbers) -> NDArray[np.float64]:
        """Return labels for their limits and their resolution: all, or those of some rows."""

    @abstractmethod
    def limit_labels(self, limits: LabelLimits) -> Moments | None:
        """Clip the labels to their limits; return their moments if that changes any."""

    @abstractmethod
    def surround(
        self,
        parameters: Parameters,
        seen: Survey,
        held: Numbers,
        found: Found,
        random: np.random.Generator,
    ) -> tuple[Choice, Survey]:
        """Fit the mean function that is asked for, or the best one, if any is worth it.

        Return it with a survey of what the trees see then: rows and labels are those from now on.
        No regression sees labels that are held out. ``found`` is what suits trees without a mean
        function; it is only used to choose.
        """

    def rows_for_mean_function(self, random: np.random.Generator) -> Numbers:  # noqa: ARG002
        """Choose the rows that must be here to fit a mean function, besides all others."""
        return NO_ROWS

    @abstractmethod
    def use(self, scaling: Scaling, held: Numbers) -> None:
        """Get ready to grow trees on the coordinates of all rows but those held out."""

    @abstractmethod
    def hold_out(self, numbers: Numbers) -> None:
        """Hold out other rows than before."""

    @abstractmethod
    def held(self) -> HeldOut:
        """Return the rows that are held out."""

    @abstractmethod
    def grow(
        self,
        growth: Growth,
        model: LabelModel,
        states: NDArray[np.uint64],
    ) -> tuple[Grove, NDArray[np.uint64], int]:
        """Sample all trees on the rows in use; return the streams as they are then, and how many.

        The last number is that of the rows in use.
        """

    def label_memory(self, grove: Grove) -> LabelMemory | None:  # noqa: ARG002
        """Return where the labels in the trees are, if they are at hand."""
        return None

    def can_join(self, growth: Growth) -> bool:  # noqa: ARG002
        """Return whether rows can join trees that have been grown, in less time than it took."""
        return True

    @abstractmethod
    def join_held(self, state: ForestState) -> ForestState:
        """Return the state with the rows that are kept; those held out have joined the trees."""

    def finished(self, state: ForestState) -> ForestState:
        """Return the state without what is not kept."""
        return state


def fit(source: Source, parameters: Parameters, names: Any = None) -> ForestState:
    """Fit a forest to the rows of a source."""
    seen = source.survey()
    n_rows, n_features = seen.moments.n_samples, len(seen.range[0])
    growth = _growth(parameters, n_rows, n_features)
    states, random = _random_streams(parameters)
    learns_spread = parameters.spread is None

    scaling_rows = source.rows_for_scaling(parameters, random)
    held = held_out.hold_out(n_rows, source.n_turns, random) if learns_spread else NO_ROWS
    trial_rows = mean_rows = NO_ROWS
    if asks_for_trials(parameters, n_features):
        trial_rows = source.rows_for_trials(held, random)
    if parameters.mean_function is not None:
        mean_rows = source.rows_for_mean_function(random)
    source.fetch(scaling_rows, held, trial_rows, mean_rows)

    limits = LabelLimits()
    if parameters.robust:
        limits = learn_limits(source.some_labels(scaling_rows))
        seen = seen._replace(moments=source.limit_labels(limits) or seen.moments)
    resolution = resolution_of(source.some_labels(scaling_rows))
    scaling, choice, seen = _surrounded(
        source, parameters, seen, _Chosen(scaling_rows, trial_rows, held), random
    )
    moments, n_columns = seen.moments, len(seen.range[0])
    growth = with_label_unit(growth, moments)
    summary = Summary(moments, n_columns, resolution, choice.found.prior_stop)
    model = parameters.posterior.estimate(summary)

    source.use(scaling, held)
    grove, states, n_used = source.grow(growth, model, states)
    spread, record = _given_spread(parameters), held_out.no_record()
    if len(held) > 0:
        turns = [NO_ROWS]
        if source.takes_turns and not _is_enough(held, choice.mean_function):
            turns += held_out.hold_out_more(n_rows, len(held), random)
        for number, others in enumerate(turns):
            if number > 0:
                source.hold_out(others)
                grove, states, n_used = source.grow(growth, model, states)
            spread, record = held_out.learn_from_held_out(
                ensemble_of(grove, growth, model),
                record,
                source.label_memory(grove),
                source.held(),
                moments,
                1.0 if choice.mean_function is None else choice.mean_function.far,
                parameters.n_jobs,
            )
        if len(held) > held_out.FEW * n_rows or not source.can_join(growth):
            source.hold_out(NO_ROWS)
            grove, states, n_used = source.grow(growth, model, states)
    state = ForestState(
        feature_names=names,
        scaling=scaling,
        grove=grove,
        growth=growth,
        model=model,
        mean_function=choice.mean_function,
        spread=spread,
        n_rows=n_used,
        n_seen=n_used,
        rows=np.empty((0, n_columns), np.float32),
        labels=np.empty(0),
        means=np.empty(0),
        arrivals=np.empty(0, np.int64),
        ordered_labels=np.empty((0, 0)),
        random_states=states,
        label_moments=moments,
        label_limits=limits,
        resolution=resolution,
        seen_range=seen.range,
        spread_record=record,
        review_at=review_at(moments.n_samples, moments.n_samples),
        fitted_at=moments.n_samples,
        n_rows_fitted=moments.n_samples,
        has_rescaled=False,
    )
    state = source.join_held(state)
    return source.finished(with_most_evidence(state, parameters.posterior, parameters.n_jobs))


def _is_enough(held: Numbers, known: MeanFunction | None) -> bool:
    """Return whether no further rows are held out in turn.

    These would have residuals of single models, which are larger than those of their mean.
    """
    return known is not None and known.has_models_that_differ and len(held) >= _ENOUGH_HELD


class _Chosen(NamedTuple):
    """Rows by what they are for."""

    scaling: Numbers
    trials: Numbers
    held: Numbers


def _surrounded(
    source: Source,
    parameters: Parameters,
    seen: Survey,
    chosen: _Chosen,
    random: np.random.Generator,
) -> tuple[Scaling, Choice, Survey]:
    """Find scaling, feature weights, pruning and mean function.

    Return also a survey of what trees see then. If held-out rows choose no mean function, all is as
    if none had been asked for.
    """
    n_features = len(seen.range[0])

    def scaled(seen: Survey) -> Scaling:
        rows, _ = source.pick(chosen.scaling)
        feature_range, robust = parameters.feature_range, parameters.robust
        return learn_scaling(rows, seen.range, feature_range, n_features, robust=robust)

    def tried(scaling: Scaling) -> Found:
        n_columns = len(scaling.weights)
        given = given_weights(parameters.feature_weights, n_features, n_columns)
        if len(chosen.trials) == 0:
            return Found(given, COIN)
        rows, labels = source.pick(chosen.trials)
        rows = scaling.in_units_of_range(rows)
        return try_forests(rows, labels, given, parameters, random, fit_rows)

    kind = parameters.mean_function
    if kind is None or is_auto(kind):
        scaling = scaled(seen)
        choice = Choice(tried(scaling))
        if kind is not None:
            of_choice = random.spawn(1)[0]
            choice, seen = source.surround(parameters, seen, chosen.held, choice.found, of_choice)
            scaling = scaled(seen)
    else:
        nothing = Found(np.ones(n_features), COIN)
        choice, seen = source.surround(parameters, seen, chosen.held, nothing, random)
        scaling = scaled(seen)
        choice = choice._replace(found=tried(scaling))
    return replace(scaling, weights=choice.found.weights), choice, seen


def review_at(n_seen: int, n_rows: int) -> int:
    """Return the number of rows learned at which hyperparameters are estimated again.

    That is when a quarter of the rows are new.
    """
    return n_seen + max(1, -(-n_rows // 4))


def _random_streams(
    parameters: Parameters,
) -> tuple[NDArray[np.uint64], np.random.Generator]:
    """Return the random stream of each tree, and one for all else."""
    source = check_random_state(parameters.random_state)
    seed = np.random.SeedSequence(source.randint(2**32, size=4, dtype=np.uint64).tolist())
    states = random_states(seed, parameters.n_estimators)
    return states, np.random.default_rng(seed.spawn(1)[0])


def _growth(parameters: Parameters, n_rows: int, n_features: int) -> Growth:
    if n_features > MOST_FEATURES:
        raise ValueError(
            f"A forest takes {MOST_FEATURES:,} features at most, got {n_features:,}: leave out "
            "what says least, or make fewer of them."
        )
    smallest = parameters.min_samples_split
    if smallest is None:
        smallest = 2 if n_rows < _MANY_ROWS else 5
    n_candidates = parameters.n_candidate_splits
    return Growth(
        min(smallest, 2**31 - 1),
        min(n_features if n_candidates is None else n_candidates, MOST_CANDIDATES),
        np.inf,
        tolerance=parameters.cut_tolerance,
    )


def _given_spread(parameters: Parameters) -> Spread:
    return constant_spread(1.0 if parameters.spread is None else parameters.spread)


def fit_rows(
    rows: NDArray[np.float64], labels: NDArray[np.float64], parameters: Parameters
) -> ForestState:
    """Fit a forest to rows in memory."""
    return fit(ArrayRows(rows, labels, parameters.n_jobs), parameters)


class ArrayRows(Source):
    """Rows in memory. Those held out stand at the end of the coordinates."""

    n_turns = held_out.MOST_TURNS
    takes_turns = True

    def __init__(
        self, table: NDArray[Any], labels: NDArray[np.float64], n_jobs: int | None
    ) -> None:
        self._table, self._labels, self._n_jobs = table, labels, n_jobs
        self._means = np.zeros(len(labels))
        self._n_held = 0

    def survey(self) -> Survey:
        return survey(self._table, self._labels, None)

    def rows_for_scaling(self, parameters: Parameters, random: np.random.Generator) -> Numbers:
        n_rows = len(self._table)
        uses_warp = parameters.robust and parameters.feature_range is None
        if not uses_warp:
            return NO_ROWS
        if n_rows <= MOST_SCALING_ROWS:
            return np.arange(n_rows)
        return np.sort(random.choice(n_rows, MOST_SCALING_ROWS, replace=False))

    def rows_for_trials(self, held: Numbers, random: np.random.Generator) -> Numbers:
        free = np.setdiff1d(np.arange(len(self._table)), held)
        return random.choice(free, min(len(free), MOST_TRIAL_ROWS), replace=False)

    def fetch(self, *numbers: Numbers) -> None:
        """Do nothing: they are here."""

    def pick(self, numbers: Numbers) -> Rows:
        return self._table[numbers], self._labels[numbers]

    def some_labels(self, scaling_rows: Numbers) -> NDArray[np.float64]:  # noqa: ARG002
        return self._labels

    def limit_labels(self, limits: LabelLimits) -> Moments | None:
        limited = limits.apply(self._labels)
        if limited is self._labels:
            return None
        warn_of_limits(limits)
        self._labels = limited
        return label_moments(limited)

    def surround(
        self,
        parameters: Parameters,
        seen: Survey,
        held: Numbers,
        found: Found,
        random: np.random.Generator,
    ) -> tuple[Choice, Survey]:
        free = np.setdiff1d(np.arange(len(self._table)), held)
        known = Known(self._table, self._labels, seen.range, free, found)
        choice = fit_mean_function(known, parameters, random, fit_rows)
        function = choice.mean_function
        if function is None:
            return choice, seen
        self._table = function.columns(self._table, choice.means)
        self._means = function.offset(choice.means)
        self._labels = residuals(self._labels, self._means)
        return choice, self.survey()

    def use(self, scaling: Scaling, held: Numbers) -> None:
        self._rows = scaling.apply(self._table)
        self._labels = self._labels.copy()
        self._means = self._means.copy()
        self._arrivals = np.arange(len(self._rows))
        self.hold_out(held)

    def hold_out(self, numbers: Numbers) -> None:
        """Let some rows change places with those at the end."""
        first = len(self._rows) - len(numbers)
        away = numbers[numbers < first]  # the others are there already
        free = np.setdiff1d(np.arange(first, len(self._rows)), numbers)
        for array in (self._rows, self._labels, self._means, self._arrivals):
            array[away], array[free] = array[free], array[away]
        self._n_held = len(numbers)

    def held(self) -> HeldOut:
        first = len(self._rows) - self._n_held
        return HeldOut(self._rows[first:], self._labels[first:], self._arrivals[first:])

    def grow(
        self,
        growth: Growth,
        model: LabelModel,
        states: NDArray[np.uint64],
    ) -> tuple[Grove, NDArray[np.uint64], int]:
        n_used = len(self._rows) - self._n_held
        grove = sample_trees(self._rows, self._labels, n_used, growth, model, states, self._n_jobs)
        return grove, states, n_used

    def label_memory(self, grove: Grove) -> LabelMemory:
        return label_memory(grove, self._labels)

    def join_held(self, state: ForestState) -> ForestState:
        n_rows = len(self._rows)
        state = state.but(
            rows=self._rows, labels=self._labels, means=self._means, arrivals=self._arrivals,
            n_rows=n_rows, n_seen=n_rows,
        )  # fmt: skip
        if self._n_held > 0:
            state = state.but(grove=linked(state.grove))
            state = finish(with_joining(state, n_rows), self._n_jobs)
        return state
