import numpy as np
import pytest

from mondrian_forest._forest.scaling import Scaling, learn_scaling


def table(n_rows=500, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(n_rows, 3)) * [1.0, 100.0, 0.01] + [0.0, -50.0, 7.0]


def scaling_of(X, *, robust, weights=(1.0, 0.5, 1.5)):
    seen = X.min(axis=0), X.max(axis=0)
    plain = learn_scaling(X, seen, None, X.shape[1], robust=robust)
    return Scaling(plain.range, np.array(weights), plain.warp)


@pytest.mark.parametrize("robust", [False, True])
def test_invert_undoes_apply_also_outside_of_the_range(robust):
    X = table()
    scaling = scaling_of(X, robust=robust)
    far = np.concatenate((X, 5.0 * X - 3.0))
    back = scaling.invert(scaling.apply(far))
    # Coordinates are float32, a feature is as exact as its range allows.
    width = np.ptp(X, axis=0)
    np.testing.assert_allclose(back / width, far / width, atol=2e-6, rtol=1e-7)


@pytest.mark.parametrize("robust", [False, True])
def test_a_range_is_mapped_to_the_unit_cube_times_weights(robust):
    X = table()
    scaling = scaling_of(X, robust=robust)
    low, high = scaling.range
    np.testing.assert_allclose(scaling.apply(low[None])[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(scaling.apply(high[None])[0], scaling.weights, rtol=1e-6)


def test_a_feature_of_weight_zero_is_everywhere_at_zero():
    X = table()
    scaling = scaling_of(X, robust=True, weights=(1.0, 0.0, 2.0))
    np.testing.assert_array_equal(scaling.apply(1e6 * X)[:, 1], 0.0)


def test_a_wider_range_gives_the_coordinates_of_a_fresh_scaling():
    X = table()
    scaling = scaling_of(X, robust=False)
    seen = 4.0 * X.min(axis=0) - 1.0, 4.0 * X.max(axis=0) + 1.0
    assert scaling.is_outgrown(seen)
    assert not scaling.is_outgrown((X.min(axis=0), X.max(axis=0)))
    changed, rows = scaling.widened(seen, scaling.apply(X), len(X))
    np.testing.assert_allclose(rows, changed.apply(X), atol=1e-5)


def test_a_warp_is_learned_again_only_when_the_bulk_of_the_rows_has_moved():
    X = table()
    scaling = scaling_of(X, robust=True)
    rows = scaling.apply(X)
    assert scaling.rewarped(rows, len(X)) is None
    far = X.copy()
    far[0] = 1e6  # one row is not the bulk
    assert scaling.rewarped(scaling.apply(far), len(X)) is None
    wide = np.concatenate((X, 10.0 * X))
    changed, rows = scaling.rewarped(scaling.apply(wide), len(wide))
    np.testing.assert_allclose(rows, changed.apply(wide), atol=1e-3)
    assert np.all(changed.range[1] - changed.range[0] > scaling.range[1] - scaling.range[0])


def test_arrays_from_a_network_are_copied_before_kernels_see_them():
    scaling = scaling_of(table(), robust=True)
    for array in (*scaling.range, scaling.weights, *scaling.warp):
        array.flags.writeable = False
    own = scaling.writeable()
    assert all(array.flags.writeable for array in (*own.range, own.weights, *own.warp))
    np.testing.assert_array_equal(own.apply(table()), scaling.apply(table()))
