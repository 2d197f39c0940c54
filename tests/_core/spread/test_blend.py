"""Forecasts blended with the labels near a row, against SciPy and the definitions."""

import numpy as np
import pytest
from scipy.stats import norm

from mondrian_forest._core.labels import Pruned
from mondrian_forest._core.labels.model import Summary
from mondrian_forest._core.mixtures.mixture import cumulative, log_density
from mondrian_forest._core.moments import Moments
from mondrian_forest._core.spread.blend import (
    Blend,
    blend_labels,
    crps_of_labels,
    labels_at,
    least_width,
    with_moments,
)

from .mixtures import mixtures, moments_of

BLEND = Blend(0.7, 0.1, False)
LEAST = 1e-3


def near_labels(n_rows=3, n_labels=40, seed=0):
    """Return labels with ties and two groups; the last row has equal ones only."""
    generator = np.random.default_rng(seed)
    labels = generator.normal(1.0, 2.0, (n_rows, n_labels))
    labels[:, : n_labels // 2] = np.round(labels[:, : n_labels // 2]) + 8.0
    labels[-1] = 3.0
    return np.sort(labels, axis=1)


def distant_labels(n_rows=3, n_labels=9, seed=0):
    """Return labels that are farther from each other than a Gaussian about one of them is wide."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n_labels) + generator.uniform(-0.2, 0.2, (n_rows, n_labels))
    assert (np.diff(labels) > BLEND.bandwidth * labels.std(axis=1, keepdims=True)).all()
    return labels


def blended(is_gaussian, labels, blend=BLEND, least=LEAST):
    """Return mixtures and moments, before and after they are blended with labels."""
    mixture, mean = mixtures(is_gaussian, n_rows=len(labels))
    moments = moments_of(mixture, mean)
    new_moments, new_mixture = blend_labels(mixture, moments, labels, blend, least)
    return mixture, moments, new_mixture, new_moments


def shrunk_labels_at(labels, i, width, y):
    """Return distribution function and density of labels that keep their variance."""
    centre, deviation = labels[i].mean(), labels[i].std()
    return labels_at(labels, i, centre, np.sqrt(1.0 - (width / deviation) ** 2), width, y)


def mean_and_variance(mixture, i):
    """Return the moments of mixture i by the law of total variance."""
    part = slice(mixture.offset[i], mixture.offset[i + 1])
    weight, location = mixture.weight[part], mixture.location[part]
    variance = mixture.scale[part] ** 2
    if len(mixture.degrees):
        degrees = mixture.degrees[part]
        is_student = np.isfinite(degrees)
        variance[is_student] *= degrees[is_student] / (degrees[is_student] - 2.0)
    mean = weight @ location
    return mean, weight @ (variance + (location - mean) ** 2)


def density_of(mixture, y):
    found = np.empty(len(y))
    log_density(mixture, y, found)
    return np.exp(found)


def cumulative_of(mixture, y):
    found = np.empty(len(y))
    cumulative(mixture, y, found)
    return found


@pytest.mark.parametrize("is_gaussian", [True, False])
class TestBlendLabels:
    def test_weights_add_up_to_one(self, is_gaussian):
        _, _, mixture, _ = blended(is_gaussian, near_labels())
        total = np.add.reduceat(mixture.weight, mixture.offset[:-1])
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)

    def test_the_mean_is_that_of_the_components(self, is_gaussian):
        _, _, mixture, moments = blended(is_gaussian, near_labels())
        expected = [mean_and_variance(mixture, i)[0] for i in range(3)]
        np.testing.assert_allclose(moments.mean, expected, rtol=1e-12)

    def test_the_parts_of_the_variance_add_up_to_that_of_the_components(self, is_gaussian):
        _, _, mixture, moments = blended(is_gaussian, near_labels())
        expected = [mean_and_variance(mixture, i)[1] for i in range(3)]
        np.testing.assert_allclose(sum(moments[1:]), expected, rtol=1e-12)

    def test_grouping_keeps_the_moments_of_the_labels(self, is_gaussian):
        """A share of 1 leaves the labels alone, each with a Gaussian of the same width."""
        labels = near_labels()
        _, _, mixture, _ = blended(is_gaussian, labels, Blend(1.0, 0.3, False))
        assert (np.diff(mixture.offset) < 4 + 20).all()  # there are 40 labels
        deviation = labels.std(axis=1)
        width = np.maximum(0.3 * deviation, LEAST)
        for i in range(3):
            mean, variance = mean_and_variance(mixture, i)
            assert mean == pytest.approx(labels[i].mean(), rel=1e-12)
            assert variance == pytest.approx(max(deviation[i], width[i]) ** 2, rel=1e-9)

    def test_components_of_the_trees_stay_but_for_their_weights(self, is_gaussian):
        before, _, after, _ = blended(is_gaussian, near_labels())
        for i in range(3):
            old = slice(before.offset[i], before.offset[i + 1])
            new = slice(after.offset[i], after.offset[i] + old.stop - old.start)
            np.testing.assert_allclose(after.weight[new], 0.3 * before.weight[old], rtol=1e-12)
            for name in ("location", "scale") if is_gaussian else ("location", "scale", "degrees"):
                old_part, new_part = getattr(before, name)[old], getattr(after, name)[new]
                np.testing.assert_array_equal(new_part, old_part)

    def test_labels_have_infinite_degrees_unless_all_components_are_gaussian(self, is_gaussian):
        before, _, after, _ = blended(is_gaussian, near_labels())
        n_new = len(after.weight) - len(before.weight)
        assert n_new > 3
        if is_gaussian:
            assert len(after.degrees) == 0
        else:
            assert len(after.degrees) == len(after.weight)
            assert np.isinf(after.degrees).sum() == n_new

    @pytest.mark.parametrize("y", [-1.0, 0.3, 2.2, 4.0, 9.5])
    def test_density_is_mixed_from_that_of_trees_and_labels(self, is_gaussian, y):
        labels = distant_labels()
        before, _, after, _ = blended(is_gaussian, labels)
        assert (np.diff(after.offset) == 4 + 9).all()
        point = np.full(3, y)
        width = BLEND.bandwidth * labels.std(axis=1)
        own = [shrunk_labels_at(labels, i, width[i], y)[1] for i in range(3)]
        expected = 0.3 * density_of(before, point) + 0.7 * np.array(own)
        np.testing.assert_allclose(density_of(after, point), expected, rtol=1e-9, atol=1e-11)

    @pytest.mark.parametrize("y", [-1.0, 0.3, 2.2, 4.0, 9.5])
    def test_distribution_function_is_mixed_from_that_of_trees_and_labels(self, is_gaussian, y):
        labels = distant_labels()
        before, _, after, _ = blended(is_gaussian, labels)
        point = np.full(3, y)
        width = BLEND.bandwidth * labels.std(axis=1)
        own = [shrunk_labels_at(labels, i, width[i], y)[0] for i in range(3)]
        expected = 0.3 * cumulative_of(before, point) + 0.7 * np.array(own)
        np.testing.assert_allclose(cumulative_of(after, point), expected, rtol=1e-9)

    def test_grouping_hardly_changes_the_distribution_function(self, is_gaussian):
        labels = near_labels(n_labels=800)[:1]
        before, _, after, _ = blended(is_gaussian, labels)
        assert len(after.weight) < 100
        width = BLEND.bandwidth * labels.std()
        for y in np.linspace(-4.0, 14.0, 50):
            point = np.array([y])
            expected = (
                0.3 * cumulative_of(before, point)[0]
                + 0.7 * shrunk_labels_at(labels, 0, width, y)[0]
            )
            assert cumulative_of(after, point)[0] == pytest.approx(expected, abs=2e-3)

    def test_no_gaussian_is_narrower_than_the_least_width(self, is_gaussian):
        labels = distant_labels()
        _, _, after, _ = blended(is_gaussian, labels, least=0.45)
        new = np.concatenate([np.arange(4, 13) + start for start in after.offset[:-1]])
        np.testing.assert_allclose(after.scale[new], 0.45, rtol=1e-12)

    def test_equal_labels_become_one_gaussian_of_the_least_width(self, is_gaussian):
        _, _, after, _ = blended(is_gaussian, np.full((3, 5), 2.5))
        np.testing.assert_array_equal(np.diff(after.offset), 5)
        last = after.offset[1:] - 1
        np.testing.assert_array_equal(after.location[last], 2.5)
        np.testing.assert_array_equal(after.scale[last], LEAST)
        np.testing.assert_allclose(after.weight[last], 0.7, rtol=1e-12)

    def test_labels_far_from_zero_are_told_apart(self, is_gaussian):
        """The same labels, a billion away: rounding must not hide their differences."""
        labels = np.round(64.0 * near_labels()) / 64.0  # exact after the move
        _, _, near, _ = blended(is_gaussian, labels)
        _, _, far, _ = blended(is_gaussian, labels + 2.0**30)
        np.testing.assert_array_equal(near.offset, far.offset)
        is_label = np.concatenate([np.arange(n) >= 4 for n in np.diff(near.offset)])
        np.testing.assert_allclose(far.scale[is_label], near.scale[is_label], rtol=1e-6)
        np.testing.assert_allclose(
            far.location[is_label] - 2.0**30, near.location[is_label], atol=1e-6
        )

    def test_the_distance_of_the_labels_from_the_forecast_counts_as_branching(self, is_gaussian):
        """Labels about the forecast mean, and then all of them one farther."""
        mixture, mean = mixtures(is_gaussian)
        moments = moments_of(mixture, mean)
        labels = mean[:, None] + np.array([-1.0, 0.0, 1.0])
        near, far = (
            blend_labels(mixture, moments, labels + shift, BLEND, LEAST)[0] for shift in (0.0, 1.0)
        )
        np.testing.assert_allclose(far.branching - near.branching, 0.7 * 0.3, rtol=1e-9)
        for name in ("posterior", "between_trees", "noise"):
            np.testing.assert_allclose(getattr(far, name), getattr(near, name), rtol=1e-9)


class TestLabelsAt:
    @pytest.mark.parametrize("y", [-3.0, 0.0, 1.7, 3.0, 12.0])
    @pytest.mark.parametrize("i", range(3))
    def test_is_the_mean_of_gaussians_about_the_labels(self, i, y):
        labels = near_labels()
        below, density = labels_at(labels, i, 0.0, 1.0, 0.4, y)
        assert below == pytest.approx(norm.cdf(y, labels[i], 0.4).mean(), abs=1e-12)
        assert density == pytest.approx(norm.pdf(y, labels[i], 0.4).mean(), abs=1e-10)


class TestCrpsOfLabels:
    @pytest.mark.parametrize("y", [-50.0, 0.3, 3.0, 60.0])
    @pytest.mark.parametrize("n_labels", [1, 2, 7, 40])
    def test_is_the_mean_distance_less_half_of_that_between_labels(self, n_labels, y):
        labels = near_labels(n_labels=n_labels, seed=n_labels)
        for i, row in enumerate(labels):
            expected = np.abs(y - row).mean() - 0.5 * np.abs(row[:, None] - row).mean()
            assert crps_of_labels(labels, i, y) == pytest.approx(expected, rel=1e-12, abs=1e-12)

    def test_of_labels_far_from_zero_keeps_its_digits(self):
        labels = np.round(64.0 * near_labels()) / 64.0
        near, far = (
            crps_of_labels(labels, 0, 1.5),
            crps_of_labels(labels + 2.0**40, 0, 1.5 + 2.0**40),
        )
        assert far == pytest.approx(near, rel=1e-12)


class TestLeastWidth:
    @pytest.mark.parametrize("step", [0.01, 1.0, 500.0])
    def test_makes_rounded_labels_that_are_equally_frequent_nearly_flat(self, step):
        labels = step * np.arange(-40.0, 41.0)
        summary = Summary(Moments(81, 0.0, float((labels**2).sum())), 1, step)
        width = least_width(Pruned.estimate(summary).noise_variance)
        density = [
            labels_at(labels[None], 0, 0.0, 1.0, width, y)[1] for y in np.linspace(-step, step, 41)
        ]
        np.testing.assert_allclose(density, 1.0 / (81 * step), rtol=0.05)

    def test_is_no_wider_than_half_of_the_resolution(self):
        assert least_width(0.2**2 / 12.0) == pytest.approx(0.1)


def test_labels_take_over_the_moments_that_the_trees_predict():
    labels = np.sort(np.random.default_rng(0).normal(5.0, 3.0, (4, 30)), axis=1)
    labels[3] = 7.0  # without any variance
    mean, deviation = np.array([0.0, 1e6, -3.0, 2.0]), np.array([1.0, 0.1, 20.0, 5.0])
    found = with_moments(labels, mean, deviation)
    np.testing.assert_allclose(found.mean(axis=1), mean, atol=1e-9)
    np.testing.assert_allclose(found[:3].std(axis=1), deviation[:3])
    np.testing.assert_array_equal(found[3], 2.0)
    assert (np.diff(found, axis=1) >= 0.0).all()
