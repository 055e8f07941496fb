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
from pathlib import Path
from typing import IO, Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import Buffer, MappedFile, open_pages
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
) -> Model:
    """Read and check a model.

    Parameters
    ----------
    source
        A path, whose file is mapped; the bytes of a model, which are not copied; or a file open in
        binary mode, which is read to its end.
    name
        A name for messages, if the source is not a path.
    external
        Contents of files with external data, by the location that the model gives. Other files are
        read from the folder of a model that is opened by its path.
    tensors
        Contents of tensors by name, in place of external data.

    Raises
    ------
    FormatError
        The file is damaged or is not an ONNX model.
    UnsupportedError
        The file has a version or a part that halfbyte does not support.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        data, folder = open_pages(path), path.parent
    else:
        path = Path(name)
        data, folder = _in_memory(source, path), None
    first = data[0] & 7 if len(data) else None
    if not len(data) or (data[0] < 128 and _FIELDS.get(data[0] >> 3) != first):
        from halfbyte.formats.checkpoints.shards import pointer_hint

        start = bytes(data[:16])
        raise FormatError(
            f"{path}: not an ONNX model: {len(data)} bytes that begin with {start[:8]!r}"
            f"{pointer_hint(start)}"
        )
    files = External(path, folder, external, tensors, open_pages)
    model = Reader(path, files).model(data)
    model.mapped += [v.obj for v in (data, *files.opened) if isinstance(v.obj, MappedFile)]
    return model


def _in_memory(source: Buffer | IO[bytes], path: Path) -> memoryview:
    """A read-only view of bytes, or of the contents of a file."""
    read = getattr(source, "read", None)
    content: Any = read() if read is not None else source
    try:
        if not len(content):
            return memoryview(b"")
        return np.frombuffer(content, np.uint8).data.toreadonly()
    except (TypeError, ValueError, BufferError) as error:
        raise FormatError(f"{path}: expected contiguous bytes: {error}") from None
