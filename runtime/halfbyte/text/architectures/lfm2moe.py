"""LFM2 with experts: LFM2 with a mixture in all layers but the first ones.

Experts are chosen by their probabilities plus a bias, which does not change their weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _experts, lfm2
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.lfm2 import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = lfm2.TABLES
EQUALIZED = lfm2.EQUALIZED
MODEL_TYPES = ("lfm2_moe",)
build = lfm2.build
_NAMES = {
    "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert_bias": "exp_probs_b.bias.",
    "feed_forward.experts.w1": "ffn_gate_exps",
    "feed_forward.experts.w3": "ffn_up_exps",
    "feed_forward.experts.w2": "ffn_down_exps",
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps",
    "feed_forward.experts.down_proj": "ffn_down_exps",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys = keys = config.keys.replaced(block_auto_adjust_ff_dim=False)
    for key in ("norm_topk_prob", "use_expert_bias"):
        keys.expect(key, True)
    keys.expect("routed_scaling_factor", 1, None)
    lfm2.translate(config, "lfm2moe")
    layers = config.size("block_count")
    dense = keys.integer("num_dense_layers", 2, maximum=layers)
    _experts.translate(config, count="num_experts", hidden="moe_intermediate_size")
    _experts.translate_dense(config, dense)
    config.metadata["expert_gating_func"] = np.uint32(_experts.SIGMOID)
    config.shapes["exp_probs_b.bias"] = (config.size("expert_count"),)
    config.names = {**config.names, **_NAMES}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``lfm2moe.*``."""
    keys = Keys(file, "lfm2moe")
    return lfm2.read(keys, _experts.read(keys))
