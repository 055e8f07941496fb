"""A server's answers to a download, in bytes: status, headers, chunks, redirections, breaks."""

from __future__ import annotations

import random
import socket
from typing import Any
from unittest import mock

from tests.download.test_download_faults import BODY, SHA256, chunk, chunked, head, measured, raw
from tests.fuzz.mutators import mutate_bytes, odd_integer
from tests.support import aio

from halfbyte.download import fetch, transfer

HASH = b"hash\n"  # before the answers if the caller gives a hash
NEXT = b"\n--next--\n"  # between the answers to two requests
SECONDS = 1.0  # of silence; as the server closes every connection, there should be none
LINES = (
    "Content-Length: 150", "Content-Length: -1", "Content-Length: ", "Content-Length: 1e3",
    f"Content-Length: {1 << 62}", f"Content-Length: {9 << 30}", f"Content-Length: {'9' * 5000}",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Transfer-Encoding: Chunked, chunked",
    "Content-Encoding: gzip", "Content-Encoding: identity", "Content-Range: bytes 0-149/150",
    "Content-Range: bytes 60-149/150", "Content-Range: bytes 60-149/*",
    "Content-Range: bytes */150", 'ETag: "v1"', 'ETag: W/"v1"', "ETag: \xe9\x85", "ETag: a\r\n b",
    "Last-Modified: Mon, 23 Nov 2026 06:00:00 GMT", f"X-Linked-ETag: {SHA256}", "X: " + "y" * 70000,
    " folded", ":", "",
)  # fmt: skip
PLACES = (
    "/", "", "?", "//[", "http://[::1", "http://[v1.x]/", "http://\u2100/", "\xff", "data:,x",
    "https://", "file:///etc/passwd", "http://127.0.0.1:99999/", "http://127.0.0.1:x/",
    "http://127.0.0.1:/", "http://a:b@127.0.0.1:1/", "http:///x y", "http://" + "a" * 300,
    "a" * 60000, "HTTP://127.0.0.1:1/", "http://127.0.0.1:1/\x7f", "http://" + "a." * 200,
    "http://.../", "http://xn--a/", "//127.0.0.1:1/",
)  # fmt: skip
STATUSES = (
    "100 Continue", "200 OK", "204 None", "206 Partial Content", "302 Found", "304 Not Modified",
    "308 Moved", "404 No", "416 No", "500 No", "000 No", "999 No", "-1 No", "2OO OK", "",
)  # fmt: skip
SIZES = (
    b"0", b"", b"-1", b"0x10", b"+10", b"f" * 15, b"f" * 16, b"10;a=b", b"10 ", b"1_0", b"9" * 5000,
)  # fmt: skip


def corpus() -> list[bytes]:
    """Downloads that succeed: whole, in chunks, in parts, through another address."""
    rest = measured(b"Range: bytes=60-")
    first = measured()[: len(measured()) - len(BODY) + 60]
    unmarked = head("200 OK", "Content-Length: 150") + BODY[:60]
    moved = head("302 Found", "Location: /other", f"X-Linked-ETag: {SHA256}", "Content-Length: 0")
    dated = head("200 OK", "Content-Length: 150", "Last-Modified: Mon, 23 Nov 2026 06:00:00 GMT")
    return [
        measured(),
        chunked(),
        NEXT.join([first, rest]),
        HASH + NEXT.join([unmarked, rest]),
        NEXT.join([moved, moved, measured()]),
        HASH + head("200 OK") + BODY,
        NEXT.join([chunked()[:-90], chunked()[:30], b"", measured()]),
        NEXT.join([dated + BODY[:10], dated + BODY]),
    ]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Add or remove an answer; change a status, a header, a chunk's size, or bytes."""
    before, answers = _parts(data)
    at = chance.randrange(len(answers))
    way = chance.randrange(8)
    if way == 0:
        answers.insert(at, chance.choice(answers))
    elif way == 1 and len(answers) > 1:
        del answers[at]
    elif way == 2:
        before = b"" if before else HASH
    elif way == 3:
        answers[at] = mutate_bytes(answers[at], chance)
    elif way == 4:
        answers[at] = head(chance.choice(STATUSES), f"Location: {chance.choice(PLACES)}")
    else:
        answers[at] = _lines(answers[at], chance)
    return before + NEXT.join(answers)


def _lines(answer: bytes, chance: random.Random) -> bytes:
    """Insert or remove a line, or change it or its number; change the body."""
    top, blank, body = answer.partition(b"\r\n\r\n")
    lines = top.split(b"\r\n")
    at, way = chance.randrange(len(lines)), chance.randrange(6)
    if way == 0:
        lines[0] = b"HTTP/1.1 " + chance.choice(STATUSES).encode()
    elif way == 1:
        lines.insert(1 + at, chance.choice(LINES).encode())
    elif way == 2:
        del lines[at]
    elif way == 3:
        name, colon, _ = lines[at].partition(b":")
        lines[at] = name + colon + b" " + str(odd_integer(chance, len(BODY))).encode()
    elif way == 4:
        pieces = body.split(b"\r\n")
        pieces[chance.randrange(len(pieces))] = chance.choice(SIZES)
        body = b"\r\n".join(pieces)
    else:
        body += chance.choice([body, chunk(b""), chunk(BODY, "1"), b"X: y\r\n" * 200, bytes(70000)])
    return b"\r\n".join(lines) + blank + body


def _parts(data: bytes) -> tuple[bytes, list[bytes]]:
    before = HASH if data.startswith(HASH) else b""
    return before, data[len(before) :].split(NEXT)


def target(data: bytes) -> None:
    """Fetch from a server on this machine; others are unreachable."""
    before, answers = _parts(data)
    connect = socket.create_connection

    def connect_here(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        if address[0] != "127.0.0.1":
            raise OSError("unreachable")
        return connect(address, *arguments, **options)

    with (
        raw(lambda _, n: answers[min(n, len(answers)) - 1]) as server,
        mock.patch.multiple(transfer, PAUSE=0.0, TIMEOUT=SECONDS),
        mock.patch.object(socket, "create_connection", connect_here),
    ):
        body = aio.run(fetch(server.url, sha256=SHA256 if before else None)).data.tobytes()
        if server.requests > transfer.CONNECTIONS:
            raise AssertionError(f"{server.requests} requests")
    if before and body != BODY:
        raise AssertionError("bytes that do not match their hash")
