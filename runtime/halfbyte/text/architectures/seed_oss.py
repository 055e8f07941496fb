"""Seed-OSS: Llama with biases of queries, keys and values; pairs are half a head apart."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {
    "attn_norm": CHANNELS["attn_norm"],
    "post_attention_norm": CHANNELS["ffn_norm"],
    **_block.AFTER,
}
MODEL_TYPES = ("seed_oss",)
BLOCK = Block(ffn_norm="post_attention_norm")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder("seed_oss", 128)
    config.rope()
    config.names = NAMES | {"post_attention_layernorm": "post_attention_norm"}
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``seed_oss.*``."""
    return _block.read_config(Keys(file, "seed_oss"), BLOCK)
