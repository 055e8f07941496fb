"""GPT-Neo: GPT-2 with a window in every second layer, and no factor of queries and keys.

The models of TinyStories are of this kind. llama.cpp does not run this architecture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.gpt2 import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("gpt_neo",)
BLOCK = Block(norm="layer", gated=False, activation="gelu_tanh", positions=0)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("activation_function", "gelu_new", "gelu_pytorch_tanh")
    layers = keys.integer("num_layers", maximum=1 << 10)
    hidden = keys.get("intermediate_size") or 4 * keys.integer("hidden_size", maximum=1 << 20)
    config.keys = keys.renamed(num_attention_heads="num_heads", num_hidden_layers="num_layers")
    config.keys = config.keys.otherwise(layer_norm_epsilon=1e-5)
    config.keys = config.keys.replaced(intermediate_size=hidden)
    config.decoder("gptneo", epsilon="layer_norm_epsilon")
    config.metadata["attention.scale"] = np.float32(1)
    kinds = _kinds(keys, layers)
    window = keys.integer("window_size", 256)
    config.metadata["attention.sliding_window"] = np.uint32(window)
    local = np.array([kind == "local" for kind in kinds], np.bool_)
    config.metadata["attention.sliding_window_pattern"] = local
    config.names = NAMES | {
        "attn.attention.q_proj": "attn_q",
        "attn.attention.k_proj": "attn_k",
        "attn.attention.v_proj": "attn_v",
        "attn.attention.out_proj": "attn_output",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def _kinds(keys: ConfigKeys, layers: int) -> list[str]:
    """What each layer sees, from `attention_types` such as [[["global", "local"], 12]]."""
    kinds: list[str] = []
    for entry in keys.list("attention_types") or [[["global", "local"], -(-layers // 2)]]:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)):
            raise FormatError(f"{keys.where}: key 'attention_types': expected kinds and a number")
        count = keys.replaced(attention_types=entry[1]).integer("attention_types", maximum=layers)
        kinds += entry[0] * count
    if len(kinds) < layers or any(kind not in ("global", "local") for kind in kinds):
        raise FormatError(
            f"{keys.where}: key 'attention_types': expected {layers} of 'global' and 'local'"
        )
    return kinds[:layers]


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gptneo.*``."""
    keys = Keys(file, "gptneo")
    return _block.read_config(keys, BLOCK, scale=keys.optional("attention.scale"))
