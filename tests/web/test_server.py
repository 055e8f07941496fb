"""The site's server and its export: ranges, what has not changed, and what cannot be."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from pathlib import Path

import brotli
import pytest
from tests.support.http_server import in_thread

from halfbyte.cli import main
from halfbyte.errors import OutputError
from halfbyte.web import codings
from halfbyte.web.server import ISOLATION, Server
from halfbyte.web.site import Site

CONTENT = bytes(range(200))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return Site({"index.html": b"<p>", "models/model.gguf": path, "gone": tmp_path / "gone"})


@pytest.fixture
def connection(site: Site) -> Iterator[http.client.HTTPConnection]:
    with in_thread(Server(site)) as server:
        output = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        yield output
        output.close()


def ask(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPResponse]:
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    return response.status, response.read(), response


def test_files_types_and_isolation(connection: http.client.HTTPConnection) -> None:
    status, body, response = ask(connection, "/")
    assert (status, body) == (200, b"<p>")
    assert response.headers["Content-Type"] == "text/html"
    assert {name: response.headers[name] for name in ISOLATION} == ISOLATION
    assert ask(connection, "/models/model.gguf?x=1")[1] == CONTENT
    status, body, response = ask(connection, "/models/model.gguf", "HEAD")
    assert (status, body, response.headers["Content-Length"]) == (200, b"", "200")


@pytest.mark.parametrize(
    "path", ["/../model.gguf", "/models", "/%2e%2e/etc/passwd", "/gone", "//x"]
)
def test_other_paths_are_not_found(connection: http.client.HTTPConnection, path: str) -> None:
    assert ask(connection, path)[0] == 404


@pytest.mark.parametrize(
    ("asked", "status", "first", "last"),
    [
        ("bytes=50-", 206, 50, 199),
        ("bytes=50-59", 206, 50, 59),
        ("bytes=190-500", 206, 190, 199),
        ("bytes=0-", 200, 0, 199),
        ("bytes=-5", 200, 0, 199),
        ("lines=3-4", 200, 0, 199),
    ],
)
@pytest.mark.parametrize("path", ["/models/model.gguf"])
def test_ranges(
    connection: http.client.HTTPConnection, path: str,
    asked: str, status: int, first: int, last: int,
) -> None:  # fmt: skip
    result, body, response = ask(connection, path, Range=asked)
    assert (result, body) == (status, CONTENT[first : last + 1])
    if status == 206:
        assert response.headers["Content-Range"] == f"bytes {first}-{last}/200"


def test_a_range_after_the_end(connection: http.client.HTTPConnection) -> None:
    assert ask(connection, "/models/model.gguf", Range="bytes=200-")[0] == 416


def test_unchanged_files_are_not_sent_again(
    connection: http.client.HTTPConnection, tmp_path: Path
) -> None:
    tag = ask(connection, "/models/model.gguf")[2].headers["ETag"]
    assert ask(connection, "/models/model.gguf", If_None_Match=tag)[:2] == (304, b"")
    (tmp_path / "model.gguf").write_bytes(CONTENT + b"more")
    assert ask(connection, "/models/model.gguf", If_None_Match=tag)[0] == 200


UNPACK = {"br": brotli.decompress, "gzip": gzip.decompress, "": bytes}


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("gzip", "gzip"),
        ("gzip;q=0, BR;q=0.0", ""),
        ("", ""),
    ],
)
def test_compression(connection: http.client.HTTPConnection, accepted: str, coding: str) -> None:
    """Text and WebAssembly, under a tag of their own; never a model, nor a range."""
    plain = ask(connection, "/")[2].headers
    status, body, response = ask(connection, "/", Accept_Encoding=accepted)
    assert (status, UNPACK[coding](body)) == (200, b"<p>")
    assert response.headers.get("Content-Encoding", "") == coding
    assert (response.headers["ETag"] != plain["ETag"]) is bool(coding)
    assert response.headers["Vary"] == "Accept-Encoding" == plain["Vary"]
    tag = response.headers["ETag"]
    assert ask(connection, "/", Accept_Encoding=accepted, If_None_Match=tag)[:2] == (304, b"")
    assert ask(connection, "/", Accept_Encoding=accepted, Range="bytes=1-")[1] == b"p>"
    model = ask(connection, "/models/model.gguf", Accept_Encoding=accepted)
    assert (model[1], model[2].headers["Content-Encoding"]) == (CONTENT, None)


def test_compression_without_brotli(
    connection: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(codings.CODINGS, "br")
    response = ask(connection, "/", Accept_Encoding="br, gzip")[2]
    assert response.headers["Content-Encoding"] == "gzip"


def test_a_port_in_use(site: Site) -> None:
    with Server(site) as server:
        port = server.server_address[1]
        with pytest.raises(OutputError, match=f"port {port} of 127.0.0.1: Address already in use"):
            Server(site, port)
    with pytest.raises(OutputError, match=r"port 70000 of 127\.0\.0\.1: "):
        Server(site, 70_000)


def test_export(site: Site, tmp_path: Path) -> None:
    del site.files["gone"]
    site.export(tmp_path / "a" / "b")
    assert (tmp_path / "a/b/models/model.gguf").read_bytes() == CONTENT
    assert site.size == len(CONTENT) + 3
    with pytest.raises(OutputError, match="expected a new or an empty folder"):
        site.export(tmp_path / "a" / "b")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b"]


def test_an_export_that_fails_leaves_nothing(site: Site, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        site.export(tmp_path / "out")  # one of its files is gone
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf"]


def test_a_file_that_is_not_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUX" * 20)
    assert main(["web", str(path), "--export", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {path}: not a model file")
    assert not (tmp_path / "out").exists()
