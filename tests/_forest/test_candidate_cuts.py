"""Several candidates for each cut: which one is chosen, and what that does not change."""

import numpy as np
from scipy.stats import kstest

from benchmarks.settings import CHOSEN, PRUNED
from forests import friedman, rmse, small_forest
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth.cuts import BestCut, allocate_cut_scratch, choose_cut
from trees import grow


def test_the_candidate_that_separates_the_labels_best_is_chosen():
    generator = np.random.default_rng(0)
    rows = generator.random((30, 4)).astype(np.float32)
    labels = 1e8 + generator.normal(size=30)
    boxes = np.stack([rows.min(axis=0), rows.max(axis=0)])[None]
    cuts = allocate_cut_scratch(5, 4, 30)
    state = random_states(np.random.SeedSequence(0), 1)[0]
    order = generator.permutation(30).astype(np.int32)
    permuted = np.ascontiguousarray(rows[order])
    rule = BestCut(labels, 5, 1e8, 2.0**-20)
    for _ in range(20):
        chosen = choose_cut(rule, state, boxes, 0, permuted, order, 0, 30, cuts)
        between = []
        for feature, threshold in zip(cuts.feature[:5], cuts.threshold[:5], strict=True):
            left = rows[:, feature] <= threshold
            parts = labels[left], labels[~left]
            between.append(sum(len(p) * (p.mean() - labels.mean()) ** 2 for p in parts))
        best = int(np.argmax(between))
        assert chosen[0] == best
        assert chosen[1] == np.rint((labels - 1e8) * 2.0**20).sum()


def test_candidates_do_not_change_the_law_of_the_split_time():
    rows = np.random.default_rng(0).random((40, 3)).astype(np.float32)
    labels = rows[:, 0].astype(float)
    extent = float((rows.max(axis=0) - rows.min(axis=0)).sum())
    states = random_states(np.random.SeedSequence(1), 300)
    times, features = [], []
    for state in states:
        tree, _ = grow(rows, state=state, labels=labels, n_candidate_splits=4)
        times.append(tree.split_time[0])
        features.append(tree.split_feature[0])
    assert kstest(np.array(times) * extent, "expon").pvalue > 1e-3
    assert np.mean(np.array(features) == 0) > 0.6


def test_candidates_make_predictions_better_if_features_are_irrelevant():
    X, y = friedman(1000, 10)
    plain, chosen = (small_forest(**setting).fit(X[:800], y[:800]) for setting in (PRUNED, CHOSEN))
    assert rmse(chosen, X[800:], y[800:]) < rmse(plain, X[800:], y[800:])
