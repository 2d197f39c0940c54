"""The contest of one node, step by step, against counting from scratch."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from laws.significance import assert_plausible
from mondrian_forest._core.arrays.boxes import bounding_box, excess_of_box, total_extent
from mondrian_forest._core.arrays.contests import CANDIDATE, Contests
from mondrian_forest._core.arrays.kernel import IS_COMPILED
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.arrays.tree import NO_CHILD, NODE
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.growth.contest import (
    Moves,
    best_candidate,
    count_redrawn,
    count_rows,
    cuts_box,
    decide,
    lengthen_time,
    redraw_in_larger_box,
    redraw_in_smaller_box,
    shorten_time,
)
from mondrian_forest._core.growth.cuts import cut_rule
from mondrian_forest._core.labels import Hierarchical
from trees import LivingTrees, preorder_numbers, small_table

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
N_CANDIDATES = 4


def living(seed=0, n_rows=20, n_candidates=N_CANDIDATES):
    """Return a tree whose root has a contest, with its rows and labels."""
    rows, labels = small_table(seed, n_rows)
    states = random_states(np.random.SeedSequence(seed), 1)
    growth = Growth(2, n_candidates, np.inf, 3.0)
    trees = LivingTrees(rows, labels, growth, PRIOR, states, n_rows)
    trees.check()
    assert trees.grove.tallies[0, 0]["contest"] == 0
    return trees


def parts_of(trees):
    return trees.grove.tree(0), trees.grove.contests_of(0), trees.states[0]


def padded(rows):
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4))))


def counted(trees, candidate, rows, labels):
    """Return what a candidate's fields must be on some rows."""
    rule = cut_rule(trees.growth, labels)
    is_left = rows[:, candidate["feature"]] <= candidate["threshold"]
    scores = np.array([rule.score_label(row) for row in range(len(rows))])
    return int(is_left.sum()), float(scores[is_left].sum())


def space(n_rows):
    return Moves(np.empty(n_rows + 2, np.int32), np.empty(n_rows + 2))


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_come_or_go_are_counted_in_all_candidates(sign):
    trees = living()
    _, contests, _ = parts_of(trees)
    rows, labels = small_table(7, n_rows=6)
    rule = cut_rule(trees.growth, labels)
    before = contests.candidates[0].copy()
    numbers = np.array([4, 0, 2, 5], np.int32)
    count_rows(contests, 0, rule, padded(rows[numbers]), numbers, 1, 4, sign)
    chosen = numbers[1:4]
    for old, new in zip(before[:-1], contests.candidates[0, :-1], strict=True):
        n_left, sum_left = counted(trees, old, rows[chosen], labels[chosen])
        assert new["n_left"] == old["n_left"] + sign * n_left
        assert new["sum_left"] == old["sum_left"] + sign * sum_left
        assert new["feature"] == old["feature"]
        assert new["threshold"] == old["threshold"]
    scores = sum(rule.score_label(row) for row in chosen)
    assert contests.candidates[0, -1]["sum_left"] == before[-1]["sum_left"] + sign * scores


def test_rows_that_come_and_go_leave_nothing_behind():
    trees = living()
    _, contests, _ = parts_of(trees)
    labels = np.array([1e9, -1e-9, 0.1, 7.0])
    rows = small_table(3, n_rows=4)[0]
    before = contests.candidates.tobytes()
    for sign in (1, -1):
        count_rows(
            contests, 0, cut_rule(trees.growth, labels), padded(rows), np.arange(4, dtype=np.int32),
            0, 4, sign,
        )  # fmt: skip
        assert (contests.candidates.tobytes() == before) == (sign == -1)


def grown(trees, group, excess=None):
    """Redraw the root's candidates as its box grows to hold a group of rows."""
    tree, contests, state = parts_of(trees)
    box = np.empty((1, 2, group.shape[1]), np.float32)
    bounding_box(group, 0, len(group), box, 0)
    excess = excess_of_box(tree.boxes, 0, box, 0)
    redraw_in_larger_box(state, tree, contests, 0, box, excess)
    return excess / (total_extent(tree.boxes, 0) + excess)


GROUP = np.array([[1.5, 0.5, 0.5], [0.5, -0.25, 0.5]], np.float32)
"""Above the root's box in one feature, below it in another."""


def test_candidates_stay_or_are_redrawn_in_the_gaps_at_the_right_rate():
    """Each of them on its own; rows of the old box are all on one side of a new one."""
    trees = living()
    tree, contests, _ = parts_of(trees)
    (low, high), total = tree.boxes[0], contests.candidates[0, -1]["sum_left"]
    before = contests.candidates.copy()
    n_tries = 3000 if IS_COMPILED else 600
    redrawn = np.zeros((n_tries, N_CANDIDATES), bool)
    n_above = 0
    for number in range(n_tries):
        contests.candidates[:] = before
        share = grown(trees, GROUP)
        for c, candidate in enumerate(contests.candidates[0, :-1]):
            redrawn[number, c] = candidate != before[0, c]
            if not redrawn[number, c]:
                continue
            feature, threshold = candidate["feature"], candidate["threshold"]
            if feature == 0:
                n_above += 1
                assert high[0] <= threshold < 1.5
                assert (candidate["n_left"], candidate["sum_left"]) == (20, total)
            else:
                assert feature == 1
                assert -0.25 <= threshold < low[1]
                assert (candidate["n_left"], candidate["sum_left"]) == (0, 0.0)
        assert contests.candidates[0, -1] == before[0, -1]
    for c in range(N_CANDIDATES):
        assert_plausible(binomtest(int(redrawn[:, c].sum()), n_tries, share).pvalue, n_tries)
    both = int((redrawn[:, 0] & redrawn[:, 2]).sum())
    assert_plausible(binomtest(both, n_tries, share**2).pvalue, n_tries)
    gaps = np.array([1.5 - float(high[0]), float(low[1]) + 0.25])
    n_redrawn = int(redrawn.sum())
    assert_plausible(binomtest(n_above, n_redrawn, gaps[0] / gaps.sum()).pvalue, n_redrawn)


def test_a_tiny_gap_redraws_nothing_and_a_huge_one_everything():
    trees = living()
    _, contests, _ = parts_of(trees)
    before = contests.candidates[0, :-1].copy()
    inside = trees.grove.tree(0).upper[0]
    grown(trees, np.nextafter(inside, 2 * inside, dtype=np.float32)[None])
    assert (contests.candidates[0, :-1] == before).all()
    grown(trees, np.full((1, 3), 3e38, np.float32))
    for new, old in zip(contests.candidates[0, :-1], before, strict=True):
        assert new != old


def test_candidates_outside_of_a_smaller_box_are_redrawn_in_it():
    trees = living()
    tree, contests, state = parts_of(trees)
    rows, labels = trees.rows, trees.labels
    keep = np.flatnonzero(rows[:, 0] <= np.median(rows[:, 0]))
    before = contests.candidates[0, :-1].copy()
    before[["n_left"]] = 1  # as if the rows had been taken away
    contests.candidates[0, :-1] = before
    bounding_box(rows[keep], 0, len(keep), tree.boxes, 0)
    low, high = tree.boxes[0]
    stays = [low[c["feature"]] <= c["threshold"] < high[c["feature"]] for c in before]
    assert 0 < sum(stays) < N_CANDIDATES
    assert stays == [cuts_box(tree.boxes, 0, c["feature"], c["threshold"]) for c in before]
    n_redrawn = redraw_in_smaller_box(state, tree, contests, 0, total_extent(tree.boxes, 0))
    assert n_redrawn == N_CANDIDATES - sum(stays)
    numbers = keep.astype(np.int32)
    count_redrawn(
        contests, 0, cut_rule(trees.growth, labels), padded(rows[keep]), numbers, len(keep)
    )
    for stay, old, new in zip(stays, before, contests.candidates[0, :-1], strict=True):
        if stay:
            assert new == old
        else:
            assert low[new["feature"]] <= new["threshold"] < high[new["feature"]]
            expected = counted(trees, new, rows[keep], labels[keep])
            assert (new["n_left"], new["sum_left"]) == expected


@pytest.mark.parametrize("seed", range(30))
def test_the_best_candidate_is_the_first_that_is_best_in_exact_arithmetic(seed):
    generator = np.random.default_rng(seed)
    n_rows = int(generator.integers(2, 9))
    values = generator.integers(-3, 4, n_rows)
    sides = generator.random((6, n_rows)) < 0.5
    sides[:, 0], sides[:, -1] = True, False
    sides[4] = sides[1]  # a tie
    contest = Contests(np.array([1, -1]), np.zeros((1, 7), CANDIDATE))
    contest.candidates[0, :-1]["n_left"] = sides.sum(axis=1)
    contest.candidates[0, :-1]["sum_left"] = (sides * values).sum(axis=1)
    contest.candidates[0, -1]["sum_left"] = values.sum()
    gains = []
    for side in sides:
        left, right = values[side], values[~side]
        gains.append(
            Fraction(int(left.sum()) ** 2, len(left)) + Fraction(int(right.sum()) ** 2, len(right))
        )
    contest.candidates[0, :-1]["feature"] = np.arange(6)
    used = np.zeros(1, NODE)[0]
    used["split_feature"] = 9  # none of the candidates
    found = best_candidate(contest, 0, n_rows, used, 0.0)
    assert gains[found] == max(gains)
    same = [c for c in range(6) if (sides[c] == sides[found]).all()]
    assert found == same[0]
    for c, tolerance in [(c, tolerance) for c in range(6) for tolerance in (0.0, 0.3, 1e9)]:
        used["split_feature"] = c
        kept = best_candidate(contest, 0, n_rows, used, tolerance)
        between = [gain - Fraction(int(values.sum()) ** 2, n_rows) for gain in gains]
        is_near = max(between) <= (1 + Fraction(tolerance)) * between[c]
        assert kept == (c if tolerance > 0.0 and is_near else found)


def test_children_stay_if_they_are_on_the_two_sides_of_the_best_cut():
    trees = living(1)
    tree, contests, _ = parts_of(trees)
    left, feature = tree.left_child[0], tree.split_feature[0]
    ends = tree.upper[left, feature], tree.lower[left + 1, feature]
    inside = np.linspace(*ends, 5, dtype=np.float32)[:-1]
    assert len(set(inside)) > 2
    other = next(f for f in (0, 1) if f != feature)
    cases = [(feature, threshold, True) for threshold in inside]
    cases += [(feature, ends[1], False), (feature, np.nextafter(ends[0], -1), False)]
    cases += [(other, threshold, False) for threshold in inside]
    for of_best, threshold, stays in cases:
        tree.nodes[0]["split_feature"] = feature
        contests.candidates[0, :-1] = np.array((of_best, threshold, 10, 50.0), CANDIDATE)
        assert decide(tree, contests, 0, trees.n_rows, 0.0) == stays
        assert tree.split_feature[0] == of_best
        assert tree.threshold[0] == np.float32(threshold)


def durations(tree):
    """Return the time from each parent to each child that is cut."""
    return {
        child: tree.split_time[child] - tree.split_time[node]
        for node in preorder_numbers(tree)
        if (left := tree.left_child[node]) != NO_CHILD
        for child in (left, left + 1)
        if tree.left_child[child] != NO_CHILD
    }


def test_a_shorter_time_moves_all_below_and_leaves_the_rest():
    trees = living()
    tree, _, state = parts_of(trees)
    node = next(n for n in preorder_numbers(tree)[1:] if tree.n_samples[n] > 5)
    start = float(tree.split_time[0])
    before, times = durations(tree), tree.split_time.copy()
    assert not shorten_time(state, tree, node, start, 1e-12, space(20))
    np.testing.assert_array_equal(tree.split_time, times)
    assert shorten_time(state, tree, node, start, 1e6, space(20))
    assert start < tree.split_time[node] < times[node]
    below = preorder_numbers(tree, node)
    others = [n for n in preorder_numbers(tree) if n not in below]
    np.testing.assert_array_equal(tree.split_time[others], times[others])
    after = durations(tree)
    for child in below[1:]:
        if child in before:
            assert after[child] == pytest.approx(before[child], rel=1e-12)
    leaves = tree.left_child == NO_CHILD
    assert (tree.split_time[leaves] == np.inf).all()


def test_a_longer_time_is_drawn_at_the_new_rate_as_often_as_the_box_has_shrunk():
    trees = living()
    tree, _, state = parts_of(trees)
    times, before = tree.split_time.copy(), durations(tree)
    assert not lengthen_time(state, tree, 0, 1.0, 1.0, space(20))
    np.testing.assert_array_equal(tree.split_time, times)
    n_longer, n_tries = 0, 600
    for _ in range(n_tries):
        tree.nodes["split_time"] = times
        is_longer = lengthen_time(state, tree, 0, 1.0, 0.25, space(20))
        assert is_longer == (tree.split_time[0] > times[0])
        n_longer += is_longer
        for child, duration in durations(tree).items():
            assert duration == pytest.approx(before[child], rel=1e-12)
    assert_plausible(binomtest(n_longer, n_tries, 0.75).pvalue, n_tries)
