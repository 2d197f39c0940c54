"""Places of contests are taken, given back and copied like a list of free places says."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from mondrian_forest._core.arrays.contests import (
    CANDIDATE,
    FEWEST_ROWS,
    NO_CONTEST,
    Contests,
    allocate_contests,
    contests_of,
    copy_contest,
    give_back_contest,
    take_contest,
)
from mondrian_forest._core.arrays.grove import allocate_grove, copy_tree, trimmed
from mondrian_forest._core.arrays.kernel import kernel
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth
from mondrian_forest._core.labels import Hierarchical
from trees import LivingTrees, preorder_numbers, small_table

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)


def contests(n_places, n_candidates=2):
    one = allocate_contests(1, n_places, n_candidates)
    return Contests(*(array[0] for array in one))


@kernel
def one_of(contests, number, out):
    counts, candidates = contests_of(contests, number)
    out[0] = counts[0]
    out[1] = candidates[0, 0].n_left


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.booleans(), max_size=60), seed=st.integers(0, 1000))
def test_places_are_those_of_a_stack_of_free_ones(steps, seed):
    """The place that was given back last is taken first; new ones are taken in order."""
    room = contests(10)
    generator = np.random.default_rng(seed)
    in_use, free, n_seen = [], [], 0
    for takes in steps:
        if takes:
            expected = free.pop() if free else n_seen if n_seen < 10 else NO_CONTEST
            n_seen += expected == n_seen
            assert take_contest(room) == expected
            if expected != NO_CONTEST:
                room.candidates[expected] = np.array((3, 0.5, 7, 1.5), CANDIDATE)
                in_use.append(expected)
        elif in_use:
            place = in_use.pop(generator.integers(len(in_use)))
            give_back_contest(room, place)
            free.append(place)
    assert room.counts.tolist() == [n_seen, free[-1] if free else NO_CONTEST]
    for place in in_use:
        assert (room.candidates["n_left"][place] == 7).all()
    for place in free:  # nothing of their rows stays behind
        own = room.candidates[place, :-1]
        assert not any(own[field].any() for field in CANDIDATE.fields)
        assert room.candidates["sum_left"][place, -1] == 0.0


def test_few_rows_and_single_candidates_need_no_room():
    assert allocate_contests(3, FEWEST_ROWS - 1, 4).candidates.shape == (3, 0, 5)
    assert allocate_contests(3, 100, 1).candidates.shape == (3, 0, 0)
    assert allocate_contests(3, 100, 4).candidates.shape == (3, 100, 5)
    assert take_contest(contests(FEWEST_ROWS - 1)) == NO_CONTEST
    assert take_contest(contests(100, 1)) == NO_CONTEST


def test_contests_of_all_trees_are_taken_apart_and_copied():
    both = allocate_contests(2, FEWEST_ROWS, 2)
    both.counts[1, 0] = 5
    both.candidates[1, 0] = np.array((1, 0.5, 9, 2.5), CANDIDATE)
    out = np.zeros(2, int)
    one_of(both, 1, out)
    assert out.tolist() == [5, 9]
    target = contests(FEWEST_ROWS)
    copy_contest(Contests(both.counts[1], both.candidates[1]), 0, target, 3)
    assert (target.candidates[3] == both.candidates[1, 0]).all()


def forgetful():
    """A tree with free places of nodes and of contests."""
    rows, labels = small_table(3, n_rows=40)
    states = random_states(np.random.SeedSequence(1), 1)
    trees = LivingTrees(rows, labels, Growth(2, 3, np.inf), PRIOR, states, 45)
    trees.forget(np.arange(15))
    trees.learn(rows[:3], labels[:3])
    trees.forget(np.arange(2, 8))
    trees.check()
    assert trees.grove.has_free_places()
    assert (trees.grove.contests.counts[:, 1] != NO_CONTEST).any()
    return trees


def same_contests(grove, other):
    """Whether two trees have equal nodes and equal contests, wherever these are stored."""
    orders = [preorder_numbers(one.tree(0)) for one in (grove, other)]
    nodes = [one.tree(0).nodes[order] for one, order in zip((grove, other), orders, strict=True)]
    for field in ("threshold", "split_time", "location", "precision", "share", "n_samples"):
        np.testing.assert_array_equal(nodes[0][field], nodes[1][field])
    places = [
        one.tree(0).tallies["contest"][order]
        for one, order in zip((grove, other), orders, strict=True)
    ]
    has_contest = places[0] != NO_CONTEST
    np.testing.assert_array_equal(has_contest, places[1] != NO_CONTEST)
    candidates = [
        one.contests.candidates[0, place[has_contest]]
        for one, place in zip((grove, other), places, strict=True)
    ]
    for field in ("feature", "threshold", "n_left", "sum_left"):
        of_candidates = [found[field][:, :-1] for found in candidates]
        np.testing.assert_array_equal(*of_candidates)
    sums = [found["sum_left"][:, -1] for found in candidates]
    np.testing.assert_array_equal(*sums)
    return places[1][has_contest]


def test_a_trimmed_copy_has_no_free_places_and_the_same_contests():
    trees = forgetful()
    small = trimmed(trees.grove)
    assert not small.has_free_places()
    places = same_contests(trees.grove, small)
    assert places.tolist() == list(range(len(places)))  # in the order of the nodes
    assert small.contests.candidates.shape[1] == len(places)
    assert small.nodes.shape[1] == len(preorder_numbers(trees.grove.tree(0)))


def test_a_trimmed_copy_learns_and_forgets_once_it_has_room():
    trees = forgetful()
    roomy = allocate_grove(1, 45, 3, 3, is_linked=True)
    copy_tree(trimmed(trees.grove), 0, roomy)
    same_contests(trees.grove, roomy)
    trees.grove = roomy
    trees.check()
    rows, labels = small_table(4, n_rows=10)
    trees.learn(rows, labels)
    trees.check()
    trees.forget(np.arange(0, 20, 2))
    trees.check()


def test_a_copy_without_room_for_contests_is_the_same_tree_without_them():
    trees = forgetful()
    bare = allocate_grove(1, 45, 3, 1, is_linked=True)
    copy_tree(trees.grove, 0, bare)
    assert (bare.tree(0).tallies["contest"] == NO_CONTEST).all()
    assert bare.contests.counts.tolist() == [[0, NO_CONTEST]]


def test_one_tree_with_free_places_among_others_is_trimmed():
    rows, labels = small_table(3, n_rows=20)
    states = random_states(np.random.SeedSequence(1), 3)
    for n_candidates in (1, 3):
        growth = Growth(2, n_candidates, np.inf)
        trees = LivingTrees(rows, labels, growth, PRIOR, states, 20)
        trees.forget([0, 5, 19])
        small = trees.grove = trimmed(trees.grove)
        assert not small.has_free_places()
        for number in range(3):
            trees.check(number)
