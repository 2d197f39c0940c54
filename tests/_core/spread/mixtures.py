"""Small mixtures, and what a spread makes of them."""

import numpy as np

from mondrian_forest._core.mixtures.mixture import Mixture
from mondrian_forest._core.mixtures.neighbours import Neighbours
from mondrian_forest._core.mixtures.reduce import ForestMoments
from mondrian_forest._core.spread.apply import Spread, stretch
from mondrian_forest._core.spread.blend import KINDS

SPREAD = Spread(1.7, np.array([0.5, 1.0, 2.0]), np.array([0.2, 0.8, 0.9]))


def mixtures(is_gaussian, n_rows=3, n_components=4, seed=0):
    generator = np.random.default_rng(seed)
    shape = n_rows * n_components
    weight = generator.dirichlet(np.ones(n_components), n_rows).ravel()
    location = generator.normal(0, 1, shape)
    scale = generator.uniform(0.1, 1.0, shape)
    degrees = np.empty(0) if is_gaussian else generator.integers(3, 40, shape).astype(float)
    offset = n_components * np.arange(n_rows + 1)
    mean = np.add.reduceat(weight * location, offset[:-1])
    return Mixture(offset, weight, location, scale, degrees), mean


def copy(mixture):
    return mixture._replace(location=mixture.location.copy(), scale=mixture.scale.copy())


def variances(mixture, mean):
    """Return the variances within components and between them."""
    degrees = mixture.degrees if len(mixture.degrees) else np.full(len(mixture.weight), 1e300)
    within = mixture.weight * mixture.scale**2 * (degrees / (degrees - 2))
    between = mixture.weight * (mixture.location - np.repeat(mean, np.diff(mixture.offset))) ** 2
    return tuple(np.add.reduceat(part, mixture.offset[:-1]) for part in (within, between))


def moments_of(mixture, mean):
    within, between = variances(mixture, mean)
    return ForestMoments(mean, 0.3 * within, 0.6 * between, 0.4 * between, 0.7 * within)


def stretched(mixture, mean, spread):
    changed = copy(mixture)
    factor = spread.factor_at(np.sqrt(sum(variances(mixture, mean))))
    return changed, stretch(changed, moments_of(mixture, mean), spread.balance, factor)


def no_labels(n_rows):
    """Return neighbours of rows, of either kind, without labels."""
    return [Neighbours(np.zeros(n_rows), np.empty((n_rows, 0)))] * len(KINDS)
