"""OLMoE: Llama with norms of whole queries and keys, and a mixture in each layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, olmo2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("olmoe",)
BLOCK = Block(head_norms="whole")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("attention_bias", False)
    keys.expect("clip_qkv", None)
    config.keys = keys.otherwise(rms_norm_eps=1e-5)
    config.decoder("olmoe")
    config.rope()
    olmo2.norm_whole_heads(config)
    _experts.translate(config, count="num_experts")
    if keys.boolean("norm_topk_prob", False):
        config.metadata["expert_weights_norm"] = True
    config.names = NAMES | HEAD_NORMS | _experts.NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``olmoe.*``."""
    keys = Keys(file, "olmoe")
    return _block.read_config(keys, BLOCK, experts=_experts.read(keys, normalize=False))
