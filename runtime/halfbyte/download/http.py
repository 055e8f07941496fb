"""Native downloads: urllib in a thread, so that the event loop keeps running."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urljoin

from halfbyte.download import transfer
from halfbyte.download.response import (
    ConnectionLostError,
    DownloadError,
    Head,
    MismatchError,
    Version,
    read_head,
    sha256_of,
)
from halfbyte.errors import printable

CHUNK = 1 << 20  # bytes
REDIRECTS = 10
_MOVED = (301, 302, 303, 307, 308)
_LINE = 1 << 12  # bytes of a chunk's size, with its extensions, or of a trailer
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\r\n")


class _Body(Protocol):
    def read1(self, n: int, /) -> bytes: ...


class UrllibSource:
    """A response of urllib."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._closed = False
        self._response: Any = None
        self._body: _Body

    async def open(self, url: str, start: int, version: Version) -> Head:
        """Request the bytes from `start` on."""
        return await asyncio.to_thread(self._open, url, start, version)

    def _open(self, url: str, start: int, version: Version) -> Head:
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
            if version.condition:
                headers["If-Range"] = version.condition
        response, sha256 = self._ask(url, headers)
        header, coding = response.headers.get, response.headers.get("Transfer-Encoding")
        packed = (header("Content-Encoding") or "identity").strip()
        if packed.lower() != "identity":
            raise DownloadError(f"{url}: asked for plain bytes, the server sent {packed[:80]!r}")
        if coding is not None and not response.chunked:
            raise MismatchError(f"Transfer-Encoding {coding[:80]!r}: expected chunked")
        self._body = _Chunks(response.fp) if response.chunked else response
        return read_head(response.status, start, header, framed=response.chunked, sha256=sha256)

    def _ask(self, url: str, headers: dict[str, str]) -> tuple[Any, str]:
        """The response after redirections, and the hash given on the way."""
        target, sha256 = url, ""
        for _ in range(REDIRECTS + 1):
            if not target.lower().startswith(("http://", "https://")):
                there = "" if target == url else f", redirected to {target[:200]!r}"
                raise DownloadError(
                    f"{url}: expected an address that begins with http:// or https://{there}"
                )
            if url.lower().startswith("https:") and target.lower().startswith("http:"):
                raise DownloadError(
                    f"{url}: redirected to one without encryption: {target[:200]!r}"
                )
            response = self._answer(target, headers)
            sha256 = sha256 or sha256_of(response.headers.get)
            place = response.headers.get("Location")
            if response.status not in _MOVED or not place:
                return response, sha256
            response.close()
            try:
                target = urljoin(target, place)
            except ValueError as error:
                raise DownloadError(f"{url}: redirected to {place[:200]!r}: {error}") from None
        raise DownloadError(f"{url}: redirected more than {REDIRECTS} times")

    def _answer(self, url: str, headers: dict[str, str]) -> Any:
        opener = urllib.request.OpenerDirector()  # has no other scheme, and follows no redirection
        for handler in (urllib.request.ProxyHandler(), _Http(self), _Https(self)):
            opener.add_handler(handler)
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
            self._response = opener.open(request, timeout=transfer.TIMEOUT)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLostError(str(getattr(error, "reason", error))) from None
        except ValueError as error:
            raise DownloadError(f"{url}: {printable(str(error))}") from None
        return self._response

    def connected(self, connection: socket.socket) -> None:
        """Remember a socket, so that `close` ends waiting for it."""
        self._socket = connection
        if self._closed:
            connection.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Chunks as they arrive."""
        while chunk := await asyncio.to_thread(self._read):
            yield chunk

    def _read(self) -> bytes:
        try:
            return self._body.read1(CHUNK)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ConnectionLostError(str(error)) from None

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if self._response is not None:
            self._response.close()


class _Chunks:
    """A chunked body, parsed strictly: http.client ignores what is between chunks."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left: int | None = None  # bytes of a chunk; None before the first
        self._ended = False

    def read1(self, n: int) -> bytes:
        """At most n bytes; empty at the end."""
        if not self._left and not self._ended:
            self._next()
        if self._ended or self._left is None:
            return b""
        data: bytes = self._file.read1(min(n, self._left))
        if not data:
            raise ConnectionLostError("the connection was closed in a chunk")
        self._left -= len(data)
        return data

    def _next(self) -> None:
        if self._left is not None and self._line(2) != b"\r\n":
            raise ConnectionLostError("a chunk has another length than announced")
        line = self._line()
        match = _SIZE.fullmatch(line)
        if match is None:
            raise ConnectionLostError(f"expected the size of a chunk, found {line[:40]!r}")
        self._left = int(match[1], 16)
        if not self._left:
            for _ in range(100):
                if self._line() == b"\r\n":
                    self._ended = True
                    return
            raise ConnectionLostError("trailers without an end")

    def _line(self, limit: int = _LINE) -> bytes:
        line: bytes = self._file.readline(limit)
        if not line.endswith(b"\n"):
            raise ConnectionLostError("the connection was closed between chunks")
        return line


class _Reporting(urllib.request.AbstractHTTPHandler):
    """A handler whose connections report their sockets to a source."""

    def __init__(self, source: UrllibSource) -> None:
        super().__init__()
        self._source = source

    def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
        """As urllib's."""
        source = self._source

        class Connection(http_class):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                source.connected(self.sock)

        return super().do_open(Connection, req, **options)


class _Http(_Reporting, urllib.request.HTTPHandler): ...


class _Https(_Reporting, urllib.request.HTTPSHandler): ...
