"""Optuna's own test suite for samplers, and tests of what the forest adds."""

import warnings

import numpy as np
import optuna
import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from mondrian_forest.optimize import Optimizer
from mondrian_forest.optimize.optuna_sampler import MondrianSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


class TestOptunasOwnSuite(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return lambda: MondrianSampler(seed=0, n_startup_trials=0, n_candidates=50)


def study(**options):
    return optuna.create_study(sampler=MondrianSampler(n_candidates=200, **{"seed": 0} | options))


def bowl(trial):
    x = trial.suggest_float("x", -5, 5)
    k = trial.suggest_int("k", 1, 9, step=2)
    c = trial.suggest_categorical("c", ["a", "b"])
    return (x - 2) ** 2 + k + (c == "a")


def test_it_finds_the_minimum():
    found = study()
    found.optimize(bowl, n_trials=60)
    assert found.best_value < 1.6
    assert found.best_params["c"] == "b"


def test_a_range_may_have_a_billion_steps():
    found = study(n_startup_trials=2)
    found.optimize(lambda trial: trial.suggest_float("x", 0.0, 1e6, step=1e-3), n_trials=6)
    assert len(found.trials) == 6


def test_a_trial_is_learned_later_if_an_interrupt_comes_first(monkeypatch):
    found = study(n_startup_trials=3)
    found.optimize(bowl, n_trials=3)
    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "tell", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            found.optimize(bowl, n_trials=1)
    found.optimize(bowl, n_trials=1)
    (known,) = found.sampler._known.values()
    assert len(known.optimizer.trials) == 3


def test_a_journal_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a sampler has no journal"):
        MondrianSampler(journal=tmp_path / "run.jsonl")


def test_it_finds_the_maximum():
    found = optuna.create_study(direction="maximize", sampler=MondrianSampler(seed=0))
    found.optimize(lambda trial: -abs(trial.suggest_float("x", 0, 1) - 0.3), n_trials=40)
    assert abs(found.best_params["x"] - 0.3) < 0.05


def test_the_same_seed_gives_the_same_trials():
    first, second, other = study(), study(), study(seed=1)
    for run in (first, second, other):
        run.optimize(bowl, n_trials=25)
    parameters = [trial.params for trial in first.trials]
    assert parameters == [trial.params for trial in second.trials]
    assert parameters != [trial.params for trial in other.trials]


def test_branches_of_a_conditional_space_are_learned_jointly():
    def objective(trial):
        if trial.suggest_categorical("kind", ["line", "wave"]) == "line":
            return 1.0 + trial.suggest_float("slope", 0.0, 1.0)
        period = trial.suggest_float("period", 1e-3, 1.0, log=True)
        return abs(np.log10(period) + 2)

    found = study()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.optimize(objective, n_trials=50)
    assert found.best_params["kind"] == "wave"
    assert found.best_value < 0.2
    late = [trial.params["kind"] for trial in found.trials[30:]]
    assert late.count("wave") > 10


def test_parallel_workers_do_not_repeat_each_other():
    found = study()
    found.optimize(bowl, n_trials=12)
    running = [found.ask() for _ in range(5)]
    values = [trial.suggest_float("x", -5, 5) for trial in running]
    for trial in running:
        trial.suggest_int("k", 1, 9, step=2)
        trial.suggest_categorical("c", ["a", "b"])
    assert len(set(values)) == 5
    found.optimize(bowl, n_trials=20, n_jobs=2)
    assert len(found.get_trials(states=(optuna.trial.TrialState.COMPLETE,))) == 32


def test_the_forest_learns_from_failures_and_pruned_trials():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        if x > 0.8:
            raise ValueError("too large")
        if x > 0.6:
            trial.report(x, 0)
            raise optuna.TrialPruned
        return (x - 0.3) ** 2

    found = study()
    found.optimize(objective, n_trials=50, catch=(ValueError,))
    assert found.best_value < 0.01
    late = [trial.params["x"] > 0.8 for trial in found.trials[30:]]
    assert sum(late) < 8


def test_an_exhausted_finite_space_continues_with_random_points():
    found = study()
    found.optimize(lambda trial: trial.suggest_int("k", 1, 4), n_trials=20)
    assert found.best_value == 1


def test_invalid_options_are_refused_by_the_constructor():
    with pytest.raises(ValueError, match="acquisition must be"):
        MondrianSampler(acquisition="best")


def test_a_sampler_keeps_the_trials_of_two_studies_apart():
    sampler = MondrianSampler(n_candidates=50, n_startup_trials=3, seed=0)
    studies = [optuna.create_study(sampler=sampler) for _ in range(2)]
    for sign, one in zip((1, -1), studies, strict=True):
        one.optimize(lambda trial, sign=sign: sign * trial.suggest_float("x", 0, 1), n_trials=8)
    for one in studies:
        told = {trial.value for trial in sampler._known[one.study_name].optimizer.trials}
        assert told == {trial.value for trial in one.trials[:-1]}


def test_values_outside_of_the_current_range_are_left_out():
    found = study(n_startup_trials=3)
    for high, step in ((10, 1), (10, 5), (4, 2)):
        found.optimize(
            lambda trial, high=high, step=step: trial.suggest_int("k", 0, high, step=step),
            n_trials=4,
        )
    (known,) = found.sampler._known.values()
    told = sorted(trial.point["k"] for trial in known.optimizer.trials)
    is_valid = [t.params["k"] in (0, 2, 4) for t in found.trials[:-1]]
    assert len(told) == sum(is_valid) < len(is_valid)
    assert set(told) <= {0, 1, 2}
