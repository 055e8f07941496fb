"""Descriptions of a model, its inputs and its outputs, as ONNX Runtime has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.onnx.files.dtypes import DTYPES, NUMBERS
from halfbyte.onnx.files.model import Dim, Model, TypeInfo, ValueInfo

_NAMES = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1",
    24: "float8e8m0", 25: "uint2", 26: "int2", 27: "float6e2m3", 28: "float6e3m2",
}  # fmt: skip


@dataclass(frozen=True)
class NodeArg:
    """An input or output.

    Attributes
    ----------
    name : str
    shape : list of int, str or None
        Sizes; symbolic ones are strings, unknown ones None. Also empty if the rank is not known.
    type : str
        As ONNX Runtime writes it: "tensor(float)", "seq(tensor(int64))".
    """

    name: str
    shape: list[int | str | None]
    type: str

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """The file's information about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def model_metadata(model: Model) -> ModelMetadata:
    """The information of a model about itself."""
    return ModelMetadata(
        model.producer_name, model.graph.name, model.domain, model.doc_string,
        model.graph.doc_string, model.model_version, dict(model.metadata),
    )  # fmt: skip


def node_arg(info: ValueInfo) -> NodeArg:
    """The description of a value; an optional tensor has the tensor's shape."""
    kind = info.type
    while kind is not None and kind.kind == "optional":
        kind = kind.element
    shape: tuple[Dim, ...] = (kind.shape or ()) if kind is not None else ()
    return NodeArg(info.name, list(shape), type_name(info.type))


def type_name(info: TypeInfo | None) -> str:
    """A type as ONNX Runtime writes it; empty if the file has none."""
    if info is None:
        return ""
    if info.kind in ("tensor", "sparse_tensor"):
        return f"{info.kind}({_NAMES.get(info.dtype, 'undefined')})"
    short = {"sequence": "seq"}.get(info.kind, info.kind)
    key = f"{_NAMES.get(info.dtype, 'undefined')}," if info.kind == "map" else ""
    return f"{short}({key}{type_name(info.element)})"


def dtype_of(type: str) -> np.dtype[Any]:
    """The dtype for a type such as "tensor(float)"; raises `ValueError` for others."""
    name = type.removeprefix("tensor(").removesuffix(")")
    for number, known in _NAMES.items():
        if known == name:
            return DTYPES[number]
    raise ValueError(f"{type}: expected the type of a tensor")


def element_name(dtype: np.dtype[Any]) -> str:
    """ONNX's name of an array's element type, or NumPy's if ONNX has none."""
    return _NAMES.get(NUMBERS.get(dtype, 0), str(dtype))
