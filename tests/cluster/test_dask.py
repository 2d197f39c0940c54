"""On a real cluster of several processes, on loopback."""

import os
import signal
import sys
import threading
import time

import joblib
import numpy as np
import pandas as pd
import psutil
import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import dask.array as da
import dask.dataframe as dd
from distributed import Client, Future, LocalCluster
from sklearn.base import clone
from sklearn.neighbors import KNeighborsRegressor

from mondrian_forest import PAPER, MondrianForestRegressor, PrunedPosterior
from mondrian_forest._forest.sharing import state_of
from mondrian_forest.distributed import ClusterLost, fit, learn, predict
from mondrian_forest.distributed import memory as memory_module
from mondrian_forest.distributed.collections import plain

fit_module = sys.modules["mondrian_forest.distributed.fit"]

# Dask warns of its own when clusters start and stop.
pytestmark = pytest.mark.filterwarnings("ignore", "error:::mondrian_forest")

PARAMETERS = {"n_estimators": 3, "random_state": 0}


def stream(n_rows=2000, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((n_rows, 3))
    return X, np.sin(5 * X[:, 0]) + 0.1 * random.normal(size=n_rows)


def arrays(X, y, chunk):
    return da.from_array(X, (chunk, X.shape[1])), da.from_array(y, chunk)


def new_cluster(n_workers=2, **options):
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        **options,
    )


@pytest.fixture(scope="module")
def client():
    with new_cluster() as cluster, Client(cluster) as client:
        yield client


def same_trees(one, other):
    np.testing.assert_array_equal(state_of(one).grove.sizes, state_of(other).grove.sizes)
    for a, b in zip(one.trees_, other.trees_, strict=True):
        for name in ("left_child", "split_feature", "threshold", "split_time"):
            np.testing.assert_array_equal(a.nodes[name], b.nodes[name])
        np.testing.assert_array_equal(a.boxes, b.boxes)


@pytest.mark.usefixtures("client")
class TestTreesOnOtherProcesses:
    @pytest.mark.parametrize("backend", ["loky", "dask"])
    @pytest.mark.parametrize("settings", [PAPER, {}], ids=["paper", "default"])
    def test_results_are_the_local_ones_bit_for_bit(self, backend, settings):
        X, y = stream(400)
        local = MondrianForestRegressor(20, random_state=0, **settings).fit(X, y)
        expected = local.predict(X, return_std=True)
        with joblib.parallel_config(backend, n_jobs=2):
            forest = MondrianForestRegressor(20, random_state=0, **settings).fit(X, y)
            found = forest.predict(X, return_std=True)
        np.testing.assert_array_equal(found, expected)
        same_trees(forest, local)
        X, y = stream(10, seed=1)
        np.testing.assert_array_equal(
            forest.partial_fit(X, y).predict(X), local.partial_fit(X, y).predict(X)
        )

    def test_the_work_is_done_by_the_workers(self, client):
        X, y = stream(300)
        scheduler = client.cluster.scheduler
        before = scheduler.transition_counter
        with joblib.parallel_config("dask"):
            MondrianForestRegressor(6, random_state=0, **PAPER).fit(X, y)
        assert scheduler.transition_counter > before + 6


@pytest.mark.usefixtures("client")
class TestFit:
    @pytest.mark.parametrize("settings", [PAPER, {}], ids=["paper", "default"])
    def test_trees_do_not_depend_on_partitions(self, settings, client):
        X, y = stream(1000)
        forest = MondrianForestRegressor(**PARAMETERS, **settings)
        found = [
            fit(forest, *arrays(X, y, chunk), client=client, block_rows=100)
            for chunk in (1000, 350, 90)
        ]
        for one in found[1:]:
            same_trees(one, found[0])
            np.testing.assert_allclose(one.predict(X), found[0].predict(X), rtol=1e-9)
        assert not hasattr(forest, "_grove")
        assert found[0].score(X, y) > 0.7

    def test_what_comes_out_is_an_ordinary_forest(self, tmp_path):
        X, y = stream()
        forest = fit(MondrianForestRegressor(**PARAMETERS), *arrays(X, y, 500), block_rows=200)
        assert forest.n_samples_seen_ == 2000
        forest.save(tmp_path / "model.mf")  # which checks every index when it is loaded
        again = MondrianForestRegressor.load(tmp_path / "model.mf")
        np.testing.assert_array_equal(again.predict(X), forest.predict(X))
        more = again.partial_fit(X[:50], y[:50])
        assert more.n_samples_seen_ == 2050
        assert np.isfinite(more.predict_distribution(X[:20]).logpdf(y[:20])).all()

    def test_a_data_frame_with_empty_partitions_of_unknown_length(self):
        X, y = stream(600)
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(target=y)
        ddf = dd.from_pandas(frame, npartitions=6)
        ddf = dd.concat([ddf, ddf[ddf.a > 5.0], ddf[ddf.b > 0.5]])
        forest = fit(MondrianForestRegressor(**PARAMETERS, **PAPER), ddf, "target", block_rows=100)
        assert list(forest.feature_names_in_) == ["a", "b", "c"]
        assert forest.n_samples_seen_ == 600 + (X[:, 1] > 0.5).sum()
        whole = MondrianForestRegressor(3, random_state=1, **PAPER)
        table = ddf.compute()
        whole.fit(table[["a", "b", "c"]], table["target"])
        assert forest.posterior_.prior_mean == pytest.approx(whole.posterior_.prior_mean)
        assert forest.posterior_.prior_scale == pytest.approx(whole.posterior_.prior_scale)
        np.testing.assert_array_equal(forest.feature_range_, whole.feature_range_)

    def test_without_rows_it_is_frozen_and_predicts_the_same(self):
        X, y = stream()
        setting = MondrianForestRegressor(**PARAMETERS, **PAPER)
        whole = fit(setting, *arrays(X, y, 500), block_rows=200)
        frozen = fit(setting, *arrays(X, y, 500), block_rows=200, keep_rows=False)
        np.testing.assert_array_equal(frozen.predict(X), whole.predict(X))
        np.testing.assert_allclose(
            frozen.log_marginal_likelihood_, whole.log_marginal_likelihood_, rtol=1e-12
        )
        with pytest.raises(ValueError, match="cannot learn more"):
            frozen.partial_fit(X, y)

    def test_rows_that_are_all_alike(self):
        X, y = np.ones((300, 2)), np.arange(300.0)
        forest = fit(
            MondrianForestRegressor(**PARAMETERS, **PAPER), *arrays(X, y, 90), block_rows=10
        )
        assert state_of(forest).grove.sizes.tolist() == [1, 1, 1]
        assert forest.predict([[1.0, 1.0]])[0] == pytest.approx(149.5, rel=1e-3)

    def test_progress_is_told(self):
        told = []
        X, y = stream(500)
        fit(
            MondrianForestRegressor(**PARAMETERS, **PAPER),
            *arrays(X, y, 100),
            block_rows=50,
            progress=lambda what, count: told.append((what, count)),
        )
        assert told[0] == ("rows", 500)
        assert told[-1] == ("trees", 3)
        assert ("rounds", 3) in told


@pytest.mark.usefixtures("client")
class TestFitRefuses:
    def partitions(self, change):
        X, y = stream(300)
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(target=y)
        ddf = dd.from_pandas(frame, npartitions=3)
        return ddf.map_partitions(change, meta=ddf._meta, enforce_metadata=False)

    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [
            ("b", np.nan, "Partition 1 of X has NaN or infinite values in b"),
            ("c", np.inf, "Partition 1 of X has NaN or infinite values in c"),
            ("a", "text", "Partition 1 of X holds .* in column 'a'"),
            ("target", np.nan, "Partition 1 of y has NaN"),
        ],
    )
    def test_a_partition_is_named_by_its_number(self, column, value, message):
        def change(part):
            if 100 in part.index:
                part = part.astype({column: object}) if isinstance(value, str) else part.copy()
                part.loc[part.index[0], column] = value
            return part

        with pytest.raises(ValueError, match=message):
            fit(MondrianForestRegressor(**PARAMETERS), self.partitions(change), "target")

    def test_other_columns_in_one_partition(self):
        def change(part):
            return part.rename(columns={"a": "z"}) if 100 in part.index else part

        with pytest.raises(ValueError, match="Partition 1 has the columns z, b, c"):
            fit(MondrianForestRegressor(**PARAMETERS), self.partitions(change), "target")

    def test_what_makes_no_sense(self):
        X, y = stream(100)
        forest = MondrianForestRegressor(**PARAMETERS)
        rows, labels = arrays(X, y, 50)
        with pytest.raises(ValueError, match="must be a Dask DataFrame"):
            fit(forest, X, y)
        with pytest.raises(ValueError, match="y must be a Dask series"):
            fit(forest, rows, y)
        with pytest.raises(ValueError, match="2 partitions, and y 4"):
            fit(forest, rows, labels.rechunk(25))
        with pytest.raises(ValueError, match="block_rows"):
            fit(forest, rows, labels, block_rows=0)
        with pytest.raises(ValueError, match="n_estimators"):
            fit(MondrianForestRegressor(0), rows, labels)
        frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b", "c"]), npartitions=2)
        with pytest.raises(ValueError, match="no column 'd'"):
            fit(forest, frame, "d")
        with pytest.raises(ValueError, match="all partitions are empty"):
            fit(forest, frame[frame.a > 7], "c")


@pytest.mark.usefixtures("client")
class TestMeanFunction:
    PARAMETERS = PARAMETERS | {"n_estimators": 10}

    @pytest.mark.parametrize("use", ["subtract", "feature", "both"])
    @pytest.mark.parametrize("n_known", [300, 10_000])
    def test_rows_know_what_models_say_that_have_not_seen_them(self, use, n_known, monkeypatch):
        """A nearest neighbour knows all labels that it has seen."""
        monkeypatch.setattr(fit_module, "_MOST_MEAN_ROWS", n_known)
        monkeypatch.setattr(fit_module, "_SAMPLED_ROWS", 100)
        X, y = stream(1500)
        nearest = KNeighborsRegressor(1)
        given = {"mean_function": nearest, "mean_use": use, "feature_weights": None}
        given["posterior"] = PrunedPosterior(prior_stop=0.5)
        forest = fit(MondrianForestRegressor(**self.PARAMETERS | given), *arrays(X, y, 400))
        state = state_of(forest)
        order = np.argsort(state.arrivals)
        rows, labels = state.rows[order], state.labels[order]
        means = y - labels if use == "subtract" else state.scaling.invert(rows)[:, -1]
        said = np.array([model.predict(X) for model in state.mean_function.regression.models])
        has_seen = said == y
        assert not np.any(means == y)
        np.testing.assert_allclose(labels, y if use == "feature" else y - means, atol=1e-5)
        np.testing.assert_allclose(state.means[order], y - labels, atol=1e-12)
        is_new = ~has_seen.any(axis=0)
        # A fifth is held out for the spread. All others are fitted, as far as they are here.
        assert is_new.sum() == 300 if n_known == 10_000 else is_new.sum() > 900
        np.testing.assert_allclose(means[is_new], said.mean(axis=0)[is_new], atol=1e-5)
        for i in np.flatnonzero(~is_new):
            assert means[i] == pytest.approx(said[~has_seen[:, i], i].item(), abs=1e-5)

    @pytest.mark.parametrize("kind", ["linear", "boosting", "auto"])
    @pytest.mark.parametrize("keep_rows", [True, False])
    def test_forecasts_are_as_good_as_those_of_a_local_fit(self, kind, keep_rows):
        X, y = stream(3000)
        y += 5.0 * X[:, 1]
        unfitted = MondrianForestRegressor(**self.PARAMETERS, mean_function=kind, mean_use="both")
        forest = fit(unfitted, *arrays(X[:2000], y[:2000], 500), keep_rows=keep_rows)
        local = clone(unfitted).fit(X[:2000], y[:2000])
        errors = [np.std(one.predict(X[2000:]) - y[2000:]) for one in (forest, local)]
        assert errors[0] < 1.1 * errors[1]
        if keep_rows:
            forest.partial_fit(X[2000:2500], y[2000:2500])
            assert np.std(forest.predict(X[2500:]) - y[2500:]) < 1.1 * errors[1]


@pytest.mark.parametrize("dtype", ["datetime64[D]", "timedelta64[s]", object])
def test_dates_in_a_partition_of_an_array_are_no_numbers(dtype):
    kind = np.timedelta64 if dtype == "timedelta64[s]" else np.datetime64
    rows = np.array([[kind(1, "D")]], dtype=dtype)
    with pytest.raises(ValueError, match="Partition 3 of X has dates or times"):
        plain(3, rows, None, None)
    with pytest.raises(ValueError, match="Partition 3 of y has dates or times"):
        plain(3, np.ones((1, 1)), rows[:, 0], None)


@pytest.mark.usefixtures("client")
class TestPredict:
    def test_arrays_and_frames_lazily(self):
        X, y = stream(600)
        forest = MondrianForestRegressor(**PARAMETERS).fit(X, y)
        mean, std = forest.predict(X, return_std=True)
        low, high = forest.predict_quantiles(X, [0.1, 0.9]).T
        expected = np.column_stack([mean, std, low, high])
        rows, _ = arrays(X, y, 130)
        lazy = predict(forest, rows, std=True, quantiles=[0.1, 0.9])
        assert lazy.shape == (600, 4)
        np.testing.assert_allclose(lazy.compute(), expected)
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        named = MondrianForestRegressor(**PARAMETERS).fit(frame, y)
        ddf = dd.from_pandas(frame, npartitions=4)
        found = predict(named, ddf[ddf.a > 0.5], std=True, quantiles=[0.1, 0.9]).compute()
        assert list(found.columns) == ["prediction", "std", "q0.1", "q0.9"]
        np.testing.assert_allclose(found, expected[X[:, 0] > 0.5])
        assert list(found.index) == np.flatnonzero(X[:, 0] > 0.5).tolist()
        with pytest.raises(ValueError, match="between 0 and 1"):
            predict(forest, rows, quantiles=[2.0])


@pytest.mark.usefixtures("client")
class TestLearn:
    def test_partitions_and_batches_are_learned_in_turn(self):
        X, y = stream(600)
        expected = MondrianForestRegressor(**PARAMETERS)
        for start in range(0, 600, 200):
            expected.partial_fit(X[start : start + 200], y[start : start + 200])
        found = learn(MondrianForestRegressor(**PARAMETERS), *arrays(X, y, 200), progress=False)
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))
        batches = ((X[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200))
        again = learn(MondrianForestRegressor(**PARAMETERS), batches)
        np.testing.assert_array_equal(again.predict(X), expected.predict(X))
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
        named = learn(MondrianForestRegressor(**PARAMETERS), dd.from_pandas(frame, 3), "y")
        assert list(named.feature_names_in_) == ["a", "b", "c"]
        with pytest.raises(ValueError, match="no rows to learn"):
            learn(MondrianForestRegressor(), [])


def fit_in_small_blocks(client, progress):
    forest = MondrianForestRegressor(4, random_state=0, **PAPER)
    rows, labels = arrays(*stream(2000), 100)
    return fit(forest, rows, labels, client=client, block_rows=50, progress=progress)


class TestFaults:
    def test_a_worker_that_is_killed_changes_nothing(self, client):
        X, y = stream(1500)
        forest = MondrianForestRegressor(4, random_state=0, **PAPER)
        rows, labels = arrays(X, y, 100)
        expected = fit(forest, rows, labels, client=client, block_rows=100)
        pids = list(client.run(os.getpid).values())
        killed = []

        def kill(what, count):
            if (what, count) in (("rounds", 3), ("trees", 2)) and len(killed) < 2:
                killed.append(pids.pop())
                os.kill(killed[-1], signal.SIGKILL)

        found = fit(forest, rows, labels, client=client, block_rows=100, progress=kill)
        client.wait_for_workers(2)  # Dask starts new ones, for the other tests
        assert len(killed) == 2
        assert set(killed).isdisjoint(client.run(os.getpid).values())
        same_trees(found, expected)
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))

    def test_a_lost_scheduler_is_one_clear_error(self):
        cluster = new_cluster(1)
        client = Client(cluster, timeout=5)

        def leave(what, count):
            if (what, count) == ("rounds", 2):
                threading.Thread(target=cluster.close, daemon=True).start()
                time.sleep(1.0)

        try:
            with pytest.raises(ClusterLost, match="cluster was lost"):
                fit_in_small_blocks(client, leave)
        finally:
            client.close(timeout=1)

    @pytest.mark.parametrize("moment", [("rounds", 2), ("trees", 1)])
    def test_cancelled_work_is_one_clear_error(self, moment, client):
        def cancel(what, count):
            if (what, count) == moment:
                client.cancel([Future(key, client) for key in list(client.futures)], force=True)

        with pytest.raises(ClusterLost, match="cancelled"):
            fit_in_small_blocks(client, cancel)

    def test_more_rows_than_a_node_can_count(self, monkeypatch, client):
        monkeypatch.setattr(sys.modules["mondrian_forest.distributed.fit"], "_MOST_ROWS", 1999)
        X, y = stream(2000)
        with pytest.raises(ValueError, match="There are 2,000 rows, and at most 1,999"):
            fit(MondrianForestRegressor(**PARAMETERS), *arrays(X, y, 500), client=client)

    def test_without_a_client(self, monkeypatch):
        from mondrian_forest.distributed import collections

        def none():
            raise ValueError("No clients found")

        monkeypatch.setattr(collections, "default_client", none)
        X, y = stream(50)
        with pytest.raises(ValueError, match="There is no Dask client"):
            fit(MondrianForestRegressor(**PARAMETERS), *arrays(X, y, 25))


def hold(n_bytes):
    """Let the process have at least so much memory, for good."""
    missing = n_bytes - psutil.Process().memory_info().rss
    sys.modules["held"] = np.ones(max(int(missing), 0), np.uint8)


def hog(block):
    """Need more memory than a worker has."""
    too_much = np.ones(500_000_000, np.uint8)
    time.sleep(30.0)
    return block + too_much[0]


class TestTooLittleMemory:
    @pytest.fixture(autouse=True)
    def frequent_looks(self, monkeypatch):
        monkeypatch.setattr(memory_module, "_POLL", 0.2)

    def test_workers_that_cannot_hold_the_program_are_refused_at_once(self):
        with new_cluster(1, memory_limit="200MB") as cluster, Client(cluster) as client:
            rows, labels = arrays(*stream(100), 50)
            with pytest.raises(ClusterLost, match="limit of 200 MB, and a fit needs at least 400"):
                fit(MondrianForestRegressor(**PARAMETERS), rows, labels, client=client)

    def test_paused_workers_are_one_clear_error(self, monkeypatch):
        """Without it, the fit would wait for ever."""
        monkeypatch.setattr(memory_module, "_LONGEST_PAUSE", 1.0)
        with new_cluster(1, memory_limit="400MB") as cluster, Client(cluster) as client:
            client.run(hold, 345e6)
            rows, labels = arrays(*stream(100), 50)
            with pytest.raises(ClusterLost, match=r"\(1 of 1 are paused\): their limit is 400 MB"):
                fit(MondrianForestRegressor(**PARAMETERS), rows, labels, client=client)

    def test_restarts_are_one_clear_error(self, monkeypatch):
        """Dask gives up later, when one and the same task has ended four workers."""
        monkeypatch.setattr(memory_module, "_MOST_RESTARTS", 0)
        with new_cluster(1, memory_limit="400MB") as cluster, Client(cluster) as client:
            rows, labels = arrays(*stream(100), 50)
            with pytest.raises(ClusterLost, match=r"\(\d restarts\): their limit is 400 MB"):
                fit(
                    MondrianForestRegressor(**PARAMETERS),
                    # With meta, Dask does not try the function here.
                    rows.map_blocks(hog, dtype=float, meta=rows._meta),
                    labels,
                    client=client,
                )


class FakeClient:
    """A cluster of two workers, in one state after the other."""

    def __init__(self, *states):
        self.states = list(states)
        self.cancelled = []

    def scheduler_info(self, n_workers):
        assert n_workers == -1
        if len(self.states) > 1:
            self.state = self.states.pop(0)
        status, counts, _ = self.state = self.states[0]
        worker = {"status": status, "memory_limit": 10**9, "metrics": {"task_counts": counts}}
        return {"workers": {"a": worker, "b": worker}}

    def get_events(self, topic):
        assert topic == "worker-restart-memory"
        return self.states[0][2] * ["event"]

    def cancel(self, futures):
        self.cancelled += futures


class TestWatch:
    @pytest.fixture(autouse=True)
    def no_waiting(self, monkeypatch):
        self.left = 50
        self.clock = 0.0

        def wait(_futures, timeout):
            self.clock += timeout
            self.left -= 1
            if self.left > 0:
                raise TimeoutError

        monkeypatch.setattr(memory_module, "wait", wait)
        monkeypatch.setattr(memory_module, "monotonic", lambda: self.clock)

    def test_workers_that_are_busy_or_come_back_are_waited_for(self):
        paused, resting = ("paused", {"memory": 3}, 0), ("running", {}, 3)
        client = FakeClient(
            *(10 * [paused] + [resting] + 10 * [paused]), ("paused", {"executing": 1}, 3)
        )
        memory_module.Watch(client).until_done(["future"])
        assert self.left == 0
        assert client.cancelled == []

    def test_a_pause_that_does_not_end_is_an_error(self):
        client = FakeClient(("paused", {"memory": 3}, 0))
        with pytest.raises(ClusterLost, match="2 of 2 are paused"):
            memory_module.Watch(client).until_done(["future"])
        assert client.cancelled == ["future"]
        assert self.clock == pytest.approx(22.0)

    def test_restarts_of_before_do_not_count(self):
        before = ("running", {"executing": 1}, 7)
        memory_module.Watch(FakeClient(before)).until_done(["future"])
        self.left = 50
        after = ("running", {"executing": 1}, 11)
        watch = memory_module.Watch(client := FakeClient(before, before, after))
        with pytest.raises(ClusterLost, match=r"\(4 restarts\): their limit is 1.0 GB"):
            watch.until_done(["future"])
        assert client.cancelled == ["future"]

    def test_rows_that_cannot_stay_on_the_workers_are_refused(self):
        watch = memory_module.Watch(FakeClient(("running", {}, 0)))
        watch.refuse_too_many_rows(10**6, 8, 10)
        with pytest.raises(
            ClusterLost, match=r"need about 6.8 GB on each of 2 workers, whose .* 1.0 GB"
        ):
            watch.refuse_too_many_rows(10**8, 8, 10)
