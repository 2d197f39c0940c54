"""The predictive distribution: the one object that all consumers of predictions share."""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils import check_random_state

from ._core.mixtures import mixture as kernels
from ._core.mixtures.mixture import Mixture
from ._core.mixtures.reduce import ForestMoments

_ROWS_PER_BLOCK = 1024


class Components(NamedTuple):
    """The components of the mixtures of a number of rows, one row after another.

    A component is Gaussian, or under the pruned posterior a Student-t distribution.

    Attributes
    ----------
    weight : ndarray of shape (n_components,)
        The weights of one row's components add up to 1.
    mean : ndarray of shape (n_components,)
    scale : ndarray of shape (n_components,)
        The standard deviation of a Gaussian.
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
    """The predictive variance of each row, in parts that add up to it.

    Attributes
    ----------
    noise : ndarray of shape (n_rows,)
        Variance of a label about its mean: what no amount of data removes. Under the pruned
        posterior it differs from place to place.
    posterior : ndarray of shape (n_rows,)
        Uncertainty of the means in the nodes that the row may belong to; for the empirical
        posterior, the variance of the labels in these nodes.
    branching : ndarray of shape (n_rows,)
        Uncertainty about where the row branches off, and about what it finds on a branch of its
        own. Zero inside the leaf boxes; for the hierarchical posterior it grows away from the data;
        for the pruned posterior, about where the tree is to be pruned, too.
    between_trees : ndarray of shape (n_rows,)
        Variance of the trees' predictive means.
    """

    noise: NDArray[np.float64]
    posterior: NDArray[np.float64]
    branching: NDArray[np.float64]
    between_trees: NDArray[np.float64]


def checked_levels(q: ArrayLike) -> NDArray[np.float64]:
    """Return the levels of quantiles as an array."""
    levels = np.asarray(q)
    if levels.size == 0:
        levels = levels.astype(np.float64)
    if (
        levels.ndim > 1
        or levels.dtype.kind not in "iuf"
        or not np.all((levels >= 0.0) & (levels <= 1.0))
    ):
        raise ValueError(f"q must be a number or a list of numbers from 0 to 1, got {q!r}.")
    return levels.astype(np.float64)


def checked_labels(y: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Return a label for each row as an array; a number is meant for all rows."""
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
    """Predictive distributions of a number of rows, each a mixture of Gaussians or Student-t.

    :meth:`MondrianForestRegressor.predict_distribution` returns it; it is a snapshot and does not
    change when the forest does. ``len(d)`` is the number of rows; ``d[i]``, ``d[2:5]``,
    ``d[mask]`` select rows (``d[i]`` is a distribution of one row).

    A component has the exact mean and variance of a label at its place. It stands for all times at
    which the row may branch off there, and is Gaussian as in the paper; under the pruned posterior
    it is a Student-t distribution. Components of a weight below 1e-12 (1e-6 under the pruned
    posterior) within their tree are left out, which changes the cdf of a forest whose trees have
    depth d by at most d + 2 times that.

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
        # For each new component, where it stands in the old arrays.
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
        """Return the components of all rows, as a copy."""
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
        """Return the parts of the variance: noise, posterior, branching off, between trees."""
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
        """Return P(label <= ``y[i]``), or P(label <= y) for a number, of row i, shape (n_rows,)."""
        return self._at(kernels.cumulative, y)

    def crps(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the continuous ranked probability score of row i at ``y[i]``, or at the number y.

        Smaller is better; it has the unit of y, and is the absolute error where the prediction is
        certain. The closed form for mixtures of Gaussians costs the square of the number of
        components; for Student-t there is none, and an integral is computed, to a relative error of
        about 1e-5.
        """
        return self._at(kernels.crps, y)

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles: the smallest numbers at which the cdf reaches a level.

        With y the quantile of level q, ``cdf(y) >= q`` and ``cdf(x) <= q`` for all x below y, both
        up to 1e-12. ``cdf(y)`` is q, but for components so narrow that float64 has few numbers in
        them: there the cdf has steps.

        Parameters
        ----------
        q : float or array-like of shape (k,)
            Levels between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows,) for a number, (n_rows, k) for k levels
            In a row, quantiles of larger levels are never smaller.
        """
        levels = checked_levels(q)
        ascending, place = np.unique(levels, return_inverse=True)
        normal_quantiles = ndtri(ascending)
        out = np.empty((len(self), len(ascending)))

        def fill(rows: slice, mixture: Mixture) -> None:
            kernels.quantiles(mixture, ascending, normal_quantiles, out[rows])

        self._for_each_block(fill)
        return out[:, place.reshape(levels.shape)]

    def interval(self, level: float = 0.9) -> NDArray[np.float64]:
        """Return the central prediction interval that holds a label with probability ``level``.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            Lower and upper end.
        """
        if not (isinstance(level, Real) and 0.0 <= level <= 1.0):
            raise ValueError(f"level must be a number from 0 to 1, got {level!r}.")
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
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 0:
            raise ValueError(f"size must be a non-negative integer, got {size!r}.")
        random = check_random_state(random_state)
        shape = (len(self), size)
        chosen = np.empty(shape, dtype=np.int64)
        kernels.choose(self._mixture, random.uniform(size=shape), chosen)
        _, _, location, scale, degrees = self._mixture
        if len(degrees):
            standard = random.standard_t(degrees[chosen])
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
        """Call ``fill`` for blocks of rows, in threads. A block is a view, nothing is copied."""
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
