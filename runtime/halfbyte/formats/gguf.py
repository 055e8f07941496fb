"""Reader of GGUF, versions 2 and 3, little-endian.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, u32 version, u64 number
of tensors, u64 number of metadata entries; entries (key, u32 type, value); tensor infos (name, u32
number of dimensions, u64 dimensions innermost first, u32 type, u64 offset); padding to the
alignment; the tensors' bytes. Strings are a u64 length and UTF-8.

Every count is compared with the bytes that are left before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError, nearest
from halfbyte.formats.mapped import Pages, is_apart, refuse_overlaps, size_of
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.weights import BY_GGML_TYPE, FORMATS, Tensor

MAGIC = b"GGUF"
VERSION = 3
DEFAULT_ALIGNMENT = 32
QUANTIZED_BY = ("general.quantized_by", "halfbyte")  # the first entry of our own files
STRING, ARRAY = 8, 9  # value types without a NumPy scalar
SCALARS: dict[int, np.dtype[np.generic]] = {
    number: np.dtype(code)
    for number, code in {
        0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
        10: "<u8", 11: "<i8", 12: "<f8",
    }.items()
}  # fmt: skip

# ggml's names of types beyond `FORMATS`, for messages only
_OTHER_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
    28: "F64", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8", 41: "Q1_0",
}  # fmt: skip

_MAX_ALIGNMENT = 1 << 16  # the largest page size of any system; writers pad with zeros
_MAX_DIMENSIONS = 4
_MAX_NESTING = 4
_MAX_NAME = 255
_MAX_HEADER = 1 << 26  # vocabularies of 260,000 tokens with merges take 16 MB
_MAX_ITEMS = 1 << 17
_FIRST = 1 << 20  # bytes of a header in another memory that are copied at first
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class _Cursor:
    """Reads values in sequence, never beyond the end of the header."""

    def __init__(self, path: Path, pages: Pages, size: int) -> None:
        self.path = path
        self.pages = pages  # the first part of the file, or all of it
        self.size = size  # of the file
        self.end = min(len(pages), _MAX_HEADER)
        self.at = 0
        self.what = "header"  # what is being read, for messages
        self.items = 0

    def error(self, problem: str) -> FormatError:
        return FormatError(f"{self.path}: {self.what}: {problem}")

    def need(self, size: int) -> None:
        """Check that `size` bytes are left."""
        if size <= self.end - self.at:
            return
        if self.end == len(self.pages) < self.size:
            raise _BeyondError
        if size <= self.size - self.at:
            raise UnsupportedError(f"{self.path}: metadata exceeds {_MAX_HEADER} bytes")
        left = self.size - self.at
        raise self.error(f"truncated: {size} bytes expected at offset {self.at}, {left} found")

    def each(self, count: int) -> Iterator[int]:
        """0 ... count - 1, for items that take far more memory in Python than in the file."""
        for index in range(count):
            self.items += 1
            if self.items > _MAX_ITEMS:
                raise UnsupportedError(
                    f"{self.path}: {self.what}: more than {_MAX_ITEMS} metadata entries, tensors "
                    "and arrays in arrays"
                )
            yield index

    def u32(self) -> int:
        self.need(4)
        (value,) = _U32.unpack_from(self.pages, self.at)
        self.at += 4
        return int(value)

    def u64(self) -> int:
        self.need(8)
        (value,) = _U64.unpack_from(self.pages, self.at)
        self.at += 8
        return int(value)

    def string(self) -> str:
        return self.strings(1)[0]

    def name(self) -> str:
        """A key or a tensor's name."""
        start = self.at
        name = self.string()
        if self.at - start - 8 > _MAX_NAME:
            raise self.error(f"name of more than {_MAX_NAME} bytes")
        return name

    def strings(self, count: int) -> list[str]:
        """`count` strings: the hot loop of opening a file with a large vocabulary."""
        pages, end, at, unpack = self.pages, self.end, self.at, _U64.unpack_from
        strings = []
        for _ in range(count):
            if at + 8 > end:
                self.at = at
                self.need(8)
            start = at + 8
            at = start + unpack(pages, at)[0]
            if at > end:
                self.at = start
                self.need(at - start)
            try:
                strings.append(str(pages[start:at], "utf-8"))
            except UnicodeDecodeError:
                raise self.error(f"string at offset {start} is not UTF-8") from None
        self.at = at
        return strings

    def array(self, dtype: np.dtype[np.generic], count: int) -> npt.NDArray[np.generic]:
        """A read-only view of `count` numbers."""
        self.need(count * dtype.itemsize)
        values = np.frombuffer(self.pages, dtype, count, self.at)
        if dtype == np.bool_ and np.any(values.view(np.uint8) > 1):
            raise self.error("a bool is neither 0 nor 1")
        self.at += values.nbytes
        return values


def read_gguf(path: Path, pages: Any) -> ModelFile:
    """Parse a GGUF file; tensors are views of its pages. `path` is for messages.

    Raises
    ------
    FormatError
        Truncated or inconsistent file.
    UnsupportedError
        Another version or byte order, or a tensor type that halfbyte does not know.
    """
    if not is_apart(pages):
        return _read_gguf(path, pages, pages)
    nbytes = _FIRST
    while True:  # only the header is copied
        file = read_start(path, pages, np.asarray(pages[:nbytes]).data)
        if file is not None:
            return file
        nbytes *= 4


def read_start(path: Path, pages: Any, start: Pages) -> ModelFile | None:
    """As `read_gguf`, from the first bytes of `pages`; None if the header goes on after them."""
    try:
        return _read_gguf(path, pages, start)
    except _BeyondError:
        return None


class _BeyondError(Exception):
    """The header continues after the part of it that was copied."""


def _read_gguf(path: Path, pages: Pages, head: Pages) -> ModelFile:
    cursor = _Cursor(path, head, size_of(pages))
    version, tensor_count, entry_count = _read_start(cursor)
    metadata: dict[str, MetadataValue] = {}
    for index in cursor.each(entry_count):
        cursor.what = f"metadata entry {index + 1} of {entry_count}"
        key = cursor.name()
        cursor.what = f"metadata {key!r}"
        if key in metadata:
            raise cursor.error("appears twice")
        metadata[key] = _read_value(cursor, cursor.u32(), 0)
    alignment = _alignment(path, metadata)
    infos = _read_tensor_infos(cursor, tensor_count)
    tensors = _map_tensors(path, pages, infos, cursor.at, alignment)
    return ModelFile(path, f"GGUF v{version}", metadata, tensors, parts={path: pages})


def _read_start(cursor: _Cursor) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata entries."""
    cursor.need(4)
    if cursor.pages[:4] != MAGIC:
        raise cursor.error(f"magic {bytes(cursor.pages[:4])!r}, expected {MAGIC!r}")
    cursor.at = 4
    version = cursor.u32()
    if version not in (2, VERSION):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "big-endian bytes" if swapped in (2, VERSION) else version
        raise UnsupportedError(f"{cursor.path}: expected GGUF version 2 or 3, found {kind}")
    return version, cursor.u64(), cursor.u64()


def _read_value(cursor: _Cursor, kind: int, depth: int) -> MetadataValue:
    if kind == STRING:
        return cursor.string()
    if kind == ARRAY:
        return _read_array(cursor, depth)
    dtype = SCALARS.get(kind)
    if dtype is None:
        raise cursor.error(f"unknown value type {kind}")
    value: np.generic = cursor.array(dtype, 1)[0]
    return bool(value) if dtype == np.bool_ else value


def _read_array(cursor: _Cursor, depth: int) -> MetadataValue:
    kind, count = cursor.u32(), cursor.u64()
    if dtype := SCALARS.get(kind):
        return cursor.array(dtype, count)
    if kind == STRING:
        cursor.need(8 * count)
        return list(cursor.strings(count))
    if kind != ARRAY:
        raise cursor.error(f"unknown array element type {kind}")
    if depth == _MAX_NESTING:
        raise cursor.error(f"arrays nested more than {_MAX_NESTING} deep")
    cursor.need(12 * count)
    return [_read_array(cursor, depth + 1) for _ in cursor.each(count)]


def _alignment(path: Path, metadata: dict[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", np.uint32(DEFAULT_ALIGNMENT))
    alignment = int(value) if isinstance(value, np.uint32) else 0
    if not 8 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        shown = value if isinstance(value, np.generic) else type(value).__name__
        raise FormatError(
            f"{path}: metadata 'general.alignment': expected a uint32 power of two, 8 to "
            f"{_MAX_ALIGNMENT}, found {shown!r}"
        )
    return alignment


_Info = tuple[str, tuple[int, ...], int, int]  # name, shape in C order, ggml type, offset


def _read_tensor_infos(cursor: _Cursor, count: int) -> list[_Info]:
    infos: list[_Info] = []
    for index in cursor.each(count):
        cursor.what = f"info of tensor {index + 1} of {count}"
        name = cursor.name()
        cursor.what = f"tensor {name!r}"
        dimensions = cursor.u32()
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise cursor.error(f"{dimensions} dimensions, expected 1 to {_MAX_DIMENSIONS}")
        shape = tuple(cursor.u64() for _ in range(dimensions))[::-1]
        infos.append((name, shape, cursor.u32(), cursor.u64()))
    return infos


def _map_tensors(
    path: Path, pages: Pages, infos: list[_Info], header_end: int, alignment: int
) -> dict[str, Tensor]:
    data_start = -(-header_end // alignment) * alignment
    whole: Any = pages if is_apart(pages) else np.frombuffer(pages, np.uint8)
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    for name, shape, kind, offset in infos:
        where = f"{path}: tensor {name!r}"
        if name in tensors:
            raise FormatError(f"{where}: appears twice")
        size = _tensor_bytes(where, shape, kind)
        if offset % alignment:
            raise FormatError(f"{where}: offset {offset} is not a multiple of {alignment}")
        start = data_start + offset
        if start + size > size_of(pages):
            raise FormatError(
                f"{where}: {size} bytes expected at offset {start}, the file has {size_of(pages)}"
            )
        spans.append((start, start + size, name))
        tensors[name] = Tensor(name, BY_GGML_TYPE[kind], shape, whole[start : start + size])
    refuse_overlaps(path, spans)
    return tensors


def _tensor_bytes(where: str, shape: tuple[int, ...], kind: int) -> int:
    weight_format = BY_GGML_TYPE.get(kind)
    if weight_format is None:
        label = _OTHER_TYPES.get(kind)
        known = ", ".join(FORMATS) if label is None else f"such as {nearest(label, [*FORMATS])}"
        raise UnsupportedError(
            f"{where}: expected type {known}, found {kind} ({label or 'unknown'})"
        )
    if 0 in shape:
        raise FormatError(f"{where}: shape {shape} has no elements")
    if shape[-1] % weight_format.block:
        raise FormatError(
            f"{where}: {shape[-1]} columns is not a multiple of {weight_format.name}'s block of "
            f"{weight_format.block}"
        )
    size = weight_format.row_bytes(shape[-1])
    for dimension in shape[:-1]:
        size *= dimension
    return size
