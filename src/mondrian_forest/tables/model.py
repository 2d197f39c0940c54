"""A forest together with how it reads tables, in one model file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._forest.files import load_forest, save_forest
from .._forest.posteriors import posterior_of
from .._forest.sharing import state_of
from ..distribution import PredictiveDistribution
from ..forest import MondrianForestRegressor
from ..io.container import ModelFileError
from .encode import TableEncoder


def quantile_name(level: float) -> str:
    """Return the name of the column of a quantile."""
    return f"q{level:.12g}"


class TableForest:
    """A forest that learns from tables with dates, text and missing values.

    Parameters
    ----------
    forest : MondrianForestRegressor
    encoder : TableEncoder
        How tables become features.

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
        """Decide how tables are read, and fit a forest.

        Parameters
        ----------
        table : pyarrow.Table
        target : str
            The column of labels.
        columns : sequence of str, default=None
            Which columns to learn from. None: all others.
        impute : bool, default=False
            Fill missing values with medians; without it they are refused.
        text : sequence of str, default=()
            Columns that are text, even if their values look like numbers or dates.
        missing : sequence of str, default=()
            What stands for a missing value, such as ``?``, now and from then on.
        random_state : int, default=0
        **parameters
            Those of the forest.
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
        """The columns that learning needs: those of the features, and the target."""
        return [*(column.name for column in self.encoder.columns), self.encoder.target]

    def partial_fit(self, table: Any) -> TableForest:
        """Learn more rows. What a text stands for stays as it was."""
        X, y = self.encoder.features(table), self.encoder.labels(table)
        if len(y) > 0:
            self.forest.partial_fit(X, y)
        return self

    def predict_distribution(self, table: Any) -> PredictiveDistribution:
        """Predict the distribution of the label of each row."""
        X = self.encoder.features(table)
        return self.forest.predict_distribution(X)

    def predict(
        self, table: Any, *, std: bool = False, quantiles: ArrayLike = ()
    ) -> dict[str, NDArray[np.float64]]:
        """Predict columns: ``prediction``, ``std`` on request, and ``q0.05`` for a quantile.

        They are found block by block, so that it takes little memory.
        """
        X = self.encoder.features(table)
        levels = np.asarray(quantiles, dtype=np.float64).ravel()
        if len(X) == 0:
            names = ["prediction", *(["std"] if std else []), *map(quantile_name, levels)]
            return {name: np.empty(0) for name in names}
        mean, deviation = self.forest.predict(X, return_std=True)
        found = {"prediction": np.asarray(mean)}
        if std:
            found["std"] = np.asarray(deviation)
        if len(levels) > 0:
            values = self.forest.predict_quantiles(X, levels)
            found |= {quantile_name(q): values[:, k] for k, q in enumerate(levels)}
        return found

    def save(self, path: str | os.PathLike[str], *, rows: bool = True) -> None:
        """Write forest and encoding to a model file; see ``MondrianForestRegressor.save``."""
        save_forest(self.forest, path, rows=rows, table=self.encoder.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> TableForest:
        """Open a file that ``save`` has written; see ``MondrianForestRegressor.load``."""
        forest, text = load_forest(MondrianForestRegressor, path, mmap=mmap)
        if text is None:
            raise ModelFileError(
                f"{os.fspath(path)!r} does not say how to read tables: it was saved by a forest "
                "that was fitted to arrays."
            )
        return cls(forest, _encoder(path, text, forest))


def _encoder(
    path: str | os.PathLike[str], text: str, forest: MondrianForestRegressor
) -> TableEncoder:
    """Return the encoder that the description in a model file stands for."""
    try:
        encoder = TableEncoder.from_json(text)
        if len(encoder.feature_names) != forest.n_features_in_:
            raise ValueError("its columns are not those of its forest")
    except ValueError as error:
        raise ModelFileError(f"{os.fspath(path)!r} is no sound model file: {error}.") from None
    return encoder


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file holds, of a table or of arrays."""
    forest, text = load_forest(MondrianForestRegressor, path, mmap=True)
    encoder = None if text is None else _encoder(path, text, forest)
    named = getattr(forest, "feature_names_in_", None)
    names = (
        encoder.feature_names
        if encoder is not None
        else [f"feature {f}" for f in range(forest.n_features_in_)]
        if named is None
        else list(named)
    )
    state = state_of(forest)
    low, high = state.seen_range
    sizes = [len(tree.nodes) for tree in forest.trees_]
    found: dict[str, Any] = {
        "file bytes": os.stat(path).st_size,
        "rows seen": forest.n_samples_seen_,
        "can learn more": not state.is_frozen,
    }
    if encoder is not None:
        found |= {
            "target": encoder.target,
            "columns": {column.name: column.kind for column in encoder.columns},
            "impute": encoder.fills_gaps,
            "missing": encoder.missing,
        }
    return found | {
        "features": len(names),
        "ranges": {name: [float(low[f]), float(high[f])] for f, name in enumerate(names)},
        "importances": {
            name: float(share)
            for name, share in zip(names, forest.feature_importances_, strict=True)
        },
        "trees": len(sizes),
        "nodes": int(np.sum(sizes)),
        "depth": int(state.grove.depth),
        "posterior": posterior_of(forest.posterior).name,
        "min_samples_split": forest.min_samples_split_,
        "candidate splits": state.growth.n_candidate_splits,
        "spread": [float(factor) for factor in forest.spread_.factor],
        "trend": forest.trend or "none",
        **{name: float(value) for name, value in state.model._asdict().items()},
    }
