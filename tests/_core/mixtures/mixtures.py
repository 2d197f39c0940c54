"""Random mixtures, and their parts."""

import numpy as np

from mondrian_forest._core.mixtures.mixture import Mixture


def random_mixture(seed, n_rows=5, n_components=4, distance=3.0):
    generator = np.random.default_rng(seed)
    weight = generator.dirichlet(np.ones(n_components), n_rows).ravel()
    location = generator.normal(2.0, distance, n_rows * n_components)
    scale = np.exp(generator.normal(0.0, 1.0, n_rows * n_components))
    return Mixture(n_components * np.arange(n_rows + 1), weight, location, scale)


def random_student_mixture(seed, **options):
    mixture = random_mixture(seed, **options)
    choices = [3.0, 4.0, 7.0, 24.0, 500.0, 3.5, np.inf]
    degrees = np.random.default_rng(seed).choice(choices, len(mixture.weight))
    return mixture._replace(degrees=degrees)


def student_parts(mixture, i):
    """Return weight, location, scale and degrees; SciPy takes infinite degrees as Gaussian."""
    part = slice(mixture.offset[i], mixture.offset[i + 1])
    return (*component_arrays(mixture, i), mixture.degrees[part])


def component_arrays(mixture, i):
    part = slice(mixture.offset[i], mixture.offset[i + 1])
    return mixture.weight[part], mixture.location[part], mixture.scale[part]


def moved(mixture, shift):
    return mixture._replace(location=mixture.location + shift)


def whole_mixture(seed, degrees, n_rows=6, n_components=5):
    """Return mixtures whose locations are even numbers, and stay exact when they are moved."""
    generator = np.random.default_rng(seed)
    n_all = n_rows * n_components
    return Mixture(
        n_components * np.arange(n_rows + 1),
        generator.dirichlet(np.ones(n_components), n_rows).ravel(),
        2.0 * generator.integers(-20, 20, n_all),
        generator.choice([1e-7, 1e-3, 0.5, 3.0, 40.0], n_all),
        generator.choice([3.0, 7.0, 24.0, 500.0], n_all) if degrees else np.empty(0),
    )
