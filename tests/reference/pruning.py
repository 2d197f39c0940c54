"""The densities of the pruned posterior, and the constants that make them densities, by quadrature.

A set of n labels is described by its mean and its sum of squared deviations, and by a direction.
The densities of one node depend on the first two only. A cut divides the sum of squares into a part
between its sides and the parts within them; given the sum, these are functions of the direction,
which is uniform. All densities here are of labels in units in which the prior of the node has the
mean 0 and the variance 1, unless they are given.
"""

import numpy as np
from scipy.special import gammaln, logsumexp

COUNT, SHAPE = 0.25, 1.5
"""How many labels the prior mean of a node is worth; the shape of the prior of its variance."""


def log_density(n, squares, distance=0.0, variance=1.0):
    """Log marginal density of n labels in a node.

    ``squares`` is the sum of squared deviations, ``distance`` that of the mean from the prior mean.
    """
    count, shape = COUNT + n, SHAPE + 0.5 * n
    rate = SHAPE * variance + 0.5 * (squares + distance**2 * COUNT * n / count)
    return (
        0.5 * np.log(COUNT / count)
        + gammaln(shape)
        - gammaln(SHAPE)
        + SHAPE * np.log(SHAPE * variance)
        - shape * np.log(rate)
        - 0.5 * n * np.log(2.0 * np.pi)
    )


def log_centred_density(n, squares):
    """The same for a prior that is centred on the labels' own mean and variance."""
    return log_density(n, squares, 0.0, squares / (n - 1.0))


def _integral(log_values, *points):
    """Log of the integral of exp(log_values) by the trapezoidal rule, along the last axes."""
    for grid in reversed(points):
        if len(grid) == 1:
            log_values = log_values[..., 0]
            continue
        steps = np.diff(grid)
        with np.errstate(divide="ignore"):
            weights = np.log(0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)))
        log_values = logsumexp(log_values + weights, axis=-1)
    return float(log_values)


def _angles(n, centre=0.0):
    """Angles from 0 to 90 degrees, dense about one of them, where most directions are."""
    near = np.linspace(0.0, min(12.0 / np.sqrt(n), 0.5 * np.pi), 257)
    grid = np.concatenate((np.linspace(0.0, 0.5 * np.pi, 257), centre + near, centre - near))
    return np.unique(grid[(grid >= 0.0) & (grid <= 0.5 * np.pi)])


def log_excess(n_left, n_right):
    """Log of the mean of density(left) density(right) over all directions, over that of the node.

    The sum of squares is n - 1, so that the variance of the node is 1.
    """
    n = n_left + n_right
    between = _angles(n) if n > 2 else np.array([0.5 * np.pi])
    left = np.array([0.5 * np.pi if n_right == 1 else 0.0])
    if min(n_left, n_right) > 1:
        left = _angles(n, np.arctan(np.sqrt((n_left - 1.0) / (n_right - 1.0))))

    def times_log(power, value):
        return np.where(power == 0, 0.0, power * np.log(np.maximum(value, 1e-300)))

    # The laws of the two angles: beta distributions of the squared sines.
    of_between = times_log(n - 3, np.cos(between)) if len(between) > 1 else np.zeros(1)
    of_left = np.zeros(1)
    if len(left) > 1:
        of_left = times_log(n_left - 2, np.sin(left)) + times_log(n_right - 2, np.cos(left))
    law = of_between[:, None] + of_left
    outer = (n - 1.0) * np.sin(between)[:, None] ** 2
    inner = (n - 1.0) * np.cos(between)[:, None] ** 2
    product = log_density(
        n_left, inner * np.sin(left) ** 2, np.sqrt(outer * n_right / (n * n_left))
    ) + log_density(n_right, inner * np.cos(left) ** 2, np.sqrt(outer * n_left / (n * n_right)))
    mean = _integral(law + product, between, left) - _integral(law, between, left)
    return mean - float(log_centred_density(n, n - 1.0))


def means_and_squares(n, n_points=801):
    """A grid over all means and sums of squares, and the log volume of labels at each point."""
    spread = np.linspace(-14.0, 14.0, n_points)
    # The density of small sums of squares falls by this power, or a third of it.
    lowest = min(-250.0 / (n - 1), -20.0)
    below, above = np.linspace(lowest, -10.0, n_points)[:-1], np.linspace(-10.0, 40.0, n_points)
    log_squares = np.append(below, above) + np.log(n - 1.0)
    volume = (
        0.5 * np.log(n)
        + np.log(np.cosh(spread))[:, None]
        + np.log(0.5)
        + 0.5 * (n - 1) * log_squares
        + np.log(2.0)
        + 0.5 * (n - 1) * np.log(np.pi)
        - gammaln(0.5 * (n - 1))
    )
    return spread, log_squares, volume


def log_flatness(n, flattening):
    """Log of the mean of (centred density / density)^flattening over the labels of a leaf."""
    spread, log_squares, volume = means_and_squares(n)
    squares = np.exp(log_squares)
    own = log_density(n, squares, np.sinh(spread)[:, None])
    ratio = log_centred_density(n, squares) - own
    return _integral(volume + own + flattening * ratio, spread, log_squares)


def log_total(n, log_average, centre=0.0, variance=1.0):
    """Log of the integral, over all n labels of a node, of density times average.

    The prior of the node has this centre and variance. ``log_average`` is a function of the mean
    and the sum of squares, broadcast.
    """
    spread, log_squares, volume = means_and_squares(n, 401)
    distance = np.sqrt(variance) * np.sinh(spread)[:, None]
    squares = variance * np.exp(log_squares)
    values = volume + 0.5 * n * np.log(variance) + log_density(n, squares, distance, variance)
    values += log_average(centre + distance, squares)
    return _integral(values, spread, log_squares)
