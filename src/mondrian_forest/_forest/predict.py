"""Prediction, once for all: trees, then spread, then mean function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import delayed, effective_n_jobs
from numpy.typing import NDArray

from .._core.mixtures.collect import predict_mixture
from .._core.mixtures.mixture import Mixture
from .._core.mixtures.neighbours import find_neighbours
from .._core.mixtures.reduce import (
    ForestMoments,
    average_part,
    group_parts,
    merge_parts,
    predict_moments,
)
from .._core.mixtures.route import find_leaves
from .._core.spread.apply import stretch
from .._core.spread.blend import blend_labels, least_width, with_moments
from .parallel import (
    FEWEST_ROWS_FOR_THREADS,
    Run,
    in_threads,
    n_threads_for,
    other_processes,
    threads,
)
from .scaling import slices
from .state import ForestState

_LARGEST_BLOCK = 2**17
"""Rows that are routed through the trees together; larger blocks read each node less often."""
_LARGEST_MIXTURE_BLOCK = 2**19
"""The same for each thread, divided by the number of trees, where the components of all trees are
held at once."""

Table = NDArray[Any]


def predict_mean_and_std(
    state: ForestState, table: Table, n_jobs: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the predictive means and standard deviations of rows."""
    if state.spread.blend is not None:
        found = _blended_moments(state, table, n_jobs)
        return found.mean, found.deviation()
    table, offset = state.seen_by_trees(table)
    found = _tree_moments(state, table, n_jobs)
    std = found.deviation()
    std *= state.spread.factor_at(std)
    n_threads = n_threads_for(len(table), n_jobs)
    with threads(n_threads) as run:
        for rows in slices(len(table), _LARGEST_BLOCK):
            std[rows] = _widths(state, state.scaling.apply(table[rows]), std[rows], n_threads, run)
    if offset is not None:
        found.mean[:] += offset
    return found.mean, std


def predict_novelties(state: ForestState, table: Table, n_jobs: int | None) -> NDArray[np.float64]:
    """Return the novelty of rows."""
    ensemble = state.ensemble()
    table, _ = state.seen_by_trees(table)
    n_threads = n_threads_for(len(table), n_jobs)
    with threads(n_threads) as run:
        found = [
            find_neighbours(
                ensemble, state.scaling.apply(table[rows]), None, n_threads, run
            ).novelty
            for rows in slices(len(table), _LARGEST_BLOCK)
        ]
    return np.concatenate(found)


def predict_ranks(state: ForestState, table: Table, n_jobs: int | None) -> NDArray[np.float64]:
    """Return the share of held-out rows that are more familiar than each row."""
    surroundings = state.spread.surroundings
    if surroundings is None:
        raise ValueError(
            "No rows were held out when this forest was fitted, so that novelty has no rank: fit "
            'it with spread="auto" to at least 50 rows, or use novelty(X).'
        )
    return surroundings.rank(predict_novelties(state, table, n_jobs))


def _widths(
    state: ForestState,
    rows: NDArray[np.float32],
    usual: NDArray[np.float64],
    n_threads: int,
    run: Run,
) -> NDArray[np.float64]:
    """Return the standard deviations that are forecast, given those without novelty."""
    surroundings = state.spread.surroundings
    if surroundings is None:
        return usual
    ensemble = state.ensemble()
    novelty = find_neighbours(ensemble, rows, None, n_threads, run).novelty
    low, high = ensemble.boxes[0, 0]
    inside = np.clip(rows, low, high)
    is_outside = np.any(inside != rows, axis=1)
    if is_outside.any():
        usual = usual.copy()
        usual[is_outside] = _usual_deviation(state, inside[is_outside], n_threads, run)
    return surroundings.width_at(usual, novelty)


def _usual_deviation(
    state: ForestState, rows: NDArray[np.float32], n_threads: int, run: Run
) -> NDArray[np.float64]:
    """Return the standard deviations of forecasts that do not look at the novelty."""
    if state.spread.blend is not None:
        return _usual_forecast(state, rows, n_threads, run)[0].deviation()
    deviation = predict_moments(state.ensemble(), rows, n_threads, run).deviation()
    return state.spread.factor_at(deviation) * deviation


def _usual_forecast(
    state: ForestState, rows: NDArray[np.float32], n_threads: int, run: Run
) -> tuple[ForestMoments, Mixture]:
    """Forecast without looking at the novelty."""
    ensemble, spread = state.ensemble(), state.spread
    moments, mixture = predict_mixture(ensemble, rows, n_threads, run)
    mean, deviation = moments.mean, moments.deviation()
    factor = spread.factor_at(deviation)
    if spread.balance != 1.0 or np.any(factor != 1.0):
        moments = stretch(mixture, moments, spread.balance, factor)
    if spread.blend is not None:
        near = find_neighbours(
            ensemble, rows, state.label_memory(), n_threads, run, is_pruned=spread.blend.is_pruned
        )
        labels = near.labels
        if spread.blend.is_pruned:
            labels = with_moments(labels, mean, deviation)
        least = least_width(state.model.noise_variance)
        moments, mixture = blend_labels(mixture, moments, labels, spread.blend, least)
        if spread.blend.is_pruned:
            moments = stretch(mixture, moments, 1.0, deviation / moments.deviation())
    return moments, mixture


def _blended_moments(state: ForestState, table: Table, n_jobs: int | None) -> ForestMoments:
    """Return the moments of distributions, where the trees alone do not tell them."""
    return join_moments([moments for moments, _ in predict_blocks(state, table, n_jobs)])


def predict_mean(state: ForestState, table: Table, n_jobs: int | None) -> NDArray[np.float64]:
    """Return the predictive means of rows. Only a blend changes those of the trees."""
    if state.spread.blend is not None:
        return _blended_moments(state, table, n_jobs).mean
    return predict_mean_of_trees(state, table, n_jobs)


def predict_mean_of_trees(
    state: ForestState, table: Table, n_jobs: int | None
) -> NDArray[np.float64]:
    """Return the means that trees and mean function predict, without a blend."""
    table, offset = state.seen_by_trees(table)
    mean = _tree_moments(state, table, n_jobs).mean
    if offset is not None:
        mean[:] += offset
    return mean


def _tree_moments(state: ForestState, table: Table, n_jobs: int | None) -> ForestMoments:
    """Return what the trees say of their columns: mean and parts of the variance."""
    ensemble = state.ensemble()
    blocks = slices(len(table), _largest_block(_LARGEST_BLOCK, ensemble.depth))
    elsewhere = other_processes(n_jobs) if len(table) >= FEWEST_ROWS_FOR_THREADS else None
    if elsewhere is not None:
        n_trees = len(ensemble.sizes)
        parts = group_parts(ensemble, max(1, int(effective_n_jobs(n_jobs))))
        found = []
        for rows in blocks:
            scaled = state.scaling.apply(table[rows])
            each = elsewhere(delayed(average_part)(part, scaled, n_trees) for part in parts)
            found.append(merge_parts(ensemble, each))
    else:
        n_threads = n_threads_for(len(table), n_jobs)
        with threads(n_threads) as run:
            found = [
                predict_moments(ensemble, state.scaling.apply(table[rows]), n_threads, run)
                for rows in blocks
            ]
    return join_moments(found)


def predict_blocks(
    state: ForestState, table: Table, n_jobs: int | None
) -> Iterator[tuple[ForestMoments, Mixture]]:
    """Predict distributions, block by block; threads work together on each."""
    ensemble = state.ensemble()
    n_threads = n_threads_for(len(table), n_jobs)
    # Each thread has a workspace for all rows of a block, hence the same limit as for moments.
    largest = min(_LARGEST_BLOCK, n_threads * _LARGEST_MIXTURE_BLOCK // len(ensemble.sizes))
    with threads(n_threads) as run:
        for rows in slices(len(table), _largest_block(max(1, largest), ensemble.depth)):
            columns, offset = state.seen_by_trees(table[rows])
            coordinates = state.scaling.apply(columns)
            moments, mixture = _usual_forecast(state, coordinates, n_threads, run)
            if state.spread.surroundings is not None:
                usual = moments.deviation()
                width = _widths(state, coordinates, usual, n_threads, run)
                moments = stretch(mixture, moments, 1.0, width / usual)
            if offset is not None:
                moments.mean[:] += offset
                mixture.location[:] += np.repeat(offset, np.diff(mixture.offset))
            yield moments, mixture


def leaves_of(state: ForestState, table: Table, n_jobs: int | None) -> NDArray[np.int32]:
    """Return the leaf of each row in each tree, shape (n_rows, n_trees)."""
    ensemble = state.ensemble()
    rows = state.scaling.apply(state.seen_by_trees(table)[0])
    leaves = np.empty((len(ensemble.sizes), len(rows)), dtype=np.int32)

    def find(number: int) -> None:
        nodes = ensemble.nodes[number, : ensemble.sizes[number]]
        find_leaves(nodes, rows, leaves[number])

    in_threads(find, len(leaves), n_jobs)
    return np.ascontiguousarray(leaves.T)


def _largest_block(largest: int, depth: int) -> int:
    """Return how many rows to predict at a time: fewer in very deep trees.

    There, a row can have as many exits as there are levels.
    """
    return max(1, min(largest, 2**26 // (depth + 2)))


def join_moments(blocks: list[ForestMoments]) -> ForestMoments:
    """Return the moments of all rows."""
    if len(blocks) == 1:
        return blocks[0]
    return ForestMoments(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def join_mixtures(blocks: list[Mixture]) -> Mixture:
    """Return the mixtures of all rows."""
    counts = np.concatenate([np.diff(block.offset) for block in blocks])
    return Mixture(
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([block.weight for block in blocks]),
        np.concatenate([block.location for block in blocks]),
        np.concatenate([block.scale for block in blocks]),
        np.concatenate([block.degrees for block in blocks]),
    )
