"""Nemotron H with experts: see `nemotron_h`.

Experts are chosen by their probabilities plus a bias, and may read fewer elements than the router.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _experts, nemotron_h
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.nemotron_h import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = nemotron_h.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # a norm's elements may not be those that experts read
MODEL_TYPES: tuple[str, ...] = ()  # see `nemotron_h.variant`
build = nemotron_h.build
_NAMES = {
    "mixer.gate": "ffn_gate_inp",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias.",
    "mixer.experts.up_proj": "ffn_up_exps",
    "mixer.experts.down_proj": "ffn_down_exps",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
    "mixer.fc1_latent_proj": "ffn_latent_down",
    "mixer.fc2_latent_proj": "ffn_latent_up",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    config.keys = keys.replaced(intermediate_size=keys.integer("moe_intermediate_size", 7688))
    nemotron_h.translate_parts(config, "nemotron_h_moe")
    _experts.translate(config, count="n_routed_experts", hidden="moe_intermediate_size")
    _experts.translate_groups(config)
    values, dim = config.metadata, config.size("embedding_length")
    values["expert_shared_count"] = np.uint32(keys.integer("n_shared_experts", 1))
    values["expert_weights_norm"] = keys.boolean("norm_topk_prob", True)
    values["expert_weights_scale"] = np.float32(keys.number("routed_scaling_factor", 1.0))
    values["expert_gating_func"] = np.uint32(_experts.SIGMOID)
    shared = keys.integer("moe_shared_expert_intermediate_size", 7688)
    _experts.translate_shared(config, shared)
    latent = keys.integer("moe_latent_size") if keys.get("moe_latent_size") else 0
    if latent:
        values["moe_latent_size"] = np.uint32(latent)
    experts, hidden = config.size("expert_count"), config.size("expert_feed_forward_length")
    config.shapes |= {
        "exp_probs_b.bias": (experts,),
        "ffn_up_exps": (experts, hidden, latent or dim),
        "ffn_down_exps": (experts, latent or dim, hidden),
        "ffn_latent_down": (latent, dim),
        "ffn_latent_up": (dim, latent),
    }
    config.names = {**config.names, **_NAMES}
    nemotron_h.translate_layers(config)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nemotron_h_moe.*``."""
    return nemotron_h.read(Keys(file, "nemotron_h_moe"), experts=True)
