"""The predictive distributions of rows: the object that everything after a prediction uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils import check_random_state

from ._core.mixtures import mixture as kernels
from ._core.mixtures.crps import crps as crps_kernel
from ._core.mixtures.mixture import Mixture
from ._core.mixtures.quantiles import quantiles as quantile_kernel
from ._core.mixtures.reduce import ForestMoments
from ._forest.validation import check_integer, check_level, check_levels

_ROWS_PER_BLOCK = 1024
"""Number of rows that a thread evaluates at a time."""
_MOST_DEGREES = 1e12
"""A t distribution with so many degrees of freedom is normal to the last digits of a draw."""


class Components(NamedTuple):
    """The components of the mixtures of all rows, one row after another.

    A component is a Gaussian. Under the pruned posterior it is a Student-t distribution, which is a
    Gaussian if it has infinite degrees of freedom.

    Attributes
    ----------
    weight : ndarray of shape (n_components,)
        The weights of a row add up to 1.
    mean : ndarray of shape (n_components,)
    scale : ndarray of shape (n_components,)
        The standard deviation of a Gaussian, or the scale of a Student-t distribution.
    df : ndarray of shape (n_components,)
        Degrees of freedom; infinite for Gaussians.
    offset : ndarray of shape (n_rows + 1,)
        Row i has the components ``offset[i]`` to ``offset[i + 1] - 1``.
    """

    weight: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    df: NDArray[np.float64]
    offset: NDArray[np.int64]


class VarianceParts(NamedTuple):
    """The predictive variance of each row, as a sum of parts.

    Attributes
    ----------
    noise : ndarray of shape (n_rows,)
        Variance of a label about its mean. More data do not reduce it. Under the pruned posterior
        it differs between rows.
    posterior : ndarray of shape (n_rows,)
        Uncertainty of the means of the nodes that the row may belong to. Under the empirical
        posterior it is the variance of the labels in these nodes.
    branching : ndarray of shape (n_rows,)
        Uncertainty about the node at which the row branches off, and about the mean of its own
        branch. It is zero inside the leaf boxes. Under the hierarchical posterior it grows with the
        distance from the data. Under the pruned posterior it includes the uncertainty about where
        to prune the tree.
    between_trees : ndarray of shape (n_rows,)
        Variance of the trees' predictive means.
    """

    noise: NDArray[np.float64]
    posterior: NDArray[np.float64]
    branching: NDArray[np.float64]
    between_trees: NDArray[np.float64]


def checked_labels(y: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Return one label for each row as an array. A single number applies to all rows."""
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"y must be numbers, got {values.dtype} values.")
    if values.shape not in ((), (n_rows,)):
        raise ValueError(
            f"y must be a number, or have one value for each of the {n_rows} rows, "
            f"got shape {values.shape}."
        )
    return np.broadcast_to(values.astype(np.float64), (n_rows,)).copy()


class PredictiveDistribution:
    """Predictive distributions, one for each row, each a mixture of Gaussians or Student-t.

    :meth:`MondrianForestRegressor.predict_distribution` returns this object. It is a snapshot: it
    does not change when the forest does. ``len(d)`` is the number of rows. ``d[i]``, ``d[2:5]`` and
    ``d[mask]`` select rows; ``d[i]`` is a distribution of one row.

    A component belongs to a node at which the row may branch off. It averages over all times at
    which that may happen, and has the exact mean and variance of the label in this case. It is a
    Gaussian as in the paper; under the pruned posterior it is a Student-t distribution. Where the
    forest mixes in labels near the row (``spread_.blend``), these are further Gaussians. Components
    with a weight below 1e-12 within their tree (1e-6 under the pruned posterior) are left out. In a
    forest whose trees have depth d, this changes the cdf by at most d + 2 times that weight.

    Examples
    --------
    >>> import numpy as np
    >>> from mondrian_forest import MondrianForestRegressor
    >>> X = np.linspace(0, 1, 200).reshape(-1, 1)
    >>> y = np.sin(6 * X[:, 0])
    >>> forest = MondrianForestRegressor(random_state=0).fit(X, y)
    >>> distribution = forest.predict_distribution([[0.5], [3.0]])
    >>> bool(distribution.std()[1] > distribution.std()[0])
    True
    >>> distribution.interval(0.9).shape
    (2, 2)
    """

    def __init__(
        self,
        mixture: Mixture,
        moments: ForestMoments,
        n_jobs: int | None = None,
    ) -> None:
        self._mixture = mixture
        self._moments = moments
        self._n_jobs = n_jobs

    def __len__(self) -> int:
        return len(self._moments.mean)

    def __repr__(self) -> str:
        n_components = len(self._mixture.weight)
        kind = "Student-t" if len(self._mixture.degrees) else "Gaussian"
        return f"<PredictiveDistribution of {len(self)} rows, {n_components} {kind} components>"

    def __getitem__(self, rows: Any) -> PredictiveDistribution:
        """Return the distributions of the selected rows."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        if chosen.ndim > 1 or rows is None or isinstance(rows, bool):
            raise IndexError(
                f"Select rows by number, slice, mask or list of numbers, not {rows!r}."
            )
        offset = self._mixture.offset
        counts = (offset[1:] - offset[:-1])[chosen]
        new_offset = np.concatenate(([0], np.cumsum(counts)))
        # The position of each new component in the old arrays.
        source = np.arange(new_offset[-1]) + np.repeat(offset[chosen] - new_offset[:-1], counts)
        degrees = self._mixture.degrees
        mixture = Mixture(
            new_offset,
            self._mixture.weight[source],
            self._mixture.location[source],
            self._mixture.scale[source],
            degrees[source] if len(degrees) else degrees,
        )
        moments = ForestMoments(*(part[chosen] for part in self._moments))
        return PredictiveDistribution(mixture, moments, self._n_jobs)

    def components(self) -> Components:
        """Return a copy of the components of all rows."""
        mixture = self._mixture
        degrees = mixture.degrees.copy()
        return Components(
            mixture.weight.copy(),
            mixture.location.copy(),
            mixture.scale.copy(),
            degrees if len(degrees) else np.full(len(mixture.weight), np.inf),
            mixture.offset.copy(),
        )

    def mean(self) -> NDArray[np.float64]:
        """Return the predictive means, shape (n_rows,)."""
        return self._moments.mean.copy()

    def var(self) -> NDArray[np.float64]:
        """Return the predictive variances, shape (n_rows,)."""
        return np.asarray(sum(self.decompose()))

    def std(self) -> NDArray[np.float64]:
        """Return the predictive standard deviations, shape (n_rows,)."""
        return np.sqrt(self.var())

    def decompose(self) -> VarianceParts:
        """Return the parts of the variance: noise, posterior, branching, between trees."""
        return VarianceParts(
            noise=self._moments.noise.copy(),
            posterior=self._moments.posterior.copy(),
            branching=self._moments.branching.copy(),
            between_trees=self._moments.between_trees.copy(),
        )

    def pdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of row i at ``y[i]``, or at the number y, shape (n_rows,)."""
        return self._at(kernels.log_density, y)

    def cdf(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return P(label <= ``y[i]``) of row i, or P(label <= y) of a number, shape (n_rows,)."""
        return self._at(kernels.cumulative, y)

    def crps(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the continuous ranked probability score of row i at ``y[i]``, or at the number y.

        Smaller is better. The score has the unit of y, and equals the absolute error if the
        prediction is certain. Mixtures of Gaussians have a closed form, whose cost grows with the
        square of the number of components. For mixtures of Student-t an integral is computed with
        a relative error of about 1e-5.
        """
        return self._at(crps_kernel, y)

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles: the smallest numbers at which the cdf reaches a level.

        If y is the quantile of level q, then ``cdf(y) >= q``, and ``cdf(x) <= q`` for all x below
        y, both up to 1e-12. Usually ``cdf(y)`` is q. The exception are components so narrow that
        few numbers of float64 are inside: there the cdf has steps.

        Parameters
        ----------
        q : float or array-like of shape (k,)
            Levels from 0 to 1.

        Returns
        -------
        ndarray of shape (n_rows,) for a number, (n_rows, k) for k levels
            Within a row, the quantile of a larger level is never smaller.
        """
        levels = check_levels("q", q)
        ascending, place = np.unique(levels, return_inverse=True)
        normal_quantiles = ndtri(ascending)
        out = np.empty((len(self), len(ascending)))

        def fill(rows: slice, mixture: Mixture) -> None:
            quantile_kernel(mixture, ascending, normal_quantiles, out[rows])

        self._for_each_block(fill)
        return out[:, place.reshape(levels.shape)]

    def interval(self, level: float = 0.9) -> NDArray[np.float64]:
        """Return the central interval that contains the label with probability ``level``.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            Lower and upper end.
        """
        level = check_level("level", level)
        return self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])

    def sample(self, size: int = 1, random_state: Any = None) -> NDArray[np.float64]:
        """Draw labels.

        Parameters
        ----------
        size : int
            Number of draws for each row.
        random_state : int, RandomState instance or None

        Returns
        -------
        ndarray of shape (n_rows, size)
        """
        shape = (len(self), check_integer("size", size, 0))
        random = check_random_state(random_state)
        chosen = np.empty(shape, dtype=np.int64)
        kernels.choose(self._mixture, random.uniform(size=shape), chosen)
        _, _, location, scale, degrees = self._mixture
        if len(degrees):
            # NumPy returns NaN for infinite degrees of freedom.
            standard = random.standard_t(np.minimum(degrees[chosen], _MOST_DEGREES))
        else:
            standard = random.standard_normal(shape)
        return np.asarray(location[chosen] + scale[chosen] * standard)

    def _at(
        self,
        kernel: Callable[[Mixture, NDArray[np.float64], NDArray[np.float64]], None],
        y: ArrayLike,
    ) -> NDArray[np.float64]:
        values = checked_labels(y, len(self))
        out = np.empty(len(self))
        self._for_each_block(lambda rows, mixture: kernel(mixture, values[rows], out[rows]))
        out[np.isnan(values)] = np.nan
        return out

    def _for_each_block(self, fill: Callable[[slice, Mixture], None]) -> None:
        """Call ``fill`` for each block of rows, in threads. Blocks are views, not copies."""
        n_blocks = max(1, -(-len(self) // _ROWS_PER_BLOCK))
        n_threads = min(effective_n_jobs(self._n_jobs), os.cpu_count() or 1, n_blocks)
        Parallel(n_jobs=n_threads, require="sharedmem")(
            delayed(fill)(
                slice(start, start + _ROWS_PER_BLOCK),
                self._mixture._replace(
                    offset=self._mixture.offset[start : start + _ROWS_PER_BLOCK + 1]
                ),
            )
            for start in range(0, len(self), _ROWS_PER_BLOCK)
        )
