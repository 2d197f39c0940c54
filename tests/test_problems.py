"""The test problems have the maxima that they state."""

import numpy as np
import pytest

from benchmarks.problems import branin, hartmann6


@pytest.fixture(params=[branin, hartmann6], ids=lambda problem: problem.name)
def problem(request):
    return request.param


def test_the_stated_points_have_the_stated_maximum(problem):
    np.testing.assert_allclose(problem.function(problem.optimizers), problem.optimum, atol=1e-5)


def test_no_point_has_a_larger_value(problem):
    ends = np.array([(p.low, p.high) for p in problem.space.values()])
    rows = np.random.default_rng(0).uniform(*ends.T, size=(100_000, len(ends)))
    near = problem.optimizers[0] + 1e-3 * np.random.default_rng(1).normal(size=(1000, len(ends)))
    assert problem.function(np.concatenate([rows, near])).max() <= problem.optimum + 1e-5


def test_a_point_has_the_value_of_its_row(problem):
    point = dict(zip(problem.space, problem.optimizers[0], strict=True))
    assert problem(point) == problem.function(problem.optimizers[:1])[0]
    assert problem({**point, "x1": point["x1"] + 0.1}) < problem(point)
