"""Layouts of weights in memory that no file has: block formats with rows packed together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfbyte.weights import Q4_0, Q8_0, U8, WeightFormat


class Packed(WeightFormat):
    """A block format whose rows lie together in sixteens, for products with many rows at once.

    A permutation of the same size. Layout: of each sixteen rows, block after block; in a block the
    scales of all rows, then bytes 0 to 3 of every row's codes, then 4 to 7, and so on. Rows behind
    the last sixteen lie as in the file. ``rows`` is the inverse; no file has it.
    """

    GROUP: ClassVar[int] = 16
    layout: ClassVar[np.dtype[np.void]]

    @classmethod
    def _group(cls) -> np.dtype[np.void]:
        codes = ("qs", "u1", (cls._quads(), cls.GROUP, 4))
        return np.dtype([("d", "<u2", (cls.GROUP,)), codes])

    @classmethod
    def _quads(cls) -> int:
        return (cls.block_bytes - 2) // 4

    @classmethod
    def pack(cls, rows: U8) -> U8:
        """Bytes [rows, row_bytes] in the file's order -> all bytes in this one."""
        whole = len(rows) // cls.GROUP * cls.GROUP
        blocks = np.ascontiguousarray(rows[:whole]).view(cls.layout)
        blocks = blocks.reshape(-1, cls.GROUP, blocks.shape[1]).swapaxes(1, 2)
        packed = np.empty(blocks.shape[:2], cls._group())
        packed["d"] = blocks["d"].view("<u2")
        packed["qs"] = blocks["qs"].view(np.uint8).reshape(
            *packed.shape, cls.GROUP, cls._quads(), 4
        ).swapaxes(2, 3)  # fmt: skip
        return np.concatenate([packed.reshape(-1).view(np.uint8), rows[whole:].reshape(-1)])

    @classmethod
    def rows(cls, data: U8, columns: int) -> U8:
        """The inverse of `pack`."""
        rows = np.empty((data.size // cls.row_bytes(columns), cls.row_bytes(columns)), np.uint8)
        whole = len(rows) // cls.GROUP * cls.GROUP
        size = whole * rows.shape[1]
        packed = data[:size].view(cls._group()).reshape(-1, columns // cls.block)
        blocks = np.empty((len(packed), cls.GROUP, packed.shape[1]), cls.layout)
        blocks["d"].view("<u2")[...] = packed["d"].swapaxes(1, 2)
        codes = packed["qs"].swapaxes(2, 3).reshape(*packed.shape, cls.GROUP, 4 * cls._quads())
        blocks["qs"].view(np.uint8)[...] = codes.swapaxes(1, 2)
        rows[:whole] = blocks.reshape(whole, columns // cls.block).view(np.uint8)
        rows[whole:] = data[size:].reshape(-1, rows.shape[1])
        return rows


class Q8_0_R16(Packed, Q8_0):
    """Q8_0, packed."""

    name = "Q8_0_R16"


class Q4_0_R16(Packed, Q4_0):
    """Q4_0, packed."""

    name = "Q4_0_R16"


LAYOUTS: dict[str, type[Packed]] = {f.name: f for f in (Q8_0_R16, Q4_0_R16)}
