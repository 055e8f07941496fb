"""Writing of a model as an ONNX file, without copies of its tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.formats.protobuf import varint
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.initializers import stored
from halfbyte.onnx.files.model import Graph, Model, Node, SparseTensor, TypeInfo, ValueInfo

MAX_BYTES = 2**31 - 1  # of a protobuf message
OLDEST = 4  # IR version from which on initializers need not be inputs

Part = bytes | memoryview
Parts = list[Part]

_TYPES = {"tensor": 1, "sequence": 4, "map": 5, "sparse_tensor": 8, "optional": 9}


def write_model(file: BinaryIO, model: Model) -> None:
    """Write a model without functions.

    Raises
    ------
    UnsupportedError
        The file would have more than 2 GB, or ONNX has no form for a part of the model.
    """
    parts = _model(model)
    if (size := sum(map(_size, parts))) > MAX_BYTES:
        raise UnsupportedError(f"{model.path}: {size} bytes, more than a protobuf file may have")
    for part in parts:
        file.write(part)


def _model(model: Model) -> Parts:
    if model.functions:
        raise UnsupportedError(f"{model.path}: functions, which have to be inlined first")
    _check_versions(model, model.graph)
    opsets: Parts = []
    for domain, version in model.opsets.items():
        opsets += _message(8, [*_text(1, domain), *_number(2, version)])
    return [
        *_number(1, max(model.ir_version, OLDEST)), *_text(2, model.producer_name),
        *_text(3, model.producer_version), *_text(4, model.domain),
        *_number(5, model.model_version), *_text(6, model.doc_string),
        *_message(7, _graph(model.graph, str(model.path))), *opsets,
        *_entries(14, model.metadata),
    ]  # fmt: skip


def _check_versions(model: Model, graph: Graph) -> None:
    """Nodes of inlined functions may be of another version than the file's."""
    for node in graph.nodes:
        if node.version not in (0, model.opsets.get(node.domain, 1)):
            raise UnsupportedError(
                f"{model.path}: {node}: of version {node.version}, not the file's"
            )
        for inner in node.graphs:
            _check_versions(model, inner)


def _graph(graph: Graph, where: str) -> Parts:
    parts: Parts = []
    names = {""}  # nodes that were inlined may have the same; a node needs none
    for node in graph.nodes:
        name = "" if node.name in names else node.name
        names.add(name)
        parts += _message(1, _node(node, name, f"{where}: {node}"))
    parts += _text(2, graph.name or "graph")
    for name, value in stored(graph.initializers).items():
        if isinstance(value, SparseTensor):
            parts += _message(15, _sparse(value, name))
        else:
            parts += _message(5, _tensor(np.asarray(value), name))
    for field, infos in ((11, graph.inputs), (12, graph.outputs), (13, graph.value_info.values())):
        for info in infos:
            parts += _message(field, _value_info(info))
    return [*parts, *_entries(16, graph.metadata)]


def _node(node: Node, name: str, where: str) -> Parts:
    parts = [part for value in node.inputs for part in _text(1, value, always=True)]
    parts += [part for value in node.outputs for part in _text(2, value, always=True)]
    parts += [*_text(3, name), *_text(4, node.op_type)]
    for key, value in node.attributes.items():
        parts += _message(5, _attribute(key, value, f"{where}: attribute {key!r}"))
    return [*parts, *_text(7, node.domain), *_text(8, node.overload)]


def _attribute(name: str, value: Any, where: str) -> Parts:
    """An attribute's name, value and type; a list has the type of its first element."""
    is_list = isinstance(value, list)
    if is_list and not value:
        raise UnsupportedError(f"{where}: an empty list, whose type is not known")
    first = value[0] if is_list else value
    values = value if is_list else [value]
    parts: Parts = []
    if isinstance(first, float):
        kind, field = (6, 7) if is_list else (1, 2)
        for number in values:
            parts += [varint(field << 3 | 5), struct.pack("<f", number)]
    elif isinstance(first, int):
        kind, field = (7, 8) if is_list else (2, 3)
        for number in values:
            parts += [varint(field << 3), varint(number & 2**64 - 1)]
    elif isinstance(first, str | bytes):
        kind, field = (8, 9) if is_list else (3, 4)
        for text in values:
            parts += _message(field, [text.encode() if isinstance(text, str) else text])
    else:
        kind, field, content = _large(first, is_list, where)
        for item in values:
            parts += _message(field, content(item))
    return [*_text(1, name), *parts, *_number(20, kind)]


def _large(first: Any, is_list: bool, where: str) -> tuple[int, int, Any]:
    """Type and field of an attribute of messages, and the function that writes them."""
    if isinstance(first, np.ndarray):
        return (9, 10, _tensor) if is_list else (4, 5, _tensor)
    if isinstance(first, Graph):
        return (10, 11, lambda g: _graph(g, where)) if is_list else (
            5, 6, lambda g: _graph(g, where)
        )  # fmt: skip
    if isinstance(first, SparseTensor):
        return (12, 23, _sparse) if is_list else (11, 22, _sparse)
    if isinstance(first, TypeInfo):
        return (14, 15, _type) if is_list else (13, 14, _type)
    raise UnsupportedError(f"{where}: {type(first).__name__}, which ONNX has no attribute for")


def _tensor(array: np.ndarray[Any, Any], name: str = "") -> Parts:
    dims = [part for size in array.shape for part in (varint(1 << 3), varint(size))]
    number = dtypes.NUMBERS[array.dtype]
    parts = [*dims, *_number(2, number)]
    if array.dtype == dtypes.STRING:
        for text in array.reshape(-1):
            parts += _message(6, [text.encode() if isinstance(text, str) else bytes(text)])
        return [*parts, *_text(8, name)]
    return [
        *parts,
        *_text(8, name),
        *_message(9, [memoryview(dtypes.as_stored(array).data).cast("B")]),
    ]


def _sparse(value: SparseTensor, name: str = "") -> Parts:
    dims = [part for size in value.shape for part in (varint(3 << 3), varint(size))]
    values, indices = _tensor(value.values, name), _tensor(value.indices)
    return [*_message(1, values), *_message(2, indices), *dims]


def _value_info(info: ValueInfo) -> Parts:
    parts = _text(1, info.name)
    return parts if info.type is None else [*parts, *_message(2, _type(info.type))]


def _type(info: TypeInfo) -> Parts:
    parts: Parts = []
    if info.kind in ("tensor", "sparse_tensor"):
        parts = _number(1, info.dtype)
        if info.shape is not None:
            parts += _message(2, _shape(info))
    elif info.element is not None:
        is_map = info.kind == "map"
        parts = _number(1, info.dtype) if is_map else []
        parts += _message(2 if is_map else 1, _type(info.element))
    return _message(_TYPES[info.kind], parts)


def _shape(info: TypeInfo) -> Parts:
    parts: Parts = []
    meanings = (*info.denotations, *[""] * len(info.shape or ()))
    for dim, meaning in zip(info.shape or (), meanings, strict=False):
        size: Parts = []
        if isinstance(dim, str):
            size = _text(2, dim)
        elif dim is not None:
            size = [varint(1 << 3), varint(dim)]
        parts += _message(1, [*size, *_text(3, meaning)])
    return parts


def _entries(field: int, entries: Mapping[str, str]) -> Parts:
    parts: Parts = []
    for key, value in entries.items():
        parts += _message(field, [*_text(1, key), *_text(2, value)])
    return parts


def _message(field: int, parts: Parts) -> Parts:
    return [varint(field << 3 | 2), varint(sum(map(_size, parts))), *parts]


def _size(part: Part) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)


def _text(field: int, text: str, *, always: bool = False) -> Parts:
    return _message(field, [text.encode()]) if text or always else []


def _number(field: int, number: int) -> Parts:
    return [varint(field << 3), varint(number & 2**64 - 1)] if number else []
