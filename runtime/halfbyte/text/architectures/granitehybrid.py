"""Granite 4: Granite with state spaces in most layers, and maybe experts.

Without state spaces, its models are those of Granite 3 in GGUF.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, _ssm, granite, granitemoe
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._decoder import ATTENTION
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {**CHANNELS, "attn_norm": (*CHANNELS["attn_norm"], "ssm_in")}
MODEL_TYPES = ("granitemoehybrid",)
BLOCK = granite.BLOCK
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    attends = _attends(config)
    experts = keys.values.get("num_local_experts", 8) not in (0, None)
    name = "granitemoe" if experts else "granite"
    granite.translate(config, name if all(attends) else "granitehybrid")
    keys.expect("attention_bias", False)
    if experts:
        granitemoe.translate_experts(config)
    else:
        hidden = keys.integer("shared_intermediate_size", 1024)
        dim = config.size("embedding_length")
        config.metadata["feed_forward_length"] = np.uint32(hidden)
        config.shapes |= {"ffn_gate_up": (2 * hidden, dim), "ffn_down": (dim, hidden)}
    if all(attends):
        keys.otherwise(position_embedding_type=None).expect("position_embedding_type", "rope")
        return
    rotates = keys.get("position_embedding_type") == "rope"
    config.metadata["rope.scaling.finetuned"] = rotates  # by which llama.cpp decides
    translate_attends(config, attends)
    translate_space(config, keys.integer("mamba_expand", 2) * config.size("embedding_length"))


def translate_attends(config: Translation, attends: list[bool]) -> None:
    """Set which layers attend; the others have states."""
    counts = np.array(attends, np.int32) * config.size("attention.head_count_kv")
    config.metadata["attention.head_count_kv"] = counts.astype(np.int32)
    config.uneven = tuple(
        f"blk.{layer}.{part}"
        for layer, attending in enumerate(attends)
        for part in (("ssm_",) if attending else ATTENTION)
    )


def _attends(config: Translation) -> list[bool]:
    """Which layers attend, by `layer_types`; without it none does."""
    keys, known = config.keys, ("mamba", "linear_attention", "attention", "full_attention")
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    types = keys.list("layer_types") or ["mamba"] * layers
    if len(types) != layers or any(kind not in known for kind in types):
        raise FormatError(f"{keys.where}: key 'layer_types': expected {layers} of {known}")
    return [kind in known[2:] for kind in types]


def translate_space(config: Translation, channels: int) -> None:
    """Set the sizes of state spaces in models that have attention, too."""
    keys = config.keys
    keys.expect("mamba_proj_bias", False)
    heads = keys.integer("mamba_n_heads", 128, maximum=_ssm.MAX_HEADS)
    keys.expect("mamba_d_head", "auto", channels // heads)
    _ssm.translate(
        config,
        channels=channels,
        heads=heads,
        groups=keys.integer("mamba_n_groups", 1),
        states=keys.integer("mamba_d_state", 256),
        taps=keys.integer("mamba_d_conv", 4),
    )
    config.names = {**config.names, **_ssm.names("mamba")}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``granitehybrid.*``."""
    keys = Keys(file, "granitehybrid")
    attends, heads = keys.attends(keys.size("block_count", 1 << 10))
    rotates = keys.boolean("rope.scaling.finetuned", True)
    return _block.read_config(
        keys, BLOCK, kv_heads=heads, **granite.read_scales(keys), attends=attends,
        experts=_experts.read(keys, optional=True), mixer=_ssm.read(keys),
        rotates=() if rotates else (False,) * len(attends),
    )  # fmt: skip
