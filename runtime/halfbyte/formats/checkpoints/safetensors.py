"""Reader and writer of safetensors (https://huggingface.co/docs/safetensors).

Layout: u64 length of the header; the header, a JSON object: name -> {dtype, shape, data_offsets}
and, under ``__metadata__``, strings; the tensors' bytes, contiguous to the end of the file.
Offsets count from the end of the header.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import MAX_ELEMENTS, MAX_NAME, RAW, Checkpoint, RawTensor
from halfbyte.formats.json_file import MAX_BYTES, parse_json
from halfbyte.formats.mapped import Pages
from halfbyte.weights import BF16, F16, F32, WeightFormat

_FORMATS: dict[str, type[WeightFormat]] = {f.name: f for f in (F32, F16, BF16)}
_SIZES = {name: f.block_bytes for name, f in _FORMATS.items()}
_SIZES |= {name: dtype.itemsize for name, dtype in RAW.items()}
_MAX_DIMENSIONS = 16
ALIGNMENT = 64  # bytes; of what is written, the first tensor begins at a multiple


def has_json_header(start: bytes) -> bool:
    """Whether a file begins with a length and a JSON object, like this format and torchless."""
    return start[8:9] == b"{" and len(start) > 9


def read_json_header(path: Path, pages: Pages) -> tuple[dict[str, Any], int]:
    """The header and its end; the JSON may be padded with spaces or zeros."""
    (length,) = struct.unpack("<Q", pages[:8])
    if length > len(pages) - 8:
        raise FormatError(
            f"{path}: truncated: a header of {length} bytes expected, {len(pages) - 8} found"
        )
    if length > MAX_BYTES:
        raise UnsupportedError(f"{path}: header of {length} bytes, expected at most {MAX_BYTES}")
    header = bytes(pages[8 : 8 + length]).rstrip(b"\0")
    return parse_json(path, header), 8 + length


def read_safetensors(path: Path, pages: Pages, header: dict[str, Any], start: int) -> Checkpoint:
    """Parse a safetensors file; tensors are views of its pages.

    Parameters
    ----------
    header, start
        From `read_json_header`.

    Raises
    ------
    FormatError
        Tensors overlap, leave gaps, or do not end where the file ends.
    """
    checkpoint = Checkpoint("safetensors", parts={path: pages})
    whole = np.frombuffer(pages, np.uint8)
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    spans = sorted((*_offsets(path, name, entry), name) for name, entry in entries.items())
    end = 0
    for first, last, name in spans:
        if first != end:
            raise FormatError(
                f"{path}: tensor {name!r}: data_offsets begin at {first}, expected {end}, where "
                "the tensor before it ends"
            )
        end = last
    if start + end != len(pages):
        problem = "truncated" if start + end > len(pages) else "too long"
        raise FormatError(
            f"{path}: {problem}: {start + end} bytes expected from the header, {len(pages)} found"
        )
    places = {name: (first, last) for first, last, name in spans}
    for name, entry in entries.items():
        first, last = places[name]
        dtype, shape = _dtype(path, name, entry), _shape(path, name, entry)
        if dtype not in _SIZES:
            checkpoint.refuse_type(name, dtype)
            continue
        if last - first != (nbytes := math.prod(shape) * _SIZES[dtype]):
            raise FormatError(
                f"{path}: tensor {name!r}: {dtype} of shape {list(shape)} takes {nbytes} bytes, "
                f"data_offsets say {last - first}"
            )
        data = whole[start + first : start + last]
        if dtype in _FORMATS:
            checkpoint.add(name, _FORMATS[dtype], shape, data)
        else:
            checkpoint.refuse_type(name, dtype)
            checkpoint.raw[name] = RawTensor(dtype, data.view(RAW[dtype]).reshape(shape))
    return checkpoint


def write_safetensors(
    file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write contiguous arrays one after another, in their order.

    Parameters
    ----------
    arrays
        By name, of float32, float16 or one of the types in `RAW`.
    """
    dtypes = {np.dtype("<f4"): "F32", np.dtype("<f2"): "F16"}
    dtypes |= {dtype: name for name, dtype in RAW.items() if not name.startswith("F8")}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays.items():
        offsets = [end, end := end + array.nbytes]
        about = {"dtype": dtypes[array.dtype], "shape": array.shape, "data_offsets": offsets}
        header[name] = about
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in arrays.values():
        file.write(array.reshape(-1).view(np.uint8).data)


def _offsets(path: Path, name: str, entry: Any) -> tuple[int, int]:
    if len(name) > MAX_NAME:
        raise FormatError(f"{path}: tensor {name[:80]!r}...: name of {len(name)} characters")
    value = entry.get("data_offsets") if isinstance(entry, dict) else None
    match value:
        case [int(first), int(last)] if 0 <= first <= last <= 8 * MAX_ELEMENTS:
            return first, last
    raise FormatError(
        f"{path}: tensor {name!r}: expected 'data_offsets' [begin, end] in the header"
    )


def _dtype(path: Path, name: str, entry: dict[str, Any]) -> str:
    value = entry.get("dtype")
    if not isinstance(value, str):
        raise FormatError(f"{path}: tensor {name!r}: expected a 'dtype' in the header")
    return value


def _shape(path: Path, name: str, entry: dict[str, Any]) -> tuple[int, ...]:
    value = entry.get("shape")
    if (
        not isinstance(value, list)
        or len(value) > _MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n <= MAX_ELEMENTS for n in value)
    ):
        raise FormatError(f"{path}: tensor {name!r}: expected a 'shape' in the header")
    return tuple(value)
