"""Reader of arrays in NumPy's .npy and .npz files, which runs nothing of them.

Memory for an array is allocated only if the file has as many bytes as the header says, and the
size to which a file inflates is bounded.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, MemoryBudgetError
from halfbyte.room import available_bytes

Array = npt.NDArray[Any]

MAX_INFLATED = 256 << 20  # bytes of all arrays of a file, in addition to `MAX_RATIO` times its size
MAX_RATIO = 100
MAX_RANK = 32
_WRONG = (
    ValueError, OSError, EOFError, KeyError, TypeError, SyntaxError, RecursionError,
    NotImplementedError, RuntimeError, OverflowError, tokenize.TokenError, zipfile.BadZipFile,
    zlib.error, struct.error,
)  # fmt: skip


def read_npz(
    path: Path, names: Sequence[str] | None = None, maximum: float = math.inf
) -> dict[str, Array]:
    """Arrays by name.

    Parameters
    ----------
    names : sequence of str, optional
        The wanted arrays, which must exist; others are not read. By default all.
    maximum : int, optional
        Maximum bytes of an array.

    Raises
    ------
    FormatError
        Not such a file, damaged, or with arrays of Python objects; one of `names` is missing, or
        larger than `maximum`.
    MemoryBudgetError
        It inflates to more than `MAX_INFLATED` plus `MAX_RATIO` times its size, or than is free.
    """
    with _named(path, "arrays in NumPy's .npz"), zipfile.ZipFile(path) as archive:
        parts = [(part.filename.removesuffix(".npy"), part) for part in archive.infolist()]
        parts = [(name, part) for name, part in parts if names is None or name in names]
        if missing := set(names or ()) - {name for name, _ in parts}:
            raise FormatError(
                f"{path}: expected arrays {', '.join(names or ())}; found none named "
                f"{', '.join(sorted(missing))}"
            )
        _check_size(path, sum(min(part.file_size, maximum) for _, part in parts))
        arrays = {}
        for name, part in parts:
            with _told(name), archive.open(part) as stream:
                arrays[name] = _array(stream, part.file_size, maximum)
        return arrays


def read_npy(path: Path) -> Array:
    """The array of a .npy file; raises the errors of `read_npz`."""
    with _named(path, "an array in NumPy's .npy"), path.open("rb") as stream:
        size = path.stat().st_size
        _check_size(path, size)
        return _array(stream, size)


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _check_size(path: Path, nbytes: float) -> None:
    maximum = min(MAX_INFLATED + MAX_RATIO * path.stat().st_size, available_bytes())
    if nbytes > maximum:
        raise MemoryBudgetError(
            f"{path}: {int(nbytes):,} bytes of arrays, expected at most {int(maximum):,}"
        )


@contextmanager
def _named(path: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise MemoryBudgetError(f"{path}: no memory for its arrays") from None
    except _WRONG as error:
        if isinstance(error, OSError) and error.strerror:  # of the system, not of NumPy
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
        reason = str(error) or type(error).__name__
        raise FormatError(
            f"{path}: cannot be read: not NumPy arrays; expected {expected}: {reason}"
        ) from None


def _array(stream: IO[bytes], size: int, maximum: float = math.inf) -> Array:
    """The array in a stream of `size` bytes; reads no more than these."""
    version = np.lib.format.read_magic(stream)
    if version[0] not in (1, 2, 3):
        raise ValueError(f"version {version[0]}")
    read = np.lib.format.read_array_header_1_0
    if version[0] > 1:
        read = np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(stream)
    if dtype.hasobject or not dtype.itemsize or len(shape) > MAX_RANK:
        raise ValueError(f"{len(shape)} dimensions of {dtype}")
    if any(length < 0 for length in shape):
        raise ValueError(f"shape {list(shape)}")
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > maximum:
        raise ValueError(f"{nbytes} bytes for shape {list(shape)}, expected at most {maximum}")
    if nbytes > size:
        raise ValueError(f"{nbytes} bytes for shape {list(shape)}, found fewer than {size}")
    data = stream.read(nbytes)
    if len(data) < nbytes:
        raise ValueError(f"{nbytes} bytes for shape {list(shape)}, found {len(data)}")
    array = np.frombuffer(bytearray(data), dtype)
    return array.reshape(shape, order="F" if fortran_order else "C")
