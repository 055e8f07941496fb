"""Opening of a session's model, with the replacements that options give."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, HalfbyteError, ModelError
from halfbyte.formats.mapped import Buffer, is_apart
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.files.dtypes import as_stored
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


def open_model(source: Source, options: SessionOptions, memory: Any = None) -> Model:
    """Read a model.

    Parameters
    ----------
    source
        A path, the bytes of a file, or a file open in binary mode.
    options : SessionOptions
        Its initializers and files replace the model's, and its sizes replace symbolic ones.
    memory : Memory, optional
        Memory apart from NumPy's, into which files are read that have a path.

    Raises
    ------
    NoSuchFile, InvalidArgument, InvalidProtobuf, Fail, NotImplemented, TypeProblem
        With a message of one line.
    """
    values = {name: value._tensor() for name, value in options._initializers.items()}
    bodies = {name: as_stored(array).data for name, array in values.items()}
    try:
        model = open_onnx(_checked(source), external=options._files, tensors=bodies, memory=memory)
        _replace_initializers(model, values)
    except ModelError as error:
        raise Fail(str(error)) from error
    except FormatError as error:
        raise InvalidProtobuf(str(error)) from error
    except HalfbyteError as error:
        raise translated(error) from error
    return _with_sizes(model, options._sizes, options._denoted)


def _checked(source: Source) -> Any:
    """A path or bytes from a source; raises if they cannot be a model's."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            raise InvalidProtobuf(f"{path}: a folder, expected an ONNX file")
        if not path.exists():
            raise NoSuchFile(f"{path}: no such file")
        if not path.stat().st_size:
            raise InvalidArgument(f"{path}: an empty file, expected an ONNX model")
        return path
    if is_apart(source):
        return source
    if hasattr(source, "read"):
        source = source.read()
    if not isinstance(source, bytes | bytearray | memoryview | np.ndarray):
        raise TypeProblem(
            f"a model of type {type(source).__name__}: expected a path, bytes or a binary file"
        )
    if not len(source):
        raise InvalidArgument("model.onnx: no bytes, expected an ONNX model")
    return source


def _replace_initializers(model: Model, values: Mapping[str, npt.NDArray[Any]]) -> None:
    graph = model.graph
    for name, array in values.items():
        where = f"{model.path}: initializer {name!r}"
        original = graph.initializers.get(name)
        if original is None or isinstance(original, SparseTensor):
            raise ModelError(f"{where}: a value is given for it, but the model has none")
        if (original.dtype, original.shape) != (array.dtype, array.shape):
            raise ModelError(
                f"{where}: expected {element_name(original.dtype)}{list(original.shape)}, found "
                f"{element_name(array.dtype)}{list(array.shape)}"
            )
        graph.initializers[name] = array
        if name in graph.packed:
            graph.packed[name] = as_stored(array)


# ---- sizes ---------------------------------------------------------------------------------------


def _with_sizes(model: Model, named: Mapping[str, int], denoted: Mapping[str, int]) -> Model:
    """The model with numbers in place of symbolic sizes, in the types of inputs and outputs."""
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

    sized_graph: Graph = replace(
        graph,
        inputs=[sized(info) for info in graph.inputs],
        outputs=[sized(info) for info in graph.outputs],
    )
    return replace(model, graph=sized_graph)


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
