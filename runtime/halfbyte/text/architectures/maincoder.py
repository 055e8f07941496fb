"""Maincoder, and Llama 4 without experts (MobileLLM R1): heads are normed after their rotation.

Llama 4's norms have no gains; in GGUF they are ones, and llama.cpp runs the model as a Maincoder.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("llama4_text",)
BLOCK = Block(interleaved=True, head_norms="rotated")
build = partial(_block.build, BLOCK)
_HEAD_NORMS = ("attn_q_norm", "attn_k_norm")


def translate(config: Translation) -> None:
    """Translate a config.json of Llama 4 whose layers all rotate, without experts."""
    config.keep_original()  # which says how it differs from those with experts
    config.decoder("maincoder", head_dim=128, default_epsilon=1e-5)
    layers, context = config.size("block_count"), config.size("context_length")
    keys = config.keys.otherwise(  # those of the models with experts
        use_qk_norm=True, no_rope_layers=None, interleave_moe_layer_step=1,
        attention_chunk_size=8192,
    )  # fmt: skip
    keys.expect("hidden_act", "silu")
    keys.expect("use_qk_norm", True)
    keys.expect("no_rope_layers", [1] * layers)
    keys.expect("moe_layers", [], None)
    if keys.get("moe_layers") is None:
        keys.expect("interleave_moe_layer_step", 0)
    keys.expect("attention_chunk_size", context, None)  # beyond it, attention begins anew
    config.rope()
    hidden = keys.integer("intermediate_size_mlp")
    config.metadata["feed_forward_length"] = np.uint32(hidden)
    parts = {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
    config.names = NAMES | parts
    ones = np.ones(config.size("attention.key_length"), np.float32)
    config.tensors |= {
        f"blk.{i}.{norm}.weight": ones for i in range(layers) for norm in _HEAD_NORMS
    }
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``maincoder.*``."""
    return _block.read_config(Keys(file, "maincoder"), BLOCK)
