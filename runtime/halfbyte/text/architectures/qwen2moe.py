"""Qwen 1.5 and 2 with experts: Qwen 2 with a mixture, and a part with a gate for every token."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, qwen2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen2_moe",)
BLOCK = Block()
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    qwen2.translate(config, "qwen2moe")
    translate_experts(config, normalize=False)
    _experts.translate_shared(config, config.keys.integer("shared_expert_intermediate_size"))
    config.names = NAMES | _experts.NAMES | _experts.SHARED


def translate_experts(config: Translation, *, normalize: bool) -> None:
    """Set the sizes of experts; `normalize` is what llama.cpp does with their weights."""
    config.keys = keys = config.keys.renamed(num_experts="num_local_experts")
    keys.expect("decoder_sparse_step", 1)
    keys.expect("mlp_only_layers", [], None)
    _experts.translate(config, count="num_experts", hidden="moe_intermediate_size")
    if keys.boolean("norm_topk_prob", False) is not normalize:
        config.metadata["expert_weights_norm"] = not normalize


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen2moe.*``."""
    keys = Keys(file, "qwen2moe")
    return _block.read_config(keys, BLOCK, experts=_experts.read(keys, normalize=False))
