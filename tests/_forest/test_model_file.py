"""Model files: round trips, atomic writing, and what damage or malice can do (nothing)."""

import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from mondrian_forest import (
    HierarchicalPosterior,
    ModelFileError,
    MondrianForestRegressor,
    PrunedPosterior,
)
from mondrian_forest._core.arrays.tree import NODE, TALLY
from mondrian_forest._forest import model_file
from mondrian_forest._forest.sharing import state_of
from mondrian_forest.io.container import checksum, read_file, write_file

FIXTURES = Path(__file__).parents[1] / "fixtures"


def stream(n_rows, n_features=4, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, n_features))
    return X, X[:, 0] + np.sin(5 * X[:, 1]) + 0.1 * generator.standard_normal(n_rows)


def forest(*, online=False, **parameters):
    X, y = stream(300)
    model = MondrianForestRegressor(4, random_state=0, **parameters).fit(X[:200], y[:200])
    return model.partial_fit(X[200:], y[200:]) if online else model


def assert_same(model, other):
    X, _ = stream(50, seed=1)
    for expected, found in zip(
        model.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(expected, found)
    np.testing.assert_array_equal(
        model.predict_quantiles(X, [0.1, 0.9]), other.predict_quantiles(X, [0.1, 0.9])
    )


def sign(path, header, arrays):
    """Write a file whose checksums are right, whatever is in it."""
    write_file(path, header | {"sha256": {name: checksum(a) for name, a in arrays.items()}}, arrays)


def content(path):
    return read_file(path, model_file.DTYPES)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("posterior", ["hierarchical", "empirical"])
def test_a_loaded_forest_predicts_and_learns_as_the_saved_one(
    tmp_path, posterior, online, rows, mmap
):
    model = forest(online=online, posterior=posterior, n_jobs=2)
    path = tmp_path / "model.mf"
    model.save(path, rows=rows)
    loaded = MondrianForestRegressor.load(path, mmap=mmap)
    assert loaded.get_params() == model.get_params()
    assert loaded.n_samples_seen_ == model.n_samples_seen_
    assert_same(model, loaded)
    if posterior == "hierarchical":
        np.testing.assert_array_equal(
            model.log_marginal_likelihood_, loaded.log_marginal_likelihood_
        )
    X, y = stream(100, seed=2)
    if rows:
        before = path.read_bytes()
        for chunk in range(0, 100, 20):
            for each in (model, loaded):
                each.partial_fit(X[chunk : chunk + 20], y[chunk : chunk + 20])
        assert_same(model, loaded)
        assert path.read_bytes() == before
    else:
        assert not state_of(model).is_frozen
        with pytest.raises(ValueError, match="dropped its training rows"):
            loaded.partial_fit(X, y)


def test_another_process_reads_the_same_bits_and_goes_on_identically(tmp_path):
    model = forest(online=True)
    model.save(tmp_path / "model.mf")
    X, y = stream(60, seed=3)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    code = """
import sys, numpy as np
from mondrian_forest import MondrianForestRegressor
data = np.load(sys.argv[1] + "/data.npz")
forest = MondrianForestRegressor.load(sys.argv[1] + "/model.mf")
forest.save(sys.argv[1] + "/again.mf")
before = forest.predict(data["X"])
after = forest.partial_fit(data["X"], data["y"]).predict(data["X"])
np.savez(sys.argv[1] + "/found.npz", before=before, after=after)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(found["before"], model.predict(X))
    np.testing.assert_array_equal(found["after"], model.partial_fit(X, y).predict(X))
    assert (tmp_path / "model.mf").read_bytes() == (tmp_path / "again.mf").read_bytes()


def test_names_and_all_kinds_of_parameters_survive(tmp_path):
    X, y = stream(100)
    table = pd.DataFrame(X, columns=["a", "b", "ü", "d"])
    model = MondrianForestRegressor(
        np.int64(3),
        feature_range=(np.zeros(4), [2.0, 1, 1, 1]),
        posterior=PrunedPosterior(noise_variance=np.float32(0.5)),
        random_state=np.random.RandomState(7),
    ).fit(table, y)
    model.save(tmp_path / "model.mf")
    loaded = MondrianForestRegressor.load(tmp_path / "model.mf")
    assert list(loaded.feature_names_in_) == ["a", "b", "ü", "d"]
    assert loaded.feature_range == ((0.0,) * 4, (2.0, 1, 1, 1))
    np.testing.assert_array_equal(model.predict(table), loaded.predict(table))
    with pytest.warns(UserWarning, match="valid feature names"):
        loaded.predict(X)
    np.testing.assert_array_equal(  # the generator is where it was: fits again in the same way
        model.fit(table, y).predict(table), loaded.fit(table, y).predict(table)
    )


def test_what_cannot_be_saved_is_named(tmp_path):
    model = forest()
    model.set_params(random_state=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"random_state=.* cannot be saved"):
        model.save(tmp_path / "model.mf")
    model.set_params(random_state=0, n_estimators=0)  # a file of it could not be loaded
    with pytest.raises(ValueError, match="n_estimators must be"):
        model.save(tmp_path / "model.mf")
    assert list(tmp_path.iterdir()) == []


def test_places_where_no_file_can_be_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*absent'"):
        forest().save(tmp_path / "absent" / "model.mf")
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        forest().save(tmp_path)
    forest().save(tmp_path / ("x" * 255))


def test_permissions_and_links_stay_as_they_are(tmp_path):
    path, link = tmp_path / "model.mf", tmp_path / "link.mf"
    model = forest()
    model.save(path)
    path.chmod(0o600)
    link.symlink_to(path)
    forest(online=True).save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert MondrianForestRegressor.load(path).n_samples_seen_ == 300


def test_a_file_that_is_replaced_while_it_is_read_is_read_whole(tmp_path):
    path = tmp_path / "model.mf"
    models = [
        forest(),
        forest(posterior=HierarchicalPosterior(prior_mean=1000.0), min_samples_split=3),
    ]
    models[0].save(path)
    expected = [model.predict([[0.5] * 4])[0] for model in models]
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            for model in models:
                model.save(path)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for number in range(200):
            loaded = MondrianForestRegressor.load(path, mmap=number % 2 == 1)
            assert loaded.predict([[0.5] * 4])[0] in expected
    finally:
        stop.set()
        writer.join()


def test_the_file_is_hardly_larger_than_the_arrays(tmp_path):
    X, y = stream(20_000)
    model = MondrianForestRegressor(10, random_state=0).fit(X, y)
    model.save(tmp_path / "model.mf")
    arrays = sum(array.nbytes for tree in model.trees_ for array in tree)
    state = state_of(model)
    contests = state.grove.contests
    arrays += (
        state.rows.nbytes
        + state.labels.nbytes
        + state.arrivals.nbytes
        + state.grove.row_numbers.nbytes
        + contests.candidates[:, : contests.counts[:, 0].max()].nbytes
    )
    assert arrays < (tmp_path / "model.mf").stat().st_size < 1.1 * arrays


def test_no_training_row_is_in_a_file_without_rows(tmp_path):
    X, y = stream(300)
    y[17] = 12.3456789
    model = MondrianForestRegressor(3, random_state=0).fit(X, y)
    model.save(tmp_path / "full.mf")
    model.save(tmp_path / "frozen.mf", rows=False)
    assert y[17].tobytes() in (tmp_path / "full.mf").read_bytes()
    assert y[17].tobytes() not in (tmp_path / "frozen.mf").read_bytes()


def test_a_file_is_replaced_in_one_step_with_ordinary_permissions(tmp_path):
    path = tmp_path / "model.mf"
    forest().save(path)
    forest().save(path)
    MondrianForestRegressor.load(path)
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    assert {entry.name for entry in tmp_path.iterdir()} == {"model.mf", "ordinary"}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.mf"
    model = forest()
    model.save(path)
    before = path.read_bytes()

    def fill_the_disk(name, _header, _arrays):
        Path(name).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_file, "write_file", fill_the_disk)
    with pytest.raises(OSError, match="No space left") as found:
        model.save(path)
    assert found.value.filename == str(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_becomes_too_large_leaves_the_old_one(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.mf"
    forest().save(path)
    before = path.read_bytes()
    other = forest(online=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as found:
            other.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.value.filename == str(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_loaded_forest_is_in_memory_that_nobody_else_can_change(tmp_path):
    path = tmp_path / "model.mf"
    model = forest()
    model.save(path)
    loaded = MondrianForestRegressor.load(path)
    if Path("/proc/self/maps").exists():
        assert str(path) not in Path("/proc/self/maps").read_text()
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert_same(model, loaded)
    os.truncate(path, 0)
    assert_same(model, loaded)


@pytest.mark.parametrize("rows", [False, True])
def test_a_mapped_forest_survives_changes_of_its_file(tmp_path, rows):
    """They are not allowed; but only the boxes are in the file, and no kernel follows them."""
    path = tmp_path / "model.mf"
    model = forest(online=True, mean_function=None)  # no refit, so that nodes keep their numbers
    model.save(path, rows=rows)
    size = path.stat().st_size
    start = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    X, y = stream(50, seed=1)
    for value in (b"\x00", b"\x01", b"\x7f", b"\xff"):
        loaded = MondrianForestRegressor.load(path, mmap=True)
        before = path.read_bytes()
        path_again = tmp_path / "again.mf"
        path_again.write_bytes(before)
        with open(path, "r+b") as file:
            file.seek(start)
            file.write(value * (size - start))
        np.testing.assert_array_equal(model.apply(X), loaded.apply(X))
        with np.errstate(all="ignore"):
            loaded.predict(X, return_std=True)
            loaded.predict_quantiles(X, [0.1, 0.9])
        if rows:
            with pytest.raises(ModelFileError, match="has changed since it was loaded with mmap"):
                loaded.partial_fit(X, y)
            assert loaded.n_samples_seen_ == model.n_samples_seen_
        path.write_bytes(before)


def test_a_forest_with_too_little_memory_says_so(tmp_path):
    """Address space is limited step by step; the process must never be ended by it."""
    pytest.importorskip("resource")
    code = """
import resource, sys
import numpy as np
from mondrian_forest import MondrianForestRegressor
path = sys.argv[1]
generator = np.random.default_rng(0)
X = generator.random((20_000, 4))
forest = MondrianForestRegressor(10, random_state=0, posterior="empirical").fit(X, X[:, 0])
forest.save(path)
before = open(path, "rb").read()
size = len(before)
assert size > 10_000_000
MondrianForestRegressor.load(path)
MondrianForestRegressor.load(path, mmap=True)

def in_use():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

failed, done = {}, {}
for name, act in {
    "save": lambda: forest.save(path),
    "save frozen": lambda: forest.save(path + ".frozen", rows=False),
    "load": lambda: MondrianForestRegressor.load(path),
    "load mapped": lambda: MondrianForestRegressor.load(path, mmap=True),
}.items():
    failed[name] = done[name] = 0
    for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 3.0):
        resource.setrlimit(resource.RLIMIT_AS, (in_use() + int(share * size), -1))
        try:
            act()
            done[name] += 1
        except MemoryError:
            failed[name] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        assert open(path, "rb").read() == before
print(failed, done)
assert min(failed.values()) > 0
assert min(done.values()) > 0
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not say how much address space is in use")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.mf")], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert {entry.name for entry in tmp_path.iterdir()} == {"model.mf", "model.mf.frozen"}


def test_what_is_no_model_file_is_said_to_be_none(tmp_path):
    text, nothing, other, pickled = (tmp_path / name for name in ("text", "nothing", "other", "p"))
    text.write_text("a,b,c\n1,2,3\n" * 100)
    nothing.touch()
    save_file({"weights": np.zeros(3)}, other)
    pickled.write_bytes(pickle.dumps(forest()))
    for path in (text, nothing, other, pickled):
        with pytest.raises(ModelFileError, match="is no sound model file"):
            MondrianForestRegressor.load(path)
    with pytest.raises(FileNotFoundError):
        MondrianForestRegressor.load(tmp_path / "absent.mf")
    with pytest.raises(OSError, match="directory"):
        MondrianForestRegressor.load(tmp_path)


def test_what_is_written_does_not_depend_on_what_memory_held_before(tmp_path):
    contents = set()
    for value in (1.0, 2.0, 3.0):
        for size in (100, 1000, 4000):
            np.full(size, value)  # freed at once: the forest's arrays may get this memory
        forest().save(tmp_path / "model.mf")
        contents.add((tmp_path / "model.mf").read_bytes())
    assert len(contents) == 1


def test_a_file_of_a_later_format_says_so(tmp_path):
    path = tmp_path / "model.mf"
    forest().save(path)
    header, arrays = content(path)
    sign(path, header | {"format_version": 4}, arrays)
    with pytest.raises(ModelFileError, match=r"it has format 4, and .* reads format 3"):
        MondrianForestRegressor.load(path)


@pytest.mark.parametrize("version", [3])
@pytest.mark.parametrize("name", ["format_{}.mf", "format_{}_frozen.mf"])
def test_files_of_all_formats_keep_loading(version, name):
    """The files were written by ``write_fixture`` below, at the version that introduced them."""
    loaded = MondrianForestRegressor.load(FIXTURES / name.format(version))
    expected = json.loads((FIXTURES / f"format_{version}.json").read_text())
    mean, std = loaded.predict(expected["X"], return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-12)
    np.testing.assert_allclose(std, expected["std"], rtol=1e-12)
    if "frozen" not in name:
        n_rows = loaded.n_samples_seen_
        loaded.partial_fit(expected["X"], expected["mean"])
        assert loaded.n_samples_seen_ == n_rows + len(expected["X"])


def test_the_file_of_the_latest_format_has_a_spread_that_was_learned():
    loaded = MondrianForestRegressor.load(FIXTURES / "format_3.mf")
    assert len(loaded.spread_.factor) >= 2
    assert len(state_of(loaded).spread_record) >= 100


def write_fixture(version):
    X, y = stream(150, n_features=2)
    model = MondrianForestRegressor(3, min_samples_split=20, random_state=0).fit(X[:130], y[:130])
    model.partial_fit(X[130:], y[130:])
    model.save(FIXTURES / f"format_{version}.mf")
    model.save(FIXTURES / f"format_{version}_frozen.mf", rows=False)
    X = stream(5, n_features=2, seed=1)[0]
    mean, std = model.predict(X, return_std=True)
    expected = {"X": X.tolist(), "mean": mean.tolist(), "std": std.tolist()}
    (FIXTURES / f"format_{version}.json").write_text(json.dumps(expected, indent=1) + "\n")


def corrupt(good, generator):
    """Return damaged content: bits, bytes, lengths, blocks."""
    bad = bytearray(good)
    # Half of the damage is done to the description at the beginning of the file.
    end = len(bad) if generator.random() < 0.5 else min(len(bad), 4096)
    place = int(generator.integers(end))
    length = int(generator.integers(1, 64))
    match generator.integers(7):
        case 0:
            bad[place] ^= 1 << int(generator.integers(8))
        case 1:
            bad[place] = int(generator.integers(256))
        case 2:
            bad[place : place + length] = generator.bytes(length)
        case 3:
            del bad[place:]
        case 4:
            del bad[place : place + length]
        case 5:
            bad[place:place] = generator.bytes(length)
        case 6:
            other = int(generator.integers(len(bad)))
            bad[place : place + length] = good[other : other + length]
    return bytes(bad)


@pytest.mark.parametrize("rows", [True, False])
def test_random_damage_is_found_or_does_none(tmp_path, rows):
    """Ten thousand damaged files, in two lots."""
    X, y = stream(40, n_features=2)
    model = MondrianForestRegressor(2, random_state=0).fit(X, y)
    path = tmp_path / "model.mf"
    model.save(path, rows=rows)
    good = path.read_bytes()
    expected = model.predict(X)
    generator = np.random.default_rng(0)
    errors = []
    for _ in range(5_000):
        bad = corrupt(good, generator)
        path.write_bytes(bad)
        try:
            loaded = MondrianForestRegressor.load(path)
        except ModelFileError as error:
            errors.append(str(error))
        else:
            np.testing.assert_array_equal(loaded.predict(X), expected)
    assert len(errors) > 4_000
    assert max(map(len, errors)) < 500  # one sentence


def hostile(header, arrays, generator):
    """Change one thing in the arrays or in the description."""
    name = generator.choice([*arrays, "header"])
    if name == "header":
        name = generator.choice(list(header))
        values = [None, -1, 0, 2**70, 1e308, "text", [], {}, [1, 2, 3], True]
        header[name] = values[generator.integers(len(values))]
        return
    array = arrays[name]
    if array.size and generator.random() < 0.8:
        flat = array.reshape(-1).view(np.uint8)
        for _ in range(generator.integers(1, 4)):
            flat[generator.integers(len(flat))] = generator.choice([0, 1, 127, 128, 255])
    elif array.ndim and generator.random() < 0.5:
        arrays[name] = array[:-1]
    else:
        arrays[name] = np.concatenate([array, array])


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("mmap", [False, True])
def test_files_made_to_do_harm_do_none(tmp_path, online, mmap):
    """Their checksums are right; what passes must be usable, if not right."""
    X, y = stream(60, n_features=2)
    model = MondrianForestRegressor(2, min_samples_split=3, random_state=0).fit(X[:40], y[:40])
    if online:
        model.partial_fit(X[40:50], y[40:50])
    path = tmp_path / "model.mf"
    generator = np.random.default_rng(1)
    for rows in (True, False):
        model.save(path, rows=rows)
        good_header, good_arrays = content(path)
        n_refused = 0
        for _ in range(600):
            header = dict(good_header)
            arrays = {name: array.copy() for name, array in good_arrays.items()}
            hostile(header, arrays, generator)
            sign(path, header, arrays)
            try:
                loaded = MondrianForestRegressor.load(path, mmap=mmap)
            except ModelFileError:
                n_refused += 1
                continue
            with np.errstate(all="ignore"):
                loaded.predict(X, return_std=True)
                loaded.apply(X)
                if rows and loaded.n_estimators:
                    try:
                        loaded.partial_fit(X[50:], y[50:])
                    except ModelFileError:  # mapped boxes are looked at now
                        n_refused += 1
                    except ValueError:  # labels too far apart, for example
                        pass
        assert n_refused > 150  # many changes are none: of nothing, or to the same value


FAULTY_TREES = {
    "a child that does not exist": ("left_child", lambda nodes: len(nodes)),
    "is not reached": ("left_child", lambda _: 3),
    "a feature that does not exist": ("split_feature", lambda _: 2),
    "out of its range": ("split_time", lambda _: np.nan),
    "a box is empty": ("threshold", lambda _: 9.0),
}


@pytest.mark.parametrize("what", FAULTY_TREES)
def test_the_error_says_what_is_wrong_with_a_tree(tmp_path, what):
    X, y = stream(60, n_features=2)
    path = tmp_path / "model.mf"
    MondrianForestRegressor(2, random_state=0).fit(X, y).save(path)
    header, arrays = content(path)
    nodes = arrays["nodes"].reshape(2, -1).view(NODE)
    field, value = FAULTY_TREES[what]
    nodes[1, 0][field] = value(nodes[1])
    sign(path, header, arrays)
    with pytest.raises(ModelFileError, match=f"in tree 1, .*{what}"):
        MondrianForestRegressor.load(path)


@pytest.mark.parametrize("online", [False, True])
def test_boxes_that_are_larger_than_their_rows_are_found(tmp_path, online):
    """A cut through one could leave no row on one side, and make more nodes than there is room."""
    path = tmp_path / "model.mf"
    forest(online=online).save(path)
    header, arrays = content(path)
    arrays["boxes"][1, :, 0] -= 1.0  # all of them, so that they still fit each other
    sign(path, header, arrays)
    with pytest.raises(ModelFileError, match=r"in tree 1, a box is not that of the rows in it"):
        MondrianForestRegressor.load(path)
    loaded = MondrianForestRegressor.load(path, mmap=True)
    with pytest.raises(ModelFileError, match="a box is not that of the rows in it"):
        loaded.partial_fit(*stream(10, seed=2))


@pytest.mark.parametrize(("field", "value"), [("height", 1), ("n_samples", 59), ("first_row", 2)])
def test_tallies_that_do_not_add_up_are_found(tmp_path, field, value):
    X, y = stream(60, n_features=2)
    path = tmp_path / "model.mf"
    MondrianForestRegressor(2, random_state=0).fit(X, y).save(path)
    header, arrays = content(path)
    arrays["tallies"].reshape(2, -1).view(TALLY)[0, 0][field] = value
    sign(path, header, arrays)
    with pytest.raises(ModelFileError, match="in tree 0"):
        MondrianForestRegressor.load(path)


def test_opening_a_file_executes_nothing(tmp_path):
    """A parameter that names code stays text, and is refused for what it is."""
    path = tmp_path / "model.mf"
    forest().save(path)
    header, arrays = content(path)
    header["parameters"]["posterior"] = "__import__('os').system('touch harm')"
    sign(path, header, arrays)
    with pytest.raises(ModelFileError, match="posterior must be"):
        MondrianForestRegressor.load(path)
    assert not os.path.exists("harm")
