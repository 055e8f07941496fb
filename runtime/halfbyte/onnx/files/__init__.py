"""ONNX files: what their messages say, checked, under ONNX's own names.

    model = open_onnx("model.onnx")
    model.graph.nodes, model.graph.initializers, model.opsets

`reader` reads the messages, `tensors`, `types` and `external` their parts, `order` checks what
holds between them. Nothing of a tensor is copied that lies raw in a file.
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
# Fields of a ModelProto, and how protobuf writes them.
_FIELDS = {1: _VARINT, 5: _VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES)
_VERSIONS = range(1, 100)  # of the IR, in all likelihood
_ENOUGH = 16  # bytes of a beginning to look at


def is_onnx(start: bytes) -> bool:
    """Whether a file that begins so is an ONNX model.

    There is no magic number. Every known writer puts `ir_version` first; what follows, as far as it
    is there, must be fields of a model. No other format that halfbyte reads begins so: at least two
    keys are compared, and no field has the number 0.

    Parameters
    ----------
    start : bytes
        The first bytes, 16 or more of a file that has as many.
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
    """Whether a file is an ONNX model by its content, or says so by its name and is nothing else.

    What is no regular file is not opened: a pipe would wait for its writer.
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
    """Read a model, and check it as a whole.

    Parameters
    ----------
    source
        A path, whose file is mapped; or a model's bytes, which are not copied; or a file open in
        binary mode, which is read to its end.
    name
        Of a source that is not a path, for messages.
    external
        Contents of files that tensors' data lies in, by the location that the model has for them.
        Those of a model opened by its path are looked for in its folder.
    tensors
        Contents of tensors by their names, in place of what such files have.

    Raises
    ------
    FormatError
        Damaged, or not such a file.
    UnsupportedError
        Of a version, or with a part, that is not known here.
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
    """A read-only view of bytes, or of all that a file has."""
    read = getattr(source, "read", None)
    found: Any = read() if read is not None else source
    try:
        if not len(found):
            return memoryview(b"")
        return np.frombuffer(found, np.uint8).data.toreadonly()
    except (TypeError, ValueError, BufferError) as error:
        raise FormatError(f"{path}: expected contiguous bytes: {error}") from None
