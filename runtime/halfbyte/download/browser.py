"""What a browser lends to Python in it: functions that return promises, `fetch`, dropped files.

Only inside Pyodide; its modules are there without being installed.
"""

from __future__ import annotations

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
js: Any = import_module("js")
to_js: Any = import_module("pyodide.ffi").to_js
# A promise that is rejected with anything but an `Error` (Chromium's QuotaExceededError is none)
# would never end in Python. So rejections become values, which Python raises.
_settled: Any = import_module("pyodide.code").run_js("""
async (object, method, ...rest) => {
  try {
    return { value: await object[method](...rest) };
  } catch (error) {
    return { failed: error?.name ?? "Error", why: error?.message ?? String(error) };
  }
}
""")


class BrowserError(Exception):
    """Why a function of the browser failed; `name` is JavaScript's: QuotaExceededError, say."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


async def call(target: Any, method: str, *arguments: Any) -> Any:
    """What the promise of a method brings; raises `BrowserError`."""
    outcome = await _settled(target, method, *arguments)
    if hasattr(outcome, "failed"):
        raise BrowserError(outcome.failed, outcome.why)
    return outcome.value


def to_object(**values: Any) -> Any:
    """An object of JavaScript with these members."""
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
        headers = to_object(Range=f"bytes={start}-") if start else to_object()
        # The browser's cache may hold an older version, for as long as its rules of thumb say.
        options = to_object(headers=headers, cache="no-cache")
        try:
            response = await call(self._fetcher, "fetch", url, options)
        except BrowserError as error:
            raise ConnectionLostError(f"no answer ({error})") from None
        self._body = response.body
        return head_of(response, start)

    async def chunks(self) -> AsyncIterator[Any]:
        """Pieces as they arrive: JavaScript's arrays of bytes."""
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
        """Cancel what has not arrived."""
        with suppress(BrowserError):
            if (stream := self._reader or self._body) is not None:
                await call(stream, "cancel")


def head_of(response: Any, start: int = 0) -> Head:
    """What a response of `fetch` says.

    The browser unpacks what was packed, and tells nobody how long it will be.

    Nor does it tell how a body without a length ends; where that can be noticed, it is an error.
    """

    def header(name: str) -> str | None:
        return response.headers.get(name) or None  # JavaScript's null is not None

    if header("Content-Encoding"):
        return Head(response.status, framed=True)
    head = read_head(response.status, start, header, framed=False)
    return replace(head, framed=True)


async def read_file(file: Any, progress: Progress) -> U8:
    """The bytes of JavaScript's `File` or `Blob`, straight into one array."""
    size = int(file.size)
    check_size(getattr(file, "name", "file"), size)
    data, done = np.empty(size, np.uint8), 0
    reader = file.stream().getReader()
    progress(0, size)
    while not (step := await call(reader, "read")).done:
        end = done + step.value.length
        step.value.assign_to(data[done:end])
        done = end
        progress(done, size)
    return data
