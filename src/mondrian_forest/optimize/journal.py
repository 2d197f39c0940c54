"""A record of a run that survives a crash: one JSON object a line, appended as things happen.

A journal has one writer at a time: the file is locked while it is open. Every line is written to
the disk before the next step of the run, and a line that could not be written whole is taken back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import warnings
import weakref
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(fd: int) -> None:
        # Not lockf: that lock would end as soon as anybody in this process closes the same file.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


FORMAT = 1

_BEGINNING = b'{"format": '
_LOCKED_BYTE = 2**40
"""Far behind the end of the file: on Windows nobody could read a byte that is locked."""
_IN_USE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class JournalError(ValueError):
    """The file is no journal, that of another run, damaged, or in use by another process."""


class Journal:
    """An append-only file with one writer.

    What a crash left of a last line is dropped with a warning. A copy, unpickled or made by a fork,
    takes the file at its first line, and only if nobody has written to it in the meantime.

    Parameters
    ----------
    path : path or None
        Created if absent. Without it, entries are kept in memory only.
    header : dict
        What the run is: a file with another header is refused, except for the seed, which is taken
        from the file where the header has None.
    """

    def __init__(self, path: str | os.PathLike[str] | None, header: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.header = {"format": FORMAT, **header}
        # Entries with the places where their lines end. One list, so that an interrupt finds an
        # entry with its place, or neither.
        self._lines: list[tuple[dict[str, Any], int]] = []
        self._begin = 0
        self._unfinished = b""
        self._fd: int | None = None
        self._release: weakref.finalize[[int], Journal] | None = None
        if self.path is not None:
            fd = self._take(self.path)
            try:
                self._read(self.path, fd)
            except BaseException:
                self.close()  # a traceback would keep the lock alive
                raise

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_fd": None, "_release": None}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What has been written; entry i is line i + 2."""
        return [entry for entry, _ in self._lines]

    @property
    def _whole(self) -> int:
        """Number of bytes of all whole lines."""
        return self._lines[-1][1] if self._lines else self._begin

    def append(self, entry: dict[str, Any]) -> None:
        """Write one line, and the header before the first; after an error there is no line."""
        if self.path is None:
            self._lines.append((entry, 0))
            return
        lines = [entry] if self._whole else [self.header, entry]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        fd = self._take(self.path)
        try:
            self._drop_unfinished(self.path, fd)
            self._unfinished = data
            try:
                _write(fd, data)
            except BaseException:
                with contextlib.suppress(OSError):  # then the next line is preceded by this
                    os.ftruncate(fd, self._whole)
                raise
        except OSError as error:
            error.filename = os.fspath(self.path)
            raise
        except JournalError:
            self.close()  # the file is another's now
            raise
        self._lines.append((entry, self._whole + len(data)))
        self._unfinished = b""

    def close(self) -> None:
        """Let others use the file; the next line takes it again."""
        if self._release is not None:
            self._release()
            self._fd = self._release = None

    def _take(self, path: Path) -> int:
        """Open and lock the file, unless that is done."""
        if self._fd is not None:
            return self._fd
        if path.exists() and not path.is_file():
            raise JournalError(f"{path} is no regular file: name another file for the journal.")
        is_new = not path.exists()
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        if not self._whole:  # what has lines and is gone was removed by somebody
            flags |= os.O_CREAT
        fd = os.open(path, flags, 0o666)
        try:
            self._lock_file(path, fd)
            if is_new:
                _sync_folder(path)
            self._release = weakref.finalize(self, _let_go, fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        _OPEN.add(self)
        return fd

    def _lock_file(self, path: Path, fd: int) -> None:
        try:
            _lock(fd)
        except OSError as error:
            if error.errno in _IN_USE:
                raise JournalError(_in_use(path, fd)) from None
            warnings.warn(
                f"{path} cannot be locked ({error.strerror}): make sure that no other process uses "
                "this journal.",
                RuntimeWarning,
                stacklevel=2,
            )

    def leave_to_parent(self) -> None:
        """In a child after a fork: the file and its lock are the parent's."""
        if self._release is not None and self._fd is not None:
            self._release.detach()
            os.close(self._fd)
            self._fd = self._release = None

    def _drop_unfinished(self, path: Path, fd: int) -> None:
        """Remove what an earlier failure left; refuse a file that somebody else has changed."""
        found = os.fstat(fd)
        try:
            is_the_same = os.path.samestat(found, os.stat(path))
        except FileNotFoundError:
            is_the_same = False
        if not is_the_same:
            raise JournalError(f"{path} was moved or replaced while it was in use: start again.")
        if found.st_size == self._whole:
            return
        os.lseek(fd, self._whole, os.SEEK_SET)
        tail = os.read(fd, len(self._unfinished) + 1)
        if found.st_size < self._whole or not self._unfinished.startswith(tail):
            raise JournalError(
                f"{path} was changed by another program while it was in use: start again."
            )
        os.ftruncate(fd, self._whole)

    def _read(self, path: Path, fd: int) -> None:
        with open(fd, "rb", closefd=False) as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].split(b"\n")[:-1]
        # A file of something else must not be taken for a journal that was cut off early.
        if not lines and content[: len(_BEGINNING)] != _BEGINNING[: len(content)]:
            raise JournalError(f"{path} is no journal of an optimiser.")
        end = 0
        for number, line in enumerate(lines, 1):
            end += len(line) + 1
            try:
                record = _parse(line)
            except ValueError:
                raise JournalError(f"{path}: line {number} is no JSON.") from None
            except RecursionError:
                raise JournalError(f"{path}: line {number} is nested too deeply.") from None
            if number == 1:
                self._check_header(path, record)
                self._begin = end
            else:
                self._lines.append((record, end))
        self._unfinished = content[whole:]
        if self._unfinished:  # it stays in the file until a line takes its place
            warnings.warn(
                f"{path}: line {len(lines) + 1} was not written to its end, and is dropped; what "
                "it was about is asked for again.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check_header(self, path: Path, found: Any) -> None:
        if not isinstance(found, dict) or "format" not in found:
            raise JournalError(f"{path} is no journal of an optimiser.")
        if found["format"] != FORMAT or found["format"] is True:
            raise JournalError(
                f"{path} has format {shortened(found['format'])}, and this version reads {FORMAT}."
            )
        seed = found.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise JournalError(f"{path} is damaged: its seed is {shortened(seed)}.")
        asked = dict(self.header)
        if asked.get("seed") is None:
            asked["seed"] = seed
        for name in asked | found:
            if found.get(name) != json.loads(json.dumps(asked.get(name))):
                its, ours = shortened(found.get(name)), shortened(asked.get(name))
                raise JournalError(
                    f"{path} is the journal of another run: its {name} is {its}, not {ours}; name "
                    "another file."
                )
        self.header = asked


_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()
"""Journals that hold a file in this process."""


def _leave_all_to_parent() -> None:
    for journal in list(_OPEN):
        journal.leave_to_parent()


if hasattr(os, "register_at_fork"):
    # Otherwise a child that outlives its parent would keep the lock.
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def _let_go(fd: int) -> None:
    with contextlib.suppress(OSError):  # where there are no locks
        _unlock(fd)  # closing does not suffice while a child is about to be started
    os.close(fd)


def _in_use(path: Path, fd: int) -> str:
    found = os.fstat(fd)
    for other in list(_OPEN):
        if other._fd is not None and os.path.samestat(os.fstat(other._fd), found):
            return (
                f"{path}: another optimiser of this process is using the journal: close it first."
            )
    pid = _pid_of_holder(found)
    who = "another process" if pid is None else f"another process (pid {pid})"
    return f"{path}: {who} is using the journal: wait for its end, or name another file."


def _pid_of_holder(found: os.stat_result) -> int | None:
    """Return the process that holds the lock of a file, where the system tells."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:  # as in "1: FLOCK  ADVISORY  WRITE 77 08:01:1234 0 EOF"
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == file and int(words[4]) > 0:
            return int(words[4])
    return None


def _write(fd: int, data: bytes) -> None:
    """Write all bytes, and wait until the disk has them."""
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])
    os.fsync(fd)


def _sync_folder(path: Path) -> None:
    """Wait until the disk knows of a new file, where folders can be opened."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _parse(line: bytes) -> Any:
    return json.loads(line.decode("utf-8"), object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name occurs twice.")
    return names
