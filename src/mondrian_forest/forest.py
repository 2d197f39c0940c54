"""The estimator: validation, scaling, parallelism and fitted attributes around the engine."""

from __future__ import annotations

import copy
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, TypeGuard, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._core.intake import is_finite, scale_rows, survey_features, survey_labels
from ._core.learn import (
    Grove,
    Settings,
    allocate_grove,
    copy_tree,
    learn_batch,
    learn_more,
    log_likelihood,
    renew,
    scratch_like,
    trimmed,
    without_rows,
)
from ._core.memory import empty, enlarge
from ._core.mixture import Mixture
from ._core.posterior import (
    EMPIRICAL,
    HIERARCHICAL,
    Hyperparameters,
    LabelSums,
    heuristic_hyperparameters,
)
from ._core.predict import (
    Ensemble,
    ForestMoments,
    find_leaves,
    predict_mixture,
    predict_moments,
)
from ._core.rng import random_states
from ._core.tree import Tree
from ._version import __version__
from .distribution import PredictiveDistribution
from .persistence import ModelFileError, read, write

_POSTERIORS = {"hierarchical": HIERARCHICAL, "empirical": EMPIRICAL}
_LARGEST_BLOCK = 2**17
"""Rows that are routed through the trees together; larger blocks read each node less often."""
_LARGEST_MIXTURE_BLOCK = 2**19
"""The same, divided by the number of trees, where the components of all trees are held at once."""
_SMALLEST, _LARGEST = 1e-50, 1e50
"""Bounds of given hyperparameters, within which no product of them overflows."""
_LARGEST_LABEL = 1e150
_FEWEST_ROWS_FOR_THREADS = 100
"""Fewer rows are learned, and predicted, faster than threads start."""
_WIDEST = 2.0
"""How many times the known feature range rows may span before trees are sampled anew."""
_N_CPUS = os.cpu_count() or 1

_LOGGER = logging.getLogger("mondrian_forest")

Result = TypeVar("Result")


class MondrianForestRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A Mondrian forest for regression with a full predictive distribution.

    An ensemble of Mondrian trees, each with a hierarchical Gaussian prior over the labels whose
    exact posterior gives every prediction a mixture of Gaussians, wide where there is no data.
    Far from all data it is the prior, ``N(prior_mean_, prior_scale_ / 2 + noise_variance_)``.

    Parameters
    ----------
    n_estimators : int, default=25
        Number of trees.
    min_samples_split : int, default=10
        A node with fewer training rows is not split.
    posterior : {"hierarchical", "empirical"}, default="hierarchical"
        "hierarchical" is the exact posterior under the paper's prior; "empirical" takes mean and
        variance of the labels in each node instead (the paper's appendix C).
    prior_mean : float, default=None
        Mean of the prior. None: the mean of y.
    prior_scale : float, default=None
        Twice the prior variance of a leaf's mean, gamma_1 in the paper. None: such that
        ``prior_scale (1/2 + 1/K)`` is the mean squared deviation of y from ``prior_mean``, where
        ``K = min(2000, 2 n_samples)``.
    prior_rate : float, default=None
        How fast the prior variance is used up along a branch, gamma_2 in the paper. None:
        ``n_features / (20 log2(n_samples))``.
    noise_variance : float, default=None
        Variance of a label about the mean of its leaf. None: ``prior_scale / K``.
    feature_range : tuple (low, high), default=None
        Ends of the range of each feature, numbers or arrays of shape (n_features,). Features are
        mapped from it to [0, 1]; values outside are allowed. None: minimum and maximum in X.
    lifetime : float, default=inf
        Nodes are not split after this time. A box is cut at a rate that is the sum of its side
        lengths, after features are mapped to [0, 1]: by time t, a feature alone has t cuts on
        average.
    n_jobs : int, default=None
        Number of threads for fit and prediction. None means 1, -1 all processors. The result does
        not depend on it.
    random_state : int, RandomState instance or None, default=None
        Pass an int for reproducible results.

    Attributes
    ----------
    trees_ : list of Tree
        The trees, as flat arrays.
    prior_mean_, prior_scale_, prior_rate_, noise_variance_ : float
        The hyperparameters in use.
    log_marginal_likelihood_ : ndarray of shape (n_estimators,)
        Log density of the training labels given each tree, for comparing hyperparameters under
        the model. Only for the hierarchical posterior.
    feature_range_ : tuple of two ndarrays of shape (n_features,)
        The range that is mapped to [0, 1].
    n_samples_seen_ : int
        Number of training rows.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has names that are all strings.

    Notes
    -----
    The model is that of the paper. Where the paper leaves the branch time of a new point open, it
    is integrated out: mean and variance of each component are exact. Cuts are placed without
    looking at y, so that irrelevant features cost accuracy. Sample weights are not supported.

    References
    ----------
    B. Lakshminarayanan, D. M. Roy and Y. W. Teh, "Mondrian Forests for Large-Scale Regression when
    Uncertainty Matters", AISTATS 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mondrian_forest import MondrianForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = MondrianForestRegressor(random_state=0).fit(X[:400], y[:400])
    >>> mean, std = forest.predict(X[400:], return_std=True)
    >>> mean.shape, std.shape
    ((42,), (42,))
    >>> forest.predict_interval(X[400:], 0.9).shape
    (42, 2)
    """

    def __init__(
        self,
        n_estimators: int = 25,
        *,
        min_samples_split: int = 10,
        posterior: str = "hierarchical",
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        prior_rate: float | None = None,
        noise_variance: float | None = None,
        feature_range: tuple[ArrayLike, ArrayLike] | None = None,
        lifetime: float = math.inf,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.min_samples_split = min_samples_split
        self.posterior = posterior
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.prior_rate = prior_rate
        self.noise_variance = noise_variance
        self.feature_range = feature_range
        self.lifetime = lifetime
        self.n_jobs = n_jobs
        self.random_state = random_state

    _grove: Grove
    _label_sums: LabelSums
    _review_at: int

    def fit(self, X: ArrayLike, y: ArrayLike) -> MondrianForestRegressor:
        """Fit the forest to training data, forgetting any earlier fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers: an array, or a table of pandas, polars or arrow.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        with self._unchanged_by_errors():
            self._fit(X, y)
        return self

    @contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """Leave the forest as it was when an error or an interrupt comes in between.

        What is inside may replace attributes but not change the arrays that they refer to, except
        for room that is not in use.
        """
        before = self.__dict__.copy()
        if "_random_states" in before:  # which are advanced in place
            before["_random_states"] = self._random_states.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: ArrayLike, y: ArrayLike) -> None:
        self._check_parameters()
        table, labels = self._check_data(X, y, reset=True)
        nothing = np.full(table.shape[1], np.inf)
        self._seen_range = nothing, -nothing
        self._seen_range, label_sums, _ = self._survey(table, labels)
        self._set_feature_range(*self._find_feature_range(table.shape[1]))
        self._estimate(label_sums)
        self._settings = Settings(
            int(min(self.min_samples_split, 2**31 - 1)),
            float(self.lifetime),
            _POSTERIORS[self.posterior],
        )
        self._rows = self._scale(table)
        self._labels = labels.copy()
        self.n_samples_seen_ = len(labels)
        seed = np.random.SeedSequence(
            check_random_state(self.random_state).randint(2**32, size=4, dtype=np.uint64).tolist()
        )
        self._random_states = random_states(seed, self.n_estimators)
        self._sample_all()
        self._has_rescaled = False

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> MondrianForestRegressor:
        """Learn more rows, in time that grows like the logarithm of the rows seen.

        The forest that results has the same law as one fitted to all rows at once, whatever their
        order and the size of the calls; without an earlier fit this is the first one.

        Hyperparameters that were not given are estimated again whenever the number of rows has
        grown by a quarter. So is the feature range, if it was not given: when the rows seen span
        more than twice the known range in some feature, the range is set to what was seen and all
        trees are sampled anew from the stored rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        if not hasattr(self, "_grove"):
            return self.fit(X, y)
        if self._is_frozen():
            raise ValueError(
                "This forest has dropped its training rows with freeze() and cannot learn more: "
                "fit it again, or keep a copy that is not frozen."
            )
        table, labels = self._plain(X, y) or self._check_data(X, y, reset=False)
        seen_range, new_sums, is_sound = self._survey(table, labels)
        if not is_sound:  # only what is plain has not been checked yet: this says what is wrong
            self._check_data(X, y, reset=False)
        begin = self.n_samples_seen_
        end = begin + len(labels)
        label_sums = self._label_sums.plus(new_sums)
        is_due = end >= self._review_at
        if is_due:
            self._check_parameters()
            self._check_labels(label_sums)
        must_resample = is_due and self._has_outgrown_its_range(*seen_range)
        with self._unchanged_by_errors():
            if not self._random_states.flags.writeable:  # memory-mapped from a pickle
                self._random_states = self._random_states.copy()
            self._seen_range = seen_range
            self._label_sums = label_sums
            if must_resample:
                self._widen_range()
            if is_due:
                self._estimate(label_sums)
            self._make_room(end)
            self._scale(table, self._rows[begin:end])
            self._labels[begin:end] = labels
            self.n_samples_seen_ = end
            if must_resample:
                self._sample_all()
            else:
                self._make_room_in_trees(end)
        if not must_resample:
            self._extend_all(end, is_due)
        return self

    def freeze(self) -> MondrianForestRegressor:
        """Drop the training rows, and all that only learning needs; predictions stay the same.

        Afterwards ``partial_fit`` is refused.

        Returns
        -------
        self
        """
        check_is_fitted(self, "_grove")
        if not self._is_frozen():
            if self._settings.posterior == HIERARCHICAL:
                self._log_likelihoods = self.log_marginal_likelihood_
            self._grove = without_rows(self._grove)
            self._rows, self._labels = self._rows[:0].copy(), self._labels[:0].copy()
        return self

    def save(self, path: str | os.PathLike[str], *, rows: bool = True) -> None:
        """Write the fitted forest to a file that is safe to open anywhere.

        An older file of that name is replaced in one step, so that a crash leaves it whole.

        Parameters
        ----------
        path : str or path
            The name of the file, for example ``"model.mf"``.
        rows : bool, default=True
            Keep all that learning needs: a loaded forest goes on exactly as this one would. False:
            keep what prediction needs, as after ``freeze``. The boxes and means of small leaves
            still tell much about the rows in them.
        """
        check_is_fitted(self, "_grove")
        self._check_parameters()  # set after the fit, they might be refused when it is loaded
        forest = self if rows else copy.copy(self).freeze()
        names = getattr(self, "feature_names_in_", None)
        state = forest.__getstate__() | {
            "parameters": self.get_params(deep=False),
            "hyperparameters": self._hyperparameters(),
            "feature_names": None if names is None else names.tolist(),
        }
        write(path, state, __version__)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> MondrianForestRegressor:
        """Open a file that ``save`` has written.

        Nothing in a file is executed, and everything is checked: a file that is truncated, damaged
        or made to do harm ends in a ``ModelFileError``.

        Parameters
        ----------
        path : str or path
        mmap : bool, default=False
            Leave the arrays in the file and read what predictions ask for, when they do. Whatever
            could lead the engine astray is still checked, but not that numbers are as they were
            written. The file must not be cut short while the forest is in use; saving another
            forest under the same name is fine.

        Returns
        -------
        MondrianForestRegressor
        """
        state = read(path, mapped=mmap)
        try:
            forest = cls(**state.pop("parameters"))
            forest._check_parameters()
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {error}") from None
        forest.prior_mean_, forest.prior_scale_, forest.prior_rate_, forest.noise_variance_ = (
            state.pop("hyperparameters")
        )
        forest._set_feature_range(*state.pop("feature_range"))
        forest.__dict__.update(state)
        return forest

    @property
    def trees_(self) -> list[Tree]:
        """The trees, as flat arrays."""
        check_is_fitted(self, "_grove")
        return [self._grove.tree(number) for number in range(self._grove.n_trees)]

    @property
    def log_marginal_likelihood_(self) -> NDArray[np.float64]:
        """Log density of the training labels given each tree, shape (n_estimators,)."""
        check_is_fitted(self, "_grove")
        if self._settings.posterior != HIERARCHICAL:
            raise AttributeError("The empirical posterior has no log_marginal_likelihood_.")
        if self._is_frozen():
            return self._log_likelihoods.copy()
        hyperparameters = self._hyperparameters()
        return np.array(
            [
                log_likelihood(self._grove, number, hyperparameters)
                for number in range(self._grove.n_trees)
            ]
        )

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predict the mean, and on request the standard deviation, of the label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,), only with ``return_std=True``
            Of a new label: noise included.
        """
        ensemble = self._ensemble()
        table = self._check_table(X)
        n_threads = self._n_threads() if len(table) >= _FEWEST_ROWS_FOR_THREADS else 1

        def predict_all(run: Callable[..., Iterable[None]]) -> ForestMoments:
            return _join_moments(
                [
                    predict_moments(ensemble, self._scale(table[rows]), n_threads, run)
                    for rows in _slices(len(table), _largest_block(_LARGEST_BLOCK, ensemble.depth))
                ]
            )

        if n_threads == 1:
            moments = predict_all(map)
        else:
            with ThreadPoolExecutor(n_threads) as executor:
                moments = predict_all(executor.map)
        if not return_std:
            return moments.mean
        variance = (
            self.noise_variance_ + moments.posterior + moments.branching + moments.between_trees
        )
        return moments.mean, np.sqrt(variance)

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the distribution of the label of each row.

        The components of all rows are kept, about 24 bytes times the depth of the trees times
        their number for each row; ask for a few 100,000 rows at a time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        PredictiveDistribution
        """
        ensemble = self._ensemble()
        blocks = self._map_blocks(
            X, lambda rows: predict_mixture(ensemble, rows), self._largest_mixture_block()
        )
        return PredictiveDistribution(
            _join_mixtures([mixture for _, mixture in blocks]),
            _join_moments([moments for moments, _ in blocks]),
            self.noise_variance_,
            self.n_jobs,
        )

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
        """Predict quantiles of the label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        q : float or array-like of shape (k,)
            Levels between 0 and 1.

        Returns
        -------
        ndarray of shape (n_samples,) for a number, (n_samples, k) for k levels
        """
        return self._map_distributions(X, lambda distribution: distribution.quantile(q))

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """Predict the central interval that holds the label of each row with probability ``level``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        level : float, default=0.9

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Lower and upper end of a prediction interval: it covers a new label, noise included,
            not the mean of the labels.
        """
        return self._map_distributions(X, lambda distribution: distribution.interval(level))

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the leaf of each row in each tree, as a node number.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_estimators)
        """
        trees = self.trees_

        def block_leaves(rows: NDArray[np.float32]) -> NDArray[np.int32]:
            leaves = np.empty((len(trees), len(rows)), dtype=np.int32)
            for tree, out in zip(trees, leaves, strict=True):
                find_leaves(tree.nodes, rows, out)
            return leaves.T

        return np.concatenate(self._map_blocks(X, block_leaves, _LARGEST_BLOCK))

    def _n_threads(self) -> int:
        _check_n_jobs(self.n_jobs)
        return min(int(effective_n_jobs(self.n_jobs)), _N_CPUS)

    def _is_frozen(self) -> bool:
        return len(self._rows) < self.n_samples_seen_

    def _sample_all(self) -> None:
        """Sample all trees on the stored rows, each with its own random stream."""
        rows, labels = self._rows[: self.n_samples_seen_], self._labels[: self.n_samples_seen_]
        hyperparameters = self._hyperparameters()
        grove = allocate_grove(len(self._random_states), *rows.shape, is_linked=False)
        free: list[NDArray[np.float32]] = []  # used again, since fresh memory is slow at first

        def learn(number: int) -> None:
            try:
                scratch = free.pop()
            except IndexError:
                scratch = scratch_like(rows)
            learn_batch(
                grove,
                number,
                rows,
                labels,
                self._settings,
                hyperparameters,
                self._random_states[number],
                scratch,
            )
            free.append(scratch)

        self._for_each_tree(learn, grove.n_trees)
        self._grove = grove

    def _extend_all(self, end: int, is_due: bool) -> None:
        """Let the rows up to ``end`` join all trees; after new hyperparameters, renew posteriors.

        Rows must be in all trees or in none, so what an interrupt cuts short is finished first. It
        comes between kernels, never within one.
        """
        hyperparameters = self._hyperparameters()
        grove = self._grove
        n_trees = grove.n_trees

        def extend(first: int, stop: int) -> None:
            learn_more(
                grove,
                first,
                stop,
                self._rows,
                self._labels,
                end,
                self._settings,
                hyperparameters,
                self._random_states,
            )

        def extend_one(number: int) -> None:
            extend(number, number + 1)
            if is_due:
                renew(grove, number, self._settings, hyperparameters)

        if not is_due and end - grove.n_rows(0) < _FEWEST_ROWS_FOR_THREADS:
            extend(0, n_trees)
            return
        try:
            self._for_each_tree(extend_one, n_trees)
        except BaseException:
            for number in range(n_trees):
                extend_one(number)
            raise

    def _for_each_tree(self, act: Callable[[int], None], n_trees: int) -> None:
        n_threads = self._n_threads()
        if n_threads == 1:
            for number in range(n_trees):
                act(number)
        else:
            with ThreadPoolExecutor(n_threads) as executor:  # which waits for what has begun
                list(executor.map(act, range(n_trees)))

    def _make_room(self, n_rows: int) -> None:
        """Enlarge the arrays of rows if they cannot hold ``n_rows``, at least twofold."""
        if n_rows > len(self._rows):
            room = n_rows + len(self._rows)
            self._rows, self._labels = enlarge(self._rows, room), enlarge(self._labels, room)

    def _make_room_in_trees(self, n_rows: int) -> None:
        old = self._grove
        if old.has_room(n_rows):
            return
        new = allocate_grove(old.n_trees, *self._rows.shape, is_linked=True)
        self._for_each_tree(lambda number: copy_tree(old, number, new), old.n_trees)
        self._grove = new

    def _has_outgrown_its_range(
        self, seen_low: NDArray[np.float64], seen_high: NDArray[np.float64]
    ) -> bool:
        if self.feature_range is not None:
            return False
        low, high = self.feature_range_
        with np.errstate(over="ignore"):
            return bool(
                np.any(0.5 * seen_high - 0.5 * seen_low > _WIDEST * (0.5 * high - 0.5 * low))
            )

    def _widen_range(self) -> None:
        """Set the feature range to what was seen, and rescale the stored rows."""
        if not self._has_rescaled:
            _LOGGER.info(
                "Rows span more than %g times the feature range: it is widened, and all trees are "
                "sampled anew, now and whenever this happens again; feature_range avoids it.",
                _WIDEST,
            )
            self._has_rescaled = True
        unit, shifted_low, width = self._scaling
        self._set_feature_range(*self._seen_range)
        new_unit, new_shifted_low, new_width = self._scaling
        rescaled = empty(self._rows.shape, np.float32)
        for rows in _slices(self.n_samples_seen_, 65536):
            half = (self._rows[rows] * width + shifted_low) * (0.5 / unit)
            rescaled[rows] = (half - new_shifted_low * (0.5 / new_unit)) / (
                new_width * (0.5 / new_unit)
            )
        self._rows = rescaled

    def _plain(
        self, X: ArrayLike, y: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return data that needs no more checks than ``_survey`` makes on its way, else None."""
        if (
            self._is_plain_table(X)
            and type(y) is np.ndarray
            and y.dtype == np.float64
            and y.shape == X.shape[:1]
            and y.flags.forc
            and y.flags.writeable  # else the kernels would be compiled once more
        ):
            return X, y
        return None

    def _is_plain_table(self, X: ArrayLike) -> TypeGuard[NDArray[np.float64]]:
        """Whether a table is what the kernels take, if only its numbers are finite.

        The checks of scikit-learn take longer than the prediction of a row, or learning it.
        """
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and not hasattr(self, "feature_names_in_")
        )

    def _check_data(
        self, X: ArrayLike, y: ArrayLike, *, reset: bool
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        _refuse_what_is_no_number("X", X)
        _refuse_what_is_no_number("y", y)
        _check_one_target(y)
        table, labels = validate_data(
            self, X, y, dtype=[np.float64, np.float32], y_numeric=True, reset=reset
        )
        labels = np.require(labels, np.float64, ["C", "W"])
        assert_all_finite(labels, input_name="y")
        if np.abs(labels).max() > _LARGEST_LABEL:
            raise ValueError(f"y must not exceed {_LARGEST_LABEL:g} in size: rescale y.")
        return table, labels

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the room for more rows and nodes."""
        state: dict[str, Any] = super().__getstate__()
        if "_grove" in state:
            state = state | {
                "_grove": trimmed(self._grove),
                "_rows": self._rows[: self.n_samples_seen_],
                "_labels": self._labels[: self.n_samples_seen_],
            }
        return state

    def _ensemble(self) -> Ensemble:
        if not hasattr(self, "_grove"):  # asked first, since the call below takes longer
            check_is_fitted(self, "_grove")
        return Ensemble(
            self._grove.sizes,
            self._grove.nodes,
            self._grove.boxes,
            self._grove.depth,
            self._settings.posterior,
            self._hyperparameters(),
            self._settings.lifetime,
        )

    def _map_distributions(
        self,
        X: ArrayLike,
        evaluate: Callable[[PredictiveDistribution], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """Evaluate the distributions block by block, so that not all components exist at once."""
        ensemble = self._ensemble()

        def evaluate_block(rows: NDArray[np.float32]) -> NDArray[np.float64]:
            moments, mixture = predict_mixture(ensemble, rows)
            return evaluate(PredictiveDistribution(mixture, moments, self.noise_variance_))

        return np.concatenate(self._map_blocks(X, evaluate_block, self._largest_mixture_block()))

    def _check_table(self, X: ArrayLike) -> NDArray[Any]:
        """Validate rows for prediction."""
        if self._is_plain_table(X) and all(is_finite(block) for _, block in _plain_blocks(X)):
            return X
        _refuse_what_is_no_number("X", X)
        table: NDArray[Any] = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return table

    def _largest_mixture_block(self) -> int:
        return max(1, _LARGEST_MIXTURE_BLOCK // self._grove.n_trees)

    def _map_blocks(
        self,
        X: ArrayLike,
        predict_block: Callable[[NDArray[np.float32]], Result],
        largest_block: int,
    ) -> list[Result]:
        """Apply ``predict_block`` to blocks of scaled rows, in threads and in order."""
        table = self._check_table(X)
        n_threads = self._n_threads() if len(table) >= _FEWEST_ROWS_FOR_THREADS else 1
        block = min(_largest_block(largest_block, self._grove.depth), -(-len(table) // n_threads))

        def scale_and_predict(rows: slice) -> Result:
            return predict_block(self._scale(table[rows]))

        blocks = _slices(len(table), block)
        if len(blocks) == 1:
            return [scale_and_predict(blocks[0])]
        return list(
            Parallel(n_jobs=n_threads, require="sharedmem")(
                delayed(scale_and_predict)(rows) for rows in blocks
            )
        )

    def _set_feature_range(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        self.feature_range_ = low, high
        # Halving keeps the difference of two numbers near the end of the float64 range finite.
        with np.errstate(over="ignore"):
            unit = 1.0 if np.all(np.isfinite(high - low)) else 0.5
        width = unit * high - unit * low
        width[width == 0.0] = unit
        self._scaling = unit, unit * low, width

    def _scale(
        self, table: NDArray[Any], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Map features from their range to [0, 1] in float64, then store as float32."""
        scaled = empty(table.shape, np.float32) if out is None else out
        for rows, block in _plain_blocks(table):
            scale_rows(block, *self._scaling, scaled[rows])
        return scaled

    def _survey(
        self, table: NDArray[Any], labels: NDArray[np.float64]
    ) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], LabelSums, bool]:
        """Return the range of all features seen, the sums of these labels, and if all is sound."""
        low, high = (end.copy() for end in self._seen_range)
        all_finite = True
        for _, block in _plain_blocks(table):
            all_finite &= survey_features(block, low, high)
        mean, squared_deviation, largest = survey_labels(labels)
        label_sums = LabelSums(len(labels), mean, squared_deviation)
        return (low, high), label_sums, all_finite and largest <= _LARGEST_LABEL

    def _find_feature_range(
        self, n_features: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.feature_range is None:
            return self._seen_range
        try:
            low, high = (
                np.broadcast_to(np.asarray(end, dtype=np.float64), n_features).copy()
                for end in self.feature_range
            )
        except (TypeError, ValueError, OverflowError):
            low = high = np.zeros(0)
        if low.size == 0 or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
            raise ValueError(
                "feature_range must be a pair (low, high) of finite numbers or of arrays of "
                f"{n_features} numbers, one for each feature, with low < high, "
                f"got {self.feature_range!r}."
            )
        return low, high

    def _check_labels(self, label_sums: LabelSums) -> None:
        _, mean, squared_deviation = label_sums
        if not (squared_deviation == 0.0 or 1e-290 < squared_deviation < math.inf):
            raise ValueError("The variance of y is too large or too small for float64: rescale y.")
        if self.prior_mean is not None and not abs(float(self.prior_mean) - mean) < 1e145:
            raise ValueError(f"prior_mean is too far from y for float64, got {self.prior_mean!r}.")

    def _estimate(self, label_sums: LabelSums) -> None:
        """Set the hyperparameters that were not given, and when to do so again."""
        self._check_labels(label_sums)
        self._label_sums = label_sums
        self.prior_mean_, self.prior_scale_, self.prior_rate_, self.noise_variance_ = (
            heuristic_hyperparameters(
                label_sums.n_rows,
                self.n_features_in_,
                label_sums.mean,
                label_sums.squared_deviation,
                *(
                    None if value is None else float(value)
                    for value in (
                        self.prior_mean,
                        self.prior_scale,
                        self.prior_rate,
                        self.noise_variance,
                    )
                ),
            )
        )
        if not 1e-100 < self.prior_scale_ / self.noise_variance_ < 1e100:
            raise ValueError(
                f"prior_scale {self.prior_scale_:g} and noise_variance {self.noise_variance_:g} "
                "are too far apart for float64: give both, or rescale y."
            )
        self._review_at = max(label_sums.n_rows + 1, math.ceil(1.25 * label_sums.n_rows))

    def _hyperparameters(self) -> Hyperparameters:
        return Hyperparameters(
            float(self.prior_mean_),
            float(self.prior_scale_),
            float(self.prior_rate_),
            float(self.noise_variance_),
        )

    def _check_parameters(self) -> None:
        """Raise a ValueError in one sentence for the first invalid parameter."""
        _check_integer("n_estimators", self.n_estimators, 1)
        _check_integer("min_samples_split", self.min_samples_split, 2)
        _check_n_jobs(self.n_jobs)
        if not (isinstance(self.posterior, str) and self.posterior in _POSTERIORS):
            raise ValueError(
                f"posterior must be one of {', '.join(map(repr, _POSTERIORS))}, "
                f"got {self.posterior!r}."
            )
        if self.prior_mean is not None and not _is_finite_number(self.prior_mean):
            raise ValueError(f"prior_mean must be a number or None, got {self.prior_mean!r}.")
        for name in ("prior_scale", "prior_rate", "noise_variance"):
            value = getattr(self, name)
            if value is not None and not (
                _is_finite_number(value) and _SMALLEST <= float(value) <= _LARGEST
            ):
                raise ValueError(
                    f"{name} must be None or a positive number, from {_SMALLEST:g} to "
                    f"{_LARGEST:g}, got {value!r}."
                )
        if not (self.lifetime == math.inf or _is_finite_number(self.lifetime)) or not (
            self.lifetime > 0
        ):
            raise ValueError(f"lifetime must be a positive number or inf, got {self.lifetime!r}.")


def _largest_block(largest: int, depth: int) -> int:
    """Return how many rows to predict at a time: fewer in very deep trees.

    There, a row can have as many exits as there are levels.
    """
    return max(1, min(largest, 2**26 // (depth + 2)))


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _plain_blocks(table: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield a table in blocks of the one type and layout that kernels are compiled for."""
    if len(table) == 1 and table.dtype == np.float64 and table.flags.carray:
        yield slice(0, 1), table  # a single row is in a hurry
        return
    for rows in _slices(len(table), 65536):
        yield rows, np.require(table[rows], np.float64, ["C", "W"])


def _check_integer(name: str, value: object, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")


def _is_finite_number(value: object) -> bool:
    try:
        return (
            isinstance(value, Real)
            and not isinstance(value, bool | np.bool)
            and math.isfinite(float(value))
        )
    except OverflowError:  # an integer beyond the floats
        return False


def _check_n_jobs(n_jobs: object) -> None:
    if n_jobs is not None and (
        not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}.")


def _refuse_what_is_no_number(name: str, data: object) -> None:
    """Raise a ValueError for dates and masked entries, which would pass as numbers unnoticed."""
    if np.ma.is_masked(data):
        raise ValueError(f"{name} has masked entries: fill them in or leave these rows out.")
    for types in (
        getattr(getattr(data, "schema", None), "types", ()),  # arrow tables
        *(getattr(data, attribute, ()) for attribute in ("dtypes", "dtype", "type")),
    ):
        each_type = types if hasattr(types, "__iter__") else [types]
        if any(re.search("date|time|duration", str(each), re.IGNORECASE) for each in each_type):
            raise ValueError(f"{name} has dates or times: turn them into numbers first.")


def _check_one_target(y: ArrayLike) -> None:
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"MondrianForestRegressor predicts one target but y has {shape[1]} columns: "
            "fit one forest per column, for example with "
            "sklearn.multioutput.MultiOutputRegressor."
        )


def _join_moments(blocks: list[ForestMoments]) -> ForestMoments:
    if len(blocks) == 1:
        return blocks[0]
    return ForestMoments(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _join_mixtures(blocks: list[Mixture]) -> Mixture:
    counts = np.concatenate([np.diff(block.offset) for block in blocks])
    return Mixture(
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([block.weight for block in blocks]),
        np.concatenate([block.location for block in blocks]),
        np.concatenate([block.scale for block in blocks]),
    )
