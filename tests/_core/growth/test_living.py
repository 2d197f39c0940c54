"""Trees that learn and forget in any order: what must hold after each step."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mondrian_forest._core.arrays.kernel import IS_COMPILED
from mondrian_forest._core.arrays.rng import random_states
from mondrian_forest._core.growth import Growth, with_label_unit
from mondrian_forest._core.labels import Empirical, Hierarchical, Pruned
from mondrian_forest._core.moments import Moments
from trees import LivingTrees

PRIOR = Hierarchical(3.0, 8.0, 0.4, 0.3)
MODELS = [PRIOR, Empirical(*PRIOR), Pruned(3.0, 8.0, 0.3, 0.5)]
MOST_ROWS = 40 if IS_COMPILED else 14

tables = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, MOST_ROWS), st.integers(1, 5)),
    elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-2, 2, width=32),
)
"""With ties, duplicate rows and constant columns."""


@settings(max_examples=150 if IS_COMPILED else 25, deadline=None)
@given(
    rows=tables,
    min_samples_split=st.sampled_from([2, 2, 5, 10, 1000]),
    n_candidates=st.sampled_from([1, 2, 3, 9]),
    model=st.sampled_from(MODELS),
    labels=st.sampled_from(["spread", "few", "equal"]),
    steps=st.lists(st.sampled_from([1, 1, 1, 3, 8, 100, -1, -1, -2, -7, -100]), max_size=12),
    seed=st.integers(0, 1000),
)
def test_all_invariants_hold_after_every_step(
    rows, min_samples_split, n_candidates, model, labels, steps, seed
):
    """Positive steps learn so many rows, negative ones forget so many, as far as there are any."""
    generator = np.random.default_rng(seed)
    values = {
        "spread": generator.normal(3.0, 2.0, len(rows)),
        "few": np.round(generator.random(len(rows))),
        "equal": np.full(len(rows), 0.1),
    }[labels]
    growth = with_label_unit(Growth(min_samples_split, n_candidates, np.inf), Moments(2, 3.0, 8.0))
    states = random_states(np.random.SeedSequence(seed), 1)
    n_first = int(generator.integers(1, len(rows) + 1))
    trees = LivingTrees(rows[:n_first], values[:n_first], growth, model, states, len(rows))
    trees.check()
    waiting = list(range(n_first, len(rows)))
    held = list(range(n_first))
    for step in steps:
        if step > 0 and waiting:
            coming, waiting = waiting[:step], waiting[step:]
            trees.learn(rows[coming], values[coming])
            held += coming
        elif step < 0 and len(held) > 1:
            numbers = generator.permutation(len(held))[: min(-step, len(held) - 1)]
            waiting += [held[number] for number in numbers]
            held = [held[number] for number in trees.forget(numbers)]
            np.testing.assert_array_equal(trees.rows[: len(held)], rows[held])
        trees.check()
