"""Models that persist when the tab is closed, in the origin's private file system.

Each file has a record beside it, with the checksums of its parts, which are compared when it is
read, and the version that the server gave, which is compared with the server's current one.

What has arrived of a file is kept in steps, each a file of its own, since a browser drops what is
still being written when the tab is closed. The transfer goes on if the server's version is the
same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
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
    whole_url,
)
from halfbyte.download.response import ConnectionLostError, Head, Version
from halfbyte.download.transfer import START, Place, Progress, pieces, sha256_of
from halfbyte.errors import MemoryBudgetError

FOLDER = "halfbyte-models"
PART = 1 << 24  # bytes of a checksum
STEP = 1 << 26  # bytes of a transfer that are kept at once
PARTIAL = ".partial"  # after the name of a record of steps
PATIENCE = 5.0  # seconds to wait for the server's current version

# The browser, or this window (such as a private one), does not have the feature or the file.
_ABSENT = (BrowserError, AttributeError)


@dataclass(frozen=True)
class Record:
    """The description of a kept file.

    Attributes
    ----------
    size : int
    sums : list of int
        CRC-32 of each `PART` bytes.
    total : int, optional
        Bytes of the file according to the server.
    etag, modified : str
        The server's version of it; see `Version`.
    sha256 : str
        Hash of the whole file if it was verified, else "".
    url : str
        The whole address.
    """

    size: int
    sums: list[int]
    total: int | None
    etag: str
    modified: str
    sha256: str
    url: str = ""


async def find(
    url: str, progress: Progress, sha256: str = "", place: Place | None = None
) -> U8 | None:
    """The bytes that are kept for an address.

    None if there are none, if they are damaged, or if the server has another version or the caller
    another hash.
    """
    try:
        folder = await _folder()
        text = await _text(await _file(folder, _name(url) + ".json"))
        handle = await call(folder, "getFileHandle", _name(url))
        file = await call(handle, "getFile")
    except _ABSENT:
        return None
    record = _parsed(text)
    if record is None or record.size != file.size:
        return None
    if record.sha256 and sha256 not in ("", record.sha256):
        return None
    changed = asyncio.ensure_future(_changed(url, record))  # asked while the file is read
    data = await read_file(file, progress, place, url, handle)
    if await _sums(data) != record.sums or await changed:
        return None
    if not sha256 or record.sha256:
        return data
    return data if sha256_of(data) == sha256 else None


async def size(url: str) -> int | None:
    """Bytes of the file that is kept for an address; None if there is none."""
    try:
        return int((await _file(await _folder(), _name(url))).size)
    except _ABSENT:
        return None


async def keep(url: str, data: U8, head: Head, sha256: str = "") -> str:
    """Keep bytes for an address, entirely or not at all; returns why it failed, or "".

    Parameters
    ----------
    head : Head
        The server's description.
    sha256 : str
        The verified hash.
    """
    try:
        storage = js.navigator.storage
        if hasattr(storage, "persist"):  # which only a page has, not a worker
            await call(storage, "persist")
        folder = await _folder()
        await _write(folder, _name(url), data)
        version = head.version
        record = Record(
            data.nbytes, await _sums(data), head.total, version.etag, version.modified, sha256,
            whole_url(url),
        )  # fmt: skip
        text = np.frombuffer(json.dumps(asdict(record)).encode(), np.uint8)
        await _write(folder, _name(url) + ".json", text)
    except _ABSENT as error:
        await forget(url)
        full = getattr(error, "name", "") == "QuotaExceededError"
        reason = "its storage is full" if full else f"it has no storage here: {error}"
        return f"the browser did not keep the model ({data.nbytes / 1e6:.1f} MB): {reason}"
    return ""


async def forget(url: str) -> None:
    """Remove the bytes that are kept for an address."""
    with suppress(*_ABSENT):
        folder = await _folder()
        begun = [name async for name, _ in _entries(folder) if name.startswith(_name(url) + ".")]
        for name in {*begun, _name(url)}:
            with suppress(*_ABSENT):
                await call(folder, "removeEntry", name)


@dataclass
class _Steps:
    """What is kept of a file: `sums[i]` are the checksums of step i."""

    url: str
    total: int
    etag: str
    modified: str
    step: int
    sums: list[list[int]] = field(default_factory=list)


class Partial:
    """What is kept of the transfer of one address."""

    def __init__(self, url: str) -> None:
        self._url, self._name = url, _name(url)
        self._record: _Steps | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failed = False  # then nothing more is kept: the storage is full, or there is none

    async def restore(self, place: Place) -> tuple[U8, int, Head] | None:
        """The array with the bytes of an earlier visit, their number, and the file's head.

        None also if they have no place; the transfer then says why.
        """
        try:
            folder = await _folder()
            text = await _text(await _file(folder, self._name + PARTIAL))
            record = _Steps(**json.loads(text))
            place.check(record.total)
            data, done = np.empty(0, np.uint8), 0
            for i, sums in enumerate(record.sums):
                step = await read_file(await _file(folder, self._step(i)), lambda *_: None)
                if len(step) != record.step or await _sums(step) != sums:
                    break
                if not done:
                    data = place.allocate(record.total, step[:START])
                data[done : done + len(step)] = step
                done += len(step)
        except (*_ABSENT, ValueError, TypeError, MemoryError, MemoryBudgetError):
            return None
        if not done:
            return None
        record.sums = record.sums[: done // record.step]
        self._record = record
        version = Version(record.etag, record.modified)
        return data, done, Head(200, 0, record.total, record.total, version)

    def arrived(self, data: U8, done: int, head: Head) -> None:
        """Keep what is new of the first `done` bytes, in the background."""
        if self._failed or head.total is None or not head.version.condition:
            return
        if self._writing is not None and not self._writing.done():
            return
        record, version = self._record, head.version
        if record is None or (record.etag, record.modified) != (version.etag, version.modified):
            record = _Steps(self._url, head.total, version.etag, version.modified, STEP)
        if done >= (len(record.sums) + 1) * record.step:
            self._writing = asyncio.ensure_future(self._keep(data, record))

    async def _keep(self, data: U8, record: _Steps) -> None:
        first = len(record.sums) * record.step
        step = data[first : first + record.step]
        try:
            folder = await _folder()
            await _write(folder, self._step(len(record.sums)), step)
            record.sums.append(await _sums(step))
            text = np.frombuffer(json.dumps(asdict(record)).encode(), np.uint8)
            await _write(folder, self._name + PARTIAL, text)
            self._record = record
        except _ABSENT:
            self._failed = True

    async def forget(self) -> None:
        """Remove all steps, once the file is whole or of no use."""
        if self._writing is not None:
            await self._writing
        if self._record is not None:
            await _remove(self._url, len(self._record.sums))

    def _step(self, number: int) -> str:
        return f"{self._name}.{number}"


async def _remove(url: str, steps: int) -> None:
    """Remove the steps of a transfer and their record."""
    for name in (*(f"{_name(url)}.{i}" for i in range(steps)), _name(url) + PARTIAL):
        with suppress(*_ABSENT):
            await call(await _folder(), "removeEntry", name)


async def shelf() -> list[dict[str, Any]]:
    """What is kept, by address: `url`, `size` in bytes, and `total` if it has not arrived entirely.

    Nothing without a storage.
    """
    found: list[dict[str, Any]] = []
    with suppress(*_ABSENT):
        async for name, handle in _entries(await _folder()):
            if not name.endswith((".json", PARTIAL)):
                continue
            entry = _listed(
                await _text(await call(handle, "getFile")), partial=name.endswith(PARTIAL)
            )
            found += [entry] if entry else []
    return sorted(found, key=lambda entry: str(entry["url"]))


def _listed(text: str, *, partial: bool) -> dict[str, Any] | None:
    """A record on the shelf; None if it has no address."""
    if not partial:
        whole = _parsed(text)
        return {"url": whole.url, "size": whole.size} if whole and whole.url else None
    try:
        steps = _Steps(**json.loads(text))
    except (ValueError, TypeError):
        return None
    return {"url": steps.url, "size": len(steps.sums) * steps.step, "total": steps.total}


async def _entries(folder: Any) -> AsyncIterator[tuple[str, Any]]:
    """Names and handles of the files in a folder."""
    entries = folder.entries()
    while not (step := await call(entries, "next")).done:
        name, handle = step.value
        yield str(name), handle


def _name(url: str) -> str:
    return hashlib.sha256(whole_url(url).encode()).hexdigest()


async def _folder() -> Any:
    root = await call(js.navigator.storage, "getDirectory")
    return await call(root, "getDirectoryHandle", FOLDER, to_object(create=True))


async def _file(folder: Any, name: str) -> Any:
    return await call(await call(folder, "getFileHandle", name), "getFile")


async def _text(file: Any) -> str:
    return str(await call(file, "text"))


def _parsed(text: str) -> Record | None:
    """A record; None unless this version of halfbyte wrote it."""
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError):
        return None


async def _changed(url: str, record: Record) -> bool:
    """Whether the server has another version now; False if it cannot be reached."""
    asked = to_object(method="HEAD", cache="no-store")
    try:
        response = await asyncio.wait_for(call(js.self, "fetch", whole_url(url), asked), PATIENCE)
        head = head_of(response)
    except (BrowserError, ConnectionLostError, TimeoutError):
        return False
    if head.status != 200:
        return False
    if head.total is not None and record.total is not None and head.total != record.total:
        return True
    return Version(record.etag, record.modified).differs(head.version)


async def _sums(data: U8) -> list[int]:
    """CRC-32 of each part; in WebAssembly seven times as fast as the browser's SHA-256."""
    sums = []
    for first in range(0, data.nbytes, PART):
        total = 0
        for piece in pieces(data[first : first + PART]):
            total = zlib.crc32(piece.data, total)
        sums.append(total)
        await asyncio.sleep(0)  # a page on this thread stays responsive
    return sums


async def _write(folder: Any, name: str, data: U8) -> None:
    """Write a whole file; on errors the old one is kept."""
    handle = await call(folder, "getFileHandle", name, to_object(create=True))
    stream = await call(handle, "createWritable")
    try:
        for piece in pieces(data):
            await call(stream, "write", to_js(piece))
        await call(stream, "close")  # only this replaces the file
    except _ABSENT:
        with suppress(BrowserError):
            await call(stream, "abort")
        raise
