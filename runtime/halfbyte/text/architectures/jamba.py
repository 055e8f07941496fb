"""Jamba: Mamba in most layers, attention without positions in others, and experts in some.

Steps, and what channels write and read, are normalized.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, _ssm, mamba
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._decoder import ATTENTION
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {**CHANNELS, "attn_norm": (*CHANNELS["attn_norm"], "ssm_in")}
MODEL_TYPES = ("jamba",)
BLOCK = Block()
build = partial(_block.build, BLOCK)
_ROUTER = "ffn_gate_inp"
_NAMES = {
    "final_layernorm": "output_norm",
    "pre_ff_layernorm": "ffn_norm",
    "feed_forward.router": _ROUTER,
    **_ssm.names("mamba"),
    **{f"mamba.{n}_layernorm": f"ssm_{n}_norm" for n in ("dt", "b", "c")},
    **{f"feed_forward.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
    **{
        f"feed_forward.experts.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "gate_up", "down")
    },
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("mamba_conv_bias", True)
    keys.expect("mamba_proj_bias", False)
    config.decoder("jamba")
    del config.metadata["rope.dimension_count"]
    config.names = NAMES | _NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)
    mamba.translate_channels(
        config,
        channels=keys.integer("mamba_expand", 2) * config.size("embedding_length"),
        states=keys.integer("mamba_d_state", 16),
        taps=keys.integer("mamba_d_conv", 4),
        rank="mamba_dt_rank",
    )
    states, rank = config.size("ssm.state_size"), config.size("ssm.time_step_rank")
    config.shapes |= {"ssm_dt_norm": (rank,), "ssm_b_norm": (states,), "ssm_c_norm": (states,)}
    attends, routed = _every(config, "attn", 8, 4), _every(config, "expert", 2, 1)
    experts = keys.integer("num_experts", 16)
    if experts == 1:
        routed = [False] * len(routed)
    else:
        _experts.translate(config, count="num_experts")
    counts = np.array(attends, np.int32) * config.size("attention.head_count_kv")
    config.metadata["attention.head_count_kv"] = counts.astype(np.int32)
    config.uneven = tuple(
        f"blk.{layer}.{part}"
        for layer in range(len(attends))
        for part in (
            *(("ssm_",) if attends[layer] else ATTENTION),
            *(_experts.DENSE if routed[layer] else _experts.ROUTED),
        )
    )


def _every(config: Translation, part: str, period: int, offset: int) -> list[bool]:
    """Which layers have a part: one of a period, at an offset in it."""
    keys = config.keys
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    period = keys.integer(f"{part}_layer_period", period)
    value = keys.values.get(f"{part}_layer_offset", offset)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < period:
        raise FormatError(
            f"{keys.where}: key '{part}_layer_offset': expected 0 to {period - 1}, found "
            f"{value!r:.40}"
        )
    return [layer % period == value for layer in range(layers)]


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``jamba.*``; layers with a router have experts."""
    keys = Keys(file, "jamba")
    attends, heads = keys.attends(keys.size("block_count", 1 << 10))
    epsilon = keys.number("attention.layer_norm_rms_epsilon")
    return _block.read_config(
        keys, BLOCK, kv_heads=heads, attends=attends, rotates=(False,) * len(attends),
        experts=_read_experts(keys, len(attends)), mixer=mamba.read_mixer(keys, epsilon),
    )  # fmt: skip


def _read_experts(keys: Keys, layers: int) -> Experts | None:
    routed = [f"blk.{layer}.{_ROUTER}.weight" in keys.file.tensors for layer in range(layers)]
    experts = _experts.read(keys, normalize=False, optional=True)
    return replace(experts, layers=tuple(routed)) if experts and any(routed) else None
