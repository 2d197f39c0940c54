"""The comparison of quality runs, and scores the competitors' distributions rightly."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks.quality import UnknownName, run
from benchmarks.quality.report import TIMED, mean_ranks, targets
from benchmarks.quality.scores import (
    SHARP,
    Blur,
    Gaussian,
    QuantileDistribution,
    as_distribution,
    blur_of_labels,
    coverage_error,
    pit_of_rounded,
    rounding_step,
    score,
)
from benchmarks.quality.tables import split

ROOT = Path(__file__).parents[1]
COARSE = Blur(highest=40.0, least_tail=0.1)


@pytest.fixture
def crooked():
    """Skew distributions of 30 rows by seven quantiles, and labels inside and outside of them."""
    generator = np.random.default_rng(0)
    levels = np.array([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
    quantiles = np.cumsum(generator.exponential(0.3, (30, 7)), axis=1)
    return QuantileDistribution(levels, quantiles, SHARP), np.linspace(-1.0, 4.0, 30)


def test_exact_normal_quantiles_score_like_the_normal():
    levels = np.arange(1, 100) / 100
    y = np.random.default_rng(0).normal(0.3, 2.0, 4000)
    rows = np.ones((len(y), 1))
    found = QuantileDistribution(levels, rows * norm.ppf(levels, 0.3, 2.0), SHARP)
    exact = as_distribution(Gaussian(0.3 * rows[:, 0], 2.0 * rows[:, 0]), SHARP)
    np.testing.assert_allclose(found.mean(), 0.3, atol=1e-12)
    np.testing.assert_allclose(found.cdf(y), exact.cdf(y), atol=2e-3)
    np.testing.assert_allclose(found.crps(y), exact.crps(y), atol=0.02)
    assert found.crps(y).mean() == pytest.approx(exact.crps(y).mean(), abs=2e-3)
    assert found.logpdf(y).mean() == pytest.approx(exact.logpdf(y).mean(), abs=0.01)


def test_a_density_from_quantiles_integrates_to_the_cdf(crooked):
    found, y = crooked
    row = 11
    one = QuantileDistribution(found.levels, found.quantiles[[row]], SHARP)

    def density(place):
        return float(np.exp(one.logpdf(np.array([place])))[0])

    kinks = np.sort([*one.quantiles[0], y[row]])
    pieces = zip([-np.inf, *kinks], kinks, strict=False)
    mass = sum(quad(density, *piece)[0] for piece in pieces if piece[1] <= y[row])
    assert mass == pytest.approx(found.cdf(y)[row], abs=1e-6)


def test_crps_from_quantiles_is_the_integral_of_its_definition(crooked):
    found, y = crooked
    places = np.linspace(-15.0, 20.0, 35_001)
    for row in (0, 12, 29):
        below = found.quantiles[[row]]
        one = QuantileDistribution(found.levels, np.repeat(below, len(places), axis=0), SHARP)
        square = (one.cdf(places) - (places >= y[row])) ** 2
        assert found.crps(y)[row] == pytest.approx(np.trapezoid(square, places), abs=2e-3)


def test_the_order_of_crossing_quantiles_does_not_matter(crooked):
    found, y = crooked
    mixed = QuantileDistribution(found.levels, found.quantiles[:, ::-1], SHARP)
    np.testing.assert_array_equal(mixed.crps(y), found.crps(y))


def test_tied_quantiles_have_the_highest_density_and_the_middle_of_the_cdf():
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    found = QuantileDistribution(levels, np.array([[0.0, 1.0, 1.0, 1.0, 2.0]]), COARSE)
    y = np.ones(1)
    assert np.exp(found.logpdf(y))[0] == pytest.approx(40.0)
    assert found.cdf(y)[0] == pytest.approx(0.5)


def test_a_label_far_outside_of_tied_quantiles_costs_little_more_than_its_distance():
    found = QuantileDistribution(np.array([0.1, 0.5, 0.9]), np.zeros((1, 3)), COARSE)
    assert found.logpdf(np.array([2.0]))[0] == pytest.approx(np.log(0.1 / 0.1) - 2.0 / 0.1, abs=0.3)


def test_no_density_counts_for_more_than_one_over_the_rounding_step():
    y = np.round(np.random.default_rng(0).normal(size=500), 1)
    step = rounding_step(y)
    assert blur_of_labels(step).highest == pytest.approx(10.0)
    certain = score(Gaussian(y, np.zeros(len(y))), y, step)
    assert certain["nlpd"] == pytest.approx(-np.log(10.0))
    assert certain["crps"] == pytest.approx(0.0, abs=1e-5)


def test_fine_labels_have_the_general_limit():
    blur = blur_of_labels(rounding_step(np.random.default_rng(0).normal(size=5000)))
    assert blur.highest == pytest.approx(norm.pdf(0.0, scale=0.01))


def test_coverage_error_of_a_forecast_that_is_too_sure():
    # No label inside any interval: the widest level, 95%, is missed by all of itself.
    assert coverage_error(np.array([0.001, 0.999])) == pytest.approx(0.95)
    assert coverage_error((np.arange(1000) + 0.5) / 1000) < 0.002


def test_rounded_labels_of_a_perfect_forecast_are_uniform():
    generator = np.random.default_rng(0)
    centre = generator.normal(size=20_000)
    for width in (0.05, 0.5, 3.0):  # of a step of one
        y = np.round(generator.normal(centre, width))
        forecast = as_distribution(Gaussian(centre, np.full(len(y), width)), SHARP)
        assert coverage_error(pit_of_rounded(forecast, y, 1.0)) < 0.015
    sure = as_distribution(Gaussian(np.round(centre), np.full(len(centre), 0.01)), SHARP)
    assert coverage_error(pit_of_rounded(sure, np.round(centre), 1.0)) < 0.015
    assert coverage_error(sure.cdf(np.round(centre))) == pytest.approx(0.9)


def test_rounded_labels_of_a_forecast_that_is_too_sure_are_outside():
    far = as_distribution(Gaussian(np.zeros(1000), np.full(1000, 0.1)), SHARP)
    assert coverage_error(pit_of_rounded(far, np.full(1000, 5.0), 1.0)) == pytest.approx(0.95)


def test_a_split_is_standardised_by_its_training_rows_and_shares_none():
    X = np.arange(1000.0)[:, None]
    parts = split("any", X, 3.0 * X[:, 0] + 5.0, seed=1, quick=False)
    assert len(parts.y_train) == 800
    assert parts.y_train.mean() == pytest.approx(0.0)
    assert parts.y_train.std() == pytest.approx(1.0)
    assert set(parts.X_train[:, 0]).isdisjoint(parts.X_test[:, 0])


@pytest.fixture
def results():
    """Two tables on which ours has the lower NLPD, and a higher RMSE on the second."""
    names = ("rmse", "nlpd", "crps", "coverage_error", "rounded_coverage_error")
    names = (*names, "fit_seconds", "fit_processor_seconds")
    ours = ([1.0, 0.1, 0.3, 0.02, 0.07, 1.0, 1.0], [1.2, 0.2, 0.4, 0.06, 0.05, 1.0, 1.0])
    theirs = ([2.0, 0.3, 0.2, 0.10, 0.1, 4.0, 3.0], [1.0, 0.3, 0.5, 0.10, 0.1, 9.0, 3.0])
    return {
        table: {
            "ours": dict(zip(names, mine, strict=True)),
            TIMED: dict(zip(names, mine, strict=True)),
            "ExtraTrees": dict(zip(names, other, strict=True)),
            "RandomForest": dict(zip(names, other, strict=True)),
        }
        for table, mine, other in zip(("a", "b"), ours, theirs, strict=True)
    }


def test_ranks_share_ties(results):
    ranks = mean_ranks(results, "crps", ["ours", "ExtraTrees", "RandomForest"])
    assert ranks == {"ours": 2.0, "ExtraTrees": 2.0, "RandomForest": 2.0}


def test_targets_are_judged(results):
    judged = [is_met for _, _, is_met in targets(results, "ours", ["ExtraTrees", "RandomForest"])]
    first_in_nlpd, first_in_crps, crps_ratio, *judged = judged
    rmse_mean, rmse_each, coverage, rounded, fit = judged
    assert first_in_nlpd
    assert not first_in_crps
    assert not crps_ratio
    assert rmse_mean
    assert not rmse_each
    assert coverage
    assert not rounded
    assert fit


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownName, match="unknown method 'nonsense': choose from ours, peers"):
        next(run(True, None, methods=["nonsense"]))


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.quality", "--quick", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        # Threads that wait in loops make minutes of seconds when tests run side by side.
        env={**os.environ, "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quality")


@pytest.fixture(scope="module")
def finished(folder):
    done = command("--cache", folder / "cache", "--output", folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def tables(finished, folder):  # noqa: ARG001 - the files are there when it is finished
    return json.loads((folder / "results.json").read_text())["tables"]


def test_the_command_writes_its_tables(tables, folder):
    assert [table["title"] for table in tables] == [
        "RMSE",
        "NLPD",
        "CRPS",
        "Worst coverage error",
        "Worst coverage error of rounded labels",
        "Fit time, seconds",
        "Prediction time, seconds",
        "Mean ranks",
        "Ablation",
        "Targets",
    ]
    assert [row["data"] for row in tables[0]["rows"]] == ["friedman1", "diabetes"]
    assert {row["met"] for row in tables[-1]["rows"]} <= {"yes", "no"}
    assert (folder / "results.md").read_text().count("\n|---") == len(tables)


def test_what_is_in_the_cache_is_not_fitted_again(finished, folder):
    # The times would differ.
    assert command("--cache", folder / "cache").stdout == finished.stdout


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("RandomForest", "sklearn"),
        ("ExtraTrees", "sklearn"),
        ("quantile-forest", "quantile_forest"),
        ("NGBoost", "ngboost"),
        ("LightGBM", "lightgbm"),
        ("GP", "sklearn"),
    ],
)
def test_a_competitor_beats_the_constant_forecast(name, module, tables):
    if find_spec(module) is None:
        pytest.skip(f"{name} is compared only where {module} is installed")
    rmse, _, crps = (table["rows"][0][name] for table in tables[:3])
    # The standard normal has an RMSE of 1 and a CRPS of 0.56 on standardised labels.
    assert rmse < 0.95
    assert crps < 0.54
