import numpy as np
import pytest

from mondrian_forest._core.arrays.contests import NO_CONTESTS
from mondrian_forest._core.arrays.tree import RowOrder, Tree, copy_depth_first
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.top import CLOSED, Left, Reports, no_reports, report
from mondrian_forest._core.moments import MomentArrays
from parts import grow_in_parts
from trees import check_tree_invariants, small_table


@pytest.mark.parametrize("n_candidates", [1, 3])
@pytest.mark.parametrize("most_rows", [1, 4, 100])
@pytest.mark.parametrize("min_samples_split", [2, 5])
def test_the_tree_is_sound_and_does_not_depend_on_the_parts(
    n_candidates, most_rows, min_samples_split
):
    rows, labels = small_table(2, 30)
    growth = Growth(min_samples_split, n_candidates, np.inf)
    trees = [
        grow_in_parts(rows, labels, sizes, growth, (5, 1), most_rows)
        for sizes in ([30], [1, 9, 0, 20], [15, 15])
    ]
    for top, tree, order in trees:
        check_tree_invariants(tree, rows, RowOrder(order), min_samples_split, labels=labels)
        renumbered = Tree(*(np.empty_like(array) for array in tree))
        copy_depth_first(tree, NO_CONTESTS, renumbered, np.empty(2, np.int64), NO_CONTESTS)
        np.testing.assert_array_equal(tree.left_child, renumbered.left_child)
        assert (top.kind == [CLOSED]) == (most_rows == 100)
        for name in ("left_child", "split_feature", "threshold", "split_time"):
            np.testing.assert_array_equal(tree.nodes[name], trees[0][1].nodes[name])
        np.testing.assert_array_equal(tree.boxes, trees[0][1].boxes)
        np.testing.assert_array_equal(np.sort(order), np.arange(30))
        assert (tree.tallies["log_gain"] == 0.0).all()


def test_reports_of_parts_join_to_that_of_all_rows():
    rows, labels = small_table(0, 20)
    blocks = np.random.default_rng(0).integers(3, 7, 20).astype(np.int32)
    blocks[:2] = 1  # of an older block
    whole = no_reports(4, 3)
    report(rows, labels, blocks, 3, whole)
    joined = no_reports(4, 3)
    for part in (slice(0, 5), slice(5, 5), slice(5, 20)):
        news = no_reports(4, 3)
        report(rows[part], labels[part], blocks[part], 3, news)
        joined = joined.joined(news)
    np.testing.assert_array_equal(whole.boxes, joined.boxes)
    np.testing.assert_allclose(np.array(whole.labels), np.array(joined.labels), rtol=1e-12)
    for block in range(4):
        inside = labels[blocks == block + 3]
        assert whole.n_rows[block] == len(inside)
        assert whole.labels.squared_deviation[block] == pytest.approx(inside.var() * len(inside))


def test_the_best_of_several_cuts_is_made():
    rows = np.array([[0.0], [0.1], [0.2], [1.0]], np.float32)
    labels = np.array([0.0, 0.0, 0.0, 9.0])
    growth = Growth(2, 200, np.inf)
    for number in range(20):
        _, tree, _ = grow_in_parts(rows, labels, [2, 2], growth, (1, number), 1)
        assert 0.2 <= tree.threshold[0] < 1.0


def test_rows_and_deviations_on_the_left_add_up():
    one = Left(np.ones((1, 2), np.int64), np.full((1, 2), 0.5))
    found = one.joined(one)
    np.testing.assert_array_equal(found.n_rows, [[2, 2]])
    np.testing.assert_array_equal(found.deviation, [[1.0, 1.0]])


def test_reports_by_no_rows_change_nothing():
    nothing = no_reports(2, 3)
    moments = MomentArrays(np.ones(2, np.int64), np.ones(2), np.ones(2))
    some = Reports(np.zeros((2, 2, 3), np.float32), moments)
    found = nothing.joined(some)
    np.testing.assert_array_equal(found.boxes, some.boxes)
    np.testing.assert_array_equal(found.labels, some.labels)
