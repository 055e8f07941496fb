"""llama.cpp's mixtures: files in which some matrices take another type than the others.

Source: llama.cpp's quantizer, without an importance matrix. The head takes Q6_K. Of a tensor's
rules, the first that holds decides; without one it takes the mixture's own type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Model:
    """What the choice depends on.

    Attributes
    ----------
    layers : int
    tied : bool
        The token embedding is the head as well.
    architecture : str
        GGUF's name.
    sharing : int
        Heads that share keys and values.
    experts : int
        Of a layer.
    attention : tuple of int
        The layers that have attention, if not all.
    """

    layers: int
    tied: bool = True
    architecture: str = ""
    sharing: int = 1
    experts: int = 0
    attention: tuple[int, ...] | None = None

    @property
    def is_falcon(self) -> bool:
        """Whether llama.cpp has rules of its own for the architecture."""
        return self.architecture == "falcon"


Where = Callable[[int, int, Model], bool]  # of a layer's number and their count


def takes_more(layer: int, layers: int) -> bool:
    """Whether llama.cpp's mixtures give a layer more bits.

    They are the first and the last eighth, and every third between.
    """
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _always(i: int, n: int, model: Model) -> bool:
    return True


def _more(i: int, n: int, model: Model) -> bool:
    return takes_more(i, n)


def _first_two(i: int, n: int, model: Model) -> bool:
    return i < 2


def _first_four(i: int, n: int, model: Model) -> bool:
    return i < 4


def _sixteenth(i: int, n: int, model: Model) -> bool:
    return i < n // 16


def _eighth(i: int, n: int, model: Model) -> bool:
    return i < n // 8


def _shared(i: int, n: int, model: Model) -> bool:
    return model.sharing >= 4


def _falcon(i: int, n: int, model: Model) -> bool:
    return model.is_falcon


def _falcon_sixteenth(i: int, n: int, model: Model) -> bool:
    return model.is_falcon and i < n // 16


def _falcon_more(i: int, n: int, model: Model) -> bool:
    return model.is_falcon and takes_more(i, n)


def _falcon_fewer(i: int, n: int, model: Model) -> bool:
    return model.is_falcon and not takes_more(i, n)


class Rule(NamedTuple):
    """The type of one part of the layers that `where` accepts."""

    part: str
    format: str
    where: Where = _always


class Mixture(NamedTuple):
    """A mixture: llama.cpp's ``general.file_type``, and formats by name."""

    format: str
    file_type: int
    rules: tuple[Rule, ...] = ()
    eight: str = ""  # of attn_output in models with eight experts
    head: str = "Q6_K"
    embeddings: str = ""


_IQ4 = (Rule("attn_v", "Q5_K", _shared), Rule("ffn_down", "Q5_K", _eighth))

MIXTURES = {
    "Q2_K": Mixture("Q2_K", 10, (
        Rule("attn_v", "Q4_K", _shared), Rule("attn_v", "Q3_K"), Rule("ffn_down", "Q3_K"),
        Rule("attn_output", "Q3_K"),
    ), eight="Q5_K"),
    "Q2_K_S": Mixture("Q2_K", 21, (
        Rule("attn_v", "Q4_K", _shared), Rule("ffn_down", "Q4_K", _eighth),
    )),
    "Q3_K_S": Mixture("Q3_K", 11, eight="Q5_K"),
    "Q3_K_M": Mixture("Q3_K", 12, (
        Rule("attn_v", "Q5_K", _first_two), Rule("attn_v", "Q4_K"),
        Rule("ffn_down", "Q5_K", _sixteenth), Rule("ffn_down", "Q3_K", _falcon_fewer),
        Rule("ffn_down", "Q4_K"), Rule("attn_output", "Q3_K", _falcon),
        Rule("attn_output", "Q4_K"), Rule("attn_qkv", "Q4_K"),
    ), eight="Q5_K"),
    "Q3_K_L": Mixture("Q3_K", 13, (
        Rule("attn_v", "Q5_K"), Rule("ffn_down", "Q4_K", _falcon), Rule("ffn_down", "Q5_K"),
        Rule("attn_output", "Q4_K", _falcon), Rule("attn_output", "Q5_K"),
        Rule("attn_qkv", "Q4_K"),
    )),
    "Q4_K_S": Mixture("Q4_K", 14, (
        Rule("attn_v", "Q5_K", _first_four), Rule("ffn_down", "Q4_K", _falcon),
        Rule("ffn_down", "Q5_K", _eighth),
    ), eight="Q5_K"),
    "Q4_K_M": Mixture("Q4_K", 15, (
        Rule("attn_v", "Q6_K", _more), Rule("ffn_down", "Q6_K", _falcon_sixteenth),
        Rule("ffn_down", "Q5_K", _falcon_more), Rule("ffn_down", "Q4_K", _falcon),
        Rule("ffn_down", "Q6_K", _more), Rule("attn_qkv", "Q5_K"),
    ), eight="Q5_K"),
    "Q5_K_S": Mixture("Q5_K", 16),
    "Q5_K_M": Mixture("Q5_K", 17, (
        Rule("attn_v", "Q6_K", _more), Rule("ffn_down", "Q6_K", _more), Rule("attn_qkv", "Q6_K"),
    )),
    "Q6_K": Mixture("Q6_K", 18),
    "IQ4_NL": Mixture("IQ4_NL", 25, _IQ4, eight="Q5_K"),
    "IQ4_XS": Mixture("IQ4_XS", 30, _IQ4, eight="Q5_K"),
    "TQ2_0": Mixture("TQ2_0", 37, embeddings="Q4_K"),
    "MXFP4_MOE": Mixture("Q8_0", 38, (Rule("experts", "MXFP4"),), head="Q8_0"),
}  # fmt: skip
"""By llama.cpp's names."""


def choose(mixture: Mixture, name: str, model: Model) -> str:
    """The name of the format of a layer's matrix, by its GGUF name."""
    match = re.fullmatch(r"blk\.(\d{1,9})\.(\w+)\.weight", name)
    if match is None:
        return mixture.format
    layer, part = int(match[1]), match[2]
    if part.endswith("_exps") and any(rule.part == "experts" for rule in mixture.rules):
        part = "experts"
    elif part.startswith("ffn_down"):
        part = "ffn_down"
    if model.experts == 8:
        if part in ("attn_v", "attn_k"):
            return "Q8_0"
        if part == "attn_output":
            return mixture.eight or mixture.format
    i, n = layer, model.layers
    if part == "attn_v" and model.attention is not None:
        i, n = sum(other < layer for other in model.attention), len(model.attention)
    chosen = next(
        (r.format for r in mixture.rules if r.part == part and r.where(i, n, model)),
        mixture.format,
    )
    # In the models of 70 billion weights, attn_v is small
    if part == "attn_v" and model.layers == 80 and model.sharing > 1 and chosen in ("Q3_K", "Q4_K"):
        return "Q5_K"
    return chosen
