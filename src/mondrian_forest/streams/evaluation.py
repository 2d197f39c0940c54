"""Evaluate a regressor on a stream: each row is predicted before it is learned."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from .._forest.validation import check_integer, check_share

Arrays = dict[str, NDArray[Any]]

LOSSES = {
    "rmse": "squared_error",
    "mae": "absolute_error",
    "crps": "crps",
    "nlpd": "nlpd",
    "coverage": "covered",
}
"""Each score, and the loss of one row that it is made of."""
_OF_MEANS = ("rmse", "mae")
"""The scores that do not need a distribution."""


class _Scoring:
    """What is measured of predictions."""

    def __init__(self, estimator: Any, scores: Sequence[str] | None, level: float) -> None:
        check_share("level", level)
        has_distributions = hasattr(estimator, "predict_distribution")
        possible = tuple(LOSSES) if has_distributions else _OF_MEANS
        self.names = possible if scores is None else tuple(scores)
        for name in self.names:
            if name not in possible:
                raise ValueError(f"scores must be among {', '.join(possible)}, got {name!r}.")
        self.estimator = estimator
        self.level = level
        self.has_distributions = has_distributions

    def predict(self, X: Any) -> Any:
        """Return distributions, or means, of rows; None if nothing has been learned yet."""
        try:
            if self.has_distributions:
                return self.estimator.predict_distribution(X)
            return np.array(self.estimator.predict(X), dtype=np.float64)
        except NotFittedError:
            return None

    def mean(self, predicted: Any) -> NDArray[np.float64]:
        """Return the means of what ``predict`` has returned."""
        return np.asarray(predicted.mean() if self.has_distributions else predicted)

    def losses(self, predicted: Any, labels: NDArray[np.float64]) -> Arrays:
        """Return the losses of all rows, by their names."""
        error = labels - self.mean(predicted)
        found: Arrays = {}
        for name in self.names:
            if name == "rmse":
                values = error * error
            elif name == "mae":
                values = np.abs(error)
            elif name == "crps":
                values = predicted.crps(labels)
            elif name == "nlpd":
                values = -predicted.logpdf(labels)
            else:
                low, high = predicted.interval(self.level).T
                values = ((low <= labels) & (labels <= high)).astype(np.float64)
            found[LOSSES[name]] = values
        return found


@dataclass(frozen=True, repr=False, eq=False)
class PrequentialResult:
    """Predictions and losses of a stream, one for each row, in the order of the rows.

    :func:`prequential` returns this object. All arrays are NaN for rows that the estimator could
    not predict yet.

    Attributes
    ----------
    prediction : ndarray of shape (n_rows,)
        Predicted means.
    losses : dict of ndarrays of shape (n_rows,)
        "squared_error" and "absolute_error"; with predictive distributions also "crps", "nlpd" and
        "covered", which is 1 if the label is inside the interval and otherwise 0.

    Examples
    --------
    >>> import numpy as np
    >>> from mondrian_forest import MondrianForestRegressor
    >>> from mondrian_forest.streams import prequential
    >>> X = np.random.default_rng(0).random((400, 2))
    >>> y = np.sin(9 * X[:, 0]) + X[:, 1]
    >>> result = prequential(MondrianForestRegressor(10, random_state=0), X, y)
    >>> windows = result.scores(window=200)
    >>> windows["stop"].tolist()
    [200, 400]
    >>> bool(windows["rmse"][1] < windows["rmse"][0])
    True
    """

    prediction: NDArray[np.float64]
    losses: Arrays

    def __repr__(self) -> str:
        scores = (
            f", {name} {values[0]:.4g}" for name, values in self.scores().items() if name != "stop"
        )
        return f"<PrequentialResult of {len(self.prediction)} rows{''.join(scores)}>"

    def scores(self, window: int | None = None, every: int | None = None) -> Arrays:
        """Return the scores of windows of consecutive rows.

        Parameters
        ----------
        window : int, default=None
            Number of rows in a window. None: all rows are one window.
        every : int, default=None
            Number of rows between the ends of windows that follow each other. Windows that are not
            complete are left out. None: ``window``, so that windows do not overlap.

        Returns
        -------
        dict of ndarrays of shape (n_windows,)
            "stop", the number of rows up to the end of each window, "rmse" and "mae". With
            predictive distributions also the means "crps" and "nlpd", and "coverage", the share of
            labels inside the interval. NaN for a window without predictions.
        """
        n_rows = len(self.prediction)
        width = n_rows if window is None else check_integer("window", window, 1)
        step = width if every is None else check_integer("every", every, 1)
        stop = np.arange(step, n_rows + 1, step) if step else np.zeros(1, dtype=np.int64)
        stop = stop[stop >= width]
        found: Arrays = {"stop": stop}
        for score, loss in LOSSES.items():
            if loss in self.losses:
                means = _means(self.losses[loss], stop - width, stop)
                found[score] = np.sqrt(means) if score == "rmse" else means
        return found

    def to_frame(self) -> Any:
        """Return predictions and losses as a table of pandas, one line for each row."""
        import pandas as pd

        return pd.DataFrame({"prediction": self.prediction, **self.losses})


def _means(
    values: NDArray[np.float64], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the mean of ``values[start:stop]`` without NaN, for each pair; NaN if all are."""
    found = np.full(len(stop), np.nan)
    for number, (first, last) in enumerate(zip(start, stop, strict=True)):
        known = values[first:last]
        known = known[~np.isnan(known)]
        if len(known):
            found[number] = known.mean()
    return found


def prequential(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    chunk_size: int = 100,
    delay: int = 0,
    scores: Sequence[str] | None = None,
    level: float = 0.9,
) -> PrequentialResult:
    """Predict each chunk of a stream, and then learn it.

    Every row is a test row once, and no rows are held out. The estimator itself learns. In the end
    it has learned all rows. It may be fitted before; if it is not, the first rows are learned
    without a prediction.

    Parameters
    ----------
    estimator : object
        A regressor with ``partial_fit`` and ``predict``. If it has ``predict_distribution``,
        distributions are scored, too.
    X : array-like of shape (n_rows, n_features)
        The rows, in order: an array, a list, or a table of pandas or polars.
    y : array-like of shape (n_rows,)
        Their labels.
    chunk_size : int, default=100
        Number of rows that are predicted together, all before any of their labels is known.
    delay : int, default=0
        A label arrives this number of rows after its own row, and is learned at the end of the
        chunk. 0: the labels of a chunk arrive as soon as it has been predicted.
    scores : sequence of str, default=None
        What is measured, of "rmse", "mae", "crps", "nlpd" and "coverage". None: all that the
        estimator allows. The CRPS may take longer than everything else.
    level : float, default=0.9
        The probability of the intervals whose coverage is measured.

    Returns
    -------
    PrequentialResult

    Examples
    --------
    >>> import numpy as np
    >>> from mondrian_forest import MondrianForestRegressor
    >>> from mondrian_forest.streams import prequential
    >>> X = np.random.default_rng(0).random((400, 2))
    >>> forest = MondrianForestRegressor(10, random_state=0)
    >>> result = prequential(forest, X, X.sum(axis=1), delay=50)
    >>> sorted(result.scores())
    ['coverage', 'crps', 'mae', 'nlpd', 'rmse', 'stop']
    >>> forest.n_samples_seen_
    400
    """
    check_integer("chunk_size", chunk_size, 1)
    check_integer("delay", delay, 0)
    scoring = _Scoring(estimator, scores, level)
    labels = _checked_labels(y)
    n_rows = len(labels)
    if _length(X) != n_rows:
        raise ValueError(f"X has {_length(X)} rows, but y has {n_rows} labels.")
    prediction = np.full(n_rows, np.nan)
    losses = {LOSSES[name]: np.full(n_rows, np.nan) for name in scoring.names}
    n_learned = 0
    for start in range(0, n_rows, chunk_size):
        stop = min(start + chunk_size, n_rows)
        predicted = scoring.predict(_rows(X, start, stop))
        if predicted is not None:
            prediction[start:stop] = scoring.mean(predicted)
            for name, values in scoring.losses(predicted, labels[start:stop]).items():
                losses[name][start:stop] = values
        known = n_rows if stop == n_rows else stop - delay
        if known > n_learned:
            estimator.partial_fit(_rows(X, n_learned, known), labels[n_learned:known])
            n_learned = known
    return PrequentialResult(prediction, losses)


class Prequential:
    """Predict the rows of a stream, and learn and score them when their labels come.

    Labels may come late, out of order, or never. A key tells which row a label belongs to.

    Parameters
    ----------
    estimator : object
        A regressor with ``partial_fit`` and ``predict``. If it has ``predict_distribution``,
        distributions are scored, too.
    window : int, default=1000
        Number of the latest labels that ``scores`` is about.
    max_waiting : int, default=1000
        The most rows that wait for their labels. If there are more, the oldest is dropped. A row
        waits together with its prediction, which takes about 8 kB for a default forest.
    scores : sequence of str, default=None
        What is measured, of "rmse", "mae", "crps", "nlpd" and "coverage". None: all that the
        estimator allows. The CRPS may take longer than everything else.
    level : float, default=0.9
        The probability of the intervals whose coverage is measured.

    Attributes
    ----------
    n_waiting : int
        Number of rows that wait for their labels.
    n_dropped : int
        Number of rows that were dropped without a label.

    Examples
    --------
    >>> from mondrian_forest import MondrianForestRegressor
    >>> from mondrian_forest.streams import Prequential
    >>> forest = MondrianForestRegressor(10, random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> stream = Prequential(forest)
    >>> distribution = stream.predict("monday", [0.2])
    >>> distribution = stream.predict("tuesday", [0.9])
    >>> stream.learn("tuesday", 0.8)
    >>> stream.n_waiting, forest.n_samples_seen_
    (1, 3)
    >>> sorted(stream.scores())
    ['coverage', 'crps', 'mae', 'nlpd', 'rmse']
    """

    def __init__(
        self,
        estimator: Any,
        *,
        window: int = 1000,
        max_waiting: int = 1000,
        scores: Sequence[str] | None = None,
        level: float = 0.9,
    ) -> None:
        self.estimator = estimator
        self.n_dropped = 0
        self._max_waiting = check_integer("max_waiting", max_waiting, 1)
        self._scoring = _Scoring(estimator, scores, level)
        self._waiting: dict[Hashable, tuple[Any, Any]] = {}  # rows and predictions, oldest first
        self._losses: deque[dict[str, float]] = deque(maxlen=check_integer("window", window, 1))

    @property
    def n_waiting(self) -> int:
        """Number of rows that wait for their labels."""
        return len(self._waiting)

    def predict(self, key: Hashable, x: ArrayLike) -> Any:
        """Predict a row, and remember it under a key until its label comes.

        Parameters
        ----------
        key : hashable
        x : array-like of shape (n_features,)

        Returns
        -------
        PredictiveDistribution of one row, or float, or None
            A float if the estimator predicts means only. None if it has not learned anything yet.
        """
        if key in self._waiting:
            raise ValueError(f"The row of {key!r} already waits for its label: use another key.")
        row = np.array([x])  # a copy, which nobody else can change while it waits
        predicted = self._scoring.predict(row)
        self._waiting[key] = row, predicted
        if len(self._waiting) > self._max_waiting:
            del self._waiting[next(iter(self._waiting))]
            self.n_dropped += 1
        is_mean = predicted is not None and not self._scoring.has_distributions
        return float(predicted[0]) if is_mean else predicted

    def learn(self, key: Hashable, y: float) -> None:
        """Score the prediction of a row, and learn the row.

        Parameters
        ----------
        key : hashable
            The key with which the row was predicted.
        y : float
            Its label.
        """
        if key not in self._waiting:
            raise LookupError(
                f"No row waits for the label of {key!r}: it was not predicted, has its label "
                f"already, or was dropped because more than {self._max_waiting} rows waited."
            )
        labels = _checked_labels([y])
        row, predicted = self._waiting[key]
        self.estimator.partial_fit(row, labels)
        del self._waiting[key]
        if predicted is not None:
            losses = self._scoring.losses(predicted, labels)
            self._losses.append({name: float(values[0]) for name, values in losses.items()})

    def scores(self) -> dict[str, float]:
        """Return the scores of the latest labels; nothing before the first one.

        Returns
        -------
        dict
            "rmse" and "mae"; with predictive distributions also "crps", "nlpd" and "coverage".
        """
        if not self._losses:
            return {}
        found = {}
        for score in self._scoring.names:
            mean = float(np.mean([losses[LOSSES[score]] for losses in self._losses]))
            found[score] = math.sqrt(mean) if score == "rmse" else mean
        return found


def _checked_labels(y: ArrayLike) -> NDArray[np.float64]:
    labels = np.array(y, dtype=np.float64)
    if labels.ndim != 1 or not np.isfinite(labels).all():
        raise ValueError("Labels must be finite numbers, one for each row.")
    return labels


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _rows(X: Any, start: int, stop: int) -> Any:
    return X.iloc[start:stop] if hasattr(X, "iloc") else X[start:stop]
