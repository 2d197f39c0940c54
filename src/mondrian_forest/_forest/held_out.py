"""The spread of the predictions, learned from rows that are predicted before they are learned."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.labels import LabelModel
from .._core.mixtures.collect import predict_mixture
from .._core.mixtures.ensemble import Ensemble
from .._core.mixtures.neighbours import LabelMemory, find_neighbours
from .._core.moments import Moments
from .._core.spread.apply import Spread
from .._core.spread.blend import KINDS, least_width, with_moments
from .._core.spread.learn import learn_factors, learn_spread
from .._core.spread.record import RECORD, measure
from .parallel import in_threads
from .scaling import slices

FEWEST_ROWS = 50
"""With fewer rows in all, no spread is learned."""
MOST_ROWS = 1000
"""The spread is learned from at most this many rows. On small tables, further tenths are held out
in turn until so many rows have been scored. With fifths instead of tenths, forests of small tables
were better in the end than the spread had been told, and covered too much: by 3 to 6% on sml and
wine."""
MOST_TURNS = 10
ONE_TURN = 5
"""Where there is one turn only, a fifth of the rows is held out, not a tenth."""
FEW = 0.05
"""If a larger share of rows than this is held out, it does not join the trees online: all trees are
sampled anew, which takes no longer then. With cuts that look at the labels, errors are 2 or 3%
smaller (a fifth of the rows held out), since all rows take part in the choice of cuts."""
EVERY = 32
"""In a stream, one row in 32 is predicted before it is learned, to keep the spread current."""
FEW_SEEN = 300
"""Every row is until twice this number has been learned, then every second one, and so on."""
_AT_A_TIME = 8
"""The spread is learned whenever so many of these rows have been predicted."""
_RECENT = 0.4
"""In a stream, the spread is learned from rows that were predicted since the forest had so large a
share of its rows, or from the latest ones. With all that are on record, intervals of 95% covered
98.7% of Friedman's function, and 97.5% after a batch fit; with a share of 0.5 they covered 97%, but
the density of other tables was less, since there were fewer rows."""
_FEWEST_RECENT = 500
_BLOCK = 64
"""Rows that a thread measures at a time."""


class HeldOut(NamedTuple):
    """Rows that the trees have not learned yet."""

    rows: NDArray[np.float32]
    labels: NDArray[np.float64]
    arrivals: NDArray[np.int64]
    """How many rows came before each."""


def hold_out(n_rows: int, n_turns: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the numbers of the rows that are held out first."""
    if n_rows < FEWEST_ROWS:
        return np.empty(0, dtype=np.int64)
    return random.choice(n_rows, min(n_rows // n_turns, MOST_ROWS), replace=False)


def hold_out_more(n_rows: int, n_held: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the numbers of the rows that are held out in further turns, if the first are few.

    They are not among the last ``n_held`` rows, where the first ones are kept.
    """
    n_turns = min(MOST_ROWS // n_held, MOST_TURNS) - 1
    free = random.permutation(n_rows - n_held)[: n_turns * n_held]
    return np.split(free, n_turns) if n_turns > 0 else []


def scored_rows(n_seen: int, n_new: int) -> NDArray[np.int64]:
    """Return which of the new rows of a stream are predicted before they are learned."""
    every = _every(n_seen)
    return np.arange(-n_seen % every, n_new, every)


def must_learn_spread(n_seen: int, n_new: int) -> bool:
    """Return whether the spread is learned with the new rows of a stream.

    Where they come one by one, it would take longer to learn it for each than to predict it.
    """
    interval = _AT_A_TIME * _every(n_seen)
    return n_seen // interval != (n_seen + n_new) // interval


def _every(n_seen: int) -> int:
    return min(max(n_seen // FEW_SEEN, 1), EVERY)


def no_record() -> NDArray[Any]:
    """Return the record of no rows."""
    return np.empty(0, RECORD)


def learn_from_held_out(
    ensemble: Ensemble,
    record: NDArray[Any],
    memory: LabelMemory | None,
    held: HeldOut,
    all_labels: Moments,
    far: float,
    n_jobs: int | None,
) -> tuple[Spread, NDArray[Any]]:
    """Return the spread that suits rows which the trees have not learned, and the longer record.

    ``record`` is that of earlier rows; the oldest ones are forgotten. ``memory`` has the labels of
    the trees. ``all_labels`` are the moments of all labels: far from the data, forecasts have
    ``far`` times their standard deviation.
    """
    found = extended_record(ensemble, record, memory, held, n_jobs)
    return spread_of(found, all_labels, ensemble.model, far), found


def extended_record(
    ensemble: Ensemble,
    record: NDArray[Any],
    memory: LabelMemory | None,
    held: HeldOut,
    n_jobs: int | None,
) -> NDArray[Any]:
    """Return the record with rows that the trees have not learned."""
    held = HeldOut(
        np.ascontiguousarray(held.rows[-MOST_ROWS:]),
        np.ascontiguousarray(held.labels[-MOST_ROWS:]),
        np.ascontiguousarray(held.arrivals[-MOST_ROWS:]),
    )
    found = record
    # Balances are judged with the factors that are known, and at first none are: hence twice.
    for _ in range(1 if len(record) > 0 else 2):
        new = _measured(ensemble, memory, held, learn_factors(found), n_jobs)
        found = np.concatenate((record, new))[-MOST_ROWS:]
    return found


def _recent(record: NDArray[Any], n_samples: int) -> NDArray[Any]:
    """Return the part of a record that tells about a forest of so many rows.

    A forest that was smaller had larger errors, also compared with what it predicted.
    """
    n_recent = int(np.sum(record["n_samples"] >= _RECENT * n_samples))
    return record[-max(n_recent, _FEWEST_RECENT) :]


def spread_of(record: NDArray[Any], all_labels: Moments, model: LabelModel, far: float) -> Spread:
    """Return the spread that suits a record of at least one row."""
    variance = all_labels.squared_deviation / all_labels.n_samples
    far_deviation = far * math.sqrt(max(variance, model.noise_variance))
    recent = _recent(record, all_labels.n_samples)
    return learn_spread(recent, far_deviation, all_labels.n_samples)


def _measured(
    ensemble: Ensemble,
    memory: LabelMemory | None,
    held: HeldOut,
    factors: Spread,
    n_jobs: int | None,
) -> NDArray[Any]:
    """Return the record of rows, of what the trees predict for them, and of their labels."""
    rows, labels, arrivals = held
    least = least_width(ensemble.model.noise_variance)
    n_samples = int(ensemble.nodes[0, 0]["n_samples"])
    parts = slices(len(rows), _BLOCK)
    record = np.empty(len(rows), RECORD)
    record["arrival"] = arrivals

    def measure_part(number: int) -> None:
        part = parts[number]
        moments, mixture = predict_mixture(ensemble, rows[part])
        near = [find_neighbours(ensemble, rows[part], memory, is_pruned=kind) for kind in KINDS]
        if memory is not None:
            pruned = KINDS.index(True)
            labels_there = with_moments(near[pruned].labels, moments.mean, moments.deviation())
            near[pruned] = near[pruned]._replace(labels=labels_there)
        measure(mixture, moments.mean, near, labels[part], factors, least, n_samples, record[part])

    in_threads(measure_part, len(parts), n_jobs)
    return record
