"""AFMoE (Trinity): DeepSeek V3's experts, gates of heads' elements, and windows.

Only layers with a window rotate. Results of parts are normed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, deepseek2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {**CHANNELS, "attn_norm": (*CHANNELS["attn_norm"], "attn_gate")}
MODEL_TYPES = ("afmoe",)
BLOCK = Block(after=True, head_norms="heads", head_gates=True)
build = partial(_block.build, BLOCK)
_NAMES = {
    "self_attn.gate_proj": "attn_gate",
    "post_attention_layernorm": "post_attention_norm",
    "pre_mlp_layernorm": "ffn_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "mlp.router.gate": "ffn_gate_inp",
    "mlp.expert_bias": "exp_probs_b.bias.",
}
_PERIOD = 4  # the last layer of so many has no window
# config.json's names -> DeepSeek's
_KEYS = {
    "n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts",
    "first_k_dense_replace": "num_dense_layers", "routed_scaling_factor": "route_scale",
}  # fmt: skip


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys.renamed(**_KEYS).otherwise(sliding_window=1024, first_k_dense_replace=1)
    config.keys = keys = keys.otherwise(norm_topk_prob=True, head_dim=128)
    keys.expect("hidden_act", "silu")
    keys.expect("attention_bias", False)
    config.decoder("afmoe", default_epsilon=1e-5)
    config.rope()
    period = keys.integer("global_attn_every_n_layers", _PERIOD)
    config.windows(config.local_layers(lambda layer: (layer + 1) % period != 0))
    config.names = {**NAMES, **HEAD_NORMS, **deepseek2.NAMES_EXPERTS, **_NAMES}
    config.tied = keys.boolean("tie_word_embeddings", False)
    deepseek2.translate_experts(config, sigmoid=True)
    width = config.size("attention.head_count") * config.size("attention.key_length")
    config.shapes["attn_gate"] = (width, config.size("embedding_length"))
    if not keys.boolean("mup_enabled", False):
        config.metadata["embedding_scale"] = np.float32(1)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``afmoe.*``; llama.cpp always scales embeddings."""
    keys = Keys(file, "afmoe")
    layers = keys.size("block_count", 1 << 10)
    windows = keys.windows(layers, _PERIOD)
    scale = keys.size("embedding_length", 1 << 20) ** 0.5
    return _block.read_config(
        keys, BLOCK, period=_PERIOD, experts=deepseek2.read_experts(keys, gating=_experts.SIGMOID),
        embedding_scale=keys.number("embedding_scale", scale),
        rotates=tuple(window > 0 for window in windows),
    )  # fmt: skip
