"""Writing an ONNX model with memory for part of one tensor.

A model is one message, ModelProto, whose field `graph` contains the initializers. The lengths of
all messages precede their contents, and sizes of tensors are known before their numbers. So the
messages are serialized without large numbers, which are written where they belong:

    ModelProto:  [all but graph] [tag graph, length] GraphProto
    GraphProto:  [all but initializers] ([tag initializer, length] TensorProto) ...
    TensorProto: [name, type, shape] [tag raw_data, length] numbers

Above the limit of a message (2 GB), numbers go to a second file, at offsets that are multiples of
4096, so that they can be mapped. Two files cannot be replaced at once: the name of the second has a
hash of its content, so that each model finds its own numbers or none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy.typing as npt
import onnx
from onnx import TensorProto

from halfbyte.errors import OutputError
from halfbyte.formats.protobuf import varint
from halfbyte.outputs import Partial, reporting, writing

Array = npt.NDArray[Any]

MESSAGE_LIMIT = (1 << 31) - (1 << 16)  # bytes of a message, with room for its frame
ALIGNMENT = 4096  # of numbers in a second file
_HASH = 6  # bytes of a hash in its name
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto


@dataclass(frozen=True)
class Payload:
    """The numbers of an initializer, computed while they are written.

    Attributes
    ----------
    size : int
        Bytes.
    parts : callable
        Returns arrays whose bytes, concatenated, are the numbers; called once, in file order.
    """

    size: int
    parts: Callable[[], Iterable[Array]]


def write_model(
    target: Path,
    model: onnx.ModelProto,
    payloads: Mapping[str, Payload],
    *,
    external: bool = False,
    check: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Write a model; returns its files. On an error, none is left and none is replaced.

    Parameters
    ----------
    target : path
        The model's file. A second file is ``<name>.<hash>.data`` beside it; that of the model that
        is replaced is removed.
    model : onnx.ModelProto
        Without the numbers of the initializers in `payloads`; it is changed.
    payloads : mapping
        By the name of an initializer of the main graph.
    external : bool
        Write two files even where one is enough.
    check : callable, optional
        Called with the complete model under another name beside the target, which it replaces
        unless this raises.

    Raises
    ------
    OutputError
        The target cannot be written, or the model is too large for one message without numbers.
    """
    target = Path(os.path.realpath(target))
    initializers = list(model.graph.initializer)
    del model.graph.initializer[:]
    numbers = sum(payload.size for payload in payloads.values())
    size = model.ByteSize() + sum(t.ByteSize() + 64 for t in initializers)
    external = external or size + numbers > MESSAGE_LIMIT
    if size > MESSAGE_LIMIT:
        raise OutputError(f"{target}: {size} bytes of nodes, a model's message holds 2 GB")
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    model.ClearField("graph")
    files = [target]
    with ExitStack() as undoing:
        with writing(target, is_model=True, check=check) as file:
            if external:
                files.append(_write_data(target, initializers, payloads, undoing))
                payloads = {}
            _write_message(file, model, graph, initializers, payloads)
        undoing.pop_all()
    for path in target.parent.iterdir():
        if is_data_of(path, target) and path not in files:
            with suppress(OSError):  # on Windows, while a process has it open
                path.unlink()
    return files


def is_data_of(path: Path, model: Path) -> bool:
    """Whether a file has the name of a second file of a model."""
    pattern = rf"{re.escape(model.name)}\.[0-9a-f]{{{2 * _HASH}}}\.data"
    return path.parent == model.parent and re.fullmatch(pattern, path.name) is not None


def _write_data(
    model: Path, tensors: Iterable[TensorProto], payloads: Mapping[str, Payload], undoing: ExitStack
) -> Path:
    """Write numbers into the second file, and their places into the tensors' messages."""
    places: list[tuple[TensorProto, int, int]] = []
    with reporting(model), Partial(model.parent) as partial:
        file = _Hashing(partial.file)
        for tensor in tensors:
            payload = payloads.get(tensor.name)
            if payload is not None:
                file.write(bytes(-file.size % ALIGNMENT))
                places.append((tensor, file.size, payload.size))
                _write_numbers(file, tensor.name, payload)
        path = model.with_name(f"{model.name}.{file.hash.hexdigest()}.data")
        if not path.exists():  # else the model to be replaced may refer to the same numbers
            undoing.callback(path.unlink, missing_ok=True)
        partial.place(path)
    for tensor, offset, length in places:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": path.name, "offset": offset, "length": length}.items():
            tensor.external_data.add(key=key, value=str(value))
    return path


class _Hashing:
    """A file with the size and a hash of the bytes written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.size, self.hash = file, 0, blake2b(digest_size=_HASH)

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.hash.update(data)
        self.size += len(data)


def _write_message(
    file: BinaryIO,
    model: onnx.ModelProto,
    graph: onnx.GraphProto,
    tensors: Iterable[TensorProto],
    payloads: Mapping[str, Payload],
) -> None:
    heads = []  # per tensor: frame and message without numbers, name, payload
    total = graph.ByteSize()
    for tensor in tensors:
        payload = payloads.get(tensor.name)
        message = tensor.SerializeToString()
        if payload is not None:
            message += _tag(_RAW) + varint(payload.size)
        frame = _tag(_INITIALIZER) + varint(len(message) + (payload.size if payload else 0))
        heads.append((frame + message, tensor.name, payload))
        total += len(frame) + len(message) + (payload.size if payload else 0)
    file.write(model.SerializeToString() + _tag(_GRAPH) + varint(total))
    file.write(graph.SerializeToString())
    for head, name, payload in heads:
        file.write(head)
        if payload is not None:
            _write_numbers(file, name, payload)


def _write_numbers(file: BinaryIO | _Hashing, name: str, payload: Payload) -> None:
    written = 0
    for part in payload.parts():
        file.write(part.reshape(-1).view("u1").data)
        written += part.nbytes
    if written != payload.size:
        raise ValueError(f"tensor {name!r}: {written} bytes written, {payload.size} announced")


def _tag(number: int) -> bytes:
    return varint(number << 3 | 2)
