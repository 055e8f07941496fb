"""Packed weights of a model, kept in a file that later sessions map.

The file is safetensors. Its metadata say whose weights they are: the model's files by their sizes
and the times of their last change (as Python knows its bytecode), the order of packed numbers, and
the kernels. Where any of these differ, weights are packed again, and the file is replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import MAX_DIMENSIONS, MAX_NAME, Checkpoint
from halfbyte.formats.checkpoints.safetensors import (
    ALIGNMENT,
    has_json_header,
    read_json_header,
    read_safetensors,
    write_safetensors,
)
from halfbyte.formats.mapped import MappedFile, map_file
from halfbyte.onnx.files.model import Model
from halfbyte.outputs import write_file
from halfbyte.weights import F32, Tensor

Array = npt.NDArray[Any]

_FORMAT = "halfbyte's packed weights, 1"  # another number where a layout changes
_LEAST = 1 << 16  # bytes of an array that is kept
_TYPES = ("float32", "int8", "int32")


class KeptWeights:
    """Arrays by name, of a file or for one."""

    def __init__(self, path: Path, model: Model, kernels: str) -> None:
        """Map the file if its arrays are this model's.

        Raises
        ------
        UnsupportedError
            The model is not in files of this machine.
        FormatError
            There is a file of something else.
        """
        if not model.mapped:
            raise UnsupportedError(
                f"{model.path}: packed weights are kept for a model in a file of this machine only"
            )
        files = [[f.path.name, f.status.st_size, f.status.st_mtime_ns] for f in model.mapped]
        self._path = path
        self._owner = {
            "format": _FORMAT, "kernels": kernels, "files": json.dumps(files),
        }  # fmt: skip
        self._arrays: dict[str, Array] = {}
        self._is_new = False
        if path.exists():
            pages = map_file(path)
            self._arrays = _read(path, pages, self._owner)
            model.mapped += [pages] if self._arrays else []

    def get(self, name: str) -> Array | None:
        """An array of the file."""
        return self._arrays.get(name)

    def add(self, name: str, array: Array) -> None:
        """Keep an array that takes time to pack."""
        fits = array.ndim <= MAX_DIMENSIONS and len(name.encode()) <= MAX_NAME
        whole = array.flags.c_contiguous and array.nbytes % ALIGNMENT == 0
        if array.nbytes >= _LEAST and fits and whole and array.dtype.name in _TYPES:
            self._arrays[name] = array
            self._is_new = True

    def save(self) -> None:
        """Write the file if arrays were added.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        if self._is_new:
            self._is_new = False  # a second attempt would fail, too
            write_file(self._path, lambda file: write_safetensors(file, self._arrays, self._owner))


def _read(path: Path, pages: MappedFile, owner: dict[str, str]) -> dict[str, Array]:
    """The arrays of a file; none if they are another owner's."""
    header: dict[str, Any] = {}
    if has_json_header(bytes(pages[:16])):
        header, start = read_json_header(path, pages)
    about = header.get("__metadata__")
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise FormatError(
            f"{path}: expected packed weights or no file, found another one, which is kept: "
            "choose another path"
        )
    if about != owner:
        return {}
    content = read_safetensors(path, pages, header, start)
    return _floats(content) | {name: one.values for name, one in content.raw.items()}


def _floats(content: Checkpoint) -> dict[str, Array]:
    def array(tensor: Tensor) -> Array:
        return tensor.data.view(np.float32).reshape(tensor.shape)

    return {name: array(t) for name, t in content.tensors.items() if t.format is F32}
