"""Qwen 3 Next: gated delta nets, attention with gates in every fourth layer, and experts.

Qwen 3.5 has these layers, too. Layers that guess further tokens are passed over.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _delta, _experts, qwen2moe, qwen3
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._decoder import ATTENTION
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {
    **{norm: parts for norm, parts in CHANNELS.items() if norm != "ffn_norm"},
    "attn_norm": (
        *CHANNELS["attn_norm"], "attn_gate", "ssm_in", "ssm_ba", "ssm_beta", "ssm_alpha",
    ),
    "post_attention_norm": CHANNELS["ffn_norm"],
}  # fmt: skip
MODEL_TYPES = ("qwen3_next",)
BLOCK = Block(head_norms="heads", ffn_norm="post_attention_norm", gated_heads=True)
build = partial(_block.build, BLOCK)
PERIOD = 4  # layers, the last of which attends, if a file does not say


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    translate_layers(config, "qwen3next", apart=False)
    translate_experts(config)


def translate_experts(config: Translation) -> None:
    """Set the sizes of experts, and of the part for every token."""
    config.keys = config.keys.otherwise(norm_topk_prob=True)
    qwen2moe.translate_experts(config, normalize=True)
    _experts.translate_shared(config, config.keys.integer("shared_expert_intermediate_size", 512))
    config.names = {**config.names, **_experts.NAMES, **_experts.SHARED}


def translate_layers(config: Translation, architecture: str, *, apart: bool) -> None:
    """Set the sizes and names of layers; for `apart` see :func:`_delta.translate`."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("attention_bias", False)
    config.decoder(architecture, 256)
    config.partial_rotation(0.25)
    config.rope()
    heads, dim = (config.size(f"attention.{n}") for n in ("head_count", "key_length"))
    config.shapes["attn_q"] = (2 * heads * dim, config.size("embedding_length"))
    _delta.translate(config, apart=apart)
    attends = _attends(config)
    linear = ("ssm_", "attn_gate", "attn_qkv")
    config.uneven = tuple(
        f"blk.{layer}.{part}"
        for layer, attending in enumerate(attends)
        for part in (linear if attending else (*ATTENTION, "attn_q_norm", "attn_k_norm"))
    )
    config.add_one("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm")
    config.names = {
        **NAMES,
        **qwen3.HEAD_NORMS,
        "post_attention_layernorm": "post_attention_norm",
        **{f"linear_attn.{name}": new for name, new in _delta.NAMES.items()},
    }
    config.dropped = ("mtp.",)
    config.tied = keys.boolean("tie_word_embeddings", False)


def _attends(config: Translation) -> list[bool]:
    """Set which layers attend: by `layer_types`, or the last of each period."""
    keys, known = config.keys, ("linear_attention", "full_attention")
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    types = keys.list("layer_types")
    period = keys.integer("full_attention_interval", PERIOD)
    if not types:
        types = [known[(layer + 1) % period == 0] for layer in range(layers)]
    if len(types) != layers or any(kind not in known for kind in types):
        raise FormatError(f"{keys.where}: key 'layer_types': expected {layers} of {known}")
    attends = [kind == known[1] for kind in types]
    if True in attends:
        period = attends.index(True) + 1
    config.metadata["full_attention_interval"] = np.uint32(period)
    if attends != [(layer + 1) % period == 0 for layer in range(layers)]:
        config.metadata["attention.recurrent_layers"] = ~np.array(attends)
    return attends


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen3next.*``."""
    keys = Keys(file, "qwen3next")
    return read(keys, apart=False, experts=_experts.read(keys))


def read(keys: Keys, *, apart: bool, experts: _experts.Experts | None = None) -> Config:
    """Hyperparameters of a model with these layers."""
    blocks = keys.size("block_count", 1 << 10)
    layers = blocks - keys.size("nextn_predict_layers", blocks - 1, 0, low=0)
    period = keys.size("full_attention_interval", 1 << 10, PERIOD)
    recurrent = keys.flags("attention.recurrent_layers", blocks)
    recurrent = recurrent or tuple((layer + 1) % period != 0 for layer in range(blocks))
    config = _block.read_config(
        keys, BLOCK, experts=experts, mixer=_delta.read(keys, apart=apart),
        attends=tuple(not flag for flag in recurrent),
        spare=tuple(f"blk.{layer}." for layer in range(layers, blocks)),
        others={"rope.dimension_sections": metadata.ANY},
    )  # fmt: skip
    return replace(config, layers=layers)
