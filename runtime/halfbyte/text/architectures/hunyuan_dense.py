"""Hunyuan (dense): Llama with norms of heads after their rotation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("hunyuan_v1_dense",)
BLOCK = Block(head_norms="rotated")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder("hunyuan-dense")
    rope = keys.rope()
    if rope.get("alpha"):
        rope = _stretched(config, rope)
    config.rope(rope)
    config.names = NAMES | {
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
    }
    config.tied = keys.boolean("tie_word_embeddings", False)


def _stretched(config: Translation, rope: ConfigKeys) -> ConfigKeys:
    """A larger base instead of `alpha`, as in llama.cpp's files."""
    rope.expect("rope_type", "dynamic", None)
    rope.expect("type", "dynamic", None)
    head = config.size("attention.key_length")
    base = rope.number("rope_theta", config.keys.number("rope_theta", 10000.0))
    base *= rope.number("alpha") ** (head / (head - 2))
    return rope.only().replaced(rope_theta=base)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``hunyuan-dense.*``."""
    return _block.read_config(Keys(file, "hunyuan-dense"), BLOCK)
