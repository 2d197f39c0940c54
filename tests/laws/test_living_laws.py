"""Trees that have learned and forgotten cannot be told from trees that were sampled at once."""

import random
from copy import copy
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from laws.significance import assert_plausible, is_rejected
from mondrian_forest._core.arrays.contests import FEWEST_ROWS
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth, with_label_unit
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from mondrian_forest._core.mixtures.ensemble import Ensemble
from mondrian_forest._core.mixtures.reduce import predict_moments
from mondrian_forest._core.moments import Moments
from reference.living import SlowTree
from trees import LivingTrees

N_TREES = 3000
N_PREDICTIONS = 600
N_ROWS, N_OTHERS = 30, 15
N_FEATURES = 4
PRIOR = Hierarchical(0.0, 2.0, 0.3, 0.05)
MODELS = [PRIOR, Empirical(*PRIOR), Pruned(0.0, 2.0, 0.05, 0.5)]
QUERY = np.array([[0.4, 1.2, 0.5, 0.5]], dtype=np.float32)


def table():
    """Thirty rows with ties, duplicates and a constant column, then fifteen in a larger box."""
    generator = np.random.default_rng(1)
    rows = generator.random((N_ROWS + N_OTHERS, N_FEATURES)).astype(np.float32)
    rows[N_ROWS:] = 1.6 * rows[N_ROWS:] - 0.3
    rows[:, 0] = np.round(rows[:, 0], 1)
    rows[20:25] = rows[3]
    rows[35] = rows[3]
    rows[:, 3] = 0.5
    labels = np.sin(5.0 * rows[:, 0].astype(float)) + rows[:, 1]
    return rows, labels + 0.3 * generator.normal(size=len(labels))


ROWS, LABELS = table()
ALL = np.arange(N_ROWS + N_OTHERS)
BY_PLACE = np.lexsort(ROWS.T)


def started(numbers, n_candidates, min_samples_split, seed, rows=ROWS, labels=LABELS):
    """Trees that were sampled on some rows."""
    growth = with_label_unit(Growth(min_samples_split, n_candidates, np.inf), Moments(1, 0.5, 0.5))
    states = random_states(np.random.SeedSequence([9, seed]), N_TREES)
    return LivingTrees(rows[numbers], labels[numbers], growth, PRIOR, states, len(rows))


@cache
def fresh(n_candidates, min_samples_split, n_rows=N_ROWS):
    return measures(started(ALL[:n_rows], n_candidates, min_samples_split, 0))


def after_learning(order, chunk, *parameters):
    """Trees that learned some rows, then the others in chunks."""
    n_first = 1 if chunk == 1 else 10
    trees = started(order[:n_first], *parameters, 1)
    for start in range(n_first, len(order), chunk):
        numbers = order[start : start + chunk]
        trees.learn(ROWS[numbers], LABELS[numbers])
    return trees


def after_forgetting(order, chunk, *parameters):
    """Trees that knew all rows, and forgot those that are not among the first thirty."""
    trees, held = started(ALL, *parameters, 2), ALL
    order = order[order >= N_ROWS]
    for start in range(0, len(order), chunk):
        held = held[trees.forget(np.flatnonzero(np.isin(held, order[start : start + chunk])))]
    assert sorted(held) == list(range(N_ROWS))
    return trees


def after_both(*parameters):
    """Trees that learned and forgot in turn, until they knew the first thirty rows."""
    generator = np.random.default_rng(4)
    held = np.concatenate((ALL[:12], ALL[N_ROWS:]))
    trees = started(held, *parameters, 3)
    while sorted(held) != list(range(N_ROWS)):
        foreign = np.flatnonzero(held >= N_ROWS)
        leaving = foreign[: generator.integers(1, 4)]
        leaving = np.append(leaving, generator.integers(len(held)))  # and one that comes back
        held = held[trees.forget(leaving)]
        missing = np.setdiff1d(ALL[:N_ROWS], held)
        coming = generator.permutation(missing)[: generator.integers(1, 7)]
        if len(foreign) < 4:
            coming = missing
        trees.learn(ROWS[coming], LABELS[coming])
        held = np.concatenate((held, coming))
    return trees


def after_forgetting_nearly_all(n_rows, *parameters):
    trees = started(ALL, *parameters, 4)
    trees.forget(ALL[n_rows:])
    return trees


def measures(trees):
    """Return what tells trees of different laws apart: by name, an array over trees."""
    found = cuts(trees.grove) | shapes(trees.grove)
    if trees.growth.n_candidate_splits > 1 and trees.n_rows >= FEWEST_ROWS:
        found |= candidates(trees.grove) | predictions(trees)
    return found


def cuts(grove):
    """Return what is known of the root and of its children."""
    number, root = np.arange(N_TREES), grove.nodes[:, 0]
    left = root["left_child"]
    assert (left >= 0).all()
    found = {
        "root time": root["split_time"],
        "root feature": root["split_feature"],
        "root threshold": root["threshold"],
        "left size": grove.nodes[number, left]["n_samples"],
    }
    for side, name in enumerate(("left", "right")):
        child = grove.nodes[number, left + side]
        found |= {
            f"{name} feature": child["split_feature"],
            f"{name} threshold": np.nan_to_num(child["threshold"], nan=-9.0),
            f"{name} duration": child["split_time"] - root["split_time"],
        }
    return found


def candidates(grove):
    """Return what is known of the contest of the root."""
    place = grove.tallies["contest"][:, 0]
    found = grove.contests.candidates[np.arange(N_TREES), place, :-1]
    return {
        "first candidate": found["threshold"][:, 0],
        "last candidate": found["threshold"][:, -1],
        "number on the left of the last candidate": found["n_left"][:, -1],
        "candidates of the first feature": np.sum(found["feature"] == 0, axis=1),
    }


def shapes(grove):
    """Return numbers of leaves and depths, on the way from the root: there may be free pairs."""
    leaves, depth, mean_depth = np.zeros((3, N_TREES))
    number, node, level = np.arange(N_TREES), np.zeros(N_TREES, int), 0
    while len(number) > 0:
        record = grove.nodes[number, node]
        is_leaf = record["left_child"] < 0
        leaves += np.bincount(number[is_leaf], minlength=N_TREES)
        weights = level * record["n_samples"][is_leaf]
        mean_depth += np.bincount(number[is_leaf], weights, minlength=N_TREES)
        depth[number] = level
        left = record["left_child"][~is_leaf]
        number, node = np.tile(number[~is_leaf], 2), np.concatenate((left, left + 1))
        level += 1
    return {"leaves": leaves, "depth": depth, "mean depth": mean_depth}


def predictions(trees):
    """Return moments at a query: every label model is a function of the same trees."""
    grove, found = trees.grove, {}
    for model in MODELS:
        both = np.empty((2, N_PREDICTIONS))
        for number in range(N_PREDICTIONS):
            renew(grove, number, model)
            one = slice(number, number + 1)
            ensemble = Ensemble(
                grove.sizes[one], grove.nodes[one], grove.boxes[one], 60, model, np.inf
            )
            moments = predict_moments(ensemble, QUERY)
            both[:, number] = moments.mean[0], moments.posterior[0] + moments.branching[0]
        found |= {f"{model.name()} mean": both[0], f"{model.name()} variance": both[1]}
    return found


def p_value(name, one, other):
    if name.endswith("feature"):
        values = np.unique(np.concatenate((one, other)))
        counts = np.array([[np.sum(x == value) for value in values] for x in (one, other)])
        return chi2_contingency(counts[:, counts.sum(axis=0) >= 20]).pvalue
    return ks_2samp(one, other, method="asymp").pvalue


def assert_one_law(one, other):
    assert set(one) == set(other)
    for name in one:
        assert_plausible(p_value(name, one[name], other[name]), len(one[name]))


@pytest.mark.parametrize(
    ("order", "chunk"),
    [(BY_PLACE[BY_PLACE < N_ROWS], 1), (ALL[:N_ROWS][::-1], 7), (ALL[:N_ROWS], N_ROWS)],
    ids=["by place, 1", "reversed, 7", "as given, all"],
)
@pytest.mark.parametrize("min_samples_split", [2, 5])
@pytest.mark.parametrize("n_candidates", [1, 3, N_FEATURES])
def test_learning_has_the_law_of_a_batch(n_candidates, min_samples_split, order, chunk):
    parameters = n_candidates, min_samples_split
    trees = after_learning(order, chunk, *parameters)
    assert_one_law(fresh(*parameters), measures(trees))


@pytest.mark.parametrize(
    ("order", "chunk"),
    [(ALL, 1), (BY_PLACE, 7), (ALL[::-1], N_OTHERS)],
    ids=["as given, 1", "by place, 7", "all"],
)
@pytest.mark.parametrize("min_samples_split", [2, 5])
@pytest.mark.parametrize("n_candidates", [1, 3, N_FEATURES])
def test_forgetting_has_the_law_of_a_batch(n_candidates, min_samples_split, order, chunk):
    parameters = n_candidates, min_samples_split
    trees = after_forgetting(order, chunk, *parameters)
    assert_one_law(fresh(*parameters), measures(trees))


@pytest.mark.parametrize("min_samples_split", [2, 5])
@pytest.mark.parametrize("n_candidates", [1, 3])
def test_learning_and_forgetting_in_turn_have_the_law_of_a_batch(n_candidates, min_samples_split):
    parameters = n_candidates, min_samples_split
    assert_one_law(fresh(*parameters), measures(after_both(*parameters)))


@pytest.mark.parametrize("n_rows", [6, 12])
@pytest.mark.parametrize("n_candidates", [1, 3])
def test_trees_that_forgot_nearly_all_never_knew_it(n_candidates, n_rows):
    trees = after_forgetting_nearly_all(n_rows, n_candidates, 2)
    assert_one_law(fresh(n_candidates, 2, n_rows), measures(trees))


# The rules once more, in words: first as they are, then with mistakes, which must be noticed.

STEP_ROWS = np.array([[place / 10, 0.5] for place in [*range(11), 15]], np.float32)
STEP_LABELS = np.array([0.0] * 5 + [1.0] * 6 + [2.3])
"""A step, and a row beyond it. A cut that sets this row apart wins if no candidate is near the
step. So what is done with losers is seen in the next cut."""
ALL_STEPS = np.arange(len(STEP_ROWS))


class NeverRedraws(SlowTree):
    def redrawn(self, node, gaps):  # noqa: ARG002
        return node.candidates


class KeepsTimes(SlowTree):
    def shortened(self, duration, excess):  # noqa: ARG002
        return duration

    def lengthened(self, duration, before, after):  # noqa: ARG002
        return duration


class UsesTheOldNodeAgain(SlowTree):
    """Below a cut that sets a new row apart, as the paper does where there is one candidate."""

    def with_row(self, node, row):
        before = copy(node)
        after = super().with_row(node, row)
        sides = [child.rows for child in after.children]
        if before.children and [row] in sides:
            after.children[1 - sides.index([row])] = before
        return after


class GivesTheSiblingThePlace(SlowTree):
    """Where a cut separates nothing any more, as is right where there is one candidate."""

    def without_row(self, node, row):
        others = [child for child in node.children if child.rows != [row]]
        return others[0] if len(others) == 1 else super().without_row(node, row)


def slowly(rule, is_learning):
    """Cuts of slow trees that get the last row later, or lose it."""
    found = []
    for seed in range(N_TREES):
        source = random.Random(seed)
        first = ALL_STEPS[:-1] if is_learning else ALL_STEPS
        rows, labels = STEP_ROWS.astype(float).tolist(), STEP_LABELS.tolist()
        tree = rule(rows, labels, first.tolist(), 3, 2, source)
        (tree.learn if is_learning else tree.forget)(ALL_STEPS[-1])
        left, right = tree.root.children
        found.append(
            {
                "root time": tree.root.duration,
                "root threshold": tree.root.candidates[tree.root.best][1],
                "left size": len(left.rows),
                "left threshold": left.candidates[left.best][1] if left.children else -9.0,
                "left duration": left.duration,
                "right duration": right.duration,
                "leaves": sum(not node.children for node, _ in tree.root.walk()),
                "depth": max(depth for _, depth in tree.root.walk()),
            }
        )
    return with_misses({name: np.array([row[name] for row in found]) for name in found[0]})


@cache
def fresh_steps(is_learning):
    numbers = ALL_STEPS if is_learning else ALL_STEPS[:-1]
    grove = started(numbers, 3, 2, 5, STEP_ROWS, STEP_LABELS).grove
    return with_misses(cuts(grove) | shapes(grove))


def with_misses(found):
    """Add how far cuts are from the step, where they are best."""
    for side in ("root", "left"):
        found[f"{side} miss"] = np.abs(found[f"{side} threshold"] - 0.45)
    return found


@pytest.mark.parametrize("is_learning", [True, False])
def test_the_rules_in_words_have_the_law_of_the_kernels(is_learning):
    one, other = slowly(SlowTree, is_learning), fresh_steps(is_learning)
    for name in one:
        assert_plausible(p_value(name, one[name], other[name]), N_TREES)


@pytest.mark.parametrize(
    ("rule", "is_learning", "name"),
    [
        (NeverRedraws, True, "root threshold"),
        (KeepsTimes, True, "root time"),
        (KeepsTimes, False, "root time"),
        (UsesTheOldNodeAgain, True, "left miss"),
        (GivesTheSiblingThePlace, False, "root miss"),
    ],
)
def test_a_mistake_in_the_rules_would_be_noticed(rule, is_learning, name):
    one, other = slowly(rule, is_learning), fresh_steps(is_learning)
    assert is_rejected(p_value(name, one[name], other[name]))
