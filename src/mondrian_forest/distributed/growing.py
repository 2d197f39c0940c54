"""Trees over rows that no process holds at once.

The tops of all trees grow in rounds, see ``_core.growth.top``. A round is a pass over the rows.
Then, some trees at a time, the rows of closed blocks come together, and workers grow the subtrees.
Tops and subtrees are joined here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.grove import Grove, allocate_grove
from .._core.arrays.memory import release
from .._core.growth import Growth
from .._core.growth.top import CLOSED, LEAF, Joining, Left, Top
from . import tasks
from .collections import Client
from .memory import Watch, bytes_of_row

_FAN_IN = 8
"""Reports that are joined by one task."""
_MEMORY_TO_SORT = 0.2
"""Share of a worker's memory for rows that are on their way to their blocks."""
_FEW_BYTES = 2**31
"""Memory of a worker that has no limit, for the same purpose."""


class Cluster:
    """Grows trees on parts of the rows, each of which stays on its worker."""

    def __init__(
        self, client: Client, watch: Watch, parts: list[Any], n_used: int, n_features: int
    ) -> None:
        self.client, self.watch, self.parts = client, watch, parts
        self.n_used, self.n_features = n_used, n_features
        # Work on a part goes to where it is, unless that worker is lost: Dask alone would move
        # parts, and what was sorted for others, to whoever is free.
        where = client.who_has(parts)
        self.homes = [tuple(where[part.key]) for part in parts]

    def grow(
        self,
        growth: Growth,
        states: NDArray[np.uint64],
        block_rows: int,
        keep_rows: bool,
        tell: Callable[[str, int], None],
    ) -> Grove:
        """Grow a tree for each random stream; blocks of at most ``block_rows`` go to a worker."""
        self.growth, self.keep_rows, self.tell = growth, keep_rows, tell
        tops = [
            Top(
                tuple(int(word) for word in state),
                self.n_features,
                growth,
                block_rows,
            )
            for state in states
        ]
        return self._grow_subtrees(tops, self._grow_tops(tops))

    def _grow_tops(self, tops: list[Top]) -> list[Any]:
        """Grow all tops, in rounds; return futures of the blocks that rows are in then."""
        all_parts = range(len(self.parts))
        states = self._at_home(tasks.first_blocks, all_parts, self.parts, n_trees=len(tops))
        waiting = dict.fromkeys(range(len(tops)), 0)
        n_rounds = 0
        while waiting:
            n_rounds += 1
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
            if drawn and self.growth.n_candidate_splits > 1:
                found = self._reduce(tasks.look_left_of_cuts, states, list(drawn.items()))
                lefts = dict(zip(drawn, found, strict=True))
            waiting = {number: tops[number].n_blocks for number in drawn}
            cuts = {
                number: tops[number].cut(candidates, lefts[number])
                for number, candidates in drawn.items()
            }
            if cuts:
                states = self._for_each_part(tasks.advance, states, cuts=cuts)
            self.tell("rounds", n_rounds)
        return states

    def _reduce(self, task: Callable[..., Any], states: list[Any], asked: list[Any]) -> list[Any]:
        """Return what all partitions say together, joined on the way by the workers."""
        futures = self._for_each_part(task, states, asked=asked)
        while len(futures) > 1:
            futures = [
                self.client.submit(tasks.join, futures[first : first + _FAN_IN], pure=False)
                for first in range(0, len(futures), _FAN_IN)
            ]
        self.watch.until_done(futures)
        found: list[Any] = self.client.gather(futures)[0]
        return found

    def _grow_subtrees(self, tops: list[Top], states: list[Any]) -> Grove:
        grove = allocate_grove(len(tops), self.n_used, self.n_features, is_linked=False)
        if not self.keep_rows:
            grove = grove._replace(row_numbers=grove.row_numbers[:, :0])
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        n_at_once = self._trees_at_once(workers, len(tops))
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
                self.watch.until_done(in_leaves)
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

    def _trees_at_once(self, workers: Collection[dict[str, Any]], n_trees: int) -> int:
        """Return how many trees' rows workers can sort at once: the more, the fewer tasks."""
        at_hand = min((worker["memory_limit"] or _FEW_BYTES for worker in workers), default=0)
        each_tree = 1.2 * bytes_of_row(self.n_features) * self.n_used / max(len(workers), 1)
        return int(np.clip(_MEMORY_TO_SORT * at_hand // each_tree, 1, n_trees))

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
            grown.append(self.client.submit(tasks.grow_group, mine, seeds, self.growth, pure=False))
        in_leaves = []
        if self.keep_rows:
            in_leaves = self._for_each_part(
                tasks.rows_of, states, number=number, wanted=top.blocks_of(LEAF)
            )
        return grown, in_leaves

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


def _in_groups(blocks: list[int], counts: NDArray[np.int64], n_groups: int) -> list[list[int]]:
    """Divide blocks into groups of about the same number of rows, and keep their order."""
    middles = np.cumsum(counts[blocks]) - counts[blocks] / 2
    group = (middles * n_groups / counts[blocks].sum()).astype(np.int64)
    return [
        [block for block, mine in zip(blocks, group, strict=True) if mine == number]
        for number in np.unique(group)
    ]
