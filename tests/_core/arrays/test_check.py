import numpy as np
import pytest

from mondrian_forest._core.arrays.check import FAULTS, WRONG_VALUE, find_fault
from mondrian_forest._core.arrays.contests import NO_CONTEST, NO_CONTESTS, Contests
from mondrian_forest._core.arrays.grove import trimmed
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth, with_label_unit
from mondrian_forest._core.labels import Hierarchical, Pruned
from mondrian_forest._core.labels.model import are_sound
from mondrian_forest._core.moments import Moments
from trees import LivingTrees, give_labels, grow, learn_in_steps

PRIOR = Hierarchical(0.0, 1.0, 0.5, 0.1)
ROWS = np.random.default_rng(0).random((12, 2)).astype(np.float32)


def sampled():
    rows = ROWS
    tree, order = grow(rows, min_samples_split=3)
    return give_labels(tree, order, rows[:, 0].astype(float), PRIOR), order.order, False


def linked():
    rows = ROWS
    states = random_states(np.random.SeedSequence(0), 1)
    growth = Growth(3, 1, np.inf)
    *_, grove = learn_in_steps(rows, rows[:, 0].astype(float), growth, PRIOR, states, 6, 2)
    return grove.tree(0), grove.row_numbers[0], True


def with_contests():
    """A tree that chooses among three cuts, as a file holds it, with its contests."""
    growth = with_label_unit(Growth(2, 3, np.inf), Moments(1, 0.5, 0.1))
    states = random_states(np.random.SeedSequence(2), 1)
    trees = LivingTrees(ROWS[:10], ROWS[:10, 0].astype(float), growth, PRIOR, states, 40)
    trees.learn(ROWS[10:], ROWS[10:, 0].astype(float))
    grove = trimmed(trees.grove)
    return grove.tree(0), grove.row_numbers[0], grove.contests_of(0)


def fault(tree, numbers, is_linked, reads_boxes=True, model=PRIOR, contests=NO_CONTESTS):
    found = find_fault(*tree, contests, numbers, ROWS, is_linked, 12, reads_boxes)
    return FAULTS[found or (0 if are_sound(model, tree.nodes) else WRONG_VALUE)]


@pytest.mark.parametrize("make", [sampled, linked])
def test_a_sound_tree_has_no_fault(make):
    tree, numbers, is_linked = make()
    assert tree.n_nodes > 5
    assert fault(tree, numbers, is_linked) == ""
    frozen = tree._replace(tallies=tree.tallies[:1])
    assert fault(frozen, numbers[:0], is_linked) == ""


@pytest.mark.parametrize("make", [sampled, linked])
@pytest.mark.parametrize(
    ("array", "field", "value", "message"),
    [
        ("nodes", "left_child", 0, "a child that does not exist"),
        ("nodes", "left_child", -2, "a child that does not exist"),
        ("nodes", "left_child", 10**6, "a child that does not exist"),
        ("nodes", "left_child", -1, "not reached from the root, or twice"),
        ("nodes", "split_feature", -1, "a feature that does not exist"),
        ("nodes", "split_feature", 2, "a feature that does not exist"),
        ("nodes", "threshold", np.nan, "out of its range"),
        ("nodes", "split_time", np.inf, "out of its range"),
        ("nodes", "split_time", -1.0, "out of its range"),
        ("nodes", "share", 0.6, "out of its range"),
        ("nodes", "location", np.inf, "out of its range"),
        ("nodes", "precision", np.nan, "out of its range"),
        ("nodes", "threshold", 5.0, "a box is empty"),
        ("tallies", "height", 1, "the height or the number of rows"),
        ("tallies", "n_samples", 13, "the height or the number of rows"),
        ("tallies", "label_mean", np.nan, "the height or the number of rows"),
        ("tallies", "squared_deviation", -1.0, "the height or the number of rows"),
        ("tallies", "first_row", 1, "a row is in no leaf"),
    ],
)
def test_faults_of_the_root_are_found(make, array, field, value, message):
    tree, numbers, is_linked = make()
    getattr(tree, array)[0][field] = value
    assert message in fault(tree, numbers, is_linked)


@pytest.mark.parametrize(
    ("field", "value"), [("precision", 0.0), ("precision", np.inf), ("share", np.nan)]
)
def test_faults_of_a_pruned_tree_are_found(field, value):
    rows = ROWS
    tree, order = grow(rows, min_samples_split=3)
    pruned = Pruned(0.0, 1.0, 0.1, 0.5)
    give_labels(tree, order, rows[:, 0].astype(float), pruned)
    assert fault(tree, order.order, False, model=pruned) == ""
    assert "out of its range" in fault(tree, order.order, False)  # taken for another label model
    tree.nodes[1][field] = value
    assert "out of its range" in fault(tree, order.order, False, model=pruned)


@pytest.mark.parametrize("make", [sampled, linked])
def test_children_that_are_their_own_ancestors_are_found(make):
    tree, numbers, is_linked = make()
    inner = np.flatnonzero(tree.left_child[1:] != -1)[0] + 1
    tree.nodes[inner]["left_child"] = tree.left_child[0]
    assert "not reached from the root, or twice" in fault(tree, numbers, is_linked)


@pytest.mark.parametrize("make", [sampled, linked])
def test_boxes_are_checked_on_request(make):
    tree, numbers, is_linked = make()
    tree.boxes[2, 0, 1] = np.nan
    assert fault(tree, numbers, is_linked, reads_boxes=False) == ""
    assert "a box is empty or not finite" in fault(tree, numbers, is_linked)


@pytest.mark.parametrize("make", [sampled, linked])
@pytest.mark.parametrize("side", [0, 1])
def test_a_box_that_is_larger_than_its_rows_is_found(make, side):
    tree, numbers, is_linked = make()
    assert tree.n_nodes > 5
    for node in range(tree.n_nodes):
        kept = tree.boxes[node, side, 1]
        tree.boxes[node, side, 1] += 2 * side - 1
        assert "a box is not that of the rows in it" in fault(tree, numbers, is_linked)
        assert fault(tree, numbers, is_linked, reads_boxes=False) == ""
        tree.boxes[node, side, 1] = kept


@pytest.mark.parametrize("make", [sampled, linked])
@pytest.mark.parametrize("value", [-5, 12, 2**31 - 1])
def test_row_numbers_out_of_range_are_found(make, value):
    tree, numbers, is_linked = make()
    for place in range(12):
        damaged = numbers.copy()
        damaged[place] = value
        assert "a row is in no leaf" in fault(tree, damaged, is_linked)


@pytest.mark.parametrize("make", [sampled, linked])
def test_rows_in_two_leaves_are_found(make):
    tree, numbers, is_linked = make()
    damaged = numbers.copy()
    place = np.flatnonzero(damaged >= 0)[0]
    damaged[place] = (damaged[place] + 1) % 12
    assert "a row is in no leaf" in fault(tree, damaged, is_linked)


@pytest.mark.parametrize("make", [sampled, linked])
def test_rows_on_the_wrong_side_of_a_cut_are_found(make):
    """Forgetting looks for a row on its side of each cut."""
    tree, numbers, is_linked = make()
    left, feature = tree.left_child[0], tree.split_feature[0]
    for beyond in (np.nextafter(tree.upper[left, feature], -1), tree.lower[left + 1, feature]):
        tree.nodes[0]["threshold"] = beyond
        assert tree.lower[0, feature] <= beyond < tree.upper[0, feature]
        assert "a box is not that of the rows" in fault(tree, numbers, is_linked)


def test_a_sound_tree_with_contests_has_no_fault():
    tree, numbers, contests = with_contests()
    assert tree.tallies["contest"][0] == 0
    assert contests.counts.tolist() == [np.sum(tree.tallies["contest"] != NO_CONTEST), NO_CONTEST]
    assert fault(tree, numbers, True, contests=contests) == ""


@pytest.mark.parametrize("contest", [-2, NO_CONTEST, 5, 12, 2**31 - 1])
def test_contests_that_do_not_exist_or_have_no_node_are_found(contest):
    tree, numbers, contests = with_contests()
    tree.tallies[0]["contest"] = contest
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


def test_contests_with_two_nodes_are_found():
    tree, numbers, contests = with_contests()
    inner = np.flatnonzero((tree.left_child >= 0) & (tree.tallies["contest"] == NO_CONTEST))[0]
    tree.tallies[inner]["contest"] = 0
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


def test_contests_of_leaves_are_found():
    tree, numbers, contests = with_contests()
    leaf = np.flatnonzero(tree.left_child < 0)[0]
    tree.tallies[leaf]["contest"] = tree.tallies[0]["contest"]
    tree.tallies[0]["contest"] = NO_CONTEST
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


@pytest.mark.parametrize("counts", [(0, -1), (100, -1), (-1, -1), (1, 0), (1, -2), (2**40, -1)])
def test_wrong_counts_of_contests_are_found(counts):
    tree, numbers, contests = with_contests()
    contests.counts[:] = counts
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


@pytest.mark.parametrize("candidate", [0, 2])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("feature", -1),
        ("feature", 2),
        ("threshold", np.nan),
        ("threshold", np.inf),
        ("threshold", -0.1),
        ("threshold", 1.0),
        ("n_left", 0),
        ("n_left", 12),
        ("n_left", -(2**31)),
        ("sum_left", np.nan),
        ("sum_left", -np.inf),
    ],
)
def test_faults_of_candidates_are_found(candidate, field, value):
    tree, numbers, contests = with_contests()
    contests.candidates[0, candidate][field] = value
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


def test_a_sum_of_labels_that_is_not_finite_is_found():
    tree, numbers, contests = with_contests()
    contests.candidates[0, -1]["sum_left"] = np.nan
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


def test_candidates_outside_of_boxes_are_found_where_boxes_are_read():
    tree, numbers, contests = with_contests()
    contests.candidates[0, 0]["threshold"] = 3.0
    assert fault(tree, numbers, True, reads_boxes=False, contests=contests) == ""
    assert "the candidate cuts" in fault(tree, numbers, True, contests=contests)


@pytest.mark.parametrize("width", [0, 1, 2])
def test_contests_without_a_choice_are_found(width):
    tree, numbers, contests = with_contests()
    narrow = Contests(contests.counts, np.ascontiguousarray(contests.candidates[:, :width]))
    assert "the candidate cuts" in fault(tree, numbers, True, contests=narrow)


def test_contests_of_frozen_trees_are_found():
    tree, numbers, contests = with_contests()
    tree = tree._replace(tallies=tree.tallies[:1])
    contests.counts[0] = 1
    assert "the candidate cuts" in fault(tree, numbers[:0], True, contests=contests)


def test_free_pairs_are_found():
    """Files hold none."""
    growth = Growth(2, 1, np.inf)
    states = random_states(np.random.SeedSequence(2), 1)
    trees = LivingTrees(ROWS, ROWS[:, 0].astype(float), growth, PRIOR, states, 12)
    trees.forget([3])
    grove = trees.grove
    assert grove.free_pairs[0] >= 0
    found = find_fault(
        *grove.tree(0), NO_CONTESTS, grove.row_numbers[0, :11], trees.rows, True, 11, True
    )
    assert "not reached" in FAULTS[found]
