"""Random sequences of calls: after each one the forest is whole and has the rows it should have."""

import copy
import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from attack.soundness import FROZEN, NOT_FITTED, SCALE, assert_sound, state_of
from mondrian_forest import MondrianForestRegressor

seeds = st.integers(0, 2**16)
sizes = st.sampled_from([1, 1, 2, 3, 8, 25])
kinds = st.sampled_from(["uniform", "duplicates", "constant column", "outlier", "integers", "tiny"])
layouts = st.sampled_from(["float64", "float32", "Fortran", "read-only", "list", "every other row"])
shapes = st.fixed_dictionaries(
    {
        "n_estimators": st.integers(1, 3),
        "posterior": st.sampled_from(["pruned", "hierarchical", "empirical"]),
        "min_samples_split": st.sampled_from(["auto", 2, 5]),
        "n_candidate_splits": st.sampled_from([1, "n_features"]),
        "feature_weights": st.sampled_from([None, None, None, "auto"]),
        "spread": st.sampled_from([1.0, 1.0, "auto"]),
        "mean_function": st.sampled_from([None, None, "linear"]),
        "n_jobs": st.sampled_from([None, 2]),
        "random_state": seeds,
    }
)
harmless = st.sampled_from([{"n_jobs": 2}, {"n_jobs": 1}, {"n_estimators": 2}, {"spread": 2.0}])
harmful = st.sampled_from(
    [
        {"spread": -1.0},
        {"posterior": "none"},
        {"n_estimators": 0},
        {"robust": 3},
    ]
)
flaws = st.sampled_from(["NaN", "infinity", "width", "text", "no rows", "lengths", "label"])


def draw_rows(kind, n_rows, n_features, seed):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    if kind == "duplicates":
        X[:] = X[0]
    elif kind == "constant column":
        X[:, -1] = 0.25
    elif kind == "outlier":
        X[0, 0] = 1e4
    elif kind == "integers":
        X = np.round(5.0 * X)
    elif kind == "tiny":
        X *= 1e-30
    return X, np.round(X[:, 0] % 7.0 + generator.normal(size=n_rows), 3)


def laid_out(X, layout):
    """Return the same numbers, or those nearest to them, as another kind of array."""
    if layout == "float32":
        return X.astype(np.float32)
    if layout == "Fortran":
        return np.asfortranarray(X)
    if layout == "read-only":
        X.flags.writeable = False
    if layout == "list":
        return X.tolist()
    if layout == "every other row":
        return np.repeat(X, 2, axis=0)[::2]
    return X


def spoil(X, y, flaw):
    """Return rows and labels that must be refused."""
    if flaw == "NaN":
        X[-1, 0] = np.nan
    elif flaw == "infinity":
        X[-1, -1] = -np.inf
    elif flaw == "width":
        X = np.hstack((X, X))
    elif flaw == "text":
        X = np.full(X.shape, "seven", dtype=object)
    elif flaw == "no rows":
        X, y = X[:0], y[:0]
    elif flaw == "lengths":
        X = np.vstack((X, X))
    elif flaw == "label":
        y[-1] = np.nan
    return X, y


class AnyCalls(RuleBasedStateMachine):
    """A forest, and the number of rows that it should have: None before the first fit."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "model.mf")
        self.n_rows = None
        self.is_frozen = False

    def teardown(self):
        self.folder.cleanup()

    @initialize(parameters=shapes, n_features=st.integers(1, 3), has_names=st.booleans())
    def begin(self, parameters, n_features, has_names):
        self.forest = MondrianForestRegressor(**parameters)
        self.n_features = n_features
        self.names = [f"column {number}" for number in range(n_features)] if has_names else None

    def table(self, X, layout="float64"):
        if self.names is None or np.shape(X)[1] != self.n_features:
            return laid_out(X, layout)
        return pd.DataFrame(X, columns=self.names)

    def is_fitted(self):
        return self.n_rows is not None

    def can_learn(self):
        return not self.is_frozen

    @rule(kind=kinds, n_rows=sizes, seed=seeds, layout=layouts)
    def fit(self, kind, n_rows, seed, layout):
        X, y = draw_rows(kind, n_rows, self.n_features, seed)
        self.forest.fit(self.table(X, layout), y)
        self.n_rows = n_rows
        self.is_frozen = False

    @precondition(can_learn)
    @rule(kind=kinds, n_rows=sizes, seed=seeds, layout=layouts)
    def learn(self, kind, n_rows, seed, layout):
        X, y = draw_rows(kind, n_rows, self.n_features, seed)
        self.forest.partial_fit(self.table(X, layout), y)
        self.n_rows = n_rows + (self.n_rows or 0)

    @precondition(is_fitted)
    @rule(kind=kinds, n_rows=sizes, seed=seeds, layout=layouts)
    def predict(self, kind, n_rows, seed, layout):
        X, y = draw_rows(kind, n_rows, self.n_features, seed)
        table = self.table(X, layout)
        before = state_of(self.forest)
        mean, std = self.forest.predict(table, return_std=True)
        quantiles = self.forest.predict_quantiles(table, [0.05, 0.5, 0.95])
        density = self.forest.predict_distribution(table).pdf(y)
        for values in (mean, std, quantiles, density):
            assert len(values) == n_rows
            assert np.isfinite(values).all()
        assert (std > 0.0).all()
        assert (np.diff(quantiles) >= 0.0).all()
        assert state_of(self.forest) == before

    @precondition(is_fitted)
    @rule()
    def freeze(self):
        before = state_of(self.forest)
        self.forest.freeze()
        n_seen, _, predicted = before[:3]
        no_row_numbers = b""
        assert state_of(self.forest) == (n_seen, no_row_numbers, predicted, FROZEN)
        self.is_frozen = True

    @precondition(is_fitted)
    @rule(is_mapped=st.booleans())
    def save_and_load(self, is_mapped):
        before = state_of(self.forest)
        self.forest.save(self.path)
        self.forest = MondrianForestRegressor.load(self.path, mmap=is_mapped)
        assert state_of(self.forest) == before

    @precondition(is_fitted)
    @rule(
        copied=st.sampled_from([copy.deepcopy, lambda forest: pickle.loads(pickle.dumps(forest))])
    )
    def copy(self, copied):
        before = state_of(self.forest)
        old, self.forest = self.forest, copied(self.forest)
        assert state_of(old) == state_of(self.forest) == before

    @rule()
    def clone(self):
        copied = clone(self.forest)
        assert state_of(copied) == NOT_FITTED
        assert repr(copied) == repr(self.forest)

    @rule(parameters=harmless)
    def set_harmless(self, parameters):
        before = state_of(self.forest)
        self.forest.set_params(**parameters)
        if not (self.n_rows and "spread" in parameters):  # the next row may ask for the new one
            assert state_of(self.forest) == before

    @rule(parameters=harmful, seed=seeds)
    def set_harmful(self, parameters, seed):
        """Try invalid parameters; put the old ones back."""
        before = state_of(self.forest)
        old = {name: self.forest.get_params()[name] for name in parameters}
        self.forest.set_params(**parameters)
        X, y = draw_rows("uniform", 3, self.n_features, seed)
        with pytest.raises(ValueError, match=next(iter(parameters))):
            self.forest.fit(self.table(X), y)
        if self.is_fitted():
            with pytest.raises(ValueError, match=next(iter(parameters))):
                self.forest.save(self.path)
        self.forest.set_params(**old)
        assert state_of(self.forest) == before

    @rule(flaw=flaws, n_rows=sizes, seed=seeds)
    def give_bad_input(self, flaw, n_rows, seed):
        before = state_of(self.forest)
        X, y = spoil(*draw_rows("uniform", n_rows, self.n_features, seed), flaw)
        table = self.table(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names that are missing
            if self.is_fitted() or flaw != "width":
                with pytest.raises((ValueError, TypeError)):
                    self.forest.partial_fit(table, y)
            if flaw != "width":
                with pytest.raises((ValueError, TypeError)):
                    self.forest.fit(table, y)
            if flaw not in ("lengths", "label"):
                with pytest.raises((ValueError, TypeError, NotFittedError)):
                    self.forest.predict(table)
        assert state_of(self.forest) == before

    @invariant()
    def is_sound(self):
        if not hasattr(self, "forest"):
            return  # before the first step
        if self.n_rows is None:
            assert state_of(self.forest) == NOT_FITTED
            return
        assert self.forest.n_samples_seen_ == self.n_rows
        assert_sound(self.forest)


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = settings(
    max_examples=14 * SCALE,
    stateful_step_count=20,
    deadline=None,
    derandomize=SCALE == 1,  # the same in each run of CI; others than these on demand
    phases=[Phase.generate] if SCALE == 1 else [Phase.generate, Phase.shrink],  # minutes
    database=None,
    suppress_health_check=list(HealthCheck),
)
