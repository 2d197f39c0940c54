"""A fit to data that no process holds at once: the one recipe, over the rows of a cluster.

1. One pass finds ranges, label moments and lengths. Another, where it is needed, fetches the few
   rows from which scaling, feature weights, the spread and the resolution of the labels are
   learned. A third one scales the rows, which then stay on their workers.
2. The trees grow as ``growing`` says.
3. Rows that were held out join the trees, and what is to be kept is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._core.arrays.grove import Grove, linked
from .._core.arrays.rng import random_states
from .._core.growth import Growth
from .._core.growth.learn import renew
from .._core.labels import LabelModel, Pruned
from .._core.moments import Moments, merge_samples
from .._forest import held_out
from .._forest.choice import Choice, Known, fit_mean_function
from .._forest.held_out import HeldOut
from .._forest.intake import Survey
from .._forest.label_limits import LabelLimits, warn_of_limits
from .._forest.mean_function import MeanFunction, residuals
from .._forest.parallel import in_threads
from .._forest.parameters import Parameters, parameters_of
from .._forest.recipe import NO_ROWS, Numbers, Rows, Source, fit_rows
from .._forest.recipe import fit as fit_forest
from .._forest.scaling import Scaling
from .._forest.sharing import with_state
from .._forest.state import ForestState
from .._forest.trees import finish, with_joining, with_room
from .._forest.trials import Found
from .._forest.validation import check_integer
from .._forest.weights import MOST_ROWS as MOST_TRIAL_ROWS
from ..forest import MondrianForestRegressor
from . import tasks
from .collections import Client, Table, cluster_told, dask, find_client, open_table
from .growing import Cluster
from .memory import Watch

_MOST_ROWS = 2**31 - 1
"""Nodes count their rows in 32 bits."""
_SAMPLED_ROWS = 10_000
"""Scaling, limits and resolution of labels are learned from about so many rows."""
_MOST_MEAN_ROWS = 50_000
"""Rows that a mean function is fitted to."""

Tell = Callable[[str, int], None]


def fit(
    forest: MondrianForestRegressor,
    X: Any,
    y: Any,
    *,
    client: Client | None = None,
    block_rows: int = 200_000,
    keep_rows: bool = True,
    progress: Tell | None = None,
) -> MondrianForestRegressor:
    """Fit a forest to a Dask collection.

    The law is that of a fit to all rows in memory, and for a seed the trees do not depend on how
    the rows are spread over partitions and workers (with ``n_candidate_splits`` above 1, but for
    cuts that separate the labels equally well up to rounding).

    Parameters
    ----------
    forest : MondrianForestRegressor
        Its parameters are used; it stays as it is. A mean function is fitted to at most 50,000
        random rows, in this process. ``max_rows`` is not supported.
    X : dask DataFrame or dask array of shape (n_samples, n_features)
        Lengths of partitions need not be known; some may be empty.
    y : dask Series or array, or the name of a column of X
    client : distributed.Client, default=None
        None: the one that is in use.
    block_rows : int, default=200_000
        Blocks of at most so many rows are grown by one worker each.
    keep_rows : bool, default=True
        Fetch all rows to this process, in single precision, so that the forest can learn more.
        With ``n_candidate_splits`` above 1, as in the default, the first call of ``partial_fit`` or
        ``forget`` samples all trees anew in this process.
        False: it is as after ``freeze``; the rows on which the spread was learned, a thousand of
        many, have no part in it then.
    progress : callable, default=None
        Is called with what has been done, and with the number of its rows or trees.

    Returns
    -------
    MondrianForestRegressor
        An ordinary one.
    """
    check_integer("block_rows", block_rows, 1)
    fitted: MondrianForestRegressor = clone(forest)
    parameters = parameters_of(fitted)
    if parameters.max_rows is not None:
        raise ValueError("A distributed fit keeps all rows: set max_rows=None, or fit in memory.")
    tell = progress or (lambda _what, _count: None)
    table = open_table(X, y)
    client = find_client(client)
    names = None if table.names is None else np.array(table.names, dtype=object)
    with cluster_told(client):
        source = ClusterRows(table, client, parameters, block_rows, keep_rows, tell)
        return with_state(fitted, fit_forest(source, parameters, names))


class ClusterRows(Source):
    """The rows of a Dask collection, on the workers of a cluster."""

    n_turns = held_out.ONE_TURN
    takes_turns = False

    def __init__(
        self,
        table: Table,
        client: Client,
        parameters: Parameters,
        block_rows: int,
        keep_rows: bool,
        tell: Tell,
    ) -> None:
        self._table, self._client, self._parameters = table, client, parameters
        self._block_rows, self._keep_rows, self._tell = block_rows, keep_rows, tell
        self._watch = Watch(client)
        self._limits = LabelLimits()
        self._function: MeanFunction | None = None
        self._held: Numbers = NO_ROWS

    def survey(self) -> Survey:
        self._watch.refuse_small_workers()
        found = self._gather(self._compute(tasks.survey, [()] * len(self._table.pairs)))
        self._lengths = [0 if one is None else one.sums.n_samples for one in found]
        known = [one for one in found if one is not None]
        if not known:
            raise ValueError("There are no rows: all partitions are empty.")
        if sum(self._lengths) > _MOST_ROWS:
            raise ValueError(
                f"There are {sum(self._lengths):,} rows, and at most {_MOST_ROWS:,} can be "
                "fitted: take a sample of them."
            )
        widths = {len(one.low) for one in known}
        if len(widths) > 1:
            raise ValueError(f"Partitions have different numbers of columns: {sorted(widths)}.")
        self._label_range = (
            min(one.lowest_label for one in known),
            max(one.highest_label for one in known),
        )
        seen = _joined(known)
        self._n_columns = widths.pop()
        self._tell("rows", seen.moments.n_samples)
        self._watch.refuse_too_many_rows(
            seen.moments.n_samples, self._n_columns, self._parameters.n_estimators
        )
        return seen

    def rows_for_scaling(self, parameters: Parameters, random: np.random.Generator) -> Numbers:  # noqa: ARG002
        if not issubclass(parameters.posterior.model, Pruned) and not parameters.robust:
            return NO_ROWS
        n_rows = sum(self._lengths)
        return np.arange(0, n_rows, -(-n_rows // _SAMPLED_ROWS))

    def rows_for_trials(self, held: Numbers, random: np.random.Generator) -> Numbers:
        n_rows = sum(self._lengths)
        drawn = random.choice(n_rows, min(n_rows, 2 * MOST_TRIAL_ROWS), replace=False)
        free = np.setdiff1d(drawn, held)
        return random.choice(free, min(len(free), MOST_TRIAL_ROWS), replace=False)

    def rows_for_mean_function(self, random: np.random.Generator) -> Numbers:
        n_rows = sum(self._lengths)
        return random.choice(n_rows, min(n_rows, _MOST_MEAN_ROWS), replace=False)

    def fetch(self, *numbers: Numbers) -> None:
        """Fetch all that is asked for in one pass."""
        self._fetched = np.unique(np.concatenate(numbers))
        if len(self._fetched) == 0:
            self._rows, self._labels = np.empty((0, self._n_columns)), np.empty(0)
            return
        chosen = [(local,) for local in self._local(self._fetched)]
        found = self._gather(self._compute(tasks.pick, chosen))
        self._rows = np.concatenate([rows for rows, _ in found if len(rows) > 0])
        self._labels = np.concatenate([labels for _, labels in found])

    def pick(self, numbers: Numbers) -> Rows:
        places = np.searchsorted(self._fetched, numbers)
        return self._rows[places], self._labels[places]

    def some_labels(self, scaling_rows: Numbers) -> NDArray[np.float64]:
        return self.pick(scaling_rows)[1]

    def limit_labels(self, limits: LabelLimits) -> Moments | None:
        self._limits = limits
        self._labels = limits.apply(self._labels)
        lowest, highest = self._label_range
        if limits.low <= lowest and highest <= limits.high:
            return None
        warn_of_limits(limits)
        return self._survey_again().moments

    def surround(
        self,
        parameters: Parameters,
        seen: Survey,
        held: Numbers,
        found: Found,
        random: np.random.Generator,
    ) -> tuple[Choice, Survey]:
        free = np.flatnonzero(~np.isin(self._fetched, held))
        known = Known(self._rows, self._labels, seen.range, free, found)
        choice = fit_mean_function(known, parameters, random, fit_rows)
        function = choice.mean_function
        if function is None:
            return choice, seen
        self._function, self._means = function, choice.means
        self._rows = function.columns(self._rows, choice.means)
        self._labels = residuals(self._labels, function.offset(choice.means))
        self._n_columns = self._rows.shape[1]
        return choice, self._survey_again()

    def _survey_again(self) -> Survey:
        """Look over all rows and labels as trees see them by now."""
        views = [(self._limits, *view) for view in self._views()]
        found = self._gather(self._compute(tasks.survey, views))
        return _joined([one for one in found if one is not None])

    def _views(self) -> list[tuple[Any, tasks.Known]]:
        """Return the mean function, and what it says of the rows that it knows, by partition."""
        if self._function is None:
            return [(None, tasks.NOTHING_KNOWN)] * len(self._lengths)
        function = dask.delayed(self._function)
        ends = np.searchsorted(self._fetched, np.cumsum(self._lengths))
        means = np.split(self._means, ends[:-1])
        return [
            (function, tasks.Known(rows, one))
            for rows, one in zip(self._local(self._fetched), means, strict=True)
        ]

    def use(self, scaling: Scaling, held: Numbers) -> None:
        self._scaling = scaling
        self._held_rows = scaling.apply(self.pick(np.sort(held))[0])
        self._held_labels = self.pick(np.sort(held))[1]
        self.hold_out(np.sort(held))

    def hold_out(self, numbers: Numbers) -> None:
        """Scale the rows in use on their workers."""
        self._held = numbers
        if len(numbers) == 0:
            self._held_rows, self._held_labels = self._held_rows[:0], self._held_labels[:0]
        local = self._local(numbers)
        used = [length - len(one) for length, one in zip(self._lengths, local, strict=True)]
        starts = np.cumsum([0, *used[:-1]]).tolist()
        arguments = [
            (one, start, self._scaling, self._limits, *view)
            for one, start, view in zip(local, starts, self._views(), strict=True)
        ]
        self._n_used = sum(used)
        self._parts = self._compute(tasks.scale, arguments)
        self._watch.until_done(self._parts)

    def held(self) -> HeldOut:
        return HeldOut(self._held_rows, self._held_labels, self._held)

    def grow(
        self,
        growth: Growth,
        model: LabelModel,
        states: NDArray[np.uint64],
    ) -> tuple[Grove, NDArray[np.uint64], int]:
        cluster = Cluster(self._client, self._watch, self._parts, self._n_used, self._n_columns)
        grove = cluster.grow(growth, states, self._block_rows, self._keep_rows, self._tell)
        # Other streams for whatever is sampled next.
        seed = np.random.SeedSequence(states.ravel().tolist())
        n_jobs = self._parameters.n_jobs
        in_threads(lambda number: renew(grove, number, model), grove.n_trees, n_jobs)
        return grove, random_states(seed, len(states)), self._n_used

    def can_join(self, growth: Growth) -> bool:
        """Trees that come in parts have no candidate cuts: learning would sample them anew here."""
        return growth.n_candidate_splits == 1 or not self._keep_rows

    def join_held(self, state: ForestState) -> ForestState:
        if not self._keep_rows:
            return state
        found = self._gather(self._parts)
        rows = np.concatenate([*(part.rows for part in found), self._held_rows])
        labels = np.concatenate([*(part.labels for part in found), self._held_labels])
        means = np.concatenate([*(part.means for part in found), self._offset_of(self._held)])
        n_rows, n_jobs = len(labels), self._parameters.n_jobs
        used = np.setdiff1d(np.arange(n_rows), self._held)
        arrivals = np.concatenate((used, self._held))
        state = state.but(
            rows=rows, labels=labels, means=means, arrivals=arrivals,
            n_rows=n_rows, n_seen=n_rows,
        )  # fmt: skip
        if len(self._held_labels) > 0:
            state = state.but(grove=linked(state.grove))
            state = finish(with_joining(with_room(state, n_rows, n_jobs), n_rows), n_jobs)
        return state

    def _offset_of(self, numbers: Numbers) -> NDArray[np.float64]:
        """Return what has been subtracted from the labels of some fetched rows."""
        if self._function is None:
            return np.zeros(len(numbers))
        return self._function.offset(self._means[np.searchsorted(self._fetched, numbers)])

    def finished(self, state: ForestState) -> ForestState:
        """Drop what only learning needs, if rows are not kept: as ``freeze``, but without a copy.

        Nobody else has these arrays.
        """
        if self._keep_rows:
            return state
        likelihoods, grove = state.find_log_likelihoods(), state.grove
        bare = grove._replace(
            tallies=grove.tallies[:, :1].copy(), row_numbers=grove.row_numbers[:, :0].copy()
        )
        moments = state.label_moments._replace(n_samples=self._n_used)
        return state.dropping_rows(bare).but(log_likelihoods=likelihoods, label_moments=moments)

    def _compute(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return futures of a function of each partition, which is loaded where it is needed."""
        names = self._table.names
        tasks = [
            dask.delayed(task)(number, X, y, names, *more)
            for number, ((X, y), more) in enumerate(zip(self._table.pairs, arguments, strict=True))
        ]
        return list(self._client.compute(tasks))

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Return results, or raise an error if the workers have too little memory for them."""
        self._watch.until_done(futures)
        return list(self._client.gather(futures))

    def _local(self, numbers: Numbers) -> list[Numbers]:
        """Return numbers within each partition, of rows that are numbered from first to last."""
        ends = np.cumsum(self._lengths)
        starts = ends - self._lengths
        return [
            numbers[(numbers >= start) & (numbers < end)] - start
            for start, end in zip(starts, ends, strict=True)
        ]


def _joined(known: list[tasks.Survey]) -> Survey:
    """Return what all partitions say together."""
    total = known[0].sums
    for one in known[1:]:
        total = merge_samples(total, one.sums)
    low = np.min([one.low for one in known], axis=0)
    high = np.max([one.high for one in known], axis=0)
    return Survey((low, high), total, True)
