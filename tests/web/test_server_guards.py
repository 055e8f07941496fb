"""Which requests the site's server answers, and its time limits, through raw sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.http_server import in_thread

from halfbyte.web import server as web
from halfbyte.web.server import Server
from halfbyte.web.site import Site

SITE = Site(
    {"index.html": b"<p>", "models/model.gguf": b"private", "race/worker.mjs": b""},
    {"": "default-src 'none'", "race/": "default-src 'self'"},
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with in_thread(Server(SITE, names=("demo.example", "other.example:8443"))) as output:
        yield output


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20)


def exchange(server: Server, request: str) -> bytes:
    """Everything that comes back until the server closes the connection."""
    with connect(server) as client:
        client.sendall(request.encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def get(server: Server, *headers: str, path: str = "/models/model.gguf") -> bytes:
    """An answer; `PORT` in a header is the server's."""
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    return exchange(server, "\r\n".join(lines).replace("PORT", str(server.server_address[1])))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "[::1]:PORT",
     "demo.example", "Demo.Example:PORT", "demo.example:443", "other.example:8443"],
)  # fmt: skip
def test_own_host_names(server: Server, host: str) -> None:
    assert get(server, f"Host: {host}").endswith(b"\r\n\r\nprivate")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: rebound.example:PORT"], 421),
        (["Host: rebound.example"], 421),
        (["Host: 127.0.0.1"], 421),  # another server's port
        (["Host: 127.0.0.1:1"], 421),
        (["Host: 127.0.0.1.rebound.example:PORT"], 421),
        (["Host: rebound.example#localhost:PORT"], 421),
        (["Host: user@localhost:PORT"], 421),
        (["Host: localhost:PORT:PORT"], 421),
        (["Host: localhost:" + "9" * 5000], 421),
        (["Host: other.example"], 421),
        (["Host: "], 421),
        ([], 400),
        (["Host: localhost:PORT", "Host: rebound.example"], 400),
        (["Host: localhost:PORT", "Sec-Fetch-Site: cross-site"], 403),
        (["Host: localhost:PORT", "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: empty"], 403),
        (["Host: localhost:PORT", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"], 403),
        (["Host: localhost:PORT", "Origin: https://rebound.example"], 403),
        (["Host: localhost:PORT", "Origin: http://localhost:1"], 403),
        (["Host: localhost:PORT", "Origin: null"], 403),
        (["Host: localhost:PORT", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty",
          "Origin: http://localhost:PORT"], 200),
        (["Host: localhost:PORT", "Sec-Fetch-Site: none"], 200),
        (["Host: localhost:PORT", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"], 200),
    ],
)  # fmt: skip
def test_hosts_and_origins(server: Server, headers: list[str], status: int) -> None:
    answer = get(server, *headers)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"private" in answer) == (status == 200)


def test_requests_to_a_proxy_are_refused(server: Server) -> None:
    port = server.server_address[1]
    answer = get(server, "Host: localhost:PORT", path=f"http://localhost:{port}/models/model.gguf")
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_security_headers(server: Server) -> None:
    head = get(server, "Host: localhost:PORT").decode()
    assert "Content-Security-Policy: default-src 'none'\r\n" in head
    assert "X-Content-Type-Options: nosniff\r\n" in head
    head = get(server, "Host: localhost:PORT", path="/race/worker.mjs").decode()
    assert "Content-Security-Policy: default-src 'self'\r\n" in head


def test_a_body_is_not_taken_for_a_request(server: Server) -> None:
    port = server.server_address[1]
    hidden = f"GET /models/model.gguf HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
    head = f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: {len(hidden)}\r\n\r\n"
    answer = exchange(server, head + hidden)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"private" not in answer


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /" + "a" * 100_000,
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "a" * 100_000,
        "GET / HTTP/1.1\r\n" + "X: a\r\n" * 50_000,
    ],
    ids=["line", "header", "headers"],
)
def test_heads_are_bounded(server: Server, request_text: str) -> None:
    """The connection is closed without a file, though the head has no end."""
    with connect(server) as client:
        try:
            client.sendall(request_text.encode())
            answer = client.recv(1 << 16)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert b" 200 " not in answer


@pytest.mark.parametrize("size", ["9" * 18, "9" * 5000])
def test_ranges_of_any_length(server: Server, size: str) -> None:
    answer = get(server, "Host: localhost:PORT", f"Range: bytes=0-{size}")
    assert answer.endswith(b"\r\n\r\nprivate")


def test_slow_heads_and_idle_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes do not keep a connection open, nor does an answered request."""
    monkeypatch.setattr(web, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(web, "IDLE_SECONDS", 0.5)
    with in_thread(Server(SITE)) as server:
        port = server.server_address[1]
        with connect(server) as idle, connect(server) as slow:
            idle.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            slow.settimeout(0.05)
            begun = time.monotonic()
            closed = False
            while not closed and time.monotonic() < begun + 20:
                try:
                    slow.sendall(b"X")
                    closed = slow.recv(1) == b""
                except TimeoutError:
                    continue
                except OSError:
                    closed = True
            assert closed
            assert idle.makefile("rb").read().endswith(b"<p>")  # and then the end


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond the limit is closed; after another ends, a new one is accepted."""
    monkeypatch.setattr(web, "CONNECTIONS", 2)
    with in_thread(Server(SITE)) as server:
        request = f"GET / HTTP/1.1\r\nHost: localhost:{server.server_address[1]}\r\n\r\n".encode()
        with connect(server) as first, connect(server) as second:
            for client in (first, second):
                client.sendall(request)
                assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            with connect(server) as third:
                assert third.makefile("rb").read() == b""
        assert _served(server, request)


def _served(server: Server, request: bytes) -> bool:
    """Whether a request is answered soon; until then connections may be at their limit."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(OSError):
            if exchange(server, request.decode()).startswith(b"HTTP/1.1 200"):
                return True
    return False
