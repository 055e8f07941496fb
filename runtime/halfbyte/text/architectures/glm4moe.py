"""GLM 4.5 to 4.7 with experts: DeepSeek V3's experts in a decoder with rotation of half of a head.

Norms of heads are optional. Solar Open has experts in all layers; it and Sarvam rotate whole heads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from halfbyte.core.program import Program
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, deepseek2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {
    **{norm: parts for norm, parts in CHANNELS.items() if norm != "ffn_norm"},
    "post_attention_norm": CHANNELS["ffn_norm"],
}
MODEL_TYPES = ("glm4_moe", "solar_open", "sarvam_moe")
BLOCK = Block(ffn_norm="post_attention_norm")
_SARVAM = {  # in published folders
    "word_embeddings": "token_embd",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm",
    "mlp.gate.expert_bias": "exp_probs_b.bias.",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    solar, sarvam = (config.kind == kind for kind in ("solar_open", "sarvam_moe"))
    keys.expect("hidden_act", "silu")
    if solar:
        hidden = keys.integer("moe_intermediate_size")
        keys = keys.replaced(first_k_dense_replace=0, intermediate_size=hidden)
        keys = keys.otherwise(head_dim=128)
    if sarvam:
        keys = keys.renamed(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
        keys = keys.otherwise(rope_theta=8e6, routed_scaling_factor=2.5)
    config.keys = keys.otherwise(n_shared_experts=1, norm_topk_prob=True, first_k_dense_replace=1)
    config.decoder("glm4moe", default_epsilon=1e-5)
    config.partial_rotation(1.0 if solar or sarvam else 0.5)
    config.rope()
    config.names = NAMES | HEAD_NORMS | deepseek2.NAMES_EXPERTS
    config.names = {**config.names, "post_attention_layernorm": "post_attention_norm"}
    if sarvam:
        config.names = {**config.names, **_SARVAM}
    config.tied = keys.boolean("tie_word_embeddings", False)
    deepseek2.drop_further(config)
    deepseek2.translate_experts(config, sigmoid=True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``glm4moe.*``."""
    keys = Keys(file, "glm4moe")
    blocks = keys.size("block_count", 1 << 10)
    layers = blocks - keys.size("nextn_predict_layers", blocks - 1, 0, low=0)
    config = _block.read_config(
        keys, BLOCK, experts=deepseek2.read_experts(keys, gating=_experts.SIGMOID),
        spare=tuple(f"blk.{layer}." for layer in range(layers, blocks)),
    )  # fmt: skip
    return replace(config, layers=layers)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    normed = any(name.endswith("attn_q_norm.weight") for name in file.tensors)
    block = replace(BLOCK, head_norms="heads" * normed)
    return _block.build(block, file, config, context=context, batch=batch, cache=cache)
