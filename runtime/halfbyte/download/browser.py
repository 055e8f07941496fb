"""What a browser lends to Python in it: `fetch`, and files that stay when the tab is closed.

Only inside Pyodide; its modules are there without being installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.download.response import ConnectionLostError, Head, Version, read_head
from halfbyte.download.transfer import Progress, check_size

U8 = npt.NDArray[np.uint8]
FOLDER = "halfbyte-models"  # in the origin's private file system
PART = 1 << 24  # bytes that are handed to JavaScript at once: a copy of them is made there

js: Any = import_module("js")
to_js: Any = import_module("pyodide.ffi").to_js
JsException: Any = import_module("pyodide.ffi").JsException


class BrowserError(Exception):
    """Why a function of the browser failed; `name` is JavaScript's: QuotaExceededError, say."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


# No such thing in this browser, or not in this window (a private one, say).
_ABSENT = (BrowserError, AttributeError)


async def _call(target: Any, method: str, *arguments: Any) -> Any:
    """What the promise of a method brings; raises `BrowserError`.

    A promise that is rejected with anything but an `Error` (Chromium's QuotaExceededError is none)
    would never end in Python, so rejections become values. Python would see a promise as a future:
    it stays in a JavaScript array. Nothing is compiled from a string, which a page may forbid.
    """
    try:
        call = js.Reflect.apply.bind(None, getattr(target, method), target)
        promises = getattr(js.Array, "from")(js.Array.of(to_js(arguments)), call)
    except JsException as error:
        raise BrowserError(error.name, error.message) from None
    outcome = (await js.Promise.allSettled(promises))[0]
    if outcome.status == "fulfilled":
        return getattr(outcome, "value", None)
    raise BrowserError(
        getattr(outcome.reason, "name", "Error"),
        getattr(outcome.reason, "message", str(outcome.reason)),
    )


def _object(**values: Any) -> Any:
    return to_js(values, dict_converter=js.Object.fromEntries)


class FetchSource:
    """A response of `fetch`.

    Parameters
    ----------
    fetcher : JavaScript object, optional
        Whose method `fetch` is called: a page may have asked already.
    """

    def __init__(self, fetcher: Any = None) -> None:
        self._fetcher = fetcher or js.self
        self._reader: Any = None
        self._body: Any = None

    async def open(self, url: str, start: int, version: Version) -> Head:
        """Ask for the bytes from `start` on.

        A page may not send If-Range to every origin; what comes back is compared all the same.
        """
        options = _object(headers=_object(Range=f"bytes={start}-") if start else _object())
        try:
            response = await _call(self._fetcher, "fetch", url, options)
        except BrowserError as error:
            raise ConnectionLostError(f"no answer ({error})") from None
        self._body = response.body
        return _head(response, start)

    async def chunks(self) -> AsyncIterator[Any]:
        """Pieces as they arrive: JavaScript's arrays of bytes."""
        self._reader = self._body.getReader()
        while True:
            try:
                step = await _call(self._reader, "read")
            except BrowserError as error:
                raise ConnectionLostError(str(error)) from None
            if step.done:
                return
            yield step.value

    async def close(self) -> None:
        """Cancel what has not arrived."""
        with suppress(BrowserError):
            if (stream := self._reader or self._body) is not None:
                await _call(stream, "cancel")


def _head(response: Any, start: int) -> Head:
    """The browser unpacks what was packed, and tells nobody how long it will be.

    Nor does it tell how a body without a length ends; where that can be noticed, it is an error.
    """

    def header(name: str) -> str | None:
        return response.headers.get(name) or None  # JavaScript's null is not None

    if header("Content-Encoding"):
        return Head(response.status, framed=True)
    head = read_head(response.status, start, header, framed=False)
    return replace(head, framed=True)


def _name(url: str) -> str:
    whole = js.URL.new(url, js.location.href).href
    return hashlib.sha256(whole.encode()).hexdigest()


async def _folder() -> Any:
    root = await _call(js.navigator.storage, "getDirectory")
    return await _call(root, "getDirectoryHandle", FOLDER, _object(create=True))


async def kept(url: str, progress: Progress) -> U8 | None:
    """The bytes that were kept under an address; None where there are none."""
    try:
        handle = await _call(await _folder(), "getFileHandle", _name(url))
        file = await _call(handle, "getFile")
    except _ABSENT:
        return None
    return await read_file(file, progress) if file.size else None


async def read_file(file: Any, progress: Progress) -> U8:
    """The bytes of JavaScript's `File` or `Blob`, straight into one array."""
    size = int(file.size)
    check_size(getattr(file, "name", "file"), size)
    data, done = np.empty(size, np.uint8), 0
    reader = file.stream().getReader()
    progress(0, size)
    while not (step := await _call(reader, "read")).done:
        end = done + step.value.length
        step.value.assign_to(data[done:end])
        done = end
        progress(done, size)
    return data


async def keep(url: str, data: U8) -> str:
    """Keep bytes under an address; why it could not be done, or "". Nothing half is left."""
    stream = None
    try:
        storage = js.navigator.storage
        if hasattr(storage, "persist"):  # a worker has to leave it to its page
            await _call(storage, "persist")
        folder = await _folder()
        handle = await _call(folder, "getFileHandle", _name(url), _object(create=True))
        stream = await _call(handle, "createWritable")
        for first in range(0, len(data), PART):
            await _call(stream, "write", to_js(data[first : first + PART]))
        await _call(stream, "close")  # only now the bytes are in the file
    except _ABSENT as error:
        if stream is not None:
            with suppress(BrowserError):
                await _call(stream, "abort")
        await forget(url)
        full = getattr(error, "name", "") == "QuotaExceededError"
        reason = "its storage is full" if full else f"it has no storage here: {error}"
        return f"the browser did not keep the model ({len(data) / 1e6:.1f} MB): {reason}"
    return ""


async def forget(url: str) -> None:
    """Remove what is kept under an address."""
    with suppress(*_ABSENT):
        await _call(await _folder(), "removeEntry", _name(url))
