"""Downloads of a page from servers that cut, misreport or delay data, and full storage."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from tests.browser.conftest import Python
from tests.support.http_server import Handler, Server, answering, in_pieces
from tests.support.raw_server import BODY, chunk, chunked, head, measured, raw

pytestmark = [
    pytest.mark.browser,  # as tests/download/test_download_faults.py outside a browser
    pytest.mark.parametrize("python", ["worker"], indirect=True),
]
SHA256 = hashlib.sha256(BODY).hexdigest()

# The result for each address: the file, or a message
FETCH = """
import hashlib
from halfbyte.download import fetch, transfer
from halfbyte.errors import HalfbyteError

async def outcome(url, **options):
    try:
        file = await fetch(url, keep=False, **options)
    except HalfbyteError as error:
        return str(error)
    return hashlib.sha256(file.data.data).hexdigest()

pause, transfer.PAUSE = transfer.PAUSE, 0.0005
try:
    outcomes = [await outcome(url, **{options}) for url in {urls}]
finally:
    transfer.PAUSE = pause
outcomes
"""


def outcomes(python: Python, urls: list[str], **options: str) -> list[str]:
    result = python.run(FETCH.replace("{urls}", repr(urls)).replace("{options}", repr(options)))
    assert not any("\n" in text for text in result)
    return list(result)


def asked(request: bytes) -> int:
    """The number in an address's query."""
    return int(urlsplit(request.split()[1]).query)


@pytest.mark.parametrize("response", [measured, chunked])
def test_cut_once_at_every_byte(python: Python, response: Callable[[bytes], bytes]) -> None:
    """Cuts in the status, headers, chunk sizes, chunks, between chunks and in trailers."""
    seen: list[int] = []

    def answer(request: bytes, n: int) -> bytes:
        cut = asked(request)
        seen.append(cut)
        return response(request)[: cut if seen.count(cut) == 1 else None]

    cuts = range(len(response(b"")))
    with raw(answer) as server:
        result = outcomes(python, [f"{server.url}?{cut}" for cut in cuts])
    wrong = {cut: text for cut, text in zip(cuts, result, strict=True) if text != SHA256}
    assert wrong == {}
    ends = len(response(b"")) - len(b"0\r\nX: y\r\n\r\n") if response is chunked else len(cuts)
    assert all(2 <= seen.count(cut) <= 5 for cut in range(ends))


HEAD = head("200 OK", "Transfer-Encoding: chunked")
END = b"0\r\n\r\n"
INCONSISTENT = {
    "a size that is none": HEAD + b"zz\r\n" + BODY + b"\r\n" + END,
    "a negative size": HEAD + chunk(BODY, "-96") + END,
    "a size that is too small": HEAD + chunk(BODY, "90") + END,
    "a size that is too large": HEAD + chunk(BODY, "98") + chunk(BODY) + END,
    "a size without end": HEAD + b"9" * 100_000,
    "no size": HEAD + b"\r\n" + BODY + b"\r\n" + END,
    "two lengths": head("200 OK", "Content-Length: 150", "Content-Length: 149") + BODY,
    "a length too large": head("200 OK", "Content-Length: 151") + BODY,
    "a part that nobody asked for": head(
        "206 Partial Content", "Content-Length: 150", "Content-Range: bytes 0-149/150"
    ) + BODY,
    "an empty body": head("200 OK"),
    "packed, and cut": head("200 OK", "Content-Encoding: gzip", "Content-Length: 173")
    + gzip.compress(BODY)[:99],
    "packed, and no gzip": head("200 OK", "Content-Encoding: gzip") + BODY,
    "not modified": head("304 Not Modified"),
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 1_000_000,
}  # fmt: skip


def test_inconsistent_responses_are_refused(python: Python) -> None:
    """If the browser can detect it: one message each, after a bounded number of requests."""
    names, seen = list(INCONSISTENT), [0] * len(INCONSISTENT)

    def answer(request: bytes, n: int) -> bytes:
        seen[asked(request)] += 1
        return INCONSISTENT[names[asked(request)]]

    with raw(answer) as server:
        result = outcomes(python, [f"{server.url}?{n}" for n in range(len(names))])
    told = dict(zip(names, result, strict=True))
    assert {name for name, text in told.items() if "m.gguf?" not in text} == set()
    assert max(seen) <= 2 * 5


def test_compressed_responses(python: Python) -> None:
    """The browser decompresses them, whether requested or not."""
    packed = gzip.compress(BODY)
    answers = [
        head("200 OK", "Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed,
        head("200 OK", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
        + chunk(packed[:50]) + chunk(packed[50:]) + END,
    ]  # fmt: skip
    with raw(lambda request, n: answers[asked(request)]) as server:
        assert outcomes(python, [f"{server.url}?{n}" for n in (0, 1)]) == [SHA256] * 2


def test_a_body_without_a_length(python: Python) -> None:
    """A browser cannot tell that it was cut; a hash can."""
    answers = [head("200 OK") + BODY, head("200 OK") + BODY[:-1]]
    with raw(lambda request, n: answers[asked(request)]) as server:
        urls = [f"{server.url}?{n}" for n in (0, 1)]
        whole, cut = outcomes(python, urls, sha256=SHA256)
    assert whole == SHA256
    assert f"expected sha256 {SHA256}" in cut


@pytest.fixture
def changing() -> Iterator[Server]:
    with answering() as output:
        output.body = np.random.default_rng(3).bytes(6000)
        yield output


@pytest.mark.parametrize("length", [6000, 6004])
def test_a_file_that_changes_during_the_download(
    python: Python, changing: Server, length: int
) -> None:
    """A new ETag or length is noticed, and the new file arrives complete."""
    new = np.random.default_rng(4).bytes(length)

    def answer(handler: Handler, start: int) -> None:
        in_pieces(handler, start, 3000, 0.2)
        changing.body = new

    changing.answer = answer
    assert outcomes(python, [changing.url]) == [hashlib.sha256(new).hexdigest()]


def test_a_very_slow_server(python: Python, changing: Server) -> None:
    """Single bytes arrive with pauses: the total time is bounded."""
    over = threading.Event()

    def drips(handler: Handler, start: int) -> None:
        handler.head(200, Content_Length="6000")
        for byte in changing.body:
            if over.wait(0.02):
                return
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()

    changing.answer = drips
    python.run("from halfbyte.download import transfer\ntransfer.TIMEOUT = 0.3")
    try:
        (result,) = outcomes(python, [changing.url])
    finally:
        over.set()
        python.run("from halfbyte.download import transfer\ntransfer.TIMEOUT = 60.0")
    assert "slower than 1024 bytes per second" in result
    assert len(changing.starts) == 5


# ---- full storage --------------------------------------------------------------------------------

# The quota is exceeded at the write of this number; the result lists what is left in storage.
FULL = """
from halfbyte.download import fetch, forget, storage
from halfbyte.download.browser import BrowserError
URL = "{url}"
real, left = storage.call, [{calls}]

async def call(target, method, *arguments):
    if method in ("createWritable", "write", "close"):
        left[0] -= 1
        if left[0] < 0:
            raise BrowserError("QuotaExceededError", "the quota has been exceeded")
    return await real(target, method, *arguments)

storage.call = call
try:
    file = await fetch(URL)
finally:
    storage.call = real
names, keys = [], (await storage.open_folder()).directory.keys()
while not (step := await keys.next()).done:
    names.append(step.value)
digest = hashlib.sha256(file.data.data).hexdigest()
await forget(URL)
[file.note, digest, names]
"""


def test_full_storage(python: Python, changing: Server) -> None:
    """At the file's start, middle and end, and at its record: nothing incomplete is left."""
    changing.body = np.random.default_rng(5).bytes((1 << 24) + 1000)  # two parts
    digest = hashlib.sha256(changing.body).hexdigest()
    for calls in range(8):
        code = "import hashlib\n" + FULL.format(url=changing.url, calls=calls)
        note, result, names = python.run(code)
        assert result == digest
        if calls < 7:
            assert note.endswith("did not keep the model (16.8 MB): its storage is full"), calls
            assert names == []
        else:
            assert note == ""
            assert len(names) == 2
