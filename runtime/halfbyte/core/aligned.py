"""Memory at multiples of a cache line: a vector that crosses two is loaded at half the speed."""

from __future__ import annotations

import math
import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.formats.mapped import OwnPages

U8 = npt.NDArray[np.uint8]

_OWN_PAGES, _HUGE = (
    1 << 18,
    4 << 20,
)  # bytes from which on pages are its own, and huge
# Not on Windows, which has no such flags, and whose heap returns memory to the system
_PRIVATE = (
    0
    if sys.platform == "emscripten"
    else getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
)
_STREAM, _HUGE_PAGE = 1 << 20, 2 << 20
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned(nbytes: int) -> U8:
    """Zeroed bytes whose address is a multiple of ALIGNMENT; pages are allocated on first use.

    Large arrays have pages of their own. The heap would keep memory below any small object that
    lives longer, and return less and less of it as models are loaded and closed.
    """
    if nbytes >= _OWN_PAGES and _PRIVATE:
        return _own_pages(nbytes)
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def stream(nbytes: int) -> U8:
    """The same for bytes that are read in order: a megabyte or more begins with a huge page."""
    if nbytes < _STREAM or not (_PRIVATE and hasattr(mmap, "MADV_HUGEPAGE")):
        return aligned(nbytes)
    raw = aligned(max(nbytes + _HUGE_PAGE, _HUGE))
    start = -raw.ctypes.data % _HUGE_PAGE
    return raw[start : start + nbytes]


def padded(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _own_pages(nbytes: int) -> U8:
    try:
        pages = OwnPages(-1, nbytes, flags=_PRIVATE)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{nbytes} bytes: {error}") from None
    if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system's kernel lacks them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An aligned array of zeros."""
    return aligned(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An aligned copy of an array."""
    copy = zeros(array.shape, array.dtype)
    copy[...] = array
    return copy
