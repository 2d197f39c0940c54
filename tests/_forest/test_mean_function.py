"""A forest around a mean function: it learns the residuals, and adds the function again."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from benchmarks.settings import PRUNED
from forests import friedman, rmse, share_covered, small_forest
from mondrian_forest import ModelFileError, MondrianForestRegressor, PrunedPosterior
from mondrian_forest._forest.boosting import Boosted, boosted, fit_boosted
from mondrian_forest._forest.draw import draw_values
from mondrian_forest._forest.linear import Linear
from mondrian_forest._forest.mean_function import N_FOLDS
from mondrian_forest._forest.sharing import state_of, with_state
from trees import check_tree_invariants

SMALL = {"n_estimators": 5, "random_state": 0}
KINDS = ["linear", "boosting", KNeighborsRegressor(3)]


def table_of(n_rows=300, n_features=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    return X, 5.0 + 3.0 * X[:, 0] + np.sin(6.0 * X[:, 1]) + 0.1 * generator.normal(size=n_rows)


def known_labels(model):
    """Return the labels that a forest knows, by arrival: residuals and means."""
    state = state_of(model)
    order = np.argsort(state.arrivals[: state.n_rows])
    return (state.labels + state.means)[: state.n_rows][order]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_forest_learns_residuals_and_adds_the_function_again(kind):
    X, y = table_of()
    given = {"feature_weights": None, "posterior": PrunedPosterior(prior_stop=0.5, prior_mean=0.0)}
    model = MondrianForestRegressor(**SMALL | given, mean_function=kind).fit(X[:200], y[:200])
    state = state_of(model)
    np.testing.assert_allclose(known_labels(model), y[:200], rtol=1e-12)
    means = state.mean_function.at(X[200:])
    distribution = model.predict_distribution(X[200:])
    bare = with_state(clone(model), state.but(mean_function=None))
    for found, of_residuals in [
        (model.predict(X[200:]), bare.predict(X[200:])),
        (distribution.mean(), bare.predict(X[200:])),
        (distribution.quantile(0.9), bare.predict_quantiles(X[200:], 0.9)),
    ]:
        np.testing.assert_allclose(found, of_residuals + means, rtol=1e-9)


@pytest.mark.parametrize("spread", [1.0, "auto"])
def test_no_residual_is_that_of_a_model_which_saw_the_label(spread):
    """A nearest neighbour knows all labels that it has seen."""
    X, _ = table_of()
    y = np.random.default_rng(1).normal(size=len(X))
    nearest = KNeighborsRegressor(1)
    model = MondrianForestRegressor(**SMALL, mean_function=nearest, spread=spread).fit(X, y)
    state = state_of(model)
    order = np.argsort(state.arrivals)
    assert not np.any(state.means[order] == y)
    assert not hasattr(nearest, "n_features_in_")  # only copies are fitted
    models = state.mean_function.regression.models
    in_no_fold = np.all([model.predict(X) != y for model in models], axis=0)
    assert in_no_fold.sum() == (0 if spread == 1.0 else 30)
    for k in range(N_FOLDS):
        said = state.mean_function.regression.models[k].predict(X)
        inside = (said != y) & ~in_no_fold
        np.testing.assert_array_equal(said[inside], state.means[order][inside])
        assert inside.sum() == (60 if spread == 1.0 else 54)
    said = state.mean_function.at(X)[in_no_fold]  # of rows that were held out
    np.testing.assert_array_equal(said, state.means[order][in_no_fold])


def test_a_frozen_estimator_is_taken_as_it_is():
    X, y = table_of()
    ridge = Ridge().fit(X[:50], y[:50])
    model = MondrianForestRegressor(**SMALL, mean_function=FrozenEstimator(ridge))
    model = clone(model).fit(X[50:], y[50:])
    np.testing.assert_array_equal(state_of(model).mean_function.at(X), ridge.predict(X))
    np.testing.assert_allclose(known_labels(model), y[50:], rtol=1e-12)


def test_boosting_makes_a_smooth_function_better_and_covers():
    X, y = friedman(3000, 5)
    errors = []
    for kind in (None, "boosting"):
        model = MondrianForestRegressor(20, random_state=0, mean_function=kind)
        model.fit(X[:2000], y[:2000])
        errors.append(rmse(model, X[2000:], y[2000:]))
    assert errors[1] < 0.9 * errors[0]
    covered = share_covered(model.predict_distribution(X[2000:]), y[2000:], 0.9)
    assert 0.86 < covered < 0.95


def test_boosted_trees_are_those_of_scikit_learn_to_the_last_bit():
    X, y = table_of(500)
    models = [fit_boosted(X[k::3], y[k::3], k) for k in range(3)]
    for number in ([0], [0, 1, 2]):
        chosen = [models[k] for k in number]
        expected = np.zeros(len(X))
        for one in chosen:
            expected += one.predict(X)
        found = boosted(chosen, 0.0, 1.0).at(X)
        np.testing.assert_array_equal(found, expected / len(chosen))


@pytest.mark.parametrize("unit", [2.0**-400, 2.0**300])
@pytest.mark.parametrize("kind", ["linear", "boosting"])
def test_the_unit_of_the_labels_does_not_matter(kind, unit):
    X, y = table_of()
    one, other = (
        MondrianForestRegressor(**SMALL, mean_function=kind).fit(X, factor * y)
        for factor in (1.0, unit)
    )
    np.testing.assert_allclose(other.predict(X), unit * one.predict(X), rtol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 2, 19, 20, 21])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_few_rows_are_enough(kind, n_rows):
    X, y = table_of(n_rows)
    model = MondrianForestRegressor(**SMALL, mean_function=kind).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0.0)
    assert isinstance(state_of(model).mean_function.regression, Linear) == (
        kind == "linear" or n_rows < 20
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_stream_is_fitted_again_when_its_rows_have_doubled(kind):
    X, y = table_of(700)
    model = MondrianForestRegressor(**SMALL, mean_function=kind)
    functions = []
    for start in range(0, 700, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
        functions.append(state_of(model).mean_function)
    # Stored features are in single precision, labels are not.
    np.testing.assert_allclose(known_labels(model), y, rtol=1e-12)
    changed = [k for k in range(1, 14) if functions[k] is not functions[k - 1]]
    assert [50 * (k + 1) for k in changed] == [100, 200, 400]
    model.forget(np.arange(0, 100))
    np.testing.assert_allclose(known_labels(model), y[100:], rtol=1e-12)
    check = state_of(model)
    for number, tree in enumerate(model.trees_):
        check_tree_invariants(
            tree, check.rows[:600], check.grove.rows(number), labels=check.labels[:600]
        )


def steep(X):
    return 20.0 * X[:, 0] - 10.0 * X[:, 1]


def waves(X):
    return 3.0 * np.sin(6.0 * X).sum(axis=1)


def nothing(X):
    return np.zeros(len(X))


@pytest.mark.parametrize(
    ("truth", "expected"), [(steep, Linear), (waves, Boosted), (nothing, type(None))]
)
def test_the_mean_function_is_chosen_by_held_out_rows(truth, expected):
    generator = np.random.default_rng(0)
    X = generator.random((1500, 8))
    y = truth(X) + 0.3 * generator.normal(size=len(X))
    model = MondrianForestRegressor(10, random_state=0, mean_function="auto").fit(X, y)
    assert isinstance(getattr(state_of(model).mean_function, "regression", None), expected)
    assert model.mean_function == "auto"


def test_few_rows_choose_no_mean_function():
    X = np.random.default_rng(0).random((40, 2))
    model = MondrianForestRegressor(**SMALL, mean_function="auto").fit(X, 100.0 * X[:, 0])
    assert state_of(model).mean_function is None
    more = np.random.default_rng(1).random((150, 2))
    model.partial_fit(more, 100.0 * more[:, 0])  # it has doubled: chosen again
    assert isinstance(state_of(model).mean_function.regression, Linear)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_choice_does_not_depend_on_threads(n_jobs):
    X, y = table_of(400)
    given = SMALL | {"mean_function": "auto"}
    one = MondrianForestRegressor(**given).fit(X, y)
    other = MondrianForestRegressor(**given, n_jobs=n_jobs).fit(X, y)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", ["linear", "boosting", "auto"])
def test_a_file_keeps_the_mean_function(kind, frozen, tmp_path):
    X, y = table_of()
    model = MondrianForestRegressor(**SMALL, mean_function=kind).fit(X[:200], y[:200])
    model.save(tmp_path / "m.mf", rows=not frozen)
    other = MondrianForestRegressor.load(tmp_path / "m.mf")
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert other.mean_function == kind
    if not frozen:
        for one in (model, other):
            one.partial_fit(X[200:], y[200:])
        np.testing.assert_array_equal(model.predict(X), other.predict(X))


def test_a_mean_function_that_is_no_array_is_not_saved_but_pickled(tmp_path):
    X, y = table_of()
    model = MondrianForestRegressor(**SMALL, mean_function=Ridge()).fit(X, y)
    with pytest.raises(ValueError, match=r"mean function is a Ridge cannot be saved .* pickle it"):
        model.save(tmp_path / "m.mf")
    assert not list(tmp_path.iterdir())
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(X), copied.predict(X))


@pytest.mark.parametrize("harm", ["loop", "root", "feature", "value", "count", "unit"])
def test_a_file_with_boosted_trees_that_make_no_sense_is_refused(harm, tmp_path):
    X, y = table_of()
    model = MondrianForestRegressor(**SMALL, mean_function="boosting").fit(X, y)
    known = state_of(model).mean_function.regression
    nodes, roots, ends = known.nodes.copy(), known.roots.copy(), known.ends.copy()
    unit = known.unit
    inner = np.flatnonzero(nodes["left"] >= 0)
    if harm == "loop":
        nodes["left"][inner[-1]] = 0
    elif harm == "root":
        roots[-1] = len(nodes)
    elif harm == "feature":
        nodes["feature"][inner[0]] = 3
    elif harm == "value":
        nodes["value"][0] = np.nan
    elif harm == "count":
        ends[-1] += 1
    else:
        unit = 0.0
    wrong = known._replace(nodes=nodes, roots=roots, ends=ends, unit=unit)
    wrong = state_of(model).mean_function._replace(regression=wrong)
    with_state(model, state_of(model).but(mean_function=wrong)).save(tmp_path / "m.mf")
    with pytest.raises(ModelFileError, match="boosted"):
        MondrianForestRegressor.load(tmp_path / "m.mf")


class Wrong(Ridge):
    """A regressor that predicts something else."""

    def __init__(self, what="shape"):
        super().__init__()
        self.what = what

    def predict(self, X):
        return np.ones((len(X), 2)) if self.what == "shape" else np.full(len(X), np.nan)


@pytest.mark.parametrize("what", ["shape", "NaN"])
def test_wrong_predictions_are_refused_in_one_sentence(what):
    X, y = table_of()
    with pytest.raises(ValueError, match="The mean function Wrong must predict one finite number"):
        MondrianForestRegressor(**SMALL, mean_function=Wrong(what)).fit(X, y)


@pytest.mark.parametrize("kind", ["cubic", Ridge, 3, True])
def test_what_is_no_mean_function_is_refused(kind):
    X, y = table_of()
    with pytest.raises(ValueError, match="mean_function must be None"):
        MondrianForestRegressor(**SMALL, mean_function=kind).fit(X, y)


def test_a_search_reaches_the_parameters_of_a_mean_function():
    X, y = table_of()
    model = MondrianForestRegressor(**SMALL, mean_function=Ridge())
    search = GridSearchCV(model, {"mean_function__alpha": [1e-3, 1e6]}, cv=2).fit(X, y)
    assert search.best_params_ == {"mean_function__alpha": 1e-3}


def test_a_linear_mean_function_extrapolates():
    """Beyond the data a forest is flat: the first failure that the paper names."""
    X = np.random.default_rng(0).random((500, 2))
    y = 10.0 * X[:, 0] + np.sin(9 * X[:, 1])
    far = X + np.array([2.0, 0.0])
    flat, rising = (
        small_forest(**PRUNED | {"mean_function": kind}).fit(X, y) for kind in (None, "linear")
    )
    truth = y + 20.0
    assert rmse(rising, far, truth) < 0.1 * rmse(flat, far, truth)


USES = ["subtract", "feature", "both"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("robust", [True, False])
def test_trees_see_the_mean_function_as_their_last_feature(use, robust):
    X, y = table_of()
    given = {"mean_function": KNeighborsRegressor(1), "mean_use": use, "robust": robust}
    model = MondrianForestRegressor(**SMALL | given).fit(X, y)
    state = state_of(model)
    order = np.argsort(state.arrivals)
    columns = state.scaling.invert(state.rows[order])
    np.testing.assert_allclose(columns[:, :3], X, atol=1e-5)
    assert columns.shape[1] == (3 if use == "subtract" else 4)
    learned = state.labels[order]
    if use == "feature":
        np.testing.assert_array_equal(learned, y)
        np.testing.assert_array_equal(state.means, 0.0)
    else:
        np.testing.assert_allclose(learned + state.means[order], y)
    if use == "both":  # what is subtracted is what the trees see
        np.testing.assert_allclose(columns[:, 3], state.means[order], atol=1e-5)
    if use == "feature":  # no model has seen the label of the row
        assert not np.any(np.abs(columns[:, 3] - y) < 1e-6)
    assert model.n_features_in_ == len(model.feature_weights_) == len(model.feature_range_[0]) == 3


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("change", ["sequence", "given weights", "forget", "file", "draw"])
def test_every_use_goes_through_streams_and_files(use, change, tmp_path):
    X, y = table_of(260)
    weights = [1.0, 0.0, 1.0] if change == "given weights" else None
    model = MondrianForestRegressor(
        **SMALL, mean_function="linear", mean_use=use, feature_weights=weights, robust=False
    ).fit(X[:60], y[:60])
    if change == "file":
        model.save(tmp_path / "m.mf")
        model = MondrianForestRegressor.load(tmp_path / "m.mf")
    for start in range(60, 260, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    if change == "forget":
        model.forget(np.arange(50))
    state = state_of(model)
    n_rows = state.n_rows
    check = [state.grove.rows(number) for number in range(5)]
    for tree, rows in zip(model.trees_, check, strict=True):
        check_tree_invariants(tree, state.rows[:n_rows], rows, labels=state.labels[:n_rows])
    np.testing.assert_allclose(known_labels(model), y[260 - n_rows :], rtol=1e-12)
    mean = model.predict(X)
    np.testing.assert_allclose(model.predict_distribution(X).mean(), mean, rtol=1e-9)
    if change == "draw":
        draws = [draw_values(state, X, np.random.RandomState(seed)) for seed in range(60)]
        assert np.abs(np.mean(draws, axis=0) - mean).max() < 0.5
    if use != "subtract":  # it was fitted to 240 rows, or to fewer; later ones know its values
        latest = np.argsort(state.arrivals[:n_rows])[-20:]
        values = state.scaling.invert(state.rows[latest])[:, -1]
        np.testing.assert_allclose(values, state.mean_function.at(X[-20:]), atol=1e-4)


def test_held_out_rows_choose_nothing_where_nothing_is_better():
    """Then the forest is the one that has never been offered a mean function."""
    X = np.random.default_rng(0).random((400, 3))
    y = np.random.default_rng(1).normal(size=400)
    one, other = (
        MondrianForestRegressor(**SMALL, mean_function=kind).fit(X, y) for kind in (None, "auto")
    )
    assert state_of(other).mean_function is None
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("kind", [None, "auto", "linear"])
def test_far_from_the_data_only_who_asks_for_a_line_gets_one(kind):
    """A chosen mean function is not trusted there: the deviation is that of all labels."""
    generator = np.random.default_rng(0)
    X = generator.random((1500, 4))
    y = steep(X) + 0.3 * generator.normal(size=len(X))
    model = MondrianForestRegressor(10, random_state=0, mean_function=kind).fit(X, y)
    assert (state_of(model).mean_function is None) == (kind is None)
    mean, std = model.predict(X[:1] + 1000.0, return_std=True)
    if kind == "linear":
        assert mean[0] == pytest.approx(10_000.0, rel=0.02)
        assert std[0] < 0.1 * y.std()
    else:
        assert y.min() - 2 * np.ptp(y) < mean[0] < y.max() + 2 * np.ptp(y)
        assert std[0] == pytest.approx(y.std(), rel=0.02)


def test_a_line_does_not_follow_a_few_extreme_rows():
    """A feature that is 0 but in two rows; with 10 in a new row, the line must stay where it is."""
    generator = np.random.default_rng(0)
    X = np.column_stack((generator.random(1000), np.zeros(1000)))
    y = X[:, 0] + 0.1 * generator.normal(size=1000)
    X[:2, 1], y[:2] = 1.0, 3.0
    model = MondrianForestRegressor(**SMALL, mean_function="linear").fit(X, y)
    assert abs(model.predict([[0.5, 10.0]])[0] - 0.5) < 0.5


def test_intervals_around_the_mean_of_five_models_have_their_level():
    """Each of them makes larger errors than their mean, so that residuals alone are too wide."""
    X, y = friedman(6000, 5)
    tree = DecisionTreeRegressor(min_samples_leaf=3, random_state=0)
    model = MondrianForestRegressor(20, random_state=0, mean_function=tree).fit(X[:4000], y[:4000])
    covered = share_covered(model.predict_distribution(X[4000:]), y[4000:], 0.8)
    assert 0.77 < covered < 0.83


@pytest.mark.parametrize("use", ["add", None, 1])
def test_what_is_no_use_is_refused(use):
    X, y = table_of()
    with pytest.raises(ValueError, match='mean_use must be "subtract", "feature" or "both"'):
        MondrianForestRegressor(**SMALL, mean_function="linear", mean_use=use).fit(X, y)


def test_equal_features_share_a_slope():
    X = np.random.default_rng(0).random((100, 1))
    model = small_forest(**PRUNED | {"mean_function": "linear"}).fit(np.hstack([X, X]), X[:, 0])
    linear = state_of(model).mean_function.regression
    np.testing.assert_allclose(linear.slope[0], linear.slope[1])
    np.testing.assert_allclose(linear.at([[0.0, 0.0], [1.0, 1.0]]), [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("n_features", [50, 80])
def test_intervals_stay_wide_if_there_are_few_rows_for_many_features(n_features):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(260, n_features)), generator.normal(size=260)
    model = small_forest(**PRUNED | {"mean_function": "linear", "spread": "auto"}).fit(
        X[:60], y[:60]
    )
    assert share_covered(model.predict_distribution(X[60:]), y[60:], 0.9) > 0.7


def test_a_linear_mean_function_works_with_a_given_range_and_in_extreme_units():
    generator = np.random.default_rng(0)
    X = generator.random((300, 2)) * [100.0, 1.0] + [1e8, 0.0]
    y = 0.1 * (X[:, 0] - 1e8) + X[:, 1]
    model = small_forest(**PRUNED | {"mean_function": "linear", "feature_range": (0.0, 1e10)}).fit(
        X, y
    )
    np.testing.assert_allclose(state_of(model).mean_function.at(X), y, atol=1e-3)
    for unit in (1e300, 1e-300):
        rows = (X - [1e8, 0.0]) * unit
        tiny = small_forest(**PRUNED | {"mean_function": "linear"}).fit(rows, y)
        np.testing.assert_allclose(tiny.predict(rows), y, atol=0.1)


def test_the_noise_follows_from_the_resolution_of_the_labels_themselves():
    X = np.random.default_rng(0).random((300, 2))
    y = np.round(20 * X[:, 0])
    model = small_forest(**PRUNED | {"mean_function": "linear"}).fit(X, y)
    assert model.posterior_.noise_variance == pytest.approx(1 / 12)
