"""The label models as users choose them: what is given of their hyperparameters, and the rest."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from .._core.labels import Empirical, Hierarchical, LabelModel, ModelClass, Pruned
from .._core.labels.model import Summary
from .._core.moments import Moments
from .validation import is_number

SMALLEST, LARGEST = 1e-50, 1e50
"""Bounds of given hyperparameters, within which no product of them overflows."""
_POSITIVE = ("prior_scale", "prior_rate", "noise_variance")


class Posterior(BaseEstimator):  # type: ignore[misc]
    """What all label models have in common; hyperparameters that are None are estimated."""

    model: ClassVar[ModelClass]
    """The class of the engine that computes with it."""
    prior_mean: float | None

    @property
    def name(self) -> str:
        """What users call it."""
        return self.model.name()

    def check(self) -> None:
        """Raise a ValueError in one sentence for the first invalid hyperparameter."""
        if self.prior_mean is not None and not is_number(self.prior_mean):
            raise ValueError(f"prior_mean must be a number or None, got {self.prior_mean!r}.")
        for name in _POSITIVE:
            value = getattr(self, name, None)
            if value is not None and not (is_number(value) and SMALLEST <= float(value) <= LARGEST):
                raise ValueError(
                    f"{name} must be None or a positive number, from {SMALLEST:g} to "
                    f"{LARGEST:g}, got {value!r}."
                )

    def check_labels(self, labels: Moments) -> None:
        """Raise a ValueError if the labels are out of the range of float64."""
        _, mean, squared_deviation = labels
        if not (squared_deviation == 0.0 or 1e-290 < squared_deviation < math.inf):
            raise ValueError("The variance of y is too large or too small for float64: rescale y.")
        if self.prior_mean is not None and not abs(float(self.prior_mean) - mean) < 1e145:
            raise ValueError(f"prior_mean is too far from y for float64, got {self.prior_mean!r}.")

    def estimate(self, summary: Summary) -> LabelModel:
        """Return the label model; hyperparameters that are not given follow from the labels."""
        self.check_labels(summary.labels)
        values = {name: getattr(self, name) for name in self.model._fields}
        given = {name: float(value) for name, value in values.items() if value is not None}
        found = self.model.estimate(summary, **given)
        if not 1e-100 < found.prior_scale / found.noise_variance < 1e100:
            raise ValueError(
                f"prior_scale {found.prior_scale:g} and noise_variance {found.noise_variance:g} "
                "are too far apart for float64: give both, or rescale y."
            )
        return found


class HierarchicalPosterior(Posterior):
    """The exact posterior under the paper's hierarchical Gaussian prior.

    Parameters
    ----------
    prior_mean : float, default=None
        Mean of the prior. None: the mean of y, or with a mean function of its residuals.
    prior_scale : float, default=None
        Twice the prior variance of a leaf's mean, gamma_1 in the paper. None: such that
        ``prior_scale (1/2 + 1/K)`` is the mean squared deviation of y from ``prior_mean``, where
        ``K = min(2000, 2 n_samples)``.
    prior_rate : float, default=None
        How fast the prior variance is used up along a branch, gamma_2 in the paper. None:
        ``n_features / (20 log2(n_samples))``.
    noise_variance : float, default=None
        Variance of a label about the mean of its leaf. None: ``prior_scale / K``.
    hyperparameters : {"heuristic", "marginal_likelihood"}, default="heuristic"
        How those of the above that are None are found. "heuristic" is the paper's appendix B, as
        written above. "marginal_likelihood" maximises the probability of the labels given the
        trees.

    Examples
    --------
    >>> from mondrian_forest import PAPER, HierarchicalPosterior, MondrianForestRegressor
    >>> posterior = HierarchicalPosterior(noise_variance=0.1)
    >>> forest = MondrianForestRegressor(**PAPER | {"posterior": posterior})
    """

    model = Hierarchical

    def __init__(
        self,
        *,
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        prior_rate: float | None = None,
        noise_variance: float | None = None,
        hyperparameters: str = "heuristic",
    ) -> None:
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.prior_rate = prior_rate
        self.noise_variance = noise_variance
        self.hyperparameters = hyperparameters

    def check(self) -> None:
        """Raise a ValueError in one sentence for the first invalid hyperparameter."""
        super().check()
        if not isinstance(self.hyperparameters, str) or self.hyperparameters not in (
            "heuristic",
            "marginal_likelihood",
        ):
            raise ValueError(
                'hyperparameters must be "heuristic" or "marginal_likelihood", '
                f"got {self.hyperparameters!r}."
            )


class EmpiricalPosterior(Posterior):
    """The mean and the variance of the labels in each node, the paper's appendix C.

    Parameters
    ----------
    prior_mean, prior_scale, prior_rate, noise_variance : float, default=None
        As for :class:`HierarchicalPosterior`. Only ``noise_variance`` affects predictions.
    """

    model = Empirical

    def __init__(
        self,
        *,
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        prior_rate: float | None = None,
        noise_variance: float | None = None,
    ) -> None:
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.prior_rate = prior_rate
        self.noise_variance = noise_variance


class PrunedPosterior(Posterior):
    """An average over all prunings of each tree, with Student-t distributions in the nodes.

    Parameters
    ----------
    prior_mean : float, default=None
        Prior mean of the root. None: the mean of y, or with a mean function of its residuals.
    prior_scale : float, default=None
        Twice the prior variance of the labels in the root. None: twice their variance.
    noise_variance : float, default=None
        Variance of the error with which labels are known. It keeps densities finite where labels
        repeat. None: a twelfth of the squared resolution of y, and at least 1e-5 of its variance.
    prior_stop : float, default=None
        How much the prior favours leaves, between 0 and 1: the prior odds of a leaf against a cut
        are ``prior_stop`` to ``1 - prior_stop`` times a weight of 5 to 7. More makes trees smaller,
        which suits labels that are mostly noise. None: learned from held-out rows.
    """

    model = Pruned

    def __init__(
        self,
        *,
        prior_mean: float | None = None,
        prior_scale: float | None = None,
        noise_variance: float | None = None,
        prior_stop: float | None = None,
    ) -> None:
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.noise_variance = noise_variance
        self.prior_stop = prior_stop

    def check(self) -> None:
        """Raise a ValueError in one sentence for the first invalid hyperparameter."""
        super().check()
        stop = self.prior_stop
        if stop is not None and not (is_number(stop) and 0.0 < float(stop) < 1.0):
            raise ValueError(f"prior_stop must be None or between 0 and 1, got {stop!r}.")


CLASSES: dict[str, type[Posterior]] = {
    one.model.name(): one for one in (PrunedPosterior, HierarchicalPosterior, EmpiricalPosterior)
}


def posterior_of(value: Any) -> Posterior:
    """Return the label model that a name, or an object, stands for; checked."""
    if isinstance(value, str) and value in CLASSES:
        return CLASSES[value]()
    if isinstance(value, Posterior):
        value.check()
        return value
    names = ", ".join(map(repr, CLASSES))
    raise ValueError(
        f"posterior must be one of {names}, or an object such as HierarchicalPosterior(), "
        f"got {value!r}."
    )


def posterior_for(model: LabelModel, chosen: Posterior) -> Posterior:
    """Return the posterior of a fitted forest that learns on.

    It is the chosen one, unless another kind was set after the fit: the kind stays that of the fit.
    """
    return chosen if isinstance(model, chosen.model) else CLASSES[model.name()]()
