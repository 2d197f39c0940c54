"""Files that are replaced in one step: after a crash, the old one or the new one is there, whole.

The new content goes to an unfinished file in the same folder, which takes the name of the old file
once it is complete. A process that is killed leaves its unfinished file behind. The next one that
writes to the folder removes it: whoever writes holds a lock, which ends with the process, so an
unfinished file without a lock is abandoned.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_UNFINISHED = re.compile(r"\.mondrian-[0-9a-f]{16}\.unfinished")
_FAULTS_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise an ``OSError`` unless ``path`` names a regular file, or a new one in a folder."""
    name = os.fspath(path)
    try:
        mode = os.stat(name).st_mode
    except OSError:  # there is no such file yet
        folder = os.path.dirname(os.path.realpath(name))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"There is no folder {folder!r}.") from None
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{name!r} is a folder: name a file in it.")
    if not stat.S_ISREG(mode):
        raise OSError(
            f"{name!r} is a device, a pipe or a socket, which a file must not replace: name a "
            "regular file, or leave out -o where that writes to standard output."
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a name to write to; put the file in place when it is complete, and on the disk."""
    check_replaceable(path)
    target = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    _remove_abandoned(target.parent)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    try:
        # What replaces a private file must not be readable to others while it is written.
        file, unfinished = _begin(target.parent, 0o666 if mode is None else 0o600)
    except OSError as error:
        raise _of_path(error, path) from None
    try:
        with file:
            yield unfinished
            if mode is not None:
                os.chmod(unfinished, mode)
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # an open file cannot be renamed there
            os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _FAULTS_OF_WRITING:
            raise _of_path(error, path) from None
        raise


def _of_path(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Return the same error with the name that the user knows."""
    number = error.errno or errno.EIO
    return OSError(number, os.strerror(number), os.fspath(path))


def _begin(folder: Path, mode: int) -> tuple[FileIO, Path]:
    """Create an unfinished file and lock it."""
    while True:
        path = folder / f".mondrian-{secrets.token_hex(8)}.unfinished"
        file = FileIO(path, "x+", opener=lambda name, flags: os.open(name, flags, mode))
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # some file systems have no locks: no clean-up there
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink == 0:  # it was removed before it was locked
                file.close()
                continue
        return file, path


def _remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files in a folder that nobody is writing."""
    if sys.platform == "win32":
        return
    try:
        names = os.listdir(folder)
    except OSError:  # a folder can be writable without being readable
        return
    for name in filter(_UNFINISHED.fullmatch, names):
        path = folder / name
        # It may be gone, belong to somebody else, or be locked, since it is being written.
        with contextlib.suppress(OSError), _opened(path) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _opened(path: Path) -> FileIO:
    """Open a file to lock it; anything may have its name, and a pipe must not block."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    return FileIO(path, "r+", opener=lambda name, _: os.open(name, flags))
