"""Models larger than memory or than one file: tensors are processed one at a time."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import (
    IDS,
    cosine,
    load,
    node,
    normal,
    operators,
    products,
    run,
    tensors_of,
    write,
)
from tests.support.sampled import sampled

from halfbyte.errors import FormatError, OutputError
from halfbyte.quantize.onnx import Options, model_writer, quantize_onnx
from halfbyte.quantize.onnx.model_writer import Payload, write_model
from halfbyte.quantize.onnx.source import read_source, varint

F = TensorProto.FLOAT
MATRIX = 1024, 2048  # 8 MiB
COUNT = 24


def chain(path: Path, *, external: bool) -> Path:
    """A file of 192 MiB: except for a few, its numbers are a hole that reads as zeros."""
    weights = [f"w{i}" for i in range(COUNT)]
    nodes, size = [], 4 * MATRIX[0] * MATRIX[1]
    for i, name in enumerate(weights):
        shape = "transA" if i % 2 else ""
        attributes = {"transB": 1} if shape else {}
        nodes.append(node("Gemm", [f"x{i}", name], [f"x{i + 1}"], **attributes))
    tensors = [TensorProto(name=name, data_type=F, dims=MATRIX) for name in weights]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x0", F, [1, MATRIX[0]])],
        [helper.make_tensor_value_info(f"x{COUNT}", F, [1, MATRIX[0]])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if external:
        with path.with_name("numbers").open("wb") as file:
            file.truncate(COUNT * size)
            file.write(struct.pack("<4f", 1, -2, 3, 4))
        for i, tensor in enumerate(tensors):
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "numbers"), ("offset", i * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.extend(tensors)
        onnx.save(model, path)
        return path
    with path.open("wb") as file:
        heads = []
        for tensor in tensors:
            message = tensor.SerializeToString() + b"\x4a" + varint(size)  # field 9, raw_data
            heads.append(b"\x2a" + varint(len(message) + size) + message)  # field 5, initializer
        inner = model.graph.SerializeToString()
        total = len(inner) + sum(len(head) + size for head in heads)
        model.ClearField("graph")
        file.write(model.SerializeToString() + b"\x3a" + varint(total) + inner)
        for head in heads:
            file.write(head + struct.pack("<4f", 1, -2, 3, 4))
            file.truncate(file.tell() - 16 + size)
            file.seek(0, 2)
    return path


MEASURE = """
import json, sys
from pathlib import Path
from halfbyte.quantize.onnx import Options, quantize_onnx

def memory(field):
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(field + ":")[2].split()[0])

small, large, kind, method, external = sys.argv[1:]
options = Options(type=kind, method=method, external=external == "True", compare=False, pure=True)
quantize_onnx(small, options=options, threads=2)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the most from here on
report = quantize_onnx(large, options=options, threads=2)
print(json.dumps([memory("VmHWM") - before, report.bytes_after]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "method", "external"),
    sampled([("int4", "weights", True), ("int8", "dynamic", False), ("bf16", "auto", True)], 3),
)
def test_memory_is_that_of_one_tensor(
    tmp_path: Path, kind: str, method: str, external: bool
) -> None:
    """A model of 192 MiB needs at most the memory of a small one and 5 tensors.

    Counted are the file's pages too: a tensor's, and what of it is there as float32, transposed,
    encoded and decoded.
    """
    small = products(tmp_path / "small.onnx")
    large = chain(tmp_path / "large.onnx", external=external)
    arguments = [str(small), str(large), kind, method, str(external)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True
    )
    grown, written = json.loads(done.stdout)
    assert grown < 5 * 4 * MATRIX[0] * MATRIX[1]
    bits = {"int4": 5, "int8": 8, "bf16": 16}[kind]
    assert written == pytest.approx(COUNT * MATRIX[0] * MATRIX[1] * bits / 8, rel=0.01)


def test_the_large_file_is_right(tmp_path: Path) -> None:
    path = chain(tmp_path / "large.onnx", external=False)
    source = read_source(path)
    assert len(source.bulk) == COUNT
    assert source.model.ByteSize() < 20_000
    for view in source.bulk.values():
        assert view.nbytes == 4 * MATRIX[0] * MATRIX[1]
        np.testing.assert_array_equal(view[:20].view(np.float32), [1, -2, 3, 4, 0])


@pytest.mark.parametrize("external", [False, True])
def test_external_data_in_and_out(tmp_path: Path, external: bool) -> None:
    """Read from a file beside the model; written to one, at multiples of 4096 where it is large."""
    path = products(tmp_path / "m.onnx")
    (expected,) = run(path, IDS)
    onnx.save(
        load(path), tmp_path / "e.onnx", save_as_external_data=True, location="e.bin",
        size_threshold=0,
    )  # fmt: skip
    assert not any(
        t.raw_data
        for t in onnx.load(tmp_path / "e.onnx", load_external_data=False).graph.initializer
    )
    for kind in ("int8", "fp16"):
        plain = quantize_onnx(path, tmp_path / "p.onnx", Options(type=kind))
        report = quantize_onnx(
            tmp_path / "e.onnx", tmp_path / "o.onnx", Options(type=kind, external=external)
        )
        assert report.rows == plain.rows
        assert report.bytes_before == sum(
            (tmp_path / name).stat().st_size for name in ("e.onnx", "e.bin")
        )
        (y,) = run(report.output, IDS)
        assert cosine(expected, y) > 0.9999
        ours, theirs = tensors_of(report.output), tensors_of(plain.output)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name])
    written = onnx.load(tmp_path / "o.onnx", load_external_data=False).graph.initializer
    places = [{e.key: e.value for e in t.external_data} for t in written if t.external_data]
    assert bool(places) == external
    if external:
        (data,) = tmp_path.glob("o.onnx.*.data")
        assert {p["location"] for p in places} == {data.name}
        assert max(int(p["offset"]) + int(p["length"]) for p in places) == data.stat().st_size
        assert report.bytes_after == data.stat().st_size + (tmp_path / "o.onnx").stat().st_size


def test_what_exceeds_a_message_becomes_external(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = products(tmp_path / "m.onnx")
    monkeypatch.setattr(model_writer, "MESSAGE_LIMIT", 10_000)
    report = quantize_onnx(path, options=Options(compare=False))
    (data,) = tmp_path.glob("m-int8.onnx.*.data")
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.9999
    monkeypatch.setattr(model_writer, "MESSAGE_LIMIT", 100)
    with pytest.raises(OutputError, match="a model's message holds 2 GB"):
        quantize_onnx(path, tmp_path / "n.onnx", Options(compare=False))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "m-int8.onnx", data.name, "m.onnx",
    ]  # fmt: skip


def test_numbers_in_fields_of_their_type(tmp_path: Path) -> None:
    """float_data is little-endian float32 as well, and stays in the file if it is large."""
    w = normal(96, 64)
    weight = helper.make_tensor("w", F, w.shape, w.reshape(-1))
    assert len(weight.float_data) == w.size
    half = helper.make_tensor("v", TensorProto.FLOAT16, w.T.shape, w.T.reshape(-1).astype("f2"))
    assert len(half.int32_data) == w.size
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Cast", ["v"], ["v32"], to=F),
        node("MatMul", ["a", "v32"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", F, ["n", 96])],
        [helper.make_tensor_value_info("y", F, ["n", 96])], [weight, half],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    assert list(read_source(tmp_path / "m.onnx").bulk) == ["w"]
    report = quantize_onnx(tmp_path / "m.onnx")
    assert operators(report.output) == ["MatMulNBits", "MatMulNBits"]
    feeds = {"x": normal(2, 96, seed=1)}
    assert cosine(run(tmp_path / "m.onnx", feeds)[0], run(report.output, feeds)[0]) > 0.9999


def test_data_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = products(tmp_path / "inner" / "m.onnx")
    model = load(path)
    onnx.save(model, path, save_as_external_data=True, location="d.bin", size_threshold=0)
    (tmp_path / "inner" / "d.bin").rename(tmp_path / "d.bin")
    changed = onnx.load(path, load_external_data=False)
    for tensor in changed.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../d.bin"
    path.write_bytes(changed.SerializeToString())
    with pytest.raises(FormatError, match="expected a file in the model's folder"):
        quantize_onnx(path)


def test_parts_have_the_size_that_was_announced(tmp_path: Path) -> None:
    model = onnx.load(products(tmp_path / "m.onnx"))
    payloads = {"up": Payload(8, lambda: [np.zeros(4, np.uint8)])}
    with pytest.raises(ValueError, match="4 bytes written, 8 announced"):
        write_model(tmp_path / "o.onnx", model, payloads)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_what_a_file_says_of_itself_stays(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["n", 64])},
        {"y": (F, ["n", 64])}, {"w": normal(64, 64)},
    )  # fmt: skip
    model = load(path)
    model.producer_name, model.doc_string, model.model_version = "someone", "something", 7
    model.metadata_props.add(key="author", value="me")
    model.graph.doc_string = "a graph"
    onnx.save(model, path)
    result = load(quantize_onnx(path).output)
    for name in ("producer_name", "doc_string", "model_version", "metadata_props"):
        assert getattr(result, name) == getattr(model, name)
    assert result.graph.doc_string == "a graph"
    assert result.graph.name == "graph"


@pytest.mark.parametrize("kind", ["int8", "fp16"])
def test_large_models_are_not_run_unless_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A model that runs has to be in memory."""
    path = products(tmp_path / "m.onnx")
    monkeypatch.setattr("halfbyte.quantize.onnx.output_quality.MAX_RUN", 1000)
    report = quantize_onnx(path, options=Options(type=kind))
    assert report.outputs == ()
    assert any("is only run with --calibrate" in note for note in report.notes)
    np.savez(tmp_path / "s.npz", **IDS)  # type: ignore[arg-type]
    report = quantize_onnx(path, options=Options(type=kind), samples=tmp_path / "s.npz")
    assert len(report.outputs) == 1
    assert report.notes == ()
