"""Writing GGUF files, version 3, in one pass and with memory for a slice of a tensor.

The layout is described in ``halfbyte.formats.gguf``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from halfbyte.errors import OutputError
from halfbyte.formats.gguf import ARRAY, DEFAULT_ALIGNMENT, MAGIC, SCALARS, STRING, VERSION
from halfbyte.formats.model_file import MetadataValue
from halfbyte.outputs import reporting, writing
from halfbyte.weights import Tensor, WeightFormat

_TYPE_NUMBERS = {dtype: number for number, dtype in SCALARS.items()}
_BOOL = _TYPE_NUMBERS[np.dtype(np.bool_)]
_MAX_NAME_BYTES = 63  # llama.cpp's limit


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's entry in the header; `shape` in C order, as in :class:`Tensor`."""

    name: str
    format: type[WeightFormat]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The tensor's size in bytes."""
        rows = 1
        for dimension in self.shape[:-1]:
            rows *= dimension
        return rows * self.format.row_bytes(self.shape[-1])


class GGUFWriter:
    """Writes one file: the header on entering the context, then the tensors' bytes in order.

    The bytes go to a temporary file in the target's folder. It is renamed to the target when the
    context ends normally, and removed when it ends with an exception.

        with GGUFWriter(path, metadata, infos) as writer:
            for tensor in tensors:
                for part in slices(tensor):
                    writer.write(part)

    Parameters
    ----------
    path
        The target; an existing file is replaced.
    metadata
        Typed values: NumPy scalars and arrays, bool, str, lists of str or of lists. An empty list
        is written as a list of strings. ``general.alignment`` sets the alignment.
    infos
        The tensors in file order.

    Raises
    ------
    OutputError
        The target cannot be written, the disk is full, or a name is too long for llama.cpp.
    """

    def __init__(
        self,
        path: Path,
        metadata: Mapping[str, MetadataValue],
        infos: Sequence[TensorInfo],
    ) -> None:
        self.path = path
        self.alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))  # type: ignore[arg-type]
        self._infos = list(infos)
        self._header = self._make_header(metadata)
        self._output = ExitStack()
        self._file: BinaryIO | None = None
        self._index = -1  # of the current tensor
        self._left = 0  # bytes of it that are not yet written

    @property
    def header_size(self) -> int:
        """Bytes before the first tensor, which do not depend on formats."""
        return len(self._header)

    def __enter__(self) -> GGUFWriter:
        with ExitStack() as opening:
            self._file = opening.enter_context(writing(self.path, is_model=True))
            with reporting(self.path):
                self._file.write(self._header)
            self._output = opening.pop_all()
        self._next_tensor()
        return self

    def write(self, data: npt.NDArray[np.uint8] | bytes) -> None:
        """Append to the current tensor; once it is complete, the next one is current."""
        size = len(data) if isinstance(data, bytes) else data.nbytes
        if self._file is None or size > self._left:
            raise ValueError(f"{size} bytes written where {self._left} are left")
        with reporting(self.path):
            self._file.write(data if isinstance(data, bytes) else data.data)
            self._left -= size
            if self._left == 0:
                self._file.write(bytes(-self._infos[self._index].size % self.alignment))
                self._next_tensor()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file = None
        if kind is None and self._index < len(self._infos):
            name = self._infos[self._index].name
            error = ValueError(f"tensor {name!r}: {self._left} bytes were never written")
            self._output.__exit__(ValueError, error, None)
            raise error
        self._output.__exit__(kind, error, traceback)

    def _next_tensor(self) -> None:
        self._index += 1
        if self._index < len(self._infos):
            self._left = self._infos[self._index].size

    def _make_header(self, metadata: Mapping[str, MetadataValue]) -> bytes:
        parts = [MAGIC, struct.pack("<IQQ", VERSION, len(self._infos), len(metadata))]
        for key, value in metadata.items():
            try:
                parts += [_string(key), _value(value)]
            except TypeError as error:
                raise TypeError(f"metadata {key!r}: {error}") from error
        offset = 0
        for info in self._infos:
            name = _string(info.name)
            if len(name) > 8 + _MAX_NAME_BYTES:
                raise OutputError(
                    f"{self.path}: tensor {info.name!r}: name of {len(name) - 8} bytes, expected "
                    f"at most {_MAX_NAME_BYTES}"
                )
            dimensions = info.shape[::-1]
            parts.append(name)
            parts.append(struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions))
            parts.append(struct.pack("<IQ", info.format.ggml_type, offset))
            offset += -(-info.size // self.alignment) * self.alignment
        header = b"".join(parts)
        return header + bytes(-len(header) % self.alignment)


def write_gguf(
    path: Path, metadata: Mapping[str, MetadataValue], tensors: Iterable[Tensor]
) -> None:
    """Write tensors as they are; raises `OutputError`."""
    tensors = list(tensors)
    infos = [TensorInfo(tensor.name, tensor.format, tensor.shape) for tensor in tensors]
    with GGUFWriter(path, metadata, infos) as writer:
        for tensor in tensors:
            writer.write(tensor.data)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: MetadataValue) -> bytes:
    """Type number and value."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, np.generic):
        return struct.pack("<I", _number(value.dtype)) + value.tobytes()
    return struct.pack("<I", ARRAY) + _array(value)


def _array(values: MetadataValue) -> bytes:
    """Element type, count and elements."""
    if isinstance(values, np.ndarray):
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return struct.pack("<IQ", _number(values.dtype), values.size) + little.tobytes()
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} has no GGUF type; use NumPy's scalars")
    if all(isinstance(value, str) for value in values):
        return struct.pack("<IQ", STRING, len(values)) + b"".join(map(_string, values))  # type: ignore[arg-type]
    if any(isinstance(value, str | bool | np.generic) for value in values):
        raise TypeError("a list of numbers, or of strings and others; use NumPy's arrays")
    return struct.pack("<IQ", ARRAY, len(values)) + b"".join(map(_array, values))


def _number(dtype: np.dtype[np.generic]) -> int:
    number = _TYPE_NUMBERS.get(dtype.newbyteorder("<"))
    if number is None:
        raise TypeError(f"{dtype} has no GGUF type")
    return number
