"""Small forests that are tried before the fit: for feature weights and for pruning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray

from .._core.features import FARTHEST
from .._core.labels import Pruned
from .parameters import OLDEST, Parameters
from .posteriors import HierarchicalPosterior, PrunedPosterior
from .predict import predict_mean, predict_mean_and_std
from .pruning import COIN, Forecast, learn_prior_stop
from .state import ForestState
from .trees import renewed
from .weights import N_ROUNDS, Predict, gains, learn_weights

_N_TREES = 20

Fit = Callable[[NDArray[np.float64], NDArray[np.float64], Parameters], ForestState]


class Found(NamedTuple):
    """What small forests have told."""

    weights: NDArray[np.float64]
    """The rate of each feature."""
    prior_stop: float
    """The prior probability that a node is not cut."""


def asks_for_trials(parameters: Parameters, n_features: int) -> bool:
    """Return whether there is anything to be learned."""
    return learns_pruning(parameters) or (parameters.learns_weights and n_features > 1)


def learns_pruning(parameters: Parameters) -> bool:
    """Return whether the prior of the prunings is learned."""
    posterior = parameters.posterior
    return isinstance(posterior, PrunedPosterior) and posterior.prior_stop is None


def try_forests(
    rows: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    parameters: Parameters,
    random: np.random.Generator,
    fit: Fit,
    n_rounds: int = N_ROUNDS,
) -> Found:
    """Learn what the parameters leave open, from rows in units of the feature range.

    ``weights`` are those with which learning begins, and which are used if they are given.
    """
    rows = np.clip(rows, -FARTHEST, FARTHEST)
    small = small_parameters(parameters)

    def grow(
        weights: NDArray[np.float64], rows: NDArray[np.float64], labels: NDArray[np.float64]
    ) -> ForestState:
        seed = int(random.integers(2**31))
        return fit(rows, labels, replace(small, feature_weights=weights, random_state=seed))

    def learn(*asked: NDArray[np.float64]) -> tuple[Predict, NDArray[np.float64]]:
        state = grow(*asked)
        trees = [state.grove.tree(number) for number in range(state.grove.n_trees)]
        return (
            lambda table: predict_mean(state, table, parameters.n_jobs),
            gains(trees, rows.shape[1]),
        )

    def learn_to_prune(*asked: NDArray[np.float64]) -> Callable[..., Forecast]:
        state = grow(weights, *asked)

        def forecast(prior_stop: float, table: NDArray[Any]) -> Forecast:
            assert isinstance(state.model, Pruned)
            model = state.model._replace(prior_stop=prior_stop)
            changed = renewed(state, model, parameters.n_jobs)
            return predict_mean_and_std(changed, table, parameters.n_jobs)

        return forecast

    prior_stop = COIN
    with parallel_config("threading"):  # these are too small to be worth sending elsewhere
        if parameters.learns_weights and rows.shape[1] > 1:
            weights = learn_weights(rows, labels, weights, learn, random, n_rounds)
        if learns_pruning(parameters):
            prior_stop = learn_prior_stop(rows, labels, learn_to_prune)
    return Found(weights, prior_stop)


def small_parameters(parameters: Parameters) -> Parameters:
    """Return the parameters of the forests that are tried."""
    posterior = parameters.posterior
    if isinstance(posterior, HierarchicalPosterior):
        posterior = HierarchicalPosterior(
            **posterior.get_params() | {"hyperparameters": "heuristic"}
        )
    elif learns_pruning(parameters):
        posterior = PrunedPosterior(**posterior.get_params() | {"prior_stop": COIN})
    return replace(
        parameters,
        n_estimators=min(parameters.n_estimators, _N_TREES),
        posterior=posterior,
        learns_weights=False,
        spread=1.0,
        robust=False,
        mean_function=None,
        feature_range=(0.0, 1.0),
        max_rows=None,
        forgetting=OLDEST,
    )
