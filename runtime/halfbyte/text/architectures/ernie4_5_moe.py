"""ERNIE 4.5 with experts: ERNIE 4.5 with a mixture in all layers but the first ones.

Experts are chosen by their probabilities plus a bias; some further ones, in one matrix, run for
every token.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import FLATTENED
from halfbyte.text.architectures import CHANNELS, _block, _experts
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("ernie4_5_moe",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)
_BIAS = "e_score_correction_bias"
_NAMES = {
    f"mlp.moe_statics.{_BIAS}": "exp_probs_b.bias.",
    f"mlp.gate.moe_statics.{_BIAS}": "exp_probs_b.bias.",
    **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys = config.keys.otherwise(rope_theta=500000.0)
    keys.expect("hidden_act", "silu")
    keys.expect("use_bias", False, None)
    keys.expect("moe_layer_interval", 1)
    config.decoder("ernie4_5-moe", default_epsilon=1e-5)
    config.rope()
    config.names = NAMES | _experts.NAMES | _NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)
    _experts.translate(
        config, count="moe_num_experts", hidden="moe_intermediate_size", used="moe_k"
    )
    layers = config.size("block_count")
    keys.expect("moe_layer_end_index", -1, layers - 1)
    dense = keys.integer("moe_layer_start_index", 1, maximum=layers)
    _experts.translate_dense(config, dense)
    config.metadata["interleave_moe_layer_step"] = np.uint32(1)
    config.shapes["exp_probs_b.bias"] = (1, config.size("expert_count"))
    config.transforms["exp_probs_b.bias"] = FLATTENED
    shared = keys.integer("moe_num_shared_experts", 2)
    config.metadata["expert_shared_count"] = np.uint32(shared)
    _experts.translate_shared(config, shared * config.size("expert_feed_forward_length"))


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``ernie4_5-moe.*``."""
    keys = Keys(file, "ernie4_5-moe")
    others = {"expert_shared_count": metadata.ANY, "interleave_moe_layer_step": 1}
    return _block.read_config(keys, BLOCK, others=others, experts=_experts.read(keys))
