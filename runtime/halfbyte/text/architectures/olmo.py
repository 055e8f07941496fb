"""OLMo: Llama with LayerNorm without gains, and a limit of queries, keys and values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = _block.AFTER
MODEL_TYPES = ("olmo",)
BLOCK = Block(norm="plain", interleaved=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("attention_bias", False, None)
    config.keys = keys.otherwise(layer_norm_eps=1e-5)
    config.decoder("olmo", epsilon="layer_norm_eps")
    config.rope()
    if keys.get("clip_qkv") is not None:
        config.metadata["attention.clamp_kqv"] = np.float32(keys.number("clip_qkv"))

    config.interleave("attn_q", heads="attention.head_count")
    config.interleave("attn_k", heads="attention.head_count_kv")

    config.names = {k: v for k, v in NAMES.items() if "norm" not in v}
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``olmo.*``."""
    keys = Keys(file, "olmo")
    return _block.read_config(keys, BLOCK, clamp=keys.optional("attention.clamp_kqv"))
