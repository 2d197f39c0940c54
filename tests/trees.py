"""What every test that touches a tree needs: its invariants, and its twin in the reference."""

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._core.arrays.grove import allocate_grove, copy_tree
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import (
    NO_CHILD,
    NO_ROW,
    NODE,
    RowLists,
    RowOrder,
    Tree,
    parents_first,
)
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.extend import extend_trees
from mondrian_forest._core.growth.join import join_trees
from mondrian_forest._core.growth.learn import (
    learn_batch,
    scratch_like,
)
from mondrian_forest._core.growth.leave import leave_trees, leaving_of
from mondrian_forest._core.growth.sample import sample_tree
from mondrian_forest._core.labels.model import set_all_nodes
from mondrian_forest._core.labels.tallies import tally_labels
from mondrian_forest._core.mixtures.ensemble import Ensemble, allocate_space
from mondrian_forest._core.mixtures.route import find_components, route
from reference.paper import Node


def paper_forest(*arguments, **parameters):
    """Return an unfitted forest of the paper's model, but for the parameters given."""
    return MondrianForestRegressor(*arguments, **PAPER | parameters)


def grow(
    rows,
    min_samples_split=2,
    lifetime=np.inf,
    seed=0,
    state=None,
    labels=None,
    n_candidate_splits=1,
):
    """Sample one tree on float32 rows; return it with its row order."""
    if labels is None:
        labels = np.zeros(len(rows))
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    if state is None:
        state = random_states(np.random.SeedSequence(seed), 1)[0]
    grove = allocate_grove(1, *rows.shape, is_linked=False)
    room = grove.room(0)
    order = grove.row_numbers[0]
    grove.sizes[0] = sample_tree(
        rows,
        labels,
        Growth(min_samples_split, n_candidate_splits, lifetime),
        state,
        room,
        order,
        scratch_like(rows),
        grove.contests_of(0),
    )
    return grove.tree(0), RowOrder(order)


def learn_in_steps(rows, labels, growth, model, states, n_batch=1, chunk=1):
    """Let one tree learn the first rows at once and the others in chunks; yield it each time."""
    n_candidates = growth.n_candidate_splits
    batch = allocate_grove(1, n_batch, rows.shape[1], n_candidates, is_linked=False)
    learn_batch(batch, 0, rows[:n_batch], labels[:n_batch], growth, model, states[0])
    grove = allocate_grove(1, *rows.shape, n_candidates, is_linked=True)
    copy_tree(batch, 0, grove)
    yield grove
    for begin in range(n_batch, len(rows), chunk):
        end = min(begin + chunk, len(rows))
        learn = extend_trees if n_candidates == 1 else join_trees
        learn(grove, 0, 1, rows, labels, end, growth, model, states)
        yield grove


def forget_rows(grove, rows, labels, numbers, growth, model, states):
    """Let one tree forget rows; return those that stay, in the order of their new numbers."""
    n_rows = int(grove.tallies[0, 0]["n_samples"])
    leaving = leaving_of(np.asarray(numbers), n_rows)
    leave_trees(grove, 0, 1, rows, labels, leaving, growth, model, states)
    order = np.arange(n_rows)
    order[leaving.to] = leaving.moved
    return order[: n_rows - len(leaving.numbers)]


def give_labels(tree, row_order, labels, model):
    """Fill in the label model of a tree as sampled; return the tree."""
    tally_labels(tree.nodes, tree.tallies, labels[row_order.order], 0, tree.n_nodes)
    order = parents_first(tree.nodes, tree.depth)
    set_all_nodes(model, tree.nodes, tree.tallies, order)
    return tree


def forest_of(trees, model, lifetime=np.inf):
    """Return trees with labels as prediction needs them."""
    sizes = np.array([tree.n_nodes for tree in trees])
    nodes = np.zeros((len(trees), sizes.max()), dtype=NODE)
    boxes = np.zeros((len(trees), sizes.max(), *trees[0].boxes.shape[1:]), dtype=np.float32)
    for number, tree in enumerate(trees):
        nodes[number, : sizes[number]] = tree.nodes
        boxes[number, : sizes[number]] = tree.boxes
    depth = max(tree.depth for tree in trees)
    return Ensemble(sizes, nodes, boxes, depth, model, lifetime)


def routed(tree, rows, model, lifetime=np.inf):
    """Route rows through one tree; return visits and exits."""
    ensemble = forest_of([tree], model, lifetime)
    space = allocate_space(ensemble, len(rows))
    n_visits, n_exits = route(ensemble, 0, rows, space)
    return cut_to(space.visits, n_visits), cut_to(space.exits, n_exits)


def components_of(tree, rows, model, lifetime=np.inf):
    """Route rows through one tree; return visits, exits and components."""
    ensemble = forest_of([tree], model, lifetime)
    space = allocate_space(ensemble, len(rows))
    n_exits = find_components(ensemble, 0, rows, space)
    return space.visits, cut_to(space.exits, n_exits), cut_to(space.components, n_exits)


def cut_to(arrays, length):
    """Return a tuple of arrays without what is behind their used part."""
    return type(arrays)(*(array[:length] for array in arrays))


def small_table(seed, n_rows=12, n_features=3):
    """A tiny table with ties, duplicate rows and a constant column."""
    generator = np.random.default_rng(seed)
    rows = generator.random((n_rows, n_features)).astype(np.float32)
    rows[:, 0] = np.round(rows[:, 0], 1)
    rows[n_rows // 2] = rows[0]
    rows[:, -1] = 0.5 if n_features > 1 else rows[:, -1]
    return rows, generator.normal(3.0, 2.0, n_rows)


def rows_in(tree: Tree, row_lists: RowLists | RowOrder, number=0) -> list[int]:
    """Return the numbers of the rows in a node."""
    first_row = tree.tallies["first_row"]
    if isinstance(row_lists, RowOrder):
        start = first_row[number]
        return row_lists.order[start : start + tree.n_samples[number]].tolist()
    left = int(tree.left_child[number])
    if left != NO_CHILD:
        assert first_row[number] == NO_ROW
        return rows_in(tree, row_lists, left) + rows_in(tree, row_lists, left + 1)
    found, row = [], int(first_row[number])
    while row != NO_ROW:
        found.append(row)
        row = int(row_lists.next[row])
    return found


def check_tree_invariants(
    tree: Tree,
    rows,
    row_lists,
    min_samples_split=2,
    lifetime=np.inf,
    labels=None,
):
    """Assert all that must hold for any tree on these rows."""
    n_nodes = tree.n_nodes
    assert sorted(rows_in(tree, row_lists)) == list(range(len(rows)))
    assert tree.n_samples[0] == len(rows)
    seen = np.zeros(n_nodes, dtype=int)
    depth = np.zeros(n_nodes, dtype=int)
    parent_time = np.zeros(n_nodes)
    seen[0] = 1
    for node in preorder_numbers(tree):
        numbers = rows_in(tree, row_lists, node)
        assert tree.n_samples[node] == len(numbers)
        inside = rows[numbers]
        np.testing.assert_array_equal(tree.lower[node], inside.min(axis=0))
        np.testing.assert_array_equal(tree.upper[node], inside.max(axis=0))
        if labels is not None:
            y = labels[numbers]
            rounding = 4 * np.finfo(float).eps * abs(y).max()
            assert abs(tree.tallies["label_mean"][node] - y.mean()) <= rounding
            deviation = ((y - y.mean()) ** 2).sum()
            # A mean that is off by `rounding` moves the sum of squares by this much.
            allowed = 1e-12 * deviation + 2 * rounding * np.sqrt(deviation * len(y))
            assert abs(tree.tallies["squared_deviation"][node] - deviation) <= (
                allowed + len(y) * rounding**2
            )
        left = tree.left_child[node]
        if left == NO_CHILD:
            assert tree.split_time[node] == np.inf
            assert tree.split_feature[node] == -1
            assert tree.height[node] == 0
            if lifetime == np.inf:
                assert len(numbers) < min_samples_split or not np.ptp(inside, axis=0).any()
            continue
        right = left + 1
        seen[[left, right]] += 1
        assert len(numbers) >= min_samples_split
        assert parent_time[node] < tree.split_time[node] < lifetime
        feature, threshold = tree.split_feature[node], tree.threshold[node]
        assert tree.lower[node, feature] <= threshold < tree.upper[node, feature]
        assert tree.upper[left, feature] <= threshold < tree.lower[right, feature]
        for child in (left, right):
            parent_time[child] = tree.split_time[node]
            depth[child] = depth[node] + 1
            assert (tree.lower[child] >= tree.lower[node]).all()
            assert (tree.upper[child] <= tree.upper[node]).all()
        assert tree.n_samples[left] + tree.n_samples[right] == tree.n_samples[node]
        assert tree.height[node] == 1 + max(tree.height[[left, right]])
    assert (seen == 1).all()
    assert tree.depth == depth.max()


def as_reference(tree: Tree, row_lists: RowLists, number=0, parent=None) -> Node:
    """Return the tree as linked nodes."""
    node = Node(
        rows=rows_in(tree, row_lists, number),
        lower=tree.lower[number].astype(float),
        upper=tree.upper[number].astype(float),
        parent=parent,
        split_time=float(tree.split_time[number]),
        split_feature=int(tree.split_feature[number]),
        threshold=float(tree.threshold[number]),
    )
    if tree.left_child[number] != NO_CHILD:
        left = int(tree.left_child[number])
        node.children = [as_reference(tree, row_lists, child, node) for child in (left, left + 1)]
    return node


def preorder_numbers(tree: Tree, number=0) -> list[int]:
    """Return node numbers in the order of ``Node.walk``."""
    if tree.left_child[number] == NO_CHILD:
        return [number]
    left = int(tree.left_child[number])
    return [number, *preorder_numbers(tree, left), *preorder_numbers(tree, left + 1)]
