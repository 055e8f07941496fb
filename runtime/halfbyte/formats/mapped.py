"""Maps files as read-only pages that the system may drop.

A `MappedFile` remembers the file's status when it was mapped; `check` refuses a file that was
changed in place since.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError

Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8]"
Pages: TypeAlias = "mmap.mmap | memoryview"  # a file's bytes: mapped, or in memory already


_PIECE = 1 << 22  # bytes that are copied at once
# Network file systems: a file may change or vanish without notice.
NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "davfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
))  # fmt: skip


class MappedFile(mmap.mmap):
    """A file's read-only pages, and its status when they were mapped."""

    path: Path
    status: os.stat_result
    descriptor: int  # of the file itself, whose status takes a fifth of the time that a path takes

    def check(self) -> None:
        """Raise `FormatError` if the file was changed in place since it was mapped.

        Reading pages beyond a new end would kill the process; other pages would be those of another
        model. A new file under the old name does not affect the mapped one.
        """
        now = os.fstat(self.descriptor)
        size = now.st_size
        if size != len(self) or now.st_mtime_ns != self.status.st_mtime_ns:
            actual = f"{size}" if size != len(self) else "as many, which were written since"
            raise FormatError(
                f"{self.path}: was changed while it was in use: expected {len(self)} bytes as when "
                f"it was opened, found {actual}; load it again"
            )

    @property
    def remote(self) -> bool:
        """Whether the file is on a network file system; only Linux tells."""
        return file_system(self.status.st_dev) in NETWORK


def map_file(path: Path) -> MappedFile:
    """The bytes of a regular file, mapped read-only; raises `FormatError` for anything else."""
    with _opened(path) as (file, status):
        pages = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
        pages.path, pages.status = path.absolute(), status
        pages.descriptor = os.dup(file.fileno())
    weakref.finalize(pages, os.close, pages.descriptor).atexit = False
    return pages


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], os.stat_result]]:
    """A regular file with bytes, and its status; errors in the block are errors of the file."""
    try:
        if path.is_dir():
            raise FormatError(f"{path}: is a directory, expected a model file")
        if path.exists() and not path.is_file():
            raise FormatError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise FormatError(f"{path}: is empty (0 bytes)")
            yield file, status
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null character in the path; or the file was just emptied
        raise FormatError(f"{str(path)!r}: cannot be read: {error}") from error


def open_pages(path: Path) -> memoryview:
    """As `map_file`, a view; a copy for files on a network, which may change."""
    pages = map_file(path)
    return memoryview(bytes(pages) if pages.remote else pages)


def read_apart(path: Path, memory: Any) -> Any:
    """A copy of a regular file in a memory apart from NumPy's; see `core.backends.shared`."""
    with _opened(path) as (file, status):
        data, done = memory.unset(status.st_size), 0
        while piece := file.read(min(_PIECE, status.st_size - done)):
            data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
        if done < status.st_size:
            raise FormatError(f"{path}: expected {status.st_size} bytes, found {done}")
    return data


def file_system(device: int) -> str:
    """Linux's name for the type of the file system on a device; empty if it is not known."""
    try:
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            if before.split()[2] == wanted:
                return after.split()[0]
    except (AttributeError, OSError, IndexError):
        pass
    return ""


class OwnPages(mmap.mmap):
    """Anonymous memory of this process, returned to the system with the last view of it."""


def is_apart(data: Any) -> bool:
    """Whether bytes are in a memory of which NumPy has no views; see `core.backends.shared`."""
    return hasattr(data, "block") and hasattr(data, "address")


def size_of(data: Any) -> int:
    """Number of bytes; in a browser, another memory has more of them than `len` can return."""
    return int(data.nbytes) if is_apart(data) else len(data)


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array is a view of a file's pages."""
    return _pages_of(array) is not None


def forget(array: npt.NDArray[Any]) -> None:
    """Let the system drop the pages of a mapped array; they are read again when needed."""
    pages = _pages_of(array)
    if pages is None or not array.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = array.ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    before = start % mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, start - before, array.nbytes + before)


def _pages_of(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """The file's pages of which an array is a view."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) and not isinstance(owner, OwnPages) else None


def refuse_overlaps(path: Path, spans: list[tuple[int, int, str]], what: str = "tensor") -> None:
    """Raise `FormatError` if two spans (start, end, name) overlap."""
    spans.sort()
    for (_, end, name), (start, _, following) in pairwise(spans):
        if start < end:
            raise FormatError(
                f"{path}: {what} {following!r} begins at offset {start}, inside {what} {name!r}, "
                f"which ends at {end}"
            )
