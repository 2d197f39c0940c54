"""A forest together with the encoding of its tables, in one model file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._forest.files import load_forest, save_forest
from .._forest.posteriors import posterior_of
from .._forest.sharing import state_of
from ..distribution import PredictiveDistribution
from ..forest import MondrianForestRegressor
from ..io.container import ModelFileError
from .encoding import TableEncoder


def predicted_names(std: bool, quantiles: Iterable[float], novelty: bool) -> list[str]:
    """Return the names of the columns that ``TableForest.predict`` returns."""
    return [
        "prediction",
        *(["std"] if std else []),
        *(f"q{level:.12g}" for level in quantiles),
        *(["novelty"] if novelty else []),
    ]


class TableForest:
    """A forest that learns from tables with dates, text and missing values.

    Parameters
    ----------
    forest : MondrianForestRegressor
        A fitted forest.
    encoder : TableEncoder
        Turns tables into the features that the forest was fitted to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mondrian_forest.tables import TableForest
    >>> table = pa.table({"town": ["A", "B"] * 20, "rent": [500.0, 900.0] * 20})
    >>> model = TableForest.fit(table, "rent", random_state=0)
    >>> model.predict_distribution(table.slice(0, 3)).mean().round(-1)
    array([500., 900., 500.])
    """

    def __init__(self, forest: MondrianForestRegressor, encoder: TableEncoder) -> None:
        self.forest = forest
        self.encoder = encoder

    @classmethod
    def fit(
        cls,
        table: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        impute: bool = False,
        text: Sequence[str] = (),
        missing: Sequence[str] = (),
        random_state: int = 0,
        **parameters: Any,
    ) -> TableForest:
        """Decide how tables are encoded, and fit a forest.

        Parameters
        ----------
        table : pyarrow.Table
        target : str
            The column of labels.
        columns : sequence of str, default=None
            Columns to learn from. If None, all except the target.
        impute : bool, default=False
            Fill missing values with medians. If False, they are refused.
        text : sequence of str, default=()
            Columns that are text, even if their values look like numbers or dates.
        missing : sequence of str, default=()
            Texts that mark a missing value, such as ``?``, in this table and in later ones.
        random_state : int, default=0
        **parameters
            Parameters of ``MondrianForestRegressor``.

        Returns
        -------
        TableForest
        """
        encoder, X, y = TableEncoder.learn(
            table,
            target,
            columns=columns,
            impute=impute,
            text=text,
            missing=missing,
            random_state=random_state,
        )
        forest = MondrianForestRegressor(random_state=random_state, **parameters).fit(X, y)
        return cls(forest, encoder)

    @property
    def columns(self) -> list[str]:
        """The columns that learning needs: those of the features, then the target."""
        return [*(column.name for column in self.encoder.columns), self.encoder.target]

    def partial_fit(self, table: Any) -> TableForest:
        """Learn more rows. The encoding stays as it is."""
        X, y = self.encoder.features(table), self.encoder.labels(table)
        if len(y) > 0:
            self.forest.partial_fit(X, y)
        return self

    def forget(self, rows: ArrayLike) -> TableForest:
        """Forget rows; see ``MondrianForestRegressor.forget``. Codes of text stay as they are."""
        self.forest.forget(rows)
        return self

    def predict_distribution(self, table: Any) -> PredictiveDistribution:
        """Predict the distribution of the label of each row."""
        X = self.encoder.features(table)
        return self.forest.predict_distribution(X)

    def predict(
        self, table: Any, *, std: bool = False, quantiles: ArrayLike = (), novelty: bool = False
    ) -> dict[str, NDArray[np.float64]]:
        """Predict columns: ``prediction``, and ``std``, ``q0.05`` and ``novelty`` if asked for.

        It takes little memory: no predictive distribution of all rows is kept.
        """
        X = self.encoder.features(table)
        levels = np.asarray(quantiles, dtype=np.float64).ravel()
        names = predicted_names(std, levels, novelty)
        if len(X) == 0:
            return {name: np.empty(0) for name in names}
        mean, deviation = self.forest.predict(X, return_std=True)
        values = [np.asarray(mean)]
        if std:
            values.append(np.asarray(deviation))
        if len(levels) > 0:
            values.extend(self.forest.predict_quantiles(X, levels).T)
        if novelty:
            values.append(self.forest.novelty(X))
        return dict(zip(names, values, strict=True))

    def save(self, path: str | os.PathLike[str], *, rows: bool = True) -> None:
        """Save the forest and the encoding; see ``MondrianForestRegressor.save``."""
        save_forest(self.forest, path, rows=rows, table=self.encoder.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> TableForest:
        """Load a file that ``save`` has written; see ``MondrianForestRegressor.load``."""
        forest, text = load_forest(MondrianForestRegressor, path, mmap=mmap)
        if text is None:
            raise ModelFileError(
                f"{os.fspath(path)!r} does not say how to read tables: its forest was fitted to "
                "arrays."
            )
        return cls(forest, _read_encoder(path, text, forest))


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file contains. Its forest may be fitted to a table or to arrays."""
    forest, text = load_forest(MondrianForestRegressor, path, mmap=True)
    encoder = None if text is None else _read_encoder(path, text, forest)
    trees, state = forest.trees_, state_of(forest)
    found: dict[str, Any] = {
        "file bytes": os.stat(path).st_size,
        "rows seen": forest.n_samples_seen_,
        "rows held": forest.n_rows_,
        "can learn more": not state.is_frozen,
    }
    if encoder is not None:
        found |= {
            "target": encoder.target,
            "columns": {column.name: column.kind for column in encoder.columns},
            "impute": encoder.impute,
            "missing": encoder.missing,
        }
    return (
        found
        | _describe_features(forest, encoder)
        | {
            "trees": len(trees),
            "nodes": sum(tree.n_nodes for tree in trees),
            "depth": max(tree.depth for tree in trees),
            "posterior": posterior_of(forest.posterior).name,
            "min_samples_split": forest.min_samples_split_,
            "candidate splits": state.growth.n_candidate_splits,
            "spread": [float(factor) for factor in forest.spread_.factor],
            "mean function": ", ".join(forest.mean_function_ or ("none",)),
            **state.model._asdict(),
        }
    )


def _describe_features(
    forest: MondrianForestRegressor, encoder: TableEncoder | None
) -> dict[str, Any]:
    """Return the number of features, and of each its range and how often it is cut."""
    unnamed = [f"feature {number}" for number in range(forest.n_features_in_)]
    names = getattr(forest, "feature_names_in_", unnamed)
    if encoder is not None:
        names = encoder.feature_names
    low, high = state_of(forest).seen_range
    return {
        "features": len(names),
        "ranges": {name: [float(low[f]), float(high[f])] for f, name in enumerate(names)},
        "rates of cuts": {
            name: float(rate) for name, rate in zip(names, forest.feature_weights_, strict=True)
        },
    }


def _read_encoder(
    path: str | os.PathLike[str], text: str, forest: MondrianForestRegressor
) -> TableEncoder:
    """Return the encoder that a model file describes."""
    try:
        encoder = TableEncoder.from_json(text)
        if len(encoder.feature_names) != forest.n_features_in_:
            raise ValueError("its columns are not those of its forest")
    except ValueError as error:
        raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {error}.") from None
    return encoder
