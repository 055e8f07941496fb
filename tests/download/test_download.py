"""Downloads over HTTP: whole, in parts, interrupted, changed, refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper
from tests.support import aio
from tests.support.http_server import (
    Answer,
    Handler,
    Server,
    answering,
    huge,
    in_pieces,
    never,
    regardless,
    status,
    whole,
    without_length,
)

import halfbyte
from halfbyte.download import DownloadError, Place, fetch, read_start, transfer
from halfbyte.download.response import Head, Version
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_bytes


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    with answering() as raw:
        raw.body = np.random.default_rng(0).bytes(3500)
        yield raw


def get(server: Server, sha256: str | None = None) -> tuple[bytes, list[tuple[int, int | None]]]:
    seen: list[tuple[int, int | None]] = []
    download = aio.run(
        fetch(server.url, sha256=sha256, progress=lambda done, total: seen.append((done, total)))
    )
    return download.data.tobytes(), seen


@pytest.mark.parametrize("answer", [whole, in_pieces, without_length])
def test_the_bytes_arrive(server: Server, answer: Answer) -> None:
    server.answer = answer
    data, seen = get(server, hashlib.sha256(server.body).hexdigest())
    assert data == server.body
    total = None if answer is without_length else 3500
    assert seen[0] == (0, total)
    assert seen[-1] == (3500, total)
    assert server.starts == ([0, 1000, 2000, 3000] if answer is in_pieces else [0])


class Noting(Place):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.asked: list[tuple[int, bytes]] = []

    def check(self, size: int) -> None:
        self.sizes.append(size)

    def allocate(self, size: int, start: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        self.asked.append((size, start.tobytes()))
        return super().allocate(size, start)


@pytest.mark.parametrize("answer", [in_pieces, regardless])
def test_the_beginning_of_a_large_file_decides(
    server: Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known when memory is chosen; a small file's is not."""
    server.answer, small, large = answer, Noting(), Noting()
    assert aio.run(fetch(server.url, place=small)).data.tobytes() == server.body
    assert (small.sizes, small.asked) == ([3500], [(3500, b"")])
    monkeypatch.setattr(transfer, "LARGE", 3500)
    monkeypatch.setattr(transfer, "START", 2500)
    assert aio.run(fetch(server.url, place=large)).data.tobytes() == server.body
    assert (large.sizes, large.asked) == ([3500], [(3500, server.body[:2000])])


def test_as_much_of_the_beginning_as_is_needed(server: Server) -> None:
    """Then the transfer ends; None without a size, an answer or a result."""
    sizes: list[int] = []

    def read(total: int, start: bytes) -> bytes | None:
        assert (total, start) == (len(server.body), server.body[: len(start)])
        sizes.append(len(start))
        return start if len(start) > 1_200_000 else None

    server.body = np.random.default_rng(0).bytes(20_000_000)
    start = aio.run(read_start(server.url, read))
    assert start is not None
    assert len(start) == sizes[-1] < 5_000_000
    assert all(2 * before <= after for before, after in pairwise(sizes))
    server.body = server.body[:3500]
    assert aio.run(read_start(server.url, read)) is None
    assert sizes[-1] == 3500
    for answer in (without_length, status(404), in_pieces):
        server.answer = answer
        assert aio.run(read_start(server.url, read)) is None


def test_a_server_that_starts_anew_is_followed(server: Server) -> None:
    """The server answers a request for the rest with 200 and everything."""

    def answer(handler: Handler, start: int) -> None:
        in_pieces(handler, 0, 1000) if not start else whole(handler, start)

    server.answer = answer
    data, _ = get(server)
    assert (data, server.starts) == (server.body, [0, 1000])


def test_a_length_that_only_the_part_tells(server: Server) -> None:
    """A page of another origin may not see Content-Range."""

    def answer(handler: Handler, start: int) -> None:
        if start:
            handler.head(206, Content_Length=str(3500 - start))
            handler.wfile.write(server.body[start:])
        else:
            in_pieces(handler, 0)

    server.answer = answer
    assert get(server)[0] == server.body


@pytest.mark.parametrize("length", [3500, 3504])
@pytest.mark.parametrize("answer", [in_pieces, regardless])
def test_a_file_that_changes_meanwhile(
    server: Server, length: int, answer: Callable[..., None]
) -> None:
    """The new version arrives whole, whether the server supports If-Range or not."""
    changed = np.random.default_rng(1).bytes(length)

    def answer_and_change(handler: Handler, start: int) -> None:
        answer(handler, start, 2000)
        server.body = changed

    server.answer = answer_and_change
    assert get(server)[0] == changed
    assert server.starts[:2] == [0, 2000]


def test_a_file_that_changes_all_the_time(server: Server) -> None:
    def answer(handler: Handler, start: int) -> None:
        regardless(handler, start)
        server.body += b"more"

    server.answer = answer
    with pytest.raises(DownloadError, match=r"changed meanwhile: \d+ bytes, then \d+|was closed"):
        get(server)
    assert len(server.starts) <= 2 * transfer.ATTEMPTS


def test_another_hash(server: Server) -> None:
    actual = hashlib.sha256(server.body).hexdigest()
    with pytest.raises(DownloadError, match=f"expected sha256 {'0' * 64}, found {actual}"):
        get(server, "0" * 64)


def test_more_than_announced_does_not_leave_the_array() -> None:
    class Source:
        async def open(self, url: str, start: int, version: Version) -> Head:
            return Head(200, end=4, total=4)

        async def chunks(self):  # type: ignore[no-untyped-def]
            yield b"12345"

        async def close(self) -> None:
            """Nothing to do."""

    with pytest.raises(DownloadError, match="more than the 4 bytes announced"):
        aio.run(fetch("http://x", source=Source))


@pytest.mark.parametrize("number", [404, 403, 500])
def test_a_refusal_is_final(server: Server, number: int) -> None:
    server.answer = status(number)
    with pytest.raises(DownloadError, match=f"model.gguf: the server answered {number}"):
        get(server)
    assert server.starts == [0]


def test_a_server_that_never_delivers(server: Server) -> None:
    server.answer = never
    with pytest.raises(DownloadError, match="broke off at byte 0 of 3500"):
        get(server)
    assert server.starts == [0] * transfer.ATTEMPTS


def test_a_server_that_starts_anew_and_breaks_off_again(server: Server) -> None:
    server.answer = lambda handler, start: (never if start else in_pieces)(handler, start)
    with pytest.raises(DownloadError, match="broke off at byte"):
        get(server)
    assert len(server.starts) <= 2 * transfer.ATTEMPTS


def test_nobody_there(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    with pytest.raises(DownloadError, match=r"127.0.0.1:1/m: cannot be fetched: .*refused"):
        aio.run(fetch("http://127.0.0.1:1/m"))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "model.gguf", "ftp://x/y", ""])
def test_other_addresses(url: str) -> None:
    with pytest.raises(DownloadError, match="expected an address that begins with http"):
        aio.run(fetch(url))


def test_larger_than_a_tab_holds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by its length, before bytes are requested or memory is allocated."""
    server.answer = huge
    monkeypatch.setattr("sys.platform", "emscripten")
    with pytest.raises(halfbyte.HalfbyteError, match="21475 MB do not fit: expected at most 2147"):
        get(server)


def test_a_model_by_its_address(server: Server, storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    server.body = path.read_bytes()
    server.answer = lambda handler, start: in_pieces(handler, start, 600_000)
    model = aio.run(halfbyte.load_url(server.url, backend="numpy", context=16))
    with model, halfbyte.load(path, context=16, backend="numpy") as expected:
        assert model.path.name == "model.gguf"
        assert np.array_equal(model.logits([1, 2, 3]), expected.logits([1, 2, 3]))


def test_a_session_by_its_address(server: Server) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=9)
    server.body = model.SerializeToString()
    options = halfbyte.SessionOptions()
    options.backend = "numpy"
    with aio.run(halfbyte.open_session(server.url, options)) as session:
        assert session.get_session_options().backend == "numpy"
        [y] = session.run(None, {"x": np.float32([1, 2, 3])})
        assert y.tolist() == [-1, -2, -3]


def test_an_address_of_something_else(server: Server) -> None:
    with pytest.raises(halfbyte.HalfbyteError, match="not an ONNX model"):
        aio.run(halfbyte.open_session(server.url))
    with pytest.raises(halfbyte.HalfbyteError, match=r"model\.gguf: not a model file"):
        aio.run(halfbyte.load_url(server.url))


def test_a_model_in_memory(storyteller: Path) -> None:
    """A llama2.c file has no tokenizer, and a note says so; nothing is copied."""
    data = storyteller.read_bytes()
    with pytest.raises(halfbyte.HalfbyteError, match=r"no tokenizer is in a llama2\.c file"):
        halfbyte.load_bytes(data, "m.bin")
    with pytest.raises(halfbyte.HalfbyteError, match=r"m.bin: is empty \(0 bytes\)"):
        halfbyte.load_bytes(b"", "m.bin")
    whole = np.frombuffer(data, np.uint8)
    tensors = open_bytes(data, "m.bin").tensors.values()
    assert all(np.may_share_memory(tensor.data, whole) for tensor in tensors)
