"""An exact fit to data that no process holds at once.

1. One pass finds ranges, label moments and lengths; another, where it is needed, fetches the few
   rows from which feature weights, the spread and the resolution of the labels are learned; a third
   scales the rows, which then stay on their workers.
2. The tops of all trees grow in rounds, see ``_core.top``. A round is a pass over the rows.
3. Some trees at a time, the rows of closed blocks come together, and workers grow the subtrees.
4. Tops and subtrees are joined, and the label model is computed from what the nodes have counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._core.arrays.grove import Grove, allocate_grove, linked
from .._core.arrays.memory import release
from .._core.arrays.rng import random_states
from .._core.growth.learn import log_likelihood, renew
from .._core.growth.top import (
    CLOSED,
    LEAF,
    Joining,
    Left,
    Top,
)
from .._core.labels import Hierarchical, Pruned
from .._core.moments import Moments, merge_samples
from .._forest.outliers import LabelLimits, learn_limits, warn_of_limits
from .._forest.weights import MOST_ROWS
from ..forest import FEW_HELD, ONE_TURN, MondrianForestRegressor, resolution_of
from . import tasks
from .collections import Client, Table, cluster_told, dask, find_client, open_table
from .memory import Watch, bytes_of_row

_FAN_IN = 8
"""Reports that are joined by one task."""
_MEMORY_TO_SORT = 0.2
"""Share of a worker's memory for rows that are on their way to their blocks."""
_FEW_BYTES = 2**31
"""Memory of a worker that has no limit, for the same purpose."""
_MOST_ROWS = 2**31 - 1
"""Nodes count their rows in 32 bits."""


def fit(
    forest: MondrianForestRegressor,
    X: Any,
    y: Any,
    *,
    client: Client | None = None,
    block_rows: int = 200_000,
    keep_rows: bool = True,
    progress: Callable[[str, int], None] | None = None,
) -> MondrianForestRegressor:
    """Fit a forest to a Dask collection.

    The law is that of a fit to all rows in memory, and for a seed the trees do not depend on how
    the rows are spread over partitions and workers (with ``n_candidate_splits`` above 1, but for
    cuts that separate the labels equally well up to rounding).

    Parameters
    ----------
    forest : MondrianForestRegressor
        Its parameters count; it stays as it is. A trend is not supported.
    X : dask DataFrame or dask array of shape (n_samples, n_features)
        Lengths of partitions need not be known; some may be empty.
    y : dask Series or array, or the name of a column of X
    client : distributed.Client, default=None
        None: the one that is in use.
    block_rows : int, default=200_000
        Blocks of at most so many rows are grown by one worker each.
    keep_rows : bool, default=True
        Fetch all rows to this process, in single precision, so that the forest can learn more.
        False: it is as after ``freeze``; the rows on which the spread was learned, a thousand of
        many, have no part in it then.
    progress : callable, default=None
        Is told what is done, and how many rows or trees of it.

    Returns
    -------
    MondrianForestRegressor
        An ordinary one.
    """
    if not isinstance(block_rows, int) or isinstance(block_rows, bool) or block_rows < 1:
        raise ValueError(f"block_rows must be a positive integer, got {block_rows!r}.")
    fitted: MondrianForestRegressor = clone(forest)
    fitted._check_parameters()
    if fitted.trend is not None:
        raise ValueError("A distributed fit has no trend: subtract one from y, or set trend=None.")
    tell = progress or (lambda _what, _count: None)
    table = open_table(X, y)
    client = find_client(client)
    with cluster_told(client):
        _Fit(fitted, table, client, block_rows, keep_rows, tell).run()
    return fitted


class _Fit:
    """One fit, step by step."""

    def __init__(
        self,
        forest: MondrianForestRegressor,
        table: Table,
        client: Client,
        block_rows: int,
        keep_rows: bool,
        tell: Callable[[str, int], None],
    ) -> None:
        self.forest, self.table, self.client = forest, table, client
        self.block_rows, self.keep_rows, self.tell = block_rows, keep_rows, tell
        self.n_rounds = 0
        self.watch = Watch(client)

    def run(self) -> None:
        forest = self.forest
        self.watch.refuse_small_workers()
        n_rows, n_features, sums = self._survey()
        self.watch.refuse_too_many_rows(n_rows, n_features, forest.n_estimators)
        random = forest._begin(n_rows, n_features)
        none = np.empty(0, np.int64)
        held = np.sort(forest._choose_spread_rows(n_rows, ONE_TURN, random))
        weighed = some = none
        if isinstance(forest.feature_weights, str):
            drawn = random.choice(n_rows, min(n_rows, 2 * MOST_ROWS), replace=False)
            weighed = np.setdiff1d(drawn, held)  # of which so many are used as a local fit uses
        if issubclass(forest._model_class, Pruned) or forest.robust:
            some = np.arange(0, n_rows, -(-n_rows // 10_000))
        fetched = np.unique(np.concatenate([held, weighed, some]))
        rows, labels = self._fetch(fetched)
        places = np.searchsorted(fetched, some)
        if forest.robust:
            forest._label_limits = learn_limits(labels[places])
            sums = self._limit_labels(sums)
            labels = forest._label_limits.apply(labels)
        else:
            forest._label_limits = LabelLimits()
        forest._learn_scaling(rows[places], random)
        places = np.searchsorted(fetched, weighed)
        forest._weigh(forest._find_weights(rows[places], labels[places], none, random))
        forest._has_rescaled = False
        forest._trend = None
        forest._resolution = resolution_of(labels[np.searchsorted(fetched, some)])
        places = np.searchsorted(fetched, held)
        held_rows, held_labels = forest._scale(rows[places]), labels[places]
        forest._estimate(sums)
        self._grow_all(held, n_features)
        if len(held) > 0:
            forest._learn_spread(held_rows, held_labels)
            if len(held) > FEW_HELD * n_rows:  # as in a local fit
                self._grow_all(none, n_features)
                held_rows, held_labels = held_rows[:0], held_labels[:0]
        self._finish(held_rows, held_labels)

    def _grow_all(self, held: NDArray[np.int64], n_features: int) -> None:
        """Grow the forest on all rows but those that are held back."""
        forest = self.forest
        self.parts = self._scale(held)
        self.n_used = sum(self.used)
        forest.n_samples_seen_ = self.n_used
        forest._grove = self._grow(n_features)
        # Other streams for whatever is sampled next.
        forest._random_states = random_states(
            np.random.SeedSequence(forest._random_states.ravel().tolist()), forest.n_estimators
        )
        forest._in_threads(
            lambda number: renew(forest._grove, number, forest._label_model()),
            forest._grove.n_trees,
        )

    def _compute(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return futures of a function of each partition, which is loaded where it is needed."""
        names = self.table.names
        tasks = [
            dask.delayed(task)(number, X, y, names, *more)
            for number, ((X, y), more) in enumerate(zip(self.table.pairs, arguments, strict=True))
        ]
        return list(self.client.compute(tasks))

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Return results, or an error if the workers have too little memory for them."""
        self.watch.until_done(futures)
        return list(self.client.gather(futures))

    def _survey(self) -> tuple[int, int, Moments]:
        n_parts = len(self.table.pairs)
        found = self._gather(self._compute(tasks.survey, [()] * n_parts))
        self.lengths = [0 if one is None else one.sums.n_samples for one in found]
        known = [one for one in found if one is not None]
        if not known:
            raise ValueError("There are no rows: all partitions are empty.")
        if sum(self.lengths) > _MOST_ROWS:
            raise ValueError(
                f"There are {sum(self.lengths):,} rows, and at most {_MOST_ROWS:,} can be fitted: "
                "take a sample of them."
            )
        widths = {len(one.low) for one in known}
        if len(widths) > 1:
            raise ValueError(f"Partitions have different numbers of columns: {sorted(widths)}.")
        forest = self.forest
        n_features = widths.pop()
        forest.n_features_in_ = n_features
        if self.table.names is not None:
            forest.feature_names_in_ = np.array(self.table.names, dtype=object)
        forest._seen_range = (
            np.min([one.low for one in known], axis=0),
            np.max([one.high for one in known], axis=0),
        )
        self.label_range = (
            min(one.lowest_label for one in known),
            max(one.highest_label for one in known),
        )
        sums = _total([one.sums for one in known])
        self.tell("rows", sums.n_samples)
        return sums.n_samples, n_features, sums

    def _limit_labels(self, sums: Moments) -> Moments:
        """Return the sums of the labels as they are learned."""
        limits = self.forest._label_limits
        lowest, highest = self.label_range
        if limits.low <= lowest and highest <= limits.high:
            return sums
        warn_of_limits(limits, stacklevel=5)
        found = self._gather(self._compute(tasks.sum_labels, [(limits,)] * len(self.lengths)))
        return _total([one for one in found if one is not None])

    def _local(self, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return numbers within each partition, of rows that are numbered from first to last."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        return [
            numbers[(numbers >= start) & (numbers < end)] - start
            for start, end in zip(starts, ends, strict=True)
        ]

    def _fetch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return some rows, with their labels, in the order of their numbers, which ascend."""
        if len(numbers) == 0:
            return np.empty((0, self.forest.n_features_in_)), np.empty(0)
        chosen = [(local,) for local in self._local(numbers)]
        found = self._gather(self._compute(tasks.pick, chosen))
        rows = [rows for rows, _ in found if len(rows) > 0]
        return np.concatenate(rows), np.concatenate([labels for _, labels in found])

    def _scale(self, held: NDArray[np.int64]) -> list[Any]:
        local = self._local(held)
        used = [length - len(one) for length, one in zip(self.lengths, local, strict=True)]
        starts = np.cumsum([0, *used[:-1]]).tolist()
        forest = self.forest
        scaling = forest._scaling, forest._warp, forest._label_limits
        arguments = [(one, start, *scaling) for one, start in zip(local, starts, strict=True)]
        self.used = used
        parts = self._compute(tasks.scale, arguments)
        self.watch.until_done(parts)
        # Work on a part goes to where it is, unless that worker is lost: Dask alone would move
        # parts, and what was sorted for others, to whoever is free.
        where = self.client.who_has(parts)
        self.homes = [tuple(where[part.key]) for part in parts]
        return parts

    def _at_home(
        self, task: Callable[..., Any], numbers: Sequence[int], *arguments: list[Any], **more: Any
    ) -> list[Any]:
        """Return futures of work on parts, whose numbers are given."""
        places: dict[tuple[str, ...], list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(self.homes[number], []).append(place)
        found: list[Any] = [None] * len(numbers)
        for home, mine in places.items():  # a call for each part would take longer than the work
            futures = self.client.map(
                task,
                *([argument[place] for place in mine] for argument in arguments),
                pure=False,
                workers=list(home) or None,
                allow_other_workers=len(home) > 0,
                **more,
            )
            for place, future in zip(mine, futures, strict=True):
                found[place] = future
        return found

    def _for_each_part(self, task: Callable[..., Any], states: list[Any], **more: Any) -> list[Any]:
        """Return futures of a function of each part, and of the blocks that its rows are in."""
        return self._at_home(task, range(len(self.parts)), self.parts, states, **more)

    def _grow(self, n_features: int) -> Grove:
        forest = self.forest
        seeds = [tuple(int(word) for word in state) for state in forest._random_states]
        growth = forest._growth
        tops = [
            Top(
                seed,
                n_features,
                growth.min_samples_split,
                growth.lifetime,
                growth.n_candidate_splits,
                self.block_rows,
            )
            for seed in seeds
        ]
        all_parts = range(len(self.parts))
        states = self._at_home(tasks.first_blocks, all_parts, self.parts, n_trees=len(tops))
        waiting = dict.fromkeys(range(len(tops)), 0)
        while waiting:
            self.n_rounds += 1
            asked = [
                (number, first, tops[number].n_blocks - first) for number, first in waiting.items()
            ]
            reports = self._reduce(tasks.report_blocks, states, asked)
            drawn = {
                number: candidates
                for (number, _, _), news in zip(asked, reports, strict=True)
                if (candidates := tops[number].draw(news)) is not None
            }
            lefts: dict[int, Left | None] = dict.fromkeys(drawn)
            if drawn and growth.n_candidate_splits > 1:
                found = self._reduce(tasks.look_left_of_cuts, states, list(drawn.items()))
                lefts = dict(zip(drawn, found, strict=True))
            waiting = {number: tops[number].n_blocks for number in drawn}
            cuts = {
                number: tops[number].cut(candidates, lefts[number])
                for number, candidates in drawn.items()
            }
            if cuts:
                states = self._for_each_part(tasks.advance, states, cuts=cuts)
            self.tell("rounds", self.n_rounds)
        return self._grow_subtrees(tops, states, n_features)

    def _reduce(self, task: Callable[..., Any], states: list[Any], asked: list[Any]) -> list[Any]:
        """Return what all partitions say together, joined on the way by the workers."""
        futures = self._for_each_part(task, states, asked=asked)
        while len(futures) > 1:
            futures = [
                self.client.submit(tasks.join, futures[first : first + _FAN_IN], pure=False)
                for first in range(0, len(futures), _FAN_IN)
            ]
        found: list[Any] = self._gather(futures)[0]
        return found

    def _grow_subtrees(self, tops: list[Top], states: list[Any], n_features: int) -> Grove:
        grove = allocate_grove(len(tops), self.n_used, n_features, is_linked=False)
        if not self.keep_rows:
            grove = grove._replace(row_numbers=grove.row_numbers[:, :0])
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        n_at_once = self._trees_at_once(workers, n_features)
        n_groups = -(-2 * sum(worker["nthreads"] for worker in workers) // n_at_once)
        started = deque(
            self._start_subtrees(number, top, states, n_groups)
            for number, top in enumerate(tops[:n_at_once])
        )
        for number, top in enumerate(tops):
            grown, in_leaves = started.popleft()
            self.watch.until_done(grown)
            following = number + n_at_once
            if following < len(tops):  # which goes on while this one is fetched
                started.append(self._start_subtrees(following, tops[following], states, n_groups))
            leaf_rows = {}
            if self.keep_rows:
                found = self._gather(in_leaves)
                for place, block in enumerate(top.blocks_of(LEAF)):
                    leaf_rows[block] = np.concatenate([one[place] for one in found])
            room = grove.room(number)
            joining = Joining(top, room, grove.row_numbers[number])
            joining.add({}, leaf_rows)
            for group in grown:  # one after the other: all of them would take twice the memory
                joining.add(self.client.gather(group), leaf_rows)
            grove.sizes[number] = joining.finish()
            for array in room:
                release(array[joining.n_nodes :])
            self.tell("trees", number + 1)
        return grove

    def _trees_at_once(self, workers: Collection[dict[str, Any]], n_features: int) -> int:
        """Return how many trees' rows workers can sort at once: the more, the fewer tasks."""
        at_hand = min((worker["memory_limit"] or _FEW_BYTES for worker in workers), default=0)
        each_tree = 1.2 * bytes_of_row(n_features) * self.n_used / max(len(workers), 1)
        return int(np.clip(_MEMORY_TO_SORT * at_hand // each_tree, 1, self.forest.n_estimators))

    def _start_subtrees(
        self, number: int, top: Top, states: list[Any], n_groups: int
    ) -> tuple[list[Any], list[Any]]:
        """Return futures of the subtrees of one tree, and of the rows in leaves of its top."""
        groups = _in_groups(top.blocks_of(CLOSED), top.reports.n_rows, n_groups)
        split, grown = [], []
        if groups:
            split = self._for_each_part(
                tasks.split, states, number=number, groups=groups, keep_rows=self.keep_rows
            )
        n_parts = len(split)
        pieces = self._at_home(
            getitem,
            list(range(n_parts)) * len(groups),
            split * len(groups),
            [group for group in range(len(groups)) for _ in range(n_parts)],
        )
        for group, blocks in enumerate(groups):
            mine = pieces[group * n_parts : (group + 1) * n_parts]
            seeds = {
                int(block): (top.start_time[block], top.random_state(block)) for block in blocks
            }
            grown.append(
                self.client.submit(tasks.grow_group, mine, seeds, self.forest._growth, pure=False)
            )
        in_leaves = []
        if self.keep_rows:
            in_leaves = self._for_each_part(
                tasks.rows_of, states, number=number, wanted=top.blocks_of(LEAF)
            )
        return grown, in_leaves

    def _finish(self, held_rows: NDArray[np.float32], held_labels: NDArray[np.float64]) -> None:
        """Let the rows that were held back join, and keep what is to be kept."""
        forest = self.forest
        n_held = len(held_labels)
        forest._rows, forest._labels = held_rows[:0], held_labels[:0]
        if self.keep_rows:
            found = self._gather(self.parts)
            forest._rows = np.concatenate([*(part.rows for part in found), held_rows])
            forest._labels = np.concatenate([*(part.labels for part in found), held_labels])
            if n_held > 0:
                forest._grove = linked(forest._grove)
                end = self.n_used + n_held
                forest.n_samples_seen_ = end
                forest._make_room_in_trees(end)
                forest._extend_all(end, is_due=False)
        forest._maximise_evidence()
        if not self.keep_rows:
            model = forest._label_model()
            if isinstance(model, Hierarchical):
                forest._log_likelihoods = np.array(
                    [
                        log_likelihood(forest._grove, number, model)
                        for number in range(forest._grove.n_trees)
                    ]
                )
            grove = forest._grove
            # As ``freeze`` does, but without a copy: nobody else has these arrays.
            forest._grove = grove._replace(
                tallies=grove.tallies[:, :1].copy(), row_numbers=grove.row_numbers[:, :0].copy()
            )
            forest._label_sums = forest._label_sums._replace(n_samples=self.n_used)


def _total(sums: list[Moments]) -> Moments:
    total = sums[0]
    for one in sums[1:]:
        total = merge_samples(total, one)
    return total


def _in_groups(blocks: list[int], counts: NDArray[np.int64], n_groups: int) -> list[list[int]]:
    """Divide blocks into groups of about the same number of rows, and keep their order."""
    middles = np.cumsum(counts[blocks]) - counts[blocks] / 2
    group = (middles * n_groups / counts[blocks].sum()).astype(np.int64)
    return [
        [block for block, mine in zip(blocks, group, strict=True) if mine == number]
        for number in np.unique(group)
    ]
