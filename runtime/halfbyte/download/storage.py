"""Files that a browser keeps for an origin: in its private file system, or in its cache.

The cache serves browsers without such a file system, such as WebKitGTK, and those whose file system
writes only where a worker holds a file open.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from halfbyte.download.browser import U8, BrowserError, JsException, call, js, to_js, to_object
from halfbyte.download.transfer import pieces

FOLDER = "halfbyte-models"
_ADDRESS = "https://halfbyte.invalid/"  # of a file in the cache; nothing is ever fetched from it

# The browser, or this window (such as a private one), does not have the feature or the file.
ABSENT = (BrowserError, AttributeError)


class Folder(Protocol):
    """Where files are kept; everything raises one of `ABSENT`."""

    async def names(self) -> list[str]: ...

    async def file(self, name: str) -> Any:
        """A file's content as JavaScript's Blob."""

    async def opened(self, name: str) -> tuple[Any, Any]:
        """The same, and what a worker may read the file through where it is, or None."""

    async def write(self, name: str, data: U8) -> None:
        """Write a whole file; on errors the old one is kept."""

    async def remove(self, name: str) -> None: ...


class PrivateFolder:
    """A folder of the origin's private file system; `directory` is JavaScript's handle."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory

    async def names(self) -> list[str]:
        names, keys = [], self.directory.keys()
        while not (step := await call(keys, "next")).done:
            names.append(str(step.value))
        return names

    async def file(self, name: str) -> Any:
        return (await self.opened(name))[0]

    async def opened(self, name: str) -> tuple[Any, Any]:
        handle = await call(self.directory, "getFileHandle", name)
        return await call(handle, "getFile"), handle

    async def write(self, name: str, data: U8) -> None:
        handle = await call(self.directory, "getFileHandle", name, to_object(create=True))
        stream = await call(handle, "createWritable")
        try:
            for piece in pieces(data):
                await call(stream, "write", to_js(piece))
            await call(stream, "close")  # only this replaces the file
        except ABSENT:
            with suppress(BrowserError):
                await call(stream, "abort")
            raise

    async def remove(self, name: str) -> None:
        await call(self.directory, "removeEntry", name)


class CachedFolder:
    """Files as answers in a cache of the origin."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    async def names(self) -> list[str]:
        return [str(key.url).removeprefix(_ADDRESS) for key in await call(self._cache, "keys")]

    async def file(self, name: str) -> Any:
        answer = await call(self._cache, "match", _ADDRESS + name)
        if answer is None:
            raise BrowserError("NotFoundError", f"{name} is not kept")
        return await call(answer, "blob")

    async def opened(self, name: str) -> tuple[Any, Any]:
        return await self.file(name), None

    async def write(self, name: str, data: U8) -> None:
        parts = js.Array.new()
        for piece in pieces(data):
            parts.push(to_js(piece))
        await call(self._cache, "put", _ADDRESS + name, js.Response.new(js.Blob.new(parts)))

    async def remove(self, name: str) -> None:
        await call(self._cache, "delete", _ADDRESS + name)


async def open_folder(name: str = FOLDER) -> Folder:
    """A folder, of kept models; raises one of `ABSENT` where nothing can be kept."""
    if _has_private_files():
        root = await call(js.navigator.storage, "getDirectory")
        return PrivateFolder(await call(root, "getDirectoryHandle", name, to_object(create=True)))
    try:
        caches = js.caches
    except JsException as error:  # where site data are blocked
        raise BrowserError(error.name, error.message) from None
    return CachedFolder(await call(caches, "open", name))


def _has_private_files() -> bool:
    """Whether there is a private file system that takes streams."""
    handles = getattr(js, "FileSystemFileHandle", None)
    return hasattr(js.navigator, "storage") and hasattr(
        getattr(handles, "prototype", None), "createWritable"
    )


async def persist() -> None:
    """Ask the browser not to clear what it keeps; only a page may ask, not a worker."""
    with suppress(*ABSENT):
        await call(js.navigator.storage, "persist")
