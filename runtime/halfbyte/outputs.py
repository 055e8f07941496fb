"""Atomic output files: complete, or absent.

A file is written without a name in its target folder and gets its name when it is complete, so a
process that is killed leaves nothing. Where the system only has files with names, it is called
``.halfbyte-*.part`` until then and locked by its writer; the next run removes those that are not
locked. Devices and pipes are not replaced but written to directly.
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
    """Let `write` fill a file, which replaces `path` when it is complete.

    Raises
    ------
    OutputError
        It cannot be written; `path` is unchanged.
    """
    with writing(path) as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, with a newline at the end; see :func:`write_file`."""
    write_file(path, lambda file: file.write(f"{text}\n".encode()))


@contextmanager
def writing(
    path: Path, *, is_model: bool = False, check: Callable[[Path], object] | None = None
) -> Iterator[BinaryIO]:
    """A file to fill; it replaces `path`, through links, when the context ends without an error.

    Parameters
    ----------
    is_model : bool
        The file will be read again: devices and pipes are refused.
    check : callable, optional
        Of a model: called with the complete file under another name; if it raises, `path` is
        unchanged. It must leave the file closed.

    Raises
    ------
    OutputError
        It cannot be written; `path` is unchanged.
    """
    with reporting(path):
        descriptor = _open_in_place(path, is_model)
        if descriptor is not None:
            with _Buffered(_Stream(descriptor, "wb")) as stream:
                yield stream
            return
        target = Path(os.path.realpath(path))
        with Partial(target.parent) as partial:
            yield partial.file
            if check is not None:
                check(partial.named())
            partial.place(target)


class Partial:
    """A file that is being written; without :meth:`place` it is removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name: Path | None = None
        _remove_abandoned(folder)
        descriptor = _open_nameless(folder)
        self._descriptor = self._open_named() if descriptor is None else descriptor
        self.file = _Buffered(io.FileIO(self._descriptor, "wb"))

    def place(self, target: Path) -> None:
        """Give it its name; it takes owner and permissions from the file that it replaces."""
        self.file.flush()
        with suppress(FileNotFoundError, AttributeError):  # Windows has no fchmod
            before = target.stat()
            with suppress(PermissionError):
                os.fchown(self._descriptor, before.st_uid, before.st_gid)
            os.fchmod(self._descriptor, stat.S_IMODE(before.st_mode))
        name = self.named()
        if os.name == "nt":
            self.file.close()  # Windows renames no open file; elsewhere closing ends the lock
        name.replace(target)
        self._name = None

    def named(self) -> Path:
        """A name in its folder, under which it can be read, with all bytes so far."""
        self.file.flush()
        if self._name is None:
            name = self._new_name()
            # Python follows the link only if given a folder's descriptor, ignored for this path.
            os.link(f"/proc/self/fd/{self._descriptor}", name, src_dir_fd=0)
            self._name = name
        return self._name

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
            os.close(descriptor)  # another run removed it as abandoned before it was locked


class _Buffered(io.BufferedWriter):
    """Hides the descriptor: NumPy would write to it directly and not notice a full disk."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


class _Stream(io.FileIO):
    """A device or a pipe: sequential, though some devices claim to be seekable."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("seek")


_BINARY = getattr(os, "O_BINARY", 0)


def _open_nameless(folder: Path) -> int | None:
    """A file without a name in the folder, if the system has these and can name them later."""
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
    """Remove the files of killed runs."""
    if sys.platform == "emscripten":  # has no locks, and nothing is killed
        return
    for path in folder.glob(_PART):
        with suppress(OSError):
            if not _LOCKS:  # Windows removes no file that any process has open
                path.unlink()
                continue
            descriptor = os.open(path, os.O_RDWR)
            try:
                if _lock(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Lock a file until it is closed; returns whether that was possible."""
    if not _LOCKS:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _open_in_place(path: Path, is_model: bool) -> int | None:
    """A device, a pipe, or the target of our stdout or stderr; None for other files, or none."""
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
    """Raise errors of the system as `OutputError`."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone: not an error of the output
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
