"""An exact fit to data that no process holds at once.

1. One pass finds ranges, label moments and lengths; another, where it is needed, fetches the few
   rows from which feature weights, the spread and the resolution of the labels are learned; a third
   scales the rows, which then stay on their workers.
2. The tops of all trees grow in rounds, see ``_core.top``. A round is a pass over the rows.
3. Some trees at a time, the rows of closed blocks come together, and workers grow the subtrees.
4. Tops and subtrees are joined, and the label model is computed from what the nodes have counted.

All tasks are pure: what is lost with a worker is computed again from what it was computed from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._core.intake import scale_rows, survey_features, survey_labels
from .._core.learn import (
    Grove,
    Settings,
    allocate_grove,
    linked,
    log_likelihood,
    renew,
)
from .._core.memory import release
from .._core.posterior import HIERARCHICAL, PRUNED, LabelSums
from .._core.rng import random_states
from .._core.top import (
    CLOSED,
    LEAF,
    Candidates,
    Cuts,
    Joining,
    Left,
    Reports,
    Subtree,
    Top,
    follow_cuts,
    grow_subtree,
    look_left,
    no_reports,
    report,
    sort_by_block,
)
from .._core.vector import padded_width
from ..forest import FEW_HELD, ONE_TURN, MondrianForestRegressor, resolution_of
from ..importance import MOST_ROWS
from .collections import Client, Table, cluster_told, dask, find_client, open_table, plain

_FAN_IN = 8
"""Reports that are joined by one task."""
_MEMORY_TO_SORT = 0.2
"""Share of a worker's memory for rows that are on their way to their blocks."""
_FEW_BYTES = 2**31
"""Memory of a worker that has no limit, for the same purpose."""
_MOST_ROWS = 2**31 - 1
"""Nodes count their rows in 32 bits."""


class Part(NamedTuple):
    """The rows of a partition as the trees see them, on their worker."""

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    first: int
    """Number of its first row among all."""


class Survey(NamedTuple):
    """What one partition says about all rows."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sums: LabelSums


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

    def run(self) -> None:
        forest = self.forest
        n_rows, n_features, sums = self._survey()
        random = forest._begin(n_rows, n_features)
        feature_range = forest._find_feature_range(n_features)
        none = np.empty(0, np.int64)
        held = np.sort(forest._choose_spread_rows(n_rows, ONE_TURN, random))
        weighed = some = none
        if isinstance(forest.feature_weights, str):
            drawn = random.choice(n_rows, min(n_rows, 2 * MOST_ROWS), replace=False)
            weighed = np.setdiff1d(drawn, held)  # of which so many are used as a local fit uses
        if forest._settings.posterior == PRUNED:
            some = np.arange(0, n_rows, -(-n_rows // 10_000))
        fetched = np.unique(np.concatenate([held, weighed, some]))
        rows, labels = self._fetch(fetched)
        places = np.searchsorted(fetched, weighed)
        forest.feature_weights_ = forest._find_weights(
            rows[places], labels[places], none, feature_range, random
        )
        forest._set_feature_range(*feature_range)
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
            lambda number: renew(
                forest._grove, number, forest._settings, forest._hyperparameters()
            ),
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

    def _survey(self) -> tuple[int, int, LabelSums]:
        n_parts = len(self.table.pairs)
        found = self.client.gather(self._compute(_survey, [()] * n_parts))
        self.lengths = [0 if one is None else one.sums.n_rows for one in found]
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
        sums = known[0].sums
        for one in known[1:]:
            sums = sums.plus(one.sums)
        self.tell("rows", sums.n_rows)
        return sums.n_rows, n_features, sums

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
        found = self.client.gather(self._compute(_pick, chosen))
        rows = [rows for rows, _ in found if len(rows) > 0]
        return np.concatenate(rows), np.concatenate([labels for _, labels in found])

    def _scale(self, held: NDArray[np.int64]) -> list[Any]:
        local = self._local(held)
        used = [length - len(one) for length, one in zip(self.lengths, local, strict=True)]
        starts = np.cumsum([0, *used[:-1]]).tolist()
        scaling = self.forest._scaling
        arguments = [(one, start, scaling) for one, start in zip(local, starts, strict=True)]
        self.used = used
        parts = self._compute(_scale, arguments)
        _await(parts)
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
        settings = forest._settings
        tops = [
            Top(
                seed,
                n_features,
                settings.min_samples_split,
                settings.lifetime,
                settings.n_candidate_splits,
                self.block_rows,
            )
            for seed in seeds
        ]
        all_parts = range(len(self.parts))
        states = self._at_home(_first_blocks, all_parts, self.parts, n_trees=len(tops))
        waiting = dict.fromkeys(range(len(tops)), 0)
        while waiting:
            self.n_rounds += 1
            asked = [
                (number, first, tops[number].n_blocks - first) for number, first in waiting.items()
            ]
            reports = self._reduce(_report, states, asked)
            drawn = {
                number: candidates
                for (number, _, _), news in zip(asked, reports, strict=True)
                if (candidates := tops[number].draw(news)) is not None
            }
            lefts: dict[int, Left | None] = dict.fromkeys(drawn)
            if drawn and settings.n_candidate_splits > 1:
                found = self._reduce(_look_left, states, list(drawn.items()))
                lefts = dict(zip(drawn, found, strict=True))
            waiting = {number: tops[number].n_blocks for number in drawn}
            cuts = {
                number: tops[number].cut(candidates, lefts[number])
                for number, candidates in drawn.items()
            }
            if cuts:
                states = self._for_each_part(_advance, states, cuts=cuts)
            self.tell("rounds", self.n_rounds)
        return self._grow_subtrees(tops, states, n_features)

    def _reduce(self, task: Callable[..., Any], states: list[Any], asked: list[Any]) -> list[Any]:
        """Return what all partitions say together, joined on the way by the workers."""
        futures = self._for_each_part(task, states, asked=asked)
        while len(futures) > 1:
            futures = [
                self.client.submit(_join, futures[first : first + _FAN_IN], pure=False)
                for first in range(0, len(futures), _FAN_IN)
            ]
        found: list[Any] = futures[0].result()
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
            _await(grown)
            following = number + n_at_once
            if following < len(tops):  # which goes on while this one is fetched
                started.append(self._start_subtrees(following, tops[following], states, n_groups))
            leaf_rows = {}
            if self.keep_rows:
                found = self.client.gather(in_leaves)
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
        each_row = 4 * n_features + 8
        each_tree = 1.2 * each_row * self.n_used / max(len(workers), 1)
        return int(np.clip(_MEMORY_TO_SORT * at_hand // each_tree, 1, self.forest.n_estimators))

    def _start_subtrees(
        self, number: int, top: Top, states: list[Any], n_groups: int
    ) -> tuple[list[Any], list[Any]]:
        """Return futures of the subtrees of one tree, and of the rows in leaves of its top."""
        groups = _in_groups(top.blocks_of(CLOSED), top.reports.n_rows, n_groups)
        split, grown = [], []
        if groups:
            split = self._for_each_part(
                _split, states, number=number, groups=groups, keep_rows=self.keep_rows
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
                self.client.submit(_grow_group, mine, seeds, self.forest._settings, pure=False)
            )
        in_leaves = []
        if self.keep_rows:
            in_leaves = self._for_each_part(
                _rows_of, states, number=number, wanted=top.blocks_of(LEAF)
            )
        return grown, in_leaves

    def _finish(self, held_rows: NDArray[np.float32], held_labels: NDArray[np.float64]) -> None:
        """Let the rows that were held back join, and keep what is to be kept."""
        forest = self.forest
        n_held = len(held_labels)
        forest._rows, forest._labels = held_rows[:0], held_labels[:0]
        if self.keep_rows:
            found = self.client.gather(self.parts)
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
            if forest._settings.posterior == HIERARCHICAL:
                forest._log_likelihoods = np.array(
                    [
                        log_likelihood(forest._grove, number, forest._hyperparameters())
                        for number in range(forest._grove.n_trees)
                    ]
                )
            grove = forest._grove
            # As ``freeze`` does, but without a copy: nobody else has these arrays.
            forest._grove = grove._replace(
                tallies=grove.tallies[:, :1].copy(), row_numbers=grove.row_numbers[:, :0].copy()
            )
            forest._label_sums = forest._label_sums._replace(n_rows=self.n_used)


def _await(futures: list[Any]) -> None:
    """Return when all are done; what went wrong with one shows when it is fetched."""
    for future in futures:
        future.exception()


def _survey(number: int, X: Any, y: Any, names: Any) -> Survey | None:
    table, labels = plain(number, X, y, names)
    if len(table) == 0:
        return None
    low, high = np.full(table.shape[1], np.inf), np.full(table.shape[1], -np.inf)
    survey_features(table, low, high)
    mean, squared_deviation, largest = survey_labels(labels)
    if largest > 1e150:
        raise ValueError(f"Partition {number} of y exceeds 1e150 in size: rescale y.")
    return Survey(low, high, LabelSums(len(labels), mean, squared_deviation))


def _pick(
    number: int, X: Any, y: Any, names: Any, chosen: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(chosen) == 0:
        return np.empty((0, 0)), np.empty(0)
    table, labels = plain(number, X, y, names)
    return table[chosen], labels[chosen]


def _scale(
    number: int, X: Any, y: Any, names: Any, held: NDArray[np.int64], first: int, scaling: Any
) -> Part:
    table, labels = plain(number, X, y, names)
    is_used = np.ones(len(table), bool)
    is_used[held] = False
    n_features = len(scaling[1])
    rows = np.empty((int(is_used.sum()), n_features), np.float32)
    if len(rows) > 0:
        unit, low, width = scaling
        scale_rows(np.ascontiguousarray(table[is_used]), unit, low, width, rows)
    return Part(rows, labels[is_used], first)


def _first_blocks(part: Part, n_trees: int) -> NDArray[np.int32]:
    return np.zeros((n_trees, len(part.rows)), np.int32)


def _report(
    part: Part, blocks: NDArray[np.int32], asked: list[tuple[int, int, int]]
) -> list[Reports]:
    found = []
    for number, first, n_blocks in asked:
        reports = no_reports(n_blocks, part.rows.shape[1])
        report(part.rows, part.labels, blocks[number], first, reports)
        found.append(reports)
    return found


def _look_left(
    part: Part, blocks: NDArray[np.int32], asked: list[tuple[int, Candidates]]
) -> list[Left]:
    found = []
    for number, candidates in asked:
        shape = candidates.feature.shape
        left = Left(np.zeros(shape, np.int64), np.zeros(shape))
        look_left(part.rows, part.labels, blocks[number], candidates, left)
        found.append(left)
    return found


def _join(found: list[list[Any]]) -> list[Any]:
    """Join what partitions say about each tree, in their order."""
    joined = found[0]
    for more in found[1:]:
        joined = [one.joined(other) for one, other in zip(joined, more, strict=True)]
    return joined


def _advance(part: Part, blocks: NDArray[np.int32], cuts: dict[int, Cuts]) -> NDArray[np.int32]:
    moved = blocks.copy()
    for number, one in cuts.items():
        follow_cuts(part.rows, one, moved[number])
    return moved


class Piece(NamedTuple):
    """What one part has of a group of closed blocks, block by block."""

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    numbers: NDArray[np.int32]
    """Among all rows; empty if they are not kept."""
    counts: NDArray[np.int64]
    """Of rows, by block."""


def _split(
    part: Part,
    blocks: NDArray[np.int32],
    number: int,
    groups: list[list[int]],
    keep_rows: bool,
) -> list[Piece]:
    """Return the rows of each group of closed blocks."""
    closed = np.concatenate([np.array(group, np.int64) for group in groups])
    n_blocks = max(int(blocks[number].max(initial=0)), int(closed.max())) + 1
    counts = np.bincount(blocks[number], minlength=n_blocks)
    ends = np.cumsum(counts[closed])
    place = np.full(n_blocks, -1, np.int64)
    place[closed] = ends - counts[closed]
    rows = np.empty((ends[-1], part.rows.shape[1]), np.float32)
    labels, numbers = np.empty(ends[-1]), np.empty(ends[-1], np.int32)
    sort_by_block(part.rows, part.labels, blocks[number], place, rows, labels, numbers)
    numbers += np.int32(part.first)
    found, start = [], 0
    for group in groups:
        stop = start + int(counts[group].sum())
        kept = numbers[start : stop if keep_rows else start]
        found.append(Piece(rows[start:stop], labels[start:stop], kept, counts[group]))
        start = stop
    return found


def _grow_group(
    pieces: list[Piece], seeds: dict[int, tuple[float, NDArray[np.uint64]]], settings: Settings
) -> dict[int, tuple[Subtree, NDArray[np.int32]]]:
    """Return subtrees, and their rows in the order of their nodes, by their blocks."""
    counts = np.array([piece.counts for piece in pieces])  # by part and block
    n_features = pieces[0].rows.shape[1]
    most = int(counts.sum(axis=0).max())
    rows, labels = np.empty((most, padded_width(n_features)), np.float32), np.empty(most)
    room = allocate_grove(1, most, n_features, is_linked=False).room(0)
    ends = np.cumsum(counts, axis=1)
    found = {}
    for place, (block, (start_time, random_state)) in enumerate(seeds.items()):
        stops = ends[:, place].tolist()
        inside = [
            slice(stop - count, stop)
            for stop, count in zip(stops, counts[:, place].tolist(), strict=True)
        ]
        size = 0
        for piece, one in zip(pieces, inside, strict=True):
            new = slice(size, size + one.stop - one.start)
            rows[new, :n_features] = piece.rows[one]
            labels[new] = piece.labels[one]
            size = new.stop
        subtree, order = grow_subtree(
            rows[:size],
            labels[:size],
            start_time,
            settings.min_samples_split,
            settings.lifetime,
            settings.n_candidate_splits,
            random_state.copy(),
            room,
        )
        numbers = np.concatenate(
            [piece.numbers[one] for piece, one in zip(pieces, inside, strict=True)]
        )
        found[block] = subtree, numbers[order] if len(numbers) > 0 else numbers
    return found


def _rows_of(
    part: Part, blocks: NDArray[np.int32], number: int, wanted: list[int]
) -> list[NDArray[np.int32]]:
    return [
        (np.flatnonzero(blocks[number] == block) + part.first).astype(np.int32) for block in wanted
    ]


def _in_groups(blocks: list[int], counts: NDArray[np.int64], n_groups: int) -> list[list[int]]:
    """Divide blocks into groups of about the same number of rows, and keep their order."""
    middles = np.cumsum(counts[blocks]) - counts[blocks] / 2
    group = (middles * n_groups / counts[blocks].sum()).astype(np.int64)
    return [
        [block for block, mine in zip(blocks, group, strict=True) if mine == number]
        for number in np.unique(group)
    ]
