"""Opening a file as read-only pages that the system may drop."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError

Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8]"
Pages: TypeAlias = "mmap.mmap | memoryview"  # a file's bytes: mapped, or in memory already


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a regular file, mapped read-only; raises `FormatError` for anything else."""
    try:
        if path.is_dir():
            raise FormatError(f"{path}: is a directory, expected a model file")
        if path.exists() and not path.is_file():
            raise FormatError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise FormatError(f"{path}: is empty (0 bytes)")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a null character in the path; a file emptied meanwhile
        raise FormatError(f"{str(path)!r}: cannot be read: {error}") from error


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array's numbers lie in a file's pages."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap)


def refuse_overlaps(path: Path, spans: list[tuple[int, int, str]], what: str = "tensor") -> None:
    """Raise `FormatError` where two of them share bytes; a span is start, end and name."""
    spans.sort()
    for (_, end, name), (start, _, following) in pairwise(spans):
        if start < end:
            raise FormatError(
                f"{path}: {what} {following!r} begins at offset {start}, inside {what} {name!r}, "
                f"which ends at {end}"
            )
