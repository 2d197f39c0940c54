"""What every test that touches a tree needs: its invariants, and its twin in the reference."""

import numpy as np

from mondrian_forest import PAPER, MondrianForestRegressor
from mondrian_forest._core.arrays.contests import FEWEST_ROWS, NO_CONTEST
from mondrian_forest._core.arrays.grove import (
    allocate_for_copy,
    allocate_grove,
    compact,
    copy_tree,
)
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
from mondrian_forest._core.growth.cuts import separation
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
        learn(grove, 0, 1, rows, labels, end, growth, model, states, np.zeros(1, np.bool_))
        yield grove


class LivingTrees:
    """Trees that learn and forget together, and the rows that they know."""

    def __init__(self, rows, labels, growth, model, states, room):
        n_features, n_candidates = rows.shape[1], growth.n_candidate_splits
        n_trees, self.n_rows = len(states), len(rows)
        self.growth, self.model, self.states = growth, model, states
        self.rows = np.zeros((room, n_features), np.float32)
        self.labels = np.zeros(room)
        self.rows[: len(rows)], self.labels[: len(rows)] = rows, labels
        batch = allocate_grove(n_trees, len(rows), n_features, n_candidates, is_linked=False)
        self.grove = allocate_grove(n_trees, room, n_features, n_candidates, is_linked=True)
        for number, state in enumerate(states):
            learn_batch(batch, number, rows, labels, growth, model, state)
            copy_tree(batch, number, self.grove)

    def learn(self, rows, labels):
        end, grove = self.n_rows + len(rows), self.grove
        self.rows[self.n_rows : end], self.labels[self.n_rows : end] = rows, labels
        join = join_trees
        if self.growth.n_candidate_splits == 1:
            join = extend_trees
            for number in range(grove.n_trees):
                if grove.sizes[number] + 2 * len(rows) > grove.nodes.shape[1]:
                    compact(grove, number, allocate_for_copy(grove, self.n_rows))
        is_done = np.zeros(grove.n_trees, np.bool_)
        join(
            grove, 0, grove.n_trees, self.rows, self.labels, end,
            self.growth, self.model, self.states, is_done,
        )  # fmt: skip
        assert is_done.all()
        self.n_rows = end

    def forget(self, numbers):
        """Forget rows; return the old numbers of the others, in the order of their new ones."""
        grove = self.grove
        leaving = leaving_of(np.asarray(numbers, np.int64), self.n_rows, grove.n_trees)
        leave_trees(
            grove, 0, grove.n_trees, self.rows, self.labels, leaving,
            self.growth, self.model, self.states,
        )  # fmt: skip
        assert leaving.is_done.all()
        order = np.arange(self.n_rows)
        for array in (self.rows, self.labels, order):
            array[leaving.to] = array[leaving.moved]
        self.n_rows -= len(leaving.numbers)
        return order[: self.n_rows]

    def check(self, number=0):
        """Assert all that must hold for one of the trees."""
        growth, grove = self.growth, self.grove
        rows, labels = self.rows[: self.n_rows], self.labels[: self.n_rows]
        tree = grove.tree(number)
        check_tree_invariants(
            tree, rows, grove.rows(number), growth.min_samples_split, growth.lifetime, labels,
            first_free=grove.free_pairs[number],
        )  # fmt: skip
        check_contests(tree, grove.contests_of(number), rows, labels, grove.rows(number), growth)
        check_label_model(tree, self.model)


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
    first_free=NO_CHILD,
):
    """Assert all that must hold for any tree on these rows."""
    n_nodes = tree.n_nodes
    free = check_free_pairs(tree, first_free)
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
    seen[free] += 1
    assert (seen == 1).all()
    assert tree.depth == depth.max()


def check_free_pairs(tree, first_free):
    """Assert that free pairs form a list, and look like leaves without rows; return the nodes."""
    free, left = [], int(first_free)
    while left != NO_CHILD:
        assert left % 2 == 1
        free += [left, left + 1]
        assert len(free) < tree.n_nodes  # or the list has no end
        left = int(tree.tallies["first_row"][left])
    nodes, boxes, tallies = (array[free] for array in tree)
    assert (nodes["left_child"] == NO_CHILD).all()
    assert (tallies["first_row"][1::2] == NO_ROW).all()
    assert (tallies["contest"] == NO_CONTEST).all()
    assert (nodes["precision"] == 1.0).all()
    for array in (
        boxes,
        *(nodes[field] for field in ("threshold", "share", "location", "n_samples")),
        *(tallies[field] for field in ("n_samples", "height", "label_mean", "squared_deviation")),
    ):
        assert not array.any()
    return free


def check_contests(tree, contests, rows, labels, row_lists, growth):
    """Assert that the contests of a tree are what counting all rows from scratch says."""
    counts, candidates = contests
    n_candidates = growth.n_candidate_splits
    in_use = []
    for node in preorder_numbers(tree):
        place = int(tree.tallies["contest"][node])
        numbers = np.array(rows_in(tree, row_lists, node))
        is_inner = tree.left_child[node] != NO_CHILD
        has_contest = n_candidates > 1 and is_inner and len(numbers) >= FEWEST_ROWS
        assert (place != NO_CONTEST) == has_contest
        if not has_contest:
            continue
        in_use.append(place)
        *own, whole = candidates[place]
        scores = np.rint((labels[numbers] - growth.label_origin) / growth.label_unit)
        scores = np.clip(scores, -(2.0**31), 2.0**31)
        assert whole["sum_left"] == scores.sum()
        between = []
        for candidate in own:
            feature, threshold = candidate["feature"], candidate["threshold"]
            assert tree.lower[node, feature] <= threshold < tree.upper[node, feature]
            is_left = rows[numbers, feature] <= threshold
            assert candidate["n_left"] == is_left.sum()
            assert candidate["sum_left"] == scores[is_left].sum()
            n_left = float(is_left.sum())
            between.append(
                separation(float(len(numbers)), scores.sum(), n_left, scores[is_left].sum())
            )
        best = int(np.argmax(between))  # the first one
        assert tree.split_feature[node] == own[best]["feature"]
        assert tree.threshold[node] == own[best]["threshold"]
    free, place = [], int(counts[1])
    while place != NO_CONTEST:
        free.append(place)
        assert len(free) <= counts[0]  # or the list has no end
        *own, whole = candidates[place]
        assert not any(candidate[field] for candidate in own for field in candidate.dtype.names)
        assert whole["sum_left"] == 0.0
        place = int(whole["n_left"])
    assert sorted(in_use + free) == list(range(counts[0]))


def check_label_model(tree, model):
    """Assert that all fields are those of a full pass over the same tree, to the last bit."""
    order = np.array(preorder_numbers(tree), np.int32)
    again = Tree(*(array.copy() for array in tree))
    set_all_nodes(model, again.nodes, again.tallies, order)
    for field in ("share", "location", "precision", "n_samples"):
        np.testing.assert_array_equal(tree.nodes[field][order], again.nodes[field][order])
    found = tree.tallies["log_gain"][order]
    np.testing.assert_array_equal(found, again.tallies["log_gain"][order])


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
