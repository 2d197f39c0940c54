"""What a label model is: the interface of ``Hierarchical``, ``Empirical`` and ``Pruned``.

A label model says what a new label is at each place of a tree. It never changes the structure of a
tree. Each one is a NamedTuple of its hyperparameters with ``kernel_methods``: Numba compiles the
kernels that call these methods separately for each label model.

All label models start from the same tallies and fill the same fields of a node:

- ``location`` and ``precision``: of the node's mean, or of a new label in the node,
- ``n_samples``: the number of rows in the node, which prediction needs too,
- ``share``: a number that the way down the tree needs, and that takes an exponential to compute.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..arrays.kernel import AHEAD, borrowing_kernel, prefetch, wide
from ..arrays.tree import Records
from ..moments import Moments
from .exits import ExitComponents, Exits, LabelScratch, Visits
from .tallies import prefetch_family


class Summary(NamedTuple):
    """What hyperparameters are estimated from."""

    labels: Moments
    n_features: int
    resolution: float
    """The smallest difference of two labels; labels are rounded to multiples of it."""
    prior_stop: float = 0.5
    """How probable it is that a cut says nothing, as far as the rows have told."""

    def variance_about(self, mean: float) -> float:
        """Return the mean squared deviation of the labels from ``mean``; 1 if that is zero.

        Labels without any spread say nothing about their scale.
        """
        difference = self.labels.mean - mean
        variance = self.labels.squared_deviation / self.labels.n_samples + difference * difference
        return variance if variance != 0.0 else 1.0


class LabelModel(Protocol):
    """The interface of a label model."""

    @property
    def prior_mean(self) -> float: ...
    @property
    def prior_scale(self) -> float: ...
    @property
    def noise_variance(self) -> float: ...

    def _asdict(self) -> dict[str, float]: ...

    @classmethod
    def name(cls) -> str:
        """Return the name that users know the label model by."""

    @classmethod
    def estimate(cls, summary: Summary, /, *_: Any, **given: Any) -> Self:
        """Return the label model for some labels; hyperparameters that are given are kept."""

    # Kernels

    def set_time(self, nodes: Records, node: int) -> None:
        """Set the fields of a node that follow from its time alone."""

    def set_node(self, nodes: Records, tallies: Records, node: int) -> None:
        """Set the fields that follow from the tally of a node; those of its children are set.

        Nothing but the fields of the node and of its children may change, so that a new row
        changes the nodes on its path and their siblings only.
        """

    def is_sound(self, record: Any) -> bool:
        """Return whether the fields of a node from outside are in the range of the model."""

    def uses_times(self) -> bool:
        """Return whether the fields of a node depend on times."""

    def stops_inside(self) -> bool:
        """Return whether a row can leave the tree at an inner node whose box holds it."""

    def stop_probability(self, record: Any) -> float:
        """Return the probability that a row that reaches a node goes no further."""

    def has_local_noise(self) -> bool:
        """Return whether each component is a Student-t with a noise variance of its own.

        If not, all are Gaussian, and the noise variance is the hyperparameter of that name.
        """

    def fill_components(
        self,
        nodes: Records,
        lifetime: float,
        visits: Visits,
        n_visits: int,
        exits: Exits,
        n_exits: int,
        scratch: LabelScratch,
        components: ExitComponents,
    ) -> None:
        """Fill in the component of each exit."""


@borrowing_kernel
def set_all_nodes(
    model: LabelModel, nodes: Records, tallies: Records, parents_first: NDArray[np.int32]
) -> None:
    """Set what the label model says of each node, from the tallies alone."""
    for i in range(len(parents_first) - 1, -1, -1):
        prefetch(nodes, parents_first[max(i - 2 * AHEAD, 0)])
        prefetch_family(nodes, tallies, parents_first[max(i - AHEAD, 0)])
        node = wide(parents_first[i])
        model.set_time(nodes, node)
        model.set_node(nodes, tallies, node)


@borrowing_kernel
def are_sound(model: LabelModel, nodes: Records) -> bool:
    """Return whether all nodes from outside are in the range of the label model."""
    n_sound = 0
    for node in range(len(nodes)):
        n_sound += model.is_sound(nodes[node])
    return n_sound == len(nodes)
