"""What must work with all declared versions: ``.ci/other_versions`` runs this file with them.

There is one short test for each dependency, from its import to a result; packages that load data
sets have theirs in ``tests/datasets``. Compiling takes most of the time, so there are few models.
"""

import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from command import succeed_here
from houses import houses
from mondrian_forest import PAPER, ConformalForest, MondrianForestRegressor


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).random((150, 2))
    return X, X[:, 0] + X[:, 1] ** 2


@pytest.mark.parametrize("settings", [{}, PAPER], ids=["default", "paper"])
def test_a_forest_learns_predicts_and_is_kept(settings, data, tmp_path):
    X, y = data
    forest = MondrianForestRegressor(4, n_jobs=2, random_state=0, **settings)
    forest.fit(X[:100], y[:100])
    assert forest.score(X[100:], y[100:]) > 0.5
    forest.partial_fit(X[100:], y[100:])
    mean, std = forest.predict(X, return_std=True)
    assert (std > 0).all()
    found = forest.predict_distribution(X)
    np.testing.assert_allclose(found.mean(), mean)
    assert np.isfinite([found.logpdf(y), found.crps(y), found.cdf(y)]).all()
    low, high = found.interval(0.9).T
    assert (low < high).all()
    forest.save(tmp_path / "model.mf")
    loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
    copied = pickle.loads(pickle.dumps(forest))
    for again in (forest, loaded, copied):
        again.partial_fit(X[:5], y[:5])
    np.testing.assert_array_equal(loaded.predict(X), forest.predict(X))
    np.testing.assert_array_equal(copied.predict(X), forest.predict(X))


def test_scikit_learn(data):
    X, y = data
    forest = MondrianForestRegressor(2, random_state=0)
    pipeline = make_pipeline(StandardScaler(), clone(forest))
    assert cross_val_score(pipeline, X, y, cv=2, n_jobs=1).min() > 0.3
    calibrated = ConformalForest(forest, random_state=0).fit(X, y)
    assert calibrated.predict_interval(X[:5]).shape == (5, 2)


def test_pandas_polars_and_pyarrow(data):
    import pandas
    import polars
    import pyarrow

    X, y = data
    columns = dict(zip("ab", X.T, strict=True))
    expected = MondrianForestRegressor(2, random_state=0).fit(X, y).predict(X)
    for table in (pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table(columns)):
        forest = MondrianForestRegressor(2, random_state=0).fit(table, y)
        assert list(forest.feature_names_in_) == ["a", "b"]
        np.testing.assert_array_equal(forest.predict(table), expected)


def test_the_command_from_a_table_to_a_report(tmp_path):
    import pyarrow.csv

    pyarrow.csv.write_csv(houses(100, 0), tmp_path / "t.csv")
    succeed_here("fit", "t.csv", "-t", "price", "--trees", 2, "-o", "m.mf", cwd=tmp_path)
    succeed_here("update", "m.mf", "t.csv", cwd=tmp_path)
    for kind in ("csv", "parquet", "feather"):
        succeed_here("predict", "m.mf", "t.csv", "--std", "-o", f"out.{kind}", cwd=tmp_path)
    succeed_here("evaluate", "m.mf", "out.parquet", "--report", "report.html", cwd=tmp_path)
    assert (tmp_path / "report.html").read_text().count("data:image/png") == 4
    assert "price" in succeed_here("info", "m.mf", cwd=tmp_path).stdout
    assert "Example: mondrian fit" in succeed_here("fit", "--help").stdout


def test_the_command_optimizes_and_has_a_demo(tmp_path):
    (tmp_path / "space.toml").write_text("[x]\ntype = 'real'\nlow = 0.0\nhigh = 1.0\n")
    program = (sys.executable, "-c", "print(({x} - 0.3) ** 2)")
    succeed_here("optimize", "space.toml", "-n", 12, "--", *program, cwd=tmp_path)
    succeed_here("demo", cwd=tmp_path)
    assert (tmp_path / "mondrian-demo.png").stat().st_size > 10_000


def test_optuna():
    import optuna

    from mondrian_forest.optimize.optuna_sampler import MondrianSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=MondrianSampler(seed=0, n_startup_trials=4))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2, n_trials=8)
    assert study.best_value < 0.5


@pytest.mark.filterwarnings("ignore")  # Dask warns of its own when clusters start and stop
def test_dask(data):
    import dask.array
    import dask.dataframe
    import pandas
    from distributed import Client

    from mondrian_forest.distributed import fit, predict

    X, y = data
    rows, labels = dask.array.from_array(X, (60, 2)), dask.array.from_array(y, 60)
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        forest = fit(MondrianForestRegressor(2, random_state=0), rows, labels, client=client)
        found = predict(forest, rows, std=True).compute()
        frame = dask.dataframe.from_pandas(pandas.DataFrame(X, columns=["a", "b"]), npartitions=2)
        named = predict(forest, frame.values, std=True).compute()
    np.testing.assert_allclose(found[:, 0], forest.predict(X))
    np.testing.assert_allclose(named, found)


def test_river(data):
    import pandas
    from river import evaluate, metrics

    from mondrian_forest.streams import RiverForest

    X, y = data
    rows = [(dict(zip("ab", x, strict=True)), label) for x, label in zip(X, y, strict=True)]
    model = RiverForest(seed=0, n_estimators=4)
    assert evaluate.progressive_val_score(rows, model.clone(), metrics.MAE()).get() < 0.3
    table = pandas.DataFrame(X, columns=["a", "b"])
    model.learn_many(table, pandas.Series(y))
    np.testing.assert_allclose(model.predict_many(table)[3], model.predict_one(rows[3][0]))


def test_a_bar_of_tqdm():
    from mondrian_forest._progress import progress_bar

    bar = progress_bar(3, True, "trial")
    bar.update(1)
    bar.close()
    assert type(bar).__module__.startswith("tqdm")


def test_safetensors_reads_a_model_file(data, tmp_path):
    from safetensors.numpy import load_file

    MondrianForestRegressor(2, random_state=0).fit(*data).save(tmp_path / "model.mf")
    assert load_file(tmp_path / "model.mf")
