"""Presets of `quantize`: a format for most matrices of a file, and which ones take another.

Mixtures, such as Q4_K_M, give some tensors more bits, by llama.cpp's rule
(:mod:`halfbyte.quantize.mixtures`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from halfbyte.quantize.mixtures import MIXTURES, Mixture, Model, choose
from halfbyte.weights import F16, F32, FORMATS, WeightFormat
from halfbyte.weights.base import Preset

Format = type[WeightFormat]
# Endings of names
_FLOATS = (
    "token_types.weight", ".ffn_gate_inp.weight", ".shortconv.conv.weight", ".bias",
    ".ssm_a", ".ssm_d", ".ssm_conv1d.weight", ".ssm_norm.weight", ".altup_router.weight",
    ".altup_correct_coef.weight", ".altup_predict_coef.weight", ".time_mix_lerp_fused.weight",
    *(f".time_mix_{part}{number}.weight" for part in "wavg" for number in "12"),
)  # fmt: skip
_HALVES = (
    "altup_proj.weight", "altup_unembd_proj.weight", ".laurel_l.weight", ".laurel_r.weight",
    "per_layer_model_proj.weight",
)  # fmt: skip


@dataclass(frozen=True)
class ResolvedPreset:
    """A preset with its formats, which a `halfbyte.weights` preset or a mixture names.

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
    mixture : Mixture or None
        What chooses the formats of the layers' matrices.
    """

    format: Format
    file_type: int
    head: Format | None = None
    embeddings: Format | None = None
    mixture: Mixture | None = None

    def format_of(self, name: str, model: Model, *, pure: bool = False) -> Format:
        """The format of a matrix by its GGUF name.

        `pure`: all matrices take `format`. As in llama.cpp, types of tokens, which it adds as they
        are, routers and biases stay F32, and some matrices are not quantized.
        """
        if name.endswith(_FLOATS):
            return F32
        if name.endswith(_HALVES):
            return self.format if self.format.block == 1 else F16
        if pure:
            return self.format
        if name == "output.weight" or (model.tied and name == "token_embd.weight"):
            if self.mixture is not None and model.is_falcon:
                return FORMATS["Q8_0"]
            return self.head or self.format
        if name in ("token_embd.weight", "position_embd.weight"):
            return self.embeddings or self.format
        if self.mixture is not None:
            return FORMATS[choose(self.mixture, name, model)]
        return self.format


ALIASES = {"int4": "Q4_0", "int8": "Q8_0", "fp16": "F16", "bf16": "BF16"}
"""Short names, which are options of the command, and the presets that they stand for."""


def presets() -> dict[str, ResolvedPreset]:
    """All presets by GGUF's and llama.cpp's names, as formats declare them, and the mixtures."""
    known: dict[str, ResolvedPreset] = {}
    for format_ in FORMATS.values():
        known |= {preset.name: _resolved(format_, preset) for preset in format_.presets}
        known |= {name: _mixed(m) for name, m in MIXTURES.items() if m.format == format_.name}
    return known


def fitting(format_: Format, columns: int) -> Format:
    """The format, or a wider one, whose blocks divide a row of this number of columns."""
    while columns % format_.block:
        format_ = format_.wider
    return format_


def _resolved(format_: Format, preset: Preset) -> ResolvedPreset:
    head, embeddings = (FORMATS[n] if n else None for n in (preset.head, preset.embeddings))
    return ResolvedPreset(format_, preset.file_type, head, embeddings)


def _mixed(mixture: Mixture) -> ResolvedPreset:
    preset = Preset("", mixture.file_type, mixture.head, mixture.embeddings)
    return replace(_resolved(FORMATS[mixture.format], preset), mixture=mixture)


def canonical(name: str) -> str:
    """A preset's name in its usual spelling, from any mixture of small and capital letters."""
    spellings = {known.lower(): known for known in (*presets(), *ALIASES)}
    return spellings.get(name.lower(), name)
