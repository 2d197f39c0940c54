"""Attacks on model files: kills while saving, rewrites while loading, damage and forgery.

``MONDRIAN_ATTACK=10`` makes ten times as many of them. Each attack with processes is a script of
its own, so that a crash is seen as the signal that ended it.
"""

import contextlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mondrian_forest import ModelFileError, MondrianForestRegressor
from mondrian_forest._forest.model_file import DTYPES
from mondrian_forest.io.container import _sealed, checksum, read_file, write_file

SCALE = int(os.environ.get("MONDRIAN_ATTACK", "1"))

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
    return json.loads(done.stdout)


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
from mondrian_forest import MondrianForestRegressor

path, n_kills = Path(sys.argv[1]), int(sys.argv[2])
X = np.random.default_rng(0).random((3_000, 3))
forests = [MondrianForestRegressor(3, random_state=k).fit(X[:n], X[:n, k])
           for k, n in enumerate((2_000, 3_000))]
expected = [forest.predict(X[:5]).tolist() for forest in forests]
forests[0].save(path)
start = time.perf_counter()
for _ in range(5):
    forests[1].save(path)
duration = (time.perf_counter() - start) / 5
found = {"old or new": [0, 0], "left behind": 0, "left after the next save": 0}
random.seed(0)
for number in range(n_kills):
    child = os.fork()
    if child == 0:
        try:
            while True:
                for forest in forests:
                    forest.save(path)
        finally:
            os._exit(1)
    time.sleep(random.random() * 3 * duration)
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    loaded = MondrianForestRegressor.load(path)
    found["old or new"][expected.index(loaded.predict(X[:5]).tolist())] += 1
    found["left behind"] += len(os.listdir(path.parent)) - 1
    forests[number % 2].save(path)
    found["left after the next save"] += len(os.listdir(path.parent)) - 1
print(json.dumps(found))
"""


@needs_fork
def test_a_kill_while_saving_leaves_a_whole_file_and_nothing_else_for_long(tmp_path):
    n_kills = 20 * SCALE
    found = run(KILLS, tmp_path / "model.mf", n_kills)
    print(found)
    assert sum(found["old or new"]) == n_kills
    assert found["left behind"] > n_kills / 10  # else no kill came while a file was written
    assert found["left after the next save"] == 0


UPDATES = """
import contextlib, io, json, os, random, shutil, signal, sys, time
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.csv
from mondrian_forest.cli import main
from mondrian_forest.tables import TableForest

folder, n_kills = Path(sys.argv[1]), int(sys.argv[2])
random.seed(0)
values = np.random.default_rng(0).random((700, 3))
table = pa.table({"a": values[:, 0], "b": values[:, 1], "y": values[:, 2]})
pa.csv.write_csv(table.slice(600), folder / "more.csv")
TableForest.fit(table.slice(0, 600), "y", n_estimators=3, random_state=0).save(folder / "old.mf")
path = folder / "model.mf"


def update():
    sys.argv = ["mondrian", "update", str(path), str(folder / "more.csv"), "--jobs", "1"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main()


found = {"old or new": [0, 0], "left behind": 0}
shutil.copy(folder / "old.mf", path)
for number in range(n_kills + 1):
    shutil.copy(folder / "old.mf", path)
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            update()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        finally:
            os._exit(status)
    if number > 0:  # the first one is not killed, and tells how long an update takes
        time.sleep(random.random() * 1.2 * duration)
        os.kill(child, signal.SIGKILL)
    ended = os.waitpid(child, 0)[1]
    if number == 0:
        assert os.waitstatus_to_exitcode(ended) == 0
        duration = time.perf_counter() - start
        continue
    known = TableForest.load(path)
    known.predict(table.slice(0, 5))
    found["old or new"][[600, 700].index(known.forest.n_samples_seen_)] += 1
    found["left behind"] += len(list(folder.iterdir())) - 3
print(json.dumps(found))
"""


@needs_fork
def test_a_kill_while_updating_leaves_the_old_or_the_new_model(tmp_path):
    n_kills = 10 * SCALE
    found = run(UPDATES, tmp_path, n_kills)
    assert sum(found["old or new"]) == n_kills
    assert found["old or new"][0] > 0  # else no kill came before the end


REWRITES = """
import json, os, random, sys, time
from pathlib import Path
import numpy as np
from mondrian_forest import ModelFileError, MondrianForestRegressor

path, n_rewrites = Path(sys.argv[1]), int(sys.argv[2])
X = np.random.default_rng(0).random((3_000, 3))
forests = [MondrianForestRegressor(3, random_state=k).fit(X[:n], X[:n, k])
           for k, n in enumerate((2_000, 3_000))]
expected = [forest.predict(X[:5]).tolist() for forest in forests]
contents = []
for forest in forests:
    forest.save(path)
    MondrianForestRegressor.load(path)
    contents.append(path.read_bytes())
results, report = os.pipe()
child = os.fork()
if child == 0:
    status = 1
    try:
        counts = [0, 0]  # sound ones, errors
        while True:
            try:
                loaded = MondrianForestRegressor.load(path)
            except ModelFileError:
                counts[1] += 1
            else:
                assert loaded.predict(X[:5]).tolist() in expected
                counts[0] += 1
            if counts[0] + counts[1] >= n_rewrites and path.with_name("stop").exists():
                break
        os.write(report, json.dumps(counts).encode())
        status = 0
    finally:
        os._exit(status)
random.seed(0)
n_done = 0
while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
    content = contents[n_done % 2]
    with open(path, "r+b", buffering=0) as file:
        if n_done % 3 == 0:
            os.ftruncate(file.fileno(), random.randrange(len(content)))
        size = random.choice((4096, 65536, len(content)))
        for place in range(0, len(content), size):
            file.write(content[place : place + size])
        os.ftruncate(file.fileno(), len(content))
    time.sleep(random.choice((0.0, 0.03)))  # so that some are loaded whole
    n_done += 1
    if n_done >= n_rewrites:
        path.with_name("stop").touch()
if ended[1] != 0:  # as the number of a signal, if negative
    sys.exit(f"loading ended with {os.waitstatus_to_exitcode(ended[1])}")
sound, errors = json.loads(os.read(results, 1000))
print(json.dumps({"rewrites": n_done, "sound": sound, "errors": errors}))
"""


@needs_fork
def test_a_file_that_is_rewritten_in_place_while_it_is_loaded_does_no_harm(tmp_path):
    n_rewrites = 50 * SCALE
    found = run(REWRITES, tmp_path / "model.mf", n_rewrites)
    print(found)
    assert found["rewrites"] >= n_rewrites
    assert found["sound"] + found["errors"] >= n_rewrites
    assert found["errors"] > 0  # else nothing came in between


def tiny(rows):
    X = np.random.default_rng(0).random((30, 2))
    forest = MondrianForestRegressor(2, min_samples_split=3, random_state=0).fit(X, X[:, 0])
    return forest if rows else forest.freeze()


@pytest.fixture(scope="module", params=[True, False], ids=["rows", "frozen"])
def model(request, tmp_path_factory):
    """A forest, its file, and another file to damage."""
    folder = tmp_path_factory.mktemp("files")
    forest = tiny(request.param)
    forest.save(folder / "good.mf")
    return forest, folder / "good.mf", folder / "bad.mf"


def use(forest):
    """Do everything that a forest can do; what it says does not matter."""
    X = np.random.default_rng(1).random((20, 2)) * 1.5
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be names of features now
        forest.predict(X, return_std=True)
        forest.predict_quantiles(X, [0.1, 0.9])
        forest.apply(X)
        with contextlib.suppress(ValueError):  # frozen, or its labels are too far apart
            forest.partial_fit(X, X[:, 1])
            forest.predict(X)


PLACES = st.floats(0, 1, exclude_max=True)
DAMAGE = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), PLACES, st.integers(0, 7)),
        st.tuples(st.just("cut"), PLACES, st.just(0)),
        st.tuples(st.just("delete"), PLACES, st.integers(1, 5000)),
        st.tuples(st.just("insert"), PLACES, st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("write"), PLACES, st.binary(min_size=1, max_size=64)),
    ),
    min_size=1,
    max_size=3,
)


def damaged(good, actions):
    bad = bytearray(good)
    for action, share, what in actions:
        place = int(share * len(bad))
        if action == "flip" and bad:
            bad[place] ^= 1 << what
        elif action == "cut":
            del bad[place:]
        elif action == "delete":
            del bad[place : place + what]
        elif action == "insert":
            bad[place:place] = what
        elif action == "write":
            bad[place : place + len(what)] = what
    return bytes(bad)


fuzz = settings(
    max_examples=150 * SCALE,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzz
@given(actions=DAMAGE, mmap=st.booleans())
def test_damage_is_found_or_does_none(model, actions, mmap):
    forest, good, bad = model
    content = good.read_bytes()
    bad.write_bytes(damaged(content, actions))
    try:
        loaded = MondrianForestRegressor.load(bad, mmap=mmap)
    except ModelFileError:
        return
    if not mmap:  # else boxes may have changed
        X = np.random.default_rng(1).random((20, 2))
        np.testing.assert_array_equal(loaded.predict(X), forest.predict(X))
    use(loaded)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.sampled_from(["", "inf", "text", "rows", "F32"]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@st.composite
def forgeries(draw, tree):
    """Change a value somewhere in a tree of JSON."""
    place = tree
    for _ in range(10):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and draw(st.integers(0, 3)) > 0:
            place = place[key]
            continue
        if isinstance(place, dict) and draw(st.integers(0, 9)) == 0:
            del place[key]
        elif type(place[key]) is int and draw(st.booleans()):
            place[key] += draw(st.sampled_from([-8, -1, 1, 8, 2**31, 2**62]))
        else:
            place[key] = draw(JSON)
        return


@fuzz
@given(data=st.data(), mmap=st.booleans())
def test_forged_descriptions_do_no_harm(model, data, mmap):
    _, good, bad = model
    whole = good.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:start])
    if data.draw(st.booleans()):
        data.draw(forgeries(header))
    else:
        text = json.loads(header["__metadata__"]["mondrian_forest"].partition(" ")[2])
        data.draw(forgeries(text))
        header["__metadata__"]["mondrian_forest"] = _sealed(json.dumps(text))
    content = json.dumps(header).encode()
    bad.write_bytes(len(content).to_bytes(8, "little") + content + whole[start:])
    with contextlib.suppress(ModelFileError):
        use(MondrianForestRegressor.load(bad, mmap=mmap))


@fuzz
@given(data=st.data(), mmap=st.booleans())
def test_forged_arrays_do_no_harm(model, data, mmap):
    """Their checksums are right."""
    _, good, bad = model
    header, arrays = read_file(good, DTYPES)
    for name in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=2)):
        array = arrays[name]
        if array.size == 0 or data.draw(st.integers(0, 5)) == 0:
            arrays[name] = data.draw(
                st.sampled_from(
                    [array[:-1], array[1:], np.concatenate([array, array]), array[None]]
                )
            )
            continue
        flat = array.reshape(-1).view(np.uint8)
        place = int(data.draw(PLACES) * len(flat))
        content = np.frombuffer(
            data.draw(
                st.sampled_from([b"\xff" * 4, b"\0" * 8, b"\0\0\x80\x7f", b"\x01"])
                | st.binary(min_size=1, max_size=16)
            ),
            np.uint8,
        )
        place -= place % data.draw(st.sampled_from([1, 4, 8]))
        content = content[: len(flat) - place]
        flat[place : place + len(content)] = content
    header["sha256"] = {name: checksum(array) for name, array in arrays.items()}
    Path(bad).touch()
    write_file(bad, header, arrays)
    with contextlib.suppress(ModelFileError):
        use(MondrianForestRegressor.load(bad, mmap=mmap))
