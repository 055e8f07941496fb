"""The reader of ONNX files, compared field by field with PyPI's `onnx`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.files.messages import (
    TENSOR_TYPES,
    assert_same,
    assert_same_tensor,
    known_opset,
    model_of,
    rich_model,
    tensor,
)
from tests.onnx.node_cases import node_cases

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.onnx.files import is_onnx, open_onnx

SHIPPED = Path(onnx.__file__).parent / "backend/test/data"


def test_every_field_of_a_model_with_everything() -> None:
    model = rich_model()
    assert_same(open_onnx(model.SerializeToString()), model)


def test_the_models_of_the_onnx_package() -> None:
    paths = sorted(SHIPPED.rglob("*.onnx"))
    assert len(paths) > 100
    for path in paths:
        proto = onnx.load(path)
        data = known_opset(proto)
        assert_same(open_onnx(data, name=str(path)), proto)
        assert is_onnx(path.read_bytes()[:16])


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_the_judges_node_tests(step: int) -> None:
    cases = [case for case in node_cases() if case.kind == "node"]
    assert len(cases) > 1500
    for case in cases[::step]:
        data = known_opset(case.proto)
        assert_same(open_onnx(data, name=case.name), case.proto)


@pytest.mark.data
def test_real_files(data: Path) -> None:
    paths = sorted((data / "onnx").glob("*.onnx"))
    assert paths
    for path in paths:
        model = open_onnx(path)
        assert_same(model, onnx.load(path))
        assert model.path == path
        assert is_onnx(path.read_bytes()[:64])


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("count", [13, 1, 0, 400])
@pytest.mark.parametrize("number", TENSOR_TYPES)
def test_every_element_type(number: int, count: int, raw: bool) -> None:
    if number == TensorProto.STRING:
        raw = False
    proto = tensor(number, raw=raw, count=count)
    model = open_onnx(model_of([], ["x"], ["x"], [proto]).SerializeToString())
    array = model.graph.initializers["t"]
    assert isinstance(array, np.ndarray)
    assert_same_tensor(array, proto)
    assert not array.flags.writeable


def test_packed_elements_are_kept_as_stored() -> None:
    protos = [tensor(n, raw=True, name=f"t{n}") for n in (21, 22, 23, 25, 26, 2)]
    graph = open_onnx(model_of([], ["x"], ["x"], protos).SerializeToString()).graph
    assert set(graph.packed) == {"t21", "t22", "t23", "t25", "t26"}
    for proto in protos[:-1]:
        assert graph.packed[proto.name].tobytes() == proto.raw_data


def test_raw_data_is_mapped_at_any_address(tmp_path: Path) -> None:
    """No bytes are copied, not even at odd addresses."""
    path = tmp_path / "model.onnx"
    arrays = [np.arange(100 + i, dtype=np.float32) for i in range(8)]
    protos = [numpy_helper.from_array(a, "w" * (i + 1)) for i, a in enumerate(arrays)]
    path.write_bytes(model_of([], ["x"], ["x"], protos).SerializeToString())
    whole = np.frombuffer(data := path.read_bytes(), np.uint8)
    for source in (path, data):
        mapped = list(open_onnx(source).graph.initializers.values())
        assert not all(array.flags.aligned for array in mapped)  # type: ignore[union-attr]
        for array, expected in zip(mapped, arrays, strict=True):
            assert isinstance(array, np.ndarray)
            assert not array.flags.owndata
            if source is data:
                assert np.shares_memory(array, whole)
            np.testing.assert_array_equal(array @ array, expected @ expected)


def test_sources(tmp_path: Path) -> None:
    model = rich_model()
    path = tmp_path / "a.onnx"
    data = model.SerializeToString()
    path.write_bytes(data)
    sources: list[Any] = [
        path, str(path), data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8),
        io.BytesIO(data),
    ]  # fmt: skip
    for source in sources:
        assert_same(open_onnx(source), model)
    assert open_onnx(data, name="web.onnx").path == Path("web.onnx")
    with pytest.raises(FormatError, match=r"^web\.onnx: not an ONNX model"):
        open_onnx(b"GGUF", name="web.onnx")
    with pytest.raises(FormatError, match="contiguous"):
        open_onnx(memoryview(data)[::2])


def test_is_onnx() -> None:
    data = rich_model().SerializeToString()
    assert all(is_onnx(data[:size]) for size in (4, 16, 64))
    others = [
        b"", b"\x08\x07", b"GGUF\x03\0\0\0", b"PK\x03\x04", b"\x80\x02}q\0", b"{\"a\": 1}",
        b"\x08\x07:\0\0\0\0\0{\"__metadata__\"", b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0",
        (776).to_bytes(4, "little") + (2048).to_bytes(4, "little"), b"ir_version: 8\n",
    ]  # fmt: skip
    for start in others:
        assert not is_onnx(start), start


def test_nodes_are_sorted_and_keep_their_order_otherwise() -> None:
    """b needs a, and c needs b; e is independent. The subgraph of `if` reads c from outside."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["v"], "outer"), helper.make_node("Abs", ["c"], ["w"])],
        "branch", [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["x"], ["y"], "if", then_branch=branch, else_branch=branch),
        helper.make_node("Neg", ["a"], ["b"], "b"),
        helper.make_node("Neg", ["x"], ["e"], "e"),
        helper.make_node("Neg", ["x"], ["a"], "a"),
        helper.make_node("Neg", ["b"], ["c"], "c"),
    ]
    graph = open_onnx(model_of(nodes).SerializeToString()).graph
    assert [node.name for node in graph.nodes] == ["e", "a", "b", "c", "if"]
    inner = graph.nodes[-1].attributes["then_branch"]
    assert [node.op_type for node in inner.nodes] == ["Abs", "Neg"]
    ordered = [node for name in "aebc" for node in nodes if node.name == name] + nodes[:1]
    graph = open_onnx(model_of(ordered).SerializeToString()).graph
    assert [node.name for node in graph.nodes] == ["a", "e", "b", "c", "if"]


def test_domains_and_versions() -> None:
    """The default domain has two names; other domains may have any version."""
    node = helper.make_node("Neg", ["x"], ["y"], domain="ai.onnx")
    for version in (7, 28):
        imports = [helper.make_opsetid("ai.onnx", version), helper.make_opsetid("com.other", 99)]
        model = open_onnx(model_of([node], opset_imports=imports).SerializeToString())
        assert model.opsets == {"": version, "com.other": 99}
        assert model.graph.nodes[0].domain == ""
    for version in (6, 29):
        proto = model_of([node], opset_imports=[helper.make_opsetid("", version)])
        with pytest.raises(UnsupportedError, match=f"opset {version} of the default domain"):
            open_onnx(proto.SerializeToString())


def test_training_information() -> None:
    """Training steps do not matter to inference, but initial values of training may."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1]), "w"))
    info = model.training_info.add()
    info.update_binding.add(key="w", value="w_next")
    info.initialization_binding.add(key="momentum", value="zeros")
    assert_same(open_onnx(model.SerializeToString()), model)
    info.initialization_binding.add(key="w", value="random")
    with pytest.raises(UnsupportedError, match="initializer 'w' is set by training"):
        open_onnx(model.SerializeToString())


def test_attributes_that_writers_leave_out() -> None:
    """proto3 omits zeros and empty lists."""
    node = helper.make_node("Odd", ["x"], ["y"])
    for name, kind in {"f": 1, "i": 2, "s": 3, "fs": 6, "is": 7, "ss": 8}.items():
        node.attribute.add(name=name, type=kind)  # type: ignore[arg-type]
    attributes = open_onnx(model_of([node]).SerializeToString()).graph.nodes[0].attributes
    assert attributes == {"f": 0.0, "i": 0, "s": "", "fs": [], "is": [], "ss": []}
    assert isinstance(attributes["f"], float)


def test_numbers_of_repeated_fields_in_any_form() -> None:
    """Single fields, packed ones, and both, across the borders of the chunks of decoding."""
    from halfbyte.formats.protobuf import Message

    random = np.random.default_rng(0)
    numbers = random.integers(0, 1 << 63, 300_000, np.uint64) >> random.integers(
        0, 64, 300_000, np.uint64
    )
    numbers[::7] = (1 << 64) - 1
    packed = b"".join(map(_varint, numbers.tolist()))
    message = Message(memoryview(b""), Path("m"), "numbers")
    parts = [*numbers[:3].tolist(), memoryview(packed), 5, memoryview(b"")]
    expected = [*numbers[:3].tolist(), *numbers.tolist(), 5]
    assert len(packed) > 1 << 20
    assert message.integer_array(parts).tolist() == expected
    assert message.integers(parts) == np.array(expected, np.uint64).view(np.int64).tolist()
    with pytest.raises(FormatError, match="truncated"):
        message.integers([memoryview(packed[:-1] + b"\x80")])
    floats = np.arange(5, dtype=np.float32)
    pieces = [floats[:1].tobytes(), memoryview(floats[1:].tobytes())]
    assert message.number_array(pieces, "<f4").tolist() == floats.tolist()
    for wrong in (b"12345", 3, memoryview(b"123"), b"12345678"):
        with pytest.raises(FormatError):
            message.number_array([wrong], "<f4")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def test_links_between_sparse_and_dense() -> None:
    """Linear indices too, and an empty sparse tensor."""
    for indices in ([0, 5], []):
        model = model_of([], ["x"], ["x"])
        model.graph.sparse_initializer.append(
            helper.make_sparse_tensor(
                numpy_helper.from_array(np.ones(len(indices), np.float32), "s"),
                numpy_helper.from_array(np.array(indices, np.int64), ""), [3, 2],
            )
        )  # fmt: skip
        assert_same(open_onnx(model.SerializeToString()), model)
