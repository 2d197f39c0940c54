"""Tables of all sorts: a sound result or one sentence, and nothing else.

``MONDRIAN_ATTACK=100`` runs a hundred times as many cases.
"""

import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import run_here
from mondrian_forest.tables import TableEncoder, TableError, TableFile

SCALE = int(os.environ.get("MONDRIAN_ATTACK", "1"))


def attack(n_cases):
    return settings(
        max_examples=n_cases * SCALE,
        deadline=None,
        database=None,
        derandomize=SCALE == 1,
        suppress_health_check=list(HealthCheck),
    )


MARKS = ["?", "", "NA", "-", " ", "none", "-999", "\x1b[31m", "$x$", "\u202e", "\0", "\ufeff"]
CELLS = st.one_of(
    st.sampled_from(MARKS),
    st.sampled_from(["1", "0.5", "1,5", "01", "1e400", "nan", "inf", "0x1f", "true", "False"]),
    st.sampled_from(["2020-01-01", "2020-02-30", "9999-12-31T23:59:59.123456789Z", "31.12.2020"]),
    st.sampled_from(["12:30", "24:00", "2020-01-01 00:00:00.123456789", "0001-01-01"]),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=6),
)
COLUMNS = st.one_of(  # mostly of one kind, with something else among it
    st.lists(CELLS, min_size=1, max_size=30),
    st.tuples(
        st.sampled_from(["1", "0.25", "2020-01-01", "2020-01-01 10:00Z", "12:30", "true", "x"]),
        st.integers(1, 25),
        st.lists(CELLS, max_size=3),
    ).map(lambda parts: [parts[0]] * parts[1] + parts[2]),
)
NAMES = st.one_of(
    st.sampled_from(["a", "std", "prediction", "$a$", "\x1b[2J"]), st.text(max_size=5)
)
TYPES = st.sampled_from(
    [
        pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(),
        pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.decimal128(9, 2), pa.null(),
        pa.string(), pa.large_string(), pa.binary(), pa.list_(pa.int64()),
        *(pa.duration(unit) for unit in ("s", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp("us", tz=zone) for zone in ("UTC", "Asia/Tokyo", "+01:00", "No/Where")),
    ]
)  # fmt: skip


@st.composite
def arrays(draw, n_rows):
    """Return an array of any type, with values of any bits."""
    type_ = draw(TYPES)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        values = draw(st.lists(CELLS | st.none(), min_size=n_rows, max_size=n_rows))
        return pa.array(values, type_)
    if pa.types.is_null(type_) or pa.types.is_list(type_) or pa.types.is_binary(type_):
        return pa.nulls(n_rows, type_)
    if pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        bits = draw(st.lists(st.integers(0, 1), min_size=n_rows, max_size=n_rows))
        return pa.array(bits, pa.int8()).cast(type_)
    width = type_.bit_width // 8
    bits = draw(st.binary(min_size=width * n_rows, max_size=width * n_rows))
    if draw(st.booleans()):  # smaller values, which may be sound
        bits = bytes(np.frombuffer(bits, np.uint8) % 2)
    nulls = draw(st.none() | st.binary(min_size=n_rows // 8 + 1, max_size=n_rows // 8 + 1))
    buffers = [None if nulls is None else pa.py_buffer(nulls), pa.py_buffer(bits)]
    return pa.Array.from_buffers(type_, n_rows, buffers)


@st.composite
def tables(draw):
    """Return a table with a target of numbers, or of something else."""
    n_rows = draw(st.integers(1, 30))
    names = draw(
        st.lists(NAMES, min_size=1, max_size=3, unique=True).filter(lambda n: "y" not in n)
    )
    columns = {name: draw(arrays(n_rows)) for name in names}
    sound = pa.array(np.arange(n_rows, dtype=float))
    columns["y"] = draw(st.one_of(st.just(sound), st.just(sound), arrays(n_rows)))
    return pa.table(columns)


def quoted(cell):
    return '"' + cell.replace('"', '""') + '"'


@st.composite
def csv_files(draw):
    """Return the bytes of a CSV file, nearly or truly one."""
    columns = draw(st.lists(COLUMNS, min_size=1, max_size=3))
    names = draw(st.lists(NAMES, min_size=len(columns), max_size=len(columns)))
    n_rows = max(map(len, columns))
    lines = [[*names, "y"]] + [
        [*(column[k % len(column)] for column in columns), f"{k}.5"] for k in range(n_rows)
    ]
    mark = draw(st.sampled_from([",", ",", ";", "\t", "|"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(mark.join(map(quoted, line)) for line in lines)
    content = text.encode("utf-8", "replace")
    if draw(st.integers(0, 3)) == 0:  # bytes are changed, and some are lost
        content = bytearray(content)
        for place in draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
            content[place] = draw(st.integers(0, 255))
        content = bytes(content[: draw(st.integers(0, len(content)))])
    return content


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "impute": st.booleans(),
        "missing": st.lists(st.sampled_from(MARKS), max_size=3),
        "text": st.lists(st.sampled_from(["a", "std", "y"]), max_size=1),
    },
)


def check_encoding(table, options):
    """Check that a table is refused, or that its features are finite, at the fit and later."""
    try:
        encoder, X, y = TableEncoder.learn(table, "y", **options)
    except TableError:
        return
    assert X.shape == (len(table), len(encoder.feature_names))
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()
    again = TableEncoder.from_json(encoder.to_json())
    np.testing.assert_array_equal(again.labels(table), y)
    later = again.features(table)
    for k, name in enumerate(encoder.feature_names):
        kinds = [column.kind for column in encoder.columns if name in column.features]
        if kinds == ["number"] or kinds == ["date"]:  # codes of texts come from other rows
            np.testing.assert_array_equal(later[:, k], X[:, k])


@attack(300)
@given(tables(), OPTIONS)
def test_any_table_is_encoded_or_refused(table, options):
    check_encoding(table, options)


@attack(250)
@given(csv_files(), OPTIONS)
def test_any_csv_file_is_encoded_or_refused(tmp_path_factory, content, options):
    path = tmp_path_factory.getbasetemp() / "attack.csv"
    path.write_bytes(content)
    try:
        file = TableFile(path)
        whole = file.read()
        parts = list(file.batches(7))
    except TableError:
        return
    assert sum(map(len, parts)) == len(whole)
    if len(whole) > 0 and "y" in file.names:
        check_encoding(whole, options)


@attack(150)
@given(
    st.sampled_from(["parquet", "arrow", "csv", "csv.gz"]),
    st.binary(max_size=200),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=5),
    st.floats(0.0, 1.0),
)
def test_any_bytes_are_read_or_refused(tmp_path_factory, kind, noise, changes, share):
    """Files with changed bytes, cut off, or of noise. Arrow's reader must not trust them."""
    path = tmp_path_factory.getbasetemp() / f"bytes.{kind}"
    table = pa.table({"a": ["x", None, "long text"] * 4, "d": [1.5, 2.5, math.nan] * 4})
    if kind == "parquet":
        pa.parquet.write_table(table, path)
    elif kind == "arrow":
        pa.feather.write_feather(table, path, compression="uncompressed")
    else:
        path.write_bytes(b"a,d\nx,1\n" * 9)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[int(place * len(content))] = value
    if share < 0.5:
        content = content[: int(2 * share * len(content))] + noise
    path.write_bytes(bytes(content))
    try:
        read = TableFile(path).read()
    except TableError:
        return
    read.validate(full=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of a number, a date and a text."""
    folder = tmp_path_factory.mktemp("attack")
    lines = [f"{k % 7}.5,2020-01-{k % 28 + 1:02},{'xyz'[k % 3]},{k}\n" for k in range(40)]
    (folder / "t.csv").write_text("a,std,$a$,y\n" + "".join(lines))
    done = run_here("fit", folder / "t.csv", "-t", "y", "--trees", 1, "--paper", "--jobs", 1,
                    "--impute", "--missing", "?", "-o", folder / "m.mf")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "m.mf"


@attack(40)
@given(
    csv_files() | tables(),
    st.sampled_from(["fit", "fit --stream", "fit --holdout", "predict", "evaluate", "update"]),
    OPTIONS,
)
def test_commands_end_with_a_result_or_one_sentence(model, content, command, options):
    table, out = model.parent / "new.csv", model.parent / "out.mf"
    if isinstance(content, bytes):
        table.write_bytes(content)
    else:
        table = model.parent / "new.parquet"
        try:
            pa.parquet.write_table(content, table)
        except (pa.ArrowException, ValueError):  # not every date can be in such a file
            return
    arguments = {
        "fit": ["fit", table, "-t", "y", "--trees", 1, "--paper"],
        "fit --stream": ["fit", table, "-t", "y", "--trees", 1, "--paper", "--stream",
                         "--batch-rows", 5],
        "fit --holdout": ["fit", table, "-t", "y", "--trees", 1, "--paper", "--holdout", 0.3],
        "predict": ["predict", model, table],
        "evaluate": ["evaluate", model, table, "--json"],
        "update": ["update", model, table],
    }[command]  # fmt: skip
    if "fit" in command:
        arguments += ["--impute"] * options.get("impute", False)
        arguments += [f"--missing={mark}" for mark in options.get("missing", [])]
        arguments += [f"--text={name}" for name in options.get("text", [])]
    if command not in ("evaluate", "predict"):
        arguments += ["-o", out]
    done = run_here(*arguments, "--jobs", 1)
    assert done.returncode in (0, 1, 2)
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 1:
        assert done.stderr.strip().count("\n") == 0, done.stderr
        assert done.stderr.strip() != ""
        assert command == "predict" or done.stdout == ""
