"""OLMo 2 and 3: norms of results rather than inputs, norms of all queries and all keys of a token.

OLMo 3 has a window in three of four layers, whose rotation is not scaled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = _block.AFTER
MODEL_TYPES = ("olmo2", "olmo3")
RESULT_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
BLOCK = Block(before=False, after=True, head_norms="whole")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("attention_bias", False, None)
    config.decoder("olmo2")
    if config.kind == "olmo2":
        config.rope()
    else:
        _translate_rope(config)
        config.windows(config.local_layers(lambda layer: (layer + 1) % 4 != 0))
    norm_whole_heads(config)
    config.names = NAMES | HEAD_NORMS | RESULT_NORMS
    config.tied = keys.boolean("tie_word_embeddings", False)


def norm_whole_heads(config: Translation) -> None:
    """Set the sizes of norms of all heads together."""
    head = config.size("attention.key_length")
    for part, heads in (("q", "head_count"), ("k", "head_count_kv")):
        config.shapes[f"attn_{part}_norm"] = (head * config.size(f"attention.{heads}"),)


def _translate_rope(config: Translation) -> None:
    """Bases of the layers without a window and of those with one, and scaling of the former."""
    rope = config.keys.rope()
    everywhere = rope.inner("full_attention") if "full_attention" in rope.values else rope
    base = config.keys.number("rope_theta", 500_000.0)
    everywhere = everywhere.otherwise(rope_theta=base)
    config.rope(everywhere)
    local = rope.inner("sliding_attention")
    local.expect("rope_type", "default")
    local.expect("rope_theta", everywhere.number("rope_theta"))  # llama.cpp has one base


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``olmo2.*``."""
    keys = Keys(file, "olmo2")
    base = keys.number("rope.freq_base", 10000.0)
    return _block.read_config(keys, BLOCK, period=4, local_base=base)
