"""Predictions, streams and files for fixed seeds, bit for bit as they were written down.

Processors of another kind round some functions otherwise. There, numbers may differ in the last
digits, and digests of arrays are not compared.

``python -m golden.test_golden`` in ``tests`` writes them down anew: only where results are meant to
change, which CHANGELOG.md then says under "results".
"""

import hashlib
import json
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest

from mondrian_forest import MondrianForestRegressor
from mondrian_forest.optimize import Categorical, Integer, Real, minimize

from . import cases
from .cases import CASES

SUMMED_IN_ANY_ORDER = ("cdf", "crps", "quantiles", "interval")
"""From kernels that may add up in any order; which one, depends on the names of files, too."""
RECORD = Path(__file__).with_name("record.npz")


def batch(case):
    X, y = cases.table(cases.N_ROWS, 0)
    return cases.described(cases.forest_of(case).fit(X, y), y)


def stream(case):
    """After a fit: a chunk, single rows, and rows that make the forest review what it knows."""
    X, y = cases.table(cases.N_ROWS, 0)
    more, labels = cases.table(cases.N_NEW, 1)
    more[-30:, 0] *= 40.0
    forest = cases.forest_of(case).fit(X, y)
    forest.partial_fit(more[:15], labels[:15])
    for row in range(15, 21):
        forest.partial_fit(more[row : row + 1], labels[row : row + 1])
    forest.partial_fit(more[21:], labels[21:])
    return cases.described(forest, labels)


def from_nothing(case):
    """A stream that begins with one row."""
    X, y = cases.table(cases.N_ROWS, 2)
    forest = cases.forest_of(case)
    for start, stop in [(0, 1), (1, 40), (40, 70), (70, 71), (71, cases.N_ROWS)]:
        forest.partial_fit(X[start:stop], y[start:stop])
    return cases.described(forest, y)


def file(case):
    """What is saved, and how a loaded forest goes on."""
    X, y = cases.table(cases.N_ROWS, 0)
    more, labels = cases.table(cases.N_NEW, 1)
    forest = cases.forest_of(case).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path, frozen_path = Path(folder, "whole.mf"), Path(folder, "frozen.mf")
        forest.save(path)
        forest.save(frozen_path, rows=False)
        found = {f"file {name}": one for name, one in cases.arrays_of_file(path).items()}
        for name, one in cases.arrays_of_file(frozen_path).items():
            found[f"frozen file {name}"] = one
        loaded = MondrianForestRegressor.load(path).partial_fit(more, labels)
        frozen = MondrianForestRegressor.load(frozen_path)
    for name, one in cases.described(frozen, y).items():
        found[f"frozen {name}"] = one
    return found | cases.described(loaded, labels)


def optimized(posterior):
    """The points that an optimiser tries, in which draws from trees decide."""
    space = {
        "x": Real(-1.0, 2.0),
        "n": Integer(1, 9),
        "kind": Categorical(["a", "b", "c"]),
    }

    def loss(point):
        return (point["x"] - 0.3) ** 2 + 0.1 * point["n"] + 0.5 * (point["kind"] == "a")

    surrogate = MondrianForestRegressor(
        n_estimators=10, min_samples_split=2, posterior=posterior, n_candidate_splits=1,
        feature_weights=None, spread=1.0, robust=False,
    )  # fmt: skip
    found = {}
    for acquisition in ("ei", "thompson"):
        result = minimize(
            loss, space, 25, random_state=3, forest=surrogate, acquisition=acquisition
        )
        tried = [[trial.point["x"], trial.point["n"]] for trial in result.trials]
        found[acquisition] = np.array(tried, dtype=np.float64)
    return found


@contextmanager
def cluster():
    """Two workers in this process."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as workers,
        Client(workers) as client,
    ):
        yield client


def distributed(case):
    """A fit on a cluster, with and without rows; the former learns more."""
    import dask.array as da

    from mondrian_forest.distributed import fit

    X, y = cases.table(cases.N_ROWS, 0)
    more, labels = cases.table(cases.N_NEW, 1)
    chunks = (50, 0, 60, 50)
    data = da.from_array(X, (chunks, -1)), da.from_array(y, (chunks,))
    forest = cases.forest_of(case)
    with cluster() as client:
        kept = fit(forest, *data, client=client, block_rows=40)
        dropped = fit(forest, *data, client=client, block_rows=40, keep_rows=False)
    found = cases.described(kept, y)
    for name, one in cases.described(dropped, y).items():
        found[f"without rows {name}"] = one
    for name, one in cases.described(kept.partial_fit(more, labels), labels).items():
        found[f"learned more {name}"] = one
    return found


KINDS = {"batch": batch, "stream": stream, "from nothing": from_nothing, "file": file}
OTHERS = {"optimized": optimized, "distributed": distributed}
ALL = [(kind, case) for kind in KINDS for case in CASES]
ALL += [("optimized", posterior) for posterior in ("hierarchical", "empirical", "pruned")]
ALL += [("distributed", case) for case in CASES if "linear" not in case]


def computed(kind, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels of 500 are drawn in; Dask warns of its own
        return (KINDS | OTHERS)[kind](case)


def processor():
    """Return what compiled code and NumPy's functions depend on."""
    features = llvmlite.binding.get_host_cpu_features()
    known = sorted(name for name, is_there in features.items() if is_there)
    whole = " ".join([llvmlite.binding.get_host_cpu_name(), *known])
    return hashlib.sha256(whole.encode()).hexdigest()


def write(content):
    """Write all arrays as one: in a file of thousands, their names would take most of it."""
    index = {name: np.shape(array) for name, array in content.items()}
    values = np.concatenate([np.ravel(array).astype(np.float64) for array in content.values()])
    np.savez_compressed(RECORD, values=values, index=json.dumps(index), processor=processor())


@pytest.fixture(scope="module")
def record():
    with np.load(RECORD) as content:
        values, index = content["values"], json.loads(str(content["index"]))
        is_exact = str(content["processor"]) == processor()
    ends = np.cumsum([int(np.prod(shape)) for shape in index.values()])
    parts = np.split(values, ends[:-1])
    arrays = {
        name: part.reshape(shape) for (name, shape), part in zip(index.items(), parts, strict=True)
    }
    return arrays, is_exact


@pytest.mark.parametrize(("kind", "case"), ALL)
def test_results_are_those_of_the_record(record, kind, case):
    start = f"{kind} | {case} | "
    arrays, is_exact = record
    known = {name[len(start) :]: one for name, one in arrays.items() if name.startswith(start)}
    found = computed(kind, case)
    assert set(found) == set(known)
    for name, one in found.items():
        if is_exact and not name.endswith(SUMMED_IN_ANY_ORDER):
            np.testing.assert_array_equal(one, known[name], err_msg=name)
        elif one.dtype == np.float64:
            tolerance = 1e-12 if is_exact else 1e-6
            np.testing.assert_allclose(one, known[name], rtol=tolerance, err_msg=name)


if __name__ == "__main__":
    content = {}
    for one_kind, one_case in ALL:
        for array_name, array in computed(one_kind, one_case).items():
            content[f"{one_kind} | {one_case} | {array_name}"] = np.asarray(array)
    write(content)
    print(len(content), "arrays,", RECORD.stat().st_size, "bytes")
