"""Slow, literal transcription of the paper in plain Python and NumPy: the oracle of the tests.

Nothing here shares code with the kernels. A tree is a linked structure, algorithms are recursive
as in the paper, and the posterior is not found by message passing but by writing down the joint
Gaussian of all node means and all labels and conditioning by linear algebra.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(eq=False)
class Node:
    """A node of a Mondrian tree, with the paper's letters spelled out in ``_core``."""

    rows: list[int]
    lower: Vector
    upper: Vector
    parent: Node | None = None
    split_time: float = math.inf
    split_feature: int = -1
    threshold: float = math.nan
    children: list[Node] = field(default_factory=list)

    @property
    def parent_time(self) -> float:
        return 0.0 if self.parent is None else self.parent.split_time

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Prior:
    """mu_H, gamma_1, gamma_2 and sigma_y^2."""

    mean: float
    scale: float
    rate: float
    noise_variance: float

    def accumulated(self, time: float) -> float:
        """gamma_1 sigmoid(gamma_2 t)."""
        return self.scale / (1.0 + math.exp(-self.rate * time))


def sample_mondrian_block(
    x: Vector,
    rows: list[int],
    parent: Node | None,
    min_samples_split: int,
    lifetime: float,
    generator: np.random.Generator,
) -> Node:
    """Alg. 2, recursively; Alg. 1 is the call for all rows with no parent."""
    inside = x[rows]
    node = Node(rows, inside.min(axis=0), inside.max(axis=0), parent)
    extents = node.upper - node.lower
    if len(rows) < min_samples_split or extents.sum() == 0.0:
        return node
    split_time = node.parent_time + generator.exponential(1.0 / extents.sum())
    if split_time >= lifetime:
        return node
    node.split_time = split_time
    feature = int(generator.choice(len(extents), p=extents / extents.sum()))
    node.split_feature = feature
    node.threshold = generator.uniform(node.lower[feature], node.upper[feature])
    for goes_left in (True, False):
        subset = [i for i in rows if (x[i, feature] <= node.threshold) == goes_left]
        child = sample_mondrian_block(x, subset, node, min_samples_split, lifetime, generator)
        node.children.append(child)
    return node


def hyperparameters(y: Vector, n_features: int) -> Prior:
    """Appendix B."""
    n = len(y)
    mean = float(y.mean())
    ratio = min(2000, 2 * n)
    scale = float(((y - mean) ** 2).mean()) / (1 / 2 + 1 / ratio)
    return Prior(mean, scale, n_features / (20 * math.log2(n)), scale / ratio)


@dataclass(frozen=True)
class JointGaussian:
    """The joint law of the means of all nodes and of all labels, section 3."""

    nodes: list[Node]
    mean: Vector
    covariance: Vector
    """Over the node means first, the labels after them."""
    noise_variance: float


def joint_gaussian(root: Node, n_labels: int, prior: Prior) -> JointGaussian:
    """Write down the prior: mu_j is mu_parent plus independent noise of variance phi_j."""
    nodes = list(root.walk())
    position = {id(node): k for k, node in enumerate(nodes)}
    # Row k of `path` marks the edges between the root's parent and node k.
    path = np.zeros((len(nodes), len(nodes)))
    edge_variance = np.empty(len(nodes))
    for k, node in enumerate(nodes):
        edge_variance[k] = prior.accumulated(node.split_time) - prior.accumulated(node.parent_time)
        if node.parent is not None:
            path[k] = path[position[id(node.parent)]]
        path[k, k] = 1.0
    belongs_to = np.zeros((n_labels, len(nodes)))
    for k, node in enumerate(nodes):
        if not node.children:
            belongs_to[node.rows, k] = 1.0
    both = np.vstack([path, belongs_to @ path])
    covariance = (both * edge_variance) @ both.T
    labels = np.arange(len(nodes), len(nodes) + n_labels)
    covariance[labels, labels] += prior.noise_variance
    return JointGaussian(nodes, np.full(len(both), prior.mean), covariance, prior.noise_variance)


def node_posterior(joint: JointGaussian, y: Vector) -> tuple[Vector, Vector]:
    """Condition on the labels by linear algebra; return means and variances of the node means."""
    n_nodes = len(joint.nodes)
    cross = joint.covariance[:n_nodes, n_nodes:]
    solved = np.linalg.solve(joint.covariance[n_nodes:, n_nodes:], cross.T).T
    mean = joint.mean[:n_nodes] + solved @ (y - joint.mean[n_nodes:])
    covariance = joint.covariance[:n_nodes, :n_nodes] - solved @ cross.T
    return mean, np.diag(covariance)


def log_marginal_likelihood(joint: JointGaussian, y: Vector) -> float:
    """Log density of the labels under the joint Gaussian."""
    n_nodes = len(joint.nodes)
    covariance = joint.covariance[n_nodes:, n_nodes:]
    deviation = y - joint.mean[n_nodes:]
    _, log_determinant = np.linalg.slogdet(2.0 * math.pi * covariance)
    quadratic = float(deviation @ np.linalg.solve(covariance, deviation))
    return -0.5 * (float(log_determinant) + quadratic)


@dataclass(frozen=True)
class Branch:
    """One term of the predictive mixture: branch off above ``node``, or end in it (a leaf)."""

    node: Node
    weight: float
    distance: float
    ends_in_leaf: bool


def predict(root: Node, x: Vector, lifetime: float = math.inf) -> list[Branch]:
    """Alg. 5: the weights along the path of x. Terms of weight zero are left out."""
    branches = []
    not_separated_yet = 1.0
    node = root
    while True:
        duration = min(node.split_time, lifetime) - node.parent_time
        distance = float(
            np.maximum(x - node.upper, 0.0).sum() + np.maximum(node.lower - x, 0.0).sum()
        )
        separated = 1.0 - math.exp(-duration * distance) if distance > 0.0 else 0.0
        if separated > 0.0:
            branches.append(Branch(node, not_separated_yet * separated, distance, False))
        not_separated_yet *= 1.0 - separated
        if not node.children:
            if not_separated_yet > 0.0:
                branches.append(Branch(node, not_separated_yet, 0.0, True))
            return branches
        node = node.children[0 if x[node.split_feature] <= node.threshold else 1]


def branch_off_at(
    root: Node, node: Node, time: float, y: Vector, prior: Prior
) -> tuple[float, float, float]:
    """Branch off above ``node`` at a given time, by inserting the new node into the tree.

    Returns mean and variance of the mean at the new node given all labels, and the variance that
    the fresh branch and the noise add to a label there.
    """
    inserted = Node(node.rows, node.lower, node.upper, node.parent, time)
    siblings = [] if node.parent is None else node.parent.children
    place = siblings.index(node) if siblings else 0
    original_parent = node.parent
    try:
        inserted.children.append(node)
        node.parent = inserted
        if siblings:
            siblings[place] = inserted
        joint = joint_gaussian(root if siblings else inserted, len(y), prior)
        mean, variance = node_posterior(joint, y)
        k = next(k for k, candidate in enumerate(joint.nodes) if candidate is inserted)
    finally:
        node.parent = original_parent
        if siblings:
            siblings[place] = node
    fresh = prior.scale - prior.accumulated(time) + prior.noise_variance
    return float(mean[k]), float(variance[k]), fresh
