"""dots.llm1: Qwen 3 with DeepSeek V3's experts in all layers but the first ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, deepseek2, qwen3
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("dots1",)
BLOCK = qwen3.BLOCK
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder("dots1")
    config.rope()
    first = keys.integer("max_window_layers", 62)
    config.windows(config.local_layers(lambda layer: layer >= first))
    config.names = NAMES | qwen3.HEAD_NORMS | deepseek2.NAMES_EXPERTS
    config.tied = keys.boolean("tie_word_embeddings", False)
    deepseek2.translate_experts(config, sigmoid=True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``dots1.*``."""
    keys = Keys(file, "dots1")
    experts = deepseek2.read_experts(keys, gating=_experts.SIGMOID)
    return _block.read_config(keys, qwen3.BLOCK, experts=experts)
