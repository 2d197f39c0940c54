"""The Gaussian processes of Table 1, against exact ones on few rows.

They need the extra ``gp``: pip install torch (a build for CPUs is enough), then '.[gp]'.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

pytest.importorskip("gpytorch", reason="GPyTorch is not at hand: pip install '.[gp]'")

import torch

from reproduction.gaussian_processes import RBCM, SVIGP, DistVGP


@pytest.fixture(scope="module")
def waves():
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (200, 2))
    y = 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * generator.standard_normal(200)
    return X, y, generator.uniform(-2, 2, (50, 2))


def exact(process, X, y):
    """Return the exact process with the hyperparameters of another, in standardised units."""
    kernel = ConstantKernel(process.kernel.outputscale.item()) * RBF(
        process.kernel.base_kernel.lengthscale.detach().numpy().ravel()
    )
    noise = process.likelihood.noise.item()
    regressor = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
    return regressor.fit(standardised(process, X), (y - process.y_centre) / process.y_scale), noise


def standardised(process, X):
    return (X - process.centre) / process.scale


def in_units(process, mean, variance):
    return process.y_centre + process.y_scale * mean, process.y_scale * np.sqrt(variance)


def test_the_collapsed_process_is_exact_when_all_rows_are_inducing_points(waves):
    X, y, queries = waves
    process = DistVGP(0, n_inducing=len(y), n_steps=0).fit(X, y)
    reference, noise = exact(process, X, y)
    mean, std = reference.predict(standardised(process, queries), return_std=True)
    mean, std = in_units(process, mean, std**2 + noise)
    found_mean, found_std = process.predict_distribution(queries)
    np.testing.assert_allclose(found_mean, mean, atol=2e-3)
    np.testing.assert_allclose(found_std, std, rtol=2e-3)


def test_the_collapsed_bound_is_the_likelihood_when_all_rows_are_inducing_points(waves):
    X, y, _ = waves
    process = DistVGP(0, n_inducing=len(y), n_steps=0).fit(X, y)
    rows = torch.as_tensor(standardised(process, X))
    labels = torch.as_tensor((y - process.y_centre) / process.y_scale)
    reference, noise = exact(process, X, y)
    covariance = reference.kernel_(rows.numpy()) + noise * np.eye(len(y))
    likelihood = multivariate_normal(np.zeros(len(y)), covariance).logpdf(labels.numpy())
    assert process._bound(rows, labels).item() == pytest.approx(likelihood, abs=0.05)


def test_fewer_inducing_points_give_a_smaller_bound(waves):
    X, y, _ = waves
    bounds = []
    for n_inducing in (5, 50, 200):
        process = DistVGP(0, n_inducing=n_inducing, n_steps=0).fit(X, y)
        rows = torch.as_tensor(standardised(process, X))
        labels = torch.as_tensor((y - process.y_centre) / process.y_scale)
        bounds.append(process._bound(rows, labels).item())
    assert bounds[0] < bounds[1] < bounds[2]


def test_the_committee_combines_its_experts_by_the_published_rule(waves):
    X, y, queries = waves
    process = RBCM(0, rows_per_expert=50, n_steps=5, batch=3).fit(X, y)
    prior = process.kernel.outputscale.item()
    precision, weighted, total = 0.0, 0.0, 0.0
    for rows, labels in zip(process.rows.numpy(), process.labels.numpy(), strict=True):
        expert, noise = exact(process, X, y)
        expert.fit(rows, labels)
        mean, std = expert.predict(standardised(process, queries), return_std=True)
        beta = 0.5 * (np.log(prior) - np.log(std**2))
        precision += beta / std**2
        weighted += beta * mean / std**2
        total += beta
    precision += (1 - total) / prior
    mean, std = in_units(process, weighted / precision, 1 / precision + noise)
    assert len(process.rows) == 4
    found_mean, found_std = process.predict_distribution(queries)
    np.testing.assert_allclose(found_mean, mean, atol=2e-3)
    np.testing.assert_allclose(found_std, std, rtol=2e-3)


@pytest.mark.parametrize(
    "process",
    [
        SVIGP(0, n_inducing=40, n_steps=600, batch=100),
        DistVGP(0, n_inducing=40, n_steps=60),
        RBCM(0, rows_per_expert=100, n_steps=100, batch=2),
    ],
    ids=["SVI-GP", "Dist-VGP", "rBCM"],
)
def test_each_learns_the_wave_and_its_noise(process, waves):
    X, y, queries = waves
    mean, std = process.fit(X, y).predict_distribution(queries)
    truth = 3 + np.sin(2 * queries[:, 0]) + 0.5 * queries[:, 1]
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.1
    assert 0.07 < np.median(std) < 0.2
