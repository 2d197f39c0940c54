from pathlib import Path

import numpy as np
import pytest

from mondrian_forest._core.arrays.memory import empty, enlarge, release


def resident():
    try:
        with open("/proc/self/statm") as status:
            return int(status.read().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("the system does not say how much memory is resident")


def test_released_memory_is_given_back_and_the_rest_kept():
    array = empty((4, 1_000_000), np.float64)
    array[:, :300_000] = 1.0
    before = resident()
    for part in array:
        part[300_000:600_000] = 2.0
        release(part[300_000:])
    assert resident() - before < 2_000_000  # of the 9.6 MB written
    np.testing.assert_array_equal(array[:, :300_000], 1.0)
    array[:, 300_000:] = 3.0  # can be used again
    np.testing.assert_array_equal(array[:, :300_000], 1.0)


def flags_at(address):
    """Return how the system treats the memory at an address."""
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except FileNotFoundError:
        pytest.skip("the system does not say how it treats memory")
    inside = False
    for line in lines:
        first = line.split()[0]
        if "-" in first:
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    pytest.skip("the system does not say how it treats memory")


def test_released_memory_does_not_come_back_as_part_of_a_huge_page():
    array = empty((4_000_000,), np.float64)
    array[:] = 1.0
    release(array[1_000_000:])
    address = array.__array_interface__["data"][0]
    assert "hg" in flags_at(address)
    assert "nh" in flags_at(address + 3_000_000 * array.itemsize)


@pytest.mark.parametrize("length", [0, 1, 10, 1_000_000])
def test_any_part_of_any_array_may_be_released(length):
    for array in (empty((length,), np.float64), np.ones(length)):
        array[:] = 1.0
        release(array[length // 2 :])
        release(array[:0])
        np.testing.assert_array_equal(array[: length // 2], 1.0)


def test_an_enlarged_array_starts_with_the_old_one():
    array = np.arange(12.0).reshape(6, 2)
    larger = enlarge(array, 200_000)
    assert larger.shape == (200_000, 2)
    np.testing.assert_array_equal(larger[:6], array)


@pytest.mark.parametrize("length", [2**30, 2**50, 2**58])
def test_too_large_an_array_is_a_memory_error(length):
    if length == 2**30:
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2**32, limits[1]))
    try:
        with pytest.raises(MemoryError):
            empty((length,), np.float64)
    finally:
        if length == 2**30:
            resource.setrlimit(resource.RLIMIT_AS, limits)
