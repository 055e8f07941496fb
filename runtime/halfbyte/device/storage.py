"""Measures how fast this machine reads files that are not in memory."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

_SIZE = 256 << 20  # bytes of the file
_PIECE = 4 << 20  # read at once, as streamed weights are
_PASSES = 3


def storage_speed(folder: Path) -> float | None:
    """Bytes/s of reading a file in a folder from its storage; the median of some passes.

    None if the system cannot be told to drop a file's pages from memory (other than Linux), or if
    the folder cannot take the file: it is 256 MB, and deleted.
    """
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "preadv"):
        return None
    try:
        if shutil.disk_usage(folder).free < 2 * _SIZE:
            return None
        with tempfile.TemporaryFile(dir=folder) as file:
            piece = np.random.default_rng(0).bytes(_PIECE)  # nothing to compress
            for _ in range(_SIZE // _PIECE):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            return statistics.median(_read(file.fileno()) for _ in range(_PASSES))
    except OSError:
        return None


def _read(descriptor: int) -> float:
    """Bytes/s of one pass."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    space = memoryview(bytearray(_PIECE))
    start = time.perf_counter()
    for offset in range(0, _SIZE, _PIECE):
        os.preadv(descriptor, [space], offset)
    return _SIZE / (time.perf_counter() - start)
