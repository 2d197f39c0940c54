"""Bayesian optimisation with a Mondrian forest as its model: ask for points, tell their values."""

from .acquisition import (
    expected_improvement,
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
    upper_confidence_bound,
)
from .journal import JournalError
from .optimizer import Optimizer, SpaceExhausted
from .run import OptimizationResult, maximize, minimize
from .space import Categorical, Integer, Ordinal, Real, Space
from .trial import Trial

__all__ = [
    "Categorical",
    "Integer",
    "JournalError",
    "OptimizationResult",
    "Optimizer",
    "Ordinal",
    "Real",
    "Space",
    "SpaceExhausted",
    "Trial",
    "expected_improvement",
    "log_expected_improvement",
    "maximize",
    "minimize",
    "probability_of_improvement",
    "thompson_sample",
    "upper_confidence_bound",
]
