"""ONNX files: their messages as checked data, under ONNX's own names.

    model = open_onnx("model.onnx")
    model.graph.nodes, model.graph.initializers, model.opsets

`reader` reads the messages through `halfbyte.formats.protobuf`; `tensors`, `types` and `external`
read their parts; `order` checks the relations between them. Raw tensors are views of mapped pages.

Limits: IR versions 3 to 14, versions 7 to 28 of the default domain (any of other domains), graphs
nested 32 deep, 2^18 nodes, also with functions inlined, and names of 1,024 characters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import Buffer, MappedFile, is_apart, open_pages, read_apart, size_of
from halfbyte.onnx.files.apart import HERE, without_numbers
from halfbyte.onnx.files.external import External
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
from halfbyte.onnx.files.reader import Reader

__all__ = [
    "Function", "Graph", "Model", "Node", "Reference", "SparseTensor", "TypeInfo", "ValueInfo",
    "is_onnx", "is_onnx_file", "open_onnx",
]  # fmt: skip

_VARINT, _BYTES = 0, 2
# Wire types of the fields of a ModelProto.
_FIELDS = {1: _VARINT, 5: _VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES)
_VERSIONS = range(1, 100)  # plausible IR versions
_ENOUGH = 16  # bytes to look at


def is_onnx(start: bytes) -> bool:
    """Whether a file with these first bytes is an ONNX model.

    There is no magic number. Every known writer puts `ir_version` first; the bytes after it must be
    fields of a model. No other format that halfbyte reads begins like this: at least two keys are
    compared, and no field has the number 0.

    Parameters
    ----------
    start : bytes
        The first 16 bytes or more; all bytes of a smaller file.
    """
    if len(start) < 4 or start[0] != 1 << 3 | _VARINT or start[1] not in _VERSIONS:
        return False
    at = 2
    while at < min(len(start), _ENOUGH):
        key = start[at]
        if key > 127:  # fields from 16 on take two bytes
            if at + 1 == len(start):
                return True
            at += 1
            key = key & 127 | start[at] << 7
        if _FIELDS.get(key >> 3) != key & 7:
            return False
        size = shift = 0
        while True:
            at += 1
            if at >= len(start):
                return True
            size |= (start[at] & 127) << shift
            shift += 7
            if start[at] < 128:
                break
        at += 1 + (size if key & 7 == _BYTES else 0)
    return True


def is_onnx_file(path: Path) -> bool:
    """Whether a file is an ONNX model by its content, or by its suffix if it is not a GGUF file.

    Only regular files are opened: a pipe would wait for its writer.
    """
    if not path.is_file():
        return path.suffix == ".onnx" and not path.exists()
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:
        return False
    return is_onnx(start) or (path.suffix == ".onnx" and not start.startswith(b"GGUF"))


def open_onnx(
    source: str | os.PathLike[str] | Buffer | IO[bytes],
    *,
    name: str = "model.onnx",
    external: Mapping[str, Buffer] | None = None,
    tensors: Mapping[str, Buffer] | None = None,
    memory: Any = None,
) -> Model:
    """Read and check a model.

    Parameters
    ----------
    source
        A path, whose file is mapped; the bytes of a model, which are not copied, also in memory
        apart from NumPy's; or a file open in binary mode, which is read to its end.
    name
        A name for messages, if the source is not a path.
    external
        Contents of files with external data, by the location that the model gives. Other files are
        read from the folder of a model that is opened by its path.
    tensors
        Contents of tensors by name, in place of external data.
    memory : Memory, optional
        Memory apart from NumPy's, into which files with a path are read.

    Raises
    ------
    FormatError
        The file is damaged or is not an ONNX model.
    UnsupportedError
        The file has a version or a part that halfbyte does not support.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        data, folder = _pages(path, memory), path.parent
    else:
        path = Path(name)
        data, folder = _in_memory(source, path), None
    _check_start(path, np.asarray(data[:_ENOUGH]).tobytes(), size_of(data))
    if is_apart(data):
        memory, external = data.block.memory, {**(external or {}), HERE: data}
        data = without_numbers(data, path)
    files = External(path, folder, external, tensors, partial(_pages, memory=memory))
    model = Reader(path, files, memory).model(data)
    owners = [getattr(v, "obj", None) for v in (data, *files.opened)]
    model.mapped += [owner for owner in owners if isinstance(owner, MappedFile)]
    return model


def _pages(path: Path, memory: Any) -> Any:
    """A file's bytes: mapped, or a copy in a memory apart."""
    return open_pages(path) if memory is None else read_apart(path, memory)


def _check_start(path: Path, start: bytes, size: int) -> None:
    """Raise unless a file of `size` bytes may be a model by its first bytes."""
    if start and (start[0] > 127 or _FIELDS.get(start[0] >> 3) == start[0] & 7):
        return
    from halfbyte.formats.checkpoints.shards import pointer_hint

    raise FormatError(
        f"{path}: not an ONNX model: {size} bytes that begin with {start[:8]!r}"
        f"{pointer_hint(start)}"
    )


def _in_memory(source: Buffer | IO[bytes], path: Path) -> Any:
    """A read-only view of bytes, or of the contents of a file; bytes apart stay as they are."""
    if is_apart(source):
        return source
    read = getattr(source, "read", None)
    content: Any = read() if read is not None else source
    try:
        if not len(content):
            return memoryview(b"")
        return np.frombuffer(content, np.uint8).data.toreadonly()
    except (TypeError, ValueError, BufferError) as error:
        raise FormatError(f"{path}: expected contiguous bytes: {error}") from None
