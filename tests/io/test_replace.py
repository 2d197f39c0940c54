"""Files that are replaced in one step: what may be replaced, and what a killed process leaves."""

import os
import socket
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from command import refuse_here
from mondrian_forest import ModelFileError, MondrianForestRegressor
from mondrian_forest.io.replace import replacing
from mondrian_forest.tables import TableWriter


def small_forest():
    X = np.random.default_rng(0).random((60, 3))
    return MondrianForestRegressor(2, random_state=0).fit(X, X[:, 0])


def special_file(folder, kind):
    path = folder / f"special.{kind}.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root can make devices")
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_only_regular_files_are_replaced(tmp_path, kind):
    path = special_file(tmp_path, kind)
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    before = path.lstat()
    model = small_forest()
    for name in (path, link):
        with pytest.raises(OSError, match=r"is a device, a pipe or a socket, .* leave out -o"):
            model.save(name)
        with pytest.raises(OSError, match="is a device, a pipe or a socket"), TableWriter(name):
            pass
    assert path.lstat() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, link.name}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_read(tmp_path, kind, mmap):
    path = special_file(tmp_path, kind)
    found = []

    def load():
        try:
            MondrianForestRegressor.load(path, mmap=mmap)
        except ModelFileError as error:
            found.append(str(error))

    reader = threading.Thread(target=load, daemon=True)
    reader.start()
    reader.join(30)
    assert "not a regular file" in found[0]


def test_the_unfinished_file_of_a_killed_process_is_removed_by_the_next_one(tmp_path):
    code = """
import os, signal, sys
from mondrian_forest.io.replace import replacing
with replacing(sys.argv[1]) as unfinished:
    unfinished.write_bytes(b"half of it")
    print("ready", flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
"""
    path, foreign = tmp_path / "model.mf", tmp_path / ".mondrian-notes.unfinished"
    foreign.touch()
    model = small_forest()
    model.save(path)

    def start(other, fate):
        command = [sys.executable, "-c", code, str(tmp_path / other), fate]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        return child

    with start("model.mf", "killed") as killed:
        killed.wait()
    with start("other.mf", "alive") as alive:
        assert len(list(tmp_path.iterdir())) == 3  # that of the killed one is gone
        model.save(path)
        assert len(list(tmp_path.iterdir())) == 3  # that of the living one is not
        alive.stdin.close()
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "model.mf",
        "other.mf",
        ".mondrian-notes.unfinished",
    }
    assert (tmp_path / "other.mf").read_bytes() == b"half of it"


def test_what_replaces_a_private_file_is_private_from_the_start(tmp_path):
    path = tmp_path / "model.mf"
    path.touch(0o640)
    with replacing(path) as unfinished:
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "an unfinished file")

    monkeypatch.setattr("mondrian_forest.io.replace._begin", refuse)
    with pytest.raises(PermissionError) as found:
        small_forest().save(tmp_path / "model.mf")
    assert found.value.filename == str(tmp_path / "model.mf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "houses.csv", "--target", "price", "-o"),
        ("update", "houses.mf", "more.csv", "-o"),
        ("predict", "houses.mf", "more.csv", "-o"),
        ("evaluate", "houses.mf", "more.csv", "--report"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_refuse_to_replace_a_pipe_before_they_do_anything(folder, tmp_path, arguments):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    message = refuse_here(*arguments, pipe, cwd=folder)
    assert "is a device, a pipe or a socket" in message
    assert message.count("\n") == 1
    assert stat.S_ISFIFO(pipe.stat().st_mode)
