"""Weight formats: how a row of numbers is stored in bytes, and what those bytes mean.

One class per format, with GGUF's layout: `plain` numbers, `blocks` of 32, `kquants` of 256, `iq4`
of four bits looked up in a table, `few_bits` and `grids` of fewer. The class holds all that is
known of the format: GGUF's name and number (``ggml_type``), the block in a file, how its rows are
packed in memory (``packing``), how scales are searched and stored (`scaled`), the types of files
that `quantize` makes in it (``presets``), the format for tensors that do not fit (``wider``), and
the format whose products take as long (``like``). ``decode`` and ``encode`` are the definition,
byte-identical to PyPI's `gguf` (which encodes neither K-quants nor IQ types); C kernels are
compared with them byte for byte. ``quantized`` is a block as integer products see it.
Formats with a layout ``in_memory`` (`codes`) are ``converted`` to it when a model is loaded.

Adding ``weights/<name>.py`` with a class under ``@register`` adds a format: GGUF files are read
and written in it, programs run in it on NumPy's backend, `quantize` offers its presets
(tests/weights/test_added_format.py does so). Kernels make it fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.weights.base import U8, BlockFormat, F32Array, Layout, QuantizedBlocks, WeightFormat
from halfbyte.weights.blocks import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from halfbyte.weights.iq4 import IQ4_NL, IQ4_XS, MXFP4
from halfbyte.weights.kquants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from halfbyte.weights.packed import Packed
from halfbyte.weights.plain import BF16, F16, F32
from halfbyte.weights.registry import BY_DTYPE, BY_GGML_TYPE, FORMATS
from halfbyte.weights.scaled import ScaledFormat

__all__ = [
    "BF16", "BY_DTYPE", "BY_GGML_TYPE", "F16", "F32", "FORMATS", "IQ4_NL", "IQ4_XS",
    "MXFP4", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "U8",
    "BlockFormat", "F32Array", "Layout", "Packed", "QuantizedBlocks", "ScaledFormat", "Tensor",
    "WeightFormat",
]  # fmt: skip


def register_all() -> None:
    """Import every module here: a format in a file of its own registers itself."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


register_all()


@dataclass(frozen=True)
class Tensor:
    """A named matrix or vector as stored in a file; `data` is a view, usually of mapped pages.

    `shape` is in C order: (rows, columns) for a matrix, (length,) for a vector (GGUF's own order
    is the reverse). `data` is one-dimensional uint8, exactly the tensor's bytes. A `part` of a
    matrix refers to the `whole`, of which it has the rows `picked`, a slice
    or numbers.
    """

    name: str
    format: type[WeightFormat]
    shape: tuple[int, ...]
    data: U8
    whole: Tensor | None = field(default=None, repr=False, compare=False)
    picked: Any = field(default=None, repr=False, compare=False)

    @property
    def columns(self) -> int:
        """Length of the innermost dimension."""
        return self.shape[-1]

    @property
    def row_count(self) -> int:
        """Number of rows, all outer dimensions flattened; a vector is one row."""
        return math.prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Size of `data`, which is not read."""
        return self.row_count * self.format.row_bytes(self.columns)

    @property
    def rows(self) -> U8:
        """The bytes as [rows, row_bytes], all outer dimensions flattened."""
        return self.format.rows(self.data, self.columns)

    def take(self, first: int, count: int) -> U8:
        """The bytes of at most `count` rows from row `first` on, as [rows, row_bytes]."""
        return self.rows[first : first + count]

    def part(self, first: int, end: int) -> Tensor:
        """Rows [first, end) as a matrix of its own: a view."""
        data = self.rows[first:end].reshape(-1)
        return Tensor(
            f"{self.name}[{first}:{end}]", self.format, (end - first, self.columns), data, self,
            slice(first, end),
        )  # fmt: skip

    def matrix(self, index: int) -> Tensor:
        """One of the matrices [m, k] that a tensor [e, m, k] stacks: a view."""
        size = self.nbytes // self.shape[0]
        data = self.data[index * size : (index + 1) * size]
        return Tensor(f"{self.name}[{index}]", self.format, self.shape[1:], data, self)

    @property
    def owned(self) -> bool:
        """Whether the bytes are this process's own, so that `release` can give them away.

        Those that were given away are.
        """
        data = vars(self).get("data")
        return data is None or bool(data.flags.writeable)

    def release(self) -> U8:
        """Give the bytes away: the caller may overwrite them.

        Using the tensor afterwards, or the whole of which it is a part, is an error.
        """
        if not self.owned:
            raise HalfbyteError(f"tensor {self.name!r}: expected bytes in memory, found a file's")
        data = self.data
        for tensor in (self, self.whole):
            if tensor is not None and tensor.owned:
                tensor._forget()
        return data

    def _forget(self) -> None:
        vars(self).pop("data", None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "data":
                raise HalfbyteError(f"tensor {self.name!r}: its bytes were given away to be packed")
            raise AttributeError(f"a tensor has no attribute {name!r}")

    def decode(self) -> F32Array:
        """All values as float32 in `shape`, in NumPy's memory wherever the tensor's bytes are."""
        return self.format.decode(np.asarray(self.rows)).reshape(self.shape)
