"""Access to the browser from Python: functions that return promises, `fetch`, dropped files.

Works only inside Pyodide, which brings the imported modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.download.response import ConnectionLostError, Head, Version, read_head
from halfbyte.download.transfer import LARGE, START, Place, Progress, about, put, read_first

U8 = npt.NDArray[np.uint8]
T = TypeVar("T")
js: Any = import_module("js")
to_js: Any = import_module("pyodide.ffi").to_js
JsException: Any = import_module("pyodide.ffi").JsException

_PART = 1 << 24  # bytes of a file that are read at once
_FIRST = 1 << 20  # the same while its header is looked for


class BrowserError(Exception):
    """An error of a browser function; `name` is JavaScript's, such as QuotaExceededError."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


async def call(target: Any, method: str, *arguments: Any) -> Any:
    """Await the promise that a method returns; raises `BrowserError`.

    A promise that is rejected with anything but an `Error`, such as Chromium's QuotaExceededError,
    would never end in Python, so rejections become values. The promise stays in a JavaScript array,
    since Python would turn it into a future. No string is compiled, which a page may forbid.
    """
    try:
        bound = js.Reflect.apply.bind(None, getattr(target, method), target)
        promises = getattr(js.Array, "from")(js.Array.of(to_js(arguments)), bound)
    except JsException as error:
        raise BrowserError(error.name, error.message) from None
    outcome = (await js.Promise.allSettled(promises))[0]
    if outcome.status == "fulfilled":
        return getattr(outcome, "value", None)
    raise BrowserError(
        getattr(outcome.reason, "name", "Error"),
        getattr(outcome.reason, "message", str(outcome.reason)),
    )


def to_object(**values: Any) -> Any:
    """A JavaScript object with these members."""
    return to_js(values, dict_converter=js.Object.fromEntries)


class FetchSource:
    """A response of `fetch`.

    Parameters
    ----------
    fetcher : JavaScript object, optional
        The object whose method `fetch` is called; a page may have started the request already.
    """

    def __init__(self, fetcher: Any = None) -> None:
        self._fetcher = fetcher or js.self
        self._reader: Any = None
        self._body: Any = None

    async def open(self, url: str, start: int, version: Version) -> Head:
        """Request the bytes from `start` on.

        A page may not send If-Range to every origin, so the response's version is compared anyway.
        """
        headers = to_object(Range=f"bytes={start}-") if start else to_object()
        url = whole_url(url)
        # The browser's cache may hold an older version, which its heuristics consider fresh.
        options = to_object(headers=headers, cache="no-cache")
        try:
            response = await call(self._fetcher, "fetch", url, options)
        except BrowserError as error:
            raise ConnectionLostError(f"no answer ({error})") from None
        self._body = response.body
        return head_of(response, start)

    async def chunks(self) -> AsyncIterator[Any]:
        """Chunks as they arrive: JavaScript arrays of bytes."""
        self._reader = self._body.getReader()
        while True:
            try:
                step = await call(self._reader, "read")
            except BrowserError as error:
                raise ConnectionLostError(str(error)) from None
            if step.done:
                return
            yield step.value

    async def close(self) -> None:
        """Cancel the rest of the response."""
        with suppress(BrowserError):
            if (stream := self._reader or self._body) is not None:
                await call(stream, "cancel")


def head_of(response: Any, start: int = 0) -> Head:
    """The head of a response of `fetch`.

    The browser decompresses bodies without telling their length. Nor does it tell how a body
    without a length ends; if it notices a cut, that is an error.
    """

    def header(name: str) -> str | None:
        return response.headers.get(name) or None  # JavaScript's null is not None

    if header("Content-Encoding"):
        return Head(response.status, framed=True)
    head = read_head(response.status, start, header, framed=False)
    return replace(head, framed=True)


def whole_url(url: str) -> str:
    """An address with its origin; a worker made from a blob has only the origin of its page."""
    try:
        return str(js.URL.new(url, js.location.href.removeprefix("blob:")).href)
    except JsException:  # which `fetch` reports
        return url


async def read_file(
    file: Any,
    progress: Progress,
    place: Place | None = None,
    name: str = "",
    handle: Any = None,
) -> U8:
    """The bytes of a JavaScript `File` or `Blob`, read straight into one array.

    In parts of megabytes, since each takes a turn of the event loop. Errors of memory begin with
    `name`, by default the file's own.

    Parameters
    ----------
    handle : JavaScript object, optional
        The file's handle, if it is in the origin's private file system: a worker may read such a
        file where it is, while parts of a `File` are passed from one process to another.

    Raises
    ------
    BrowserError
        The browser cannot read the file.
    """
    size, place = int(file.size), place or Place()
    with about(name or getattr(file, "name", "file"), size):
        place.check(size)
        data, done = place.allocate(size, await _start(file, size)), 0
    progress(0, size)
    access = await _access(handle)
    try:
        while done < size:
            part = data[done : done + _PART]
            if access is None:
                await _read_slice(file, done, part)
            else:
                _read_in_place(access, done, part)
                await asyncio.sleep(0)  # the worker stays responsive
            done += part.nbytes
            progress(done, size)
    finally:
        if access is not None:
            access.close()
    return data


async def _access(handle: Any) -> Any:
    """What reads a file where it is; None on a main thread, or while another tab has the file."""
    if hasattr(handle, "createSyncAccessHandle"):
        with suppress(BrowserError):
            return await call(handle, "createSyncAccessHandle", to_object(mode="read-only"))
    return None


def _read_in_place(access: Any, first: int, part: Any) -> None:
    here = isinstance(part, np.ndarray)
    target = js.Uint8Array.new(part.nbytes) if here else part.in_javascript()
    try:
        count = access.read(target, to_object(at=first))
    except JsException as error:
        raise BrowserError(error.name, error.message) from None
    if count != part.nbytes:
        expected = f"expected {part.nbytes} bytes at {first}, found {count}"
        raise BrowserError("NotReadableError", expected)
    if here:
        target.assign_to(part)


async def _read_slice(file: Any, first: int, part: Any) -> None:
    buffer = await call(file.slice(first, first + part.nbytes), "arrayBuffer")
    put(js.Uint8Array.new(buffer), part)


async def _start(file: Any, size: int) -> U8:
    """The beginning of a large file."""
    if size < LARGE:
        return np.empty(0, np.uint8)
    buffer = await call(file.slice(0, START), "arrayBuffer")
    return np.frombuffer(buffer.to_bytes(), np.uint8)


async def read_start(file: Any, read: Callable[[int, bytes], T | None]) -> T | None:
    """As `download.read_start`, of a JavaScript `File` or `Blob`."""

    async def chunks() -> AsyncIterator[Any]:
        for first in range(0, int(file.size), _FIRST):
            yield await call(file.slice(first, first + _FIRST), "arrayBuffer")

    return await read_first(chunks(), int(file.size), read)
