"""Reads rows of tensors from their files on demand, without mapping them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.model_file import ModelFile
from halfbyte.weights import U8, Layout, Tensor

if TYPE_CHECKING:
    from concurrent.futures import Future

_POSITIONED = hasattr(os, "preadv")  # reads at an offset into given memory
_SLICE = 1 << 20  # bytes computed at once


class Rows(NamedTuple):
    """Rows [first, first + size) of a tensor."""

    tensor: Tensor
    first: int
    size: int  # number of rows
    layout: type[Layout] | None = None  # of the rows in memory, if it is not the file's


def pack_rows(rows: Rows, data: U8) -> None:
    """Bring bytes from the file's order into the rows' layout, in place."""
    if rows.layout is not None:
        data[...] = rows.layout.pack(rows.tensor.format.rows(data, rows.tensor.columns)).reshape(-1)


class Reader:
    """Reads rows of a file's tensors into given memory, one lot ahead of its use.

    Tensors that are stored as they are used are read at their offsets: no mapped page becomes
    resident. Derived tensors are computed from mapped pages, which are given back.

    Parameters
    ----------
    pack : callable
        What :func:`pack_rows` does, faster.
    """

    def __init__(self, file: ModelFile, pack: Callable[[Rows, U8], None] = pack_rows) -> None:
        self._file, self._pack = file, pack
        self._descriptors: dict[Path, int] = {}
        from concurrent.futures import ThreadPoolExecutor  # takes 10 ms, which only streams need

        self._thread = ThreadPoolExecutor(1, "halfbyte-reader")
        self._pending: Future[None] | None = None
        if file.on_storage and _POSITIONED:
            for path, pages in file.parts.items():
                self._open(path, len(pages))

    def begin(self, lot: Sequence[Rows], arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Begin to read a lot into these arrays; call `wait` before using them."""
        with suppress(Exception):  # of a run that was interrupted
            self.wait()
        self._pending = self._thread.submit(self._fill, lot, arrays)

    def wait(self) -> None:
        """Wait for the lot that was begun; errors of reading are raised here."""
        pending = self._pending
        if pending is not None:
            from concurrent.futures import wait

            wait([pending])  # if Ctrl-C interrupts this, `begin` waits for the lot
            self._pending = None
            pending.result()

    def pick(self, tensor: Tensor, rows: npt.NDArray[np.integer[Any]]) -> U8:
        """The bytes [len(rows), row_bytes] of these rows."""
        data = np.empty((len(rows), tensor.format.row_bytes(tensor.columns)), np.uint8)
        for out, row in zip(data, rows, strict=True):
            self._read(Rows(tensor, int(row), 1), out)
        return data

    def _fill(self, lot: Sequence[Rows], arrays: Sequence[npt.NDArray[Any]]) -> None:
        for rows, array in zip(lot, arrays, strict=True):
            data = array.reshape(-1).view(np.uint8)
            self._read(rows, data)
            if rows.layout is not None:
                self._pack(rows, data)

    def _read(self, rows: Rows, out: U8) -> None:
        place = None if isinstance(rows.tensor, DerivedTensor) else self._file.locate(rows.tensor)
        if place is None or not _POSITIONED:
            self._take(rows, out)
            return
        path, offset = place
        offset += rows.first * rows.tensor.format.row_bytes(rows.tensor.columns)
        view, done = memoryview(out.data), 0
        while done < len(view):
            got = os.preadv(self._descriptors[path], [view[done:]], offset + done)
            if not got:
                raise FormatError(
                    f"{path}: tensor {rows.tensor.name!r}: expected bytes up to offset "
                    f"{offset + len(view)}, found the file's end at {offset + done}: it was "
                    "changed while it was in use"
                )
            done += got

    def _take(self, rows: Rows, out: U8) -> None:
        """Rows that are computed, some at a time: what they are computed from is in memory too."""
        size = rows.tensor.format.row_bytes(rows.tensor.columns)
        step = max(1, _SLICE // size)
        for first in range(0, rows.size, step):
            self._file.check()
            count = min(step, rows.size - first)
            taken = rows.tensor.take(rows.first + first, count)
            out[first * size : (first + count) * size] = taken.reshape(-1)
            self._file.forget()

    def _open(self, path: Path, size: int) -> None:
        """Open a file right away: later another file may have its name."""
        try:
            self._descriptors[path] = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        if (actual := os.fstat(self._descriptors[path]).st_size) != size:
            raise FormatError(f"{path}: expected {size} bytes as before, found {actual}")

    def close(self) -> None:
        """Stop reading and close the files; also happens when the reader is deleted."""
        self._thread.shutdown()
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()
