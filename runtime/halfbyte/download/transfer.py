"""One file on its way, over as many responses as it takes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError, MemoryBudgetError, OutOfMemoryError

U8 = npt.NDArray[np.uint8]
Progress = Callable[[int, "int | None"], None]  # bytes done, bytes in all if they are known

ATTEMPTS = 5  # in a row, without a byte between them
PAUSE = 0.2  # seconds before the second attempt; each further one waits twice as long
HEAP_BYTES = 4 << 30  # what WebAssembly addresses with 32 bits
HEAP_SHARE = 0.85  # of it for a model's file: Python, the cache and activations need the rest


class DownloadError(HalfbyteError):
    """A model could not be fetched; the message says from where and why."""


class ConnectionLostError(Exception):
    """The transfer broke off; another may go on where it stopped."""


class Source(Protocol):
    """A response: where bytes come from."""

    status: int
    length: int | None  # of the whole file; None where the server does not say

    async def open(self, url: str, start: int) -> None:
        """Ask for the bytes from `start` on. Raises `ConnectionLostError`."""

    def chunks(self) -> AsyncIterator[Any]:
        """Pieces as they arrive; each can be put into an array. Raises `ConnectionLostError`."""

    async def close(self) -> None:
        """Let go of the rest."""


class Transfer:
    """Fetches one file into one array.

    Parameters
    ----------
    source : callable
        Makes the source of each attempt.
    """

    def __init__(self, url: str, progress: Progress, source: Callable[[], Source]) -> None:
        self.url, self._progress, self._source = url, progress, source
        self._data = np.empty(0, np.uint8)
        self._done = 0
        self._total: int | None = None

    async def fetch(self) -> U8:
        """All bytes; raises `DownloadError`, `MemoryBudgetError`."""
        failures = most = 0  # a server that starts anew each time makes no progress
        while True:
            try:
                if await self._attempt():
                    break
                reason = "the connection was closed"
            except ConnectionLostError as error:
                reason = str(error)
            failures = 1 if self._done > most else failures + 1
            most = max(most, self._done)
            if failures == ATTEMPTS:
                raise DownloadError(f"{self.url}: {self._whereabouts()}{reason}")
            await asyncio.sleep(PAUSE * 2 ** (failures - 1))
        self._resize(self._done)
        return self._data

    def _whereabouts(self) -> str:
        if not self._done and self._total is None:
            return "cannot be fetched: "
        return f"broke off at byte {self._done} of {self._total or 'an unknown number'}: "

    async def _attempt(self) -> bool:
        """Fetch what is missing from one response; whether all is there then."""
        source = self._source()
        await source.open(self.url, self._done)
        try:
            if source.status == 416 and self._done and self._total in (None, self._done):
                return True  # nothing behind the last byte: all is there
            self._begin(source)
            self._progress(self._done, self._total)
            async for chunk in source.chunks():
                self._put(chunk)
                self._progress(self._done, self._total)
        finally:
            await source.close()
        return self._total is None or self._done == self._total

    def _begin(self, source: Source) -> None:
        if source.status == 200:
            self._done = 0  # the server starts anew, whatever was asked
        elif source.status != 206:
            raise DownloadError(f"{self.url}: the server answered {source.status}")
        if self._total is not None and source.length != self._total:
            raise DownloadError(
                f"{self.url}: changed meanwhile: {self._total} bytes, then {source.length}"
            )
        self._total = source.length
        if self._total is not None:
            self._resize(self._total)

    def _put(self, chunk: Any) -> None:
        end = self._done + len(chunk)
        if self._total is not None and end > self._total:
            raise DownloadError(f"{self.url}: more than the {self._total} bytes announced")
        if end > self._data.nbytes:  # the length is unknown
            self._resize(max(end, 2 * self._data.nbytes))
        target = self._data[self._done : end]
        if hasattr(chunk, "assign_to"):  # JavaScript's: one copy, from there into the heap
            chunk.assign_to(target)
        else:
            target[:] = np.frombuffer(chunk, np.uint8)
        self._done = end

    def _resize(self, size: int) -> None:
        """Make the array this long, in place where the system can."""
        check_size(self.url, size)
        try:
            self._data.resize(size, refcheck=False)
        except MemoryError:
            raise OutOfMemoryError(
                f"{self.url}: {size / 1e6:.0f} MB do not fit beside what is in memory now"
            ) from None


def check_size(name: str, nbytes: int) -> None:
    """Refuse what does not fit WebAssembly's heap, before it is fetched or read."""
    if sys.platform == "emscripten" and nbytes > HEAP_BYTES * HEAP_SHARE:
        raise MemoryBudgetError(
            f"{name}: {nbytes / 1e6:.0f} MB do not fit: expected at most "
            f"{HEAP_BYTES * HEAP_SHARE / 1e6:.0f} MB of the {HEAP_BYTES / 1e6:.0f} MB that "
            "WebAssembly addresses"
        )


def whole_length(start: int, status: int, header: Callable[[str], str | None]) -> int | None:
    """Bytes of the whole file, from a response's headers; None where they do not say.

    Content-Range is not always shown to a page of another origin; Content-Length is.
    """
    if header("Content-Encoding"):
        return None  # the length would be that of the packed bytes
    _, _, whole = (header("Content-Range") or "").rpartition("/")
    if status == 206 and whole.isdecimal():
        return int(whole)
    length = header("Content-Length") or ""
    return (start if status == 206 else 0) + int(length) if length.isdecimal() else None
