"""A session's model: read, with what options say in place of what the file does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, HalfbyteError, ModelError
from halfbyte.formats.mapped import Buffer
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.files.dtypes import bits, special_name
from halfbyte.onnx.files.model import Dim, Graph, Model, SparseTensor, TypeInfo, ValueInfo
from halfbyte.onnx.session.errors import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    TypeProblem,
    translated,
)
from halfbyte.onnx.session.metadata import element_name
from halfbyte.onnx.session.options import SessionOptions

Source: TypeAlias = "str | os.PathLike[str] | Buffer | IO[bytes]"


def open_model(source: Source, options: SessionOptions) -> Model:
    """Read a model.

    Parameters
    ----------
    source
        A path, the bytes of a file, or a file open in binary mode.
    options : SessionOptions
        Its initializers and files take the place of the file's, its sizes that of symbolic ones.

    Raises
    ------
    NoSuchFile, InvalidArgument, InvalidProtobuf, Fail, NotImplemented, TypeProblem
        With one line that says what and where.
    """
    values = {name: value._tensor() for name, value in options._initializers.items()}
    bodies = {name: _as_stored(array) for name, array in values.items()}
    try:
        model = open_onnx(_checked(source), external=options._files, tensors=bodies)
        _replace_initializers(model, values)
    except ModelError as error:
        raise Fail(str(error)) from error
    except FormatError as error:
        raise InvalidProtobuf(str(error)) from error
    except HalfbyteError as error:
        raise translated(error) from error
    return _with_sizes(model, options._sizes, options._denoted)


def _checked(source: Source) -> Any:
    """The source, if it may be a model's."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            raise InvalidProtobuf(f"{path}: a folder, expected an ONNX file")
        if not path.exists():
            raise NoSuchFile(f"{path}: there is no such file")
        if not path.stat().st_size:
            raise InvalidArgument(f"{path}: an empty file, expected an ONNX model")
        return path
    if hasattr(source, "read"):
        source = source.read()
    if not isinstance(source, bytes | bytearray | memoryview | np.ndarray):
        raise TypeProblem(
            f"a model of type {type(source).__name__}: expected a path, bytes or a binary file"
        )
    if not len(source):
        raise InvalidArgument("model.onnx: no bytes, expected an ONNX model")
    return source


def _as_stored(array: npt.NDArray[Any]) -> Buffer:
    """The bytes that a file has for a tensor: narrow elements are packed, the first one lowest."""
    width = bits(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if special_name(array.dtype) is None or width == 8 or array.dtype.itemsize > 1:
        return flat.view(np.uint8).data if array.dtype != object else b""
    codes = np.unpackbits(flat.view(np.uint8)[:, None], axis=1, bitorder="little")[:, :width]
    return np.packbits(codes.reshape(-1), bitorder="little").data


def _replace_initializers(model: Model, values: Mapping[str, npt.NDArray[Any]]) -> None:
    graph = model.graph
    for name, array in values.items():
        where = f"{model.path}: initializer {name!r}"
        found = graph.initializers.get(name)
        if found is None or isinstance(found, SparseTensor):
            raise ModelError(f"{where}: a value is given for it, but the model has none")
        if (found.dtype, found.shape) != (array.dtype, array.shape):
            raise ModelError(
                f"{where}: given {element_name(array.dtype)}{list(array.shape)}, expected "
                f"{element_name(found.dtype)}{list(found.shape)}"
            )
        graph.initializers[name] = array
        if name in graph.packed:
            graph.packed[name] = np.frombuffer(_as_stored(array), np.uint8)


# ---- sizes ---------------------------------------------------------------------------------------


def _with_sizes(model: Model, named: Mapping[str, int], denoted: Mapping[str, int]) -> Model:
    """The model with sizes in place of their names, in all that it says of values."""
    if not named and not denoted:
        return model
    names = dict(named)
    graph = model.graph
    for info in graph.inputs:
        if info.type is None:
            continue
        for dim, denotation in zip(info.type.shape or (), info.type.denotations, strict=False):
            if isinstance(dim, str) and denotation in denoted:
                names.setdefault(dim, denoted[denotation])

    def sized(info: ValueInfo) -> ValueInfo:
        return replace(info, type=_sized(info.type, names, denoted))

    made: Graph = replace(
        graph,
        inputs=[sized(info) for info in graph.inputs],
        outputs=[sized(info) for info in graph.outputs],
    )
    return replace(model, graph=made)


def _sized(
    kind: TypeInfo | None, names: Mapping[str, int], denoted: Mapping[str, int]
) -> TypeInfo | None:
    if kind is None:
        return None
    element = _sized(kind.element, names, denoted)
    if kind.shape is None:
        return replace(kind, element=element)
    marks = (*kind.denotations, *[""] * len(kind.shape))
    pairs = zip(kind.shape, marks, strict=False)
    shape = tuple(_size(dim, mark, names, denoted) for dim, mark in pairs)
    return replace(kind, element=element, shape=shape)


def _size(dim: Dim, mark: str, names: Mapping[str, int], denoted: Mapping[str, int]) -> Dim:
    if isinstance(dim, int):
        return dim
    return names.get(dim or "", denoted.get(mark, dim) if mark else dim)
