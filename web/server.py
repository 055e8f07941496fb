"""Serves a site on 127.0.0.1, with the headers that make a page cross-origin isolated."""

from __future__ import annotations

import hashlib
import http.server
import mimetypes
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from halfbyte.errors import OutputError
from halfbyte.web.site import Site

TYPES = {
    ".gguf": "application/octet-stream",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
    ".whl": "application/zip",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Server(http.server.ThreadingHTTPServer):
    """Serves one site; `port` 0 takes a free one. Raises `OutputError` for one that is taken."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, site: Site, port: int = 0, *, isolated: bool = True) -> None:
        self.site = site
        self.headers = dict(ISOLATION) if isolated else {}
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"port {port} of 127.0.0.1: {reason}") from None

    @property
    def address(self) -> str:
        """What a browser opens."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a tab that was closed in the middle of a file is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD for the site's files alone; ranges, and 304 for what has not changed."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Headers alone."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """The file."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        name = unquote(urlsplit(self.path).path).lstrip("/") or "index.html"
        content = self.server.site.files.get(name)
        if content is None or (isinstance(content, Path) and not content.is_file()):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        tag = _tag(content)
        if self.headers.get("If-None-Match") == tag:
            self._head(HTTPStatus.NOT_MODIFIED, name, tag, 0)
            return
        start, end = self._range(size)
        if start == 0 and end == size:
            self._head(HTTPStatus.OK, name, tag, size)
        elif start >= size:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        else:
            part = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
            self._head(HTTPStatus.PARTIAL_CONTENT, name, tag, end - start, part)
        if body:
            self._send(content, start, end)

    def _range(self, size: int) -> tuple[int, int]:
        """First byte and the one after the last; all of them where one range is not asked for."""
        unit, _, value = self.headers.get("Range", "").partition("=")
        first, dash, last = value.partition("-")
        if unit != "bytes" or not dash or not first.isdecimal():
            return 0, size
        end = min(int(last) + 1, size) if last.isdecimal() else size
        return int(first), max(end, int(first))

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
        self.send_header("Cache-Control", "no-cache")  # keep, but ask whether it has changed
        for header, value in {**self.server.headers, **(more or {})}.items():
            self.send_header(header, value)
        self.end_headers()

    def _send(self, content: Path | bytes, start: int, end: int) -> None:
        if isinstance(content, bytes):
            self.wfile.write(content[start:end])
            return
        with content.open("rb") as file:
            file.seek(start)
            _copy(file, self.wfile, end - start)

    def log_message(self, *arguments: object) -> None:
        """Nothing: requests are no news."""


def _copy(source: BinaryIO, target: object, size: int) -> None:
    while size > 0 and (part := source.read(min(size, 1 << 20))):
        target.write(part)  # type: ignore[attr-defined]
        size -= len(part)


def _tag(content: Path | bytes) -> str:
    """Changes when the file does."""
    if isinstance(content, bytes):
        return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    status = content.stat()
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'


def serve(site: Site, port: int, *, isolated: bool = True) -> None:
    """Serve until Ctrl-C; the address goes to stdout."""
    with Server(site, port, isolated=isolated) as server:
        print(f"halfbyte: {server.address}  (Ctrl-C stops)", flush=True)
        server.serve_forever()
