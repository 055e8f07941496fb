"""Writing an ONNX model with memory for a part of one tensor.

A model is one message, ModelProto, whose field `graph` holds the initializers. The lengths of all
messages come before their contents, and sizes of tensors are known before their numbers; so the
messages are written without large numbers, and these are put in where they belong:

    ModelProto:  [all but graph] [tag graph, length] GraphProto
    GraphProto:  [all but initializers] ([tag initializer, length] TensorProto) ...
    TensorProto: [name, type, shape] [tag raw_data, length] numbers

Where that is more than a message can hold (2 GB), numbers go to a second file, at offsets that are
multiples of 4096, so that they can be mapped.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy.typing as npt
import onnx
from onnx import TensorProto

from halfbyte.errors import OutputError
from halfbyte.quantize.onnx.source import varint

Array = npt.NDArray[Any]

MESSAGE_LIMIT = (1 << 31) - (1 << 16)  # bytes of a message, with room for its frame
ALIGNMENT = 4096  # of numbers in a second file
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto


@dataclass(frozen=True)
class Payload:
    """The numbers of an initializer that are made while they are written.

    Attributes
    ----------
    size : int
        Bytes.
    parts : callable
        Gives arrays whose bytes, one after another, are the numbers; called once, in file order.
    """

    size: int
    parts: Callable[[], Iterable[Array]]


def write_model(
    target: Path,
    model: onnx.ModelProto,
    payloads: Mapping[str, Payload],
    *,
    external: bool = False,
) -> list[Path]:
    """Write a model; returns its files. On any error none is left, and none is replaced.

    Parameters
    ----------
    target : path
        The model's file; numbers in a second file go to ``<name>.data`` beside it.
    model : onnx.ModelProto
        Without the numbers of the initializers in `payloads`; it is changed.
    payloads : mapping
        By the name of an initializer of the main graph.
    external : bool
        Two files, also where one can hold all.

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
    data = target.with_name(f"{target.name}.data") if external else None
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    model.ClearField("graph")
    with ExitStack() as stack:
        files = [stack.enter_context(_replacing(path)) for path in (data, target) if path]
        with _reporting(target):
            if data is not None:
                _write_data(files[0], data.name, initializers, payloads)
                payloads = {}
            _write_message(files[-1], model, graph, initializers, payloads)
            for file in files:
                file.close()
    return [path for path in (target, data) if path]


def _write_data(
    file: BinaryIO,
    name: str,
    tensors: Iterable[TensorProto],
    payloads: Mapping[str, Payload],
) -> None:
    """Numbers into the second file; the tensors' messages say where."""
    for tensor in tensors:
        payload = payloads.get(tensor.name)
        if payload is None:
            continue
        file.write(bytes(-file.tell() % ALIGNMENT))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": name, "offset": file.tell(), "length": payload.size}.items():
            tensor.external_data.add(key=key, value=str(value))
        _write_numbers(file, tensor.name, payload)


def _write_message(
    file: BinaryIO,
    model: onnx.ModelProto,
    graph: onnx.GraphProto,
    tensors: Iterable[TensorProto],
    payloads: Mapping[str, Payload],
) -> None:
    heads = []  # per tensor: its frame, its message as far as that is known, what follows
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


def _write_numbers(file: BinaryIO, name: str, payload: Payload) -> None:
    written = 0
    for part in payload.parts():
        file.write(part.reshape(-1).view("u1").data)
        written += part.nbytes
    if written != payload.size:
        raise ValueError(f"tensor {name!r}: {written} bytes written, {payload.size} announced")


def _tag(number: int) -> bytes:
    return varint(number << 3 | 2)


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A temporary file that takes the target's name if all goes well, else is removed."""
    with _reporting(target):
        if target.exists() and not target.is_file():
            raise OutputError(f"{target}: cannot be written: not a regular file")
        temporary = target.with_name(f".halfbyte-{secrets.token_hex(8)}.part")
        file = temporary.open("xb")
    try:
        yield file
        with _reporting(target):
            temporary.replace(target)
    finally:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def _reporting(target: Path) -> Iterator[None]:
    """What the system refuses, as an `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror or error}") from error
