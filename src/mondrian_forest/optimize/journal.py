"""The journal of a run: a file that survives a crash, with one JSON object on each line.

A journal has one writer at a time, because the file is locked while it is open. Every line is on
the disk before the run continues. A line that could not be written completely is removed.
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
        # A lock by lockf would end as soon as any code in this process closes the same file.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


FORMAT = 1

_BEGINNING = b'{"format": '
_LOCKED_BYTE = 2**40
"""Far behind the end of the file, because on Windows no process can read a locked byte."""
_IN_USE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class JournalError(ValueError):
    """The file is not a journal, belongs to another run, is damaged, or is in use."""


class Journal:
    """An append-only file with one writer.

    If a crash has left an incomplete last line, it is dropped with a warning. A copy, by pickle or
    by fork, opens the file when it writes its first line, and only if the file has not changed.

    Parameters
    ----------
    path : path or None
        The file; it is created if it does not exist. None: entries are kept in memory only.
    header : dict
        Describes the run. A file with another header is refused. If the seed is None, it is read
        from the file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, header: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.header = {"format": FORMAT, **header}
        # Entries with the position at which their line ends. They are in one list, so that an
        # interrupt cannot separate them.
        self._lines: list[tuple[dict[str, Any], int]] = []
        self._end_of_header = 0
        self._unfinished = b""
        self._fd: int | None = None
        self._release: weakref.finalize[[int], Journal] | None = None
        if self.path is not None:
            fd = self._take(self.path)
            try:
                self._read(self.path, fd)
            except BaseException:
                self.close()  # a traceback that refers to this object would keep the file locked
                raise

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_fd": None, "_release": None}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """All entries. Entry i is on line i + 2."""
        return [entry for entry, _ in self._lines]

    @property
    def _n_bytes(self) -> int:
        """Number of bytes of all complete lines."""
        return self._lines[-1][1] if self._lines else self._end_of_header

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry, after the header if it is the first. An error leaves no line behind."""
        if self.path is None:
            self._lines.append((entry, 0))
            return
        lines = [entry] if self._n_bytes else [self.header, entry]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        fd = self._take(self.path)
        try:
            self._drop_unfinished(self.path, fd)
            self._unfinished = data
            try:
                _write(fd, data)
            except BaseException:
                with contextlib.suppress(OSError):  # if it fails, the next call repeats it
                    os.ftruncate(fd, self._n_bytes)
                raise
        except OSError as error:
            error.filename = os.fspath(self.path)
            raise
        except JournalError:
            self.close()  # another program uses the file
            raise
        self._lines.append((entry, self._n_bytes + len(data)))
        self._unfinished = b""

    def close(self) -> None:
        """Let other processes use the file. The next entry opens and locks it again."""
        if self._release is not None:
            self._release()
            self._fd = self._release = None

    def _take(self, path: Path) -> int:
        """Open and lock the file, if it is not open."""
        if self._fd is not None:
            return self._fd
        if path.exists() and not path.is_file():
            raise JournalError(
                f"{path} is not a regular file: choose another file for the journal."
            )
        is_new = not path.exists()
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        if not self._n_bytes:  # a journal with lines must not be created again if it is removed
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

    def holds(self, file: os.stat_result) -> bool:
        """Return whether this journal has a file open."""
        return self._fd is not None and os.path.samestat(os.fstat(self._fd), file)

    def leave_to_parent(self) -> None:
        """After a fork, in the child: leave the file and its lock to the parent."""
        if self._release is not None and self._fd is not None:
            self._release.detach()
            os.close(self._fd)
            self._fd = self._release = None

    def _drop_unfinished(self, path: Path, fd: int) -> None:
        """Remove an incomplete last line. Refuse a file that another program has changed."""
        found = os.fstat(fd)
        try:
            is_the_same = os.path.samestat(found, os.stat(path))
        except FileNotFoundError:
            is_the_same = False
        if not is_the_same:
            raise JournalError(f"{path} was moved or replaced while it was in use: start again.")
        if found.st_size == self._n_bytes:
            return
        os.lseek(fd, self._n_bytes, os.SEEK_SET)
        tail = os.read(fd, len(self._unfinished) + 1)
        if found.st_size < self._n_bytes or not self._unfinished.startswith(tail):
            raise JournalError(
                f"{path} was changed by another program while it was in use: start again."
            )
        os.ftruncate(fd, self._n_bytes)

    def _read(self, path: Path, fd: int) -> None:
        """Read the header and all entries."""
        with open(fd, "rb", closefd=False) as file:
            content = file.read()
        n_complete = content.rfind(b"\n") + 1
        lines = content[:n_complete].split(b"\n")[:-1]
        # Another kind of file must not be mistaken for a journal that was cut off in its header.
        if not lines and content[: len(_BEGINNING)] != _BEGINNING[: len(content)]:
            raise JournalError(f"{path} is not a journal of an optimiser.")
        end = 0
        for number, line in enumerate(lines, 1):
            end += len(line) + 1
            try:
                record = _parse(line)
            except ValueError:
                raise JournalError(f"{path}: line {number} is not valid JSON.") from None
            except RecursionError:
                raise JournalError(f"{path}: line {number} is nested too deeply.") from None
            if number == 1:
                self._check_header(path, record)
                self._end_of_header = end
            else:
                self._lines.append((record, end))
        self._unfinished = content[n_complete:]
        if self._unfinished:  # it stays in the file until the next entry replaces it
            warnings.warn(
                f"{path}: line {len(lines) + 1} is incomplete and is dropped; its trial is asked "
                "for again.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check_header(self, path: Path, found: Any) -> None:
        if not isinstance(found, dict) or "format" not in found:
            raise JournalError(f"{path} is not a journal of an optimiser.")
        if found["format"] != FORMAT or found["format"] is True:
            raise JournalError(
                f"{path} has format {shortened(found['format'])}, but this version reads format "
                f"{FORMAT} only."
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
                    f"{path} is the journal of another run: its {name} is {its}, not {ours}: "
                    "choose another file."
                )
        self.header = asked


_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()
"""The journals of this process that have their file open."""


def _leave_all_to_parent() -> None:
    for journal in list(_OPEN):
        journal.leave_to_parent()


if hasattr(os, "register_at_fork"):
    # Otherwise a child that outlives its parent would keep the file locked.
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def _let_go(fd: int) -> None:
    # Closing alone would not unlock the file while a child process is being started.
    with contextlib.suppress(OSError):  # the file system may have no locks
        _unlock(fd)
    os.close(fd)


def _in_use(path: Path, fd: int) -> str:
    """Return the message for a file that another optimiser has locked."""
    file = os.fstat(fd)
    if any(journal.holds(file) for journal in list(_OPEN)):
        return f"{path}: another optimiser of this process is using the journal: close it first."
    pid = _pid_of_holder(file)
    who = "another process" if pid is None else f"another process (pid {pid})"
    return f"{path}: {who} is using the journal: wait until it ends, or choose another file."


def _pid_of_holder(file: os.stat_result) -> int | None:
    """Return the process that has locked a file, if the system tells."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in lines:  # for example "1: FLOCK  ADVISORY  WRITE 77 08:01:1234 0 EOF"
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == device and int(words[4]) > 0:
            return int(words[4])
    return None


def _write(fd: int, data: bytes) -> None:
    """Write all bytes, and wait until they are on the disk."""
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])
    os.fsync(fd)


def _sync_folder(path: Path) -> None:
    """Wait until a new file is in its folder on the disk, if the system can open folders."""
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
        raise ValueError("a name occurs twice")
    return names
