"""Serves a site on 127.0.0.1, with the headers that make a page cross-origin isolated.

Only requests for one of the server's own names are answered, and none from another site's page:
otherwise a foreign name whose DNS entry points here would let its page read the model. A client has
a few seconds for the head of a request, and the number of connections is bounded.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import mimetypes
import re
import socket
import threading
import time
from collections.abc import Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from halfbyte.errors import OutputError
from halfbyte.web.codings import CODINGS, COMPRESSED, best, compressed
from halfbyte.web.site import Site

TYPES = {
    ".css": "text/css",
    ".gguf": "application/octet-stream",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".whl": "application/zip",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}


LOCAL = ("127.0.0.1", "localhost", "[::1]")

HEAD_SECONDS = 10.0  # for the first line and the headers of a request, once it has begun
IDLE_SECONDS = 30.0  # between two requests of a connection
SEND_SECONDS = 60.0  # for each part of a response
HEAD_BYTES = 1 << 14
CONNECTIONS = 64  # at once; a browser opens six
PART_BYTES = 1 << 18


class Server(http.server.ThreadingHTTPServer):
    """Serves one site.

    Parameters
    ----------
    site : Site
    port : int
        0 takes any free port.
    isolated : bool
        Send the headers of cross-origin isolation.
    names : collection of str
        Host names besides 127.0.0.1 and localhost, with or without a port, that requests may be
        for, such as those of a tunnel or a proxy.

    Raises
    ------
    OutputError
        The port is in use.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, site: Site, port: int = 0, *, isolated: bool = True, names: Collection[str] = ()
    ) -> None:
        self.site = site
        self.headers = dict(ISOLATION) if isolated else {}
        self.headers["X-Content-Type-Options"] = "nosniff"
        self._names = {name.lower() for name in names}
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"port {port} of 127.0.0.1: {reason}") from None

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def answers_for(self, host: str) -> bool:
        """Whether a request with this Host is for this server."""
        match = re.fullmatch(r"([\w.-]+|\[[\da-f:.]+\])(?::(\d{1,5}))?", host.lower(), re.ASCII)
        if not match:
            return False
        name, port = match[1], int(match[2] or 80)
        return not self._names.isdisjoint({name, host.lower()}) or (
            name in LOCAL and port == self.server_address[1]
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; a connection beyond the limit is closed."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system cannot start more threads
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore: it is not an error if a tab is closed in the middle of a file."""


class _Head(io.RawIOBase):
    """A client's data, with limits of time and bytes for the head of each request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.begin()

    def begin(self) -> None:
        """Wait for the next request."""
        self._end, self._left = 0.0, HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read available data; raises `TimeoutError`, also for a head that is too long."""
        seconds = self._end - time.monotonic() if self._end else IDLE_SECONDS
        if seconds <= 0 or not self._left:
            raise TimeoutError
        self._connection.settimeout(seconds)
        size = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= size
        self._end = self._end or time.monotonic() + HEAD_SECONDS
        self._connection.settimeout(SEND_SECONDS)
        return size


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD for the site's files only, with ranges, and 304 for unchanged files."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "halfbyte"
    error_message_format = "%(code)d %(message)s. %(explain)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        """Read heads with limits."""
        super().setup()
        self._head_reader = _Head(self.connection)
        self.rfile = io.BufferedReader(self._head_reader, 1 << 10)

    def handle_one_request(self) -> None:
        """Handle one request, with new limits for its head."""
        self._head_reader.begin()
        super().handle_one_request()

    def do_HEAD(self) -> None:
        """Send only the headers."""
        self._serve(body=False)

    def do_GET(self) -> None:
        """Send the file."""
        self._serve(body=True)

    def _serve(self, *, body: bool) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read, nor parsed as the next request
        if refusal := self._refusal():
            self.send_error(*refusal)
        else:
            self._answer(body=body)

    def _refusal(self) -> tuple[HTTPStatus, str, str] | None:
        """Why a request is refused: its host, or the page that it comes from; None if it is not."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.path.startswith("/"):
            explain = "Expected one Host and a path."
            return HTTPStatus.BAD_REQUEST, "Bad request", explain
        if not self.server.answers_for(hosts[0]):
            explain = (
                f"This server is {self.server.address}; for another name start it with "
                "--allow-host NAME."
            )
            return HTTPStatus.MISDIRECTED_REQUEST, "Misdirected request", explain
        site = self.headers.get("Sec-Fetch-Site", "none")
        origin = self.headers.get("Origin")
        is_link = self.headers.get("Sec-Fetch-Dest") == "document"  # someone followed a link here
        if (site not in ("same-origin", "none") and not is_link) or (
            origin is not None and urlsplit(origin).netloc.lower() != hosts[0].lower()
        ):
            return HTTPStatus.FORBIDDEN, "Forbidden", "Another site's page asks for this."
        return None

    def _answer(self, *, body: bool) -> None:
        name = unquote(urlsplit(self.path).path).lstrip("/")
        if name.endswith("/") or not name:
            name += "index.html"
        content = self.server.site.files.get(name)
        if content is None or (isinstance(content, Path) and not content.is_file()):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        tag = _tag(content)
        more: dict[str, str] = {}
        if Path(name).suffix in COMPRESSED:
            more = {"Vary": "Accept-Encoding"}
            coding = best(self.headers.get("Accept-Encoding", ""))
            if coding and "Range" not in self.headers:  # a range is one of the file's own bytes
                content, tag = compressed(content, tag, coding), f'{tag[:-1]}-{coding}"'
                more["Content-Encoding"] = coding
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        if self.headers.get("If-None-Match") == tag:
            self._head(HTTPStatus.NOT_MODIFIED, name, tag, 0, more)
            return
        start, end = self._range(size)
        if start == 0 and end == size:
            self._head(HTTPStatus.OK, name, tag, size, more)
        elif start >= size:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        else:
            more |= {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
            self._head(HTTPStatus.PARTIAL_CONTENT, name, tag, end - start, more)
        if body:
            self._send(content, start, end)

    def _range(self, size: int) -> tuple[int, int]:
        """The first byte and the one after the last; all bytes unless one range is requested."""
        match = re.fullmatch(
            r"bytes=(\d{1,18})-(\d{0,18})", self.headers.get("Range", ""), re.ASCII
        )
        if not match:
            return 0, size
        first, last = int(match[1]), int(match[2] or size)
        return first, max(min(last + 1, size), first)

    def _head(
        self,
        status: HTTPStatus,
        name: str,
        tag: str,
        length: int,
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        suffix = Path(name).suffix
        kind = TYPES.get(suffix) or mimetypes.types_map.get(suffix, "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-cache")  # keep, but revalidate
        for header, value in {**self.server.headers, **(more or {})}.items():
            self.send_header(header, value)
        if policy := self.server.site.policy_of(name):
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()

    def _send(self, content: Path | bytes, start: int, end: int) -> None:
        file: BinaryIO = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        with file:
            file.seek(start)
            if _copy(file, self.wfile, end - start):
                self.close_connection = True  # the file has become shorter than Content-Length

    def log_message(self, *arguments: object) -> None:
        """Do not log requests."""


def _copy(source: BinaryIO, target: io.BufferedIOBase, size: int) -> int:
    """Copy bytes in parts; returns the number of bytes that were missing."""
    while size > 0 and (part := source.read(min(size, PART_BYTES))):
        target.write(part)
        size -= len(part)
    return size


def _tag(content: Path | bytes) -> str:
    """An ETag, which changes when the file does."""
    if isinstance(content, bytes):
        return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    status = content.stat()
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'


def compress(site: Site) -> None:
    """Compress all files as most browsers want them, so that no visitor waits for it."""
    coding = next(iter(CODINGS))
    for name, content in site.files.items():
        if Path(name).suffix in COMPRESSED:
            compressed(content, _tag(content), coding)


def serve(site: Site, port: int, names: Collection[str] = ()) -> None:
    """Serve until Ctrl-C; prints the address."""
    with Server(site, port, names=names) as server:
        compress(site)
        print(f"halfbyte: {server.address}  (Ctrl-C stops)", flush=True)
        server.serve_forever()
