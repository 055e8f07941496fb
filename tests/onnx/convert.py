"""Conversion of messages and arrays of the onnx package into halfbyte's dataclasses, and back.

The tests build models this way without the file reader, which is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import (
    Function,
    Graph,
    Model,
    Node,
    Reference,
    SparseTensor,
    TypeInfo,
    ValueInfo,
)

Array = npt.NDArray[Any]

# Ours -> ml_dtypes. Both store an element in one or two bytes.
THEIRS: dict[np.dtype[Any], np.dtype[Any]] = {
    dtypes.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    dtypes.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    dtypes.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    dtypes.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    dtypes.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    dtypes.INT4: np.dtype(ml_dtypes.int4),
    dtypes.UINT4: np.dtype(ml_dtypes.uint4),
    dtypes.INT2: np.dtype(ml_dtypes.int2),
    dtypes.UINT2: np.dtype(ml_dtypes.uint2),
}
OURS = {theirs: ours for ours, theirs in THEIRS.items()}
INTEGERS = {dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2}


def array_from(value: Any) -> Array:
    """An array of NumPy's or ml_dtypes's types, or a NumPy scalar, in our types."""
    array = np.asarray(value)
    if array.dtype in OURS:
        ours = OURS[array.dtype]
        (field,) = ours.fields.values()  # type: ignore[union-attr]
        raw = array.astype(field[0]) if ours in INTEGERS else array.view(field[0])
        return np.ascontiguousarray(raw).view(ours).reshape(array.shape)
    if array.dtype.kind in "OUS":
        return strings([v.decode() if isinstance(v, bytes) else str(v) for v in array.flat], array)
    return array


def strings(values: Iterable[str], like: Array) -> Array:
    """A tensor of strings in another array's shape."""
    array = np.empty(like.size, object)
    array[:] = list(values)
    return array.reshape(like.shape)


def array_to(array: Array) -> Array:
    """An array of ours in NumPy's and ml_dtypes's types."""
    theirs = THEIRS.get(array.dtype)
    if theirs is None:
        return array
    (name,) = array.dtype.names or ()
    raw = np.ascontiguousarray(array[name]).reshape(array.shape)
    return raw.astype(theirs) if array.dtype in INTEGERS else raw.view(theirs)


def numbers(array: Array) -> Array:
    """An array to compare: types that NumPy lacks become float32 or int8."""
    if array.dtype not in THEIRS:
        return array
    return array_to(array).astype(np.int8 if array.dtype in INTEGERS else np.float32)


def value_from(value: Any) -> Any:
    """A value as onnx's tests give it: array, message, list, dict or None."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, onnx.TensorProto):
        return array_from(numpy_helper.to_array(value))
    if isinstance(value, list | tuple):
        return [value_from(item) for item in value]
    if isinstance(value, onnx.SequenceProto):
        return value_from(numpy_helper.to_list(value))
    if isinstance(value, onnx.OptionalProto):
        return value_from(numpy_helper.to_optional(value))
    return array_from(value)


def type_from(proto: onnx.TypeProto) -> TypeInfo | None:
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    inner = getattr(proto, kind)
    kind = kind.removesuffix("_type")
    if kind in ("tensor", "sparse_tensor"):
        shape = None
        if inner.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in inner.shape.dim
            )
        return TypeInfo(kind, inner.elem_type, shape)
    if kind == "map":
        return TypeInfo(kind, inner.key_type, None, type_from(inner.value_type))
    return TypeInfo(kind, element=type_from(inner.elem_type))


def value_info_from(proto: onnx.ValueInfoProto) -> ValueInfo:
    return ValueInfo(proto.name, type_from(proto.type) if proto.HasField("type") else None)


def sparse_from(proto: onnx.SparseTensorProto) -> SparseTensor:
    return SparseTensor(
        array_from(numpy_helper.to_array(proto.values)),
        array_from(numpy_helper.to_array(proto.indices)),
        tuple(proto.dims),
    )


def attribute_from(proto: onnx.AttributeProto) -> Any:
    if proto.ref_attr_name:
        return Reference(proto.ref_attr_name)
    value = onnx.helper.get_attribute_value(proto)
    return [_one(v) for v in value] if isinstance(value, list) else _one(value)


def _one(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, onnx.TensorProto):
        return array_from(numpy_helper.to_array(value))
    if isinstance(value, onnx.GraphProto):
        return graph_from(value)
    if isinstance(value, onnx.SparseTensorProto):
        return sparse_from(value)
    if isinstance(value, onnx.TypeProto):
        return type_from(value)
    return value


def domain_from(name: str) -> str:
    return "" if name == "ai.onnx" else name


def node_from(proto: onnx.NodeProto) -> Node:
    return Node(
        proto.op_type, tuple(proto.input), tuple(proto.output),
        {a.name: attribute_from(a) for a in proto.attribute},
        domain_from(proto.domain), proto.name, proto.overload,
    )  # fmt: skip


def graph_from(proto: onnx.GraphProto) -> Graph:
    constants: dict[str, Array | SparseTensor] = {
        t.name: array_from(numpy_helper.to_array(t)) for t in proto.initializer
    }
    constants |= {t.values.name: sparse_from(t) for t in proto.sparse_initializer}
    return Graph(
        proto.name, [node_from(n) for n in proto.node], constants,
        [value_info_from(v) for v in proto.input], [value_info_from(v) for v in proto.output],
        {v.name: value_info_from(v) for v in proto.value_info},
    )  # fmt: skip


def function_from(proto: onnx.FunctionProto) -> Function:
    return Function(
        domain_from(proto.domain), proto.name, proto.overload, tuple(proto.input),
        tuple(proto.output), tuple(proto.attribute),
        {a.name: attribute_from(a) for a in proto.attribute_proto},
        [node_from(n) for n in proto.node], opsets_from(proto.opset_import),
    )  # fmt: skip


def opsets_from(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {domain_from(o.domain): o.version for o in imports}


def model_from(proto: onnx.ModelProto, path: str = "model.onnx") -> Model:
    """A model whose tensors are all in the message itself."""
    functions = [function_from(f) for f in proto.functions]
    return Model(
        Path(path), graph_from(proto.graph), opsets_from(proto.opset_import),
        {(f.domain, f.name, f.overload): f for f in functions},
        proto.ir_version, proto.producer_name, proto.producer_version, proto.domain,
        proto.model_version, proto.doc_string, {p.key: p.value for p in proto.metadata_props},
    )  # fmt: skip
