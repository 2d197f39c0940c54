"""The estimator: parameters, documentation, and delegation to what a fitted forest is."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ._core.arrays.grove import without_free_places
from ._core.arrays.tree import Tree
from ._core.labels import LabelModel
from ._core.spread.apply import Spread
from ._forest import predict
from ._forest.files import load_forest, save_forest
from ._forest.forgetting import forget
from ._forest.intake import check_table, check_training_data, plain_data, survey
from ._forest.parameters import parameters_of
from ._forest.posteriors import Posterior
from ._forest.sharing import NAME, is_fitted, parameters_for, read, shared_by, write
from ._forest.state import ForestState
from ._forest.stream import learn, start
from ._forest.validation import check_row_numbers, check_rows_and_labels
from .distribution import PredictiveDistribution

_STATE = "state"
"""Under this name the state is pickled."""

Result = TypeVar("Result")

PAPER: dict[str, Any] = {
    "min_samples_split": 10,
    "posterior": "hierarchical",
    "n_candidate_splits": 1,
    "feature_weights": None,
    "spread": 1.0,
    "robust": False,
    "mean_function": None,
}
"""The parameters that make a forest that of the paper: ``MondrianForestRegressor(**PAPER)``."""


class MondrianForestRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A Mondrian forest for regression with a full predictive distribution.

    An ensemble of Mondrian trees, with a Bayesian model of the labels in each. Every prediction is
    a mixture of distributions. It is wide where the labels vary, and where there are few data. By
    default, and with 50 rows or more, it has the standard deviation of all labels far from all
    data, and their mean, or the value of the mean function that was chosen.

    It learns more rows, and forgets rows. Afterwards its trees have the distribution of trees that
    were sampled at once on the rows that it holds.

    ``MondrianForestRegressor(**PAPER)`` is the model of the paper, which is faster. The default is
    more accurate.

    Parameters
    ----------
    n_estimators : int, default=50
        Number of trees.
    min_samples_split : int or "auto", default="auto"
        A node with fewer rows is not split. "auto": 2 with fewer than 50,000 rows, else 5.
    posterior : {"pruned", "hierarchical", "empirical"} or object, default="pruned"
        The model of the labels in a tree. "pruned" averages over all prunings of each tree, with an
        unknown mean and variance in every node, and predicts mixtures of Student-t distributions.
        "hierarchical" is the exact posterior under the paper's hierarchical Gaussian prior.
        "empirical" takes mean and variance of the labels in each node instead (the paper's
        appendix C). With these two, use ``min_samples_split=10``. To set hyperparameters, pass a
        :class:`PrunedPosterior`, :class:`HierarchicalPosterior` or :class:`EmpiricalPosterior`.
    n_candidate_splits : int or "n_features", default="n_features"
        Number of cuts that are drawn at every node. The one that separates the labels best is made.
        1 is the paper. With more, trees depend on the labels, and learning a row takes longer.
    feature_weights : array-like of shape (n_features,) or "auto", default="auto"
        Relative rates at which the features are cut. None: equal ones. "auto": learned from the
        labels, when the forest is fitted.
    spread : float or "auto", default="auto"
        Factor by which predictive distributions are stretched about their means. "auto": widths and
        shapes are learned from rows that are predicted before they are learned, at the fit and from
        then on. Widths depend on the novelty of a row, too. Labels near a row are mixed in where
        they have another shape than the trees predict, such as two modes.
    robust : bool, default=True
        Keep single extreme values from ruling the forest. Features are mapped to [0, 1] through
        quantiles, not by minimum and maximum. Labels more than 20 times as far from the median as
        99% of all labels are learned as if they were just as far, with a warning.
    mean_function : None, "auto", "linear", "boosting" or regressor, default="auto"
        A regressor around which the forest puts its distribution, by cross-fitting. "linear":
        ridge regression, for a trend that goes on beyond the data. "boosting": scikit-learn's
        HistGradientBoostingRegressor, for smooth functions. "auto": none, "linear" or "boosting",
        and their use, by the CRPS of held-out rows. Any other regressor is cloned; inside a
        ``FrozenEstimator``, it is taken as it is.
    max_rows : int, default=None
        The most rows that the forest keeps; ``forgetting`` says which ones. None: keep all.
    n_jobs : int, default=None
        Number of threads. None means 1, -1 all processors. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Pass an int for reproducible results.

    Other Parameters
    ----------------
    feature_range : tuple (low, high), default=None
        Ends of the range of each feature, numbers or arrays of shape (n_features,). Features are
        mapped from it to [0, 1] by a straight line; values outside are allowed. None: found in X.
    mean_use : {"subtract", "feature", "both"}, default="subtract"
        What is done with a mean function. "subtract": the forest learns its residuals. "feature":
        the trees see its value as one more feature. With ``mean_function="auto"`` it is chosen.
    forgetting : {"oldest", "random", "change"}, default="oldest"
        Which rows are forgotten when there are more than ``max_rows``. "oldest": the forest keeps
        the latest ones. "random": it keeps a uniform sample of all rows learned. "change": as
        "oldest"; besides, when errors rise (by ADWIN's test) and a forest of the latest rows
        predicts better, the forest is fitted again to these rows only, also without ``max_rows``.
    cut_tolerance : float, default=0.0
        As rows come and go, a node keeps its cut until another candidate separates the labels
        better by this share. 0: trees have the distribution of a batch fit. 0.05: they do not, but
        single rows are learned faster.

    Attributes
    ----------
    trees_ : list of Tree
        The trees, as flat arrays.
    posterior_ : NamedTuple
        The label model in use with all its hyperparameters, such as ``posterior_.prior_mean``.
    log_marginal_likelihood_ : ndarray of shape (n_estimators,)
        Log density of the training labels given each tree, for comparing hyperparameters under
        the model. Only for the hierarchical posterior.
    feature_range_ : tuple of two ndarrays of shape (n_features,)
        The range that is mapped to [0, 1]. It is the range that was given; else, if the forest is
        ``robust``, from the 1% to the 99% quantile; else from minimum to maximum.
    feature_weights_ : ndarray of shape (n_features,)
        The rates at which features are cut; their mean is 1, or nearly so if the mean function is
        one more feature. ``metrics.permutation_importance`` tells how much features matter.
    spread_ : Spread
        The spread in use. ``spread_.factor`` are the factors for predictions whose standard
        deviations are ``spread_.deviation`` before, and ``spread_.balance`` is the shape.
        ``spread_.blend`` says how labels are mixed in, ``spread_.surroundings`` has the novelty of
        held-out rows; either may be None.
    mean_function_ : tuple (kind, use) or None
        The mean function in use: "linear", "boosting" or the name of a class, and the ``mean_use``.
    min_samples_split_ : int
        The number in use.
    n_samples_seen_ : int
        Number of rows learned, with those that have been forgotten.
    n_rows_ : int
        Number of rows that the forest holds.
    row_numbers_ : ndarray of shape (n_rows_,)
        Their numbers in the order in which they were learned, ascending, as ``forget`` takes them.
        Empty in a frozen forest.
    changes_ : tuple of int
        With ``forgetting="change"``: the numbers of the rows with which changes began.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has names that are all strings.

    Notes
    -----
    Where the paper leaves the branch time of a new point open, the hierarchical posterior
    integrates it out: mean and variance of each component are exact. With ``**PAPER``, a prediction
    far from all data is ``N(prior_mean, prior_scale / 2 + noise_variance)`` with the
    hyperparameters of ``posterior_``. If the spread was learned, as by default, it has the mean and
    the standard deviation of all labels. Around a mean function that is subtracted, it has the
    value of that function and the standard deviation of its residuals, or that of all labels if
    "auto" chose the function. There are no sample weights.

    Threads may share a forest. Predictions, ``save``, pickling and copying see it as it was before
    or after a call of ``fit``, ``partial_fit``, ``forget`` or ``freeze`` in another thread, never
    in between. Calls that change it take turns. An error or an interrupt leaves the forest as
    before the call, or as after it; ``n_samples_seen_`` and ``n_rows_`` tell which. ``trees_`` may
    be views, which change when rows are learned. Parameters must not be set while another thread
    uses the forest.

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
        posterior: str | Posterior = "pruned",
        n_candidate_splits: int | str = "n_features",
        feature_weights: ArrayLike | str | None = "auto",
        spread: float | str = "auto",
        robust: bool = True,
        mean_function: Any = "auto",
        mean_use: str = "subtract",
        feature_range: tuple[ArrayLike, ArrayLike] | None = None,
        max_rows: int | None = None,
        forgetting: str = "oldest",
        cut_tolerance: float = 0.0,
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
        self.mean_function = mean_function
        self.mean_use = mean_use
        self.feature_range = feature_range
        self.max_rows = max_rows
        self.forgetting = forgetting
        self.cut_tolerance = cut_tolerance
        self.n_jobs = n_jobs
        self.random_state = random_state

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
        write(self, lambda _old: self._fitted(X, y))
        return self

    def _fitted(self, X: ArrayLike, y: ArrayLike) -> ForestState:
        parameters = parameters_of(self)
        return start(parameters, *check_training_data(X, y))

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> MondrianForestRegressor:
        """Learn more rows.

        Without an earlier fit this is the first one. Trees have the same distribution as those of a
        forest fitted to all rows at once with the same scaling, feature weights and
        hyperparameters, in any order and calls of any size. The time for each row grows like a
        power of the logarithm of the number of rows held, but for refits.

        As long as ``mean_function`` is not None, a forest is fitted again to its rows whenever it
        holds twice as many. With None, this happens when it holds 50, 200, 800, 1,600 and 3,200
        rows, if feature weights are "auto" or it learns how far trees are pruned. Either is fitted
        again, too, when the rows learned since the last fit are twice as many as it holds.

        Hyperparameters that were not given are estimated again whenever a quarter of the rows are
        new. If the rows have outgrown a feature range that was not given, it is found again then,
        and all trees are sampled anew.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self
        """
        write(self, lambda old: self._fitted(X, y) if old is None else self._learned(old, X, y))
        return self

    def _learned(self, state: ForestState, X: ArrayLike, y: ArrayLike) -> ForestState:
        state.refuse_if_frozen("learn more")
        has_names = state.feature_names is not None
        table, labels = plain_data(
            X, y, state.n_features, has_names=has_names
        ) or check_rows_and_labels(self, X, y, reset=False)
        low, high = state.seen_range
        found = survey(table, labels, (low[: state.n_features], high[: state.n_features]))
        if not found.is_sound:  # only what is plain was not checked yet: this says what is wrong
            check_rows_and_labels(self, X, y, reset=False)
        is_due = state.n_seen + len(labels) >= state.review_at
        return learn(state, parameters_for(self, is_due=is_due), table, labels, found)

    def forget(self, rows: ArrayLike) -> MondrianForestRegressor:
        """Forget rows, as if the forest had never learned them.

        Afterwards the trees have the distribution of trees that were sampled on the rows that stay,
        and nothing of the single rows is left in them: no box, mean, sum or record of the spread.
        What was learned from many rows at once stays until it is learned again: quantiles by which
        features are mapped, feature weights, hyperparameters (except the prior mean and, by
        default, the prior variance), limits of labels and the mean function. To be rid of these as
        well, call ``fit`` with the other rows.

        Parameters
        ----------
        rows : array-like of int, or of bool with shape (n_samples_seen_,)
            The numbers of the rows in the order in which they were learned, from 0 on; or for each
            row learned, whether it is forgotten. Numbers stay the same when rows are forgotten.
            Rows that were forgotten before are ignored.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from mondrian_forest import MondrianForestRegressor
        >>> X = np.random.default_rng(0).random((200, 2))
        >>> forest = MondrianForestRegressor(10, random_state=0).fit(X, X[:, 0])
        >>> forest.forget([0, 17]).n_rows_
        198
        """
        check_is_fitted(self)

        def forgotten(known: ForestState | None) -> ForestState:
            state = _required(known)
            state.refuse_if_frozen("forget")
            numbers = check_row_numbers(rows, state.n_seen)
            return forget(state, parameters_for(self, is_due=True), numbers)

        write(self, forgotten)
        return self

    def freeze(self) -> MondrianForestRegressor:
        """Drop the training rows, and all that only learning needs; predictions stay the same.

        Afterwards ``partial_fit`` and ``forget`` are refused, and ``row_numbers_`` is empty.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        write(self, lambda state: _required(state).frozen())
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
            as after ``freeze``. Boxes and means of small leaves still tell much about their rows.
        """
        save_forest(self, path, rows=rows)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> MondrianForestRegressor:
        """Open a file that ``save`` has written.

        Nothing in a file is executed. A damaged or harmful file ends in a ``ModelFileError``.

        Parameters
        ----------
        path : str or path
        mmap : bool, default=False
            Leave the boxes of the nodes, which are most of the file, where they are, and read those
            that predictions ask for. Everything else is read and checked as usual; boxes are
            checked before the forest learns more. Saving another forest under the same name is
            fine: the old file stays until nobody uses it. If another program changes the file in
            place, predictions may be wrong; if it cuts it short, the process may end.

        Returns
        -------
        MondrianForestRegressor
        """
        return load_forest(cls, path, mmap=mmap)[0]

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
        if return_std:
            return self._ask(X, predict.predict_mean_and_std)
        return self._ask(X, predict.predict_mean)

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the distribution of the label of each row.

        All components are kept, for each row about 32 bytes times depth and number of the trees:
        ask for at most a few 100,000 rows at a time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        PredictiveDistribution
        """
        blocks = self._ask(X, lambda *asked: list(predict.predict_blocks(*asked)))
        return PredictiveDistribution(
            predict.join_mixtures([mixture for _, mixture in blocks]),
            predict.join_moments([moments for moments, _ in blocks]),
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
            Lower and upper end of a prediction interval: of a new label, noise included.
        """
        return self._map_distributions(X, lambda distribution: distribution.interval(level))

    def _map_distributions(
        self,
        X: ArrayLike,
        evaluate: Callable[[PredictiveDistribution], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        """Evaluate the distributions block by block, so that not all components exist at once."""

        def look(*asked: Any) -> NDArray[np.float64]:
            return np.concatenate(
                [
                    evaluate(PredictiveDistribution(mixture, moments, self.n_jobs))
                    for moments, mixture in predict.predict_blocks(*asked)
                ]
            )

        return self._ask(X, look)

    def novelty(self, X: ArrayLike, *, rank: bool = False) -> NDArray[np.float64]:
        """Return how unlike the training data each row is, from 0 to 1.

        Novelty is the share of the training rows that a row has to be compared with, on average
        over the trees: k / n beside a training row, where k of the n training rows share its leaf
        (but at least 0.0001), and 1 far from all. It does not look at the label of a row; but a
        feature with a small weight has to be far outside of its range to count.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        rank : bool, default=False
            Return the share of held-out rows that are more familiar instead: above 0.99 are the
            strangest 1%. This needs the rows from which the spread is learned, so ``spread="auto"``
            and 50 rows or more.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._ask(X, predict.predict_ranks if rank else predict.predict_novelties)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the leaf of each row in each tree, as a node number.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_estimators)
        """
        return self._ask(X, predict.leaves_of)

    def _ask(
        self, X: ArrayLike, look: Callable[[ForestState, NDArray[Any], Any], Result]
    ) -> Result:
        """Validate rows, and return what ``look`` finds for them in the state."""

        def validated(state: ForestState) -> Result:
            has_names = state.feature_names is not None
            table = check_table(self, X, state.n_features, has_names=has_names)
            return look(state, table, self.n_jobs)

        return read(self, validated)

    def __sklearn_is_fitted__(self) -> bool:
        return is_fitted(self)

    def _fitted_state(self) -> ForestState:
        """Return the state as it is, for attributes that never change in place."""
        if not is_fitted(self):
            # An AttributeError as well, as hasattr asks for.
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call fit or partial_fit first."
            )
        state = shared_by(self).state
        assert state is not None
        return state

    @property
    def trees_(self) -> list[Tree]:
        """The trees, as flat arrays: views, which may change when rows are learned."""
        self._fitted_state()
        grove = read(self, lambda state: without_free_places(state.grove))
        return [grove.tree(number) for number in range(grove.n_trees)]

    @property
    def log_marginal_likelihood_(self) -> NDArray[np.float64]:
        """Log density of the training labels given each tree, shape (n_estimators,)."""
        self._fitted_state()
        found = read(self, ForestState.find_log_likelihoods)
        if found is None:
            raise AttributeError("Only the hierarchical posterior has a log_marginal_likelihood_.")
        return found.copy()

    @property
    def posterior_(self) -> LabelModel:
        """The hyperparameters of the label model in use."""
        return self._fitted_state().model

    @property
    def spread_(self) -> Spread:
        """How predictive distributions are stretched."""
        return self._fitted_state().spread

    @property
    def mean_function_(self) -> tuple[str, str] | None:
        """Kind and use of the mean function; None if there is none."""
        known = self._fitted_state().mean_function
        return None if known is None else (known.kind, known.use)

    @property
    def min_samples_split_(self) -> int:
        """Nodes with fewer rows are leaves. A stream keeps the number of its latest fit."""
        return self._fitted_state().growth.min_samples_split

    @property
    def feature_range_(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper ends of what is mapped to [0, 1]."""
        state = self._fitted_state()
        low, high = (end[: state.n_features] for end in state.scaling.range)
        return low, high

    @property
    def feature_weights_(self) -> NDArray[np.float64]:
        """The rates at which features are cut."""
        state = self._fitted_state()
        return state.scaling.weights[: state.n_features]

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned, with those that have been forgotten."""
        return self._fitted_state().n_seen

    @property
    def n_rows_(self) -> int:
        """Number of rows that the forest holds."""
        return self._fitted_state().n_rows

    @property
    def row_numbers_(self) -> NDArray[np.int64]:
        """The rows that the forest holds, numbered as they were learned, in ascending order."""
        self._fitted_state()
        return read(self, lambda state: np.sort(state.arrivals[: state.n_rows]))

    @property
    def changes_(self) -> tuple[int, ...]:
        """Numbers of the rows with which changes began, as far as ``forgetting="change"`` knows."""
        monitor = self._fitted_state().monitor
        return () if monitor is None else monitor.changes

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._fitted_state().n_features

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the features, if the table of the fit had names."""
        names = self._fitted_state().feature_names
        if names is None:
            raise AttributeError("The table that this forest was fitted to had no column names.")
        return names

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and a copy of the state, without the room for more rows."""
        content: dict[str, Any] = super().__getstate__().copy()
        content.pop(NAME, None)
        if is_fitted(self):
            content[_STATE] = read(self, ForestState.copied)
        return content

    def __setstate__(self, content: dict[str, Any]) -> None:
        """Take over parameters and state; the gate for threads is a new one."""
        content = content.copy()
        state = content.pop(_STATE, None)
        super().__setstate__(content)
        if state is not None:
            shared_by(self).state = state

    def __deepcopy__(self, memo: dict[int, Any]) -> MondrianForestRegressor:
        """Copy the large arrays once: those of ``__getstate__`` belong to nobody else."""
        other: MondrianForestRegressor = object.__new__(type(self))
        memo[id(self)] = other
        content = self.__getstate__()
        state = content.pop(_STATE, None)
        content = copy.deepcopy(content, memo)
        if state is not None:
            content[_STATE] = state
        other.__setstate__(content)
        return other


def _required(state: ForestState | None) -> ForestState:
    assert state is not None
    return state
