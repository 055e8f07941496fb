"""Servers that break off, lie, dawdle and change files: the bytes are right, or refused."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support import aio
from tests.support.http_server import Handler, Server, answering, in_pieces, whole
from tests.support.raw_server import BODY, RawHandler, chunk, chunked, head, measured, raw

from halfbyte.download import DownloadError, fetch, http, transfer
from halfbyte.errors import HalfbyteError, MemoryBudgetError

SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PAUSE", 0.0005)


@pytest.fixture
def server() -> Iterator[Server]:
    with answering() as raw:
        raw.body = BODY * 40
        yield raw


def get(url: str, sha256: str | None = None) -> bytes:
    return aio.run(fetch(url, sha256=sha256)).data.tobytes()


def outcome(url: str) -> bytes | str:
    """The bytes, or "" if the transfer was refused."""
    try:
        return get(url)
    except DownloadError:
        return ""


def problem(url: str, sha256: str | None = None) -> str:
    with pytest.raises(HalfbyteError) as caught:
        get(url, sha256)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


# ---- responses to the byte -----------------------------------------------------------------------


@pytest.mark.parametrize("response", [measured, chunked])
def test_cut_once_at_every_byte(response: Callable[[bytes], bytes]) -> None:
    """Cut in the status, in headers, in a chunk's size, in a chunk, between two, in trailers."""
    cut = 0
    with raw(lambda request, n: response(request)[: cut if n == 1 else None]) as server:
        for cut in range(len(response(b""))):
            server.requests = 0
            assert get(server.url) == BODY, cut
            assert server.requests == 2, cut


@pytest.mark.parametrize("response", [measured, chunked])
def test_cut_always_at_every_byte(response: Callable[[bytes], bytes]) -> None:
    """With a length the transfer resumes; a chunked body starts over."""
    cut = 0
    with raw(lambda request, n: response(request)[:cut]) as server:
        for cut in range(0, len(response(b"")), 3):
            server.requests = 0
            assert outcome(server.url) in (BODY, "")
            assert server.requests <= 2 * transfer.ATTEMPTS, cut


START = head("200 OK", "Transfer-Encoding: chunked")
END = b"0\r\n\r\n"
LIES = {
    "a size that is none": START + b"zz\r\n" + BODY + b"\r\n" + END,
    "a size with a sign": START + chunk(BODY, "+96") + END,
    "a negative size": START + chunk(BODY, "-96") + END,
    "a size with a prefix": START + chunk(BODY, "0x96") + END,
    "a size that is too small": START + chunk(BODY, "90") + END,
    "a size that is too large": START + chunk(BODY, "98") + chunk(BODY) + END,
    "a size without end": START + b"9" * 100_000,
    "no size": START + b"\r\n" + BODY + b"\r\n" + END,
    "line feeds": START + b"96\n" + BODY + b"\n0\n\n",
    "trailers without end": START + chunk(BODY) + b"0\r\n" + b"a: b\r\n" * 10_000,
    "no length": head("200 OK") + BODY,
    "a length that is none": head("200 OK", "Content-Length: many") + BODY,
    "two lengths": head("200 OK", "Content-Length: 150, 150") + BODY,
    "a negative length": head("200 OK", "Content-Length: -1") + BODY,
    "a length too large": head("200 OK", "Content-Length: 151") + BODY,
    "another coding": head(
        "200 OK", "Transfer-Encoding: gzip, chunked", f"Content-Length: {len(chunk(BODY) + END)}"
    )
    + chunk(BODY) + END,
    "packed": head("200 OK", "Content-Encoding: gzip", "Content-Length: 20") + gzip.compress(b""),
    "a part that nobody asked for": head(
        "206 Partial Content", "Content-Length: 150", "Content-Range: bytes 0-149/150"
    )
    + BODY,
    "not modified": head("304 Not Modified"),
    "moved to half an address": head("302 Found", "Location: http://[::1"),
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000,
    "a header without end": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_lies_are_refused(name: str) -> None:
    with raw(lambda request, n: LIES[name]) as server:
        problem(server.url)
        assert server.requests <= transfer.ATTEMPTS


def test_a_body_without_an_end_of_its_own_is_whole_where_its_hash_says_so() -> None:
    body = BODY
    with raw(lambda request, n: head("200 OK") + body) as server:
        assert get(server.url, SHA256) == BODY
        body = BODY[:-1]
        assert "expected sha256" in problem(server.url, SHA256)


# ---- parts ---------------------------------------------------------------------------------------


def parts(handler: Handler, start: int) -> None:
    in_pieces(handler, start, 1500)


def test_a_part_is_asked_for_with_the_version(server: Server) -> None:
    server.answer = parts
    assert get(server.url) == server.body
    assert server.starts == [0, 1500, 3000, 4500]
    assert server.conditions == [None, *[server.etag] * 3]


@pytest.mark.parametrize("headers", [{"ETag": ""}, {"ETag": 'W/"1"'}])
def test_what_nobody_can_tell_apart_is_not_joined(server: Server, headers: dict[str, str]) -> None:
    server.answer, server.headers = parts, headers
    assert "broke off at byte 1500 of 6000" in problem(server.url)
    assert server.starts == [0] * transfer.ATTEMPTS
    server.starts.clear()
    digest = hashlib.sha256(server.body).hexdigest()
    assert get(server.url, digest) == server.body  # but a hash decides
    assert server.starts == [0, 1500, 3000, 4500]
    server.headers["Last-Modified"] = "Mon, 01 Jan 2024 00:00:00 GMT"
    assert get(server.url) == server.body  # and so does a date


WRONG_RANGES = [
    "bytes 1499-5999/6000", "bytes 0-5999/6000", "bytes 1500-5999/6001", "bytes 1500-1400/6000",
    "bytes 1500-6000/6000", "1500-5999", "bytes */6000", "items 1500-5999/6000",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG_RANGES)
def test_a_part_of_another_place(server: Server, text: str) -> None:
    """The part is refused; if the server's next response is right, the file arrives."""

    def answer(handler: Handler, start: int) -> None:
        if start:
            handler.head(206, Content_Length=str(6000 - start), Content_Range=text)
            handler.wfile.write(bytes(6000 - start))
        else:
            (parts if len(server.starts) == 1 else whole)(handler, start)

    server.answer = answer
    assert get(server.url) == server.body
    assert server.starts == [0, 1500, 0]


def test_another_version_by_its_etag_only(server: Server) -> None:
    """A changed file of the same length and date, from a server that ignores If-Range."""
    server.headers["Last-Modified"] = "Mon, 01 Jan 2024 00:00:00 GMT"

    def answer(handler: Handler, start: int) -> None:
        if start:
            server.body = bytes(6000)
            handler.head(
                206, Content_Length=str(6000 - start), Content_Range=f"bytes {start}-5999/6000"
            )
            handler.wfile.write(server.body[start:])
        else:
            (parts if len(server.starts) == 1 else whole)(handler, start)

    server.answer = answer
    assert get(server.url) == bytes(6000)


def test_a_byte_per_connection(server: Server) -> None:
    """Each attempt gets further, but their number is limited."""
    server.answer = lambda handler, start: in_pieces(handler, start, 1)
    assert "broke off at byte 5 of 6000" in problem(server.url)
    assert len(server.starts) == transfer.ATTEMPTS


def test_connections_are_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if each attempt makes progress."""
    monkeypatch.setattr(transfer, "PROGRESS", 1)
    monkeypatch.setattr(transfer, "CONNECTIONS", 20)
    server.answer = lambda handler, start: in_pieces(handler, start, 100)
    assert "the last of 20 times" in problem(server.url)
    assert len(server.starts) == 20


# ---- time ----------------------------------------------------------------------------------------


def test_a_server_that_falls_silent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence before or within a response: waiting ends, and no thread remains."""
    monkeypatch.setattr(transfer, "TIMEOUT", 0.1)
    over = threading.Event()

    def within(handler: Handler, start: int) -> None:
        handler.head(200, Content_Length="6000")
        over.wait()

    threads = threading.active_count()
    for answer, expected in [(lambda *_: over.wait(), "cannot be fetched"), (within, "broke off")]:
        server.answer = answer
        message = problem(server.url)
        assert expected in message
        assert "no byte in 0.1 seconds" in message or "timed out" in message
    over.set()
    assert threading.active_count() <= threads + 2 * transfer.ATTEMPTS  # the server's own


def drips(handler: Handler, over: threading.Event) -> None:
    handler.head(200, Content_Length="6000")
    for byte in handler.server.body:
        if over.wait(0.02):
            return
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()


def test_a_server_that_drips(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.2)
    over = threading.Event()
    server.answer = lambda handler, start: drips(handler, over)
    assert "slower than 1024 bytes per second" in problem(server.url)
    over.set()


def test_a_server_that_begins_fast_and_drips(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before does not count as the speed of now."""
    monkeypatch.setattr(transfer, "TIMEOUT", 0.2)
    over = threading.Event()

    def answer(handler: Handler, start: int) -> None:
        handler.head(200, Content_Length="100000")
        handler.wfile.write(bytes(50_000))
        for _ in range(100):  # not without end, so that the test fails where nothing ends it
            if over.wait(0.02):
                return
            handler.wfile.write(b"x")
            handler.wfile.flush()

    server.answer = answer
    assert "slower than 1024 bytes per second" in problem(server.url)
    over.set()


def test_headers_that_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time, but the whole is too slow."""
    monkeypatch.setattr(transfer, "TIMEOUT", 0.2)
    over = threading.Event()

    class Drip(RawHandler):
        def handle(self) -> None:
            while not over.wait(0.02):
                self.wfile.write(b"H")

    with raw(lambda request, n: b"") as server:
        server.RequestHandlerClass = Drip
        assert "no byte in 0.2 seconds" in problem(server.url)
        over.set()


# ---- places, hashes, memory ----------------------------------------------------------------------


def moved(place: str, status: int = 302, **headers: str) -> Callable[[Handler, int], None]:
    return lambda handler, start: handler.head(status, Location=place, **headers)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection(server: Server, status: int) -> None:
    with answering() as first:
        first.answer = moved(server.url, status)
        assert get(first.url) == server.body


@pytest.fixture
def encrypted(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Serve https addresses from the plain server; returns the requested addresses."""
    plainly, asked = http.UrllibSource._answer, list[str]()

    def answer(source: http.UrllibSource, url: str, headers: dict[str, str]) -> Any:
        asked.append(url)
        return plainly(source, server.url if url[:5].lower() == "https" else url, headers)

    monkeypatch.setattr(http.UrllibSource, "_answer", answer)
    return asked


@pytest.mark.parametrize("place", ["HTTP", "Https", "HTTPS"])
def test_schemes_may_be_in_capitals(place: str, server: Server, encrypted: list[str]) -> None:
    target = place + server.url.removeprefix("http")
    assert get(target) == server.body
    with answering() as first:
        first.answer = moved(target)
        assert get(first.url) == server.body
    assert [url.lower() for url in encrypted] == [target.lower(), first.url, target.lower()]


@pytest.mark.parametrize("place", ["http://127.0.0.1/m", "HTTP://127.0.0.1/m"])
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
@pytest.mark.usefixtures("encrypted")
def test_no_redirection_takes_encryption_away(scheme: str, place: str, server: Server) -> None:
    server.answer = moved(place)
    assert f"to one without encryption: '{place}'" in problem(f"{scheme}://127.0.0.1/m")


REDIRECTIONS = {
    "/model.gguf": "redirected more than 10 times",
    "file:///etc/passwd": "redirected to 'file:///etc/passwd'",
    "ftp://127.0.0.1/m": "redirected to 'ftp://127.0.0.1/m'",
    "data:,abc": "redirected to 'data:,abc'",
    "": "the server answered 302",
}


@pytest.mark.parametrize("place", REDIRECTIONS)
def test_redirections_that_are_not_followed(server: Server, place: str) -> None:
    server.answer = moved(place)
    assert REDIRECTIONS[place] in problem(server.url)
    assert len(server.starts) <= 11


def test_a_redirection_with_a_body_without_end(server: Server) -> None:
    """It is not read."""
    over = threading.Event()

    def answer(handler: Handler, start: int) -> None:
        handler.head(302, Location=server.url)
        while not over.is_set():
            handler.wfile.write(bytes(1 << 16))

    with answering() as first:
        first.answer = answer
        assert get(first.url) == server.body
        over.set()


def test_the_hash_that_the_hub_gives(server: Server) -> None:
    """The hash comes with the redirection, and is compared."""
    with answering() as hub:
        digest = hashlib.sha256(server.body).hexdigest()
        hub.answer = moved(server.url, X_Linked_ETag=f'"{digest}"')
        assert get(hub.url) == server.body
        server.body = bytes(6000)
        assert f"expected sha256 {digest}, found" in problem(hub.url)


def test_a_promise_larger_than_the_machine(server: Server) -> None:
    server.answer = lambda handler, start: handler.head(200, Content_Length=str(10**17))
    with pytest.raises(MemoryBudgetError, match=r"100000000000 MB do not fit: this machine has \d"):
        get(server.url)


PROMISED = """
import asyncio, sys
from halfbyte.download import DownloadError, fetch, http, transfer
from halfbyte.text.footprint import peak_bytes
transfer.PAUSE = 0
before = peak_bytes()
try:
    asyncio.run(fetch(sys.argv[1]))
except DownloadError as error:
    print(error)
print(peak_bytes() - before)
"""


def test_a_promise_takes_no_memory(server: Server) -> None:
    """3 GB are announced, 1 MB comes."""
    server.body = bytes(1_000_000)

    def answer(handler: Handler, start: int) -> None:
        handler.head(200, Content_Length="3000000000")
        handler.wfile.write(server.body)

    server.answer = answer
    command = [sys.executable, "-c", PROMISED, server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message, grown = done.stdout.splitlines()
    assert "broke off at byte 1000000 of 3000000000" in message
    assert int(grown) < 40e6
