"""gpt-oss: experts with biases and limited gates, a sliding window in every second layer, sinks.

A head's sink takes a part of its attention without giving a value.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import EVEN_EXPERTS, EVEN_FIRST, EXPERTS
from halfbyte.text.architectures import CHANNELS, _block, _experts
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {
    "attn_norm": CHANNELS["attn_norm"],
    "post_attention_norm": CHANNELS["ffn_norm"],
    "output_norm": CHANNELS["output_norm"],
}
MODEL_TYPES = ("gpt_oss",)
BLOCK = Block(activation="limited", ffn_norm="post_attention_norm", whole_pairs=False)
build = partial(_block.build, BLOCK)
PERIOD = 2  # layers, the last of which sees all positions
_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.sinks": "attn_sinks",
    "mlp.router": "ffn_gate_inp",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys, rope = config.keys, config.keys.rope()
    keys.expect("hidden_act", "silu")
    keys.expect("swiglu_limit", 7.0)
    config.decoder("gpt-oss", 64, default_epsilon=1e-5)
    if rope.get("rope_type") == "yarn":
        rope.otherwise(truncate=True).expect("truncate", False)
    config.rope(rope.replaced(truncate=True).otherwise(rope_theta=150000.0))
    _experts.translate(config, count="num_local_experts", hidden="intermediate_size")
    config.shapes["attn_sinks"] = (config.size("attention.head_count"),)
    local = config.local_layers(lambda layer: (layer + 1) % PERIOD != 0)
    config.windows(local)
    if local == [(layer + 1) % PERIOD != 0 for layer in range(len(local))]:
        config.metadata.pop("attention.sliding_window_pattern", None)  # llama.cpp's default
    config.transforms |= {
        "ffn_gate_up_exps.weight": EVEN_EXPERTS,
        "ffn_gate_up_exps.bias": EVEN_FIRST,
        "ffn_down_exps.weight": EXPERTS,
    }
    config.names = NAMES | _experts.NAMES | _NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gpt-oss.*``."""
    keys = Keys(file, "gpt-oss")
    return _block.read_config(keys, BLOCK, period=PERIOD, experts=_experts.read(keys))
