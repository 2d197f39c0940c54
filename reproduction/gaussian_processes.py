"""The Gaussian processes of the paper's Table 1, as living systems.

All have a constant mean, a squared exponential kernel with a length scale for each feature, and
Gaussian noise; features and labels are standardised. They differ in how they deal with many rows.

SVI-GP      inducing points, whose posterior is learned from minibatches by natural gradients
            (Hensman, Fusi and Lawrence 2013)
Dist-VGP    inducing points, whose optimal posterior is integrated out, over all rows at once
            (Titsias 2009; Gal, van der Wilk and Rasmussen 2014 distribute the same computation)
rBCM        exact processes on small random parts, whose predictions are combined
            (Deisenroth and Ng 2015)
"""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.checkpoint import checkpoint

from .report import progress

PART = 50_000
"""Rows whose covariances with the inducing points are in memory at a time."""

CHUNK = 2_000
"""Rows that are predicted at a time."""

SMALLEST = 1e-4
"""The smallest share of the prior variance that is left to an expert, in single precision."""


class _StandardisedProcess:
    """Standardises features and labels, and turns predictions back into their units."""

    def __init__(self, random_state: int):
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> _StandardisedProcess:
        torch.manual_seed(self.random_state)
        self.centre, self.scale = X.mean(axis=0), X.std(axis=0)
        self.scale[self.scale == 0] = 1.0
        self.y_centre, self.y_scale = y.mean(), y.std()
        rows = torch.as_tensor((X - self.centre) / self.scale, dtype=torch.float32)
        labels = torch.as_tensor((y - self.y_centre) / self.y_scale, dtype=torch.float32)
        self._learn(rows, labels)
        return self

    def predict_distribution(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the labels."""
        rows = torch.as_tensor((X - self.centre) / self.scale, dtype=torch.float32)
        with torch.no_grad():
            mean, variance = self._predict(rows)
        std = np.sqrt(variance.numpy().astype(np.float64))
        return self.y_centre + self.y_scale * mean.numpy().astype(np.float64), self.y_scale * std

    def _learn(self, rows: Tensor, labels: Tensor) -> None:
        raise NotImplementedError

    def _predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


def _kernel(n_features: int) -> ScaleKernel:
    return ScaleKernel(RBFKernel(ard_num_dims=n_features))


class SVIGP(_StandardisedProcess):
    """Stochastic variational inference."""

    def __init__(self, random_state: int, *, n_inducing: int, n_steps: int, batch: int):
        super().__init__(random_state)
        self.n_inducing, self.n_steps, self.batch = n_inducing, n_steps, batch

    def _learn(self, rows: Tensor, labels: Tensor) -> None:
        chosen = torch.randperm(len(rows))[: self.n_inducing]
        self.model = _VariationalModel(rows[chosen].clone())
        self.likelihood = GaussianLikelihood()
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(rows))
        natural = gpytorch.optim.NGD(
            self.model.variational_parameters(), num_data=len(rows), lr=0.1
        )
        parameters = [*self.model.hyperparameters(), *self.likelihood.parameters()]
        ordinary = torch.optim.Adam(parameters, lr=0.01)
        for _ in progress(self.n_steps, type(self).__name__):
            taken = torch.randint(len(rows), (self.batch,))
            natural.zero_grad()
            ordinary.zero_grad()
            loss = -bound(self.model(rows[taken]), labels[taken])
            loss.backward()
            natural.step()
            ordinary.step()
        self.model.eval()
        self.likelihood.eval()

    def _predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        found = [self.likelihood(self.model(chunk)) for chunk in rows.split(CHUNK)]
        return torch.cat([f.mean for f in found]), torch.cat([f.variance for f in found])


class _VariationalModel(gpytorch.models.ApproximateGP):
    def __init__(self, inducing: Tensor):
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self,
                inducing,
                gpytorch.variational.NaturalVariationalDistribution(len(inducing)),
                learn_inducing_locations=True,
            )
        )
        self.mean = ConstantMean()
        self.kernel = _kernel(inducing.shape[1])

    def forward(self, rows: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))


class DistVGP(_StandardisedProcess):
    """The collapsed bound: the posterior of the inducing points is the best one, in closed form.

    The rows enter through sums over parts of them, which is what makes the computation easy to
    distribute, and here keeps it in little memory.
    """

    def __init__(self, random_state: int, *, n_inducing: int, n_steps: int):
        super().__init__(random_state)
        self.n_inducing, self.n_steps = n_inducing, n_steps

    def _learn(self, rows: Tensor, labels: Tensor) -> None:
        rows, labels = rows.double(), labels.double()
        chosen = torch.randperm(len(rows))[: self.n_inducing]
        self.inducing = rows[chosen].clone().requires_grad_()
        self.kernel = _kernel(rows.shape[1]).double()
        self.likelihood = GaussianLikelihood().double()
        parameters = [self.inducing, *self.kernel.parameters(), *self.likelihood.parameters()]

        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            vector_to_parameters(torch.as_tensor(values), parameters)
            value = -self._bound(rows, labels) / len(rows)
            gradient = torch.autograd.grad(value, parameters)
            return value.item(), parameters_to_vector(gradient).numpy()

        steps = progress(self.n_steps, type(self).__name__)
        found = minimize(
            loss,
            parameters_to_vector(parameters).detach().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.n_steps},
            callback=lambda _: next(steps, None),
        )
        vector_to_parameters(torch.as_tensor(found.x), parameters)
        with torch.no_grad():
            self._bound(rows, labels)  # keeps the factors that prediction needs

    def _bound(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return Titsias' bound on the log likelihood, in the notation of his report."""
        variance, noise = self.kernel.outputscale, self.likelihood.noise
        squares = torch.zeros(self.n_inducing, self.n_inducing, dtype=torch.float64)
        products = torch.zeros(self.n_inducing, dtype=torch.float64)
        for x, y in zip(rows.split(PART), labels.split(PART), strict=True):
            part = checkpoint(self._sums, x, y, use_reentrant=False)
            squares, products = squares + part[0], products + part[1]
        self.factor = self._factor()
        inner = torch.linalg.solve_triangular(self.factor, squares, upper=False)
        inner = torch.linalg.solve_triangular(self.factor, inner.T, upper=False)
        identity = torch.eye(self.n_inducing, dtype=torch.float64)
        self.posterior_factor = torch.linalg.cholesky(identity + inner / noise)
        projected = torch.linalg.solve_triangular(self.factor, products[:, None], upper=False)
        self.weights = (
            torch.linalg.solve_triangular(self.posterior_factor, projected, upper=False) / noise
        )
        log_determinant = 2 * self.posterior_factor.diagonal().log().sum() + len(rows) * noise.log()
        quadratic = labels @ labels / noise - (self.weights**2).sum()
        lost_variance = (len(rows) * variance - inner.diagonal().sum()) / noise
        constant = len(rows) * math.log(2 * math.pi)
        return -0.5 * (constant + log_determinant + quadratic + lost_variance).squeeze()

    def _sums(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        cross = self.kernel(self.inducing, rows).to_dense()
        return cross @ cross.T, cross @ labels

    def _factor(self) -> Tensor:
        among = self.kernel(self.inducing).to_dense()
        identity = torch.eye(self.n_inducing, dtype=torch.float64)
        return torch.linalg.cholesky(among + 1e-6 * self.kernel.outputscale * identity)

    def _predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        cross = self.kernel(self.inducing, rows.double()).to_dense()
        prior = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        posterior = torch.linalg.solve_triangular(self.posterior_factor, prior, upper=False)
        mean = (posterior * self.weights).sum(dim=0)
        variance = self.kernel.outputscale - (prior**2).sum(dim=0) + (posterior**2).sum(dim=0)
        return mean, variance + self.likelihood.noise


class RBCM(_StandardisedProcess):
    """The robust Bayesian committee machine.

    Each expert is an exact process on a random part of the rows; all share their hyperparameters,
    learned from the product of their marginal likelihoods, a few experts at a step.
    """

    def __init__(self, random_state: int, *, rows_per_expert: int, n_steps: int, batch: int):
        super().__init__(random_state)
        self.rows_per_expert, self.n_steps, self.batch = rows_per_expert, n_steps, batch

    def _learn(self, rows: Tensor, labels: Tensor) -> None:
        n_experts = max(1, len(rows) // self.rows_per_expert)
        size = len(rows) // n_experts
        order = torch.randperm(len(rows))[: n_experts * size].reshape(n_experts, size)
        self.rows, self.labels = rows[order], labels[order]
        self.kernel = _kernel(rows.shape[1])
        self.likelihood = GaussianLikelihood()
        parameters = [*self.kernel.parameters(), *self.likelihood.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=0.05)
        for _ in progress(self.n_steps, type(self).__name__):
            taken = torch.randint(n_experts, (min(self.batch, n_experts),))
            optimiser.zero_grad()
            labels_taken = self.labels[taken]
            covariance = torch.linalg.cholesky(self._covariance(self.rows[taken]))
            likelihood = torch.distributions.MultivariateNormal(
                torch.zeros_like(labels_taken), scale_tril=covariance
            ).log_prob(labels_taken)
            (-likelihood.mean() / size).backward()
            optimiser.step()

    def _covariance(self, rows: Tensor) -> Tensor:
        identity = torch.eye(rows.shape[-2])
        return self.kernel(rows).to_dense() + self.likelihood.noise * identity

    def _predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        prior = self.kernel.outputscale
        scale = self.kernel.base_kernel.lengthscale
        # The exponent of the kernel as one product: x . z - |x|^2 / 2 - |z|^2 / 2.
        queries = rows / scale
        queries = torch.cat([queries, _half_square(queries), torch.ones(len(rows), 1)], dim=1)
        precision = torch.zeros(len(rows))
        weighted_mean = torch.zeros(len(rows))
        total_weight = torch.zeros(len(rows))
        for k in progress(math.ceil(len(self.rows) / self.batch), "experts"):
            first = k * self.batch
            x = self.rows[first : first + self.batch]
            y = self.labels[first : first + self.batch]
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(self._covariance(x)))
            coefficients = inverse @ y[..., None]
            x = x / scale
            x = torch.cat([x, torch.ones_like(x[..., :1]), _half_square(x)], dim=2)
            for start in range(0, len(rows), CHUNK):
                part = slice(start, start + CHUNK)
                cross = prior * (x @ queries[part].T).exp_()
                mean = (coefficients.mT @ cross).squeeze(1)
                known = (cross * (inverse @ cross)).sum(dim=1)
                variance = (prior - known).clamp_min(SMALLEST * prior)
                # An expert counts by how much more it knows than the prior does.
                weight = 0.5 * (prior.log() - variance.log())
                precision[part] += (weight / variance).sum(dim=0)
                weighted_mean[part] += (weight * mean / variance).sum(dim=0)
                total_weight[part] += weight.sum(dim=0)
        precision += (1.0 - total_weight) / prior
        return weighted_mean / precision, 1.0 / precision + self.likelihood.noise


def _half_square(rows: Tensor) -> Tensor:
    return -0.5 * (rows**2).sum(dim=-1, keepdim=True)
