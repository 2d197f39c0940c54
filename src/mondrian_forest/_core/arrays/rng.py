"""One random stream per tree: xoshiro256++ on a ``uint64`` array of four words.

A NumPy ``Generator`` works inside a kernel, but to unbox it costs 18 microseconds per call. That is
too much for learning a single row; an array costs nothing. Kernels advance the state in place. It
is a part of the fitted forest and is never seeded again.

The generator is Blackman and Vigna's xoshiro256++ (ACM TOMS 47, 2021).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .kernel import kernel

_TWO_TO_MINUS_53 = 1.0 / 9007199254740992.0


def random_states(seed: np.random.SeedSequence, n_streams: int) -> NDArray[np.uint64]:
    """Return the states of ``n_streams`` independent streams, shape (n_streams, 4)."""
    states = np.empty((n_streams, 4), dtype=np.uint64)
    for state, child in zip(states, seed.spawn(n_streams), strict=True):
        state[:] = child.generate_state(4, np.uint64)
    return states


@kernel
def _rotate_left(word: np.uint64, count: np.uint64) -> np.uint64:
    return (word << count) | (word >> (np.uint64(64) - count))


@kernel
def next_word(state: NDArray[np.uint64]) -> np.uint64:
    """Return 64 random bits and advance ``state``."""
    word: np.uint64 = _rotate_left(state[0] + state[3], np.uint64(23)) + state[0]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = _rotate_left(state[3], np.uint64(45))
    return word


@kernel
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a draw from the uniform distribution on [0, 1): a multiple of 2^-53."""
    return np.float64(next_word(state) >> np.uint64(11)) * _TWO_TO_MINUS_53


@kernel
def exponential(state: NDArray[np.uint64], rate: float) -> float:
    """Return a draw from the exponential distribution with the given rate."""
    return -math.log1p(-uniform(state)) / rate


@kernel
def exponential_before(state: NDArray[np.uint64], rate: float, end: float) -> float:
    """Return what ``exponential`` would return if that is less than ``end``, else infinity.

    An exponential draw of rate 1 is at least the uniform draw that it is made of. This settles most
    cases without a logarithm and saves 100 cycles each time that a row meets a node.
    """
    draw = uniform(state)
    if draw >= rate * end:
        return np.inf
    time = -math.log1p(-draw) / rate
    return time if time < end else np.inf
