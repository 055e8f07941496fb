"""Models that persist when the tab is closed, in the browser's storage of files.

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
    to_object,
    whole_url,
)
from halfbyte.download.response import ConnectionLostError, Head, Version
from halfbyte.download.storage import ABSENT, open_folder, persist
from halfbyte.download.transfer import START, Place, Progress, pieces, sha256_of
from halfbyte.errors import MemoryBudgetError

PART = 1 << 24  # bytes of a checksum
STEP = 1 << 26  # bytes of a transfer that are kept at once
PARTIAL = ".partial"  # after the name of a record of steps
PATIENCE = 5.0  # seconds to wait for the server's current version


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
        folder = await open_folder()
        text = await _text(await folder.file(_name(url) + ".json"))
        blob, handle = await folder.opened(_name(url))
    except ABSENT:
        return None
    record = _parsed(text)
    if record is None or record.size != blob.size:
        return None
    if record.sha256 and sha256 not in ("", record.sha256):
        return None
    changed = asyncio.ensure_future(_changed(url, record))  # asked while the file is read
    try:
        data = await read_file(blob, progress, place, url, handle)
        if await _sums(data) != record.sums or await changed:
            return None
    finally:
        changed.cancel()
    if not sha256 or record.sha256:
        return data
    return data if sha256_of(data) == sha256 else None


async def file(url: str) -> Any:
    """The file that is kept for an address, JavaScript's Blob; None if there is none."""
    try:
        return await (await open_folder()).file(_name(url))
    except ABSENT:
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
        await persist()
        folder = await open_folder()
        await folder.write(_name(url), data)
        version = head.version
        record = Record(
            data.nbytes, await _sums(data), head.total, version.etag, version.modified, sha256,
            whole_url(url),
        )  # fmt: skip
        text = np.frombuffer(json.dumps(asdict(record)).encode(), np.uint8)
        await folder.write(_name(url) + ".json", text)
    except ABSENT as error:
        await forget(url)
        full = getattr(error, "name", "") == "QuotaExceededError"
        reason = "its storage is full" if full else f"it has no storage here: {error}"
        return f"the browser did not keep the model ({data.nbytes / 1e6:.1f} MB): {reason}"
    return ""


async def forget(url: str) -> None:
    """Remove the bytes that are kept for an address."""
    with suppress(*ABSENT):
        folder = await open_folder()
        begun = [name for name in await folder.names() if name.startswith(_name(url) + ".")]
        for name in {*begun, _name(url)}:
            with suppress(*ABSENT):
                await folder.remove(name)


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
            folder = await open_folder()
            text = await _text(await folder.file(self._name + PARTIAL))
            record = _Steps(**json.loads(text))
            place.check(record.total)
            data, done = np.empty(0, np.uint8), 0
            for i, sums in enumerate(record.sums):
                step = await read_file(await folder.file(self._step(i)), lambda *_: None)
                if len(step) != record.step or await _sums(step) != sums:
                    break
                if not done:
                    data = place.allocate(record.total, step[:START])
                data[done : done + len(step)] = step
                done += len(step)
        except (*ABSENT, ValueError, TypeError, MemoryError, MemoryBudgetError):
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
            folder = await open_folder()
            await folder.write(self._step(len(record.sums)), step)
            record.sums.append(await _sums(step))
            text = np.frombuffer(json.dumps(asdict(record)).encode(), np.uint8)
            await folder.write(self._name + PARTIAL, text)
            self._record = record
        except ABSENT:
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
        with suppress(*ABSENT):
            await (await open_folder()).remove(name)


async def shelf() -> list[dict[str, Any]]:
    """What is kept, by address: `url`, `size` in bytes, and `total` if it has not arrived entirely.

    Nothing without a storage.
    """
    found: list[dict[str, Any]] = []
    with suppress(*ABSENT):
        folder = await open_folder()
        for name in await folder.names():
            if name.endswith((".json", PARTIAL)):
                text = await _text(await folder.file(name))
                entry = _listed(text, partial=name.endswith(PARTIAL))
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


def _name(url: str) -> str:
    return hashlib.sha256(whole_url(url).encode()).hexdigest()


async def _text(blob: Any) -> str:
    return str(await call(blob, "text"))


def _parsed(text: str) -> Record | None:
    """A record; None unless this version of halfbyte wrote it."""
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError):
        return None


async def _changed(url: str, record: Record) -> bool:
    """Whether the server has another version now; False if it cannot be reached."""
    controller = js.AbortController.new()
    asked = to_object(method="HEAD", cache="no-store", signal=controller.signal)
    try:
        response = await asyncio.wait_for(call(js.self, "fetch", whole_url(url), asked), PATIENCE)
        head = head_of(response)
    except (BrowserError, ConnectionLostError, TimeoutError):
        return False
    finally:
        controller.abort()  # when nobody waits for the answer any more
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
