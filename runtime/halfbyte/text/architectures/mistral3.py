"""Ministral 3: Llama whose queries grow with their position beyond the original context."""

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
MODEL_TYPES = ("ministral3",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("sliding_window", None)
    config.decoder("mistral3")
    config.rope()
    rope = keys.rope()
    if rope.get("llama_4_scaling_beta"):
        beta = rope.number("llama_4_scaling_beta")
        config.metadata["attention.temperature_scale"] = np.float32(beta)
        original = rope.integer("original_max_position_embeddings")
        config.metadata["rope.scaling.original_context_length"] = np.uint32(original)

    config.interleave("attn_q", heads="attention.head_count")
    config.interleave("attn_k", heads="attention.head_count_kv")

    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mistral3.*``."""
    keys = Keys(file, "mistral3")
    growth = None
    if beta := keys.optional("attention.temperature_scale"):
        growth = beta, keys.size("rope.scaling.original_context_length", 1 << 24)
    return _block.read_config(keys, BLOCK, growth=growth)
