"""A server of one file that answers as a test chooses: whole, in pieces, or wrongly."""

from __future__ import annotations

import hashlib
import http.server
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

Answer = Callable[["Handler", int], None]


class Server(http.server.ThreadingHTTPServer):
    """Answers with one function, and records where each request starts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.starts: list[int] = []
        self.answer: Answer = whole
        self.body = b""
        self.heads, self.head_status = 0, 200  # HEAD requests, and their status; 0: no answer
        self.over = threading.Event()
        self.conditions: list[str | None] = []  # If-Range of each request
        self.headers: dict[str, str] = {}  # added to, or replacing, those of each answer

    @property
    def etag(self) -> str:
        """The tag of the present body."""
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/model.gguf"


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        bytes_ = self.headers.get("Range")
        start = int(bytes_.removeprefix("bytes=").rstrip("-")) if bytes_ else 0
        self.server.starts.append(start)
        self.server.conditions.append(self.headers.get("If-Range"))
        self.server.answer(self, start)

    def do_HEAD(self) -> None:
        self.server.heads += 1
        if not self.server.head_status:
            self.server.over.wait()
            return
        self.head(self.server.head_status, Content_Length=str(len(self.server.body)))

    def do_OPTIONS(self) -> None:
        self.head(204, Access_Control_Allow_Headers="Range")

    def head(self, status: int, **headers: str) -> None:
        """Send the status and the headers, without those that are ""."""
        self.send_response(status)
        usual = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "ETag"}
        if status in (200, 206):
            usual["ETag"] = self.server.etag
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in (usual | named | self.server.headers).items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def whole(handler: Handler, start: int) -> None:
    body = handler.server.body
    handler.head(200, Content_Length=str(len(body)))
    handler.wfile.write(body)


def in_pieces(handler: Handler, start: int, piece: int = 1000, pause: float = 0) -> None:
    """Send a piece of the requested bytes; then the connection breaks off.

    When a browser sees that, it drops the bytes not passed on yet; `pause` lets it pass them on.
    """
    body = handler.server.body
    date = handler.server.headers.get("Last-Modified")
    if handler.headers.get("If-Range") not in (None, handler.server.etag, date):
        start = 0  # another version: send all of it
    size = str(len(body) - start)
    if start:
        handler.head(
            206, Content_Length=size, Content_Range=f"bytes {start}-{len(body) - 1}/{len(body)}"
        )
    else:
        handler.head(200, Content_Length=size)
    handler.wfile.write(body[start : start + piece])
    handler.wfile.flush()
    time.sleep(pause)


def regardless(handler: Handler, start: int, piece: int = 1000) -> None:
    """Send pieces, whatever If-Range says."""
    del handler.headers["If-Range"]
    in_pieces(handler, start, piece)


def without_length(handler: Handler, start: int) -> None:
    handler.head(200)
    handler.wfile.write(handler.server.body)


def status(number: int) -> Answer:
    """Only a status."""
    return lambda handler, start: handler.head(number)


def huge(handler: Handler, start: int) -> None:
    """Announce 20 GiB, more than any memory of a browser."""
    handler.head(200, Content_Length=str(20 << 30))


def never(handler: Handler, start: int) -> None:
    """Announce everything and send nothing."""
    handler.head(200, Content_Length=str(len(handler.server.body)))


AnyServer = TypeVar("AnyServer", bound=socketserver.BaseServer)


@contextmanager
def in_thread(server: AnyServer) -> Iterator[AnyServer]:
    """Run the server in a thread, and close it at the end."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answering() -> AbstractContextManager[Server]:
    """A running server of one file."""
    return in_thread(Server())


# Wrong answers, and parts of the error messages.
BAD_ANSWERS = {
    "404": (status(404), "model.gguf: the server answered 404"),
    "never": (never, "model.gguf: broke off at byte 0 of"),
    "20 GB": (huge, "21,475 MB do not fit (model's file 21,475 MB): "),
}
