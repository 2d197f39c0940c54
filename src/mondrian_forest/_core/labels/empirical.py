"""The empirical posterior of appendix C: each node has the mean and variance of its labels."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..arrays.kernel import borrowing_kernel, inner_kernel, kernel_methods
from ..arrays.tree import Records
from .exits import ExitComponents, Exits, LabelScratch, Visits
from .hierarchical import Hierarchical, is_gaussian_node_sound, set_share
from .model import Summary


@kernel_methods
class Empirical(NamedTuple):
    """An approximation of ``Hierarchical`` that has the same hyperparameters.

    ``location`` and ``precision`` of a node are the mean and the inverse variance of its labels.
    Only the noise variance changes predictions.
    """

    prior_mean: float
    prior_scale: float
    prior_rate: float
    noise_variance: float

    @classmethod
    def name(cls) -> str:
        return "empirical"

    @classmethod
    def estimate(cls, summary: Summary, /, **given: float | None) -> Empirical:
        """Return the model with the hyperparameters of ``Hierarchical.estimate``."""
        return cls(*Hierarchical.estimate(summary, **given))

    @inner_kernel
    def set_time(self, nodes: Records, node: int) -> None:
        set_share(nodes, node, self.prior_rate)

    @inner_kernel
    def set_node(self, nodes: Records, tallies: Records, node: int) -> None:
        record = nodes[node]
        tally = tallies[node]
        record.n_samples = tally.n_samples
        record.location = tally.label_mean
        record.precision = tally.n_samples / tally.squared_deviation

    @inner_kernel
    def is_sound(self, record: Any) -> bool:
        return is_gaussian_node_sound(record)

    @inner_kernel
    def uses_times(self) -> bool:
        return True

    @inner_kernel
    def stops_inside(self) -> bool:
        return False

    @inner_kernel
    def stop_probability(self, record: Any) -> float:  # noqa: ARG002
        return 0.0

    @inner_kernel
    def has_local_noise(self) -> bool:
        return False

    @borrowing_kernel
    def fill_components(
        self,
        nodes: Records,
        lifetime: float,  # noqa: ARG002
        visits: Visits,
        n_visits: int,  # noqa: ARG002
        exits: Exits,
        n_exits: int,
        scratch: LabelScratch,  # noqa: ARG002
        components: ExitComponents,
    ) -> None:
        visited, _ = visits
        _, exit_visit, _, _, _ = exits
        locations, posterior_variances, branch_variances, _, _ = components
        for e in range(n_exits):
            record = nodes[visited[exit_visit[e]]]
            locations[e] = record.location
            posterior_variances[e] = 1.0 / record.precision
            branch_variances[e] = 0.0
