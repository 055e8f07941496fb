"""Parts of a run on a cluster: the same files, to the bit, whatever is lost on the way.

The cluster is in this process, and computes what has been pickled; `make test-ray` has a real one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from operator import neg
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from tests.text.architectures import models

from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file, quantizer
from halfbyte.quantize.calibration import texts
from halfbyte.quantize.engines import Distributed, Local, open_engine, worker
from halfbyte.quantize.engines.distributed import TRIES, LostError
from halfbyte.quantize.engines.packing import Packed, packed, unpacked
from halfbyte.quantize.recipe import parse_keep


class Here:
    """A cluster of two workers in this process; of all parts begun, the numbered ones are lost."""

    def __init__(self, lost: Iterable[int] = ()) -> None:
        self.lost = set(lost)
        self.begun = self.computed = 0
        self.given_up: list[Any] = []
        self.is_closed = False
        self.conditions = worker.conditions()

    def slots(self) -> int:
        return 2

    def share(self, work: Packed) -> Packed:
        return copied(work)

    def submit(self, key: str, work: Packed, part: Packed) -> Any:
        self.begun += 1
        return self.begun - 1, key, work, copied(part)

    def result(self, handle: Any) -> Packed | str:
        number, key, work, part = handle
        if number in self.lost:
            raise LostError("its node ended")
        self.computed += 1
        return worker.run(self.conditions, key, work, part)

    def cancel(self, handles: Iterable[Any]) -> None:
        self.given_up += handles

    def close(self) -> None:
        self.is_closed = True


def copied(parts: Packed) -> Packed:
    """The same bytes elsewhere, read-only as in memory that processes share."""
    return [np.frombuffer(part.tobytes(), np.uint8) for part in parts]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models write short texts."""
    monkeypatch.setattr(texts.own_windows, "__defaults__", (100,))


def use(cluster: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that every name but "local" opens."""
    here = Distributed(cluster)
    opened = lambda name, threads: open_engine(name) if name == "local" else here  # noqa: E731
    monkeypatch.setattr(quantizer, "open_engine", opened)


def test_results_are_in_order_and_parts_read_as_they_are_needed() -> None:
    read: list[int] = []

    def parts() -> Iterator[tuple[str, int]]:
        for number in range(9):
            read.append(number)
            yield f"t{number}", number

    cluster = Here(lost=[0, 3, 9])
    results = Distributed(cluster).map(neg, parts())
    assert next(results) == ("t0", 0)
    assert read == [0, 1, 2, 3]
    assert list(results) == [(f"t{i}", -i) for i in range(1, 9)]
    assert (cluster.begun, cluster.computed, cluster.given_up) == (12, 9, [])


def test_no_parts() -> None:
    assert list(Distributed(Here()).map(neg, [])) == []


def test_a_part_that_is_always_lost() -> None:
    cluster = Here(lost=range(1, 99))
    results = Distributed(cluster).map(neg, [(("a", "b"), 0), (("c", "d"), 1), (("e",), 2)])
    assert next(results) == (("a", "b"), 0)
    message = rf"tensor 'c', 'd': its part failed on all {TRIES} tries: its node ended"
    with pytest.raises(HalfbyteError, match=message):
        next(results)
    assert cluster.begun == 3 + TRIES - 1
    assert [handle[0] for handle in cluster.given_up] == [5, 2]


def test_an_error_of_a_part_is_raised_at_once() -> None:
    cluster = Here()
    with pytest.raises(HalfbyteError, match="expected"):
        list(Distributed(cluster).map(parse_keep, [("a", "x"), ("b", "y")]))
    assert cluster.computed == 1


@pytest.mark.parametrize("name", [*worker.conditions()])
def test_a_worker_with_other_conditions(name: str) -> None:
    cluster = Here()
    cluster.conditions[name] = "another"
    message = f"cannot take part in this run: expected {name} another, .* found "
    with pytest.raises(HalfbyteError, match=message):
        list(Distributed(cluster).map(neg, [("a", 1)]))


def test_packing_copies_no_numbers() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    parts = packed({"x": x, "y": x[:, :2], "name": "a"})
    assert np.shares_memory(parts[1], x)
    again = unpacked(copied(parts))
    np.testing.assert_array_equal(again["x"], x)
    np.testing.assert_array_equal(again["y"], x[:, :2])
    assert not again["x"].flags.writeable


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bits": ("llama", {"bits": 5.5}),
    "bits, experts": ("mixtral", {"bits": 6, "method": "search"}),
    "gptq": ("llama", {"method": "gptq"}),
    "gptq, experts": ("mixtral", {"type": "Q4_0", "method": "gptq", "pure": True}),
    "gptq, rotated": ("llama", {"type": "IQ4_NL", "method": "gptq", "rotate": True}),
    "tuned": ("llama", {"method": "tuned"}),
    "search": ("storyteller", {"method": "search", "calibrate": "text.txt"}),
    "imatrix": ("storyteller", {"imatrix": "imatrix.gguf"}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.long) if c == "tuned" else c for c in CASES]
)
def test_the_file_is_the_same(
    case: str, storyteller: Path, repository: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As in this process, with several threads, and with parts that are lost."""
    name, given = CASES[case]
    files = {"calibrate", "imatrix"}
    options = {key: tmp_path / value if key in files else value for key, value in given.items()}
    model = storyteller
    if name != "storyteller":
        model = models.write(tmp_path / "model.gguf", name)
    text = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8")
    (tmp_path / "text.txt").write_text(text[:4000], "utf-8")
    if "imatrix" in options:
        quantize_file(
            model, output=tmp_path / "first.gguf", calibrate=tmp_path / "text.txt",
            method="search", write_imatrix=options["imatrix"], threads=1,
        )  # fmt: skip
    cluster = Here(lost=[0, 2, 3, 7])
    use(cluster, monkeypatch)
    outputs = [tmp_path / "local.gguf", tmp_path / "ray.gguf"]
    for engine, threads, output in zip(("local", "ray"), (2, 1), outputs, strict=True):
        quantize_file(model, output=output, engine=engine, threads=threads, **options)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert cluster.computed >= 4
    assert cluster.begun - cluster.computed == 4
    assert cluster.is_closed


@pytest.mark.parametrize("error", [KeyboardInterrupt, HalfbyteError("damaged")])
def test_nothing_is_left_of_a_run_that_ends(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Here()

    def ended(handle: Any) -> Packed | str:
        if handle[0] == 5:
            raise error
        return Here.result(cluster, handle)

    monkeypatch.setattr(cluster, "result", ended)
    use(cluster, monkeypatch)
    model = models.write(tmp_path / "model.gguf", "llama")
    status = main([str(model), "--bits", "5.5", "--engine", "ray"])
    assert status == (130 if error is KeyboardInterrupt else 2)
    assert cluster.is_closed
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--int4", "--engine", "rya"], "engine 'rya': expected local, ray or ray:HOST:PORT"),
        (["--int4", "--engine", "ray"], "method 'search' alone, which has nothing to distribute"),
        (["--bits", "5", "--engine", "ray:a"], "expected an address HOST:PORT, found 'a'"),
        (["--bits", "5", "--engine", "ray:a:0"], "expected an address HOST:PORT, found 'a:0'"),
        (["--bits", "5", "--engine", "ray:127.0.0.1:1"], "no cluster answers at 127.0.0.1:1"),
        (["--bits", "5", "--engine", "ray"], "pip install 'halfbyte[ray]'"),
    ],
)
def test_engines_that_cannot_be_used(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = dict(os.environ)
    model = models.write(tmp_path / "model.gguf", "llama")
    assert main([str(model), *options]) == 2
    assert message in capsys.readouterr().err
    assert dict(os.environ) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_the_address_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(HalfbyteError, match=r"no cluster answers at 127\.0\.0\.1:1"):
        open_engine("ray")


def test_onnx_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    assert main([str(path), "--int4", "--engine", "ray"]) == 2
    assert "--engine is for language models" in capsys.readouterr().err


def test_a_layer_is_read_while_its_first_part_is_computed() -> None:
    read = Event()

    def parts() -> Iterator[tuple[int, int]]:
        yield from ((i, i) for i in range(3))
        read.set()
        yield 3, 3

    results = Local().map(lambda part: read.wait(10), parts(), threads=1)
    assert [*results] == [(i, True) for i in range(4)]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_parts_here_keep_their_order(threads: int) -> None:
    """And the first error is that of the first part that has one, after the results before it."""

    def work(part: int) -> int:
        time.sleep(0.003 * (part % 3 == 0))
        if part > 9:
            raise ValueError(part)
        return -part

    assert [*Local().map(work, ((str(i), i) for i in range(9)), threads=threads)] == [
        (str(i), -i) for i in range(9)
    ]
    results = Local().map(work, ((i, i) for i in range(8, 20)), threads=threads)
    assert [next(results), next(results)] == [(8, -8), (9, -9)]
    with pytest.raises(ValueError, match="10"):
        next(results)
