"""The transfer of one file, over as many responses as it takes.

Five attempts in a row without 64 KB of progress, or 200 in total, end a transfer; so does a minute
at less than 1 KB per second.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.download.response import (
    ConnectionLostError,
    DownloadError,
    Head,
    MismatchError,
    Version,
)
from halfbyte.errors import MemoryBudgetError, OutOfMemoryError, printable
from halfbyte.room import machine_bytes

U8 = npt.NDArray[np.uint8]
T = TypeVar("T")
Progress = Callable[[int, "int | None"], None]  # bytes done, bytes in total if known

ATTEMPTS = 5  # in a row, without PROGRESS between them
PROGRESS = 1 << 16  # bytes beyond the furthest attempt that reset the count of attempts
CONNECTIONS = 200  # in total
PAUSE = 0.2  # seconds before the second attempt; doubled for each further one
MAX_REASON = 300  # characters of what a server said
TIMEOUT = 60.0  # seconds without a byte
_PIECE = 1 << 24  # bytes that are hashed or written at once
_COPIED = 1 << 20  # the same from another memory, of which each piece is a copy
SLOWEST = 1024  # bytes per second, over TIMEOUT
HEAP_BYTES = 4 << 30  # addressable in WebAssembly with 32 bits
ARRAY_BYTES = (2 << 30) - 1  # NumPy's largest array there
LARGE = 1 << 29  # bytes of a file whose beginning is read before its memory is chosen
START = 1 << 25  # bytes of that beginning


class Place:
    """Where a file goes: NumPy's memory, or another."""

    def check(self, size: int) -> None:
        """Refuse a size, before anything is fetched; raises `MemoryBudgetError`."""
        check_size(size)

    def allocate(self, size: int, start: U8) -> U8:
        """Bytes of any content, for a file that begins so, if its size is `LARGE` or more.

        Raises
        ------
        MemoryError
            Nothing is left.
        MemoryBudgetError
            What the file is for would not fit.
        """
        del start
        return np.empty(size, np.uint8)


class Source(Protocol):
    """One request and its response."""

    async def open(self, url: str, start: int, version: Version) -> Head:
        """Request the bytes from `start` on, of this version. Raises `ConnectionLostError`."""

    def chunks(self) -> AsyncIterator[Any]:
        """Chunks of bytes as they arrive. Raises `ConnectionLostError`."""

    async def close(self) -> None:
        """Drop the rest; ends waiting for it."""


class Transfer:
    """Fetches one file into one array.

    A transfer is resumed only if Content-Range, length and ETag (or date) say that the rest is of
    the same version, or if there is a hash to verify; otherwise it starts over. A body whose end
    cannot be recognized is accepted only with a hash.

    Parameters
    ----------
    source : callable
        Returns the source of each attempt.
    sha256 : str, optional
        The hash with which the caller will compare the bytes.
    place : Place, optional
        Allocates memory for a file whose size is known.

    Attributes
    ----------
    head : Head
        The server's description of the whole file.
    sha256 : str
        The expected hash, "" if it is unknown.
    arrived : callable
        Called with the array, the number of bytes in it and the head, as bytes arrive.
    """

    def __init__(
        self,
        url: str,
        progress: Progress,
        source: Callable[[], Source],
        sha256: str = "",
        place: Place | None = None,
    ) -> None:
        self.url, self._progress, self._source = url, progress, source
        self.head, self.sha256 = Head(0), sha256
        self._place = place or Place()
        self._data = np.empty(0, np.uint8)
        self._done = 0
        self._resumable = False
        self.arrived: Callable[[U8, int, Head], None] = lambda data, done, head: None

    def resume(self, data: U8, done: int, head: Head) -> None:
        """Go on after the first `done` bytes of an array for the file that `head` describes."""
        self._data, self._done, self.head, self._resumable = data, done, head, True

    async def fetch(self) -> U8:
        """All bytes; raises `DownloadError`, `MemoryBudgetError`."""
        import asyncio  # takes 20 ms, which models from files do not need

        failures = most = 0  # a server that starts over each time makes no progress
        reason = ""
        for _ in range(CONNECTIONS):
            try:
                await self._attempt()
                break
            except ConnectionLostError as error:
                reason = printable(str(error), MAX_REASON)
                self._resumable = self._resumable and not isinstance(error, MismatchError)
            failures = 1 if self._done >= most + PROGRESS else failures + 1
            most = max(most, self._done)
            if failures == ATTEMPTS:
                raise self._failure(reason)
            if not self._resumable:
                self._done = 0
            await asyncio.sleep(PAUSE * 2 ** (failures - 1))
        else:
            raise self._failure(f"{reason}, the last of {CONNECTIONS} times")
        if self._data.nbytes != self._done:  # the length was unknown
            self._data.resize(self._done, refcheck=False)
        return self._data

    def _failure(self, reason: str) -> DownloadError:
        if not self._done and self.head.total is None:
            return DownloadError(f"{self.url}: cannot be fetched: {reason}")
        total = "an unknown number" if self.head.total is None else self.head.total
        return DownloadError(f"{self.url}: broke off at byte {self._done} of {total}: {reason}")

    async def _attempt(self) -> None:
        """Fetch missing bytes from one response."""
        source = self._source()
        try:
            head = await in_time(source.open(self.url, self._done, self.head.version))
            self._begin(head)
            self._progress(self._done, self.head.total)
            await self._take(source.chunks(), head.end)
        finally:
            await source.close()
        if self._done != (self._done if head.end is None else head.end):
            raise ConnectionLostError("the connection was closed")
        if self._done != (self._done if self.head.total is None else self.head.total):
            raise ConnectionLostError("the server sent a part of the rest")
        if not self._done and self.head.total is None:  # in a browser: the headers were cut
            raise ConnectionLostError("the server sent nothing")

    async def _take(self, chunks: AsyncIterator[Any], end: int | None) -> None:
        mark, since = self._done, time.monotonic()
        while (chunk := await in_time(anext(chunks, None))) is not None:
            self._put(chunk, end)
            self.arrived(self._data, self._done, self.head)
            self._progress(self._done, self.head.total)
            if (now := time.monotonic()) - since > TIMEOUT:
                if self._done - mark < SLOWEST * TIMEOUT:
                    raise ConnectionLostError(f"slower than {SLOWEST} bytes per second")
                mark, since = self._done, now

    def _begin(self, head: Head) -> None:
        """Accept a response's head, or refuse it."""
        if self._done and head.status == 206:
            self._compare(head)
        elif self._done and head.status == 416:
            raise MismatchError(f"nothing after byte {self._done}: changed meanwhile")
        elif head.status != 200:
            raise DownloadError(f"{self.url}: the server answered {head.status}")
        else:  # it starts over, whatever was requested
            self._done, self.head = 0, head
            self.sha256 = self.sha256 or head.sha256
            if head.total is None and not (head.framed or self.sha256):
                raise MismatchError("the server does not say where the file ends")
            if head.total is not None:
                self._reserve(head.total)
        # A body without a length may have been cut in the framing of its end.
        known = self.head.version.condition or self.sha256
        self._resumable = self.head.total is not None and bool(known)

    def _compare(self, head: Head) -> None:
        """Refuse a part that does not continue the bytes so far."""
        old, new = self.head.version, head.version
        if head.begin != self._done:
            problem = f"asked for bytes from {self._done} on, the server began at {head.begin}"
        elif head.total is not None and head.total != self.head.total:
            problem = f"changed meanwhile: {self.head.total} bytes, then {head.total}"
        elif old.same(new) is False:
            problem = f"changed meanwhile: {old.condition[:80]!r}, then {new.condition[:80]!r}"
        elif old.same(new) is None and not self.sha256:
            problem = "the server does not say of which version the rest is"
        else:
            return
        raise MismatchError(problem)

    def _put(self, chunk: Any, limit: int | None) -> None:
        end = self._done + len(chunk)
        if limit is not None and end > limit:
            raise DownloadError(f"{self.url}: more than the {limit} bytes announced")
        if end > self._data.nbytes:
            if self.head.total is None:
                self._grow(end)
            else:
                self._move(self.head.total)
        put(chunk, self._data[self._done : end])
        self._done = end

    def _grow(self, end: int) -> None:
        """Make room for a file whose length is unknown."""
        self._data = np.asarray(self._data)
        with about(self.url, end):
            check_size(end)
            grown = 2 * self._data.nbytes
            size = max(end, min(grown, ARRAY_BYTES) if sys.platform == "emscripten" else grown)
            self._data.resize(size, refcheck=False)

    def _reserve(self, size: int) -> None:
        """Make room for a whole file or, if it is large, for its beginning."""
        with about(self.url, size):
            self._place.check(size)
        if self._data.nbytes == size:
            return
        self._data = np.empty(0, np.uint8)
        if size < LARGE:
            self._move(size)
        else:
            self._data = np.empty(START, np.uint8)

    def _move(self, size: int) -> None:
        """Allocate an array for the whole file; pages become resident as bytes arrive."""
        start = self._data[: self._done]
        with about(self.url, size):
            self._data = self._place.allocate(size, start)
        self._data[: len(start)] = start


@contextmanager
def about(name: str, size: int) -> Iterator[None]:
    """Let errors of memory say that it was for a file of this name and size."""
    try:
        yield
    except MemoryBudgetError as error:
        raise type(error)(f"{name}: {error}") from None
    except MemoryError:
        raise OutOfMemoryError(
            f"{name}: {size / 1e6:.0f} MB do not fit beside what is in memory now"
        ) from None


def pieces(data: Any) -> Iterator[U8]:
    """Bytes of any memory in NumPy's, a few at a time; views if they are there already."""
    size = _PIECE if isinstance(data, np.ndarray) else _COPIED
    for first in range(0, data.nbytes, size):
        yield np.asarray(data[first : first + size])


def sha256_of(data: U8) -> str:
    """The hash of bytes in any memory, in hexadecimal digits."""
    total = hashlib.sha256()
    for piece in pieces(data):
        total.update(piece.data)
    return total.hexdigest()


def put(chunk: Any, target: Any) -> None:
    """Copy a chunk, which may be a JavaScript array, into as many bytes of any memory."""
    if not hasattr(chunk, "assign_to"):
        target[:] = np.frombuffer(chunk, np.uint8)
    elif isinstance(target, np.ndarray):
        chunk.assign_to(target)
    else:
        target.take(chunk)


async def read_first(
    chunks: AsyncIterator[Any], total: int, read: Callable[[int, bytes], T | None]
) -> T | None:
    """What `read` makes of `total`, a file's size, and its first bytes; see `read_start`."""
    start, needed = bytearray(), 1
    while (chunk := await in_time(anext(chunks, None))) is not None:
        start += chunk.to_bytes() if hasattr(chunk, "to_bytes") else chunk
        if len(start) >= min(needed, total):
            result = read(total, bytes(start))
            if result is not None or len(start) >= min(START, total):
                return result
            needed = 2 * len(start)
    return None


async def in_time(step: Any) -> Any:
    """What a step of a transfer returns; raises `ConnectionLostError` after `TIMEOUT`."""
    import asyncio

    try:
        return await asyncio.wait_for(step, TIMEOUT)
    except TimeoutError:
        raise ConnectionLostError(f"no byte in {TIMEOUT:g} seconds") from None


def check_size(nbytes: int) -> None:
    """Refuse an array that does not fit WebAssembly's heap or this machine."""
    if sys.platform == "emscripten" and nbytes > ARRAY_BYTES:
        raise MemoryBudgetError(
            f"{nbytes / 1e6:.0f} MB do not fit: expected at most {ARRAY_BYTES / 1e6:.0f} "
            "MB, the largest array of NumPy in a browser, where addresses have 32 bits"
        )
    if sys.platform != "emscripten" and nbytes > (most := machine_bytes()):
        raise MemoryBudgetError(
            f"{nbytes / 1e6:.0f} MB do not fit: this machine has {most / 1e6:.0f} MB"
        )
