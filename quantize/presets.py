"""Presets of `quantize`: a format for most matrices of a file, and which ones take another.

Mixtures (Q4_K_M, Q5_K_M) give some tensors more bits, by llama.cpp's rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from halfbyte.weights import F32, FORMATS, WeightFormat
from halfbyte.weights.base import Preset

Format = type[WeightFormat]
# Endings of names
_FLOATS = (
    "token_types.weight", ".ffn_gate_inp.weight", ".shortconv.conv.weight", ".bias",
    ".ssm_a", ".ssm_d", ".ssm_conv1d.weight", ".ssm_norm.weight",
)  # fmt: skip


@dataclass(frozen=True)
class ResolvedPreset:
    """A preset with its formats, which a `halfbyte.weights` preset names.

    Attributes
    ----------
    format : WeightFormat
        Format of matrices.
    file_type : int
        llama.cpp's number of the preset (``general.file_type``).
    head : WeightFormat or None
        Format of the head, and of a token embedding that is the head as well; None: `format`.
    embeddings : WeightFormat or None
        Format of a token embedding beside a head, and of position embeddings; None: `format`.
    some, fused : WeightFormat or None
        In a mixture, formats of ``attn_v`` and ``ffn_down`` in `takes_more` layers, and of
        ``attn_qkv``.
    """

    format: Format
    file_type: int
    head: Format | None = None
    embeddings: Format | None = None
    some: Format | None = None
    fused: Format | None = None

    def format_of(self, name: str, layers: int, *, tied: bool, pure: bool = False) -> Format:
        """The format of a matrix by its GGUF name, in a model with this number of layers.

        `tied`: the token embedding is the head as well. `pure`: embeddings and head take `format`.
        As in llama.cpp, types of tokens, which it adds as they are, routers and biases stay F32.
        """
        if name.endswith(_FLOATS):
            return F32
        if pure and name in ("output.weight", "token_embd.weight", "position_embd.weight"):
            return self.format
        if name == "output.weight" or (tied and name == "token_embd.weight"):
            return self.head or self.format
        if name in ("token_embd.weight", "position_embd.weight"):
            return self.embeddings or self.format
        part = re.fullmatch(
            r"blk\.(\d{1,9})\.(attn_v|attn_qkv|ffn_down)(?:_exps|_shexp)?\.weight", name
        )
        if part is None:
            return self.format
        if part[2] == "attn_qkv":
            return self.fused or self.format
        return (self.some if takes_more(int(part[1]), layers) else None) or self.format


def takes_more(layer: int, layers: int) -> bool:
    """Whether llama.cpp's mixtures give a layer more bits.

    They are the first and the last eighth, and every third between. Source: llama.cpp's quantizer.
    """
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


ALIASES = {"int4": "Q4_0", "int8": "Q8_0", "fp16": "F16", "bf16": "BF16"}
"""Short names, which are options of the command, and the presets that they stand for."""


def presets() -> dict[str, ResolvedPreset]:
    """All presets by GGUF's and llama.cpp's names, as formats declare them."""
    return {p.name: _resolved(format_, p) for format_ in FORMATS.values() for p in format_.presets}


def fitting(format_: Format, columns: int) -> Format:
    """The format, or a wider one, whose blocks divide a row of this number of columns."""
    while columns % format_.block:
        format_ = format_.wider
    return format_


def _resolved(format_: Format, preset: Preset) -> ResolvedPreset:
    _, file_type, *names = preset
    return ResolvedPreset(format_, file_type, *(FORMATS[name] if name else None for name in names))


def canonical(name: str) -> str:
    """A preset's name in its usual spelling, from any mixture of small and capital letters."""
    spellings = {known.lower(): known for known in (*presets(), *ALIASES)}
    return spellings.get(name.lower(), name)
