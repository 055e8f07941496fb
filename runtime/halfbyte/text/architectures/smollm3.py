"""SmolLM 3: Llama, of which each fourth layer does not rotate (NoPE; Kazemnejad et al. 2023)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("smollm3",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)
_PERIOD = 4  # layers, the last of which is not rotated; llama.cpp's files do not say


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("use_sliding_window", False, None)
    config.decoder("smollm3")
    config.rope()
    layers = config.size("block_count")
    keys.expect(
        "no_rope_layers", [int((layer + 1) % _PERIOD != 0) for layer in range(layers)], None, []
    )
    if not keys.list("no_rope_layers"):
        keys.expect("no_rope_layer_interval", _PERIOD)

    config.interleave("attn_q", heads="attention.head_count")
    config.interleave("attn_k", heads="attention.head_count_kv")

    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``smollm3.*``."""
    keys = Keys(file, "smollm3")
    rotates = tuple(
        (layer + 1) % _PERIOD != 0 for layer in range(keys.size("block_count", 1 << 10))
    )
    return _block.read_config(keys, BLOCK, rotates=rotates)
