"""Bayesian optimisation with a Mondrian forest as its model: ask for points, tell their values."""

from .acquisition import (
    expected_improvement,
    log_expected_improvement,
    probability_of_improvement,
    thompson_sample,
    upper_confidence_bound,
)
from .candidates import SpaceExhausted
from .journal import JournalError
from .optimizer import Optimizer
from .parameters import Categorical, Integer, Ordinal, Real
from .run import OptimizationResult, maximize, minimize
from .space import Space
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
