"""All that a fit produces: one frozen dataclass, to which the estimator holds a reference.

A change makes a new state, and the estimator's reference to the old one is replaced. So an error,
an interrupt and a reader in another thread see the old forest or the new one, never a mixture. Only
trees and rows are too large to be copied for every new row: see ``sharing``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays.grove import Grove, trimmed, without_rows
from .._core.growth import Growth
from .._core.growth.learn import log_likelihood
from .._core.growth.leave import Leaving
from .._core.labels import Hierarchical, LabelModel
from .._core.mixtures.ensemble import Ensemble
from .._core.mixtures.neighbours import NO_LABELS, LabelMemory, label_memory, order_labels
from .._core.moments import Moments
from .._core.spread.apply import Spread
from .label_limits import LabelLimits
from .mean_function import MeanFunction
from .monitor import Monitor
from .scaling import Range, Scaling


class Unfinished(NamedTuple):
    """Rows that are stored and have yet to join the trees, and rows that have yet to leave them.

    It says how far that has come, so that it can go on after an interrupt.
    """

    end: int
    """The trees hold the rows up to this one, before any leave."""
    is_due: bool
    """Whether hyperparameters are new, so that the label model of every node is computed anew."""
    have_joined: NDArray[np.bool_]
    """By tree."""
    leaving: Leaving | None = None
    """The rows that leave, once all trees hold the new ones."""
    is_moved: NDArray[np.bool_] | None = None
    """A single entry: whether the rows that stay have their new places."""


@dataclass(frozen=True, eq=False)
class ForestState:
    """A fitted forest."""

    feature_names: NDArray[np.object_] | None
    """Names of the features, if the table of the fit had names."""
    scaling: Scaling
    """How features become the coordinates that the trees see."""
    grove: Grove
    """The trees."""
    growth: Growth
    """How trees are sampled."""
    model: LabelModel
    """The label model in the trees."""
    mean_function: MeanFunction | None
    """The regression around which the forest puts its distribution."""
    spread: Spread
    """How predictive distributions are stretched."""

    n_rows: int
    """Number of rows that the trees hold."""
    n_seen: int
    """Number of rows learned, with those that have been forgotten."""
    rows: NDArray[np.float32]
    """Their coordinates, with room for more; empty in a frozen forest."""
    labels: NDArray[np.float64]
    """What the trees learn: labels within their limits, less ``means``."""
    means: NDArray[np.float64]
    """By row: what has been subtracted from its label; 0 where there is nothing to subtract."""
    arrivals: NDArray[np.int64]
    """By row: how many rows had been learned before it. The numbers of rows say nothing about this:
    where rows have left, others have taken their numbers."""
    ordered_labels: NDArray[np.float64]
    """The labels in the order of each tree, where rows have been dropped and labels are needed."""
    random_states: NDArray[np.uint64]
    """The random stream of each tree."""
    label_moments: Moments
    label_limits: LabelLimits
    resolution: float
    """The smallest difference of two labels."""
    seen_range: Range
    """The range of the columns of the rows, and maybe of some that have been forgotten since the
    last review."""
    spread_record: NDArray[Any]
    """What is known about rows that were predicted before they were learned."""
    review_at: int
    """The number of rows learned at which hyperparameters and scaling are reviewed."""
    fitted_at: int
    """The number of rows learned when the forest was fitted, at first or again."""
    n_rows_fitted: int
    """The number of rows that it held then."""
    has_rescaled: bool
    """Whether the user has been told that the scaling was learned again."""
    log_likelihoods: NDArray[np.float64] | None = None
    """Log density of the labels given each tree, kept where the rows that say so are dropped."""
    is_mapped: bool = False
    """Whether the boxes are in a model file, where they are not checked before they are needed."""
    unfinished: Unfinished | None = None
    monitor: Monitor | None = None
    """What watches the errors of a stream for changes, if asked to."""

    def but(self, **changes: Any) -> ForestState:
        """Return the state with some other fields.

        As ``dataclasses.replace``, which takes a third of the time in which a row is learned.
        """
        new = object.__new__(ForestState)
        new.__dict__.update(self.__dict__)
        new.__dict__.update(changes)
        return new

    @property
    def n_columns(self) -> int:
        """Number of features that the trees see: the mean function may be the last of them."""
        return len(self.scaling.weights)

    @property
    def n_features(self) -> int:
        """Number of features that the user gives."""
        has_more = self.mean_function is not None and self.mean_function.is_feature
        return self.n_columns - int(has_more)

    @property
    def far(self) -> float:
        """How many standard deviations of what trees learn forecasts have far from the data."""
        return 1.0 if self.mean_function is None else self.mean_function.far

    def seen_by_trees(self, table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        """Return the columns that trees see of rows, and what is added to their predictions.

        None stands for nothing.
        """
        known = self.mean_function
        if known is None:
            return table, None
        values = known.at(table)
        return known.columns(table, values), values if known.is_subtracted else None

    @property
    def is_frozen(self) -> bool:
        """Whether the rows have been dropped."""
        return len(self.rows) < self.n_rows

    def refuse_if_frozen(self, what: str) -> None:
        """Raise a ValueError if the rows have been dropped."""
        if self.is_frozen:
            raise ValueError(
                f"This forest has dropped its training rows with freeze() and cannot {what}: "
                "fit it again, or keep a copy that is not frozen."
            )

    def shares_rows_with(self, other: ForestState) -> bool:
        """Return whether both have the same store of rows, labels or arrivals."""
        pairs = ((self.rows, other.rows), (self.labels, other.labels))
        return self.arrivals is other.arrivals or any(one is two for one, two in pairs)

    def ensemble(self) -> Ensemble:
        """Return all that prediction needs of the trees."""
        return ensemble_of(self.grove, self.growth, self.model)

    def label_memory(self) -> LabelMemory | None:
        """Return where the labels in the trees are, if they are at hand."""
        if len(self.ordered_labels) > 0:
            return NO_LABELS._replace(ordered=self.ordered_labels)
        return None if self.is_frozen else label_memory(self.grove, self.labels)

    def find_log_likelihoods(self) -> NDArray[np.float64] | None:
        """Return the log density of the labels given each tree; the paper's model only."""
        grove, model = self.grove, self.model
        if not isinstance(model, Hierarchical) or self.log_likelihoods is not None:
            return self.log_likelihoods
        return np.array([log_likelihood(grove, number, model) for number in range(grove.n_trees)])

    def frozen(self) -> ForestState:
        """Return the state without the rows, and without all that only learning needs."""
        if self.is_frozen:
            return self
        memory = self.label_memory()
        dropped = self.dropping_rows(without_rows(self.grove))
        if self.spread.blend is not None and memory is not None:
            dropped = dropped.but(ordered_labels=order_labels(self.ensemble(), memory))
        return dropped.but(log_likelihoods=self.find_log_likelihoods())

    def dropping_rows(self, grove: Grove) -> ForestState:
        """Return the state with trees that hold no rows, and without the rows."""
        return self.but(
            grove=grove,
            rows=self.rows[:0].copy(),
            labels=self.labels[:0].copy(),
            means=self.means[:0].copy(),
            arrivals=self.arrivals[:0].copy(),
            monitor=None,
            spread_record=self.spread_record[:0].copy(),
        )

    def copied(self) -> ForestState:
        """Return a copy of all that changes in place, without the room for more."""
        return self.but(
            grove=trimmed(self.grove),
            rows=self.rows[: self.n_rows].copy(),
            labels=self.labels[: self.n_rows].copy(),
            means=self.means[: self.n_rows].copy(),
            arrivals=self.arrivals[: self.n_rows].copy(),
            random_states=self.random_states.copy(),
        )


def ensemble_of(grove: Grove, growth: Growth, model: LabelModel) -> Ensemble:
    """Return all that prediction needs of some trees."""
    return Ensemble(grove.sizes, grove.nodes, grove.boxes, grove.depth, model, growth.lifetime)
