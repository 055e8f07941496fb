"""Models that stay when the tab is closed: each a file, and beside it what the file must be.

They lie in the origin's private file system. The record beside a file has the sums of its parts,
which are compared when it is read, and the version that the server gave, which is asked for again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halfbyte.download.browser import (
    U8,
    BrowserError,
    call,
    head_of,
    js,
    read_file,
    to_js,
    to_object,
)
from halfbyte.download.response import ConnectionLostError, Head, Version
from halfbyte.download.transfer import Progress

FOLDER = "halfbyte-models"
PART = 1 << 24  # bytes that are summed, or handed to JavaScript, at once
PATIENCE = 5.0  # seconds for the server to say whether a file has changed

# No such thing in this browser, or not in this window (a private one, say).
_ABSENT = (BrowserError, AttributeError)


@dataclass(frozen=True)
class Record:
    """What a kept file is.

    Attributes
    ----------
    size : int
    sums : list of int
        CRC-32 of each `PART` bytes.
    total : int, optional
        Bytes of the file as the server said them.
    etag, modified : str
        The server's version of it; see `Version`.
    sha256 : str
        Of the whole file, where it was compared; else "".
    """

    size: int
    sums: list[int]
    total: int | None
    etag: str
    modified: str
    sha256: str


async def find(url: str, progress: Progress, sha256: str = "") -> U8 | None:
    """The bytes that are kept under an address.

    None where there are none, where they are damaged, or where the server has, or the caller wants,
    others.
    """
    try:
        folder = await _folder()
        text = await _text(await _file(folder, _name(url) + ".json"))
        file = await _file(folder, _name(url))
    except _ABSENT:
        return None
    record = _parsed(text)
    if record is None or record.size != file.size or await _changed(url, record):
        return None
    if record.sha256 and sha256 not in ("", record.sha256):
        return None
    data = await read_file(file, progress)
    if await _sums(data) != record.sums:
        return None
    if not sha256 or record.sha256:
        return data
    return data if hashlib.sha256(data.data).hexdigest() == sha256 else None


async def keep(url: str, data: U8, head: Head, sha256: str = "") -> str:
    """Keep bytes under an address; why it could not be done, or "". Nothing half is left.

    Parameters
    ----------
    head : Head
        What the server said of them.
    sha256 : str
        What they were found to hash to.
    """
    try:
        storage = js.navigator.storage
        if hasattr(storage, "persist"):  # a worker has to leave it to its page
            await call(storage, "persist")
        folder = await _folder()
        await _write(folder, _name(url), data)
        version = head.version
        record = Record(
            len(data), await _sums(data), head.total, version.etag, version.modified, sha256
        )
        text = np.frombuffer(json.dumps(asdict(record)).encode(), np.uint8)
        await _write(folder, _name(url) + ".json", text)
    except _ABSENT as error:
        await forget(url)
        full = getattr(error, "name", "") == "QuotaExceededError"
        reason = "its storage is full" if full else f"it has no storage here: {error}"
        return f"the browser did not keep the model ({len(data) / 1e6:.1f} MB): {reason}"
    return ""


async def forget(url: str) -> None:
    """Remove what is kept under an address."""
    for name in (_name(url), _name(url) + ".json"):
        with suppress(*_ABSENT):
            await call(await _folder(), "removeEntry", name)


def _name(url: str) -> str:
    whole = js.URL.new(url, js.location.href).href
    return hashlib.sha256(whole.encode()).hexdigest()


async def _folder() -> Any:
    root = await call(js.navigator.storage, "getDirectory")
    return await call(root, "getDirectoryHandle", FOLDER, to_object(create=True))


async def _file(folder: Any, name: str) -> Any:
    return await call(await call(folder, "getFileHandle", name), "getFile")


async def _text(file: Any) -> str:
    return str(await call(file, "text"))


def _parsed(text: str) -> Record | None:
    """A record; None where it is not one of this version of halfbyte."""
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError):
        return None


async def _changed(url: str, record: Record) -> bool:
    """Whether the server has another version now; one that cannot be reached has none."""
    asked = to_object(method="HEAD", cache="no-store")
    try:
        response = await asyncio.wait_for(call(js.self, "fetch", url, asked), PATIENCE)
        head = head_of(response)
    except (BrowserError, ConnectionLostError, TimeoutError):
        return False
    if head.status != 200:
        return False
    if head.total is not None and record.total is not None and head.total != record.total:
        return True
    return Version(record.etag, record.modified).differs(head.version)


async def _sums(data: U8) -> list[int]:
    """CRC-32 of each part: in WebAssembly seven times as fast as the browser's own SHA-256."""
    sums = []
    for first in range(0, len(data), PART):
        sums.append(zlib.crc32(data[first : first + PART].data))
        await asyncio.sleep(0)  # a page on this thread stays alive
    return sums


async def _write(folder: Any, name: str, data: U8) -> None:
    """Write a whole file, or leave the one that is there."""
    handle = await call(folder, "getFileHandle", name, to_object(create=True))
    stream = await call(handle, "createWritable")
    try:
        for first in range(0, len(data), PART):
            await call(stream, "write", to_js(data[first : first + PART]))
        await call(stream, "close")  # only now the bytes are in the file
    except _ABSENT:
        with suppress(BrowserError):
            await call(stream, "abort")
        raise
