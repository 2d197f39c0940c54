"""The estimator: validation, scaling, parallelism and fitted attributes around the engine."""

from __future__ import annotations

import copy
import logging
import math
import os
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._core.arrays.grove import (
    Grove,
    allocate_grove,
    allocate_to_grow,
    copy_tree,
    linked,
    trimmed,
    without_rows,
)
from ._core.arrays.memory import empty, enlarge
from ._core.arrays.rng import random_states
from ._core.arrays.tree import MOST_FEATURES, Tree, parents_first
from ._core.features import FARTHEST, is_finite, scale_rows, survey_features, survey_labels
from ._core.growth import MOST_CANDIDATES, Growth
from ._core.growth.extend import extend_trees
from ._core.growth.learn import (
    learn_alone,
    learn_batch,
    log_likelihood,
    put,
    renew,
    scratch_like,
)
from ._core.labels import MODELS, Hierarchical, LabelModel, ModelClass
from ._core.labels.evidence import TUNABLE, evidence_and_gradient, maximise_evidence
from ._core.labels.model import Summary
from ._core.mixtures.collect import predict_mixture
from ._core.mixtures.ensemble import Ensemble
from ._core.mixtures.mixture import Mixture
from ._core.mixtures.reduce import (
    ForestMoments,
    average_part,
    group_parts,
    merge_parts,
    predict_moments,
)
from ._core.mixtures.route import find_leaves
from ._core.moments import Moments, merge_samples
from ._core.spread.apply import Spread, constant_spread, stretch
from ._core.spread.learn import learn_factors, learn_spread
from ._core.spread.record import RECORD, measure
from ._forest.mean_function import fit_trend
from ._forest.model_file import ModelFileError, fault_of_trees, read, write
from ._forest.outliers import MOST_ROWS as MOST_WARP_ROWS
from ._forest.outliers import LabelLimits, Warp, learn_limits, learn_warp, warn_of_limits
from ._forest.parallel import Run, threads
from ._forest.sharing import read as read_from
from ._forest.sharing import write as write_to
from ._forest.validation import refuse_what_is_no_number
from ._forest.weights import MOST_ROWS, Predict, gains, learn_weights
from ._version import __version__
from .distribution import PredictiveDistribution

PAPER: dict[str, Any] = {
    "min_samples_split": 10,
    "posterior": "hierarchical",
    "n_candidate_splits": 1,
    "feature_weights": None,
    "spread": 1.0,
    "robust": False,
}
"""The parameters that make a forest that of the paper: ``MondrianForestRegressor(**PAPER)``."""

_LARGEST_BLOCK = 2**17
"""Rows that are routed through the trees together; larger blocks read each node less often."""
_LARGEST_MIXTURE_BLOCK = 2**19
"""The same for each thread, divided by the number of trees, where the components of all trees are
held at once."""
_SMALLEST, _LARGEST = 1e-50, 1e50
"""Bounds of given hyperparameters, within which no product of them overflows."""
_LARGEST_LABEL = 1e150
_FEWEST_ROWS_FOR_THREADS = 100
"""Fewer rows are learned, and predicted, faster than threads start."""
_WIDEST = 2.0
"""How many times the known feature range rows may span before trees are sampled anew. If a warp is
learned, it is also learned again where they span less than a half of it."""
_FEWEST_ROWS_FOR_SPREAD = 50
_MOST_SPREAD_ROWS = 1000
"""On so many rows the spread is learned, at most; where a tenth of all are fewer, on other tenths,
too, one after the other. With fifths, forests of small tables that have then learned all rows were
better than the spread had been told, and covered too much: by 3 to 6% on sml and wine."""
_MOST_SPREAD_TURNS = 10
ONE_TURN = 5
"""Where there is one turn only, a fifth is held back, not a tenth."""
_SPREAD_BLOCK = 64
"""Rows that a thread measures at a time."""
_FEWEST_ROWS_FOR_EVIDENCE = 10
_WEIGHTS_AT = (50, 200, 800, 3200)
"""When a stream reaches so many rows, feature weights are learned again; the next such number would
be past those that they are learned from."""
FEW_HELD = 0.05
"""If a larger share of rows than this is held back, it is not learned online: trees are sampled
anew, which is no slower then. Where cuts are chosen by the labels, errors are smaller by 2 or 3% (a
fifth of the rows held), since all rows have a say."""
_SPREAD_EVERY = 32
"""Of rows that are learned one after the other, each so-manieth is predicted first."""
_MANY_ROWS = 50_000
"""From so many rows on, leaves of single rows do harm where labels are noisy, to the density and to
the mean; without any noise the mean is better by 5% with them. RMSE and NLPD of 60,000 rows with 2
and with 5 (`python -m benchmarks accuracy`): friedman1 without noise 0.085, -1.00 and 0.090, -1.00,
with noise 5 0.737, 1.17 and 0.725, 1.12; flights of 2008 0.855, 0.81 and 0.842, 0.77."""
_N_CPUS = os.cpu_count() or 1

_LOGGER = logging.getLogger("mondrian_forest")


class MondrianForestRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A Mondrian forest for regression with a full predictive distribution.

    An ensemble of Mondrian trees, with a Bayesian model of the labels in each. Every prediction is
    a mixture of distributions, wide where there is no data: far from all of them it is the
    distribution of all labels.

    The default is what predicts best on most tables. ``MondrianForestRegressor(**PAPER)`` is the
    model of the paper, which is faster, and has the same law online as in batch, but takes no
    notice of the labels when it places its cuts.

    Parameters
    ----------
    n_estimators : int, default=50
        Number of trees.
    min_samples_split : int or "auto", default="auto"
        A node with fewer training rows is not split. "auto": 2 if there are fewer than 50,000 rows
        when the forest is fitted, else 5. With 10, forests of millions of rows take half of the
        memory, and on noisy labels lose little.
    posterior : {"pruned", "hierarchical", "empirical"}, default="pruned"
        "pruned" averages over all prunings of each tree, with an unknown mean and variance in every
        node, and predicts mixtures of Student-t distributions; "hierarchical" is the exact
        posterior under the paper's hierarchical Gaussian prior; "empirical" takes mean and
        variance of the labels in each node instead (the paper's appendix C). With these two, use
        ``min_samples_split=10``.
    n_candidate_splits : int or "n_features", default="n_features"
        Number of cuts that are drawn at every node; the one that separates the labels best is made.
        1 is the paper. With more, trees depend on the labels, and those that learn online differ in
        law from those of a batch fit.
    feature_weights : array-like of shape (n_features,) or "auto", default="auto"
        Relative rates at which the features are cut. None: equal ones. "auto": learned from the
        labels, when the forest is fitted.
    spread : float or "auto", default="auto"
        Stretches the predictive distributions about their means, by this factor. "auto": by factors
        that depend on the standard deviation, with a shape; learned on rows that are predicted
        before they are learned, at the fit and from then on.
    robust : bool, default=True
        Keep single extreme values from ruling the forest. Features are mapped to [0, 1] through
        quantiles, not by minimum and maximum. A label that is more than 20 times as far from the
        median as 99% of the labels is learned as if it were just as far, with a warning.
    trend : None or "linear", default=None
        "linear": a linear function is fitted by ridge regression, once, and the forest learns what
        is left. For data with a trend that goes on beyond them.
    hyperparameters : {"heuristic", "marginal_likelihood"}, default="heuristic"
        How those of the following that are None are found. "marginal_likelihood": such that the
        labels are most probable given the trees; for the hierarchical posterior.
    prior_mean : float, default=None
        Mean of the prior. None: the mean of y. With a trend, of what is left of y.
    prior_scale : float, default=None
        Twice the prior variance of a leaf's mean, gamma_1 in the paper; the pruned posterior has no
        use for it, nor for the next one. None: such that
        ``prior_scale (1/2 + 1/K)`` is the mean squared deviation of y from ``prior_mean``, where
        ``K = min(2000, 2 n_samples)``.
    prior_rate : float, default=None
        How fast the prior variance is used up along a branch, gamma_2 in the paper. None:
        ``n_features / (20 log2(n_samples))``.
    noise_variance : float, default=None
        Variance of a label about the mean of its leaf. None: ``prior_scale / K``. Under the pruned
        posterior, of the error with which labels are known, which keeps densities finite where
        labels repeat: a twelfth of the squared resolution of y, and at least 1e-5 of its variance.
    feature_range : tuple (low, high), default=None
        Ends of the range of each feature, numbers or arrays of shape (n_features,). Features are
        mapped from it to [0, 1] by a straight line; values outside are allowed. None: found in X.
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
        The range that is mapped to [0, 1]: that which was given, or if the forest is ``robust``
        from the 1% to the 99% quantile, else from minimum to maximum.
    feature_weights_ : ndarray of shape (n_features,)
        The rates in use; their mean is 1.
    feature_importances_ : ndarray of shape (n_features,)
        The same, with the sum 1.
    spread_ : Spread
        What is in use: ``spread_.factor`` are the factors for predictions that had the standard
        deviations ``spread_.deviation`` before, and ``spread_.balance`` is the shape.
    min_samples_split_ : int
        The number in use.
    n_samples_seen_ : int
        Number of training rows.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has names that are all strings.

    Notes
    -----
    Where the paper leaves the branch time of a new point open, the hierarchical posterior
    integrates it out: mean and variance of each component are exact, and far from all data a
    prediction is ``N(prior_mean_, prior_scale_ / 2 + noise_variance_)``. Sample weights are not
    supported.

    Threads may share a forest. Predictions, ``save``, pickling and copying see it as it was before
    or after a call of ``fit``, ``partial_fit`` or ``freeze`` in another thread, never in between.
    Calls that change it take turns. An error or an interrupt (Ctrl-C) leaves the forest as it was
    before the call, or as it would have been after it; ``n_samples_seen_`` tells which.
    ``trees_`` are views: they change when rows are learned. Parameters must not be set while
    another thread uses the forest.

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
        n_estimators: int = 50,
        *,
        min_samples_split: int | str = "auto",
        posterior: str = "pruned",
        n_candidate_splits: int | str = "n_features",
        feature_weights: ArrayLike | str | None = "auto",
        spread: float | str = "auto",
        robust: bool = True,
        trend: str | None = None,
        hyperparameters: str = "heuristic",
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
        self.n_candidate_splits = n_candidate_splits
        self.feature_weights = feature_weights
        self.spread = spread
        self.robust = robust
        self.trend = trend
        self.hyperparameters = hyperparameters
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.prior_rate = prior_rate
        self.noise_variance = noise_variance
        self.feature_range = feature_range
        self.lifetime = lifetime
        self.n_jobs = n_jobs
        self.random_state = random_state

    _grove: Grove
    _label_sums: Moments
    _model_class: ModelClass
    prior_mean_: float
    prior_scale_: float
    prior_rate_: float
    noise_variance_: float
    spread_: Spread
    n_samples_seen_: int
    _review_at: int
    _warp: Warp | None
    _label_limits: LabelLimits
    _scaling: tuple[float, NDArray[np.float64], NDArray[np.float64]]
    _unfinished: tuple[int, bool]
    """Set while rows join the trees: up to which row, and if hyperparameters are new."""
    _is_mapped = False
    """Whether the boxes are in a model file, where they are not checked before they are needed."""

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
        write_to(self, lambda draft: draft._fit(X, y))
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike) -> None:
        self._check_parameters()
        for name in ("_log_likelihoods", "_is_mapped"):  # of a frozen forest, of a loaded one
            self.__dict__.pop(name, None)
        table, labels = self._check_data(X, y, reset=True)
        n_rows, n_features = table.shape
        self._label_limits = learn_limits(labels) if self.robust else LabelLimits()
        labels = self._within_limits(labels)
        nothing = np.full(n_features, np.inf)
        self._seen_range = nothing, -nothing
        self._seen_range, label_sums, _ = self._survey(table, labels)
        random = self._begin(n_rows, n_features)
        self._learn_scaling(table, random)
        n_turns = _MOST_SPREAD_TURNS if self.trend is None else ONE_TURN
        held = self._choose_spread_rows(n_rows, n_turns, random)
        self._resolution = resolution_of(labels)
        self._trend = None
        if self.trend == "linear":
            is_used = np.ones(n_rows, dtype=bool)
            is_used[held] = False
            self._trend = fit_trend(_plain_blocks(table), labels, is_used, self._seen_range)
            labels = self._without_trend(table, labels)
            label_sums = Moments(n_rows, *survey_labels(labels)[:2])
        self._weigh(self._find_weights(table, labels, held, random))
        self._rows = self._scale(table)
        self._labels = labels.copy()
        self._has_rescaled = False
        self._move_to_the_end(held)
        n_held = len(held)
        self.n_samples_seen_ = n_rows - n_held
        self._estimate(label_sums)
        self._sample_all()
        if n_held > 0:
            self._learn_spread(self._rows[-n_held:], self._labels[-n_held:])
            for others in self._choose_more_spread_rows(n_rows, n_held, random):
                self._move_to_the_end(others)
                self._sample_all()
                self._learn_spread(self._rows[-n_held:], self._labels[-n_held:])
            self.n_samples_seen_ = n_rows
            if n_held > FEW_HELD * n_rows:
                self._sample_all()
            else:
                self._grove = linked(self._grove)
                self._extend_all(n_rows, is_due=False)
        self._maximise_evidence()

    def _within_limits(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return labels as they are learned, with a warning where that is not as they are."""
        learned = self._label_limits.apply(labels)
        if learned is not labels:
            warn_of_limits(self._label_limits, stacklevel=7)
        return learned

    def _begin(self, n_rows: int, n_features: int) -> np.random.Generator:
        """Set what trees need beside rows: settings and random streams; return another stream."""
        if n_features > MOST_FEATURES:
            raise ValueError(
                f"A forest takes {MOST_FEATURES:,} features at most, got {n_features:,}: leave out "
                "what says least, or make fewer of them."
            )
        seed = np.random.SeedSequence(
            check_random_state(self.random_state).randint(2**32, size=4, dtype=np.uint64).tolist()
        )
        self._random_states = random_states(seed, self.n_estimators)
        if isinstance(self.min_samples_split, str):
            min_samples_split = 2 if n_rows < _MANY_ROWS else 5
        else:
            min_samples_split = min(int(self.min_samples_split), 2**31 - 1)
        self._model_class = MODELS[self.posterior]
        self._growth = Growth(
            min_samples_split,
            min(
                n_features
                if isinstance(self.n_candidate_splits, str)
                else int(self.n_candidate_splits),
                MOST_CANDIDATES,
            ),
            float(self.lifetime),
        )
        return np.random.default_rng(seed.spawn(1)[0])

    def _find_weights(
        self,
        table: NDArray[Any],
        labels: NDArray[np.float64],
        held: NDArray[np.int64],
        random: np.random.Generator,
    ) -> NDArray[np.float64]:
        """Return the rate of each feature, given or learned on rows that are not held back."""
        n_rows, n_features = table.shape
        if self.feature_weights is None:
            return np.ones(n_features)
        if not isinstance(self.feature_weights, str):
            weights = np.asarray(self.feature_weights, dtype=np.float64)
            if weights.shape != (n_features,):
                raise ValueError(
                    f"feature_weights must have one number for each of the {n_features} features, "
                    f"got shape {weights.shape}."
                )
            return np.asarray(weights / weights.mean())
        if n_features == 1:
            return np.ones(1)
        free = np.setdiff1d(np.arange(n_rows), held)
        chosen = random.choice(free, min(len(free), MOST_ROWS), replace=False)
        if self._warp is not None:
            return self._learn_weights(self._warp.apply(table[chosen]), labels[chosen], random)
        low, high = self.feature_range_
        # In units of the range, halved: the range of a float64 has no width in float64.
        size = 0.5 * high - 0.5 * low
        with np.errstate(over="ignore"):
            rows = (0.5 * table[chosen] - 0.5 * low) / np.where(size > 0.0, size, 1.0)
        return self._learn_weights(rows, labels[chosen], random)

    def _learn_weights(
        self, rows: NDArray[np.float64], labels: NDArray[np.float64], random: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the rate of each feature, from rows in units of the feature range."""

        def learn(
            weights: NDArray[np.float64], rows: NDArray[np.float64], labels: NDArray[np.float64]
        ) -> tuple[Predict, NDArray[np.float64]]:
            small: MondrianForestRegressor = clone(self).set_params(
                n_estimators=min(self.n_estimators, 20),
                feature_weights=weights,
                feature_range=(0.0, 1.0),
                spread=1.0,
                robust=False,
                trend=None,
                hyperparameters="heuristic",
                random_state=int(random.integers(2**31)),
            )
            small.fit(rows, labels)
            return small.predict, gains(small.trees_, rows.shape[1])  # type: ignore[return-value]

        with parallel_config("threading"):  # these are too small to be worth sending elsewhere
            return learn_weights(np.clip(rows, -FARTHEST, FARTHEST), labels, learn, random)

    def _learn_weights_again(self) -> None:
        """Learn the feature weights from the rows seen so far, and rescale these."""
        random = np.random.default_rng(self._random_states[0].tolist())
        n_rows = self.n_samples_seen_
        chosen = random.choice(n_rows, min(n_rows, MOST_ROWS), replace=False)
        old = self.feature_weights_
        rows = self._rows[chosen] / old  # the smallest one learned is far from zero
        self._weigh(self._learn_weights(rows, self._labels[chosen], random))
        rescaled = empty(self._rows.shape, np.float32)
        known = self._rows[:n_rows] * (self.feature_weights_ / old)
        np.clip(known, -FARTHEST, FARTHEST, out=rescaled[:n_rows])
        self._rows = rescaled

    def _without_trend(
        self, table: NDArray[Any], labels: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if self._trend is None:
            return labels
        rest = labels - self._trend.at(table)
        if not np.abs(rest).max() <= _LARGEST_LABEL:
            raise ValueError("X is too far from the rows of the fit for its linear trend.")
        return rest

    def _choose_spread_rows(
        self, n_rows: int, n_turns: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the numbers of the rows on which the spread is learned, for the first turn."""
        self._spread_record = np.empty(0, RECORD)
        self.spread_ = constant_spread(1.0 if isinstance(self.spread, str) else float(self.spread))
        if not isinstance(self.spread, str) or n_rows < _FEWEST_ROWS_FOR_SPREAD:
            return np.empty(0, dtype=np.int64)
        return random.choice(n_rows, min(n_rows // n_turns, _MOST_SPREAD_ROWS), replace=False)

    def _choose_more_spread_rows(
        self, n_rows: int, n_held: int, random: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """Return rows to be held back in turn, where those held back at first are few.

        They are not at the end, where the first ones are. A trend has seen the labels of all others
        and may explain them too well; feature weights have too, and do no harm.
        """
        if self._trend is not None:
            return []
        n_turns = min(_MOST_SPREAD_ROWS // n_held, _MOST_SPREAD_TURNS) - 1
        free = random.permutation(n_rows - n_held)[: n_turns * n_held]
        return np.split(free, n_turns) if n_turns > 0 else []

    def _move_to_the_end(self, chosen: NDArray[np.int64]) -> None:
        """Let some rows change places with those at the end."""
        first = len(self._rows) - len(chosen)
        away = chosen[chosen < first]  # the others are there already
        free = np.setdiff1d(np.arange(first, len(self._rows)), chosen)
        for array in (self._rows, self._labels):
            array[away], array[free] = array[free], array[away]

    def _learn_spread(self, rows: NDArray[np.float32], labels: NDArray[np.float64]) -> None:
        """Choose the spread with which rows that are not learned yet would be predicted best."""
        rows = np.ascontiguousarray(rows[-_MOST_SPREAD_ROWS:])
        labels = np.ascontiguousarray(labels[-_MOST_SPREAD_ROWS:])
        known = self._spread_record
        # At first no factors are known with which balances could be judged: hence twice.
        for _ in range(1 if len(known) > 0 else 2):
            new = self._measure(rows, labels, learn_factors(self._spread_record))
            # What is long past is forgotten.
            self._spread_record = np.concatenate((known, new))[-_MOST_SPREAD_ROWS:]
        self.spread_ = learn_spread(self._spread_record, self._far_deviation())

    def _far_deviation(self) -> float:
        """Return the standard deviation that the trees predict far from all rows."""
        far = np.full((1, len(self.feature_weights_)), FARTHEST, dtype=np.float32)
        moments, _ = predict_mixture(self._ensemble(), far)
        return math.sqrt(float(np.sum(moments[1:])))

    def _measure(
        self, rows: NDArray[np.float32], labels: NDArray[np.float64], factors: Spread
    ) -> NDArray[Any]:
        """Return the record of rows that are predicted as the trees do it, and of their labels."""
        ensemble = self._ensemble()
        parts = _slices(len(rows), _SPREAD_BLOCK)
        record = np.empty(len(rows), RECORD)

        def measure_part(number: int) -> None:
            part = parts[number]
            moments, mixture = predict_mixture(ensemble, rows[part])
            measure(mixture, moments.mean, labels[part], factors, record[part])

        self._in_threads(measure_part, len(parts))
        return record

    def _seeks_evidence(self) -> bool:
        return (
            self.hyperparameters == "marginal_likelihood"
            and issubclass(self._model_class, Hierarchical)
            and self.n_samples_seen_ >= _FEWEST_ROWS_FOR_EVIDENCE
        )

    def _maximise_evidence(self) -> None:
        """Set the hyperparameters that were not given to those that make the labels likeliest.

        The posteriors of all trees are renewed in place, so nobody else may know these trees.
        """
        if not self._seeks_evidence():
            return
        grove = self._grove
        trees = [grove.tree(number) for number in range(grove.n_trees)]
        orders = [parents_first(tree.nodes, tree.depth) for tree in trees]

        def evaluate(tried: Hierarchical) -> tuple[float, NDArray[np.float64]]:
            found = np.empty((grove.n_trees, 1 + len(TUNABLE)))

            def evaluate_one(number: int) -> None:
                nodes, _, tallies = grove.tree(number)
                gradient = found[number, 1:]
                found[number, 0] = evidence_and_gradient(
                    tried, nodes, tallies, orders[number], gradient
                )

            self._in_threads(evaluate_one, grove.n_trees)
            mean = found.mean(axis=0)
            return float(mean[0]), mean[1:]

        free = [name for name in TUNABLE if getattr(self, name) is None]
        start = self._label_model()
        assert isinstance(start, Hierarchical)
        best = maximise_evidence(evaluate, start, self.n_samples_seen_, minimize, free)
        _, self.prior_scale_, self.prior_rate_, self.noise_variance_ = best
        self._in_threads(lambda number: renew(grove, number, best), grove.n_trees)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> MondrianForestRegressor:
        """Learn more rows, in time that grows like the logarithm of the rows seen.

        The forest that results has the same law as one fitted to all rows at once, whatever their
        order and the size of the calls; without an earlier fit this is the first one. With
        ``n_candidate_splits`` above 1 that does not hold: cuts that are there stay, and only new
        ones look at the labels. Feature weights that are "auto" are learned again, and all trees
        sampled anew from the stored rows, when 50, 200, 800 and 3,200 rows have been seen. A trend
        stays that of the first fit, which should have some hundreds of rows then.

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

        def change(draft: MondrianForestRegressor) -> None:
            if hasattr(draft, "_grove"):
                draft._learn_more(X, y)
            else:
                draft._fit(X, y)

        write_to(self, change)
        return self

    def _learn_more(self, X: ArrayLike, y: ArrayLike) -> None:
        """Prepare all that changes with new rows; they join the trees in ``_finish``.

        Arrays that others know are not changed, except for room that is not in use.
        """
        if self._is_frozen():
            raise ValueError(
                "This forest has dropped its training rows with freeze() and cannot learn more: "
                "fit it again, or keep a copy that is not frozen."
            )
        table, labels = self._plain(X, y) or self._check_data(X, y, reset=False)
        seen_range, new_sums, is_sound = self._survey(table, labels)
        if not is_sound:  # only what is plain has not been checked yet: this says what is wrong
            self._check_data(X, y, reset=False)
        learned = self._within_limits(labels)
        if self._trend is not None:
            learned = self._without_trend(table, learned)
        if learned is not labels:
            labels = learned
            new_sums = Moments(len(labels), *survey_labels(labels)[:2])
        begin = self.n_samples_seen_
        end = begin + len(labels)
        label_sums = merge_samples(self._label_sums, new_sums)
        is_due = end >= self._review_at
        if is_due:
            self._check_parameters()
            self._check_labels(label_sums)
        self._random_states = self._random_states.copy()
        if isinstance(self.spread, str):
            scored = slice(-begin % _SPREAD_EVERY, None, _SPREAD_EVERY)
            if len(labels[scored]) > 0 and begin >= _FEWEST_ROWS_FOR_SPREAD:
                self._learn_spread(self._scale(table[scored]), labels[scored])
        self._seen_range = seen_range
        self._label_sums = label_sums
        must_resample = is_due and self._has_outgrown_its_range()
        if must_resample:
            self._widen_range()
        self._make_room(end)
        self._scale(table, self._rows[begin:end])
        self._labels[begin:end] = labels
        self.n_samples_seen_ = end
        if is_due:
            must_resample |= self._renew_warp()
            if self._trend is None:  # else the stored labels are not those that were given
                must_resample |= self._review_labels()
                self._resolution = resolution_of(self._labels[:end])
            self._estimate(self._label_sums)
        if (
            isinstance(self.feature_weights, str)
            and self.n_features_in_ > 1
            and bool(np.all(self.feature_weights_ > 0.0))  # else given ones, when it was fitted
            and any(begin < number <= end for number in _WEIGHTS_AT)
        ):
            self._learn_weights_again()
            must_resample = True
        if must_resample:
            self._sample_all()
            if is_due:
                self._maximise_evidence()
            return
        self._make_room_in_trees(end)
        self._unfinished = end, is_due
        if is_due and self._seeks_evidence():  # which has to see the rows in the trees
            self._copy_trees()
            self._finish()
            self._maximise_evidence()

    def _review_labels(self) -> bool:
        """Find the limits of labels again; return if labels that were learned lie outside."""
        if not self.robust:
            return False
        known = self._labels[: self.n_samples_seen_]
        self._label_limits = learn_limits(known)
        learned = self._label_limits.apply(known)
        if learned is known:
            return False
        warn_of_limits(self._label_limits, stacklevel=7)
        self._labels = enlarge(learned, len(self._labels))
        self._label_sums = Moments(len(learned), *survey_labels(learned)[:2])
        return True

    def _finish(self) -> None:
        """Let the rows join the trees, where that has been prepared."""
        if "_unfinished" in self.__dict__:
            self._extend_all(*self._unfinished)
            self.__dict__.pop("_unfinished", None)

    def freeze(self) -> MondrianForestRegressor:
        """Drop the training rows, and all that only learning needs; predictions stay the same.

        Afterwards ``partial_fit`` is refused.

        Returns
        -------
        self
        """
        write_to(self, MondrianForestRegressor._drop_rows)
        return self

    def _drop_rows(self) -> None:
        check_is_fitted(self, "_grove")
        if not self._is_frozen():
            if issubclass(self._model_class, Hierarchical):
                self._log_likelihoods = self._find_log_likelihoods()
            self._grove = without_rows(self._grove)
            self._rows, self._labels = self._rows[:0].copy(), self._labels[:0].copy()
            self._spread_record = self._spread_record[:0].copy()

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
        self._save(path, rows=rows)

    def _save(
        self, path: str | os.PathLike[str], *, rows: bool = True, table: str | None = None
    ) -> None:
        """Save, with a text that says how tables become features."""

        def look(view: MondrianForestRegressor) -> None:
            check_is_fitted(view, "_grove")
            view._check_parameters()  # set after the fit, they might be refused when it is loaded
            state = view.__dict__
            if not rows:
                frozen = object.__new__(type(view))
                frozen.__dict__.update(state)
                frozen._drop_rows()
                state = frozen.__dict__
            names = state.get("feature_names_in_")
            state = state | {
                "parameters": view.get_params(deep=False),
                "label_model": view._label_model(),
                "feature_names": None if names is None else names.tolist(),
                "table": table,
                "_rows": state["_rows"][: view.n_samples_seen_],
                "_labels": state["_labels"][: view.n_samples_seen_],
            }
            write(path, state, __version__)

        read_from(self, look)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> MondrianForestRegressor:
        """Open a file that ``save`` has written.

        Nothing in a file is executed, and everything is checked: a file that is truncated, damaged
        or made to do harm ends in a ``ModelFileError``.

        Parameters
        ----------
        path : str or path
        mmap : bool, default=False
            Leave the boxes of the nodes, which are most of the file, where they are, and read those
            that predictions ask for when they do. Everything else is read and checked as usual;
            boxes are checked before the forest learns more. Saving another forest under the same
            name is fine, since the old file stays until nobody uses it. What happens when another
            program changes the file in place is undefined: predictions may be wrong, and if the
            file is cut short, the system may end the process.

        Returns
        -------
        MondrianForestRegressor
        """
        return cls._load(path, mmap=mmap)[0]

    @classmethod
    def _load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False
    ) -> tuple[MondrianForestRegressor, str | None]:
        """Return the forest of a file, and what it says about tables."""
        state = read(path, mapped=mmap)
        table = state.pop("table")
        try:
            forest = cls(**state.pop("parameters"))
            forest._check_parameters()
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {error}") from None
        forest.prior_rate_ = 1.0 if forest.prior_rate is None else float(forest.prior_rate)
        label_model = state.pop("label_model")
        forest._model_class = type(label_model)
        for name, value in label_model._asdict().items():
            setattr(forest, f"{name}_", value)
        weights = state.pop("feature_weights_")
        forest.__dict__.update(state)
        forest._weigh(weights)
        return forest, table

    @property
    def trees_(self) -> list[Tree]:
        """The trees, as flat arrays: views, which change when rows are learned."""
        check_is_fitted(self, "_grove")
        grove: Grove = read_from(self, lambda view: view._grove)
        return [grove.tree(number) for number in range(grove.n_trees)]

    @property
    def log_marginal_likelihood_(self) -> NDArray[np.float64]:
        """Log density of the training labels given each tree, shape (n_estimators,)."""
        check_is_fitted(self, "_grove")
        if not issubclass(self._model_class, Hierarchical):
            raise AttributeError("Only the hierarchical posterior has a log_marginal_likelihood_.")
        return read_from(self, MondrianForestRegressor._find_log_likelihoods)

    def _find_log_likelihoods(self) -> NDArray[np.float64]:
        if self._is_frozen():
            return self._log_likelihoods.copy()
        model = self._label_model()
        assert isinstance(model, Hierarchical)
        return np.array(
            [log_likelihood(self._grove, number, model) for number in range(self._grove.n_trees)]
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
        moments, spread = read_from(self, lambda view: (view._predict_moments(X), view.spread_))
        if not return_std:
            return np.asarray(moments.mean)
        variance = moments.noise + moments.posterior + moments.branching + moments.between_trees
        std = np.sqrt(variance)
        return moments.mean, spread.factor_at(std) * std

    def _predict_moments(self, X: ArrayLike) -> ForestMoments:
        """Predict mean and parts of the variance, not stretched."""
        ensemble = self._ensemble()
        table = self._check_table(X)
        blocks = _slices(len(table), _largest_block(_LARGEST_BLOCK, ensemble.depth))
        elsewhere = self._other_processes() if len(table) >= _FEWEST_ROWS_FOR_THREADS else None
        if elsewhere is not None:
            n_trees = len(ensemble.sizes)
            parts = group_parts(ensemble, max(1, int(effective_n_jobs(self.n_jobs))))
            found = []
            for rows in blocks:
                scaled = self._scale(table[rows])
                each = elsewhere(delayed(average_part)(part, scaled, n_trees) for part in parts)
                found.append(merge_parts(ensemble, each))
        else:
            n_threads = self._n_threads_for(len(table))
            with threads(n_threads) as run:
                found = [
                    predict_moments(ensemble, self._scale(table[rows]), n_threads, run)
                    for rows in blocks
                ]
        moments = _join_moments(found)
        if self._trend is not None:
            moments.mean[:] += self._trend.at(table)
        return moments

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the distribution of the label of each row.

        The components of all rows are kept, about 24 bytes (32 under the pruned posterior) times
        the depth of the trees times their number for each row; ask for a few 100,000 rows at a
        time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        PredictiveDistribution
        """
        blocks = read_from(self, lambda view: list(view._predict_blocks(X)))
        return PredictiveDistribution(
            _join_mixtures([mixture for _, mixture in blocks]),
            _join_moments([moments for moments, _ in blocks]),
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
        return read_from(self, lambda view: view._apply(X))

    def _apply(self, X: ArrayLike) -> NDArray[np.int32]:
        ensemble = self._ensemble()
        rows = self._scale(self._check_table(X))
        leaves = np.empty((len(ensemble.sizes), len(rows)), dtype=np.int32)

        def find(number: int) -> None:
            nodes = ensemble.nodes[number, : ensemble.sizes[number]]
            find_leaves(nodes, rows, leaves[number])

        self._in_threads(find, len(leaves))
        return np.ascontiguousarray(leaves.T)

    @property
    def min_samples_split_(self) -> int:
        """The number of rows from which on nodes are split; a stream keeps that of its start."""
        check_is_fitted(self, "_grove")
        return self._growth.min_samples_split

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The rates at which cuts are drawn, relative to their sum: shape (n_features,)."""
        check_is_fitted(self, "_grove")
        return np.asarray(self.feature_weights_ / self.feature_weights_.sum())

    def _n_threads(self) -> int:
        _check_n_jobs(self.n_jobs)
        return min(int(effective_n_jobs(self.n_jobs)), _N_CPUS)

    def _n_threads_for(self, n_rows: int) -> int:
        return self._n_threads() if n_rows >= _FEWEST_ROWS_FOR_THREADS else 1

    def _other_processes(self) -> Parallel | None:
        """Return how to use other processes, if joblib is configured to.

        As in ``with joblib.parallel_config("dask")``. Without that, threads are faster.
        """
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        return None if getattr(parallel._backend, "supports_sharedmem", False) else parallel

    def _is_frozen(self) -> bool:
        return len(self._rows) < self.n_samples_seen_

    def _sample_all(self) -> None:
        """Sample all trees on the stored rows, each with its own random stream."""
        rows, labels = self._rows[: self.n_samples_seen_], self._labels[: self.n_samples_seen_]
        model = self._label_model()
        grove = allocate_grove(len(self._random_states), *self._rows.shape, is_linked=False)
        elsewhere = self._other_processes()
        if elsewhere is not None:
            learned = elsewhere(
                delayed(learn_alone)(rows, labels, self._growth, model, state)
                for state in self._random_states
            )
            for number, one in enumerate(learned):
                put(grove, number, one)
                self._random_states[number] = one.random_state
            self._grove = grove
            return
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
                self._growth,
                model,
                self._random_states[number],
                scratch,
            )
            free.append(scratch)

        self._in_threads(learn, grove.n_trees)
        self._grove = grove

    def _extend_all(self, end: int, is_due: bool) -> None:
        """Let the rows up to ``end`` join all trees; after new hyperparameters, renew posteriors.

        Trees that have these rows are left as they are, so that a call that was interrupted can be
        repeated. Interrupts come between kernels, never within one.
        """
        model = self._label_model()
        grove = self._grove

        def extend(first: int, stop: int) -> None:
            extend_trees(
                grove,
                first,
                stop,
                self._rows,
                self._labels,
                end,
                self._growth,
                model,
                self._random_states,
            )

        def extend_one(number: int) -> None:
            extend(number, number + 1)
            if is_due:
                renew(grove, number, model)

        n_new = end - min(grove.n_rows(number) for number in range(grove.n_trees))
        if not is_due and n_new < _FEWEST_ROWS_FOR_THREADS:
            extend(0, grove.n_trees)
        else:
            self._in_threads(extend_one, grove.n_trees)

    def _in_threads(self, act: Callable[[int], None], n_parts: int) -> None:
        """Act on each number, of a tree or of another part of the work."""
        with threads(min(self._n_threads(), n_parts)) as run:
            for _ in run(act, range(n_parts)):
                pass

    def _make_room(self, n_rows: int) -> None:
        """Enlarge the arrays of rows if they cannot hold ``n_rows``, at least twofold."""
        if n_rows > len(self._rows):
            room = n_rows + len(self._rows)
            self._rows, self._labels = enlarge(self._rows, room), enlarge(self._labels, room)

    def _make_room_in_trees(self, n_rows: int) -> None:
        if not self._grove.has_room(n_rows):
            self._copy_trees()

    def _copy_trees(self) -> None:
        """Replace the trees by a copy that nobody else knows, and that can learn more."""
        old = self._grove
        new = allocate_to_grow(old.n_trees, *self._rows.shape)
        self._in_threads(lambda number: copy_tree(old, number, new), old.n_trees)
        if self._is_mapped:  # somebody may have changed the file since it was loaded
            fault = fault_of_trees(new, self._rows, old.n_rows(0), self._label_model())
            if fault:
                raise ModelFileError(
                    f"The model file has changed since it was loaded with mmap=True: {fault}."
                )
            self._is_mapped = False
        self._grove = new

    def _has_outgrown_its_range(self) -> bool:
        if self.feature_range is not None or self._warp is not None:
            return False
        (low, high), (seen_low, seen_high) = self.feature_range_, self._seen_range
        with np.errstate(over="ignore"):
            is_wide = 0.5 * seen_high - 0.5 * seen_low > _WIDEST * (0.5 * high - 0.5 * low)
        return bool(np.any(is_wide & (self.feature_weights_ > 0.0)))

    def _widen_range(self) -> None:
        """Set the feature range to what was seen, and rescale the stored rows."""
        self._tell_of_rescaling()
        unit, shifted_low, width = self._scaling
        self.feature_range_ = self._seen_range
        self._weigh(self.feature_weights_)
        new_unit, new_shifted_low, new_width = self._scaling
        rescaled = empty(self._rows.shape, np.float32)
        width = np.where(np.isinf(width), 0.0, width)
        for rows in _slices(self.n_samples_seen_, 65536):
            half = (self._rows[rows] * width + shifted_low) * (0.5 / unit)
            rescaled[rows] = (half - new_shifted_low * (0.5 / new_unit)) / (
                new_width * (0.5 / new_unit)
            )
        self._rows = rescaled

    def _renew_warp(self) -> bool:
        """Learn the warp again if the bulk of the rows spans much more, or less, than it did.

        The stored rows are warped anew then. Returns whether that was so.
        """
        warp = self._warp
        if warp is None:
            return False
        width = np.where(np.isinf(self._scaling[2]), 0.0, self._scaling[2])
        some = self._rows[: self.n_samples_seen_ : -(-self.n_samples_seen_ // MOST_WARP_ROWS)]
        some = some * width
        margin = len(some) // 100
        low, high = np.sort(some, axis=0)[[margin, -1 - margin]]
        span = high - low  # it was 1, or nothing
        if not np.any((span > _WIDEST) | ((span > 0.0) & (span < 1.0 / _WIDEST))):
            return False
        self._tell_of_rescaling()
        self._warp = learn_warp(warp.invert(some))
        self.feature_range_ = self._warp.ends
        rescaled = empty(self._rows.shape, np.float32)
        for rows in _slices(self.n_samples_seen_, 65536):
            known = warp.invert(self._rows[rows] * width)
            scale_rows(self._warp.apply(known), *self._scaling, rescaled[rows])
        self._rows = rescaled
        return True

    def _tell_of_rescaling(self) -> None:
        if not self._has_rescaled:
            _LOGGER.info(
                "Rows span more than %g times the feature range: it is found again, and all trees "
                "are sampled anew, now and whenever this happens again; feature_range avoids it.",
                _WIDEST,
            )
            self._has_rescaled = True

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
        refuse_what_is_no_number("X", X)
        refuse_what_is_no_number("y", y)
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
        """Return a copy that does not change any more, without the room for more rows and nodes."""

        def look(view: MondrianForestRegressor) -> dict[str, Any]:
            state: dict[str, Any] = super().__getstate__().copy()
            state.pop("_gate", None)
            if "_grove" in state:
                state |= {
                    "_grove": trimmed(view._grove),
                    "_rows": view._rows[: view.n_samples_seen_].copy(),
                    "_labels": view._labels[: view.n_samples_seen_].copy(),
                    "_random_states": view._random_states.copy(),
                }
            return state

        return read_from(self, look)

    def __deepcopy__(self, memo: dict[int, Any]) -> MondrianForestRegressor:
        """Copy the large arrays once: those of the state belong to nobody else."""
        other: MondrianForestRegressor = object.__new__(type(self))
        memo[id(self)] = other
        state = self.__getstate__()
        for name in ("_grove", "_rows", "_labels", "_random_states"):
            if name in state:
                memo[id(state[name])] = state[name]
        other.__setstate__(copy.deepcopy(state, memo))
        return other

    def _ensemble(self) -> Ensemble:
        if not hasattr(self, "_grove"):  # asked first, since the call below takes longer
            check_is_fitted(self, "_grove")
        return Ensemble(
            self._grove.sizes,
            self._grove.nodes,
            self._grove.boxes,
            self._grove.depth,
            self._label_model(),
            self._growth.lifetime,
        )

    def _map_distributions(
        self,
        X: ArrayLike,
        evaluate: Callable[[PredictiveDistribution], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """Evaluate the distributions block by block, so that not all components exist at once."""

        def look(view: MondrianForestRegressor) -> NDArray[np.float64]:
            return np.concatenate(
                [
                    evaluate(PredictiveDistribution(mixture, moments, self.n_jobs))
                    for moments, mixture in view._predict_blocks(X)
                ]
            )

        return read_from(self, look)

    def _predict_blocks(self, X: ArrayLike) -> Iterator[tuple[ForestMoments, Mixture]]:
        """Predict distributions, block by block; threads work together on each."""
        ensemble = self._ensemble()
        table = self._check_table(X)
        n_threads = self._n_threads_for(len(table))
        # Each thread has a workspace for all rows of a block, hence the same limit as for moments.
        largest = min(_LARGEST_BLOCK, n_threads * _LARGEST_MIXTURE_BLOCK // len(ensemble.sizes))
        with threads(n_threads) as run:
            for rows in _slices(len(table), _largest_block(max(1, largest), ensemble.depth)):
                yield self._predict_block(ensemble, table[rows], n_threads, run)

    def _predict_block(
        self,
        ensemble: Ensemble,
        table: NDArray[Any],
        n_threads: int,
        run: Run,
    ) -> tuple[ForestMoments, Mixture]:
        """Predict rows: what the trees say, stretched, with the trend."""
        moments, mixture = predict_mixture(ensemble, self._scale(table), n_threads, run)
        if not self.spread_.changes_nothing():
            moments = stretch(mixture, moments, self.spread_)
        if self._trend is not None:
            trend = self._trend.at(table)
            moments.mean[:] += trend
            mixture.location[:] += np.repeat(trend, np.diff(mixture.offset))
        return moments, mixture

    def _check_table(self, X: ArrayLike) -> NDArray[Any]:
        """Validate rows for prediction."""
        if self._is_plain_table(X) and all(is_finite(block) for _, block in _plain_blocks(X)):
            return X
        refuse_what_is_no_number("X", X)
        table: NDArray[Any] = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return table

    def _learn_scaling(self, table: NDArray[Any], random: np.random.Generator) -> None:
        """Find how features are mapped to [0, 1], by a warp or by a straight line."""
        self._warp = None
        if self.robust and self.feature_range is None:
            n_rows = len(table)
            if n_rows > MOST_WARP_ROWS:
                table = table[np.sort(random.choice(n_rows, MOST_WARP_ROWS, replace=False))]
            self._warp = learn_warp(table)
            self.feature_range_ = self._warp.ends
        else:
            self.feature_range_ = self._find_feature_range(table.shape[1])

    def _weigh(self, weights: NDArray[np.float64]) -> None:
        """Set the rate of each feature, and with it the scale of its coordinate."""
        self.feature_weights_ = weights
        low, high = self.feature_range_
        if self._warp is not None:
            low, high = np.zeros(len(weights)), np.ones(len(weights))
        # Halving keeps the difference of two numbers near the end of the float64 range finite.
        with np.errstate(over="ignore"):
            unit = 1.0 if np.all(np.isfinite(high - low)) else 0.5
        width = unit * high - unit * low
        width[width == 0.0] = unit
        with np.errstate(divide="ignore", over="ignore"):
            width /= weights  # a feature of weight zero is everywhere at zero
        self._scaling = unit, unit * low, width

    def _scale(
        self, table: NDArray[Any], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Map features to [0, 1] in float64, multiply by their rates, then store as float32."""
        scaled = empty(table.shape, np.float32) if out is None else out
        for rows, block in _plain_blocks(table):
            warped = block if self._warp is None else self._warp.apply(block)
            scale_rows(warped, *self._scaling, scaled[rows])
        return scaled

    def _unscale(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features of scaled rows; those of weight zero are at the low end."""
        unit, shifted_low, width = self._scaling
        plain = (rows * np.where(np.isinf(width), 0.0, width) + shifted_low) / unit
        return np.asarray(plain if self._warp is None else self._warp.invert(plain))

    def _survey(
        self, table: NDArray[Any], labels: NDArray[np.float64]
    ) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], Moments, bool]:
        """Return the range of all features seen, the sums of these labels, and if all is sound."""
        low, high = (end.copy() for end in self._seen_range)
        all_finite = True
        for _, block in _plain_blocks(table):
            all_finite &= survey_features(block, low, high)
        mean, squared_deviation, largest = survey_labels(labels)
        label_sums = Moments(len(labels), mean, squared_deviation)
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

    def _check_labels(self, label_sums: Moments) -> None:
        _, mean, squared_deviation = label_sums
        if not (squared_deviation == 0.0 or 1e-290 < squared_deviation < math.inf):
            raise ValueError("The variance of y is too large or too small for float64: rescale y.")
        if self.prior_mean is not None and not abs(float(self.prior_mean) - mean) < 1e145:
            raise ValueError(f"prior_mean is too far from y for float64, got {self.prior_mean!r}.")

    def _estimate(self, label_sums: Moments) -> None:
        """Set the hyperparameters that were not given, and when to do so again."""
        self._check_labels(label_sums)
        self._label_sums = label_sums
        summary = Summary(label_sums, self.n_features_in_, self._resolution)
        values = {name: getattr(self, name) for name in self._model_class._fields}
        given = {name: float(value) for name, value in values.items() if value is not None}
        self.prior_rate_ = 1.0 if self.prior_rate is None else float(self.prior_rate)
        for name, value in self._model_class.estimate(summary, **given)._asdict().items():
            setattr(self, f"{name}_", value)
        if not 1e-100 < self.prior_scale_ / self.noise_variance_ < 1e100:
            raise ValueError(
                f"prior_scale {self.prior_scale_:g} and noise_variance {self.noise_variance_:g} "
                "are too far apart for float64: give both, or rescale y."
            )
        self._review_at = max(label_sums.n_samples + 1, math.ceil(1.25 * label_sums.n_samples))

    def _label_model(self) -> LabelModel:
        names = self._model_class._fields
        return self._model_class(*(float(getattr(self, f"{name}_")) for name in names))

    def _check_parameters(self) -> None:
        """Raise a ValueError in one sentence for the first invalid parameter."""
        _check_integer("n_estimators must be", self.n_estimators, 1)
        if not (isinstance(self.min_samples_split, str) and self.min_samples_split == "auto"):
            _check_integer('min_samples_split must be "auto" or', self.min_samples_split, 2)
        _check_n_jobs(self.n_jobs)
        if not (isinstance(self.posterior, str) and self.posterior in MODELS):
            raise ValueError(
                f"posterior must be one of {', '.join(map(repr, MODELS))}, got {self.posterior!r}."
            )
        if not (
            isinstance(self.n_candidate_splits, str) and self.n_candidate_splits == "n_features"
        ):
            _check_integer('n_candidate_splits must be "n_features" or', self.n_candidate_splits, 1)
        self._check_feature_weights()
        if not (
            (isinstance(self.spread, str) and self.spread == "auto")
            or (_is_finite_number(self.spread) and 1e-3 <= float(self.spread) <= 1e3)
        ):
            raise ValueError(
                f'spread must be "auto" or a number from 0.001 to 1000, got {self.spread!r}.'
            )
        if not isinstance(self.robust, bool | np.bool_):
            raise ValueError(f"robust must be True or False, got {self.robust!r}.")
        if self.trend is not None and not (isinstance(self.trend, str) and self.trend == "linear"):
            raise ValueError(f'trend must be None or "linear", got {self.trend!r}.')
        if not isinstance(self.hyperparameters, str) or self.hyperparameters not in (
            "heuristic",
            "marginal_likelihood",
        ):
            raise ValueError(
                'hyperparameters must be "heuristic" or "marginal_likelihood", '
                f"got {self.hyperparameters!r}."
            )
        if self.hyperparameters == "marginal_likelihood" and self.posterior != "hierarchical":
            raise ValueError(
                'hyperparameters="marginal_likelihood" needs posterior="hierarchical", '
                f"got posterior={self.posterior!r}."
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

    def _check_feature_weights(self) -> None:
        weights = self.feature_weights
        if weights is None or (isinstance(weights, str) and weights == "auto"):
            return
        try:
            values = np.asarray(weights)
        except (TypeError, ValueError):
            values = np.full(1, np.nan)
        if not (
            values.ndim == 1
            and values.dtype.kind in "biuf"
            and np.all((values >= 0.0) & (values <= _LARGEST))
            and values.max(initial=0.0) >= _SMALLEST
        ):
            raise ValueError(
                'feature_weights must be None, "auto", or numbers of which none is negative and '
                f"not all are zero, one for each feature, got {weights!r}."
            )


def _largest_block(largest: int, depth: int) -> int:
    """Return how many rows to predict at a time: fewer in very deep trees.

    There, a row can have as many exits as there are levels.
    """
    return max(1, min(largest, 2**26 // (depth + 2)))


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def resolution_of(labels: NDArray[np.float64]) -> float:
    """Return the smallest difference of two labels, of some thousands of them."""
    values = np.unique(labels[:: max(-(-len(labels) // 10_000), 1)])
    return float(np.diff(values).min()) if len(values) > 1 else 0.0


def _plain_blocks(table: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield a table in blocks of the one type and layout that kernels are compiled for."""
    if len(table) == 1 and table.dtype == np.float64 and table.flags.carray:
        yield slice(0, 1), table  # a single row is in a hurry
        return
    for rows in _slices(len(table), 65536):
        yield rows, np.require(table[rows], np.float64, ["C", "W"])


def _check_integer(what: str, value: object, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} an integer of at least {least}, got {value!r}.")


def _is_finite_number(value: object) -> bool:
    try:
        return (
            isinstance(value, Real)
            and not isinstance(value, bool | np.bool_)
            and math.isfinite(float(value))
        )
    except OverflowError:  # an integer beyond the floats
        return False


def _check_n_jobs(n_jobs: object) -> None:
    if n_jobs is not None and (
        not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}.")


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
        np.concatenate([block.degrees for block in blocks]),
    )
