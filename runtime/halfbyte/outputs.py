"""Files that are whole or not there.

A file is written without a name, in the folder where it belongs, and gets its name when it is
whole: of a process that is killed nothing stays. Where the system knows only files with names, it
is ``.halfbyte-*.part`` until then, locked by who writes it; the next run removes those that nobody
holds. Devices and pipes are no files to replace: they are written as they are.
"""

from __future__ import annotations

import io
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from halfbyte.errors import OutputError

try:
    import fcntl

    _LOCKS = True
except ModuleNotFoundError:  # Windows, which lets nobody remove a file that is open
    _LOCKS = False

_PART = ".halfbyte-*.part"


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file, which takes the place of `path` when it is whole.

    Raises
    ------
    OutputError
        It cannot be written; what was there before still is.
    """
    with writing(path) as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write a text file of UTF-8, with a line's end at its end; see :func:`write_file`."""
    write_file(path, lambda file: file.write(f"{text}\n".encode()))


@contextmanager
def writing(path: Path, *, is_model: bool = False) -> Iterator[BinaryIO]:
    """A file to fill; it takes the place of `path`, through links, when the context ends well.

    Parameters
    ----------
    is_model : bool
        It is read again: devices and pipes are refused.

    Raises
    ------
    OutputError
        It cannot be written; what was there before still is.
    """
    with reporting(path):
        descriptor = _opened_in_place(path, is_model)
        if descriptor is not None:
            with _Buffered(_Stream(descriptor, "wb")) as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        with Partial(target.parent) as partial:
            yield partial.file
            partial.place(target)


class Partial:
    """A file that is being written; left without :meth:`place`, it vanishes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name: Path | None = None
        _remove_abandoned(folder)
        descriptor = _open_nameless(folder)
        self._descriptor = self._open_named() if descriptor is None else descriptor
        self.file = _Buffered(io.FileIO(self._descriptor, "wb"))

    def place(self, target: Path) -> None:
        """Give it its name, in place of a file there, whose owner and permissions it takes."""
        self.file.flush()
        with suppress(FileNotFoundError, AttributeError):  # Windows has no fchmod
            before = target.stat()
            with suppress(PermissionError):
                os.fchown(self._descriptor, before.st_uid, before.st_gid)
            os.fchmod(self._descriptor, stat.S_IMODE(before.st_mode))
        if self._name is None:
            name = self._new_name()
            # With a folder's descriptor, which an absolute path ignores, Python follows the link.
            os.link(f"/proc/self/fd/{self._descriptor}", name, src_dir_fd=0)
            self._name = name
        if os.name == "nt":
            self.file.close()  # or it could not be renamed; elsewhere this would give up the lock
        self._name.replace(target)
        self._name = None

    def __enter__(self) -> Partial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # closing flushes, which fails again where the disk is full
            self.file.close()
        if self._name is not None:
            with suppress(OSError):
                self._name.unlink()

    def _new_name(self) -> Path:
        return self._folder / _PART.replace("*", secrets.token_hex(8))

    def _open_named(self) -> int:
        while True:
            self._name = self._new_name()
            descriptor = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
            _lock(descriptor, wait=True)
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # another run took it for abandoned, before it was locked


class _Buffered(io.BufferedWriter):
    """The only way into a file: NumPy would write past it, and not notice that the disk is full."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


class _Stream(io.FileIO):
    """A device or a pipe as what it is: bytes one after another. Some claim to have places."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


_BINARY = getattr(os, "O_BINARY", 0)


def _open_nameless(folder: Path) -> int | None:
    """A file of the folder without a name, where there is such a thing and it can get one."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except (AttributeError, OSError):
        return None
    if not Path(f"/proc/self/fd/{descriptor}").exists():
        os.close(descriptor)
        return None
    _lock(descriptor)
    return descriptor


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed runs have left."""
    if sys.platform == "emscripten":  # where locks are none, and nothing is killed
        return
    for path in folder.glob(_PART):
        with suppress(OSError):
            if not _LOCKS:  # Windows removes nothing that is open, here or elsewhere
                path.unlink()
                continue
            descriptor = os.open(path, os.O_RDWR)
            try:
                if _lock(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Lock a file until it is closed; whether that was possible."""
    if not _LOCKS:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _opened_in_place(path: Path, is_model: bool) -> int | None:
    """A device, a pipe or where our own stdout or stderr goes; None for files and for nothing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if is_model or stat.S_ISDIR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        if stat.S_ISREG(status.st_mode):
            return None
        raise OutputError(f"{path}: cannot be written: not a regular file")
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(number)):
                with suppress(AttributeError):  # a stream that is closed
                    stream.flush()
                return os.dup(number)
    return None if stat.S_ISREG(status.st_mode) else os.open(path, os.O_WRONLY)


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """What the system refuses, as an `OutputError`."""
    try:
        yield
    except BrokenPipeError:  # its reader has gone, which is no error of the output's
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
