"""Truncated, changed and deceiving ONNX files: errors of our own, soon, and in little memory."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.formats.test_hostile_files import little_memory
from tests.onnx.files.messages import known_opset, model_of, rich_model, tensor
from tests.onnx.mutations import BYTES, MODELS, mutations

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.onnx.files import open_onnx, reader

SECONDS = 5  # of the processor, for any file; usually they take milliseconds
SHIPPED = Path(onnx.__file__).parent / "backend/test/data"
Change = Callable[[onnx.ModelProto], Any]


def small_model() -> onnx.ModelProto:
    """A model with two nodes, an initializer and an attribute."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["h"], "first"),
        helper.make_node("LeakyRelu", ["h"], ["y"], "second", alpha=0.5),
    ]
    return model_of(nodes, initializers=[numpy_helper.from_array(np.float32([1, 2]), "w")])


def refused(data: bytes) -> str:
    """The error of a file, which must come soon and in little memory."""
    start = time.process_time()
    with little_memory(), pytest.raises(HalfbyteError) as caught:
        open_onnx(data, name="bad.onnx")
    assert time.process_time() - start < SECONDS
    message = str(caught.value)
    assert message.startswith("bad.onnx: ")
    assert message.isprintable()
    assert len(message) < 600
    return message


def assert_matches(expected: str, message: str) -> None:
    assert re.search(expected, message), message


def changed(change: Change) -> bytes:
    model = small_model()
    change(model)
    return model.SerializeToString()


def field(number: int, value: bytes | int) -> bytes:
    """A field of protobuf's wire format."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


# ---- damaged files -----------------------------------------------------------------------------


def test_every_prefix_is_refused() -> None:
    data = small_model().SerializeToString()
    open_onnx(data)
    for size in range(len(data)):
        with pytest.raises(HalfbyteError, match=r"^part\.onnx: "):
            open_onnx(data[:size], name="part.onnx")


def test_every_byte_with_every_bit_flipped() -> None:
    data = small_model().SerializeToString()
    messages: list[str] = []
    for at in range(len(data)):
        for bit in range(8):
            mutant = bytearray(data)
            mutant[at] ^= 1 << bit
            try:
                open_onnx(mutant, name="bad.onnx")
            except HalfbyteError as error:
                messages.append(str(error))
    assert all(message.startswith("bad.onnx: ") for message in messages)
    assert len(messages) > len(data) * 4


def test_mutants_are_refused_or_read() -> None:
    paths = sorted(SHIPPED.rglob("*.onnx"))[::9]
    seeds = [rich_model().SerializeToString(), *(known_opset(onnx.load(p)) for p in paths)]
    kinds: set[str] = set()
    messages: list[str] = []
    start = time.process_time()
    for mutant in mutations(seeds, 3000):
        kinds.add(mutant.kind)
        try:
            open_onnx(mutant.data, name="bad.onnx")
        except HalfbyteError as error:
            messages.append(str(error))
    assert time.process_time() - start < 10 * SECONDS
    assert kinds == {*BYTES, *MODELS}
    assert all(m.startswith("bad.onnx: ") and m.isprintable() for m in messages)
    assert 1000 < len(messages) < 2500


def test_mutants_are_the_same_each_time() -> None:
    seeds = [small_model().SerializeToString()]
    one, other = (list(mutations(seeds, 100)) for _ in range(2))
    assert one == other
    assert one != list(mutations(seeds, 100, random_seed=1))


# ---- deceiving files ---------------------------------------------------------------------------

LIES: dict[str, tuple[Change, str]] = {
    "a negative size": (
        lambda m: m.graph.initializer[0].dims.append(-1),
        r"tensor 'w': shape \[2, -1\] has a negative size",
    ),
    "a size larger than any memory": (
        lambda m: m.graph.initializer[0].dims.append(1 << 62),
        r"tensor 'w': shape \[2, 4611686018427387904\] is larger than any memory",
    ),
    "an empty tensor with a size larger than any memory": (
        lambda m: m.graph.initializer[0].dims.extend([0, 1 << 62]),
        "larger than any memory",
    ),
    "a size larger than the file": (
        lambda m: m.graph.initializer[0].dims.append(1 << 40),
        "tensor 'w': expected 8796093022208 bytes for 2199023255552 elements, found 8",
    ),
    "too many dimensions": (
        lambda m: m.graph.initializer[0].dims.extend([1] * 40),
        "41 dimensions, expected at most 32",
    ),
    "a size with typed data": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=1, dims=[1 << 40], float_data=[1])
        ),
        r"expected 1099511627776 elements of shape \[1099511627776\], found 1",
    ),
    "an unknown element type": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 99),
        "tensor 'w': element type 99, expected one of 1 to 26",
    ),
    "an element type of six bits": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 27),
        "elements of FLOAT6E2M3",
    ),
    "raw strings": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 8),
        "strings in raw_data",
    ),
    "two kinds of data": (
        lambda m: m.graph.initializer[0].float_data.extend([1, 2]),
        "elements of type 1 in float_data, expected raw_data",
    ),
    "data in the field of another type": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=1, dims=[1], int32_data=[1])
        ),
        "elements of type 1 in int32_data, expected float_data",
    ),
    "a value that its type does not hold": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=3, dims=[2], int32_data=[-128, 128])
        ),
        "values from -128 to 128, expected -128 to 127",
    ),
    "a bool of 2": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=9, dims=[2], raw_data=b"\1\2")
        ),
        "a bool of 2, expected 0 or 1",
    ),
    "half a complex number": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=14, dims=[1], float_data=[1, 2, 3])
        ),
        "3 parts of complex numbers, expected pairs",
    ),
    "too few packed elements": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=22, dims=[3], int32_data=[1])
        ),
        "expected 2 bytes in int32_data, found 1",
    ),
    "a segment": (
        lambda m: m.graph.initializer[0].segment.SetInParent(),
        "a segment of a tensor",
    ),
    "a string that is not UTF-8": (
        lambda m: m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", data_type=8, dims=[1], string_data=[b"\xff"])
        ),
        "initializer 0: a string is not UTF-8",
    ),
    "an initializer twice": (
        lambda m: m.graph.initializer.append(m.graph.initializer[0]),
        "initializer 'w' appears twice",
    ),
    "an initializer without a name": (
        lambda m: setattr(m.graph.initializer[0], "name", ""),
        "an initializer without a name",
    ),
    "an initializer that a node makes": (
        lambda m: setattr(m.graph.initializer[0], "name", "h"),
        r"node 'first' \(Add\): output 'h' is a value already",
    ),
    "an output of two nodes": (
        lambda m: m.graph.node[1].output.append("h"),
        r"node 'second' \(LeakyRelu\): output 'h' is a value already",
    ),
    "an input twice": (
        lambda m: m.graph.input.append(m.graph.input[0]),
        "graph 'g': input 'x' appears twice",
    ),
    "an output of the graph twice": (
        lambda m: m.graph.output.append(m.graph.output[0]),
        "graph 'g': output 'y' appears twice",
    ),
    "an output that nothing computes": (
        lambda m: setattr(m.graph.output[0], "name", "z"),
        "graph 'g': outputs: nothing computes 'z'",
    ),
    "an input that nothing computes": (
        lambda m: m.graph.node[0].input.append("z"),
        r"node 'first' \(Add\): nothing computes 'z'",
    ),
    "an input of a subgraph that nothing computes": (
        lambda m: m.graph.node.append(_branch("z")),
        r"node 'inner' \(Neg\): nothing computes 'z'",
    ),
    "a cycle": (
        lambda m: m.graph.node[0].input.append("y"),
        r"2 nodes form a cycle: node 'first' \(Add\), node 'second' \(LeakyRelu\)",
    ),
    "a cycle of one": (
        lambda m: m.graph.node[1].input.append("y"),
        r"1 nodes form a cycle: node 'second' \(LeakyRelu\)",
    ),
    "a cycle through a subgraph": (
        lambda m: m.graph.node.append(_branch("p")),
        r"1 nodes form a cycle: node 'if' \(If\)",
    ),
    "a value without a name": (
        lambda m: m.graph.input.add(),
        "a value's name of 0 characters",
    ),
    "a long name": (
        lambda m: m.graph.node[0].input.append("n" * 2000),
        "a name of 2000 characters, expected at most 1024",
    ),
    "an operator of two lines": (
        lambda m: setattr(m.graph.node[0], "op_type", "a\nb"),
        r"op_type 'a\\nb', expected a name",
    ),
    "a domain of two lines": (
        lambda m: setattr(m.graph.node[0], "domain", "a\nb"),
        r"domain 'a\\nb', expected a name",
    ),
    "a node without an operator": (
        lambda m: m.graph.node.add(name="second"),
        "graph: node 2: op_type '', expected a name",
    ),
    "an attribute twice": (
        lambda m: m.graph.node[1].attribute.append(m.graph.node[1].attribute[0]),
        r"node 'second' \(LeakyRelu\): attribute 'alpha': appears twice",
    ),
    "an attribute without a type": (
        lambda m: m.graph.node[1].attribute[0].ClearField("type"),
        r"node 'second' \(LeakyRelu\): attribute 'alpha': type 0, expected one of 1 to 14",
    ),
    "an attribute of another type": (
        lambda m: setattr(m.graph.node[1].attribute[0], "type", 2),
        "attribute 'alpha': a value in field 2, expected INT in 3",
    ),
    "an attribute of two values": (
        lambda m: setattr(m.graph.node[1].attribute[0], "i", 2),
        "attribute 'alpha': a value in field 3, expected FLOAT in 2",
    ),
    "an attribute without its tensor": (
        lambda m: m.graph.node[1].attribute.add(name="t", type=4),
        "attribute 't': expected one TENSOR, found none",
    ),
    "an attribute without a name": (
        lambda m: m.graph.node[1].attribute.add(type=1),
        "an attribute without a name",
    ),
    "a reference outside of a function": (
        lambda m: m.graph.node[1].attribute.add(name="b", type=1, ref_attr_name="a"),
        "attribute 'b': refers to 'a' outside a function",
    ),
    "an opaque type": (
        lambda m: m.graph.input.add(name="o").type.opaque_type.SetInParent(),
        "type of value 'o': an opaque type",
    ),
    "no version of a domain": (
        lambda m: setattr(m.graph.node[0], "domain", "other"),
        "domain 'other' has no version",
    ),
    "no version of the default domain": (
        lambda m: setattr(m.opset_import[0], "domain", "other"),
        "domain 'ai.onnx' has no version",
    ),
    "two versions of a domain": (
        lambda m: m.opset_import.add(domain="ai.onnx", version=9),
        "versions 21 and 9 of domain ''",
    ),
    "version zero": (
        lambda m: setattr(m.opset_import[0], "version", 0),
        "version 0 of domain '', expected 1 or more",
    ),
    "a format of the future": (
        lambda m: setattr(m, "ir_version", 99),
        "expected IR version 3 to 14, found 99",
    ),
    "no graph": (lambda m: m.ClearField("graph"), "expected one graph, found none"),
    "external data of a model in memory": (
        lambda m: _external(m, location="w.bin"),
        "its data is in the file 'w.bin', but the model is in memory",
    ),
    "external data without a location": (
        lambda m: _external(m, offset="0"),
        "tensor 'w': external data without a location",
    ),
    "external data of the wrong size": (
        lambda m: _external(m, location="w.bin", length="9"),
        "expected 8 bytes of external data, found a length of 9",
    ),
    "external data at no offset": (
        lambda m: _external(m, location="w.bin", offset="-1"),
        "offset '-1' is not a size",
    ),
    "external data at an endless offset": (
        lambda m: _external(m, location="w.bin", offset="9" * 5000),
        "is not a size",
    ),
    "external strings": (
        lambda m: (
            _external(m, location="w.bin"),
            setattr(m.graph.initializer[0], "data_type", 8),
        ),
        "strings in external data",
    ),
    "a long name of a tensor": (
        lambda m: setattr(m.graph.initializer[0], "name", "n" * 2000),
        "initializer 0: a name of 2000 characters",
    ),
    "a sparse tensor without values": (
        lambda m: m.graph.sparse_initializer.add(dims=[1]),
        "a sparse tensor without values",
    ),
    "an attribute of an empty type": (
        lambda m: m.graph.node[1].attribute.add(name="t", type=13).tp.SetInParent(),
        "an empty type",
    ),
    "a value of many dimensions": (
        lambda m: m.graph.input[0].type.tensor_type.shape.dim.extend(
            [onnx.TensorShapeProto.Dimension()] * 40
        ),
        "type of value 'x': 41 dimensions, expected at most 32",
    ),
    "a value of an unknown element type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99),
        "type of value 'x': element type 99, expected one of 1 to 26",
    ),
    "data in two places": (
        lambda m: (_external(m, location="w.bin"), m.graph.initializer[0].float_data.append(1)),
        "elements of type 1 in float_data, expected external_data|in memory",
    ),
}


def _branch(name: str) -> onnx.NodeProto:
    """An If with the output `p`, whose branches read a value."""
    output = [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)]
    inner = helper.make_graph([helper.make_node("Neg", [name], ["b"], "inner")], "b", [], output)
    return helper.make_node("If", ["x"], ["p"], "if", then_branch=inner, else_branch=inner)


def _external(model: onnx.ModelProto, **entries: str) -> None:
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        weights.external_data.add(key=key, value=value)


@pytest.mark.parametrize("name", LIES)
def test_lies(name: str) -> None:
    change, expected = LIES[name]
    assert_matches(expected, refused(changed(change)))


FIELDS = {
    "a kind that does not exist": (b"\x0b", "field 1 at offset 2 is of unknown kind 3"),
    "field 0": (b"\x00\x00", "field 0 at offset 2: numbers begin with 1"),
    "a length beyond the end": (b"\x12\x05ab", "field 2 at offset 2: 5 bytes expected, 2 found"),
    "a length without an end": (b"\x12" + b"\xff" * 20, "truncated or endless integer at offset 3"),
    "a truncated key": (b"\x80", "truncated or endless integer at offset 2"),
    "a truncated number": (b"\x08", "truncated or endless integer at offset 3"),
    "a truncated float": (b"\x0d\0\0", "field 1 at offset 2: 4 bytes expected, 2 found"),
    "bytes for an integer": (field(1, b"abc"), "expected an integer, found 3 bytes"),
    "a float for an integer": (b"\x0d\0\0\0\0", "expected an integer, found 4 bytes"),
    "an integer for a text": (field(2, 1), "expected bytes, found an integer"),
    "an integer for a message": (field(7, 1), "expected bytes, found an integer"),
    "a float for a text": (b"\x15\0\0\0\0", "expected bytes, found 4 bytes"),
    "bytes for a float": (
        field(7, field(1, field(5, field(2, b"abcd")))),
        "expected a float, found 4 bytes",
    ),
    "a double for a float": (
        field(7, field(1, field(5, b"\x11" + bytes(8)))),
        "expected a float, found 8 bytes",
    ),
    "two types at once": (
        field(7, field(11, field(1, b"x") + field(2, field(1, b"") + field(4, b"")))),
        "type of value 'x': two types at once",
    ),
    "a place of data that does not exist": (
        field(7, field(5, field(8, b"w") + field(2, 1) + field(14, 2))),
        "data_location 2, expected 0 or 1",
    ),
    "packed integers that are too long": (
        field(7, field(5, field(2, 7) + field(7, b"\x80" * 11 + b"\1"))),
        "an integer of 12 bytes, expected at most 10",
    ),
    "truncated packed integers": (
        field(7, field(5, field(2, 7) + field(7, b"\1\x80"))),
        "truncated or endless integer in packed ones",
    ),
    "truncated packed floats": (
        field(7, field(5, field(2, 1) + field(4, b"12345"))),
        "expected numbers of 4 bytes, found 5 bytes",
    ),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    data, expected = FIELDS[name]
    assert_matches(expected, refused(field(1, 8) + data))


SPARSE: dict[str, tuple[list[int], Any, list[int], str]] = {
    "outside": ([1, 2], [0, 6], [2, 3], "not ascending inside"),
    "negative": ([1, 2], [-1, 3], [2, 3], "not ascending inside"),
    "twice": ([1, 2], [3, 3], [2, 3], "not ascending inside"),
    "outside of an axis": ([1, 2], [[0, 3], [1, 0]], [2, 3], "outside the shape"),
    "backwards": ([1, 2], [[1, 0], [0, 1]], [2, 3], "not ascending inside"),
    "too few": ([1, 2], [0], [2, 3], r"values \[2\] with indices \[1\]"),
    "of another rank": ([1, 2], [[0], [1]], [2, 3], r"values \[2\] with indices \[2, 1\]"),
    "endless": ([1], [0], [1 << 40, 1 << 40], "larger than any memory"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_false_sparse_tensors(name: str) -> None:
    few, indices, dims, expected = SPARSE[name]
    model = small_model()
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array(few, np.float32), "s"),
            numpy_helper.from_array(np.array(indices, np.int64), ""), dims,
        )
    )  # fmt: skip
    assert_matches(expected, refused(model.SerializeToString()))


# ---- depth and growth --------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [33, 2000])
def test_graphs_nested_deeply(levels: int) -> None:
    """32 levels are read, whatever the limit of Python's stack is."""
    assert "graphs nested more than 32 deep" in refused(nested(levels))
    graph, depth = open_onnx(nested(32)).graph, 0
    while graph.nodes:
        graph, depth = graph.nodes[0].attributes["b"], depth + 1
    assert depth == 32


def nested(levels: int) -> bytes:
    graph = b""
    for _ in range(levels):
        attribute = field(1, b"b") + field(20, 5) + field(6, graph)
        graph = field(1, field(4, b"If") + field(5, attribute))
    return field(1, 8) + field(7, graph) + field(8, field(2, 21))


def test_types_nested_deeply() -> None:
    kind = b""
    for _ in range(2000):
        kind = field(4, field(1, kind))
    graph = field(11, field(1, b"x") + field(2, kind))
    assert "types nested more than 16 deep" in refused(field(1, 8) + field(7, graph))


def functions(bodies: dict[str, list[str]]) -> bytes:
    """A model that calls `f0`, with functions that call others."""
    model = model_of([helper.make_node("f0", ["x"], ["y"], domain="own")])
    model.opset_import.append(helper.make_opsetid("own", 1))
    imports = [helper.make_opsetid("own", 1), helper.make_opsetid("", 21)]
    for name, calls in bodies.items():
        names = ["a", *(f"v{i}" for i in range(len(calls)))]
        nodes = [
            helper.make_node(call, [names[i]], [names[i + 1]], domain="own" if "f" in call else "")
            for i, call in enumerate(calls)
        ]
        model.functions.append(
            helper.make_function("own", name, ["a"], [names[-1]], nodes, imports)
        )
    return model.SerializeToString()


def test_functions_that_grow_without_bound() -> None:
    """Two hundred nodes that become 10^20 when inlined, and recursive functions."""
    bodies = {f"f{i}": [f"f{i + 1}"] * 10 for i in range(20)} | {"f20": ["Neg"]}
    assert "more than 262144 nodes" in refused(functions(bodies))
    assert "function 'f0' calls itself" in refused(functions({"f0": ["f1"], "f1": ["f0"]}))
    chain = {f"f{i}": [f"f{i + 1}"] for i in range(500)} | {"f500": ["Neg"]}
    assert "is called more than 64 deep" in refused(functions(chain))
    assert len(open_onnx(functions({"f0": ["f1", "f1"], "f1": ["Neg"]})).functions) == 2


def test_lies_in_functions() -> None:
    lies: dict[str, Callable[[onnx.FunctionProto], Any]] = {
        "nothing computes 'z'": lambda f: f.node[0].input.append("z"),
        r"appears twice": lambda f: f.input.append("a"),
        "is a value already": lambda f: f.node.append(f.node[0]),
        "domain 'ai.onnx' has no version": lambda f: f.ClearField("opset_import"),
        "function 'f0': opset 99": lambda f: setattr(f.opset_import[1], "version", 99),
        "name '', expected a name": lambda f: f.ClearField("name"),
        "an attribute appears twice": lambda f: f.attribute.extend(["p", "p"]),
    }
    for expected, change in lies.items():
        model = onnx.load_from_string(functions({"f0": ["Neg"]}))
        change(model.functions[0])
        assert_matches(expected, refused(model.SerializeToString()))
    model.functions[0].ClearField("attribute")
    model.functions.append(model.functions[0])
    assert "appears twice" in refused(model.SerializeToString())


@pytest.mark.parametrize(
    "unit",
    [
        field(7, b""), field(8, b""), field(20, b""), field(25, b""), field(14, b""),
        field(3, b"\0"), field(7, field(1, b"") * 100), field(7, field(5, b"") * 100),
        field(7, field(11, b"") * 100),
    ],
)  # fmt: skip
def test_many_empty_messages(unit: bytes) -> None:
    """Each takes two bytes of a file."""
    refused(field(1, 8) + unit * 20_000)


def test_many_values_take_memory_in_proportion() -> None:
    """Integers of one byte become eight bytes, and not much more for any time."""
    count = 4 << 20
    packed = field(1, count) + field(2, 7) + field(8, b"w") + field(7, b"\x05" * (count - 1))
    tracemalloc.start()
    with pytest.raises(FormatError, match="4194304 elements of shape"):
        open_onnx(field(1, 8) + field(7, field(5, packed)))
    assert tracemalloc.get_traced_memory()[1] < 24 * count
    tracemalloc.stop()


# ---- external data -----------------------------------------------------------------------------

WEIGHTS = np.arange(40, dtype=np.float32)


def write_external(path: Path, *places: dict[str, str]) -> Path:
    """A model with a tensor of eight floats for each place."""
    model = model_of([], ["x"], ["x"])
    for index, entries in enumerate(places):
        proto = TensorProto(name=f"w{index}", data_type=1, dims=[8], data_location=1)
        for key, value in entries.items():
            proto.external_data.add(key=key, value=value)
        model.graph.initializer.append(proto)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    """It may be anywhere in the folder, and tensors may share all bytes; checksums are ignored."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/w.bin").write_bytes(b"abc" + WEIGHTS.tobytes())
    (tmp_path / "w.bin").write_bytes(WEIGHTS[:8].tobytes())
    places = [
        {"location": "deep/w.bin", "offset": "3", "length": "32", "checksum": "none"},
        {"location": "deep/w.bin", "offset": "35"},
        {"location": "deep/w.bin", "offset": "3", "length": "32"},
        {"location": "./w.bin"},
    ]
    path = write_external(tmp_path / "m.onnx", *places)
    files = {"deep/w.bin": (tmp_path / "deep/w.bin").read_bytes(), "./w.bin": WEIGHTS[:8].tobytes()}
    for model in (open_onnx(path), open_onnx(path.read_bytes(), external=files)):
        arrays = list(model.graph.initializers.values())
        for array, start in zip(arrays, (0, 8, 0, 0), strict=True):
            assert isinstance(array, np.ndarray)
            np.testing.assert_array_equal(array, WEIGHTS[start : start + 8])
            assert not array.flags.owndata
            assert not array.flags.writeable
    with pytest.raises(UnsupportedError, match="the model is in memory"):
        open_onnx(path.read_bytes())


BAD_PLACES = {
    "absolute": ({"location": "/etc/passwd"}, "in the model's folder, found '/etc/passwd'"),
    "above": ({"location": "../w.bin"}, "in the model's folder, found '../w.bin'"),
    "above, later": ({"location": "a/../../w.bin"}, "in the model's folder"),
    "above, in Windows": ({"location": "..\\w.bin"}, "in the model's folder"),
    "a drive": ({"location": "C:\\w.bin"}, "in the model's folder"),
    "a share": ({"location": "\\\\server\\w.bin"}, "in the model's folder"),
    "nowhere": ({"location": ""}, "in the model's folder"),
    "a null character": ({"location": "w\0.bin"}, "in the model's folder"),
    "endless": ({"location": "w" * 2000}, "in the model's folder"),
    "a long name": ({"location": "w" * 1000}, "cannot be read"),
    "the folder": ({"location": "."}, "is a directory"),
    "missing": ({"location": "none.bin"}, "tensor 'w0': external data: .*cannot be read"),
    "a link": ({"location": "link.bin"}, "'link.bin' is a link to .*, outside"),
    "through a link": ({"location": "folder/w.bin"}, "is a link to .*, outside"),
    "a link to itself": ({"location": "loop.bin"}, "external data: "),
    "a pipe": ({"location": "pipe"}, "is not a regular file"),
    "beyond the end": ({"location": "w.bin", "offset": "160"}, "32 bytes at offset 160 of 'w.bin'"),
    "across the end": ({"location": "w.bin", "offset": "132"}, "the file has 160"),
    "far beyond the end": ({"location": "w.bin", "offset": "9" * 19}, "the file has 160"),
}


@pytest.mark.parametrize("name", BAD_PLACES)
def test_places_that_are_refused(name: str, tmp_path: Path) -> None:
    entries, expected = BAD_PLACES[name]
    folder = tmp_path / "model"
    path = write_external(folder / "m.onnx", entries)
    for where in (tmp_path, folder):
        (where / "w.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    os.mkfifo(folder / "pipe")
    with pytest.raises(HalfbyteError) as caught:
        open_onnx(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: tensor 'w0': ")
    assert message.isprintable()
    assert_matches(expected, message)


def test_links_of_the_hub(tmp_path: Path) -> None:
    """The hub's cache has links to files in another folder, for a model and for its data."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/main/onnx"
    snapshot.mkdir(parents=True)
    write_external(blobs / "1234", {"location": "m.onnx_data"})
    (blobs / "5678").write_bytes(WEIGHTS.tobytes())
    (snapshot / "m.onnx").symlink_to(blobs / "1234")
    (snapshot / "m.onnx_data").symlink_to(blobs / "5678")
    (array,) = open_onnx(snapshot / "m.onnx").graph.initializers.values()
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, WEIGHTS[:8])


def test_a_link_to_a_model_that_has_its_data_beside_it(tmp_path: Path) -> None:
    """The data may be beside the model or beside the link, which comes first, not elsewhere."""
    write_external(tmp_path / "there/m.onnx", {"location": "w.bin"})
    link, data = tmp_path / "link.onnx", tmp_path / "there/w.bin"
    link.symlink_to("there/m.onnx")
    data.write_bytes(WEIGHTS.tobytes())
    (array,) = open_onnx(link).graph.initializers.values()
    np.testing.assert_array_equal(array, WEIGHTS[:8])
    (tmp_path / "w.bin").write_bytes(WEIGHTS[::-1].tobytes())
    (array,) = open_onnx(link).graph.initializers.values()
    np.testing.assert_array_equal(array, WEIGHTS[::-1][:8])
    (tmp_path / "w.bin").unlink()
    data.rename(tmp_path / "other")
    data.symlink_to(tmp_path.parent / "other")
    with pytest.raises(FormatError, match=r"is a link to .*, outside"):
        open_onnx(link)


def test_a_system_that_cannot_follow_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses some names, and other systems names that their encoding lacks."""

    def refuse(path: Path) -> str:
        raise OSError("no such name")

    path = write_external(tmp_path / "m.onnx", {"location": "w.bin"})
    monkeypatch.setattr(os.path, "realpath", refuse)
    with pytest.raises(FormatError, match=r"external data: 'w\.bin': no such name"):
        open_onnx(path)


def test_external_data_that_overlaps(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    places = [{"location": "w.bin", "offset": offset} for offset in ("0", "64", "28")]
    path = write_external(tmp_path / "m.onnx", *places)
    with pytest.raises(
        FormatError, match=r"'w2' begins at offset 28, inside .*'w0', which ends at"
    ):
        open_onnx(path)


def test_names_that_cannot_be_printed() -> None:
    """They are escaped in messages, and messages stay short."""
    proto = tensor(1, raw=True, name="n\u2028" * 300)
    proto.dims[0] = 99
    message = refused(model_of([], ["x"], ["x"], [proto]).SerializeToString())
    assert "\\u2028" in message


def test_bounds_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes in all graphs, of training_info, and of fields with packed elements."""
    pieces = field(8, b"w") + field(1, 2) + field(2, 7) + field(7, b"\1")
    whole = field(1, 8) + field(7, field(5, pieces + field(7, b"\1")))
    assert open_onnx(whole).graph.initializers["w"].shape == (2,)
    many = field(1, 8) + field(7, field(5, pieces + field(7, b"\1") * 5000))
    assert "at most 4096 fields of packed elements" in refused(many)
    training = field(1, 8) + field(7, b"") + field(20, b"") * 1024
    assert open_onnx(training).ir_version == 8
    assert "at most 1024 training_info" in refused(training + field(20, b""))
    monkeypatch.setattr(reader, "_MAX_NODES", 10)
    assert open_onnx(nested(10)).graph.nodes
    assert "at most 10 nodes" in refused(nested(11))
