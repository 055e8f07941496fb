"""A server that sends exact bytes, and answers with a small file in both kinds of framing."""

from __future__ import annotations

import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from tests.support.http_server import in_thread

BODY = np.random.default_rng(2).bytes(150)


class Raw(socketserver.ThreadingTCPServer):
    """Sends a function's answer to a request and its number, and closes."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, answer: Callable[[bytes, int], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), RawHandler)
        self.answer, self.requests = answer, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/m.gguf"


class RawHandler(socketserver.StreamRequestHandler):
    server: Raw

    def handle(self) -> None:
        request = b""
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            request += line
        self.server.requests += 1
        self.wfile.write(self.server.answer(request, self.server.requests))


@contextmanager
def raw(answer: Callable[[bytes, int], bytes]) -> Iterator[Raw]:
    with in_thread(Raw(answer)) as server:
        yield server


def head(status: str, *lines: str) -> bytes:
    """Status and headers, which pages of other origins may read."""
    exposed = ("Access-Control-Allow-Origin: *", "Access-Control-Expose-Headers: *")
    return "\r\n".join([f"HTTP/1.1 {status}", *exposed, *lines, "", ""]).encode()


def measured(request: bytes = b"") -> bytes:
    """The whole body, or the requested rest, with its length."""
    start = 0
    if b"Range: bytes=" in request:
        start = int(request.split(b"Range: bytes=")[1].split(b"-")[0])
    rest = BODY[start:]
    lines = ['ETag: "v1"', f"Content-Length: {len(rest)}"]
    if not start:
        return head("200 OK", *lines) + rest
    lines.append(f"Content-Range: bytes {start}-{len(BODY) - 1}/{len(BODY)}")
    return head("206 Partial Content", *lines) + rest


def chunk(data: bytes, size: str | None = None) -> bytes:
    return (size or f"{len(data):x}").encode() + b"\r\n" + data + b"\r\n"


def chunked(request: bytes = b"") -> bytes:
    """The body in three chunks, with an extension and a trailer."""
    body = chunk(BODY[:16]) + chunk(BODY[16:100], "54;name=value") + chunk(BODY[100:])
    return head("200 OK", 'ETag: "v1"', "Transfer-Encoding: chunked") + body + b"0\r\nX: y\r\n\r\n"
