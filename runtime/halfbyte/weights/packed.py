"""Layouts of weights that only memory has: block formats with rows interleaved."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, BlockFormat, Layout

# Fields of files that hold integers; the others hold scales
_QUANTIZED = ("qs", "qh", "ql", "hmask")


class Packed(BlockFormat, Layout):
    """A block format whose rows are interleaved in sixteens, for products with many rows at once.

    A permutation of bits; the size stays the same. Layout: group by group of sixteen rows, block
    after block. A block begins with the F16 numbers of all rows, followed, where scales are bytes,
    by the first scale byte of every row, the second, and so on. Then come, for every 32 columns,
    the quantized values: bytes of columns 0 to 3 of every row, of columns 4 to 7, and so on. Below
    eight bits, a byte's low four bits belong to one of the first sixteen columns, its high four to
    the column sixteen further on. The fifth bits follow, bit i of byte c for column 4 i + c; or
    fifth and sixth bits, as bits 2 i and 2 i + 1 of byte c, in two pieces of sixteen columns each.
    Below four bits, there are as many pieces of bytes as bits; the others are in their free bits:
    see `_fewer`.

    Rows after the last sixteen are stored as in the file. ``rows`` is the inverse.
    """

    GROUP: ClassVar[int] = 16

    @classmethod
    def _group(cls) -> np.dtype[np.void]:
        fields: list[Any] = []
        for name in sorted(set(cls.layout.names or ()) - {*_QUANTIZED}):  # d before dmin and scales
            width = cls.layout[name].base.itemsize
            count = cls.layout[name].shape
            fields.append((name, f"<u{width}", (*count, cls.GROUP)))
        pieces = 8 if cls.bits == 8 else min(cls.bits, 4)
        parts: list[Any] = [("qs", "u1", (pieces, cls.GROUP, 4))]
        if cls._planes():
            parts.append(("qh", "u1", (cls._planes(), cls.GROUP, 4)))
        return np.dtype([*fields, ("quantized", parts, (cls.block // 32,))])

    @classmethod
    def _planes(cls) -> int:
        """Bits of an integer beyond the low four; they are stored in as many pieces."""
        return 0 if cls.bits == 8 else max(cls.bits - 4, 0)

    @classmethod
    def pack(cls, rows: U8) -> U8:
        """Bytes [rows, row_bytes] in the file's order -> all bytes in this order."""
        whole = len(rows) // cls.GROUP * cls.GROUP
        blocks = np.ascontiguousarray(rows[:whole]).view(cls.layout)
        blocks = blocks.reshape(-1, cls.GROUP, blocks.shape[1]).swapaxes(1, 2)
        packed = np.empty(blocks.shape[:2], cls._group())
        for name, part in _scales(packed):
            part[...] = np.moveaxis(blocks[name].view(part.dtype), 2, -1)
        q = cls.get_quantized(blocks).reshape(*blocks.shape, cls.block // 32, 8, 4)
        q = np.moveaxis(q, 2, 4)  # [groups, blocks, 32s, fours, rows, 4]
        qs = q
        if cls.bits != 8:
            both = (q[..., :4, :, :] & np.uint8(15)) | (q[..., 4:, :, :] << np.uint8(4))
            qs = _fewer(both, cls.bits)
        packed["quantized"]["qs"] = qs
        if planes := cls._planes():
            split = q.reshape(*q.shape[:3], planes, 8 // planes, cls.GROUP, 4)
            high = (split >> np.uint8(4)) << _shifts(planes)
            packed["quantized"]["qh"] = np.bitwise_or.reduce(high, axis=4)
        return np.concatenate([packed.reshape(-1).view(np.uint8), rows[whole:].reshape(-1)])

    @classmethod
    def rows(cls, data: U8, columns: int) -> U8:
        """The inverse of `pack`."""
        rows = np.empty((data.size // cls.row_bytes(columns), cls.row_bytes(columns)), np.uint8)
        whole = len(rows) // cls.GROUP * cls.GROUP
        size = whole * rows.shape[1]
        packed = data[:size].view(cls._group()).reshape(-1, columns // cls.block)
        blocks = np.zeros((*packed.shape, cls.GROUP), cls.layout)
        for name, part in _scales(packed):
            blocks[name].view(part.dtype)[...] = np.moveaxis(part, -1, 2)
        q = packed["quantized"]["qs"]
        if cls.bits != 8:
            q = _pairs(q, cls.bits)
            q = np.concatenate([q & np.uint8(15), q >> np.uint8(4)], axis=3)
        if planes := cls._planes():
            high = packed["quantized"]["qh"][:, :, :, :, None] >> _shifts(planes)
            q |= (high & np.uint8(2**planes - 1)).reshape(q.shape) << np.uint8(4)
        q = np.moveaxis(q, 4, 2)
        cls.store_quantized(blocks, np.ascontiguousarray(q).reshape(*blocks.shape, cls.block))
        rows[:whole] = (
            np.ascontiguousarray(blocks.swapaxes(1, 2)).view(np.uint8).reshape(whole, rows.shape[1])
        )
        rows[whole:] = data[size:].reshape(-1, rows.shape[1])
        return rows


def _fewer(pairs: U8, bits: int) -> U8:
    """Four pieces [..., 4, rows, 4] of two integers in a byte as `bits` pieces.

    Of three bits, bit i of the fourth piece's integers is the fourth bit of those of piece i; of
    two bits, integers of the last two pieces are above those of the first two.
    """
    if bits >= 4:
        return pairs
    if bits == 2:
        return pairs[..., :2, :, :] | pairs[..., 2:, :, :] << np.uint8(2)
    fourth = pairs[..., 3:, :, :] >> _shifts(1)[:3] & np.uint8(0x11)
    return pairs[..., :3, :, :] | fourth << np.uint8(3)


def _pairs(pieces: U8, bits: int) -> U8:
    """The inverse of `_fewer`."""
    if bits >= 4:
        return pieces
    if bits == 2:
        mask = np.uint8(0x33)
        return np.concatenate([pieces & mask, pieces >> np.uint8(2) & mask], axis=-3)
    fourth = (pieces >> np.uint8(3) & np.uint8(0x11)) << _shifts(1)[:3]
    whole = np.bitwise_or.reduce(fourth, axis=-3, keepdims=True)
    return np.concatenate([pieces & np.uint8(0x77), whole], axis=-3)


def _scales(packed: npt.NDArray[np.void]) -> list[tuple[str, npt.NDArray[Any]]]:
    """Fields of scales and minima, by name."""
    return [(name, packed[name]) for name in packed.dtype.names or () if name != "quantized"]


def _shifts(planes: int) -> U8:
    """The position of four columns' bits in a byte of a piece, for [..., fours, rows, 4]."""
    return (np.arange(8 // planes, dtype=np.uint8) * np.uint8(planes))[:, None, None]


def packed_rows(format_: type[BlockFormat]) -> type[Packed]:
    """The packed layout of a format; always the same class."""
    if "packed" not in vars(format_):
        name = f"{format_.name}_R16"
        fields = {"name": name, "dtype": name.lower(), "packed": None}
        doc = f"{format_.name}, packed."
        format_.packed = type(name, (Packed, format_), {**fields, "__doc__": doc})
    layout: type[Packed] = vars(format_)["packed"]
    return layout
