"""DeepSeek 2 and 3: latent attention, and experts in all layers but the first ones.

Youtu has its attention, without experts. DeepSeek 3 chooses experts by sigmoids plus a bias; those
that choose groups of experts first are refused. Layers that guess further tokens are left out.
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
MODEL_TYPES = ("deepseek_v2", "deepseek_v3", "youtu")
BLOCK = Block()
build = partial(_block.build, BLOCK)
_NAMES = {
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias.",
    **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
}
_LOGARITHM = 0.1  # YaRN's factor of scores: 1 + this, times a multiplier, times the logarithm


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("rope_interleave", True, None)
    _latent.translate(config, "deepseek2", 1e-6)
    config.names = NAMES | _latent.NAMES | _experts.NAMES | _NAMES
    config.tied = keys.boolean("tie_word_embeddings", config.kind == "youtu")
    config.rope()
    _translate_yarn(config)
    layers = config.size("block_count")
    config.dropped = tuple(f"layers.{layer}." for layer in range(layers, layers + _extra(config)))
    if config.kind == "youtu":  # llama.cpp asks for these keys
        config.metadata["leading_dense_block_count"] = np.uint32(layers)
        config.metadata["expert_feed_forward_length"] = config.metadata["feed_forward_length"]
        config.metadata["expert_shared_count"] = np.uint32(0)
    else:
        _translate_experts(config)


def _extra(config: Translation) -> int:
    """Layers after the last one, which guess further tokens."""
    count = config.keys.values.get("num_nextn_predict_layers") or 0
    return config.keys.integer("num_nextn_predict_layers", 1, maximum=16) if count else 0


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
    keys, values = config.keys, config.metadata
    for key in ("n_group", "topk_group"):
        keys.expect(key, 1, None)
    keys.expect("topk_method", "greedy", "noaux_tc", None)
    keys.expect("moe_layer_freq", 1, None)
    _experts.translate(config, count="n_routed_experts", hidden="moe_intermediate_size")
    sigmoid = config.kind == "deepseek_v3"
    if sigmoid:
        values["expert_gating_func"] = np.uint32(_experts.SIGMOID)
        values["expert_weights_norm"] = keys.boolean("norm_topk_prob", True)
        config.shapes["exp_probs_b.bias"] = (config.size("expert_count"),)
    else:
        keys.expect("norm_topk_prob", False, None)
    values["expert_weights_scale"] = np.float32(
        keys.number("routed_scaling_factor", 2.5 if sigmoid else 1.0)
    )
    layers = config.size("block_count")
    first = keys.values.get("first_k_dense_replace", 3 if sigmoid else 0)
    dense = keys.integer("first_k_dense_replace", 3, maximum=layers) if first != 0 else 0
    _experts.translate_dense(config, dense)
    shared = keys.integer("n_shared_experts", 1 if sigmoid else 2)
    values["expert_shared_count"] = np.uint32(shared)
    _experts.translate_shared(config, shared * config.size("expert_feed_forward_length"))
    del values["expert_shared_feed_forward_length"]  # which follows from these


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``deepseek2.*``."""
    keys = Keys(file, "deepseek2")
    return _latent.read_config(
        keys, BLOCK, interleaved=True, experts=_read_experts(keys),
        others={"nextn_predict_layers": metadata.ANY},
    )  # fmt: skip


def _read_experts(keys: Keys) -> Experts | None:
    experts = _experts.read(keys, normalize=False, optional=True)
    shared = keys.size("expert_shared_count", 1 << 10, 0, low=0)
    if experts is None:
        keys.size("leading_dense_block_count", 1 << 10, 0, low=0)
        keys.size("expert_feed_forward_length", 1 << 22, 1)
        return None
    return replace(experts, shared=shared * experts.hidden)
