"""Reading an ONNX file for rewriting: its messages, and views of the numbers of large tensors.

The numbers of large tensors are cut out of the message before `onnx` parses it. They stay mapped,
in the file itself or in files beside it, so that a model may be larger than memory.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import Pages, map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.protobuf import Message, Value, varint
from halfbyte.onnx.files import Graph, open_onnx
from halfbyte.onnx.files.external import External

U8 = npt.NDArray[np.uint8]

SMALL = 1 << 14  # bytes up to which tensors stay in their message: shapes, axes, biases
_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_DIMS, _TYPE, _FLOATS, _NAME, _RAW, _EXTERNAL = 1, 2, 4, 8, 9, 13  # fields of TensorProto


@dataclass
class Source:
    """A model without the numbers of its large tensors.

    Attributes
    ----------
    file : ModelFile
        The files of the model.
    model : onnx.ModelProto
        Large initializers of the main graph have a name, a type and a shape, but no numbers.
    bulk : dict
        Name of a large initializer -> its little-endian bytes, a view of a file's pages.
    notes : list of str
        For the report.
    """

    file: ModelFile
    model: onnx.ModelProto
    bulk: dict[str, U8] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The model's file, for messages."""
        return self.file.path

    def data(self, tensor: TensorProto) -> U8:
        """A tensor's bytes, little-endian: a view where it is large."""
        if tensor.name in self.bulk and not tensor.raw_data:
            return self.bulk[tensor.name]
        if tensor.HasField("raw_data"):
            return np.frombuffer(tensor.raw_data, np.uint8)
        return np.ascontiguousarray(onnx.numpy_helper.to_array(tensor)).reshape(-1).view(np.uint8)


def read_source(path: Path) -> Source:
    """Open a model for rewriting, with the checks of a model that is to be run.

    Raises
    ------
    FormatError, UnsupportedError
        See :func:`halfbyte.onnx.files.open_onnx`.
    """
    checked = open_onnx(path)
    pages = map_file(path)
    kind = f"ONNX, opset {checked.opsets.get('', 0)}"
    parts: dict[Path, Pages] = {path: pages}
    bulk: dict[str, U8] = {}
    skeleton = _without_bulk(Message(memoryview(pages), path, "model"), bulk)
    try:
        model = onnx.ModelProto.FromString(skeleton)
    except DecodeError as error:
        raise FormatError(f"{path}: expected an ONNX model: {error}") from None
    external = External(path, path.parent)
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            location, view = _attach(tensor, external, bulk)
            if isinstance(view.obj, mmap.mmap):
                parts[path.parent / location] = view.obj
    _refuse_external(path, model.graph)
    _sort(model.graph, checked.graph)
    return Source(ModelFile(path, kind, {}, {}, parts=parts), model, bulk)


def _sort(graph: onnx.GraphProto, checked: Graph) -> None:
    """Order nodes before their readers, as the runtime's reader does."""
    place = {name: i for i, node in enumerate(checked.nodes) for name in node.outputs if name}
    places = [min((place[name] for name in n.output if name), default=-1) for n in graph.node]
    if places != sorted(places):
        nodes = [graph.node[i] for i in sorted(range(len(places)), key=places.__getitem__)]
        copy = onnx.GraphProto()
        copy.node.extend(nodes)
        del graph.node[:]
        graph.node.extend(copy.node)


def _without_bulk(model: Message, bulk: dict[str, U8]) -> bytes:
    """The model's message without the numbers of large tensors, which are put into `bulk`."""
    parts = []
    for number, value in model.fields():
        if number == _GRAPH:
            graph = model.message(value, "graph")
            parts.append(_encoded(number, b"".join(_graph_fields(graph, bulk))))
        else:
            parts.append(_encoded(number, value))
    return b"".join(parts)


def _graph_fields(graph: Message, bulk: dict[str, U8]) -> Iterator[bytes]:
    for number, value in graph.fields():
        if number == _INITIALIZER and not isinstance(value, int) and len(value) > SMALL:
            tensor = graph.message(value, "initializer")
            yield _encoded(number, _without_numbers(tensor, bulk))
        else:
            yield _encoded(number, value)


def _without_numbers(tensor: Message, bulk: dict[str, U8]) -> bytes:
    """A tensor's message without its numbers, if these are in one field."""
    fields = list(tensor.fields())
    numbers = [(n, v) for n, v in fields if n == _RAW or (n == _FLOATS and not isinstance(v, int))]
    name = next((tensor.text(v) for n, v in fields if n == _NAME), "")
    if len(numbers) != 1 or not name or name in bulk:
        return bytes(tensor.data)
    bulk[name] = np.frombuffer(tensor.bytes(numbers[0][1]), np.uint8)
    return b"".join(_encoded(n, v) for n, v in fields if n not in (_RAW, _FLOATS))


def _encoded(number: int, value: Value | bytes) -> bytes:
    """A field of a message: wire type 0 for integers, otherwise 2."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + bytes(value)


def _attach(tensor: TensorProto, external: External, bulk: dict[str, U8]) -> tuple[str, memoryview]:
    """Read a tensor's numbers from the file that it names; returns the name and the view."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    size = -(-math.prod(tensor.dims) * element_bits(tensor.data_type) // 8)
    view = external.read(entries["location"], int(entries.get("offset", 0)), size, tensor.name)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT
    if size > SMALL:
        bulk[tensor.name] = np.frombuffer(view, np.uint8)
    else:
        tensor.raw_data = bytes(view)
    return entries["location"], view


def _refuse_external(path: Path, graph: onnx.GraphProto, inner: bool = False) -> None:
    """Raise for external data where it is not supported: in attributes and subgraphs."""
    tensors = list(graph.initializer) if inner else []
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else []
            for body in [attribute.g] if attribute.HasField("g") else []:
                _refuse_external(path, body, inner=True)
    for tensor in tensors:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise UnsupportedError(
                f"{path}: tensor {tensor.name!r}: external data inside a node: expected it among "
                "the graph's initializers"
            )


def element_bits(data_type: int) -> int:
    """Bits of an element; 0 for types without a fixed or known size."""
    if data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return 0
    if data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        return 4
    if data_type in (getattr(TensorProto, "INT2", -1), getattr(TensorProto, "UINT2", -1)):
        return 2
    try:
        dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(data_type)
    except KeyError:
        return 0
    return 8 * dtype.itemsize
