"""Granite with experts: Granite with a mixture in each layer, and maybe a part for every token."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, granite
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("granitemoe", "granitemoeshared")
BLOCK = granite.BLOCK
build = partial(_block.build, BLOCK)
_NAMES = {
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.router": "ffn_gate_inp",  # the same in newer folders
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps",
    "shared_mlp.input_linear": "ffn_gate_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    granite.translate(config, "granitemoe")
    translate_experts(config)


def translate_experts(config: Translation) -> None:
    """Set the sizes of experts, and of the part for every token."""
    _experts.translate(config, count="num_local_experts")
    if config.keys.get("shared_intermediate_size"):
        _experts.translate_shared(config, config.keys.integer("shared_intermediate_size"))
    config.names = {**config.names, **_NAMES}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``granitemoe.*``."""
    keys = Keys(file, "granitemoe")
    scales = granite.read_scales(keys)
    return _block.read_config(keys, BLOCK, **scales, experts=_experts.read(keys))
