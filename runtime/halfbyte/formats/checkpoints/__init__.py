"""Tensors under the names that their trainer gave them, before they become a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.formats.mapped import Pages
from halfbyte.weights import BF16, F16, F32, U8, Tensor, WeightFormat

MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 48
MAX_NAME = 255


# Types of tensors that only quantized folders have
RAW: dict[str, np.dtype[Any]] = {
    "I32": np.dtype("<i4"), "I64": np.dtype("<i8"), "I8": np.dtype("i1"), "U8": np.dtype("u1"),
    "F8_E4M3": np.dtype("u1"),
}  # fmt: skip


@dataclass(frozen=True)
class RawTensor:
    """A tensor of integers, or of FP8 as bytes."""

    dtype: str  # a key of RAW
    values: npt.NDArray[Any]


@dataclass
class Checkpoint:
    """The content of safetensors and PyTorch files."""

    kind: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    raw: dict[str, RawTensor] = field(default_factory=dict)  # among `unusable` too
    unusable: dict[str, str] = field(default_factory=dict)  # name -> reason: "dtype I64, ..."
    parts: dict[Path, Pages] = field(default_factory=dict)

    def add(self, name: str, format_: type[WeightFormat], shape: tuple[int, ...], data: U8) -> None:
        """Add a tensor in C order at any address; a scalar becomes a vector of one element."""
        if len(shape) > MAX_DIMENSIONS or 0 in shape:
            self.unusable[name] = f"shape {list(shape)}, expected 1 to 4 dimensions of 1 or more"
        else:
            self.tensors[name] = Tensor(name, format_, shape or (1,), data)

    def refuse_type(self, name: str, dtype: str) -> None:
        """Record a tensor of another type, which is an error only if the model needs it."""
        known = ", ".join(f.name for f in (F32, F16, BF16))
        self.unusable[name] = f"dtype {dtype[:40]!r}, expected one of {known}"
