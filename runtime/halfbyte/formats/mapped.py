"""Opening a file as read-only pages that the system may drop."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError

Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8]"
Pages: TypeAlias = "mmap.mmap | memoryview"  # a file's bytes: mapped, or in memory already


# File systems of other machines: there a file may change, or go, without this one being told.
NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "davfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
))  # fmt: skip


class MappedFile(mmap.mmap):
    """A file's pages, read-only, and what the file was like when they were mapped."""

    path: Path
    status: os.stat_result

    def check(self) -> None:
        """Raise `FormatError` where the file was changed in place since it was mapped.

        Pages behind a new end would end the process when they are read; others would be those of
        another model. A file that took the name is another one, and changes nothing here.
        """
        size, changed = self.size(), False
        with suppress(OSError):  # it has no name any more
            now = os.stat(self.path)  # noqa: PTH116 - less than half the time of Path.stat
            changed = now.st_mtime_ns != self.status.st_mtime_ns and os.path.samestat(
                now, self.status
            )
        if size != len(self) or changed:
            found = f"{size}" if size != len(self) else "as many, which were written since"
            raise FormatError(
                f"{self.path}: was changed while it was in use: expected {len(self)} bytes as when "
                f"it was opened, found {found}; load it again"
            )

    @property
    def remote(self) -> bool:
        """Whether it lies on another machine; only Linux tells."""
        return file_system(self.status.st_dev) in NETWORK


def map_file(path: Path) -> MappedFile:
    """The bytes of a regular file, mapped read-only; raises `FormatError` for anything else."""
    try:
        if path.is_dir():
            raise FormatError(f"{path}: is a directory, expected a model file")
        if path.exists() and not path.is_file():
            raise FormatError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise FormatError(f"{path}: is empty (0 bytes)")
            pages = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null character in the path; a file emptied meanwhile
        raise FormatError(f"{str(path)!r}: cannot be read: {error}") from error
    pages.path, pages.status = path.absolute(), status
    return pages


def open_pages(path: Path) -> memoryview:
    """The same as a view; of a file on a network a copy, which its changes do not reach."""
    pages = map_file(path)
    return memoryview(bytes(pages) if pages.remote else pages)


def file_system(device: int) -> str:
    """The type of the file system on a device, as Linux calls it; empty where that is not known."""
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
    """Memory of this process's own, which goes back to the system with the last view of it."""


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array's numbers lie in a file's pages."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap) and not isinstance(owner, OwnPages)


def refuse_overlaps(path: Path, spans: list[tuple[int, int, str]], what: str = "tensor") -> None:
    """Raise `FormatError` where two of them share bytes; a span is start, end and name."""
    spans.sort()
    for (_, end, name), (start, _, following) in pairwise(spans):
        if start < end:
            raise FormatError(
                f"{path}: {what} {following!r} begins at offset {start}, inside {what} {name!r}, "
                f"which ends at {end}"
            )
