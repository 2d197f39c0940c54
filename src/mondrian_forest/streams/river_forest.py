"""A Mondrian forest with the interface of river."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._forest.validation import refuse_what_is_no_number
from ..distribution import PredictiveDistribution
from ..forest import PAPER, MondrianForestRegressor

try:
    from river.base import MiniBatchRegressor
except ModuleNotFoundError:
    raise ModuleNotFoundError("RiverForest needs river: pip install river.", name="river") from None

_FIRST_ROWS = 200
"""New features may appear until so many rows have been learned. These rows are kept until then."""


class _Block(NamedTuple):
    """Some rows that were learned together. Missing values are NaN."""

    names: tuple[Hashable, ...]
    table: NDArray[np.float64]
    labels: NDArray[np.float64]


class RiverForest(MiniBatchRegressor):  # type: ignore[misc]
    """A Mondrian forest as a regressor of river.

    It learns from the first row on. Before the first row it predicts 0.

    A forest has a fixed set of features: those that appear in the first 200 rows. When another one
    appears among these rows, the forest is fitted again to the rows learned so far. Features that
    appear later are ignored, with a warning at the first one. A value that is absent, None or NaN
    is replaced by the mean of the values that its feature had before. The order of the features
    does not matter. Text must be encoded first, for example by ``preprocessing.OneHotEncoder``.

    ``learn_many`` takes less time for each row than ``learn_one``. The two draw different random
    numbers, so that they lead to different forests.

    Parameters
    ----------
    seed : int or None, default=None
        The ``random_state`` of the forest. Pass an int for reproducible results.
    **parameters
        Other parameters of :class:`MondrianForestRegressor`.

    Attributes
    ----------
    forest : MondrianForestRegressor or None
        The forest; None before the first row. Do not change it: ``forget`` is a method of this
        class, too.
    features : tuple
        Names of the features, in the order of the forest's columns.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from mondrian_forest.streams import RiverForest
    >>> model = RiverForest(n_estimators=10, seed=0)
    >>> rows = datasets.TrumpApproval().take(300)
    >>> evaluate.progressive_val_score(rows, model, metrics.MAE()).get() < 1.0
    True
    >>> x, y = next(iter(datasets.TrumpApproval()))
    >>> low, high = model.predict_interval_one(x, 0.9)
    >>> low < y < high
    True
    """

    def __init__(self, seed: int | None = None, **parameters: Any) -> None:
        MondrianForestRegressor(random_state=seed, **parameters)  # refuses unknown names
        self.seed = seed
        self.parameters = parameters
        self._forest: MondrianForestRegressor | None = None
        self._features: tuple[Hashable, ...] = ()
        self._means = np.zeros(0)
        self._counts = np.zeros(0)  # of the values in each mean
        self._first: list[_Block] | None = []  # None: no more features are accepted
        self._has_warned = False

    @property
    def forest(self) -> MondrianForestRegressor | None:
        """The forest; None before the first row."""
        return self._forest

    @property
    def features(self) -> tuple[Hashable, ...]:
        """Names of the features, in the order of the forest's columns."""
        return self._features

    def learn_one(self, x: Mapping[Any, Any], y: float) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Feature names and their values.
        y : float
        """
        self._learn(tuple(x), _row(x), np.array([y], dtype=np.float64))

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """Return the predicted mean of the label of a row.

        Parameters
        ----------
        x : dict
            Feature names and their values.
        """
        if self._forest is None:
            return self._mean_label()
        return float(self._forest.predict(self._filled_row(x))[0])

    def predict_distribution_one(self, x: Mapping[Any, Any]) -> PredictiveDistribution:
        """Return the predictive distribution of one row.

        Parameters
        ----------
        x : dict
            Feature names and their values.
        """
        return self._fitted().predict_distribution(self._filled_row(x))

    def predict_quantiles_one(self, x: Mapping[Any, Any], q: ArrayLike) -> Any:
        """Return quantiles of the label of a row.

        Parameters
        ----------
        x : dict
            Feature names and their values.
        q : float or array-like of shape (k,)
            Levels from 0 to 1.

        Returns
        -------
        float for a number, ndarray of shape (k,) for k levels
        """
        found = self.predict_distribution_one(x).quantile(q)[0]
        return found if np.ndim(found) else float(found)

    def predict_interval_one(self, x: Mapping[Any, Any], level: float = 0.9) -> tuple[float, float]:
        """Return the central interval that contains the label with probability ``level``.

        Parameters
        ----------
        x : dict
            Feature names and their values.
        level : float, default=0.9

        Returns
        -------
        tuple (low, high)
        """
        low, high = self.predict_distribution_one(x).interval(level)[0].tolist()
        return low, high

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a table.

        Parameters
        ----------
        X : pandas.DataFrame
        y : pandas.Series
        """
        labels = np.array(y, dtype=np.float64)
        if labels.shape != (len(X),):
            raise ValueError(f"y must have one value for each of the {len(X)} rows of X.")
        if len(X):
            self._learn(tuple(X.columns), _table(X), labels)

    def forget(self, rows: ArrayLike) -> None:
        """Forget rows; see :meth:`MondrianForestRegressor.forget`.

        Afterwards no new features are accepted, because the rows learned so far are not kept for
        them any more.

        Parameters
        ----------
        rows : array-like of int, or of bool
            Their numbers in the order in which they were learned, or a mask of all rows learned.
        """
        self._fitted().forget(rows)
        self._first = None

    def predict_many(self, X: Any) -> Any:
        """Return the predicted means of the labels of the rows of a table.

        Parameters
        ----------
        X : pandas.DataFrame

        Returns
        -------
        pandas.Series
            With the index of X.
        """
        import pandas as pd

        if self._forest is None or len(X) == 0:
            means = np.full(len(X), self._mean_label())
        else:
            table = self._filled(tuple(X.columns), _table(X))
            means = np.asarray(self._forest.predict(table))
        return pd.Series(means, index=X.index)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Yield parameters for river's checks: small forests, which take less time."""
        yield {"n_estimators": 4}
        yield {"n_estimators": 4, **PAPER}

    def _unit_test_skips(self) -> set[str]:
        """Return the names of river's checks that do not apply.

        Rows that are learned one by one, or many at a time, lead to different draws of a forest.
        """
        return {"check_learn_many_matches_learn_one"}

    def _fitted(self) -> MondrianForestRegressor:
        forest = self._forest
        return self._new_forest() if forest is None else forest  # a new one says what is missing

    def _new_forest(self) -> MondrianForestRegressor:
        return MondrianForestRegressor(random_state=self.seed, **self.parameters)

    def _mean_label(self) -> float:
        """Return what is predicted while there is no forest: rows without features are kept."""
        labels = [label for block in self._first or () for label in block.labels]
        return float(np.mean(labels)) if labels else 0.0

    def _learn(
        self, names: tuple[Hashable, ...], table: NDArray[np.float64], labels: NDArray[np.float64]
    ) -> None:
        """Learn rows. NaN are missing values. A refused row leaves everything as it was."""
        is_new = bool(set(names).difference(self._features))
        if self._first is not None:
            blocks = [*self._first, _Block(names, table, labels)]
            if is_new or self._forest is None:
                self._start_again(blocks)
            else:
                self._continue(names, table, labels)
            n_rows = sum(len(block.labels) for block in blocks)
            self._first = blocks if n_rows < _FIRST_ROWS or not self._features else None
            return
        self._continue(names, table, labels)
        if is_new and not self._has_warned:
            self._has_warned = True
            new = sorted(map(repr, set(names).difference(self._features)))
            warnings.warn(
                f"Features that appear after the first {_FIRST_ROWS} rows are ignored: "
                f"{', '.join(new)}.",
                stacklevel=3,
            )

    def _start_again(self, blocks: list[_Block]) -> None:
        """Fit a new forest to all rows learned so far, with all features that appear in them."""
        features = tuple(sorted({name for block in blocks for name in block.names}, key=_order))
        if not features:
            return
        table = np.concatenate([_arranged(features, block.names, block.table) for block in blocks])
        is_known = ~np.isnan(table)
        counts = is_known.sum(axis=0).astype(np.float64)
        sums = np.where(is_known, table, 0.0).sum(axis=0)
        means = np.divide(sums, counts, out=np.zeros(len(features)), where=counts > 0)
        labels = np.concatenate([block.labels for block in blocks])
        self._forest = self._new_forest().fit(np.where(is_known, table, means), labels)
        self._features, self._means, self._counts = features, means, counts

    def _continue(
        self, names: tuple[Hashable, ...], table: NDArray[np.float64], labels: NDArray[np.float64]
    ) -> None:
        assert self._forest is not None
        arranged = _arranged(self._features, names, table)
        is_missing = np.isnan(arranged)
        self._forest.partial_fit(np.where(is_missing, self._means, arranged), labels)
        n_new = len(table) - is_missing.sum(axis=0)
        self._counts += n_new
        gaps = np.where(is_missing, 0.0, arranged - self._means)
        self._means += gaps.sum(axis=0) / np.maximum(self._counts, 1.0)

    def _filled_row(self, x: Mapping[Any, Any]) -> NDArray[np.float64]:
        return self._filled(tuple(x), _row(x))

    def _filled(
        self, names: tuple[Hashable, ...], table: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the forest's columns of a table, with means for missing values."""
        arranged = _arranged(self._features, names, table)
        return np.where(np.isnan(arranged), self._means, arranged)


def _row(x: Mapping[Any, Any]) -> NDArray[np.float64]:
    """Return the values of a row as a table of one row. None becomes NaN."""
    return np.array([[_number(name, value) for name, value in x.items()]], dtype=np.float64)


def _number(name: Hashable, value: Any) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"Feature {name!r} must be a number, got {value!r}: encode text first, for example "
            "with river's OneHotEncoder."
        ) from None


def _table(X: Any) -> NDArray[np.float64]:
    """Return the values of a table of pandas. Its missing values of any kind become NaN."""
    refuse_what_is_no_number("X", X)
    if not X.columns.is_unique:
        raise ValueError("The columns of X must have different names.")
    try:
        return np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        raise ValueError(
            "All columns of X must be numbers: encode text first, for example with river's "
            "OneHotEncoder."
        ) from None


def _arranged(
    features: tuple[Hashable, ...], names: tuple[Hashable, ...], table: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return one column for each feature. NaN where the table has no such column."""
    if names == features:
        return table
    place = {name: number for number, name in enumerate(names)}
    columns = [place.get(feature, -1) for feature in features]
    if -1 not in columns:
        return table[:, columns]
    missing = np.full((len(table), 1), np.nan)
    return np.hstack([table, missing])[:, columns]


def _order(name: Hashable) -> tuple[str, str]:
    """Sort names of any type. Their order must not depend on the order of the dictionary."""
    return str(name), type(name).__name__
