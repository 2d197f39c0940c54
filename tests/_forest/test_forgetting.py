"""Forgetting rows on request, by a limit, and after a change, as a user meets it."""

import copy
import logging
import pickle

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp

from laws.significance import assert_plausible
from mondrian_forest import (
    PAPER,
    HierarchicalPosterior,
    ModelFileError,
    MondrianForestRegressor,
    PrunedPosterior,
)
from mondrian_forest._core.growth.learn import renew
from mondrian_forest._forest.forgetting import MANY
from mondrian_forest._forest.sharing import shared_by, state_of
from trees import check_tree_invariants, rows_in

KINDS = {
    "default": {},
    "paper": PAPER,
    "empirical": PAPER | {"posterior": "empirical"},
    "three candidates": PAPER | {"n_candidate_splits": 3, "min_samples_split": 2},
}
SMALL = {
    "n_estimators": 3,
    "random_state": 0,
    "feature_weights": None,
    "mean_function": None,  # so that stored labels are those that were given
}


def stream(n_rows=300, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    return X, 5.0 + np.sin(5.0 * X[:, 0]) + 0.1 * generator.normal(size=n_rows)


X, Y = stream()


def assert_whole(model, labels=Y):
    """Assert that trees, rows and label models are those of the rows that the forest holds."""
    state = state_of(model)
    n_rows = model.n_rows_
    arrivals = state.arrivals[:n_rows]
    np.testing.assert_array_equal(np.sort(arrivals), model.row_numbers_)
    np.testing.assert_array_equal(state.labels[:n_rows], labels[arrivals])
    for number, tree in enumerate(model.trees_):
        check_tree_invariants(
            tree,
            state.rows[:n_rows],
            state.grove.rows(number),
            model.min_samples_split_,
            labels=state.labels[:n_rows],
        )
    found = state.grove.nodes.copy()
    for number in range(state.grove.n_trees):
        renew(state.grove, number, state.model)
        size = state.grove.sizes[number]
        for field in ("share", "location", "precision"):
            np.testing.assert_allclose(
                found[number, :size][field], state.grove.nodes[number, :size][field], rtol=1e-9
            )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_learned_and_forgotten_in_turn(kind):
    model = MondrianForestRegressor(**SMALL | KINDS[kind]).fit(X[:120], Y[:120])
    held = set(range(120))
    random = np.random.default_rng(0)
    for begin, n_new, n_gone in [(120, 1, 1), (121, 30, 10), (151, 2, 90), (153, 40, 3)]:
        end = begin + n_new
        held |= set(range(begin, end))
        gone = random.choice(sorted(held), n_gone, replace=False)
        held -= set(gone.tolist())
        model.partial_fit(X[begin:end], Y[begin:end]).forget(gone)
        assert model.n_samples_seen_ == end
        assert model.row_numbers_.tolist() == sorted(held)
        assert_whole(model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forest_can_forget_down_to_one_row_and_learn_again(kind):
    model = MondrianForestRegressor(**SMALL | KINDS[kind]).fit(X[:60], Y[:60])
    for row in np.random.default_rng(0).permutation(60)[:-1]:
        model.forget([row])
    assert_whole(model)
    model.partial_fit(X[60:120], Y[60:120])
    assert_whole(model)
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_rows_are_given_as_numbers_or_as_a_mask():
    mask = np.zeros(100, dtype=bool)
    mask[[3, 7, 50]] = True
    forests = [MondrianForestRegressor(**SMALL).fit(X[:100], Y[:100]) for _ in range(3)]
    found = [
        model.forget(rows).predict(X)
        for model, rows in zip(forests, ([50, 3, 7, 3], mask, mask.tolist()), strict=True)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_row_that_is_forgotten_twice_is_no_error():
    model = MondrianForestRegressor(**SMALL).fit(X[:100], Y[:100]).forget([3, 4])
    before = model.predict(X)
    np.testing.assert_array_equal(model.forget([3]).predict(X), before)
    assert model.forget([]).n_rows_ == 98


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([100], "There is no row 100"),
        ([-1], "There is no row -1"),
        ([1.5], "must be row numbers"),
        (["a"], "must be row numbers"),
        ([[1, 2]], "must be row numbers"),
        ([[1], [2, 3]], "must be row numbers"),
        (3, "must be row numbers"),
        (None, "must be row numbers"),
        (np.zeros(99, dtype=bool), "one entry for each of the 100"),
        (np.arange(100), "at least one row"),
    ],
)
def test_what_is_no_row_is_refused_in_one_sentence(rows, message):
    model = MondrianForestRegressor(**SMALL).fit(X[:100], Y[:100])
    before = model.predict(X)
    with pytest.raises(ValueError, match=message) as error:
        model.forget(rows)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_frozen_forest_cannot_forget():
    model = MondrianForestRegressor(**SMALL).fit(X, Y).freeze()
    with pytest.raises(ValueError, match="dropped its training rows"):
        model.forget([0])


def traces(content, values):
    """Return which of some numbers occur among the bytes of a file, in any precision."""
    return [
        value
        for value in values
        if any(np.asarray(value, kind).tobytes() in content for kind in ("<f4", "<f8"))
    ]


@pytest.mark.parametrize("where", ["inside", "a quantile", "at the end", "far outside"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_forgotten_row_is_in_the_file(kind, where, tmp_path):
    table, labels = X.copy(), Y.copy()
    middle = np.sort(X[:200], axis=0)[99]  # with the default, from which the map is made
    table[150] = {"inside": 0.50123, "at the end": 1.0 + 1e-3, "far outside": 7.123}.get(where, 0)
    if where == "a quantile":
        table[np.equal(X, middle)], table[150] = 0.25, middle
    labels[150] = 6.54321
    model = MondrianForestRegressor(**SMALL | KINDS[kind]).fit(table[:200], labels[:200])
    model.partial_fit(table[200:], labels[200:])
    state = state_of(model)
    place = int(np.flatnonzero(state.arrivals[: state.n_rows] == 150)[0])
    known = [*table[150], labels[150], *state.rows[place]]
    known = [value for value in known if value not in (0.0, 1.0)]
    model.save(tmp_path / "before.mf")
    assert traces((tmp_path / "before.mf").read_bytes(), known)  # else the search finds nothing
    model.forget([150]).save(tmp_path / "after.mf")
    assert not traces((tmp_path / "after.mf").read_bytes(), known)
    assert not traces(pickle.dumps(model), known)
    assert 150 not in state_of(model).spread_record["arrival"]


def test_the_store_of_a_forest_has_no_row_that_was_forgotten():
    model = MondrianForestRegressor(**SMALL).fit(X[:100], Y[:100])
    model.partial_fit(X[100:200], Y[100:200]).forget(np.arange(150, 170))
    state = state_of(model)
    assert not state.rows[180:200].any()
    assert not state.labels[180:200].any()
    assert not np.isin(Y[150:170], state.labels).any()


def test_moments_and_hyperparameters_are_those_of_the_rows_that_stay():
    model = MondrianForestRegressor(**SMALL).fit(X[:200], Y[:200]).forget(np.arange(0, 200, 7))
    kept = np.delete(Y[:200], np.arange(0, 200, 7))
    count, mean, squared_deviation = state_of(model).label_moments
    assert count == len(kept)
    assert mean == pytest.approx(kept.mean(), rel=1e-14)
    assert squared_deviation == pytest.approx(((kept - kept.mean()) ** 2).sum(), rel=1e-12)
    assert model.posterior_.prior_mean == pytest.approx(kept.mean(), rel=1e-12)


def test_a_range_that_a_forgotten_row_had_set_is_found_again():
    table = X.copy()
    table[5, 1] = 40.0
    model = MondrianForestRegressor(**SMALL | PAPER).fit(table, Y)
    assert model.feature_range_[1][1] == 40.0
    model.forget([5])
    assert model.feature_range_[1][1] == pytest.approx(np.delete(table, 5, axis=0)[:, 1].max())
    assert_whole(model)
    fresh = MondrianForestRegressor(**SMALL | PAPER).fit(*(np.delete(a, 5, 0) for a in (table, Y)))
    state, other = state_of(model), state_of(fresh)
    order = np.argsort(state.arrivals[: state.n_rows])
    np.testing.assert_allclose(state.rows[order], other.rows, atol=1e-5)


def test_hyperparameters_found_by_evidence_are_found_again():
    posterior = HierarchicalPosterior(hyperparameters="marginal_likelihood")
    model = MondrianForestRegressor(**SMALL | PAPER | {"posterior": posterior}).fit(X, Y)
    before = model.posterior_
    model.forget(np.arange(20))
    assert model.posterior_ != before
    assert_whole(model)


def law_of(forest):
    """Return what forests of one law have in common, an array over the trees for each."""
    roots = [tree.nodes[0] for tree in forest.trees_]
    return {
        "time": np.array([root.split_time for root in roots]),
        "feature": np.array([root.split_feature for root in roots]),
        "threshold": np.array([root.threshold for root in roots]),
        "leaves": np.array([np.sum(tree.left_child < 0) for tree in forest.trees_]),
        "depth": np.array([tree.depth for tree in forest.trees_]),
        "left": np.array([tree.n_samples[tree.left_child[0]] for tree in forest.trees_]),
    }


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_a_forest_that_forgot_has_the_law_of_one_that_never_knew(kind):
    parameters = KINDS[kind] | {
        "n_estimators": 1000,
        "feature_weights": None,
        "spread": 1.0,
        "feature_range": (0.0, 1.0),
    }
    one = MondrianForestRegressor(**parameters, random_state=1).fit(X[:150], Y[:150])
    one.partial_fit(X[150:], Y[150:]).forget(np.arange(60)).forget(np.arange(60, 100))
    other = MondrianForestRegressor(**parameters, random_state=2).fit(X[100:], Y[100:])
    for name, found in law_of(one).items():
        assert_plausible(ks_2samp(found, law_of(other)[name]).pvalue, 1000)


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_a_forest_that_forgot_all_but_500_rows_has_the_law_of_one_that_never_knew(kind):
    """Few rows are forgotten at a time, so that trees are never sampled anew on the rest."""
    table, labels = stream(1500)
    n_trees, kept = 1000, np.arange(500)
    parameters = KINDS[kind] | {
        "n_estimators": n_trees,
        "feature_weights": None,
        "spread": 1.0,
        "feature_range": (0.0, 1.0),
        "n_jobs": 2,
    }
    if kind == "default":  # pruning that is learned would fit the forest again
        parameters |= {"posterior": PrunedPosterior(prior_stop=0.5)}
    one = MondrianForestRegressor(**parameters, random_state=1).fit(table[:800], labels[:800])
    one.partial_fit(table[800:], labels[800:])
    others = np.random.default_rng(0).permutation(np.arange(500, 1500))
    for numbers in np.array_split(others, 12):
        assert len(numbers) < MANY * one.n_rows_
        one.forget(numbers)
    np.testing.assert_array_equal(one.row_numbers_, kept)
    assert one.n_rows_ == 500
    other = MondrianForestRegressor(**parameters, random_state=2).fit(table[kept], labels[kept])
    for name, found in law_of(one).items():
        assert_plausible(ks_2samp(found, law_of(other)[name]).pvalue, n_trees)


# The number of rows is limited.


@pytest.mark.parametrize("forgetting", ["oldest", "random", "change"])
@pytest.mark.parametrize("kind", ["default", "paper"])
def test_a_forest_never_holds_more_than_max_rows(kind, forgetting):
    parameters = SMALL | KINDS[kind] | {"max_rows": 70, "forgetting": forgetting}
    model = MondrianForestRegressor(**parameters).fit(X[:100], Y[:100])
    assert (model.n_rows_, model.n_samples_seen_) == (70, 100)
    begin = 100
    for n_new in (1, 1, 20, 80, 5, 93):
        model.partial_fit(X[begin : begin + n_new], Y[begin : begin + n_new])
        begin += n_new
        assert (model.n_rows_, model.n_samples_seen_) == (70, begin)
        if forgetting == "oldest":
            assert model.row_numbers_.tolist() == list(range(begin - 70, begin))
        assert_whole(model)


def test_a_stream_may_start_below_its_limit():
    model = MondrianForestRegressor(**SMALL | PAPER, max_rows=10)
    for row in range(30):
        model.partial_fit(X[row : row + 1], Y[row : row + 1])
        assert model.n_rows_ == min(row + 1, 10)
    assert_whole(model)


def test_a_lower_limit_holds_from_the_next_rows_on():
    model = MondrianForestRegressor(**SMALL).fit(X[:200], Y[:200]).set_params(max_rows=50)
    assert model.partial_fit(X[200:201], Y[200:201]).row_numbers_.tolist() == list(range(151, 201))
    assert_whole(model)


@pytest.mark.parametrize("chunk", [1, 7])
def test_a_random_sample_of_a_stream_is_uniform(chunk):
    counts = np.zeros(60)
    for seed in range(60):
        model = MondrianForestRegressor(
            **SMALL | PAPER | {"n_estimators": 1, "random_state": seed},
            max_rows=12,
            forgetting="random",
        ).fit(X[:20], Y[:20])
        for start in range(20, 60, chunk):
            model.partial_fit(X[start : min(start + chunk, 60)], Y[start : min(start + chunk, 60)])
        counts[model.row_numbers_] += 1
        assert model.n_rows_ == 12
    expected = counts.reshape(6, 10).sum(axis=1)  # in tenths of the stream
    assert_plausible(chisquare(expected).pvalue, int(counts.sum()))


def test_memory_of_a_window_does_not_grow():
    table, labels = stream(6000)
    for kind in ("default", "paper"):
        parameters = SMALL | KINDS[kind] | {"max_rows": 100, "spread": 1.0}
        model = MondrianForestRegressor(**parameters).fit(table[:100], labels[:100])
        sizes = set()
        for start in range(100, 6000, 50):
            model.partial_fit(table[start : start + 50], labels[start : start + 50])
            state = state_of(model)
            sizes.add((state.rows.shape, state.grove.nodes.shape))
        assert len(sizes) <= 3, sizes
        assert_whole(model, labels)


def test_a_window_and_its_copies_go_on_alike(tmp_path):
    parameters = SMALL | {"max_rows": 80, "forgetting": "random"}
    model = MondrianForestRegressor(**parameters).fit(X[:120], Y[:120])
    model.partial_fit(X[120:160], Y[120:160])
    model.save(tmp_path / "m.mf")
    others = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        MondrianForestRegressor.load(tmp_path / "m.mf"),
    ]
    for other in [model, *others]:
        for start in range(160, 300, 35):
            other.partial_fit(X[start : start + 35], Y[start : start + 35])
        other.forget(other.row_numbers_[:3])
    for other in others:
        np.testing.assert_array_equal(other.row_numbers_, model.row_numbers_)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_rows": 0}, "max_rows must be None or an integer of at least 1, got 0"),
        ({"max_rows": 2.5}, "max_rows must be"),
        ({"forgetting": "newest"}, "forgetting must be"),
        ({"forgetting": None}, "forgetting must be"),
    ],
)
def test_wrong_limits_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MondrianForestRegressor(**parameters).fit(X, Y)


# Change.


def changed_stream(n_rows, at):
    """A stream whose first features change places with the last ones."""
    table, labels = stream(n_rows, 4, seed=3)
    labels = 5.0 * labels
    table[at:] = table[at:, ::-1]
    return table, labels


def learn_in_chunks(model, table, labels, chunk):
    for start in range(0, len(labels), chunk):
        model.partial_fit(table[start : start + chunk], labels[start : start + chunk])
    return model


@pytest.mark.parametrize("kind", ["default", "paper"])
@pytest.mark.parametrize("chunk", [10, 100])
def test_what_is_older_than_a_change_is_forgotten(kind, chunk, caplog):
    table, labels = changed_stream(3000, 1500)
    parameters = SMALL | KINDS[kind] | {"n_estimators": 10, "forgetting": "change"}
    if kind == "paper":
        parameters |= {"feature_range": (0.0, 1.0)}
    model = MondrianForestRegressor(**parameters)
    with caplog.at_level(logging.INFO, "mondrian_forest"):
        learn_in_chunks(model, table[:2000], labels[:2000], chunk)
    assert "forgets" in caplog.text
    assert model.changes_
    assert 1400 < model.changes_[-1] < 1700
    learn_in_chunks(model, table[2000:2500], labels[2000:2500], chunk)
    assert model.row_numbers_.min() > 1400
    blind = MondrianForestRegressor(**parameters | {"forgetting": "oldest"})
    learn_in_chunks(blind, table[:2500], labels[:2500], 100)
    error, other = (np.mean((m.predict(table[2500:]) - labels[2500:]) ** 2) for m in (model, blind))
    assert error < 0.6 * other
    np.testing.assert_array_equal(
        np.sort(labels[model.row_numbers_]), np.sort(state_of(model).labels[: model.n_rows_])
    )


def test_a_stream_without_a_change_is_not_forgotten():
    table, labels = stream(3000)
    model = MondrianForestRegressor(**SMALL | PAPER | {"forgetting": "change"})
    learn_in_chunks(model, table, labels, 50)
    assert model.changes_ == ()
    assert model.n_rows_ == 3000


def test_a_monitor_is_saved_with_the_forest(tmp_path):
    table, labels = changed_stream(3000, 1500)
    model = MondrianForestRegressor(**SMALL | PAPER | {"forgetting": "change"})
    learn_in_chunks(model, table[:1600], labels[:1600], 40)
    model.save(tmp_path / "m.mf")
    other = MondrianForestRegressor.load(tmp_path / "m.mf")
    for one in (model, other):
        learn_in_chunks(one, table[1600:2400], labels[1600:2400], 40)
    assert model.changes_ == other.changes_ != ()
    np.testing.assert_array_equal(model.predict(table), other.predict(table))


def test_a_change_keeps_names_and_mean_function():
    pandas = pytest.importorskip("pandas")
    table, labels = changed_stream(1600, 800)
    frame = pandas.DataFrame(table, columns=list("abcd"))
    model = MondrianForestRegressor(
        **SMALL | PAPER | {"forgetting": "change", "mean_function": "linear", "n_estimators": 10}
    )
    for start in range(0, 1600, 50):
        model.partial_fit(frame[start : start + 50], labels[start : start + 50])
    assert model.changes_
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.score(frame[1200:], labels[1200:]) > 0.5


# What an attack has found.


def saved_and_loaded(model, folder):
    model.save(folder / "m.mf")
    return MondrianForestRegressor.load(folder / "m.mf")


@pytest.mark.parametrize("way", ["copied", "pickled", "loaded"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_forgets_has_room_to_learn_again(kind, way, tmp_path):
    """A copy has no room for more nodes than there are."""
    model = MondrianForestRegressor(**SMALL | KINDS[kind] | {"feature_range": (0.0, 1.0)})
    model.fit(X[:150], Y[:150]).partial_fit(X[150:200], Y[150:200])
    copied = {
        "copied": copy.deepcopy,
        "pickled": lambda one: pickle.loads(pickle.dumps(one)),
        "loaded": lambda one: saved_and_loaded(one, tmp_path),
    }[way](model)
    apart = np.column_stack([np.linspace(-50, 60, 40), np.linspace(70, -80, 40), X[:40, 0]])
    for one in (model, copied):
        one.forget(np.arange(40)).partial_fit(apart, Y[200:240])
        state = state_of(one)
        assert np.all(state.grove.sizes <= state.grove.nodes.shape[1])
    np.testing.assert_array_equal(model.predict(X), copied.predict(X))
    saved_and_loaded(copied, tmp_path)


def test_boxes_of_a_mapped_file_are_checked_before_rows_are_forgotten(tmp_path):
    model = MondrianForestRegressor(**SMALL | PAPER | {"min_samples_split": 2})
    model.fit(X[:200], Y[:200]).save(tmp_path / "m.mf")
    content = (tmp_path / "m.mf").read_bytes()
    boxes = state_of(MondrianForestRegressor.load(tmp_path / "m.mf")).grove.boxes
    place = content.find(boxes.tobytes())
    mapped = MondrianForestRegressor.load(tmp_path / "m.mf", mmap=True)
    wrong = boxes.copy()
    wrong[:, 0, 1, 0] = 50.0
    with open(tmp_path / "m.mf", "r+b") as file:
        file.seek(place)
        file.write(wrong.tobytes())
    with pytest.raises(ModelFileError, match="has changed since it was loaded"):
        mapped.forget([3])


@pytest.mark.parametrize(
    "parameters",
    [{}, PAPER, {"robust": False}, {"feature_range": (-1.0, 2.0)}],
    ids=["default", "paper", "not robust", "given range"],
)
def test_a_column_that_becomes_constant_has_a_range(parameters, tmp_path):
    for seed in range(10):
        generator = np.random.default_rng(seed)
        flag = 9.0 * generator.random(2)
        table = np.column_stack([X[:100, 0], np.where(np.arange(100) < 5, *flag)])
        options = {"n_estimators": 2, "random_state": 0} | parameters
        model = MondrianForestRegressor(**options).fit(table, Y[:100]).forget(range(5))
        low, high = state_of(model).seen_range
        assert low[1] == high[1] == pytest.approx(flag[1], rel=1e-5)
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_that_is_left_can_be_saved(kind, tmp_path):
    model = MondrianForestRegressor(**SMALL | KINDS[kind]).fit(X[:80], Y[:80])
    model.partial_fit(X[80:90], Y[80:90]).forget(np.arange(89))
    content = (saved_and_loaded(model, tmp_path) and tmp_path / "m.mf").read_bytes()
    assert not traces(content, [*X[:89].ravel(), *Y[:89]])


@pytest.mark.parametrize("parameters", [{}, {"robust": False}, PAPER], ids=str)
def test_a_row_that_left_a_window_leaves_no_range_when_it_is_forgotten(parameters, tmp_path):
    table = X.copy()
    table[10, 1] = 7.123
    options = SMALL | parameters | {"max_rows": 250}
    model = MondrianForestRegressor(**options).fit(table[:240], Y[:240])
    model.partial_fit(table[240:262], Y[240:262])
    assert 10 not in model.row_numbers_
    model.forget([10])
    assert model.n_rows_ == 250
    saved_and_loaded(model, tmp_path)
    assert not traces((tmp_path / "m.mf").read_bytes(), [7.123])
    assert_whole(model)


@pytest.mark.parametrize("parameters", [{"robust": False}, PAPER], ids=str)
def test_an_end_of_the_range_is_forgotten_although_later_rows_are_beyond(parameters, tmp_path):
    table = X.copy()
    table[10, 1], table[245, 1] = 1.5123, 1.9
    model = MondrianForestRegressor(**SMALL | parameters).fit(table[:240], Y[:240])
    model.partial_fit(table[240:262], Y[240:262]).forget([10])
    saved_and_loaded(model, tmp_path)
    assert not traces((tmp_path / "m.mf").read_bytes(), [1.5123])
    assert_whole(model)


def test_trees_are_not_sampled_anew_for_an_end_that_other_rows_have():
    table = np.round(X, 1)
    model = MondrianForestRegressor(**SMALL | PAPER).fit(table, Y).forget([0])
    first = state_of(model).grove
    ends = np.flatnonzero((table == table.max(axis=0)).any(axis=1))
    assert len(ends) > 10
    model.forget(ends[:2])
    assert state_of(model).grove is first


def test_records_are_forgotten_with_a_spread_that_was_given_later():
    model = MondrianForestRegressor(**SMALL).fit(X, Y)
    row = int(state_of(model).spread_record["arrival"][0])
    model.set_params(spread=1.0).forget([row])
    assert row not in state_of(model).spread_record["arrival"]


def test_errors_of_rows_that_left_a_window_are_forgotten():
    options = SMALL | PAPER | {"max_rows": 60, "forgetting": "change"}
    model = MondrianForestRegressor(**options).fit(X[:60], Y[:60])
    for start in range(60, 300, 20):
        model.partial_fit(X[start : start + 20], Y[start : start + 20])
    assert len(state_of(model).monitor.recent) > 0
    model.forget([100])
    assert len(state_of(model).monitor.recent) == 0


def test_a_store_does_not_stay_large_for_ever():
    table, labels = stream(3000)
    model = MondrianForestRegressor(**SMALL).fit(table, labels)
    while model.n_rows_ > 50:
        model.forget(model.row_numbers_[: model.n_rows_ // 5 + 1])
    assert len(state_of(model).rows) < 2000
    assert_whole(model, labels)


def test_a_tolerance_that_is_set_later_counts_from_then_on():
    model = MondrianForestRegressor(**SMALL).fit(X[:100], Y[:100]).set_params(cut_tolerance=0.5)
    assert state_of(model.partial_fit(X[100:101], Y[100:101])).growth.tolerance == 0.5
    model.set_params(cut_tolerance=0.1).forget([0])
    assert state_of(model).growth.tolerance == 0.1


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_unit_in_which_cuts_are_compared_follows_the_labels(scale):
    """Of the first row alone nobody knows the unit."""
    posterior = PrunedPosterior(prior_stop=0.5)
    options = SMALL | {"posterior": posterior, "spread": 1.0, "n_estimators": 200}
    trees = [
        MondrianForestRegressor(**options)
        .partial_fit(X[:1], factor * Y[:1])
        .partial_fit(X[1:], factor * Y[1:])
        .trees_
        for factor in (1.0, scale)
    ]
    shares = [np.mean([tree.split_feature[0] == 0 for tree in one]) for one in trees]
    assert shares[0] > 0.6  # one of three features, if cuts did not look at labels
    assert shares[1] == pytest.approx(shares[0], abs=0.05)


@pytest.mark.parametrize("size", [1e8, 1e12, 1e20, 1e100])
def test_nothing_of_an_absurd_label_is_left_in_the_sums(size):
    options = SMALL | {"robust": False, "spread": 1.0, "posterior": PrunedPosterior(prior_stop=0.5)}
    model = MondrianForestRegressor(**options).fit(X[:200], Y[:200])
    model.partial_fit(X[200:201], [size]).forget([200])
    model.partial_fit(X[201:], Y[201:])
    state = state_of(model)
    for number, tree in enumerate(model.trees_):
        contests = state.grove.contests_of(number).candidates
        for node in np.flatnonzero(tree.tallies["contest"] >= 0):
            numbers = rows_in(tree, state.grove.rows(number), node)
            scores = np.rint(
                (state.labels[numbers] - state.growth.label_origin) / state.growth.label_unit
            )
            assert contests[tree.tallies["contest"][node], -1]["sum_left"] == scores.sum()


def test_labels_are_not_mixed_up_by_features_without_weight():
    generator = np.random.default_rng(0)
    table = generator.random((900, 3))
    wave = np.where(np.arange(900) < 600, np.sin(6 * table[:, 0]), 5 - 3 * np.cos(6 * table[:, 0]))
    labels = wave + 10 * table[:, 1]
    model = MondrianForestRegressor(
        5, random_state=0, mean_function="linear", feature_weights=[1, 0, 0], forgetting="change",
        posterior=PrunedPosterior(prior_stop=0.5), robust=False,
    )  # fmt: skip
    for start in range(0, 900, 5):
        model.partial_fit(table[start : start + 5], labels[start : start + 5])
    assert model.changes_
    state = state_of(model)
    held = state.arrivals[: state.n_rows]
    known = (state.labels + state.means)[: state.n_rows]
    np.testing.assert_allclose(known, labels[held], atol=1e-9)


@pytest.mark.parametrize("rows", [np.ma.array([1, 2], mask=[0, 1]), [True, 2], (np.True_, 0)])
def test_masked_row_numbers_and_mixed_flags_are_refused(rows):
    model = MondrianForestRegressor(**SMALL).fit(X, Y)
    with pytest.raises(ValueError, match="rows must be row numbers"):
        model.forget(rows)


def test_a_reader_of_older_trees_does_not_see_rows_move():
    """Its trees have been copied for a writer, but the store of rows and labels is still shared."""
    model = MondrianForestRegressor(**SMALL | PAPER).fit(X[:200], Y[:200])
    model.partial_fit(X[200:201], Y[200:201])
    shared = shared_by(model)
    old = state_of(model)
    known = old.labels[: old.n_rows].copy()
    shared.readers[-1] = old  # somebody who is slow
    model.partial_fit(X[201:203], Y[201:203])
    assert state_of(model).grove is not old.grove
    model.forget(np.arange(30))
    np.testing.assert_array_equal(old.labels[: old.n_rows], known)
    del shared.readers[-1]
    assert_whole(model)
