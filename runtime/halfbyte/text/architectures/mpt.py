"""MPT: ALiBi in place of positions, LayerNorm without biases, GELU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("mpt",)
BLOCK = Block(norm="layer", gated=False, activation="gelu")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("no_bias", True)
    attention = keys.inner("attn_config")
    attention.expect("attn_type", "multihead_attention")
    attention.expect("qk_ln", False)
    attention.expect("prefix_lm", False)
    attention.expect("alibi", True)
    attention.expect("softmax_scale", None)
    attention.expect("alibi_bias_max", 8, None)  # transformers has no other
    keys.expect("logit_scale", None)
    config.keys = keys.renamed(
        hidden_size="d_model",
        num_hidden_layers="n_layers",
        num_attention_heads="n_heads",
        max_position_embeddings="max_seq_len",
    )
    dim = config.keys.integer("hidden_size", maximum=1 << 20)
    config.keys = config.keys.otherwise(intermediate_size=keys.integer("expansion_ratio", 4) * dim)
    config.decoder("mpt", epsilon="layer_norm_epsilon", default_epsilon=1e-5)
    config.metadata.pop("rope.dimension_count")
    config.metadata["attention.max_alibi_bias"] = np.float32(8)
    if attention.get("clip_qkv") is not None:
        config.metadata["attention.clamp_kqv"] = np.float32(attention.number("clip_qkv"))
    config.names = {
        "wte": "token_embd",
        "norm_f": "output_norm",
        "lm_head": "output",
        "norm_1": "attn_norm",
        "norm_2": "ffn_norm",
        "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output",
        "ffn.up_proj": "ffn_up",
        "ffn.down_proj": "ffn_down",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mpt.*``."""
    keys = Keys(file, "mpt")
    return _block.read_config(
        keys, BLOCK, alibi=keys.number("attention.max_alibi_bias"),
        clamp=keys.optional("attention.clamp_kqv"),
    )  # fmt: skip
