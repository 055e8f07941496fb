"""llama.cpp's files of importance ("imatrix"): mean squares of what enters each channel.

Source: llama.cpp's tools imatrix and quantize. A GGUF file has for each tensor of the model
``<name>.in_sum2`` [matrices, columns], sums of squares, and ``<name>.counts`` [matrices, 1], rows.
An older file is: int32 number of entries; for each int32 length and bytes of the name, int32 calls,
int32 number of values, and these in float32, means times calls; then int32 chunks, and int32 length
and bytes of the text's name.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats import ModelFile, gguf
from halfbyte.formats.mapped import Pages, map_file
from halfbyte.formats.model_file import MetadataValue
from halfbyte.outputs import write_file
from halfbyte.quantize.calibration.statistics import Moments
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.weights import F32, F32Array, Tensor

_SUMS, _COUNTS = ".in_sum2", ".counts"
_MAX_ENTRIES, _MAX_NAME, _MAX_VALUES = 1 << 20, 1 << 10, 1 << 28


def read_imatrix(path: str | os.PathLike[str], model: ModelFile) -> dict[str, F32Array]:
    """Mean squares [matrices, columns] of a model's tensors, by name.

    Matrices that nothing entered have 1 everywhere. Tensors that the file lacks are left out, and
    those that the model lacks are ignored.

    Raises
    ------
    FormatError
        It is no such file, is damaged, or belongs to another model.
    """
    path = Path(path)
    pages = map_file(path)
    if bytes(pages[: len(gguf.MAGIC)]) == gguf.MAGIC:
        entries = _read_gguf(path, pages)
    else:
        entries = _read_old(path, memoryview(pages))
    known = {n: t for n, t in model.tensors.items() if n in entries and len(t.shape) > 1}
    if not known:
        raise FormatError(f"{path}: expected importance of {model.path}'s tensors, found none")
    return {name: _checked(path, tensor, entries[name]) for name, tensor in known.items()}


def write_imatrix(
    path: str | os.PathLike[str], moments: Mapping[str, Moments], chunks: int, text: str
) -> None:
    """Write statistics: in the older format if the name ends in ``.dat``, otherwise as GGUF."""
    path = Path(path)
    if path.suffix == ".dat":
        data = _old(moments, chunks, text)
        write_file(path, lambda file: file.write(data))
        return
    metadata: dict[str, MetadataValue] = {
        gguf.QUANTIZED_BY[0]: gguf.QUANTIZED_BY[1],
        "general.type": "imatrix",
        "imatrix.datasets": [text],
        "imatrix.chunk_count": np.uint32(chunks),
        "imatrix.chunk_size": np.uint32(_chunk(moments, chunks)),
    }
    tensors = []
    for name, found in moments.items():
        sums = found.squares.astype(np.float32)
        counts = found.counts.astype(np.float32)[:, None]
        for suffix, values in ((_SUMS, sums), (_COUNTS, counts)):
            encoded = F32.encode(np.ascontiguousarray(values)).reshape(-1)
            tensors.append(Tensor(name + suffix, F32, values.shape, encoded))
    write_gguf(path, metadata, tensors)


def _chunk(moments: Mapping[str, Moments], chunks: int) -> int:
    """Tokens of a chunk."""
    return max((int(found.counts.sum()) for found in moments.values()), default=0) // max(chunks, 1)


def _checked(path: Path, tensor: Tensor, means: F32Array) -> F32Array:
    """Means as [matrices, columns], which must fit the tensor."""
    matrices = tensor.shape[0] if len(tensor.shape) == 3 else 1
    if means.size != matrices * tensor.columns:
        raise FormatError(
            f"{path}: tensor {tensor.name!r}: expected {matrices} x {tensor.columns} values, "
            f"found {means.size}: it is another model's"
        )
    if not (np.isfinite(means).all() and (means >= 0).all()):
        wrong = means[~(np.isfinite(means) & (means >= 0))][0]
        raise FormatError(f"{path}: tensor {tensor.name!r}: expected finite squares, found {wrong}")
    means = means.reshape(matrices, tensor.columns)
    means[~means.any(axis=1)] = 1
    return means


def _read_gguf(path: Path, pages: Pages) -> dict[str, F32Array]:
    file = gguf.read_gguf(path, pages)
    entries: dict[str, F32Array] = {}
    for name, tensor in file.tensors.items():
        if not name.endswith(_SUMS):
            continue
        counts = file.tensors.get(name.removesuffix(_SUMS) + _COUNTS)
        if counts is None or counts.format is not F32 or tensor.format is not F32:
            raise FormatError(f"{path}: tensor {name!r}: expected sums and counts in F32")
        rows = counts.decode().reshape(-1)
        sums = tensor.decode().reshape(-1, tensor.columns)
        if len(rows) != len(sums):
            raise FormatError(
                f"{path}: tensor {name!r}: expected {len(sums)} counts, found {len(rows)}"
            )
        if not (np.isfinite(rows) & (rows >= 0)).all():
            wrong = rows[~(np.isfinite(rows) & (rows >= 0))][0]
            raise FormatError(f"{path}: tensor {name!r}: expected counts of rows, found {wrong}")
        means = sums / np.maximum(rows, np.float32(1))[:, None]
        entries[name.removesuffix(_SUMS)] = means.astype(np.float32, copy=False)
    return entries


def _read_old(path: Path, data: memoryview) -> dict[str, F32Array]:
    at = 0

    def take(size: int, what: str) -> memoryview:
        nonlocal at
        if not 0 <= size <= len(data) - at:
            raise FormatError(
                f"{path}: expected an imatrix of llama.cpp: {what} of {size} bytes at offset {at} "
                f"in a file of {len(data)}"
            )
        at += size
        return data[at - size : at]

    def number(what: str, most: int) -> int:
        (value,) = struct.unpack("<i", take(4, what))
        if not 0 <= value <= most:
            raise FormatError(
                f"{path}: expected an imatrix of llama.cpp: {what} of 0 to {most} at offset "
                f"{at - 4}, found {value}"
            )
        return int(value)

    entries: dict[str, F32Array] = {}
    for _ in range(number("number of entries", _MAX_ENTRIES)):
        name = bytes(take(number("length of a name", _MAX_NAME), "name")).decode("utf-8", "replace")
        calls = number("number of calls", (1 << 31) - 1)
        size = 4 * number("number of values", _MAX_VALUES)
        values = np.frombuffer(take(size, f"values of {name!r}"), "<f4")
        entries[name] = (values / np.float32(max(calls, 1))).astype(np.float32, copy=False)
    return entries


def _old(moments: Mapping[str, Moments], chunks: int, text: str) -> bytes:
    parts = [struct.pack("<i", len(moments))]
    for name, found in moments.items():
        encoded = name.encode()
        means = found.squares / np.maximum(found.counts, 1)[:, None]
        values = (means * chunks).astype("<f4").tobytes()
        parts.append(struct.pack("<i", len(encoded)) + encoded)
        parts.append(struct.pack("<ii", chunks, len(values) // 4) + values)
    encoded = text.encode()
    return b"".join([*parts, struct.pack("<ii", chunks, len(encoded)), encoded])
