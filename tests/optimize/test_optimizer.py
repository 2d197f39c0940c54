"""Ask and tell: what is asked for, what the forest learns, and runs that continue."""

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from benchmarks.problems import branin
from mondrian_forest import MondrianForestRegressor
from mondrian_forest.optimize import (
    Categorical,
    Integer,
    JournalError,
    Optimizer,
    Ordinal,
    Real,
    SpaceExhausted,
    maximize,
    minimize,
)

SPACE = {
    "x": Real(-5.0, 5.0),
    "rate": Real(1e-4, 1.0, log=True),
    "k": Integer(1, 8),
    "kind": Categorical(["line", "wave"]),
    "period": Real(1.0, 2.0, when={"kind": "wave"}),
}


def objective(point):
    value = (point["x"] - 1) ** 2 + abs(math.log10(point["rate"]) + 2) + point["k"]
    return value + point.get("period", 3.0)


def run(n_trials, **options):
    optimizer = Optimizer(SPACE, **{"random_state": 0, "n_candidates": 200} | options)
    for _ in range(n_trials):
        point = optimizer.ask()
        optimizer.tell(point, objective(point))
    return optimizer


def test_the_same_seed_gives_the_same_points():
    first, second, other = run(30), run(30), run(30, random_state=1)
    points = [trial.point for trial in first.trials]
    assert points == [trial.point for trial in second.trials]
    assert points != [trial.point for trial in other.trials]


def test_optimisation_beats_random_search():
    def regret(**options):
        results = [maximize(branin, branin.space, 60, random_state=s, **options) for s in range(4)]
        return branin.optimum - np.mean([result.best_value for result in results])

    assert regret(n_candidates=200) < 0.7 * regret(n_initial=60)


@pytest.mark.parametrize(
    ("acquisition", "near"), [("ucb", 0.05), ("ei", 0.05), ("pi", 0.3), ("thompson", 0.05)]
)
def test_every_acquisition_finds_the_minimum(acquisition, near):
    optimizer = Optimizer({"x": Real(-5.0, 5.0)}, acquisition=acquisition, random_state=0)
    for _ in range(40):
        point = optimizer.ask()
        optimizer.tell(point, (point["x"] - 2.0) ** 2)
    assert abs(optimizer.best_point["x"] - 2.0) < near


def test_the_acquisition_may_be_a_function():
    asked = []

    def acquisition(distribution, best):
        asked.append(best)
        return distribution.quantile(0.9) - best

    optimizer = run(20, acquisition=acquisition)
    assert len(optimizer.trials) == 20
    values = [trial.value for trial in optimizer.trials]
    assert asked[-1] == -min(values[:-1])  # large values are good


def test_maximising_is_minimising_with_the_opposite_sign():
    down = Optimizer(SPACE, random_state=0, n_candidates=100)
    up = Optimizer(SPACE, maximize=True, random_state=0, n_candidates=100)
    for _ in range(25):
        first, second = down.ask(), up.ask()
        assert first == second
        down.tell(first, objective(first))
        up.tell(second, -objective(second))
    assert up.best_value == -down.best_value


def test_the_first_points_are_a_sobol_sequence():
    optimizer = Optimizer({"x": Real(0.0, 1.0), "y": Real(0.0, 1.0)}, n_initial=16, random_state=0)
    points = optimizer.ask(16)
    for name in ("x", "y"):  # one point in each sixteenth
        assert sorted(int(16 * point[name]) for point in points) == list(range(16))


def test_all_points_of_a_finite_space_are_asked_for_once():
    space = {
        "k": Integer(1, 4),
        "c": Categorical(["a", "b"]),
        "o": Ordinal([1, 2], when={"c": "a"}),
    }
    optimizer = Optimizer(space, random_state=0)
    seen = []
    for _ in range(4 * (2 + 1)):
        point = optimizer.ask()
        seen.append(repr(point))
        optimizer.tell(point, point["k"])
    assert len(set(seen)) == 12
    with pytest.raises(SpaceExhausted, match="all 12 points have been asked for"):
        optimizer.ask()


def test_no_point_of_a_large_finite_space_is_asked_for_twice():
    optimizer = Optimizer({"k": Integer(0, 50_000)}, random_state=0, n_candidates=100)
    for _ in range(60):
        point = optimizer.ask()
        optimizer.tell(point, abs(point["k"] - 777))
    assert len({trial.point["k"] for trial in optimizer.trials}) == 60
    assert optimizer.best_value < 1000


@pytest.mark.parametrize("n_choices", [20_000, 40_000])
def test_a_category_may_have_many_choices(n_choices):
    optimizer = Optimizer({"c": Categorical(list(range(n_choices)))}, n_initial=3, random_state=0)
    for _ in range(6):
        point = optimizer.ask()
        optimizer.tell(point, point["c"] % 7)
    assert len({trial.point["c"] for trial in optimizer.trials}) == 6
    with pytest.raises(ValueError, match=r"must be one of \[0, 1.*\.\.\.\]") as refused:
        optimizer.tell({"c": -1}, 0.0)
    assert len(str(refused.value)) < 200


def test_no_two_points_of_a_continuous_space_share_a_cell():
    optimizer = Optimizer({"x": Real(0.0, 1.0)}, random_state=0)
    for _ in range(100):
        point = optimizer.ask()
        optimizer.tell(point, abs(point["x"] - 0.3))
    x = np.array([trial.point["x"] for trial in optimizer.trials])
    assert len(set(np.floor(x * 1280))) == 100
    assert optimizer.best_value < 1e-3


def test_points_that_are_asked_for_together_differ_and_are_pending():
    optimizer = run(15)
    points = optimizer.ask(6)
    assert len({repr(point) for point in points}) == 6
    assert sum(trial.is_pending for trial in optimizer.trials) == 6
    # Without an assumed value of the first point, the second would be next to it.
    spread = np.std([point["x"] for point in points])
    assert spread > 0.05
    for point in reversed(points):
        optimizer.tell(point, objective(point))
    assert not any(trial.is_pending for trial in optimizer.trials)


def test_pending_points_do_not_change_the_forest():
    alone, together = run(15), run(15)
    asked = together.ask(4)
    first = alone.ask()
    assert asked[0] == first
    queries = together.space.features(together.space.snap(np.random.default_rng(0).random((9, 5))))
    np.testing.assert_array_equal(alone._forest.predict(queries), together._forest.predict(queries))


def test_threads_may_ask_and_tell_at_the_same_time():
    optimizer = Optimizer(SPACE, random_state=0, n_candidates=50)

    def work(_):
        for _ in range(25):
            point = optimizer.ask()
            optimizer.tell(point, objective(point))

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, range(4)))
    assert sorted(trial.number for trial in optimizer.trials) == list(range(100))
    assert len({repr(trial.point) for trial in optimizer.trials}) == 100
    assert optimizer._forest.n_samples_seen_ == 100


def test_a_pickled_optimizer_asks_for_the_same_point():
    optimizer = run(12)
    again = pickle.loads(pickle.dumps(optimizer))
    assert again.ask() == optimizer.ask()


def test_the_forest_is_never_fitted_from_scratch():
    optimizer = run(5)
    optimizer._forest.fit = None
    for _ in range(30):
        point = optimizer.ask()
        optimizer.tell(point, objective(point))
    assert optimizer._forest.n_samples_seen_ == 35


@pytest.mark.parametrize("failure", [math.nan, math.inf, None])
def test_the_forest_learns_from_failures(failure):
    def failing(point):
        return failure if point["x"] > 0.5 else (point["x"] - 0.4) ** 2

    optimizer = Optimizer({"x": Real(0.0, 1.0)}, random_state=0)
    for _ in range(60):
        point = optimizer.ask()
        optimizer.tell(point, failing(point))
    failed = [trial.is_failed for trial in optimizer.trials]
    assert optimizer.best_value < 0.01
    assert optimizer._forest.n_samples_seen_ == 60
    assert 0 < sum(failed) < 25  # half of random points would fail


def test_failures_before_the_first_value_are_learned_with_it():
    optimizer = Optimizer({"x": Real(0.0, 1.0)}, n_initial=2, random_state=0)
    for _ in range(4):
        optimizer.tell(optimizer.ask(), None)
    assert optimizer.best_point is None
    assert math.isnan(optimizer.best_value)
    optimizer.tell({"x": 0.5}, 1.0)
    assert optimizer._forest.n_samples_seen_ == 5
    assert optimizer.best_point == {"x": 0.5}


@pytest.mark.parametrize(
    "constraint",
    [
        lambda p: p["x"] + p["y"] <= 1,
        lambda p: 1 - p["x"] - p["y"],
        lambda p: [1 - p["x"] - p["y"]],
    ],
)
def test_every_point_satisfies_the_constraint(constraint):
    space = {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0)}
    optimizer = Optimizer(space, constraint=constraint, random_state=0, n_candidates=200)
    for _ in range(25):
        point = optimizer.ask()
        assert point["x"] + point["y"] <= 1
        optimizer.tell(point, -point["x"] - point["y"])
    assert optimizer.best_value < -0.9


def test_a_constraint_that_allows_no_point_is_reported():
    with pytest.raises(ValueError, match="allows no point at all"):
        Optimizer({"k": Integer(1, 5)}, constraint=lambda _: False)
    optimizer = Optimizer({"x": Real(0, 1)}, constraint=lambda _: False, n_candidates=10)
    with pytest.raises(SpaceExhausted, match="the constraint allows hardly any"):
        optimizer.ask()


def test_only_candidates_are_asked_for_if_they_are_given():
    generator = np.random.default_rng(0)
    grid = {"x": generator.uniform(-1, 1, 500), "y": generator.uniform(-1, 1, 500)}
    optimizer = Optimizer(
        {"x": Real(-1, 1), "y": Real(-1, 1)}, candidates=grid, maximize=True, random_state=0
    )
    allowed = {(float(x), float(y)) for x, y in zip(grid["x"], grid["y"], strict=True)}
    for _ in range(50):
        point = optimizer.ask()
        assert min(abs(point["x"] - x) + abs(point["y"] - y) for x, y in allowed) < 1e-12
        optimizer.tell(point, -(point["x"] ** 2) - point["y"] ** 2)
    best = max(-(x**2) - y**2 for x, y in allowed)
    assert optimizer.best_value > best - 0.02


def test_a_point_that_was_not_asked_for_can_be_told():
    optimizer = Optimizer({"x": Real(0.0, 1.0)}, random_state=0)
    optimizer.tell({"x": 0.25}, 3.0)
    assert optimizer.best_point == {"x": 0.25}
    assert optimizer.trials[0].value == 3.0


def test_a_given_forest_is_copied_and_used():
    forest = MondrianForestRegressor(3, posterior="hierarchical")
    optimizer = run(20, forest=forest)
    assert len(optimizer._forest.trees_) == 3
    assert not hasattr(forest, "n_samples_seen_")


@pytest.mark.parametrize("acquisition", ["ucb", "thompson"])
@pytest.mark.parametrize(("use", "found"), [("subtract", -0.9), ("feature", -0.3), ("both", -0.9)])
def test_a_forest_around_a_mean_function_finds_the_end_of_a_slope(acquisition, use, found):
    forest = MondrianForestRegressor(
        5, posterior="hierarchical", min_samples_split=2, mean_function="linear", mean_use=use
    )
    space = {"x": Real(0.0, 1.0), "y": Real(0.0, 1.0)}
    optimizer = Optimizer(space, forest=forest, acquisition=acquisition, random_state=0)
    for _ in range(40):
        point = optimizer.ask()
        optimizer.tell(point, 5.0 * point["x"] - point["y"])
    assert optimizer._forest.mean_function_ == ("linear", use)
    assert optimizer.best_value < found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acquisition": "best"}, "acquisition must be"),
        ({"kappa": -1}, "kappa must be"),
        ({"n_initial": 0}, "n_initial must be"),
        ({"n_candidates": 0}, "n_candidates must be"),
        ({"maximize": "yes"}, "maximize must be"),
        ({"constraint": 3}, "constraint must be"),
        ({"candidates": {"y": [1]}}, "candidates must have a list of values for each parameter"),
        ({"candidates": {"x": []}}, "non-empty lists of the same length"),
        ({"candidates": {"x": [7.0]}}, "in the candidates, x must be a number"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Optimizer({"x": Real(0.0, 1.0)}, **options)


@pytest.mark.parametrize(
    ("point", "value", "message"),
    [
        ({"x": 3.0}, 1.0, "x must be a number"),
        ({}, 1.0, "lacks 'x'"),
        ({"x": 0.5}, "good", "a value must be a number"),
    ],
)
def test_invalid_points_and_values_are_refused(point, value, message):
    optimizer = Optimizer({"x": Real(0.0, 1.0)})
    with pytest.raises(ValueError, match=message):
        optimizer.tell(point, value)
    assert optimizer.trials == []


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_an_invalid_number_of_points_is_refused(n):
    with pytest.raises(ValueError, match="n must be an integer of at least 1"):
        Optimizer({"x": Real(0.0, 1.0)}).ask(n)


class TestMinimize:
    def test_the_result_holds_all_trials_and_the_best(self):
        result = minimize(objective, SPACE, 40, random_state=0, n_candidates=200)
        assert result.best_value == objective(result.best_point) == min(result.values)
        assert [trial.number for trial in result.trials] == list(range(40))
        np.testing.assert_array_equal(result.best_so_far(), np.minimum.accumulate(result.values))

    def test_maximize_finds_the_maximum(self):
        result = maximize(lambda p: -abs(p["x"] - 0.3), {"x": Real(0, 1)}, 40, random_state=0)
        assert abs(result.best_point["x"] - 0.3) < 0.02

    def test_an_exception_is_a_failed_trial_and_its_message_is_kept(self):
        def failing(point):
            if point["x"] > 0.5:
                raise RuntimeError("too large")
            return point["x"]

        result = minimize(failing, {"x": Real(0, 1)}, 15, random_state=0)
        failed = [trial.number for trial in result.trials if trial.is_failed]
        assert failed
        assert result.errors == dict.fromkeys(failed, "RuntimeError: too large")
        assert np.isfinite(result.best_value)

    def test_an_interrupt_ends_the_run(self):
        def interrupted(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            minimize(interrupted, {"x": Real(0, 1)}, 3)

    def test_a_finite_space_ends_the_run(self):
        result = minimize(lambda p: p["k"], {"k": Integer(1, 5)}, 100, random_state=0)
        assert len(result.trials) == 5
        assert result.best_point == {"k": 1}

    def test_the_plot_shows_values_the_best_value_and_failures(self):
        result = minimize(
            lambda p: math.nan if p["x"] > 0.3 else p["x"], {"x": Real(0, 1)}, 20, random_state=0
        )
        display = result.plot()
        assert display.ax_.get_xlabel() == "trials"
        labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
        assert labels == ["trial", "best so far", "failed"]

    @pytest.mark.parametrize("n_trials", [0, 2.5, True])
    def test_an_invalid_number_of_trials_is_refused(self, n_trials):
        with pytest.raises(ValueError, match="n_trials must be an integer of at least 1"):
            minimize(objective, SPACE, n_trials)

    def test_an_objective_that_is_not_a_function_is_refused(self):
        with pytest.raises(ValueError, match="objective must be a function"):
            minimize(3, SPACE)


class TestJournal:
    def test_a_run_cut_at_any_byte_continues_as_if_it_had_not_been_cut(self, tmp_path):
        whole = tmp_path / "whole.jsonl"
        points = [trial.point for trial in run(14, journal=whole, n_initial=4).trials]
        content = whole.read_bytes()
        path = tmp_path / "cut.jsonl"
        for end in [*range(0, len(content), 97), len(content) - 1]:
            path.write_bytes(content[:end])
            is_torn = not (end == 0 or content[:end].endswith(b"\n"))
            with pytest.warns(RuntimeWarning, match="is incomplete") if is_torn else nullcontext():
                resumed = Optimizer(
                    SPACE, journal=path, n_initial=4, n_candidates=200, random_state=0
                )
            done = sum(not trial.is_pending for trial in resumed.trials)
            for _ in range(14 - done):
                point = resumed.ask()
                resumed.tell(point, objective(point))
            assert [trial.point for trial in resumed.trials] == points
            assert [trial.value for trial in resumed.trials] == [objective(p) for p in points]
            assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())
            resumed.close()

    def test_a_killed_process_loses_the_pending_trial_only(self, tmp_path):
        journal = tmp_path / "journal.jsonl"
        script = tmp_path / "run.py"
        script.write_text(
            "import sys, time\n"
            "from mondrian_forest.optimize import Real, minimize\n"
            "def slow(point):\n"
            "    time.sleep(float(sys.argv[2]))\n"
            "    return (point['x'] - 0.3) ** 2\n"
            "result = minimize(slow, {'x': Real(0, 1)}, 25, journal=sys.argv[1], random_state=7)\n"
            "print([trial.point['x'] for trial in result.trials])\n"
        )
        process = subprocess.Popen([sys.executable, script, journal, "0.05"])
        while not journal.exists() or journal.read_bytes().count(b"tell") < 8:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        told = journal.read_bytes().count(b"tell")
        assert told < 25
        commands = [(journal, "0"), (tmp_path / "other.jsonl", "0")]
        outputs = [
            subprocess.run(
                [sys.executable, script, *arguments], capture_output=True, text=True, check=True
            ).stdout
            for arguments in commands
        ]
        assert outputs[0] == outputs[1]
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        assert sum("tell" in line for line in lines) == 25
        assert sum("ask" in line for line in lines) == 25

    def test_a_random_seed_is_kept_in_the_file(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        first = run(3, journal=path, random_state=None)
        first.close()
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(path.read_bytes())
        again = Optimizer(SPACE, journal=copy, n_candidates=200)
        assert again.seed == first.seed
        assert again.ask() == first.ask()

    def test_pending_points_are_asked_for_again(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with run(12, journal=path) as optimizer:
            asked = optimizer.ask(3)
        assert Optimizer(SPACE, journal=path, random_state=0).ask(3) == asked

    def test_failures_are_in_the_file(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        with Optimizer({"x": Real(0, 1)}, journal=path, random_state=0) as optimizer:
            optimizer.tell(optimizer.ask(), None)
            optimizer.tell(optimizer.ask(), 1.0)
        again = Optimizer({"x": Real(0, 1)}, journal=path, random_state=0)
        assert [trial.is_failed for trial in again.trials] == [True, False]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"nonsense\n", "line 1 is not valid JSON"),
            (b"[1]\n", "is not a journal of an optimiser"),
            (b"a note without a line's end", "is not a journal of an optimiser"),
            (b"[" * 100_000 + b"\n", "line 1 is nested too deeply"),
            (b'{"format": 1, "seed": null}\n', "its seed is None"),
            (b'{"format": 99}\n', "has format 99, but this version reads format 1 only"),
        ],
    )
    def test_a_file_that_is_not_a_journal_is_refused(self, tmp_path, content, message):
        path = tmp_path / "journal.jsonl"
        path.write_bytes(content)
        with pytest.raises(JournalError, match=message):
            Optimizer(SPACE, journal=path)
        assert path.read_bytes() == content

    def test_the_journal_of_another_run_is_refused(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        run(2, journal=path).close()
        with pytest.raises(JournalError, match="another run: its space is"):
            Optimizer({"x": Real(0, 1)}, journal=path)
        with pytest.raises(JournalError, match="another run: its seed is 0, not 3"):
            Optimizer(SPACE, journal=path, random_state=3)
        with pytest.raises(JournalError, match="another run: its maximize is False"):
            Optimizer(SPACE, journal=path, maximize=True, random_state=0)

    def test_the_message_names_an_invalid_line(self, tmp_path):
        path = tmp_path / "journal.jsonl"
        run(2, journal=path).close()
        path.write_text(path.read_text() + '{"tell": 99, "point": {}, "value": 1}\n')
        with pytest.raises(JournalError, match="line 6 of the journal is not valid"):
            Optimizer(SPACE, journal=path, random_state=0)
