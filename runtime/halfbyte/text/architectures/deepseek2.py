"""DeepSeek 2 and 3: latent attention, and experts in all layers but the first ones.

Youtu has its attention, without experts. DeepSeek 3 and GLM 4.7 Flash choose experts by sigmoids
plus a bias; the larger DeepSeek models choose a few groups of experts first. Layers that guess
further tokens are left out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, _experts, _latent
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = _latent.EQUALIZED
MODEL_TYPES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "sarvam_mla", "youtu")
BLOCK = Block()
build = partial(_block.build, BLOCK)
NAMES_EXPERTS = {
    **_experts.NAMES,
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias.",
    **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}
_LOGARITHM = 0.1  # YaRN's factor of scores: 1 + this, times a multiplier, times the logarithm


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("rope_interleave", True, None)
    _latent.translate(config, "deepseek2", 1e-5 if config.kind == "glm4_moe_lite" else 1e-6)
    config.names = NAMES | _latent.NAMES | NAMES_EXPERTS
    config.tied = keys.boolean("tie_word_embeddings", config.kind == "youtu")
    config.rope()
    _translate_yarn(config)
    drop_further(config)
    if config.kind == "youtu":  # llama.cpp asks for these keys
        layers = config.metadata["block_count"]
        config.metadata["leading_dense_block_count"] = layers
        config.metadata["expert_feed_forward_length"] = config.metadata["feed_forward_length"]
        config.metadata["expert_shared_count"] = np.uint32(0)
    else:
        _translate_experts(config)


def drop_further(config: Translation) -> None:
    """Leave out layers after the last one, which guess further tokens."""
    keys, layers = config.keys, config.size("block_count")
    count = keys.values.get("num_nextn_predict_layers") or 0
    more = keys.integer("num_nextn_predict_layers", 1, maximum=16) if count else 0
    config.dropped = tuple(f"layers.{layer}." for layer in range(layers, layers + more))


def _translate_yarn(config: Translation) -> None:
    """Set YaRN's factor of scores; cos and sin have none."""
    rope = config.keys.rope()
    if config.metadata.get("rope.scaling.type") != "yarn":
        return
    multiplier = rope.number("mscale_all_dim")
    if rope.number("mscale", 1.0) != multiplier or rope.get("attention_factor"):
        raise UnsupportedError(
            f"{rope.where}: key 'mscale': expected {multiplier:g} as 'mscale_all_dim', and no "
            "'attention_factor'"
        )
    config.metadata.pop("rope.scaling.attn_factor", None)
    config.metadata["rope.scaling.yarn_log_multiplier"] = np.float32(_LOGARITHM * multiplier)


def _translate_experts(config: Translation) -> None:
    keys = config.keys
    if config.kind == "deepseek_v2":
        keys.expect("scoring_func", "softmax", None)
        keys.expect("norm_topk_prob", False, None)
        keys.expect("topk_method", "greedy", "group_limited_greedy", None)
        grouped = keys.get("topk_method") == "group_limited_greedy"
        config.keys = keys if grouped else keys.replaced(n_group=1, topk_group=1)
    else:
        keys.expect("scoring_func", "sigmoid", None)
        keys.expect("topk_method", "noaux_tc", None)
        if config.kind == "glm4_moe_lite":
            keys = keys.replaced(first_k_dense_replace=_dense_layers(config))
            keys = keys.otherwise(n_group=1, topk_group=1, routed_scaling_factor=1.8)
        if config.kind == "sarvam_mla":
            keys = keys.otherwise(n_group=1, topk_group=1, first_k_dense_replace=1)
        config.keys = keys.otherwise(
            n_shared_experts=1, first_k_dense_replace=3, n_group=8, topk_group=4,
            norm_topk_prob=True, routed_scaling_factor=2.5,
        )  # fmt: skip
    keys.expect("moe_layer_freq", 1, None)
    translate_experts(config, sigmoid=config.kind != "deepseek_v2")


def translate_experts(config: Translation, *, sigmoid: bool) -> None:
    """Set the sizes of experts with DeepSeek's keys."""
    keys, values = config.keys, config.metadata
    _experts.translate(config, count="n_routed_experts", hidden="moe_intermediate_size")
    _experts.translate_groups(config)
    if sigmoid:
        values["expert_gating_func"] = np.uint32(_experts.SIGMOID)
        values["expert_weights_norm"] = keys.boolean("norm_topk_prob", False)
        config.shapes["exp_probs_b.bias"] = (config.size("expert_count"),)
    values["expert_weights_scale"] = np.float32(keys.number("routed_scaling_factor", 1.0))
    layers = config.size("block_count")
    first = keys.values.get("first_k_dense_replace") or 0
    dense = keys.integer("first_k_dense_replace", maximum=layers) if first else 0
    _experts.translate_dense(config, dense)
    shared = keys.integer("n_shared_experts", 2)
    values["expert_shared_count"] = np.uint32(shared)
    _experts.translate_shared(config, shared * config.size("expert_feed_forward_length"))
    del values["expert_shared_feed_forward_length"]  # which follows from these


def _dense_layers(config: Translation) -> int:
    """The first layers without experts, by `mlp_layer_types`."""
    layers = config.size("block_count")
    types = config.keys.list("mlp_layer_types") or ["dense"] + ["sparse"] * min(layers - 1, 1 << 10)
    dense = types.count("dense")
    sparse = len(types) - dense
    if len(types) != layers or types != ["dense"] * dense + ["sparse"] * sparse:
        raise UnsupportedError(
            f"{config.keys.where}: key 'mlp_layer_types': expected {layers} of 'dense', then "
            "'sparse'"
        )
    return dense


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``deepseek2.*``."""
    keys = Keys(file, "deepseek2")
    return _latent.read_config(
        keys, BLOCK, interleaved=True, experts=read_experts(keys),
        others={"nextn_predict_layers": metadata.ANY},
    )  # fmt: skip


def read_experts(keys: Keys, *, gating: int = _experts.SOFTMAX) -> Experts | None:
    """Hyperparameters of experts, if there are any; those for every token have the same size."""
    experts = _experts.read(keys, normalize=False, optional=True, gating=gating)
    shared = keys.size("expert_shared_count", 1 << 10, 0, low=0)
    if experts is None:
        keys.size("leading_dense_block_count", 1 << 10, 0, low=0)
        keys.size("expert_feed_forward_length", 1 << 22, 1)
        return None
    return replace(experts, shared=shared * experts.hidden)
