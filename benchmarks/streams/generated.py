"""Streams whose function changes, or does not: Friedman's function of ten features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

N_FEATURES = 10
NOISE = 1.0
RECOVERY_SHARE = 10
"""After a change, a method may be wrong for this part of the stream: 2,000 of 20,000 rows."""


@dataclass(frozen=True)
class Stream:
    name: str
    X: np.ndarray
    y: np.ndarray
    changes: tuple[tuple[int, int], ...] = ()
    """First row of each change, and the first row after it; both the same if it is sudden."""

    @property
    def recovery(self) -> int:
        return len(self.y) // RECOVERY_SHARE

    def is_settled(self, begin: int, end: int) -> bool:
        """Return whether no change begins or is recent in rows from begin to end."""
        return all(end <= first or begin >= last + self.recovery for first, last in self.changes)


def friedman(X: np.ndarray) -> np.ndarray:
    """Return Friedman's function, which ignores all features after the fifth."""
    wave = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1])
    return wave + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3] + 5.0 * X[:, 4]


def drifting(n_rows: int, seed: int = 0) -> list[Stream]:
    """Return streams that differ only in when the features change their parts."""
    random = np.random.default_rng(seed)
    X = random.random((n_rows, N_FEATURES))
    noise = NOISE * random.normal(size=n_rows)
    draws = random.random(n_rows)
    before = friedman(X)
    after = friedman(np.roll(X, N_FEATURES // 2, axis=1))
    half, quarter, fifth = n_rows // 2, n_rows // 4, n_rows // 5
    number = np.arange(n_rows)
    kinds = {
        "no change": (np.zeros(n_rows), ()),
        "sudden": (np.where(number < half, 0.0, 1.0), ((half, half),)),
        "gradual": (
            np.clip((number - 2 * fifth) / fifth, 0.0, 1.0),
            ((2 * fifth, 3 * fifth),),
        ),
        "recurring": (
            (number // quarter) % 2.0,
            tuple((k * quarter, k * quarter) for k in (1, 2, 3)),
        ),
    }
    return [
        Stream(name, X, np.where(draws < share, after, before) + noise, changes)
        for name, (share, changes) in kinds.items()
    ]


def steady(n_rows: int, seed: int) -> list[Stream]:
    """Return streams without a change: what is found in them is a false alarm."""
    random = np.random.default_rng(seed)
    X = random.random((n_rows, N_FEATURES))
    mean = friedman(X)
    return [
        Stream("Friedman, noise 1", X, mean + random.normal(size=n_rows)),
        Stream("Friedman, noise 5", X, mean + 5.0 * random.normal(size=n_rows)),
        Stream("Friedman, noise Student-t(3)", X, mean + random.standard_t(3, size=n_rows)),
        Stream("noise only", X, random.normal(size=n_rows)),
    ]
