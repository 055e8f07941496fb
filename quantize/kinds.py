"""What may be asked for: a type for most matrices of a file, and which ones take another."""

from __future__ import annotations

import re
from dataclasses import dataclass

from halfbyte.weights import (
    BF16,
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    WeightFormat,
)

Format = type[WeightFormat]


@dataclass(frozen=True)
class Kind:
    """A type of files.

    Attributes
    ----------
    format : WeightFormat
        Of matrices.
    file_type : int
        llama.cpp's number for it (``general.file_type``).
    head : WeightFormat or None
        Of the head, and of the token embedding where that is the head too; None: `format`.
    embeddings : WeightFormat or None
        Of the token embedding beside a head, and of position embeddings; None: `format`.
    some, fused : WeightFormat or None
        In a mixture, of ``attn_v`` and ``ffn_down`` in `takes_more` layers, and of ``attn_qkv``.
    """

    format: Format
    file_type: int
    head: Format | None = None
    embeddings: Format | None = None
    some: Format | None = None
    fused: Format | None = None

    def format_of(self, name: str, layers: int, *, tied: bool, pure: bool = False) -> Format:
        """The format of a matrix by its GGUF name, in a model of so many layers.

        `tied`: the token embedding is the head too. `pure`: without exceptions for embeddings.
        """
        if pure and name in ("output.weight", "token_embd.weight", "position_embd.weight"):
            return self.format
        if name == "output.weight" or (tied and name == "token_embd.weight"):
            return self.head or self.format
        if name in ("token_embd.weight", "position_embd.weight"):
            return self.embeddings or self.format
        part = re.fullmatch(r"blk\.(\d{1,9})\.(attn_v|attn_qkv|ffn_down)\.weight", name)
        if part is None:
            return self.format
        if part[2] == "attn_qkv":
            return self.fused or self.format
        return (self.some if takes_more(int(part[1]), layers) else None) or self.format


def takes_more(layer: int, layers: int) -> bool:
    """Whether a layer is one of those that llama.cpp's mixtures give more bits.

    The first and the last eighth, and every third in between. Source: llama.cpp's `quantize`.
    """
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


KINDS = {
    "int4": Kind(Q4_0, 2, head=Q8_0, embeddings=Q8_0),
    "int8": Kind(Q8_0, 7),
    "fp16": Kind(F16, 1),
    "bf16": Kind(BF16, 32),
}
"""The kinds that have a name of their own."""

TYPES = {
    "F32": Kind(F32, 0),
    "F16": KINDS["fp16"],
    "BF16": KINDS["bf16"],
    "Q8_0": KINDS["int8"],
    "Q4_0": KINDS["int4"],
    "Q4_1": Kind(Q4_1, 3, head=Q8_0, embeddings=Q8_0),
    "Q5_0": Kind(Q5_0, 8, head=Q8_0, embeddings=Q8_0),
    "Q5_1": Kind(Q5_1, 9, head=Q8_0, embeddings=Q8_0),
    "Q4_K": Kind(Q4_K, 14, head=Q6_K),
    "Q4_K_M": Kind(Q4_K, 15, head=Q6_K, some=Q6_K, fused=Q5_K),
    "Q5_K": Kind(Q5_K, 16, head=Q6_K),
    "Q5_K_M": Kind(Q5_K, 17, head=Q6_K, some=Q6_K, fused=Q6_K),
    "Q6_K": Kind(Q6_K, 18),
}
"""The kinds by GGUF's and llama.cpp's names."""

# The next wider type, where a row is no whole number of blocks or a value does not fit
WIDER: dict[Format, Format] = {
    Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0, Q4_1: Q8_0, Q5_0: Q8_0, Q5_1: Q8_0,
    Q4_0: Q8_0, Q8_0: F16, F16: F32, BF16: F32,
}  # fmt: skip


def canonical(name: str) -> str:
    """A type's name as it is written, from any spelling in small and capital letters."""
    known = {known.lower(): known for known in (*TYPES, *KINDS)}
    return known.get(name.lower(), name)
