"""ONNX models for tests of the reader, and a comparison of its results with PyPI's `onnx`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import (
    Graph,
    Model,
    Node,
    Reference,
    SparseTensor,
    TypeInfo,
    ValueInfo,
)

TENSOR_TYPES = sorted(n for n in dtypes.DTYPES if n < 27)  # types of six bits are not read
ELEMENTS = 13  # odd, so that the last byte of packed elements is not full


def values(number: int, count: int = ELEMENTS) -> np.ndarray[Any, Any]:
    """Numbers that an element type can hold, with negative and odd ones if possible."""
    if number == TensorProto.STRING:
        return np.array([f"Wörter {i}" for i in range(count)], object)
    name = helper.tensor_dtype_to_np_dtype(number)
    base = np.arange(count)
    if number in (TensorProto.INT2, TensorProto.INT4):
        bits = 2 if number == TensorProto.INT2 else 4
        return (base % (1 << bits) - (1 << bits - 1)).astype(np.int8).astype(name)
    if number in (TensorProto.UINT2, TensorProto.UINT4):
        return (base % (4 if number == TensorProto.UINT2 else 16)).astype(np.uint8).astype(name)
    if number == TensorProto.FLOAT8E8M0:
        return (2.0 ** (base % 40 - 6)).astype(name)
    if np.dtype(name).kind == "c":
        return (base - 5 + 1j * base).astype(name)
    if np.dtype(name).kind == "u":
        return (base * 19).astype(name)
    if np.dtype(name).kind == "i":
        return ((base - 6) * 9).astype(name)
    return ((base - 6) / 2).astype(np.float32).astype(name)


def tensor(number: int, *, raw: bool, name: str = "t", count: int = ELEMENTS) -> TensorProto:
    """A tensor of any type, raw or in the field that the standard has for the type."""
    array = values(number, count)
    if raw:
        return numpy_helper.from_array(array, name)
    if number == TensorProto.STRING:
        return helper.make_tensor(name, number, [count], list(array))
    proto = numpy_helper.from_array(array, name)
    data = proto.raw_data
    proto.ClearField("raw_data")
    if number in (1, 14):
        proto.float_data.extend(np.frombuffer(data, np.float32).tolist())
    elif number in (11, 15):
        proto.double_data.extend(np.frombuffer(data, np.float64).tolist())
    elif number == 7:
        proto.int64_data.extend(np.frombuffer(data, np.int64).tolist())
    elif number in (12, 13):
        proto.uint64_data.extend(np.frombuffer(data, array.dtype).tolist())
    elif number in (3, 5, 6):
        proto.int32_data.extend(np.frombuffer(data, array.dtype).tolist())
    elif number in (4, 10, 16):
        proto.int32_data.extend(np.frombuffer(data, np.uint16).tolist())
    else:
        proto.int32_data.extend(data)
    return proto


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[str] = ("x",),
    outputs: Iterable[str] = ("y",),
    initializers: Sequence[TensorProto] = (),
    **further: Any,
) -> onnx.ModelProto:
    """A model of float vectors."""
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in outputs],
        list(initializers),
    )  # fmt: skip
    further.setdefault("opset_imports", [helper.make_opsetid("", 21)])
    return helper.make_model(graph, **further)


def rich_model() -> onnx.ModelProto:
    """A small model with every message and every kind of attribute, type and tensor."""
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["z"], "inner")], "then", [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32([1]), "one")],
    )  # fmt: skip
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "few"),
        numpy_helper.from_array(np.int64([[0, 1], [2, 0]]), "places"), [3, 2],
    )  # fmt: skip
    vector = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3, None])
    attributes: dict[str, Any] = {
        "f": 1.5, "i": -7, "s": "tëxt", "t": tensor(16, raw=True), "sparse": sparse, "g": branch,
        "tp": vector, "fs": [0.5, -2.0], "is": [1 << 62, -1, *range(200)], "ss": ["a", b"\xff"],
        "ts": [tensor(7, raw=False), tensor(8, raw=False)], "gs": [branch],
        "sparses": [sparse], "tps": [helper.make_optional_type_proto(vector)],
    }  # fmt: skip
    call = helper.make_node("Twice", ["y"], ["w"], "call", domain="own", overload="v2", by=2.0)
    custom = helper.make_node("Odd", ["x", "", "w"], ["q", "", "r"], "odd", domain="own")
    for name, value in attributes.items():
        custom.attribute.append(helper.make_attribute(name, value))
    empty = helper.make_attribute("empty", [], attr_type=AttributeProto.INTS)
    custom.attribute.append(empty)
    helper.set_metadata_props(custom, {"origin": "here"})
    nodes = [helper.make_node("If", ["c"], ["y"], "if", then_branch=branch, else_branch=branch)]
    model = model_of([*nodes, call, custom], ["x", "c"], ["q", "y"])
    graph = model.graph
    graph.initializer.extend(
        tensor(number, raw=raw and number != TensorProto.STRING, name=f"t{number}{raw}")
        for number in TENSOR_TYPES
        for raw in (True, False)
    )
    graph.sparse_initializer.append(sparse)
    graph.value_info.extend(
        helper.make_value_info(name, kind)
        for name, kind in {
            "w": helper.make_sequence_type_proto(vector),
            "r": helper.make_map_type_proto(TensorProto.STRING, vector),
            "u": helper.make_sparse_tensor_type_proto(TensorProto.DOUBLE, [2, "m"]),
            "v": helper.make_tensor_type_proto(TensorProto.INT4, None),
        }.items()
    )
    helper.set_metadata_props(graph, {"graph": "of tests"})
    annotation = graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="one")
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"],
        [
            helper.make_node("Constant", [], ["k"]),
            helper.make_node("Mul", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 18)], ["by"],
        [helper.make_attribute("depth", 3)], overload="v2",
    )  # fmt: skip
    twice.node[0].attribute.add(name="value_float", ref_attr_name="by", type=AttributeProto.FLOAT)
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.ir_version, model.model_version, model.domain = 12, 5, "tests"
    model.producer_name, model.producer_version, model.doc_string = "a", "b", "c"
    helper.set_model_props(model, {"key": "value", "empty": ""})
    model.configuration.add(name="two", num_devices=2)
    model.graph.node[2].device_configurations.add(configuration_id="two", pipeline_stage=1)
    return model


def known_opset(model: onnx.ModelProto) -> bytes:
    """A model as bytes, with an old version of the default domain raised to the first supported."""
    for opset in model.opset_import:
        if opset.domain == "":
            opset.version = max(opset.version, 7)
    return model.SerializeToString()


def assert_same(model: Model, proto: onnx.ModelProto) -> None:
    """Every field of a model equals that of the other reader."""
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        assert getattr(model, name) == getattr(proto, name), name
    assert model.doc_string == proto.doc_string
    assert model.opsets == {_domain(o.domain): o.version for o in proto.opset_import}
    assert model.metadata == {entry.key: entry.value for entry in proto.metadata_props}
    _same_graph(model.graph, proto.graph)
    keys = [(_domain(f.domain), f.name, f.overload) for f in proto.functions]
    assert list(model.functions) == keys
    for function, other in zip(model.functions.values(), proto.functions, strict=True):
        assert (function.domain, function.name) == (_domain(other.domain), other.name)
        assert function.inputs == tuple(other.input)
        assert function.outputs == tuple(other.output)
        assert function.attributes == tuple(other.attribute)
        assert function.overload == other.overload
        assert function.opsets == {_domain(o.domain): o.version for o in other.opset_import}
        _same_attributes(function.defaults, other.attribute_proto)
        _same_nodes(function.nodes, other.node)


def assert_same_tensor(array: Any, proto: TensorProto) -> None:
    """Type, shape and bytes of a tensor."""
    dtype = dtypes.DTYPES[proto.data_type]
    assert array.dtype == dtype
    assert array.shape == tuple(proto.dims)
    if dtype == dtypes.STRING:
        assert array.ravel().tolist() == [s.decode() for s in proto.string_data]
        return
    other = numpy_helper.to_array(proto)
    if proto.data_type in (TensorProto.INT4, TensorProto.INT2):
        other = other.astype(np.int8)  # the other reader leaves the high bits undefined
    elif proto.data_type in (TensorProto.UINT4, TensorProto.UINT2):
        other = other.astype(np.uint8)
    assert array.tobytes() == other.tobytes()


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _same_graph(graph: Graph, proto: onnx.GraphProto) -> None:
    assert graph.name == proto.name
    assert [v.name for v in graph.inputs] == [v.name for v in proto.input]
    assert [v.name for v in graph.outputs] == [v.name for v in proto.output]
    infos: Iterable[ValueInfo] = [*graph.inputs, *graph.outputs, *graph.value_info.values()]
    others = {v.name: v for v in [*proto.input, *proto.output, *proto.value_info]}
    for info in infos:
        _same_type(info.type, others[info.name].type)
    assert list(graph.value_info) == list(dict.fromkeys(v.name for v in proto.value_info))
    dense = {t.name: t for t in proto.initializer}
    sparse = {t.values.name: t for t in proto.sparse_initializer}
    assert set(graph.initializers) == dense.keys() | sparse.keys()
    for name, value in graph.initializers.items():
        _same_value(value, dense.get(name) or sparse[name])
    assert graph.metadata == {entry.key: entry.value for entry in proto.metadata_props}
    _same_nodes(graph.nodes, proto.node)


def _same_nodes(nodes: Sequence[Node], protos: Sequence[onnx.NodeProto]) -> None:
    for node, proto in zip(nodes, protos, strict=True):
        assert node.op_type == proto.op_type
        assert node.inputs == tuple(proto.input)
        assert node.outputs == tuple(proto.output)
        assert node.domain == _domain(proto.domain)
        assert (node.name, node.overload) == (proto.name, proto.overload)
        assert node.metadata == {entry.key: entry.value for entry in proto.metadata_props}
        _same_attributes(node.attributes, proto.attribute)


def _same_attributes(attributes: Any, protos: Sequence[AttributeProto]) -> None:
    assert list(attributes) == [proto.name for proto in protos]
    for proto in protos:
        value = attributes[proto.name]
        if proto.ref_attr_name:
            assert value == Reference(proto.ref_attr_name)
            continue
        other = helper.get_attribute_value(proto)
        if isinstance(other, bytes | int | float) or not hasattr(other, "__iter__"):
            _same_value(value, other)
            continue
        assert isinstance(value, list)
        for one, another in zip(value, other, strict=True):
            _same_value(one, another)


def _same_value(value: Any, other: Any) -> None:
    """One value of an attribute, or an initializer."""
    if isinstance(other, TensorProto):
        assert_same_tensor(value, other)
    elif isinstance(other, onnx.SparseTensorProto):
        assert isinstance(value, SparseTensor)
        assert_same_tensor(value.values, other.values)
        assert_same_tensor(value.indices, other.indices)
        assert value.shape == tuple(other.dims)
    elif isinstance(other, onnx.GraphProto):
        _same_graph(value, other)
    elif isinstance(other, onnx.TypeProto):
        _same_type(value, other)
    elif isinstance(other, bytes):
        assert value == other if isinstance(value, bytes) else value.encode() == other
    else:
        assert type(value) is type(other)
        assert value == other


def _same_type(info: TypeInfo | None, proto: onnx.TypeProto) -> None:
    which = proto.WhichOneof("value")
    if which is None:
        assert info is None
        return
    assert info is not None
    assert f"{info.kind}_type" == which
    inner = getattr(proto, which)
    if info.kind in ("tensor", "sparse_tensor"):
        assert info.dtype == inner.elem_type
        assert info.shape == (_shape(inner.shape) if inner.HasField("shape") else None)
    elif info.kind == "map":
        assert info.dtype == inner.key_type
        _same_type(info.element, inner.value_type)
    else:
        _same_type(info.element, inner.elem_type)


def _shape(proto: onnx.TensorShapeProto) -> tuple[int | str | None, ...]:
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in proto.dim
    )
