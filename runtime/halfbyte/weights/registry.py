"""The registry of formats: `register` makes a class known everywhere."""

from __future__ import annotations

from typing import TypeVar

from halfbyte.errors import HalfbyteError
from halfbyte.weights.base import BlockFormat, WeightFormat
from halfbyte.weights.packed import Packed, packed_rows

Format = TypeVar("Format", bound=type[WeightFormat])

FORMATS: dict[str, type[WeightFormat]] = {}  # by name: formats of files
BY_GGML_TYPE: dict[int, type[WeightFormat]] = {}  # the same by GGUF's number
BY_DTYPE: dict[str, type[WeightFormat]] = {}  # by dtype of buffers, packed layouts included


def register(format_: Format) -> Format:
    """Make a format known: to readers of files, programs, kernels and the quantizer.

    Raises
    ------
    HalfbyteError
        Another format has its name or its GGUF number.
    """
    for other in (FORMATS.get(format_.name), BY_GGML_TYPE.get(format_.ggml_type)):
        if other is not None and other is not format_:
            raise HalfbyteError(
                f"weight format {format_.name!r}: expected a name and a GGUF number of its own, "
                f"found {format_.ggml_type}, and {other.name!r} with {other.ggml_type}"
            )
    format_.dtype = format_.name.lower()
    FORMATS[format_.name] = BY_GGML_TYPE[format_.ggml_type] = BY_DTYPE[format_.dtype] = format_
    kind: type[WeightFormat] = format_
    if issubclass(kind, BlockFormat) and kind.packing is not None:
        layout = packed_rows(kind)
        BY_DTYPE[layout.dtype] = layout
    return format_


def register_layout(layout: Format) -> Format:
    """Make a layout known that only memory has: to programs and kernels."""
    layout.dtype = layout.name.lower()
    BY_DTYPE[layout.dtype] = layout
    kind: type[WeightFormat] = layout
    if issubclass(kind, BlockFormat):
        packed = packed_rows(kind)
        BY_DTYPE[packed.dtype] = packed
    return layout


def is_packed(dtype: str) -> bool:
    """Whether a buffer's dtype is a packed layout."""
    return issubclass(BY_DTYPE.get(dtype, WeightFormat), Packed)
